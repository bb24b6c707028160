"""RocksDB consume queue keys compared with hand-computed values and rows of a real 5.4.0 store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import rocksdbkeys as r

# rows of the column families default and offset, 5.4.0
UNIT_KEY_5_4_0 = bytes.fromhex("00000008014f726465725f31310100000000010000000000000001")
UNIT_VALUE_5_4_0 = bytes.fromhex("00000000000062e80000014b00000000069046f0000001a1fcf8b82a")
OFFSET_KEY_5_4_0 = bytes.fromhex("00000008014f726465725f3131016d61780100000001")
OFFSET_VALUE_5_4_0 = bytes.fromhex("00000000000322eb0000000000000012")


def test_keys_of_the_vectors() -> None:
    assert r.UnitKey(b"TopicTest", 1, 5).build() == bytes.fromhex(
        "0000000901546F70696354657374010000000101" + "0000000000000005"
    )
    assert r.OffsetKey(b"TopicTest", "max", 1).build() == bytes.fromhex(
        "0000000901546F70696354657374016D61780100000001"
    )
    assert r.CHECKPOINT_KEY.build() == bytes.fromhex("0000001001434845434B504F494E545F544F504943016D61780100000000")
    assert r.UNIT_VALUE.build(
        commitlog_offset=405, size=136, tags_code=2598922, store_timestamp=0x1A1FB3D2AF5
    ) == bytes.fromhex("000000000000019500000088000000000027A80A000001A1FB3D2AF5")


def test_rows_of_a_real_store() -> None:
    assert r.parse_unit_key(UNIT_KEY_5_4_0) == r.UnitKey(b"Order_11", 0, 1)
    assert r.UNIT_VALUE.parse(UNIT_VALUE_5_4_0) == {
        "commitlog_offset": 25320,
        "size": 331,
        "tags_code": 110118640,
        "store_timestamp": 1795245520938,
    }
    assert r.parse_offset_key(OFFSET_KEY_5_4_0) == r.OffsetKey(b"Order_11", "max", 1)
    assert r.OFFSET_VALUE.parse(OFFSET_VALUE_5_4_0) == {"commitlog_offset": 205547, "queue_offset": 18}


@pytest.mark.parametrize("at", [3, 4, 13, 18])
def test_damaged_unit_key_is_none(at: int) -> None:
    key = bytearray(UNIT_KEY_5_4_0)
    key[at] ^= 0x40
    assert r.parse_unit_key(bytes(key)) is None


@pytest.mark.parametrize("at", [3, 4, 13, 14, 17])
def test_damaged_offset_key_is_none(at: int) -> None:
    key = bytearray(OFFSET_KEY_5_4_0)
    key[at] ^= 0x40
    assert r.parse_offset_key(bytes(key)) is None


@given(st.binary(max_size=20), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, (1 << 63) - 1))
def test_keys_are_built_and_parsed(topic: bytes, queue_id: int, queue_offset: int) -> None:
    key = r.UnitKey(topic, queue_id, queue_offset)
    assert r.parse_unit_key(key.build()) == key
    bound = r.OffsetKey(topic, "min", queue_id)
    assert r.parse_offset_key(bound.build()) == bound


@given(st.binary(max_size=40))
def test_any_bytes_are_a_key_or_none(data: bytes) -> None:
    unit, bound = r.parse_unit_key(data), r.parse_offset_key(data)
    assert unit is None or unit.build() == data
    assert bound is None or bound.build() == data
