"""`dump` and `info` of rocksdbstore/ and kvStore/."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict, opened_rows, without_extra
from tests.stores import copy_store, unpack

need_rocksdict()


def dumped(store: Path, *options: str) -> list[dict[str, object]]:
    done = run("dump", str(store), "--format", "ndjson", *options)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_timed_messages() -> None:
    position, timeline, *rows = dumped(unpack("5.4.0-timer-rocksdb"), "--what", "timer-rows")
    assert position == {"key": "sys_topic_scan_offset_checkpoint", "position": 14}
    assert timeline["key"] == "timeline_checkpoint"
    assert len(rows) == 12
    assert [row["pending"] for row in rows] == [row["deliver_time"] >= timeline["position"] for row in rows]  # type: ignore[operator]
    assert {row["pending"] for row in rows} == {False, True}


def test_half_messages_from_an_offset_on() -> None:
    store = unpack("5.5.1-trans-rocksdb")
    rows = dumped(store, "--what", "trans-rows", "--from", "4000", "--limit", "2")
    assert [row["commitlog_offset"] for row in rows] == [4226, 6281]
    assert rows[0]["topic"] == "Order_11"


def test_index_entries() -> None:
    rows = dumped(unpack("5.5.1-index-rocksdb"), "--what", "index-rows")[2:]
    assert len(rows) == 998
    assert {row["kind"] for row in rows} == {"K", "T", "U"}


@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_messages_that_pop_consumers_have_not_acknowledged(version: str) -> None:
    store = unpack(f"{version}-pop-kv")
    rows = dumped(store, "--what", "pop-rows")
    topics = Counter(row["topic"] for row in rows)
    assert topics == {"PopRaw_11": 20, "%RETRY%PopRawGroup_11_PopRaw_11": 9}
    assert {row["group"] for row in rows} == {"PopRawGroup_11"}
    assert run_json("info", str(store), exit_code=0)["pop_rows"] == len(rows) == 29
    assert len(dumped(store, "--what", "pop-rows", "--topic", "PopRaw_11")) == 20
    assert dumped(store, "--what", "pop-rows", "--topic", "Order_11") == []


def test_rows_cannot_be_reversed() -> None:
    done = run("dump", str(unpack("5.5.1-index-rocksdb")), "--what", "index-rows", "--reverse")
    assert done.exit_code == 2
    assert "--reverse does not apply" in done.stderr


def test_without_the_library_rows_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    done = run("dump", str(unpack("5.5.1-index-rocksdb")), "--what", "index-rows")
    assert done.exit_code == 4
    assert "rocksdbstore/ is a RocksDB" in done.stderr and "rocksdict" in done.stderr
    assert run("dump", str(unpack("5.4.0-clean")), "--what", "index-rows").exit_code == 0


def test_info_counts_rows() -> None:
    counts = run_json("info", str(unpack("5.4.0-trans-rocksdb")), exit_code=0)["rocksdbstore"]
    assert counts == {"timer": 0, "pending": 0, "trans": 12, "index": 0}
    counts = run_json("info", str(unpack("5.5.1-timer-rocksdb")), exit_code=0)["rocksdbstore"]
    assert counts == {"timer": 12, "pending": 6, "trans": 0, "index": 0}
    assert "12 timed messages (6 to be delivered)" in run("info", str(unpack("5.5.1-timer-rocksdb"))).output
    assert run_json("info", str(unpack("5.4.0-clean")), exit_code=0)["rocksdbstore"] is None


UNPARSED = {  # an offset of the log or a time that a filter of valid rows, or the end of a key, would hide
    "timer-rows": ("5.4.0-timer-rocksdb", "rocksdbstore", "timer", b"\0\1", b"x", "RDB-WRONG-ROW"),
    "trans-rows": ("5.5.1-trans-rocksdb", "rocksdbstore", "trans", bytes(8) + b"@topic", bytes(8), "RDB-WRONG-ROW"),
    "index-rows": ("5.5.1-index-rocksdb", "rocksdbstore", "default", b"key \xff\xfe", bytes(8), "RDB-WRONG-ROW"),
    "pop-rows": ("5.5.1-pop-kv", "kvStore", "popState", bytes(40), b"no object", "RDB-POP-ROW"),
    "consumequeue": ("5.5.1-rocksdb", "consumequeue", "default", b"no unit key", bytes(28), ""),
}


@pytest.mark.parametrize("what", UNPARSED)
def test_rows_that_cannot_be_parsed_are_shown_and_found(what: str, tmp_path: Path) -> None:
    name, directory, family, key, value, code = UNPARSED[what]
    store = copy_store(name, tmp_path)
    with opened_rows(store / directory) as database:
        rows = database.get_column_family(family)
        rows[key] = value
        rows.close()
    done = run("dump", str(store), "--what", what, "--format", "ndjson", "--from", "1000000000")
    assert done.exit_code == 1
    shown = [row for row in map(json.loads, done.stdout.splitlines()) if "position" not in row]
    assert shown == [{"key_hex": key.hex(), "value_hex": value.hex()}]
    assert "warning: 1 row could not be parsed" in done.stderr
    report = run_json("verify", str(store), exit_code=1 if code else 0)
    assert report["counts"] == ({code: 1} if code else {})
    assert code or "the RocksDB has 1 key of another form" in str(report["notes"])  # no broker looks for it


def test_an_index_row_with_a_sound_offset_and_time_is_found_by_its_form(tmp_path: Path) -> None:
    store = copy_store("5.5.1-index-rocksdb", tmp_path)
    last = json.loads(run("dump", str(store), "--what", "index-rows", "--format", "ndjson").stdout.splitlines()[-1])
    with opened_rows(store / "rocksdbstore") as database:
        rows = database.get_column_family("default")
        place = last["commitlog_offset"].to_bytes(8, "big")
        rows[last["hour"].to_bytes(8, "big") + b"@topic@X@id@" + place] = last["store_timestamp"].to_bytes(8, "big")
        rows.close()
    assert run_json("verify", str(store), exit_code=1)["counts"] == {"RDB-WRONG-ROW": 1}


@pytest.mark.parametrize(
    ("name", "what", "fields"),
    [
        ("5.5.1-timer-rocksdb", "timer-rows", ("deliver_time",)),
        ("5.5.1-index-rocksdb", "index-rows", ("hour", "store_timestamp")),
        ("5.5.1-pop-kv", "pop-rows", ("pop_time", "visible_time")),
    ],
)
def test_times_are_written_as_times(name: str, what: str, fields: tuple[str, ...]) -> None:
    rows = dumped(unpack(name), "--what", what, "--limit", "1", "--iso")
    assert {field: str(rows[0][field])[:8] for field in fields} == dict.fromkeys(fields, "2026-11-")
