"""`dump` and `info` of rocksdbstore/ and kvStore/."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict, without_extra
from tests.stores import unpack

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
    assert counts == {"timer": 0, "trans": 12, "index": 0}
    assert run_json("info", str(unpack("5.4.0-clean")), exit_code=0)["rocksdbstore"] is None
