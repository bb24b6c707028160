"""Rows of the broker's configuration in RocksDB, version 2 (config/rdb/, RocketMQ 5.3.2 and newer).

All tables share the column family `default`; each key begins with the id of its table. Source: ConfigHelper#keyBufOf,
#valueBufOf, ConsumerOffsetManagerV2#keyOfConsumerOffset (RocketMQ 5.5.1)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from construct import Bytes, ConstructError, Int8sb, Int16sb, Int32sb, Int64sb, this

from rmqstore.formats.layout import Field, Layout, Record

CONSUMER_OFFSET, PULL_OFFSET, TOPIC, SUBSCRIPTION_GROUP = 1, 2, 3, 4
"""Ids of the tables (TableId)."""
_ROW, _DATA, _SEPARATOR, _JSON = 1, 2, 1, 1

KEY_HEAD = Layout(
    "RocksDB configuration v2 key head",
    "ConfigHelper#keyBufOf, RocketMQ 5.5.1",
    Field("prefix", Int8sb, "Always 1: a row of a table.", const=_ROW),
    Field("table", Int16sb, "1 consumer offsets, 2 pull offsets, 3 topics, 4 subscription groups."),
    Field("record", Int8sb, "1 the data version of the table, 2 a row.", const=_DATA),
)
NAME = Record(
    "RocksDB configuration v2 key of a topic or group",
    "ConfigHelper#keyBufOf, RocketMQ 5.5.1",
    Field("name_length", Int16sb, "Length of the name.", "bytes"),
    Field("name", Bytes(this.name_length), "Topic or group, UTF-8."),
    about="Follows the key head in tables 3 and 4. The value is the serialization (1: JSON) in one byte, and the text.",
)
OFFSET_KEY = Record(
    "RocksDB configuration v2 key of an offset",
    "ConsumerOffsetManagerV2#keyOfConsumerOffset, RocketMQ 5.5.1",
    Field("group_length", Int16sb, "Length of the group.", "bytes"),
    Field("group", Bytes(this.group_length), "Consumer group, UTF-8."),
    Field("control", Int8sb, "Always 1.", const=_SEPARATOR),
    Field("topic_length", Int16sb, "Length of the topic.", "bytes"),
    Field("topic", Bytes(this.topic_length), "Topic, UTF-8."),
    Field("control2", Int8sb, "Always 1.", const=_SEPARATOR),
    Field("queue_id", Int32sb, "Queue of the topic."),
    about="Follows the key head in tables 1 and 2.",
)
OFFSET_VALUE = Layout(
    "RocksDB configuration v2 offset",
    "ConsumerOffsetManagerV2#commitOffset, RocketMQ 5.5.1",
    Field("offset", Int64sb, "Queue offset that the group reads next.", "units"),
)


class OffsetPlace(NamedTuple):
    """The key of an offset: whose progress, and in which queue."""

    group: bytes
    topic: bytes
    queue_id: int


def key_range(table: int) -> tuple[bytes, bytes]:
    """Return the first key of a table's rows, and the first key after them."""
    start = KEY_HEAD.build(table=table)
    return start, start[:-1] + bytes([_DATA + 1])


def parse_name(key: bytes) -> bytes | None:
    """Return the topic or group of a key in tables 3 and 4; None if the key has another form."""
    found = _fields(NAME, key)
    return None if found is None else found["name"]


def parse_offset_place(key: bytes) -> OffsetPlace | None:
    """Parse a key of tables 1 and 2; None if the key has another form."""
    found = _fields(OFFSET_KEY, key)
    if found is None or (found["control"], found["control2"]) != (_SEPARATOR, _SEPARATOR):
        return None
    return OffsetPlace(found["group"], found["topic"], found["queue_id"])


def parse_json_value(value: bytes) -> bytes | None:
    """Return the JSON text of a value in tables 3 and 4; None if it is serialized in another way."""
    return value[1:] if value[:1] == bytes([_JSON]) else None


def parse_offset(value: bytes) -> int | None:
    """Return the offset in a value of tables 1 and 2; None if its length is wrong."""
    return int(OFFSET_VALUE.unpack(value)["offset"]) if len(value) == OFFSET_VALUE.size else None


def _fields(record: Record, key: bytes) -> dict[str, Any] | None:
    """Parse what follows the key head; None if it does not end where the record does."""
    rest = key[KEY_HEAD.size :]
    try:
        found = record.parse(rest)
    except ConstructError:
        return None
    return found if len(record.build(found)) == len(rest) else None
