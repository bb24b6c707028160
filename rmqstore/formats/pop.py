"""What a broker keeps of messages that POP consumers have received and not yet acknowledged.

Two forms exist. In the revive log (topic rmq_sys_REVIVE_LOG_<cluster>), each pop is a check point, and each
acknowledgement a message of its own; both first wait in rmq_sys_wheel_timer until the invisible time ends. With the KV
service (popConsumerKVServiceEnable, 5.3.2 and newer), each message that is not acknowledged is a row of kvStore/.

Source: PopCheckPoint, AckMsg, BatchAckMsg, PopReviveService, PopConsumerRecord (RocketMQ 5.5.1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from construct import Bytes, Int32sb, Int64sb

from rmqstore.formats.configuration import ConfigJsonError, JsonValue, parse_config_object
from rmqstore.formats.layout import Field, Layout

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_"
"""Prefix of the topic; the name of the cluster follows."""
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offset is the last check point of a revive queue that the broker has processed."""
CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
KV_DIRECTORY, KV_FAMILY = "kvStore", "popState"
_SEPARATOR = b"@"

KEY_HEAD = Layout(
    "RocksDB pop key",
    "PopConsumerRecord#getKeyBytes, RocketMQ 5.5.1",
    Field("visible_time", Int64sb, "When the message becomes visible again: pop time and invisible time.", "ms"),
    about="Column family popState of kvStore/. Followed by group@topic.",
)
KEY_TAIL = Layout(
    "RocksDB pop key tail",
    "PopConsumerRecord#getKeyBytes, RocketMQ 5.5.1",
    Field("separator", Bytes(1), "Always @."),
    Field("queue_id", Int32sb, "Queue of the topic."),
    Field("separator2", Bytes(1), "Always @."),
    Field("queue_offset", Int64sb, "Queue offset of the message.", "units"),
    about="The value is a JSON object with the same fields, and the number of attempts to return the message.",
)


@dataclass(frozen=True, slots=True)
class PopKey:
    """What identifies one pop: the group, the queue, the first queue offset (units) and the time (ms)."""

    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_time: int


@dataclass(frozen=True, slots=True)
class CheckPoint:
    """The messages of one pop. `offsets`: their queue offsets (units); `acknowledged`: those with a set bit."""

    key: PopKey
    visible_time: int
    offsets: tuple[int, ...]
    acknowledged: frozenset[int]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Queue offsets (units) of a pop that a consumer has acknowledged."""

    key: PopKey
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PopRow:
    """A row of kvStore/: one message without acknowledgement. `attempts`: how often its return failed. Times: ms."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    pop_time: int
    visible_time: int
    attempts: int


def parse_check_point(body: bytes) -> CheckPoint | None:
    """Parse the body of a message with the tag `ck`; None if a broker ignores it or cannot parse it.

    Source: PopCheckPoint#ackOffsetByIndex, #getReviveTime
    """
    values = _object(body)
    key = None if values is None else _key(values)
    if values is None or key is None:
        return None
    count, bits, invisible = (_number(values, name, 0) for name in ("n", "bm", "it"))
    differences = values.get("d")
    if count is None or bits is None or invisible is None or not 0 <= count < 1 << 7:
        return None
    if not isinstance(differences, list) or not differences:
        differences = list(range(count))
    if len(differences) < count or not all(isinstance(d, int) for d in differences):
        return None
    offsets = tuple(key.start_offset + int(d) for d in differences[:count] if isinstance(d, int))
    acknowledged = frozenset(offset for number, offset in enumerate(offsets) if bits >> number & 1)
    return CheckPoint(key, key.pop_time + invisible, offsets, acknowledged)


def parse_acknowledgement(body: bytes) -> Acknowledgement | None:
    """Parse the body of a message with the tag `ack` or `bAck`; None if a broker cannot parse it."""
    values = _object(body)
    key = None if values is None else _key(values)
    if values is None or key is None:
        return None
    several = values.get("aol", values.get("ackOffsetList"))
    if isinstance(several, list):
        return Acknowledgement(key, tuple(int(offset) for offset in several if isinstance(offset, int)))
    offset = _number(values, "ao", None, "ackOffset")
    return None if offset is None else Acknowledgement(key, (offset,))


def parse_pop_row(key: bytes, value: bytes) -> PopRow | None:
    """Parse a row of kvStore/; None if it has another form, or if key and value contradict each other.

    A group or a topic may contain @, so that their names are those of the value.
    """
    if len(key) < KEY_HEAD.size + KEY_TAIL.size:
        return None
    values = _object(value)
    head, tail = KEY_HEAD.unpack(key), KEY_TAIL.unpack(key, len(key) - KEY_TAIL.size)
    if values is None or (tail["separator"], tail["separator2"]) != (_SEPARATOR, _SEPARATOR):
        return None
    group, topic = values.get("groupId"), values.get("topicId")
    numbers = [_number(values, name, 0) for name in ("popTime", "invisibleTime", "queueId", "offset", "attemptTimes")]
    if not isinstance(group, str) or not isinstance(topic, str) or None in numbers:
        return None
    pop_time, invisible, queue_id, offset, attempts = (int(n or 0) for n in numbers)
    row = PopRow(group, topic, queue_id, offset, pop_time, pop_time + invisible, attempts)
    return row if build_pop_key(row) == key and head["visible_time"] == row.visible_time else None


def build_pop_key(row: PopRow) -> bytes:
    """Return the key of a row of kvStore/."""
    names = f"{row.group}@{row.topic}".encode()
    tail = KEY_TAIL.build(
        separator=_SEPARATOR, queue_id=row.queue_id, separator2=_SEPARATOR, queue_offset=row.queue_offset
    )
    return KEY_HEAD.build(visible_time=row.visible_time) + names + tail


def retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Return the topics to which a broker returns messages that were not acknowledged (version 1 and 2 of the name).

    Source: KeyBuilder#buildPopRetryTopicV1, #buildPopRetryTopicV2 (RocketMQ 5.5.1)
    """
    return f"%RETRY%{group}_{topic}", f"%RETRY%{group}+{topic}"


def _object(text: bytes) -> dict[str, JsonValue] | None:
    try:
        return parse_config_object(text)
    except ConfigJsonError:
        return None


def _key(values: Mapping[str, JsonValue]) -> PopKey | None:
    group, topic = values.get("c", values.get("consumerGroup")), values.get("t", values.get("topic"))
    queue_id, start = _number(values, "q", None, "queueId"), _number(values, "so", None, "startOffset")
    pop_time = _number(values, "pt", None, "popTime")
    if (
        not isinstance(group, str)
        or not isinstance(topic, str)
        or queue_id is None
        or start is None
        or pop_time is None
    ):
        return None
    return PopKey(group, topic, queue_id or 0, start or 0, pop_time or 0)


def _number(values: Mapping[str, JsonValue], name: str, missing: int | None, other: str = "") -> int | None:
    value = values.get(name, values.get(other, missing))
    return value if isinstance(value, int) and not isinstance(value, bool) else None
