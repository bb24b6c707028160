"""Double write with combineCQPreferCQType=defaultRocksDB: consumers get the ends that a forecast names."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.answers import as_far_as_simulated, of_forecast, of_oracle
from tests.real_broker.oracle import Oracle
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

need_rocksdict()
PREFERS = {"combineCQPreferCQType": "defaultRocksDB"}
ASSIGNS = {"combineAssignOffsetCQType": "defaultRocksDB"}


def whole(store: Path) -> None:
    assert (store / "commitlog").is_dir()


def expired(store: Path) -> None:
    for path in sorted((store / "commitlog").iterdir())[:4]:
        path.unlink()


def without_rows(store: Path) -> None:
    shutil.rmtree(store / "consumequeue_rocksdb", ignore_errors=True)
    for path in (store / "consumequeue").iterdir():
        if path.is_file():
            path.unlink()


def without_a_queue(store: Path) -> None:
    shutil.rmtree(min((store / "consumequeue").glob("*/0")))


STORES = (("5.4.0-rocksdb-double", "5.4.0"), ("5.5.1-rocksdb-double-killed", "5.5.1"), ("5.5.1-lmq", "5.5.1"))
CHANGES = (whole, expired, without_rows, without_a_queue)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("made", "change", "settings", "killed"),
    list(itertools.product(STORES, CHANGES, (PREFERS, PREFERS | ASSIGNS), (True, False))),
)
def test_the_ends_of_the_queues_are_those_of_their_rows(
    made: tuple[str, str],
    change: Callable[[Path], None],
    settings: dict[str, str],
    killed: bool,
    tmp_path: Path,
    oracle: Callable[[str], Oracle],
) -> None:
    name, version = made
    store = copy_store(name, tmp_path)
    (store / "abort").unlink(missing_ok=True)
    if killed:
        (store / "abort").touch()
    change(store)
    config = {**meta(name).oracle_args, **settings}
    opened = open_store(store, BrokerConfig(config))
    forecast = simulate_start(opened, version=version)
    told = of_forecast(forecast, store)
    real = as_far_as_simulated(of_oracle(oracle(version).load(store, config, start=True), set()), forecast, opened)
    assert (told.load, told.min_offset, told.queues) == (real.load, real.min_offset, real.queues)
