"""Turn stored messages into messages for a client: which of them, to which topic, with which properties."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.append.messages.exchange import Row, message_of
from rmqstore.errors import BadRow, RmqStoreError
from rmqstore.formats import properties as names
from rmqstore.formats.bodies import BatchError, BodyError, decompress, inner_messages
from rmqstore.formats.javatext import parse_int, parse_long
from rmqstore.formats.message import INNER_BATCH
from rmqstore.texts import Text

DELAYED, TIMED, HALF, DEAD = "delayed", "timed", "half", Text("dead letter")
RETRY, SYSTEM, FILLER = "retry", "system", "filler"

MAX_TOPIC = 255  # characters; Validators#checkTopic refuses more, 4.x more than 127
ORIGIN_STORE, ORIGIN_QUEUE = "rmqstore_store", "rmqstore_queue"
ORIGIN_OFFSET, ORIGIN_ID, ORIGIN_TIME = "rmqstore_offset", "rmqstore_id", "rmqstore_store_time"

_OF_BROKER = frozenset(
    {
        *(names.WAIT_STORE_OK, names.DELAY, names.RETRY_TOPIC, names.ORIGIN_GROUP, names.REAL_TOPIC),
        *(names.REAL_QUEUE_ID, names.TRANSACTION_PREPARED, names.PRODUCER_GROUP, names.ORIGIN_MESSAGE_ID),
        *(names.RECONSUME_TIME, names.MESSAGE_REGION, names.TRACE_SWITCH, names.TRANS_OFFSET),
        *(names.MAX_RECONSUME_TIMES, names.INNER_NUM, names.INNER_BASE, names.DUP_INFO),
        *(names.CHECK_IMMUNITY_TIME, names.TRANSACTION_PREPARED_QUEUE_OFFSET, names.TRANSACTION_ID),
        *(names.TRANSACTION_CHECK_TIMES, names.INSTANCE_ID, names.CORRELATION_ID, names.CLUSTER, names.POP_CK),
        *(names.FIRST_POP_TIME, names.INNER_MULTI_QUEUE_OFFSET, names.BORN_TIMESTAMP, names.CRC32),
        *(names.DLQ_ORIGIN_TOPIC, names.DLQ_ORIGIN_MESSAGE_ID, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS),
        *(names.TIMER_DELIVER_MS, names.TIMER_OUT_MS, names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS),
        *(names.TIMER_ROLL_TIMES, names.TIMER_DEL_UNIQKEY, names.TIMER_DELAY_LEVEL, "TIMER_ROLL_LABEL", "E_T"),
        *("MIN_OFFSET", "MAX_OFFSET", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO"),
        *("CONSUME_START_TIME", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE"),
        *("POP_CK_OFFSET", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "TRACE_CONTEXT", "__BORNHOST"),
    }
)
"""Properties that say what clients and brokers did with the stored message; they must not apply to the new one.

Kept are keys, tags, the unique id, the sharding key, priority, lite topic, light queues, and all properties of users.
Source: MessageConst#STRING_HASH_SET (RocketMQ 5.5.1)
"""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to send beyond ordinary messages, and where.

    `kinds`: DELAYED, TIMED, HALF, DEAD. `topic_map` renames topics; messages in a renamed topic of a broker's service
    are sent, too. `asked`: topics that were named, so that their dead letters are wanted.
    """

    kinds: frozenset[str] = frozenset()
    topic_map: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    timers: set[str] = field(default_factory=set)
    """Unique ids of the timed messages so far: the timer writes a message again that is due beyond its wheel."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message for the client. `queue_id` is that of the source: the topic may have fewer queues."""

    topic: str
    queue_id: int
    flag: int
    properties: Mapping[str, str]
    body: bytes


class LeftOut(Exception):
    """The message is of a kind that is not sent unless asked for; `kind` is one of the names above."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class CannotSend(Exception):
    """The message cannot be sent; the text says why."""


def digest(row: Row, inner: int = 0) -> str:
    """Return a short hash of what tells a message from others, to recognize it in the journal.

    `inner`: the place of the message in a batch record, from 0.
    """
    names_of = ("topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp")
    parts = (*(row.get(name) for name in names_of), row.get("unique_key"), *([inner] if inner else ()))
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def messages_in(row: Row) -> int:
    """Return the number of messages in a row of an export: more than 1 for a batch record (BatchCQ)."""
    flags = row.get("sys_flag")
    if not isinstance(flags, int) or not flags & INNER_BATCH:
        return 1
    try:
        found = names.parse_properties(message_of(row, "").properties)
    except BadRow:
        return 1
    return max(1, parse_int(found.get(names.INNER_NUM, "")) or 1)


def outgoing(row: Row, where: str, source: str, wishes: Wishes) -> list[Outgoing]:
    """Return the messages to send for a row of an export: one, or those of a batch record.

    Errors: LeftOut, CannotSend; BadRow if it is not a message.
    """
    if row.get("filler"):
        raise LeftOut(FILLER)
    message = message_of(row, where)
    topic = message.topic
    found = names.parse_properties(message.properties)
    target = wishes.topic_map.get(topic) or _target(topic, found, wishes)
    if not names.is_topic_name(target) or len(target) > MAX_TOPIC:
        raise CannotSend(Text("no client can send to a topic of this name"))
    queue_id, stored, delay = message.queue_id or 0, message.store_timestamp, _delay(topic, found)
    try:
        body = decompress(message.sys_flag, message.body)
        if not message.sys_flag & INNER_BATCH:
            kept = _kept(found) | delay | _origin(row, stored, source)
            return [Outgoing(target, queue_id, message.flag, kept, body)]
        parts = inner_messages(body)
    except (BodyError, BatchError, RmqStoreError) as error:
        raise CannotSend(str(error)) from error
    if len(parts) != messages_in(row):
        raise CannotSend(
            Text(
                "the batch has {count} messages, and its property INNER_NUM says {messages_in}",
                count=len(parts),
                messages_in=messages_in(row),
            )
        )
    out = []
    for inner, part in enumerate(parts):
        kept = _kept(names.parse_properties(part.properties)) | delay | _origin(row, stored, source, inner)
        out.append(Outgoing(target, queue_id, part.flag, kept, part.body))
    return out


def _kept(found: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name not in _OF_BROKER}


def _target(topic: str, found: Mapping[str, str], wishes: Wishes) -> str:
    """Return the topic to send to. Errors: LeftOut, CannotSend."""
    kind = _service(topic, found)
    if kind is None:
        return topic
    if kind not in wishes.kinds and not (kind == DEAD and topic in wishes.asked):
        raise LeftOut(kind)
    if kind == TIMED:
        unique = found.get(names.UNIQ_KEY, "")
        if names.TIMER_ROLL_TIMES in found and unique in wishes.timers:
            raise LeftOut(SYSTEM)
        wishes.timers.add(unique)
    real = found.get(names.REAL_TOPIC)
    if kind == DEAD:
        real = found.get(names.RETRY_TOPIC) or found.get(names.DLQ_ORIGIN_TOPIC)
    if real is None:
        raise CannotSend(Text("the message does not name its original topic; give it with --topic-map"))
    if names.is_retry_topic(real):
        raise LeftOut(RETRY)
    return wishes.topic_map.get(real, real)


def _service(topic: str, found: Mapping[str, str]) -> str | None:
    """Return the kind of a message in a topic of a broker's service; None for one in an ordinary topic."""
    if names.is_dlq_topic(topic):
        return DEAD
    if names.is_retry_topic(topic):
        return RETRY
    if topic == names.SCHEDULE_TOPIC:
        return DELAYED
    if topic == names.TIMER_TOPIC:
        return SYSTEM if names.TIMER_DEL_UNIQKEY in found else TIMED  # a deletion of another message
    if topic in (names.HALF_TOPIC, names.ROCKSDB_HALF_TOPIC):
        return HALF
    if names.is_system_topic(topic) or names.is_lmq(topic) or topic == names.OP_HALF_TOPIC:
        return SYSTEM
    return None


def _delay(topic: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that delay a message again. Errors: CannotSend."""
    if topic == names.SCHEDULE_TOPIC:
        level = parse_int(found.get(names.DELAY, ""))
        if level is None or level < 1:
            raise CannotSend(Text("the property DELAY is not a delay level"))
        return {names.DELAY: str(level)}
    if topic == names.TIMER_TOPIC:
        due = parse_long(found.get(names.TIMER_OUT_MS, ""))
        if due is None:
            raise CannotSend(Text("the property TIMER_OUT_MS is not a time"))
        return {names.TIMER_DELIVER_MS: str(due)}
    return {}


def _origin(row: Mapping[str, Any], stored: int, source: str, inner: int = 0) -> dict[str, str]:
    """Return the properties that say where the message was; `inner`: its place in a batch record."""
    first = row.get("queue_offset")
    queue = f"{row.get('topic')}/{row.get('queue_id')}/{first + inner if isinstance(first, int) else first}"
    found = {ORIGIN_STORE: source, ORIGIN_QUEUE: queue, ORIGIN_TIME: str(stored)}
    for name, column in ((ORIGIN_OFFSET, "offset"), (ORIGIN_ID, "msg_id")):
        if row.get(column) not in (None, ""):
            found[name] = str(row[column])
    return found
