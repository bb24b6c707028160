"""Columns of properties and queues agree with the decoding of single records, on real stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import open_store
from rmqstore.formats import properties
from rmqstore.formats.message import build_message
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.properties import PARSED_NAMES, read_texts
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import BLOCK_BITS, Kind
from rmqstore.scan.window import ScanOptions
from tests.stores import unpack


def needs_a_parser(text: bytes) -> bool:
    """Return whether a text has a name of PARSED_NAMES, except DELAY with a small number."""
    delay = properties.parse_properties(text).get("DELAY", "")
    few = delay.isdigit() and len(delay) < 10 and text.count(b"DELAY\x01") == 1
    return any(name in text for name in PARSED_NAMES if not (few and name == b"DELAY\x01"))


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-formats", "5.4.0-formats", "5.4.0-clean"])
def test_columns_agree_with_single_records(name: str) -> None:
    queue = MappedFileQueue.open("commitlog", [unpack(name) / "commitlog"], default=1 << 30)
    table, seen, fan_out, parsed_, delayed = QueueTable(), 0, 0, 0, 0
    for file in queue.files:
        for run in scan_file(file, options=ScanOptions(chunk=1 << 14)):
            if run.kind is not Kind.RECORDS or run.columns is None:
                continue
            columns = run.columns
            number, texts = table.of(columns), read_texts(columns)
            assert texts.faults == {}
            for i in range(len(columns)):
                message = columns.message(i)
                parsed = properties.parse_properties(message.properties)
                assert texts.tags_code[i] == properties.tags_code(parsed.get("TAGS", "")), parsed
                assert (table.topics[number[i]], table.queue_ids[number[i]]) == (message.topic, message.queue_id)
                assert (i in texts.fan_out) == (properties.INNER_MULTI_DISPATCH in parsed)
                assert (i in texts.parsed) == needs_a_parser(message.properties)
                delayed += "DELAY" in parsed
                parsed_ += i in texts.parsed
                fan_out += i in texts.fan_out
                for field in ("size", "queue_offset", "physical_offset", "store_timestamp", "body_length", "sys_flag"):
                    assert int(getattr(columns, field)[i]) == getattr(message, field), field
                seen += 1
    assert seen > 500
    assert (fan_out > 0) == ("formats" in name)
    assert (parsed_ > 0) == ("formats" in name)
    assert delayed > 0  # all brokers had delayed messages with small numbers, which need no parser


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (b"DELAY\x013", False),
        (b"A\x01b\x02DELAY\x01123456789\x02TAGS\x01t\x02", False),
        (b"DELAY\x01", True),
        (b"DELAY\x01-3\x02", True),
        (b"DELAY\x013x\x02", True),
        (b"DELAY\x013\x02DELAY\x01y\x02", True),
        (b"DELAY\x011234567890\x02", True),
        (b"MYDELAY\x013\x02", True),
        (b"DELAY\x013\x02INNER_NUM\x012\x02", True),
    ],
)
def test_a_small_number_as_delay_level_needs_no_parser(text: bytes, parsed: bool, tmp_path: Path) -> None:
    record = build_message(topic="T", body=b"b", properties=text)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(record.ljust(1 << 12, b"\0"))
    runs = scan_file(MappedFileQueue.open("commitlog", [tmp_path], default=1 << 12).files[0])
    found = [read_texts(run.columns).parsed for run in runs if run.columns is not None]
    assert found == [[0] if parsed else []]


def texts_of(tmp_path: Path, *raw: bytes) -> tuple[list[int], dict[int, list[str]]]:
    data, at = b"", 0
    for text in raw:
        record = build_message(topic="T", body=b"b", properties=text, physical_offset=at)
        data += record
        at += len(record)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(data.ljust(1 << 16, b"\0"))
    queue = MappedFileQueue.open("commitlog", [tmp_path], default=1 << 16)
    for run in scan_file(queue.files[0]):
        if run.columns is not None:
            texts = read_texts(run.columns)
            return texts.tags_code.tolist(), texts.faults
    raise AssertionError("no records")


def code(tags: str) -> int:
    return properties.tags_code(tags)


def test_tags_of_every_shape(tmp_path: Path) -> None:
    long = "t" * 200
    codes, faults = texts_of(
        tmp_path,
        b"TAGS\x01TagA\x02",
        b"",
        b"KEYS\x01k\x02TAGS\x01TagB",
        b"TAGS\x01\x02",
        b"TAGS\x01a\x02TAGS\x01b\x02",
        "TAGS\x01中文\x02".encode(),
        "TAGS\x01😀\x02KEYS\x01x\x02".encode(),
        b"TAGS\x01" + long.encode() + b"\x02",
        b"XTAGS\x01no\x02",
        b"KEYS\x01TAGS\x02",
    )
    assert codes == [code("TagA"), 0, code("TagB"), 0, code("b"), code("中文"), code("😀"), code(long), 0, 0]
    assert set(faults) <= {3}, faults


def test_broken_grammar_is_found_in_its_record_only(tmp_path: Path) -> None:
    good = b"KEYS\x01k\x02TAGS\x01TagA\x02"
    _, faults = texts_of(tmp_path, good, b"no separator at all", good, b"KEYS\x01\xff\xfe\x02", good)
    assert sorted(faults) == [1, 3]


def test_a_zero_byte_in_a_text_does_not_hide_the_others(tmp_path: Path) -> None:
    codes, faults = texts_of(
        tmp_path, b"TAGS\x01TagA\x02", b"K\x01a\0b\x02TAGS\x01TagB\x02", b"broken", b"TAGS\x01TagC\x02"
    )
    assert codes == [code("TagA"), code("TagB"), 0, code("TagC")]
    assert 2 in faults
    assert 0 not in faults
    assert 3 not in faults


def test_many_queues_and_long_topics_are_told_apart(tmp_path: Path) -> None:
    topics = [b"T" * n for n in (1, 7, 8, 9, 15, 16, 17, 24, 25, 33, 100, 127)]
    topics += [
        b"A" * 20 + b"x" * 20,
        b"A" * 20 + b"y" + b"x" * 19,
        b"A" * 8 + b"B" * 8 + b"C" * 8,
        b"A" * 8 + b"C" * 8 + b"C" * 8,
    ]
    data, expected = b"", []
    for _ in range(3):
        for topic in topics:
            for queue_id in (0, 1, 7):
                data += build_message(topic=topic, queue_id=queue_id, physical_offset=len(data))
                expected.append((topic, queue_id))
    path = tmp_path / "00000000000000000000"
    path.write_bytes(data.ljust(1 << 16, b"\0"))
    queue = MappedFileQueue.open("commitlog", [tmp_path], default=1 << 16)
    table, got = QueueTable(), []
    for run in scan_file(queue.files[0], options=ScanOptions(chunk=2048)):
        if run.columns is not None:
            got += [(table.topics[n], table.queue_ids[n]) for n in table.of(run.columns).tolist()]
    assert got == expected
    assert len(table) == len(topics) * 3


def test_blocks_with_properties_to_be_parsed_are_known_to_the_tiling() -> None:
    store = open_store(unpack("5.1.4-formats"))
    verified = examine(store, VerifyOptions(jobs=1, split_size=64 << 10))
    assert verified.legacy is not None
    tiling = verified.legacy.tiling
    wanted = set()
    for file in verified.legacy.queue.files:
        for run in scan_file(file):
            for i in range(len(run.columns) if run.kind is Kind.RECORDS and run.columns is not None else 0):
                assert run.columns is not None
                if needs_a_parser(run.columns.message(i).properties):
                    wanted.add(int(run.columns.offset[i]) >> BLOCK_BITS)
    assert tiling.parsed == wanted != set()
    block = min(wanted)
    assert not tiling.is_plain(block << BLOCK_BITS, (block << BLOCK_BITS) + 1)
    assert not tiling.is_plain(0, 1 << 50)
    free = max(wanted) + 1
    assert tiling.is_plain(free << BLOCK_BITS, (free + 100) << BLOCK_BITS)
    assert tiling.is_plain(free << BLOCK_BITS, 1 << 60)
