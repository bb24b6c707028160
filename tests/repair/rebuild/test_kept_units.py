"""Units kept by a verification: plans and forecasts are the same as with a second pass over the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import QueueKind, StoreKind, open_store
from rmqstore.repair.rebuild.unit_buffer import KeptUnits, UnitBuffer
from rmqstore.repair.rebuild_parts import plan_rebuild
from rmqstore.repair.recover import plan_recovery
from rmqstore.scan.dispatch import BatchRow, DispatchedRows
from tests import damage
from tests.cases.case import locate_record
from tests.stores import BROKER_STORES, VERSIONS, copy_store, unpack, write_broker_conf

TREES = ("consumequeue", "batchconsumequeue")


def looked_at(store: Path, conf: Path | None, units: KeptUnits | None, **options: int) -> Verified:
    opened = open_store(store, BrokerConfig.read(conf) if conf is not None else BrokerConfig())
    return examine(opened, VerifyOptions(units=units, **options))  # type: ignore[arg-type]


def with_log(name: str) -> bool:
    opened = open_store(unpack(name))
    return opened.part is None and opened.kind is not StoreKind.ROCKSDB and (opened.root / "consumequeue").is_dir()


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", [name for name in BROKER_STORES if with_log(name)])
def test_plans_and_forecasts_are_the_same(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    for tree in TREES:
        shutil.rmtree(store / tree, ignore_errors=True)
    for abort in (False, True):
        if abort:
            (store / "abort").touch()
        else:
            (store / "abort").unlink(missing_ok=True)
        plain = looked_at(store, conf, None, jobs=1)
        kept = looked_at(store, conf, KeptUnits(), jobs=2, split_size=70_000)
        opened = open_store(store, BrokerConfig.read(conf))
        assert plan_rebuild(opened, kept, "cq").digest == plan_rebuild(opened, plain, "cq").digest
        assert plan_recovery(opened, kept).digest == plan_recovery(opened, plain).digest
        assert kept.report.to_json()["broker"] == plain.report.to_json()["broker"]
        result = plain.dledger or plain.legacy
        assert result is not None
        for version in VERSIONS:
            told, seen = (
                simulate_start(
                    opened, result.tiling, version=version, options=StartOptions(thorough=False), units=units
                )
                for units in (kept.units, None)
            )
            assert told == seen, version


def test_units_that_a_dledger_start_cuts_are_dispatched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a committed index, everything is dispatched again, also units truncated 48 bytes per entry too early."""
    store = copy_store("5.4.0-dledger", tmp_path)
    conf = write_broker_conf("5.4.0-dledger", store)
    (store / "abort").touch()
    for checkpoint in store.glob("dledger-*/checkpoint"):
        checkpoint.write_text("")
    short = looked_at(store, conf, None).report
    monkeypatch.setattr("rmqstore.checks.verdict.all_dispatched", lambda *_: False)
    long = looked_at(store, conf, None).report
    assert short.verdict == long.verdict == "RocketMQ 5.4.0 would start and lose nothing"
    assert short.broker == long.broker


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    "name",
    [
        *("4.9.7-killed", "5.4.0-formats", "5.4.0-dledger-mixed"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("5.1.4-clean", "5.4.0-killed")),
    ],
)
def test_what_has_its_units_is_dispatched_in_vain(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast of a complete store, and of one without the units of a queue, is that of a full dispatch."""
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    for cut in (False, True):
        if cut:
            last = sorted((store / "consumequeue").glob("*/*/*"))[-1]
            last.write_bytes(bytes(last.stat().st_size))
        for version in VERSIONS:
            opened = open_store(store, BrokerConfig.read(conf))
            short = examine(opened, VerifyOptions(broker=version))
            with monkeypatch.context() as patch:
                patch.setattr("rmqstore.checks.verdict.all_dispatched", lambda *_: False)
                long = examine(opened, VerifyOptions(broker=version))
            assert short.report.to_json()["broker"] == long.report.to_json()["broker"], version
            assert short.report.verdict == long.report.verdict


def test_a_damaged_log_is_read_again_where_a_plan_changes_it(store: Path) -> None:
    conf = write_broker_conf("5.4.0-clean", store)
    path, at = locate_record(store / "commitlog", "record 200 body")
    damage.flip(path, at)
    shutil.rmtree(store / "consumequeue")
    plain, kept = looked_at(store, conf, None), looked_at(store, conf, KeptUnits())
    opened = open_store(store, BrokerConfig.read(conf))
    assert plan_rebuild(opened, kept, "cq").digest == plan_rebuild(opened, plain, "cq").digest
    assert plan_recovery(opened, kept).digest == plan_recovery(opened, plain).digest
    assert kept.report.to_json()["broker"] == plain.report.to_json()["broker"]


def test_the_forecast_of_a_sound_store_does_not_read_the_log(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    monkeypatch.setattr("rmqstore.brokers.log_files.scan_file", None)
    report = looked_at(store, None, None).report
    assert report.verdict == "RocketMQ 5.4.0 would start and lose nothing"
    assert report.broker is not None
    assert report.broker["commitlog_stop"] == 479958


def test_the_forecast_uses_the_kept_units(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(store / "consumequeue")
    kept = looked_at(store, None, KeptUnits())
    assert kept.legacy is not None
    monkeypatch.setattr("rmqstore.brokers.log_files.scan_file", None)  # fails if the log is read
    (store / "abort").unlink(missing_ok=True)
    opened = open_store(store)
    forecast = simulate_start(
        opened, kept.legacy.tiling, version="5.4.0", options=StartOptions(thorough=False), units=kept.units
    )
    units = sum(count for _, _, count, _ in kept.units.segments()) if isinstance(kept.units, KeptUnits) else 0
    assert sum(forecast.redispatched.values()) == units > 0
    assert not list(opened.queue_directories(QueueKind.SIMPLE))


def test_messages_after_the_limit_get_no_unit_yet_and_are_counted() -> None:
    names = [("T", 0), ("T", 1), ("U", 0)]
    columns = {  # queue, queue offset, offset, size: the first two end at the limit, the others after it
        "number": [0, 1, 1, 1, 2],
        "queue_offset": [7, 3, 4, 5, 0],
        "offset": [100, 150, 101, 200, 300],
        "size": [100, 50, 100, 10, 10],
        "tags": [0] * 5,
        "time": [0] * 5,
    }
    arrays = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    buffer = UnitBuffer(frozenset(names[:2]), {}, limit=200)
    buffer.rows(names, DispatchedRows(**arrays))
    buffer.batch(("T", 1), BatchRow(150, 50, 0, 0, 9, 3))
    buffer.batch(("T", 1), BatchRow(151, 50, 0, 0, 12, 4))
    buffer.flush()
    assert {name: queue.ranges() for name, queue in buffer.queues.items()} == {("T", 0): [(7, 8)], ("T", 1): [(3, 4)]}
    assert [row.base for row in buffer.queues["T", 1].batches] == [9]
    assert buffer.later == {("T", 1): 2 + 4}
