"""Queues in consumequeue_rocksdb/, and light queues in RocksDB only: what a plan promises, and what 5.5.1 reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmqstore.checks.problems.report import Report
from rmqstore.repair.journal.journal import apply, undo
from rmqstore.repair.plan.recover_options import RecoverOptions
from tests.planning import plan_of, rebuild_of, report_of
from tests.real_broker.oracle import Oracle, OracleResult
from tests.repair.salvaging import rows as records
from tests.rocksdb_rows import changing, need_rocksdict
from tests.stores import clone, copy_store, meta
from tests.untouched import content

need_rocksdict()
SEPARATE, LITE, LMQ = "5.5.1-rocksdb-separate", "5.5.1-lite", "5.5.1-lmq"
BOTH, KILLED = "5.5.1-rocksdb-double-separate", "5.5.1-rocksdb-double-killed"
PLACE, USER0, USER1 = "consumequeue_rocksdb", "%LMQ%$Lite_11$user0", "%LMQ%$Lite_11$user1"
ALONE = {"rocksdbCQSelectiveDoubleWriteEnable": "false"}
Real = Callable[[str], Oracle]


def ends(report: Report) -> dict[str, int]:
    return {name: queue.max for name, queue in report.queues.items() if queue.max}


def without_rocksdb(store: Path) -> None:
    for path in (store / PLACE).iterdir():
        path.unlink()


def without_a_table(store: Path) -> None:
    tables = sorted((store / PLACE).glob("*.sst"))
    (tables[0] if tables else next((store / PLACE).glob("MANIFEST-*"))).unlink()


def without_queue_files(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()


def without_the_last_records(store: Path) -> None:
    """Overwrite the last records, as if they had not reached the disk."""
    for row in records(store)[-9:]:
        content = bytearray(row.path.read_bytes())
        content[row.at : row.stop] = bytes(row.stop - row.at)
        row.path.write_bytes(bytes(content))


def repaired_and_read(
    store: Path, settings: Mapping[str, str], real: Oracle, strategy: str = "", remaining: tuple[str, ...] = ()
) -> OracleResult:
    """Repair a store, check what verify still finds and that undo restores it, and read it with a real store."""
    before = content(store)
    plan = plan_of(store, settings, RecoverOptions(strategy=strategy))
    journal = apply(plan, force_digest=plan.digest).journal
    report = report_of(store, settings)
    assert tuple(report.findings.counts) == remaining
    assert plan_of(store, settings).empty
    assert not any(path.name.startswith("%LMQ%") for path in (store / "consumequeue").iterdir())
    kept = store.with_name("undone")
    clone(store, kept)
    if journal is not None:
        undo(kept / ".rmqstore" / journal.name)
    assert content(kept) == before
    answer = real.load(store, settings, start=True)
    assert (answer.load, answer.readable) == (True, answer.offsets)
    assert {name: queue.max for name, queue in answer.queues.items() if queue.max} == ends(report)
    return answer


DAMAGES = [
    *((name, damage) for name in (SEPARATE, LMQ, LITE) for damage in (without_rocksdb, without_the_last_records)),
    *((name, without_a_table) for name in (SEPARATE, LMQ, LITE, BOTH)),
    *((name, without_queue_files) for name in (LMQ, BOTH, KILLED)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_repaired_stores_are_read(name: str, damage: Callable[[Path], None], tmp_path: Path, oracle: Real) -> None:
    store, settings = copy_store(name, tmp_path), meta(name).oracle_args
    damage(store)
    cut = damage is without_the_last_records
    answer = repaired_and_read(store, settings, oracle("5.5.1"), "truncate" if cut else "")
    if not cut:
        assert answer.readable == meta(name).oracle_load.readable


@pytest.mark.parametrize("settings", [{}, meta(SEPARATE).oracle_args])
def test_a_rebuilt_rocksdb_does_not_stop_the_broker(settings: Mapping[str, str], tmp_path: Path, oracle: Real) -> None:
    """A CURRENT in consumequeue/ would stop a broker that has its RocksDB in consumequeue_rocksdb/."""
    store = copy_store(SEPARATE, tmp_path)
    without_rocksdb(store)
    apply(rebuild_of(store, "cq", settings))
    answer = oracle("5.5.1").load(store, meta(SEPARATE).oracle_args, start=True)
    assert (answer.load, answer.readable) == (True, meta(SEPARATE).oracle_load.readable)


def test_two_databases_stop_the_broker_until_they_are_repaired(tmp_path: Path, oracle: Real) -> None:
    store, settings = copy_store(SEPARATE, tmp_path), meta(SEPARATE).oracle_args
    shutil.copytree(store / PLACE, store / "consumequeue", dirs_exist_ok=True)
    damaged = tmp_path / "damaged"
    clone(store, damaged)
    assert not oracle("5.5.1").load(damaged, settings, start=True).load
    assert repaired_and_read(store, settings, oracle("5.5.1")).readable == meta(SEPARATE).oracle_load.readable


@pytest.mark.parametrize("lost", [False, True])
def test_a_lite_queue_that_began_anew_has_its_last_messages(lost: bool, tmp_path: Path, oracle: Real) -> None:
    """The log then has two messages with each of its first queue offsets."""
    store, settings = copy_store(LITE, tmp_path), {**meta(LITE).oracle_args, **ALONE}
    with changing(store, PLACE) as rows:
        rows.delete(USER0, 0, 8)
        rows.drop(USER1, 0, 2)
    apply(plan_of(store, meta(LITE).oracle_args))  # the broker cannot open what the newer library of this test wrote
    answer = oracle("5.5.1").load(store, settings, start=True, shutdown=True, put=6, light=USER0)
    assert (answer.load, len(answer.puts)) == (True, 6)
    report = report_of(store, settings)
    [unknown] = report.findings.listed  # only a whole broker would create the topic of the new messages
    assert (unknown.code, unknown.facts["topics"]) == ("CFG-UNKNOWN-TOPICS", "Order")
    assert report.queues[f"{USER0}/0"].max == 6
    if lost:
        without_rocksdb(store)
    again = repaired_and_read(store, settings, oracle("5.5.1"), remaining=("CFG-UNKNOWN-TOPICS",))
    assert (again.queues[f"{USER0}/0"].min, again.queues[f"{USER0}/0"].readable) == (0, 6)
