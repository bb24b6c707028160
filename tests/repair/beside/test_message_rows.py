"""Repairs correct the rows of rocksdbstore/ that would no longer fit the log, whatever broker.conf says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.brokers.writer import writer_of
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import problem_counts
from rmqstore.errors import Refused
from rmqstore.files.rocksdb.rows import MessageRows
from rmqstore.files.store import open_store
from rmqstore.formats.rocksdbstore import (
    FAMILIES,
    HOUR,
    INDEX_FAMILY,
    INDEX_VALUE,
    LAST_OFFSET,
    POSITION,
    SCAN_OFFSET,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
    parse_timer_row,
)
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from tests import damage
from tests.planning import loss_of, plan_of
from tests.repair.salvaging import rows
from tests.rocksdb_rows import need_rocksdict, opened_rows, without_extra
from tests.stores import copy_store

STORE = "5.4.0-trans-rocksdb"

need_rocksdict()
TIMER = "5.4.0-timer-rocksdb-pending"
ON = {"timerRocksDBEnable": "true", "transRocksDBEnable": "true"}


def found(store: Path) -> MessageRows:
    rows = MessageRows.of(open_store(store))
    assert rows is not None
    return rows


def require_sound(store: Path) -> None:
    one = open_store(store)
    verified = examine(one, VerifyOptions(jobs=1))
    assert problem_counts(verified.report) == {}
    assert plan_recovery(one, verified).steps == ()


def offsets(store: Path) -> list[int]:
    parsed = [
        parse_timer_row(k, v)
        for keys, values in found(store).rows(TIMER_FAMILY)
        for k, v in zip(keys, values, strict=True)
    ]
    return sorted(row.commitlog_offset for row in parsed if row is not None)


def lose_end(store: Path, topic: str) -> int:
    """Destroy the log from the third last message of a topic on; return where that began."""
    at = [row for row in rows(store) if row.message.topic == topic.encode()][-3]
    length = sum(row.size for row in rows(store) if row.offset >= at.offset and row.path == at.path)
    damage.garble(at.path, at.at, length)
    return at.offset


@pytest.mark.parametrize("settings", [{}, ON])
def test_a_shorter_log_takes_the_rows_of_its_lost_messages_along(settings: dict[str, str], tmp_path: Path) -> None:
    store = copy_store(TIMER, tmp_path)
    before = offsets(store)
    end = lose_end(store, "rmq_sys_wheel_timer")
    plan = plan_of(store, settings)
    assert any("rows of timed messages will be removed" in note for note in plan.notes)
    apply(plan)
    assert offsets(store) == [at for at in before if at < end]
    assert len(offsets(store)) == 11
    assert found(store).position(TIMER_FAMILY, SCAN_OFFSET) == 11
    require_sound(store)


def test_the_row_of_a_message_that_becomes_a_filler_goes(store: Path) -> None:
    [half] = [row for row in rows(store) if row.offset == 1857]
    damage.garble(half.path, half.at, half.size)
    plan = plan_of(store)
    assert any("1 row of half messages will be removed" in note for note in plan.notes)
    apply(plan)
    assert found(store).count(TRANS_FAMILY) == 11
    assert found(store).position(TRANS_FAMILY, LAST_OFFSET) == 17582
    require_sound(store)


def test_a_repair_that_touches_no_row_leaves_the_database(store: Path) -> None:
    other = [row for row in rows(store) if row.message.topic == b"Order_11"][-2]
    damage.garble(other.path, other.at, other.size)
    plan = plan_of(store)
    assert plan.steps
    assert not any("rocksdbstore" in step.path for step in plan.steps)


def test_an_end_that_was_already_missing_is_corrected_too(store: Path) -> None:
    for name in ("consumequeue", "index", "checkpoint"):
        shutil.rmtree(path) if (path := store / name).is_dir() else path.unlink()
    first, *later = sorted((store / "commitlog").iterdir())
    for path in later:
        path.unlink()
    with opened_rows(store / "rocksdbstore") as database:
        database.get_column_family(TRANS_FAMILY)[LAST_OFFSET] = (100_000).to_bytes(8, "big")
    apply(plan_of(store, ON))
    last = rows(store)[-1]
    assert last.path == first
    assert found(store).position(TRANS_FAMILY, LAST_OFFSET) == last.offset
    require_sound(store)


def test_without_the_library_a_shorter_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = copy_store(TIMER, tmp_path)
    lose_end(store, "rmq_sys_wheel_timer")
    without_extra(monkeypatch)
    with pytest.raises(
        Refused, match=r"rows in rocksdbstore/ that cannot be read may point beyond its new end.*rocksdict"
    ):
        plan_of(store)


def test_without_the_library_a_repair_in_place_says_that_rows_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store(TIMER, tmp_path)
    row = rows(store)[20]
    damage.garble(row.path, row.at, row.size)
    without_extra(monkeypatch)
    assert any("rows in rocksdbstore/ are not read, and stay" in note for note in plan_of(store).notes)


def test_a_database_that_cannot_be_read_forbids_a_shorter_log(tmp_path: Path) -> None:
    store = copy_store(TIMER, tmp_path)
    lose_end(store, "rmq_sys_wheel_timer")
    [table] = (store / "rocksdbstore").glob("*.sst")
    damage.garble(table, 0, 200)
    with pytest.raises(Refused) as refused:
        plan_of(store)
    assert "move rocksdbstore/ out of the store" in refused.value.advice
    shutil.rmtree(store / "rocksdbstore")
    assert loss_of(store).messages


def test_every_family_survives(tmp_path: Path) -> None:
    store = copy_store(TIMER, tmp_path)
    apply(plan_of(store))
    assert set(found(store).database.families) == set(FAMILIES)


def test_index_entries_of_dledger_messages(tmp_path: Path) -> None:
    """Their offsets are those of the messages, 48 bytes after the entries."""
    store = copy_store("5.4.0-dledger", tmp_path)
    last = rows(store)[-1]
    with opened_rows(store / "rocksdbstore") as database:
        family = database.get_column_family(INDEX_FAMILY)
        for row in rows(store)[-3:]:
            stored = row.message.store_timestamp
            middle = b"@%s@U@FD%d@" % (row.message.topic, row.offset)
            key = (stored // HOUR * HOUR).to_bytes(8, "big") + middle + row.offset.to_bytes(8, "big")
            family[key] = INDEX_VALUE.build(store_timestamp=stored)
        family[LAST_OFFSET] = POSITION.build(position=last.offset)
        del family
    require_sound(store)
    damage.garble(last.path, last.at, last.size)
    apply(plan_of(store))
    assert found(store).count(INDEX_FAMILY) == 2
    assert found(store).position(INDEX_FAMILY, LAST_OFFSET) == rows(store)[-1].offset
    require_sound(store)


def test_without_the_library_rows_of_half_messages_are_not_made(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(store / "rocksdbstore")
    without_extra(monkeypatch)
    plan = plan_of(store)
    assert plan.steps == ()
    assert any("rocksdbstore/ is not written" in note for note in plan.notes)


def test_rows_of_open_half_messages_are_made_again(store: Path) -> None:
    before = {key for keys, _ in found(store).rows(TRANS_FAMILY) for key in keys}
    shutil.rmtree(store / "rocksdbstore")
    apply(plan_of(store))
    assert {key for keys, _ in found(store).rows(TRANS_FAMILY) for key in keys} == before
    assert found(store).position(TRANS_FAMILY, LAST_OFFSET) == 17582
    require_sound(store)


@pytest.mark.parametrize("name", ["5.4.0-timer-rocksdb-pending", "5.5.1-timer-rocksdb-pending"])
def test_a_repaired_store_still_shows_which_version_wrote_it(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    before = writer_of(open_store(store)).to_json()
    apply(plan_of(store))
    assert writer_of(open_store(store)).to_json() == before


def all_rows(store: Path, family: str) -> dict[bytes, bytes]:
    return {k: v for keys, values in found(store).rows(family) for k, v in zip(keys, values, strict=True)}


@pytest.mark.quick_rows
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
@pytest.mark.parametrize(("kind", "family"), [("timer", TIMER_FAMILY), ("index", INDEX_FAMILY)])
def test_rows_made_from_the_log_are_those_that_the_broker_wrote(
    version: str, kind: str, family: str, tmp_path: Path
) -> None:
    store = copy_store(f"{version}-{kind}-rocksdb", tmp_path)
    before = all_rows(store, family)
    timeline = found(store).position(TIMER_FAMILY, TIMELINE) or 0
    if family == TIMER_FAMILY:
        gone = [key for key in before if int.from_bytes(key[:8], "big") >= timeline]
    else:
        at = sorted({key[-8:] for key in before})[100:110]  # ten messages in the middle of the log
        gone = [key for key in before if key[-8:] in at]
    assert len(gone) >= 6
    with opened_rows(store / "rocksdbstore") as database:
        for key in gone:
            del database.get_column_family(family)[key]
    apply(plan_of(store))
    assert all_rows(store, family) == before
    require_sound(store)


NEWER = {
    (TIMER_FAMILY, b"timeline_roll_checkpoint"): POSITION.build(position=1_700_000_000_000),
    (TRANS_FAMILY, b"lastOffsetPy.v2"): b"\1" + bytes(11),
    (INDEX_FAMILY, b"k"): b"",
}
"""Names that no known broker writes, with values of any length, by family."""


def as_of_a_newer_release(store: Path) -> None:
    options = need_rocksdict().Options(raw_mode=True)
    with opened_rows(store / "rocksdbstore") as database:
        for (family, key), value in NEWER.items():
            database.get_column_family(family)[key] = value
        pop = database.create_column_family("pop", options)
        pop[b"row"] = b"value"
        pop.close()


def newer(store: Path) -> tuple[dict[tuple[str, bytes], bytes], list[tuple[bytes, bytes]]]:
    """Return the names that no known broker writes, and the rows of the family that none has."""
    kept = found(store)
    names = {(family, key): value for family in FAMILIES for key, value in kept.unknown_names(family).items()}
    return names, list(kept.database.rows("pop"))


def test_what_a_newer_release_may_have_written_is_named(tmp_path: Path) -> None:
    store = copy_store(TIMER, tmp_path)
    as_of_a_newer_release(store)
    report = examine(open_store(store), VerifyOptions(jobs=1)).report
    assert problem_counts(report) == {"RDB-NO-TIMELINE": 1}
    assert report.findings.listed[0].facts["rows"] == 14
    assert report.unchecked == [
        "rocksdbstore/: no known broker has its column family pop",
        "rocksdbstore/: no known broker has its key k (family default)",
        "rocksdbstore/: no known broker has its key timeline_roll_checkpoint (family timer)",
        "rocksdbstore/: no known broker has its key lastOffsetPy.v2 (family trans)",
    ]


def test_what_a_newer_release_may_have_written_stays_if_the_log_becomes_shorter(tmp_path: Path) -> None:
    store = copy_store(TIMER, tmp_path)
    as_of_a_newer_release(store)
    lose_end(store, "rmq_sys_wheel_timer")
    apply(plan_of(store))
    assert len(offsets(store)) == 11
    assert newer(store) == (NEWER, [(b"row", b"value")])


def test_what_a_newer_release_may_have_written_stays_if_wrong_rows_go(tmp_path: Path) -> None:
    store = copy_store(TIMER, tmp_path)
    as_of_a_newer_release(store)
    with opened_rows(store / "rocksdbstore") as database:
        database.get_column_family(TIMER_FAMILY)[bytes(8)] = b"no row"
        database.get_column_family(TIMER_FAMILY)[TIMELINE] = POSITION.build(position=1)
    plan = plan_of(store, options=RecoverOptions(only=("RDB-WRONG-ROW",)))
    assert any("1 row of timed messages will be removed" in note for note in plan.notes)
    apply(plan)
    assert len(offsets(store)) == 14
    assert newer(store) == (NEWER, [(b"row", b"value")])
