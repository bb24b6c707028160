"""Consume queue units compared with hand-computed values and bytes of real brokers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rmqstore.formats import consumequeue as cq
from rmqstore.formats.compaction import SPARSE_END

# first three units of SCHEDULE_TOPIC_XXXX/2, 4.9.7
SCHEDULE_4_9_7 = bytes.fromhex(
    "00000000000004680000012d000001a1fcf131ef000000000000059500000136000001a1fcf131f40000000000000c980000012f"
    "000001a1fcf1320f"
)
# first three units of a BatchCQ queue, 5.4.0
BATCH_5_4_0 = bytes.fromhex(
    "000000000002b82b000002ab0000000000000000000001a1fcf747dc00000000000000000003ffffffff00000000"
    "000000000002be06000003b50000000000000000000001a1fcf747df00000000000000030005ffffffff00000000"
    "000000000002c5f5000002260000000000000000000001a1fcf747e800000000000000080002ffffffff00000000"
)
# first unit of a compacted topic's SparseCQ, 5.4.0
SPARSE_5_4_0 = bytes.fromhex(
    "00000000000000000000011c0000000000000063000001a1fcf74ce700000000000000000001ffffffff00000000"
)


@pytest.mark.parametrize(
    ("offset", "size", "tags_code", "raw"),
    [
        (0, 105, 2598919, "000000000000000000000069000000000027A807"),
        (405, 136, 0, "0000000000000195000000880000000000000000"),
        (1 << 30, 178, -5, "0000000040000000000000B2FFFFFFFFFFFFFFFB"),
        (1640, 167, 1795216452344 + 10_000, "0000000000000668000000A7000001A1FB3D5208"),
        (49152 + 48, 178, 0, "000000000000C030000000B20000000000000000"),
    ],
)
def test_a_unit_has_the_bytes_that_java_writes(offset: int, size: int, tags_code: int, raw: str) -> None:
    assert cq.UNIT.build(commitlog_offset=offset, size=size, tags_code=tags_code) == bytes.fromhex(raw)


def test_fillers_are_the_brokers() -> None:
    assert bytes.fromhex("00000000000000007FFFFFFF0000000000000000") == cq.PRE_BLANK
    assert cq.EXT_END.build() == b"\xff\xff"
    assert b"\xff" * 8 + bytes(30) + b"\xff" * 4 + bytes(4) == SPARSE_END


def test_units_of_a_real_schedule_queue() -> None:
    assert cq.UNIT.array(SCHEDULE_4_9_7).tolist() == [
        (1128, 301, 1795245027823),
        (1429, 310, 1795245027828),
        (3224, 303, 1795245027855),
    ]


def test_units_of_a_real_batch_queue() -> None:
    assert cq.BATCH_UNIT.array(BATCH_5_4_0).tolist() == [
        (178219, 683, 0, 1795245426652, 0, 3, -1, 0),
        (179718, 949, 0, 1795245426655, 3, 5, -1, 0),
        (181749, 550, 0, 1795245426664, 8, 2, -1, 0),
    ]
    (sparse,) = cq.BATCH_UNIT.array(SPARSE_5_4_0).tolist()
    assert sparse == (0, 284, 99, 1795245427943, 0, 1, -1, 0)


def test_batch_unit_bytes() -> None:
    raw = cq.BATCH_UNIT.build(
        commitlog_offset=1234, size=146, tags_code=2598921, store_timestamp=0x1A1FB3D2AF5, batch_size=4
    )
    assert raw == bytes.fromhex(
        "00000000000004D200000092000000000027A809000001A1FB3D2AF500000000000000000004FFFFFFFF00000000"
    )


def test_extension_unit_bytes() -> None:
    head = cq.EXT_UNIT.build(size=28, tags_code=2598919, store_timestamp=0x1A1FB3D2AF5, bitmap_size=8)
    assert head + bytes(8) == bytes.fromhex("001C000000000027A807000001A1FB3D2AF500080000000000000000")


@pytest.mark.parametrize(
    ("offset", "raw"),
    [(0, "8000000000000000"), (48 << 20, "8000000003000000"), ((1 << 63) - (1 << 31) - 1, "FFFFFFFF7FFFFFFF")],
)
def test_an_extension_address_is_the_offset_with_the_sign_bit_set(offset: int, raw: str) -> None:
    address = int.from_bytes(bytes.fromhex(raw), "big", signed=True)
    assert cq.is_ext_address(address)
    assert cq.ext_offset(address) == offset


def test_hashes_are_not_extension_addresses() -> None:
    assert not cq.is_ext_address(-(1 << 31))


@pytest.mark.parametrize(("offset", "size", "good"), [(0, 1, True), (-1, 1, False), (0, 0, False), (5, -1, False)])
def test_unit_validity_is_the_recoverys(offset: int, size: int, good: bool) -> None:
    assert cq.is_unit(offset, size) is good
    assert cq.is_batch_unit(offset, size, 0, 1) is good
    assert not cq.is_batch_unit(offset, size, -1, 1)
    assert not cq.is_batch_unit(offset, size, 0, 0)


def test_pre_blank_is_a_unit_that_points_to_no_message() -> None:
    unit = cq.UNIT.parse(cq.PRE_BLANK)
    offset, size = unit["commitlog_offset"], unit["size"]
    assert cq.is_pre_blank(offset, size)
    assert cq.is_unit(offset, size)
    assert not cq.is_message_unit(offset, size)
    assert not cq.is_pre_blank(0, 105)
    assert not cq.is_pre_blank(1, cq.PRE_BLANK_SIZE)
    assert cq.is_message_unit(1, cq.PRE_BLANK_SIZE)


def test_unit_rules_give_the_same_answers_for_arrays() -> None:
    pairs = [(0, cq.PRE_BLANK_SIZE), (1, cq.PRE_BLANK_SIZE), (0, 105), (0, 0), (-1, 105), (105, -1)]
    offset = np.array([a for a, _ in pairs], dtype=">i8")
    size = np.array([b for _, b in pairs], dtype=">i4")
    for rule in (cq.is_unit, cq.is_pre_blank, cq.is_message_unit):
        assert rule(offset, size).tolist() == [rule(a, b) for a, b in pairs]
    base, count = np.array([0, 0, -1, 0, 0, 0]), np.array([1, 0, 1, 1, 1, 1])
    assert cq.is_batch_unit(offset, size, base, count).tolist() == [True, False, False, False, False, False]


def test_files_hold_whole_units_and_begin_with_pre_blanks_where_a_queue_starts_later() -> None:
    assert [cq.round_file_size(size) for size in (1, 20, 21, 6_000_000)] == [20, 20, 40, 6_000_000]
    assert cq.first_file(149, 2000) == 2000
    assert cq.pre_blanks(149, 2000) == 49
    assert cq.first_file(300_000, 6_000_000) == 6_000_000
    assert cq.pre_blanks(300_000, 6_000_000) == 0


@pytest.mark.parametrize(
    ("topic", "possible"),
    [
        (b"Order", True),
        (b"%RETRY%g@x", True),
        (b"...", True),
        (b"T" * 255, True),
        ("Ü".encode() * 127, True),
        (b"T" * 256, False),
        ("Ü".encode() * 128, False),
        (b"", False),
        (b".", False),
        (b"..", False),
        (b"a/b", False),
        (b"a\0", False),
        (b"a,b", False),
    ],
)
def test_a_topic_is_a_directory_name_where_a_broker_can_create_it(topic: bytes, possible: bool, tmp_path: Path) -> None:
    assert cq.is_directory_name(topic) is possible
    if possible:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + topic))).mkdir()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Orders/3", ("Orders", 3)),
        ("%LMQ%home/sensor/0", ("%LMQ%home/sensor", 0)),
        ("Orders/-1", None),
        ("Orders/²", None),
        (f"Orders/{'9' * 5000}", None),
        ("Orders/", None),
        ("/3", None),
        ("3", None),
        ("commitlog", None),
        ("", None),
    ],
)
def test_only_topic_and_id_name_a_queue(text: str, name: cq.QueueName | None) -> None:
    assert cq.parse_queue_label(text) == name


def test_the_label_of_a_queue_is_split_even_with_a_negative_id() -> None:
    assert cq.split_queue_label("%LMQ%home/sensor/-1") == ("%LMQ%home/sensor", -1)
    with pytest.raises(ValueError, match="commitlog"):
        cq.split_queue_label("commitlog")
    assert (cq.topic_of("%LMQ%home/sensor/-1"), cq.topic_of("commitlog")) == ("%LMQ%home/sensor", "")
