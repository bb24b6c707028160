"""compaction/ at a start: what the real classes refuse, and what the forecast says of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.real_broker.oracle_server import OracleServers
from tests.stores import copy_store, meta

LOG = "00000000000000000000"
SECOND = "00000000000000023000"


def halves(store: Path) -> tuple[Path, Path]:
    below = store / "compaction"
    return below / "compactionLog/Compact_11/0", below / "compactionCq/Compact_11/0"


def no_queue_file(store: Path) -> None:
    (halves(store)[1] / LOG).unlink()


def no_log_file(store: Path) -> None:
    (halves(store)[0] / LOG).unlink()


def no_queue(store: Path) -> None:
    shutil.rmtree(halves(store)[1])


def short_file(store: Path) -> None:
    with (halves(store)[0] / LOG).open("r+b") as file:
        file.truncate(22_999)


def other_directory(store: Path) -> None:
    (store / "compaction/compactionLog/Compact_11/old").mkdir()


def text_file(store: Path) -> None:
    shutil.copy(halves(store)[0] / LOG, halves(store)[0] / "copy")


def second_log_file(store: Path) -> None:
    """The recovery deletes it: it is after the message of the last unit."""
    (halves(store)[0] / SECOND).write_bytes(bytes(23_000))


def second_queue_file(store: Path) -> None:
    (halves(store)[1] / SECOND).write_bytes(bytes(4_600))


def second_of_both(store: Path) -> None:
    second_log_file(store)
    second_queue_file(store)


STARTS = [no_queue, short_file, second_log_file, second_of_both]
STOPS = [no_queue_file, no_log_file, other_directory, text_file, second_queue_file]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.5.1", "5.4.0", "5.1.4"])
def test_the_forecast_stops_where_the_broker_does(version: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    made = meta(f"{version}-formats")
    for change in (*STARTS, *STOPS):
        store = copy_store(f"{version}-formats", tmp_path, rename=change.__name__)
        change(store)
        seen = oracle_servers.load(version, store, {**made.oracle_args, "enableCompaction": "true"})
        assert seen.load is (change in STARTS), (change.__name__, seen)
        for config in (BrokerConfig(dict(made.broker_conf)), BrokerConfig()):
            forecast = simulate_start(open_store(store, config), version=version)
            assert forecast.starts is seen.load, (change.__name__, forecast.reason)


def test_without_compaction_the_broker_ignores_it(tmp_path: Path, oracle_servers: OracleServers) -> None:
    made = meta("5.5.1-formats")
    store = copy_store("5.5.1-formats", tmp_path)
    no_queue_file(store)
    seen = oracle_servers.load("5.5.1", store, {**made.oracle_args, "enableCompaction": "false"})
    without, plain = (BrokerConfig(given) for given in ({"enableCompaction": "false"}, {}))
    assert seen.load
    assert simulate_start(open_store(store, without), version="5.5.1").starts
    assert not simulate_start(open_store(store, plain), version="5.5.1").starts
