"""Compare the forecast of a start with the start of the real store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from rmqstore.brokers.forecast import StartForecast, StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.answers import HEAP, Answer, of_forecast, of_oracle
from tests.real_broker.oracle import OracleResult
from tests.stores import meta


def compare_forecast(name: str, store: Path, version: str, real: OracleResult) -> StartForecast:
    """Check that the forecast for a broken copy of fixture `name` is what the real store did with it.

    Queues in RocksDB are not forecast. Before 5.5, light queues are in files even if 5.5 has them in RocksDB.
    """
    opened = open_store(store, BrokerConfig(dict(meta(name).oracle_args)))
    forecast = simulate_start(opened, version=version, options=StartOptions(heap=HEAP))
    told = replace(of_forecast(forecast, store), gone=())
    answer = of_oracle(real, set())
    if answer.load and real.leader is not None:  # what a leader commits afterwards depends on timing
        answer = replace(answer, max_offset=real.max_phy_after_load)
    if forecast.depends_on_commits is not None:  # by the forecast, more may be skipped
        assert all(end[1] <= told.queues[queue][1] for queue, end in answer.queues.items())
        answer = replace(answer, queues=told.queues)
    in_rows = {queue for queue in answer.queues.keys() - told.queues if opened.reads_rows(queue.rpartition("/")[0])}
    if not forecast.consume_queues_simulated:
        in_rows = set(answer.queues)
    answer = replace(answer, queues={queue: end for queue, end in answer.queues.items() if queue not in in_rows})
    assert told == answer, f"forecast for {version}, and the real start: {_differences(told, answer)}"
    return forecast


def _differences(told: Answer, real: Answer) -> dict[str, object]:
    """Return what a forecast and the real store say, where they differ."""
    found: dict[str, object] = {}
    for field in fields(told):
        one, other = getattr(told, field.name), getattr(real, field.name)
        if isinstance(one, Mapping):
            found |= {k: (one.get(k), other.get(k)) for k in one.keys() | other.keys() if one.get(k) != other.get(k)}
        elif one != other:
            found[field.name] = one, other
    return found
