"""Double write: consume queues in files and a RocksDB with the same queues, as 5.4.0 and 5.5.1 handle them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.problems import codes
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import StoreKind
from rmqstore.formats.consumequeue import UNIT
from rmqstore.repair.journal.journal import apply, undo
from rmqstore.repair.plan.recover_options import RecoverOptions
from tests.damage import overwrite
from tests.planning import opened, plan_of, rebuild_of, report_of
from tests.real_broker.oracle import Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.rocksdb_rows import need_rocksdict
from tests.stores import clone, copy_store, meta
from tests.untouched import content

need_rocksdict()
CAP, EXTRA = "commitLogRecoverMaxNum", "combineCQMaxExtraSearchCommitLogFiles"
pytestmark = pytest.mark.xdist_group("oracle servers")  # so that a broker writes the original only once

Real = Callable[[str], Oracle]
NOT_OPENED = "would not start (exit 253): the RocksDB in consumequeue/: "
PART = "consumequeue/Order_11/0/00000000000000000000"


@dataclass(frozen=True, slots=True)
class Version:
    """A version, its fixture with queues in files, and the settings of double write that its whole broker accepts."""

    version: str
    messages: int

    @property
    def name(self) -> str:
        return f"{self.version}-clean"

    @property
    def settings(self) -> Mapping[str, str]:
        light = {"combineCQUseRocksdbForLmq": "true"} if self.version == "5.5.1" else {}
        return {**meta(self.name).oracle_args, "rocksdbCQDoubleWriteEnable": "true", **light}


@pytest.fixture(
    scope="module",
    params=[Version("5.4.0", 553), pytest.param(Version("5.5.1", 554), marks=pytest.mark.slow)],
    ids=lambda made: made.version,
)
def made(request: pytest.FixtureRequest) -> Version:
    assert isinstance(request.param, Version)
    return request.param


@pytest.fixture(scope="module")
def original(made: Version, tmp_path_factory: pytest.TempPathFactory, oracle: Real) -> Path:
    """The original of `store`, written once for all tests.

    A thread of the broker writes the rows, and its shutdown drops those that it has not written yet
    (RocksGroupCommitService#groupCommit, 5.4.0); the next start writes them. If a client queries a queue's minimum
    offset before its rows exist, the broker returns the queue's end and stores it permanently: then the fixture has to
    be written again.
    """
    filling = {**made.settings, CAP: "1000", EXTRA: "1000"}
    for _ in range(5):
        store = copy_store(made.name, tmp_path_factory.mktemp("twice"))
        for _ in range(3):
            (store / "abort").touch()
            answer = oracle(made.version).load(store, filling, start=True, shutdown=True)
            assert (answer.load, answer.readable, answer.shutdown) == (True, made.messages, "clean")
            if rows(store, made)[0] == made.messages:
                break
        bounds = RocksDBQueues(opened(store, made.settings)).bounds()
        if not any(ends["min"].queue_offset for ends in bounds.values() if "min" in ends):
            return store
    pytest.fail("the broker did not write a complete RocksDB in five attempts")


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A store whose queues a broker wrote into files and, started with the settings of our advice, into a RocksDB."""
    clone(original, tmp_path / original.name)
    return tmp_path / original.name


@pytest.fixture(scope="module")
def empty_rocksdb(made: Version, tmp_path_factory: pytest.TempPathFactory, oracle: Real) -> Path:
    """`consumequeue/` with a RocksDB without rows, as after a kill."""
    store = tmp_path_factory.mktemp("empty")
    assert oracle(made.version).load(store, made.settings, start=True, shutdown=True).load
    return store / "consumequeue"


def rows(store: Path, made: Version) -> tuple[int, dict[str, int]]:
    """Return the number of rows in the RocksDB, and the end of each queue in it."""
    queues = RocksDBQueues(opened(store, made.settings))
    count = sum(len(units) for name in queues.names() for _, units, _ in queues.queue(*name).runs(0, 1 << 40))
    ends = {f"{t}/{q}": b["max"].queue_offset + 1 for (t, q), b in queues.bounds().items() if "max" in b}
    return count, ends


def units_from(store: Path, offset: int) -> int:
    """Count the units in queue files that point at or after an offset of the log."""
    files = (path.read_bytes() for path in (store / "consumequeue").glob("*/*/*"))
    units = (UNIT.array(raw) for raw in files)
    return sum(int(np.count_nonzero((one["size"] > 0) & (one["commitlog_offset"] >= offset))) for one in units)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("configured", [False, True])
def test_the_files_are_the_queues_and_the_rocksdb_is_named(configured: bool, made: Version, store: Path) -> None:
    settings = made.settings if configured else None
    report = report_of(store, settings)
    assert opened(store, settings).kind is StoreKind.PLAIN
    assert (report.exit_code, dict(report.findings.counts), report.unchecked) == (0, {}, [])
    assert any("a RocksDB of the same queues exists beside the files" in note for note in report.notes)
    count, ends = rows(store, made)
    assert (count, ends) == (made.messages, {name: q.max for name, q in report.queues.items()})


def test_a_damaged_queue_file_is_found_and_built_again(
    made: Version, store: Path, oracle_servers: OracleServers
) -> None:
    overwrite(store / PART, 5 * 20, bytes(60))
    assert report_of(store, made.settings).findings.counts["CQ-MISSING-UNIT"] >= 1
    answer = oracle_servers.load(made.version, store, made.settings)
    assert answer.readable < made.messages  # the RocksDB has these units, but the broker does not read them there
    plan = plan_of(store, made.settings)
    assert not any("left unchanged" in note for note in plan.notes)
    apply(plan)
    assert report_of(store, made.settings).exit_code == 0
    assert oracle_servers.load(made.version, store, made.settings).readable == made.messages


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("strategy", ["", "truncate"])
def test_a_repaired_log_starts_and_both_kinds_of_queues_match_it(
    strategy: str, made: Version, store: Path, oracle: Real
) -> None:
    file = sorted((store / "commitlog").iterdir())[3]
    lost = units_from(store, int(file.name)) if strategy else 0
    overwrite(file, 4, bytes(4))
    plan = plan_of(store, made.settings, RecoverOptions(strategy=strategy))
    assert not any("RocksDB" in decision for decision in plan.decisions)
    before = content(store)
    journal = apply(plan, force_digest=plan.digest).journal
    report = report_of(store, made.settings)
    assert dict(report.findings.counts) == {}
    assert rows(store, made) == (made.messages - lost, {name: q.max for name, q in report.queues.items() if q.max})
    kept = store.with_name("undone")
    clone(store, kept)
    assert journal is not None
    undo(kept / ".rmqstore" / journal.name)
    assert content(kept) == before
    answer = oracle(made.version).load(store, made.settings, start=True, shutdown=True, put=40)
    assert (answer.load, answer.readable) == (True, made.messages - lost + 40)
    assert rows(store, made)[1] == {name: q.max for name, q in answer.queues.items() if q.max}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("broken", "starts"),
    [
        ("CURRENT", False),
        pytest.param("MANIFEST-*", False, marks=pytest.mark.slow),
        pytest.param("*.sst", False, marks=pytest.mark.slow),
        ("*", True),
    ],
)
def test_a_rocksdb_beside_the_files_that_cannot_be_opened_stops_the_start(
    broken: str, starts: bool, made: Version, store: Path, oracle: Real, oracle_servers: OracleServers
) -> None:
    """Without any of its files, the broker creates a new database."""
    for path in sorted((store / "consumequeue").glob(broken)):
        if path.is_file():
            path.unlink()
    report = report_of(store, made.settings)
    assert report.broker is not None
    assert (report.broker["starts"], report.exit_code) == (starts, 0 if starts else 1)
    if not starts:
        assert NOT_OPENED in report.verdict
        assert dict(report.findings.counts) == {codes.CQ_ROCKSDB: 1}
        cured = store.with_name("cured")
        clone(store, cured)
        apply(plan_of(cured, made.settings))
        assert (report_of(cured, made.settings).exit_code, rows(cured, made)[0]) == (0, made.messages)
        assert oracle_servers.load(made.version, cured, made.settings, put=9).readable == made.messages + 9
    answer = oracle(made.version).load(store, made.settings, start=True)
    assert (answer.load, answer.readable) == (starts, made.messages if starts else 0)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("clean", "more"),
    [
        *((True, "0"), (False, "2"), (True, "4"), (False, "1000")),
        *(
            pytest.param(clean, more, marks=pytest.mark.slow)
            for clean, more in ((False, "0"), (True, "2"), (True, "3"), (False, "3"), (False, "4"), (True, "1000"))
        ),
    ],
)
def test_a_start_goes_back_for_what_the_rocksdb_lacks(
    clean: bool, more: str, made: Version, empty_rocksdb: Path, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = copy_store(made.name, tmp_path)
    shutil.copytree(empty_rocksdb, store / "consumequeue", dirs_exist_ok=True)
    if not clean:
        (store / "abort").touch()
    overwrite(sorted((store / "commitlog").iterdir())[4], 120, b"\xff" * 40)
    settings = {**made.settings, EXTRA: more}
    forecast = simulate_start(opened(store, settings), version=made.version, settings={})
    answer = oracle_servers.load(made.version, store, settings)
    assert (forecast.starts, forecast.max_offset) == (answer.load, answer.max_phy)
    assert {f"{t}/{q}": e[1] for (t, q), e in forecast.queue_ends.items()} == {
        n: q.max for n, q in answer.queues.items()
    }


def test_an_empty_rocksdb_is_filled_and_can_take_over(
    made: Version, empty_rocksdb: Path, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    """After following the advice, a broker with storeType=defaultRocksDB reads every message from the RocksDB."""
    store = copy_store(made.name, tmp_path)
    shutil.copytree(empty_rocksdb, store / "consumequeue", dirs_exist_ok=True)
    assert any("run `rmqstore rebuild STORE cq`" in note for note in report_of(store, made.settings).notes)
    apply(rebuild_of(store, "cq", made.settings))
    assert not any("rebuild STORE cq" in note for note in report_of(store, made.settings).notes)
    over = {**meta(made.name).oracle_args, "storeType": "defaultRocksDB"}
    answer = oracle_servers.load(made.version, store, over, put=20)
    assert (answer.load, answer.readable, answer.offsets) == (True, made.messages + 20, made.messages + 20)


def test_a_store_that_does_not_say_which_queues_are_read_is_left_alone(made: Version, store: Path) -> None:
    overwrite(store / PART, 5 * 20, bytes(60))
    (store / "config" / "topics").mkdir()
    (store / "config" / "topics" / "CURRENT").touch()  # as if a broker with storeType=defaultRocksDB had run, too
    report = report_of(store)
    assert report.exit_code == 4
    assert any("nothing says which of them the broker reads" in words for words in report.unchecked)
    assert plan_of(store).empty
    assert not plan_of(store, made.settings).empty  # broker.conf decides


def test_rows_are_read_where_the_configuration_says_so(made: Version, store: Path) -> None:
    overwrite(store / PART, 5 * 20, bytes(60))
    report = report_of(store, {**meta(made.name).oracle_args, "storeType": "defaultRocksDB"})
    assert (report.kind, report.exit_code, report.unchecked) == ("rocksdb", 0, [])
    both = {**made.settings, "combineCQPreferCQType": "defaultRocksDB"}
    assert opened(store, both).kind is StoreKind.PLAIN
