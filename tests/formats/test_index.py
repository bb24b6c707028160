"""The hash index compared with hand-computed values and a real file."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from rmqstore.formats import index
from rmqstore.formats.properties import index_keys

# header, and units 0 to 2, of the first index file of a 4.9.7 broker (100 slots, 400 units)
HEADER_4_9_7 = bytes.fromhex("000001a1fcf107e3000001a1fcf1141b000000000000000000000000000172480000006300000190")
UNITS_4_9_7 = bytes.fromhex("00" * 20 + "264f622f" + "00" * 16 + "4422cc8f" + "00" * 16)


@pytest.mark.parametrize(
    ("text", "code", "slot", "at", "slot20"),
    [
        ("TopicTest#7F00000100002A139F4B0BADF00D0001", 1593577042, 3577042, 14308208, 2),
        ("TopicTest#k1", 2746024, 2746024, 10984136, 4),
        ("TopicTest#k2", 2746025, 2746025, 10984140, 5),
        ("TopicTest#kb0", 85128311, 128311, 513284, 11),
    ],
)
def test_key_hash_and_slot(text: str, code: int, slot: int, at: int, slot20: int) -> None:
    assert index.key_hash(text) == code
    assert index.slot_of(code, index.DEFAULT_SLOTS) == slot
    assert index.slot_at(slot) == at
    assert index.slot_of(code, 20) == slot20


def test_hash_without_an_abs_is_zero_and_negative_ones_turn() -> None:
    assert index.key_hash("polygenelubricants") == 0
    assert index.key_hash("ab\uffff\uffff\uffff") >= 0


def test_real_file_holds_the_hashes_of_its_keys() -> None:
    assert index.HEADER.parse(HEADER_4_9_7) == {
        "begin_timestamp": 1795245017059,
        "end_timestamp": 1795245020187,
        "begin_phy_offset": 0,
        "end_phy_offset": 94792,
        "hash_slot_count": 99,
        "index_count": 400,
    }
    assert index.entries(400) == 399 and index.entries(0) == 0
    values = {"UNIQ_KEY": "FD00000000000000000000000000000253C14E0E2F2A68891E4E0000", "KEYS": "ready"}
    hashes = [index.key_hash(text) for text in index_keys("Order_11", values)]
    assert index.UNIT.array(UNITS_4_9_7).tolist() == [(0, 0, 0, 0), (hashes[0], 0, 0, 0), (hashes[1], 0, 0, 0)]


def test_header_and_unit_of_the_vectors() -> None:
    raw = bytes.fromhex("000001A1FB3D2A1A000001A1FB3D2AEC0000000000000000000000000000040D000000090000000A")
    assert index.HEADER.build(index.HEADER.parse(raw)) == raw
    assert index.entries(index.HEADER.parse(raw)["index_count"]) == 9
    assert index.UNIT.build(key_hash=1593577042) == bytes.fromhex("5EFC0E52" + "00" * 16)
    assert [int(x["newest"]) for x in index.SLOT.array(bytes.fromhex("000000000000000100000003"))] == [0, 1, 3]


def test_a_file_is_its_header_slots_and_units() -> None:
    assert index.file_size() == 420_000_040
    assert index.file_size(20, 60) == 1320
    assert index.file_size(100, 400) == 8440
    assert index.units_in(8440, 100) == 400
    assert index.units_in(10, 100) == 0
    assert index.unit_at(1, 100) == 460


@pytest.mark.parametrize(
    ("store", "begin", "diff"),
    [(5000, 0, 0), (5000, -1, 0), (5999, 1000, 4), (1000, 5000, 0), (999, 1000, 0), (1 << 62, 1, (1 << 31) - 1)],
)
def test_time_difference_is_clamped(store: int, begin: int, diff: int) -> None:
    assert index.time_diff(store, begin) == diff


def test_key_text_joins_topic_and_key() -> None:
    assert index.key_text("TopicTest", "k1") == "TopicTest#k1"


def test_file_name_is_local_time() -> None:
    assert index.file_name(1795245017072, UTC) == "20261121071017072"
    assert index.file_name(1795245017072, timezone(timedelta(hours=8))) == "20261121151017072"
