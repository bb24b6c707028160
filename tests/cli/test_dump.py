"""`dump` prints what an independent reader finds in the same bytes, and applies every filter exactly."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.command import run
from tests.damage import flip, garble, zero
from tests.stores import copy_store, sent, unpack
from tests.views.decoder import Record, read_folder

PLAIN = "5.4.0-killed"


def rows(*words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    result = run("dump", *words, "--format", "ndjson")
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def truth(name: str) -> list[Record]:
    store = unpack(name)
    out = list(read_folder(store / "commitlog")) if (store / "commitlog").is_dir() else []
    for group in sorted(store.glob("dledger-*")):
        out += read_folder(group / "data", entries=True)
    return out


@pytest.mark.parametrize("name", [PLAIN, "4.9.7-ipv6", "5.1.4-dledger-mixed", "5.4.0-formats", "4.9.7-dledger-killed"])
def test_dump_equals_an_independent_reader(name: str) -> None:
    found = rows(str(unpack(name)))
    expected = truth(name)
    assert [r["offset"] for r in found] == [r.position for r in expected]
    for row, record in zip(found, expected, strict=True):
        assert row["size"] == record.size
        assert row["magic"] & 0xFFFFFFFF == record.magic
        assert row["body_crc"] == record.body_crc
        assert row["crc_ok"] is record.crc_fits is True
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        assert row["properties"] == record.properties
        assert row["msg_id"] == record.msg_id
        assert (row["born_timestamp"], row["store_timestamp"]) == (record.born_timestamp, record.store_timestamp)
        assert row["body_length"] == len(record.body)


@pytest.mark.parametrize("name", [PLAIN, "5.4.0-formats", "5.1.4-dledger-mixed"])
def test_every_acknowledged_message_is_dumped_with_its_body(name: str) -> None:
    bodies = {
        row["msg_id"]: zlib.crc32(base64.b64decode(row["body_base64"]))
        for row in rows(str(unpack(name)), "--body", "base64")
    }
    acknowledged = [s for s in sent(name) if s.offset_msg_id]
    assert len(acknowledged) > 50
    missing = [i for s in acknowledged for i in s.offset_msg_id.split(",") if i not in bodies]
    assert missing == []
    single = [s for s in acknowledged if s.kind.startswith(("plain", "concurrent"))]
    assert [s for s in single if bodies[s.offset_msg_id] != s.body_crc32] == []


def test_bodies_are_not_shown_unless_asked_for() -> None:
    assert not [r for r in rows(str(unpack(PLAIN))) if {"body", "body_base64", "body_hex", "body_error"} & set(r)]


def test_raw_body_is_as_stored() -> None:
    expected = {r.position: r.body for r in truth(PLAIN)}
    found = rows(str(unpack(PLAIN)), "--raw-body")
    assert {r["offset"]: base64.b64decode(r["body_base64"]) for r in found} == expected
    hexed = rows(str(unpack(PLAIN)), "--raw-body", "--body", "hex", "--limit", "5")
    assert [bytes.fromhex(r["body_hex"]) for r in hexed] == [expected[r["offset"]] for r in hexed]


def _expect(*words: str, keep: Any, name: str = PLAIN) -> None:
    expected = [r.position for r in truth(name) if keep(r)]
    assert expected, "the filter of the test finds nothing"
    assert [r["offset"] for r in rows(str(unpack(name)), *words)] == expected


def test_filter_by_topic() -> None:
    _expect("--topic", "Order_11", keep=lambda r: r.topic == "Order_11")
    _expect("--topic", "Order_11", "--topic", "log-15445", keep=lambda r: r.topic in ("Order_11", "log-15445"))


def test_filter_by_queue() -> None:
    _expect("--queue", "2", keep=lambda r: r.queue_id == 2)
    _expect("--queue", "Order_11/1", keep=lambda r: (r.topic, r.queue_id) == ("Order_11", 1))


def test_filter_by_tag_and_key() -> None:
    _expect("--tag", "TagB", keep=lambda r: r.properties.get("TAGS") == "TagB")
    _expect("--key", "kk160", keep=lambda r: "kk160" in r.properties.get("KEYS", "").split(" "))


def test_filter_by_message_id() -> None:
    some = truth(PLAIN)[100]
    _expect("--msg-id", some.msg_id.lower(), keep=lambda r: r.position == some.position)
    unique = some.properties["UNIQ_KEY"]
    _expect("--msg-id", unique, keep=lambda r: r.properties.get("UNIQ_KEY") == unique)


def test_filter_by_time_is_half_open() -> None:
    times = sorted(r.store_timestamp for r in truth(PLAIN))
    low, high = times[len(times) // 3], times[2 * len(times) // 3]
    _expect("--since", str(low), "--until", str(high), keep=lambda r: low <= r.store_timestamp < high)


@pytest.mark.parametrize("name", [PLAIN, "5.1.4-dledger-mixed"])
def test_filter_by_offset_is_half_open(name: str) -> None:
    offsets = [r.position for r in truth(name)]
    low, high = offsets[len(offsets) // 4], offsets[-len(offsets) // 4]
    _expect("--from", str(low), "--to", str(high), keep=lambda r: low <= r.position < high, name=name)
    _expect("--from", str(low + 1), keep=lambda r: r.position > low, name=name)
    _expect("--to", str(low + 1), keep=lambda r: r.position <= low, name=name)


@pytest.mark.parametrize("name", [PLAIN, "5.1.4-dledger-mixed"])
def test_limit_and_reverse(name: str) -> None:
    offsets = [r.position for r in truth(name)]
    store = str(unpack(name))
    assert [r["offset"] for r in rows(store, "--limit", "7")] == offsets[:7]
    assert [r["offset"] for r in rows(store, "--reverse")] == offsets[::-1]
    assert [r["offset"] for r in rows(store, "--reverse", "--limit", "3")] == offsets[:-4:-1]


def test_what_chooses_the_log_of_a_mixed_store() -> None:
    store = unpack("5.1.4-dledger-mixed")
    legacy = [r.position for r in read_folder(store / "commitlog")]
    entries = list(read_folder(store / "dledger-n0" / "data", entries=True))
    assert [r["offset"] for r in rows(str(store), "--what", "commitlog")] == legacy
    found = rows(str(store), "--what", "dledger")
    assert [r["offset"] for r in found] == [r.position - 48 for r in entries]
    assert [r["message"]["offset"] for r in found] == [r.position for r in entries]
    assert [r["index"] for r in found] == list(range(len(entries)))
    assert list(found[0]) == [
        "offset", "magic", "size", "index", "term", "pos", "channel", "chain_crc", "body_crc", "body_length", "message",
    ]  # fmt: skip


def test_consume_queue_units_point_at_their_messages() -> None:
    by_offset = {r.position: r for r in truth("5.4.0-clean")}
    found = rows(str(unpack("5.4.0-clean")), "--what", "consumequeue", "--topic", "Order_11", "--queue", "0")
    assert [u["queue_offset"] for u in found] == list(range(len(found)))
    for unit in found:
        record = by_offset[unit["commitlog_offset"]]
        assert (record.topic, record.queue_id, record.queue_offset, record.size) == (
            "Order_11",
            0,
            unit["queue_offset"],
            unit["size"],
        )
    queue = ("--what", "consumequeue", "--queue", "Order_11/0")
    assert rows(str(unpack("5.4.0-clean")), *queue, "--from", "3", "--to", "5") == found[3:5]


def test_index_entries_point_at_messages() -> None:
    positions = {r.position for r in truth("5.4.0-clean")}
    found = [r for r in rows(str(unpack("5.4.0-clean")), "--what", "index") if "unit" in r]
    assert found
    assert {r["phy_offset"] for r in found} <= positions


def test_dledger_index_equals_the_entries() -> None:
    store = str(unpack("5.4.0-dledger"))
    entries = [(r["index"], r["pos"], r["size"], r["term"]) for r in rows(store, "--what", "dledger")]
    assert [(r["index"], r["pos"], r["size"], r["term"]) for r in rows(store, "--what", "dledger-index")] == entries


def test_config_is_json_and_a_broken_one_is_named(store: Path) -> None:
    found = {r["file"]: r for r in rows(str(store), "--what", "config")}
    assert "Order_11" in found["topics.json"]["value"]["topicConfigTable"]
    (store / "config" / "topics.json").write_bytes(bytes(100))
    found = {r["file"]: r for r in rows(str(store), "--what", "config", exit_code=1)}
    assert found["topics.json"]["condition"] == "nul-filled"
    assert found["topics.json"]["value"] is None


def test_checkpoint_shows_its_three_times() -> None:
    (row, *_) = rows(str(unpack("5.4.0-clean")), "--what", "checkpoint")
    assert row["physic_msg_timestamp"] == truth("5.4.0-clean")[-1].store_timestamp


def test_csv_has_the_fields_of_ndjson() -> None:
    store = str(unpack(PLAIN))
    result = run("dump", store, "--format", "csv")
    table = list(csv.DictReader(io.StringIO(result.stdout)))
    expected = rows(store)
    assert len(table) == len(expected)
    assert list(table[0]) == list(expected[0])
    assert [t["msg_id"] for t in table] == [r["msg_id"] for r in expected]
    assert json.loads(table[5]["properties"]) == expected[5]["properties"]


def test_string_ints_quotes_what_has_64_bits() -> None:
    (row,) = rows(str(unpack(PLAIN)), "--limit", "1", "--string-ints")
    assert (row["offset"], row["queue_offset"], row["queue_id"]) == ("0", "0", 2)


def test_damaged_spans_are_passed_over_and_wrong_crcs_are_shown(tmp_path: Path) -> None:
    records = truth(PLAIN)
    wrong = next(r for r in records[5:] if len(r.body) > 20)
    store = copy_store(PLAIN, tmp_path)
    first = sorted((store / "commitlog").iterdir())[0]
    flip(first, wrong.position + 90)
    found = rows(str(store), exit_code=1)
    assert [r["offset"] for r in found if not r["crc_ok"]] == [wrong.position]
    assert len(found) == len(records)
    garble(first, wrong.position, 60)
    found = rows(str(store), exit_code=1)
    assert len(found) == len(records) - 1
    zero(first, wrong.position, wrong.size)
    assert len(rows(str(store), exit_code=1)) == len(records) - 1
    assert [r["offset"] for r in rows(str(store), "--reverse", exit_code=1)] == [r["offset"] for r in found[::-1]]


def test_zeros_after_the_end_are_no_damage() -> None:
    result = run("dump", str(unpack("5.4.0-clean")))
    assert (result.exit_code, result.stderr) == (0, "")


def test_many_jobs_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.views.dump import messages

    store = str(unpack(PLAIN))
    whole = run("dump", store).stdout
    monkeypatch.setattr(messages, "SPLIT", 3000)
    assert run("dump", store).stdout == whole
    assert run("dump", store, "--reverse").stdout.splitlines() == whole.splitlines()[::-1]


def test_positions_tile_the_log() -> None:
    found = rows(str(unpack(PLAIN)), "--positions")
    tiles = [r for r in found if "kind" in r]
    assert all(a["stop"] == b["start"] for a, b in itertools.pairwise(tiles))
    (summary,) = [r for r in found if "kind" not in r]
    last = truth(PLAIN)[-1]
    assert summary["wrote"] == last.position + last.size
    assert summary["records"] == len(truth(PLAIN)) == sum(t["records"] for t in tiles)
    assert summary["broker_stop"] == summary["wrote"]


def test_hex_names_every_field_of_a_damaged_record(tmp_path: Path) -> None:
    store = copy_store(PLAIN, tmp_path)
    record = truth(PLAIN)[3]
    flip(store / "commitlog" / f"{0:020d}", record.position + 3)  # the size
    result = run("dump", str(store), "--format", "hex", "--from", str(record.position))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any("magic: DAA320A7 (message V1)" in line for line in lines)
    assert any("body_length" in line and "<-- the lengths of the parts do not add up to size" in line for line in lines)
    assert "which cannot be divided into fields" in result.stdout


def test_hex_of_a_dledger_entry_begins_with_its_header() -> None:
    store = unpack("5.4.0-dledger")
    start = next(read_folder(store / "dledger-n0" / "data", entries=True)).position
    for offset in (start, start - 48):
        out = run("dump", str(store), "--format", "hex", "--from", str(offset)).stdout
        assert "index: 0 entries" in out
        assert f"{start:>16}" in out


def test_an_empty_filter_is_refused() -> None:
    result = run("dump", str(unpack(PLAIN)), "--what", "checkpoint", "--topic", "a")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --topic does not apply to --what checkpoint — ")


@pytest.mark.parametrize("part", ["commitlog", "commitlog/00000000000000065536"])
def test_a_part_of_a_store_is_dumped_as_what_it_is(part: str) -> None:
    low = 65536 if part.endswith("65536") else 0
    high = 131072 if low else 1 << 60
    found = rows(str(unpack(PLAIN) / part))
    assert [r["offset"] for r in found] == [r.position for r in truth(PLAIN) if low <= r.position < high]


def test_a_queue_directory_is_dumped_as_units() -> None:
    found = rows(str(unpack("5.4.0-clean") / "consumequeue" / "Order_11" / "0"))
    assert found == rows(str(unpack("5.4.0-clean")), "--what", "consumequeue", "--queue", "Order_11/0")
