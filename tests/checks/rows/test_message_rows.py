"""RDB-*: rows in rocksdbstore/ are looked at because they are there, not because broker.conf names a feature."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.problems.report import problem_counts
from rmqstore.checks.verified import Verified
from rmqstore.files.rocksdb.rows import MessageRows, last_offset
from rmqstore.files.store import open_store
from rmqstore.formats.rocksdbstore import (
    INDEX_FAMILY,
    LAST_OFFSET,
    POSITION,
    POSITION_KEYS,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
)
from tests import damage
from tests.planning import look
from tests.rocksdb_rows import need_rocksdict, opened_rows, without_extra
from tests.stores import copy_store, meta, unpack

need_rocksdict()
SOUND = [
    f"{version}-{kind}"
    for version in ("5.4.0", "5.5.1")
    for kind in ("timer-rocksdb", "trans-rocksdb", "index-rocksdb")
]


def examined(store: Path, **settings: str) -> Verified:
    return look(store, settings)[1]


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("configured", [False, True])
def test_sound_rows_have_no_finding(name: str, configured: bool) -> None:
    conf = {k: v for k, v in meta(name).broker_conf.items() if not k.startswith("storePath")}
    verified = examined(unpack(name), **(conf if configured else {}))
    assert problem_counts(verified.report) == {}
    assert verified.report.unchecked == []
    assert verified.rows is not None and sum(verified.rows.counts.values()) >= 12


@pytest.mark.parametrize("key", ["transRocksDBEnable", "timerRocksDBEnable", "indexRocksDBEnable"])
def test_a_database_without_rows_needs_no_check(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack("5.4.0-clean")
    assert not open_store(store).may_have_message_rows
    without_extra(monkeypatch)
    verified = examined(store, **{key: "true"})
    assert (verified.rows, verified.report.unchecked) == (None, [])


def test_without_the_library_rows_are_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    report = examined(unpack("5.4.0-trans-rocksdb")).report
    [line] = report.unchecked
    assert line.startswith("rocksdbstore/: rows of timed messages, half messages and the index are not checked")
    assert "rocksdict" in line
    assert report.exit_code == 4


def test_pending_rows_without_a_time_to_go_on_from() -> None:
    verified = examined(unpack("5.4.0-timer-rocksdb-pending"))
    [finding] = verified.report.findings.listed
    assert finding.code == "RDB-NO-TIMELINE"
    assert finding.facts["rows"] == 14
    assert finding.facts["messages"] == 10 or finding.facts["messages"] == 14  # the others are due a day later
    assert "never deliver" in verified.report.verdict and "timed messages" in verified.report.verdict


def test_a_damaged_database_is_found(tmp_path: Path) -> None:
    store = copy_store("5.4.0-trans-rocksdb", tmp_path)
    [table] = (store / "rocksdbstore").glob("*.sst")
    damage.garble(table, 0, 200)
    verified = examined(store)
    assert verified.rows is not None and not verified.rows.readable
    assert problem_counts(verified.report) == {"RDB-DAMAGED": 1}


def test_delivered_rows_may_name_anything(tmp_path: Path) -> None:
    """Rows before timeline_checkpoint stay for half an hour and more, and nothing reads them."""
    store = copy_store("5.4.0-timer-rocksdb", tmp_path)
    with opened_rows(store / "rocksdbstore") as database:
        timer = database.get_column_family(TIMER_FAMILY)
        timer[TIMELINE] = POSITION.build(position=1 << 45)
        for key in [key for key, _ in timer.items() if key[0] == 0]:
            timer[key] = b"\0\0\1\1" + (1 << 40).to_bytes(8, "big")
    assert problem_counts(examined(store).report) == {}


@pytest.mark.parametrize(("family", "expected"), [(TRANS_FAMILY, 17582), (INDEX_FAMILY, None), (TIMER_FAMILY, None)])
def test_last_offset_of_a_family(family: str, expected: int | None) -> None:
    assert last_offset(open_store(unpack("5.4.0-trans-rocksdb")), family) == expected
    assert last_offset(open_store(unpack("4.9.7-clean")), family) is None


def test_a_position_beyond_the_log_names_both_ends(tmp_path: Path) -> None:
    store = copy_store("5.4.0-trans-rocksdb", tmp_path)
    with opened_rows(store / "rocksdbstore") as database:
        database.get_column_family(TRANS_FAMILY)[LAST_OFFSET] = POSITION.build(position=1_000_000)
    [finding] = examined(store).report.findings.listed
    assert finding.code == "RDB-POSITION"
    assert finding.facts == {
        "family": "trans",
        "key": "lastOffsetPy",
        "value": 1_000_000,
        "reason": "beyond the log",
        "wrote": 148443,
    }


def drop(store: Path, family: str, choose: Callable[[bytes], bool], **positions: int) -> int:
    """Delete the rows whose keys are chosen, write positions by name, and return how many rows were deleted."""
    with opened_rows(store / "rocksdbstore") as database:
        table = database.get_column_family(family)
        gone = [bytes(key) for key in table.keys() if bytes(key) not in POSITION_KEYS[family] and choose(bytes(key))]  # noqa: SIM118  # not a dict
        for key in gone:
            del table[key]
        for name, value in positions.items():
            table[name.encode()] = POSITION.build(position=value)
    return len(gone)


def number(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_rows_that_a_broker_may_have_deleted_or_never_written_are_not_missing(version: str, tmp_path: Path) -> None:
    halves = copy_store(f"{version}-trans-rocksdb", tmp_path / "halves")
    oldest = number(min(key for key, _ in rows_of(halves, TRANS_FAMILY)))
    assert drop(halves, TRANS_FAMILY, lambda key: number(key) == oldest) == 1  # the broker gives up the oldest first
    assert problem_counts(examined(halves).report) == {}

    timers = copy_store(f"{version}-timer-rocksdb", tmp_path / "timers")
    first = number(min(key for key, _ in rows_of(timers, TIMER_FAMILY)))
    # as if these messages were due when the broker read them: no row, but a message in their real queue
    assert drop(timers, TIMER_FAMILY, lambda key: number(key) == first, timeline_checkpoint=first - 1000) == 2
    assert problem_counts(examined(timers).report) == {}

    index = copy_store(f"{version}-index-rocksdb", tmp_path / "index")
    start = sorted({key[-8:] for key, _ in rows_of(index, INDEX_FAMILY)})[10]
    assert drop(index, INDEX_FAMILY, lambda key: key[-8:] < start) >= 10  # as if indexRocksDBEnable was set later
    assert problem_counts(examined(index).report) == {}


def rows_of(store: Path, family: str) -> list[tuple[bytes, bytes]]:
    found = MessageRows.of(open_store(store))
    assert found is not None
    return [pair for keys, values in found.rows(family) for pair in zip(keys, values, strict=True)]


@pytest.mark.parametrize(("kind", "topics"), [("trans", ["RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"]), ("timer", ["*"])])
def test_messages_are_read_from_the_log_if_their_queue_is_gone(kind: str, topics: list[str], tmp_path: Path) -> None:
    store = copy_store(f"5.4.0-{kind}-rocksdb", tmp_path)
    for topic in topics:
        for directory in store.glob(f"consumequeue/{topic}"):
            shutil.rmtree(directory)
    assert {code for code in problem_counts(examined(store).report) if code.startswith("RDB")} == set()
