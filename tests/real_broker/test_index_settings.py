"""Sizes of index files that take no entry: what the real store does with them is what the forecast says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.answers import HEAP, of_forecast, of_oracle
from tests.real_broker.oracle import Oracle
from tests.stores import VERSIONS, copy_store, meta

_ENDLESS = 20  # s; after so long, a start that is forecast not to end is stopped
SIZES = [
    {"maxHashSlotNum": "0"},
    {"maxHashSlotNum": "-5"},
    {"maxHashSlotNum": "-2000000000"},
    {"maxHashSlotNum": "1073741824"},
    {"maxIndexNum": "200000000"},
    {"maxIndexNum": "1"},
]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "closed"])
@pytest.mark.parametrize("settings", SIZES, ids=lambda one: "-".join(f"{k}={v}" for k, v in one.items()))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_start_with_these_sizes_of_index_files_is_forecast(
    version: str, settings: dict[str, str], killed: bool, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    if killed:
        (store / "abort").touch()
    given = {key: str(value) for key, value in meta(name).oracle_args.items()} | settings
    opened = open_store(store, BrokerConfig(given))
    forecast = simulate_start(opened, version=version, options=StartOptions(heap=HEAP))
    endless = not forecast.starts and forecast.exit_code is None
    result = oracle(version).load(store, given, start=True, timeout=_ENDLESS if endless else 300)
    told, real = of_forecast(forecast, store), of_oracle(result, set())
    assert (told.load, told.dies, told.queues) == (real.load, real.dies, real.queues)
    assert forecast.starts or killed or settings.get("maxIndexNum") == "200000000"


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_creates_an_absent_directory_of_the_log_and_uses_it(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    paths = f"{store}/commitlog,{store}/absent"
    settings = {**meta("4.9.7-clean").oracle_args, "storePathCommitLog": paths}
    result = oracle(version).load(store, settings, start=True, put=300)
    assert len(result.puts) == 300
    assert [path.name for path in (store / "absent").iterdir()] == ["00000000000000524288"]
