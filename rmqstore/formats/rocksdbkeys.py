"""Keys and values of the RocksDB consume queue (RocketMQ 5.2 and newer).

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocketMQ 5.4.0).
A key consists of the topic length (4 bytes), 0x01, the topic, and a tail that starts with 0x01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from construct import Bytes, Int32sb, Int64sb

from rmqstore.formats.layout import Field, Layout

CTRL_0, CTRL_1, CTRL_2 = b"\x00", b"\x01", b"\x02"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
DEFAULT_CF, OFFSET_CF = b"default", b"offset"

TOPIC_HEAD = Layout(
    "RocksDB key head",
    "RocksDBConsumeQueueTable#buildCQKeyByteBuffer, RocketMQ 5.4.0",
    Field("topic_length", Int32sb, "Length of the topic that follows the control byte.", "bytes"),
    Field("control", Bytes(1), "Always 0x01."),
)
UNIT_KEY_TAIL = Layout(
    "RocksDB consume queue key tail",
    "RocksDBConsumeQueueTable#buildCQKeyByteBuffer, RocketMQ 5.4.0",
    Field("control", Bytes(1), "Always 0x01."),
    Field("queue_id", Int32sb, "Queue of the topic."),
    Field("control2", Bytes(1), "Always 0x01."),
    Field("queue_offset", Int64sb, "Queue offset of the message.", "units"),
)
UNIT_VALUE = Layout(
    "RocksDB consume queue value",
    "RocksDBConsumeQueueTable#buildCQValueByteBuffer, RocketMQ 5.4.0",
    Field("commitlog_offset", Int64sb, "Where the message starts in the commitlog.", "bytes"),
    Field("size", Int32sb, "TOTALSIZE of the message.", "bytes"),
    Field("tags_code", Int64sb, "Hash of TAGS; due time (ms) in the schedule topic."),
    Field("store_timestamp", Int64sb, "Broker's clock at append.", "ms"),
)
OFFSET_KEY_TAIL = Layout(
    "RocksDB queue bound key tail",
    "RocksDBConsumeQueueOffsetTable#buildOffsetKeyByteBuffer, RocketMQ 5.4.0",
    Field("control", Bytes(1), "Always 0x01."),
    Field("bound", Bytes(3), "ASCII max or min."),
    Field("control2", Bytes(1), "Always 0x01."),
    Field("queue_id", Int32sb, "Queue of the topic."),
)
OFFSET_VALUE = Layout(
    "RocksDB queue bound value",
    "RocksDBConsumeQueueOffsetTable#buildOffsetValueByteBuffer, RocketMQ 5.4.0",
    Field("commitlog_offset", Int64sb, "Where that message starts in the commitlog.", "bytes"),
    Field("queue_offset", Int64sb, "Queue offset of the first (min) or last (max) message.", "units"),
)
CHECKPOINT_VALUE = Layout(
    "RocksDB consume queue checkpoint",
    "RocksDBConsumeQueueOffsetTable#appendMaxPhyOffset, RocketMQ 5.4.0",
    Field("max_phy_offset", Int64sb, "End of the last dispatched message.", "bytes"),
)


@dataclass(frozen=True, slots=True)
class UnitKey:
    """A key in the column family `default`; `queue_offset` in units."""

    topic: bytes
    queue_id: int
    queue_offset: int

    def build(self) -> bytes:
        """Return the bytes of the key: the topic and 19 others."""
        tail = UNIT_KEY_TAIL.build(
            control=CTRL_1, queue_id=self.queue_id, control2=CTRL_1, queue_offset=self.queue_offset
        )
        return _head(self.topic) + tail


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """A key in the column family `offset`."""

    topic: bytes
    bound: Literal["max", "min"]
    queue_id: int

    def build(self) -> bytes:
        """Return the bytes of the key: the topic and 14 others."""
        return _head(self.topic) + OFFSET_KEY_TAIL.build(
            control=CTRL_1, bound=self.bound.encode(), control2=CTRL_1, queue_id=self.queue_id
        )


CHECKPOINT_KEY = OffsetKey(CHECKPOINT_TOPIC.encode(), "max", 0)


def _head(topic: bytes) -> bytes:
    return TOPIC_HEAD.build(topic_length=len(topic), control=CTRL_1) + topic


def _split(key: bytes, tail: Layout) -> tuple[bytes, bytes] | None:
    """Split a key into topic and tail; None if the stored topic length does not match the key's length."""
    if len(key) < TOPIC_HEAD.size + tail.size:
        return None
    head = TOPIC_HEAD.parse(key)
    topic = key[TOPIC_HEAD.size : len(key) - tail.size]
    if head["control"] != CTRL_1 or head["topic_length"] != len(topic):
        return None
    return topic, key[len(key) - tail.size :]


def parse_unit_key(key: bytes) -> UnitKey | None:
    """Parse a key of the column family `default`; None for any other bytes."""
    parts = _split(bytes(key), UNIT_KEY_TAIL)
    if parts is None:
        return None
    tail = UNIT_KEY_TAIL.parse(parts[1])
    if tail["control"] != CTRL_1 or tail["control2"] != CTRL_1:
        return None
    return UnitKey(parts[0], tail["queue_id"], tail["queue_offset"])


def parse_offset_key(key: bytes) -> OffsetKey | None:
    """Parse a key of the column family `offset`; None for any other bytes."""
    parts = _split(bytes(key), OFFSET_KEY_TAIL)
    if parts is None:
        return None
    tail = OFFSET_KEY_TAIL.parse(parts[1])
    if tail["control"] != CTRL_1 or tail["control2"] != CTRL_1 or tail["bound"] not in (b"max", b"min"):
        return None
    return OffsetKey(parts[0], "max" if tail["bound"] == b"max" else "min", tail["queue_id"])
