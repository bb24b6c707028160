"""Rebuild of consume queues in RocksDB: the rows of the new database, its installation, and refusals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.documents.plan import plan_from_json
from rmqstore.errors import HalfApplied, Refused, RmqStoreError
from rmqstore.files.files import LOCAL
from rmqstore.files.rocksdb.database import CannotRead, open_database
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.formats.consumequeue import QueueName
from rmqstore.repair.journal.journal import apply, resume, undo
from tests import damage
from tests.cases.case import locate_record
from tests.command import run
from tests.planning import opened, plan_of, rebuild_of, report_of
from tests.repair.trees import CountingDisk, failing_at, killed_at
from tests.rocksdb_rows import MESSAGES, NEWER, SETTINGS, STORE, changing, need_rocksdict, newer_tables, without_extra
from tests.stores import clone, copy_store, meta, unpack
from tests.untouched import assert_untouched, content

need_rocksdict()
Ends = dict[QueueName, tuple[int, int]]


def all_rows(store: Path) -> tuple[dict[tuple[str, int, int], tuple[int, ...]], Ends, int | None]:
    """Return all rows, the last message of every queue, and the offset up to which messages were dispatched."""
    queues = RocksDBQueues(opened(store, SETTINGS))
    rows = {}
    for name in queues.names():
        for first, units, times in queues.queue(*name).runs(0, 1 << 40):
            for i, (unit, time) in enumerate(zip(units.tolist(), times.tolist(), strict=True)):
                rows[(*name, first + i)] = (*unit, time)
    ends = {n: (b["max"].commitlog_offset, b["max"].queue_offset) for n, b in queues.bounds().items() if "max" in b}
    return rows, ends, queues.dispatched()


def break_rows(store: Path) -> None:
    with changing(store) as rows:
        rows.put("Order_11", 1, 4, commitlog_offset=77)


@pytest.mark.parametrize("how", ["no manifest", "nothing at all", "one row"])
def test_all_that_the_broker_wrote_comes_back(how: str, store: Path) -> None:
    """Tags codes, delivery times, store times, ends of queues and the dispatched offset are the broker's."""
    if how == "no manifest":
        next((store / "consumequeue").glob("MANIFEST-*")).unlink()
    elif how == "nothing at all":
        shutil.rmtree(store / "consumequeue")
    else:
        break_rows(store)
    apply(rebuild_of(store, "cq", SETTINGS))
    assert len(all_rows(store)[0]) == MESSAGES
    assert all_rows(store) == all_rows(unpack(STORE))


def test_an_inner_batch_has_one_row(tmp_path: Path) -> None:
    """A row of earlier between two batches goes, and a rebuilt database is left alone."""
    settings = {**meta("5.4.0-formats").oracle_args, "storeType": "defaultRocksDB"}
    store, queue = copy_store("5.4.0-formats", tmp_path), ("BatchCq_11", 0)
    for directory in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store / directory)

    def numbers() -> list[int]:
        runs = RocksDBQueues(opened(store, settings)).queue(*queue).runs(0, 1 << 40)
        return [number for first, units, _ in runs for number in range(first, first + len(units))]

    apply(rebuild_of(store, "cq", settings))
    bases = numbers()
    assert bases[:4] == [0, 3, 8, 10]
    assert rebuild_of(store, "cq", settings).empty
    with changing(store) as rows:
        rows.put(*queue, 5, commitlog_offset=77)
    assert numbers() == sorted([*bases, 5])
    apply(rebuild_of(store, "cq", settings))
    assert numbers() == bases


def test_a_sound_database_is_left_alone() -> None:
    with assert_untouched(unpack(STORE)):
        assert rebuild_of(unpack(STORE), "cq", SETTINGS).empty
        assert plan_of(unpack(STORE), SETTINGS).empty


def test_rows_of_expired_messages_are_removed_and_the_ends_of_their_queues_stay(store: Path) -> None:
    before = all_rows(store)[1]
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        path.unlink()
    break_rows(store)
    with changing(store) as rows:
        rows.drop("log-15445", 0, 22)
    apply(rebuild_of(store, "cq", SETTINGS))
    rows_now, ends, _ = all_rows(store)
    assert min(row[0] for row in rows_now.values()) >= 196608
    assert ends == before
    assert report_of(store, SETTINGS).exit_code == 0


def test_a_queue_that_loses_all_its_messages_begins_again_at_0(store: Path) -> None:
    for path in sorted((store / "commitlog").iterdir())[1:]:
        path.unlink()
    apply(plan_of(store, SETTINGS))
    rows, ends, _ = all_rows(store)
    assert ends.keys() == {row[:2] for row in rows}
    assert ("%DLQ%CG_dlq_11", 0) not in ends


def test_the_same_plan_has_the_same_digest_in_a_file_too(store: Path) -> None:
    break_rows(store)
    plan, again = plan_of(store, SETTINGS), plan_of(store, SETTINGS)
    assert plan.digest == again.digest
    saved = plan_from_json("".join(plan.iter_json()))
    assert saved.digest == plan.digest
    assert plan_from_json(plan.to_json()).digest == plan.digest
    apply(saved)
    assert all_rows(store) == all_rows(unpack(STORE))


def test_a_saved_plan_whose_bytes_were_changed_is_refused(store: Path) -> None:
    break_rows(store)
    text = "".join(plan_of(store, SETTINGS).iter_json())
    at = text.index('"base64": "') + 200
    other = "A" if text[at] != "A" else "B"
    with pytest.raises(RmqStoreError, match="does not match its"):
        plan_from_json(text[:at] + other + text[at + 1 :])


def test_at_no_moment_can_half_a_database_be_opened(store: Path) -> None:
    break_rows(store)
    damage.overwrite(store / "consumequeue" / "CURRENT", 0, b"MANIFEST-000005")
    shutil.move(next((store / "consumequeue").glob("MANIFEST-*")), store / "consumequeue" / "MANIFEST-000005")
    before = all_rows(store)
    seen: set[str] = set()

    def look(_number: int, _name: str) -> None:
        try:
            open_database(LOCAL, store / "consumequeue")
            found = all_rows(store)
        except CannotRead:
            seen.add("refused")
            return
        assert len(found[0]) == MESSAGES
        seen.add("before" if found == before else "after")

    plan = plan_of(store, SETTINGS)
    apply(plan, disk=CountingDisk(look))
    look(0, "")
    assert seen == {"before", "refused", "after"}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("way", ["error", "kill"])
def test_stopped_at_any_call_it_can_be_undone_and_resumed(way: str, store: Path, tmp_path: Path) -> None:
    break_rows(store)
    path, at = locate_record(store / "commitlog", "record 100 body")
    damage.flip(path, at + 1, 3)
    before = content(store, without=("lock",))
    counted = CountingDisk()
    done = tmp_path / "done"
    clone(store, done)
    apply(plan_of(done, SETTINGS), disk=counted)
    rows_done = all_rows(done)
    one = tmp_path / "one"
    clone(store, one)
    plan = plan_of(one, SETTINGS)  # the plan also applies to every other copy at this path
    states = set()
    for index in range(3, len(counted.calls), 7):
        shutil.rmtree(one)
        clone(store, one)
        if way == "kill":
            assert killed_at(index, lambda disk: apply(plan, disk=disk))
        else:
            with pytest.raises(RmqStoreError):
                apply(plan, disk=failing_at(index, for_good=True))
        journals = sorted((one / ".rmqstore").iterdir()) if (one / ".rmqstore").is_dir() else []
        if not journals:
            assert content(one, without=("lock",)) == before
            continue
        other = tmp_path / "other"
        clone(one, other)
        undo(journals[0])
        assert content(one, without=("lock",)) == before
        try:
            resume(other / ".rmqstore" / journals[0].name)
            assert all_rows(other) == rows_done
            states.add("resumed")
        except RmqStoreError as error:
            assert not isinstance(error, HalfApplied)
            states.add("not begun")
        shutil.rmtree(other)
    assert "resumed" in states


def test_without_the_extra_the_refusal_names_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, at = locate_record(store / "commitlog", "record 100 body")
    damage.flip(path, at + 1, 3)
    without_extra(monkeypatch)
    with assert_untouched(store):
        for words in (("recover", str(store), "--apply"), ("rebuild", str(store), "cq", "--apply")):
            answer = run(*words)
            assert answer.exit_code == 5, answer.output
            assert "rocksdict>=0.3.24" in " ".join(answer.output.split())


@pytest.mark.parametrize("newer", NEWER)
def test_a_newer_format_is_refused_with_that_reason(newer: Callable[[Path], None], store: Path) -> None:
    newer(store / "consumequeue")
    report = report_of(store)
    assert (report.exit_code, dict(report.findings.counts)) == (1, {"CQ-ROCKSDB-FORMAT": 1})
    assert report.unchecked == ["consumequeue/: rows of the consume queues"]
    with assert_untouched(store):
        for words in (("recover", str(store), "--apply"), ("rebuild", str(store), "cq", "--apply")):
            answer = run(*words)
            assert answer.exit_code == 5, answer.output
            assert "has a format that this RocksDB library does not know" in answer.stderr
    path, at = locate_record(store / "commitlog", "record 100 body")
    damage.flip(path, at + 1, 3)
    with assert_untouched(store), pytest.raises(Refused, match="format that this RocksDB library does not know"):
        plan_of(store, SETTINGS)


def test_a_removed_database_is_rebuilt_as_the_refusal_advises(store: Path, tmp_path: Path) -> None:
    newer_tables(store / "consumequeue")
    for path in (store / "consumequeue").iterdir():
        path.rename(tmp_path / path.name)
    assert apply(plan_of(store, SETTINGS)).journal is not None
    assert all_rows(store) == all_rows(unpack(STORE))


def test_rows_to_be_copied_that_cannot_be_read_are_refused(store: Path) -> None:
    damage.garble(max((store / "consumequeue").glob("*.sst"), key=lambda p: p.stat().st_size), 200, 4000)
    with pytest.raises(Refused, match="leave out --topic"):
        try:
            rebuild_of(store, "cq", SETTINGS, queues=frozenset([("Order_11", 2)]))
        except Refused as error:
            raise Refused(f"{error.message} {error.advice}") from error
