"""What dispatch and the broker's services read in a message.

Dispatch: what becomes of one message, its place in a BatchCQ topic, and the light message queues that get it too. The
versions differ in the light queues only; `FanOut` has their rules.
Source: ConsumeQueue#putMessagePositionInfoWrapper, #multiDispatchLmqQueue, MultiDispatchUtils,
CommitLog#checkMessageAndReturnSize (RocketMQ 4.9.7 to 5.5.1)

Services: without the properties that a service needs, it never delivers a message. The timer, and a delay level of
4.9, retry it forever and never reach the messages after it; a delay level of 5.x skips it. A transaction can be
neither committed nor checked.
Source: ScheduleMessageService#messageTimeup, TimerMessageStore#enqueue and #convertMessage,
EndTransactionProcessor#endMessageTransaction, TransactionalMessageServiceImpl#fillOpRemoveMap (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from rmqstore.formats import properties
from rmqstore.formats.javatext import parse_int, parse_long

_NEEDED: Mapping[str, tuple[str, ...]] = {
    properties.SCHEDULE_TOPIC: (properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.DELAY),
    properties.TIMER_TOPIC: (properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.TIMER_OUT_MS),
    properties.HALF_TOPIC: (properties.REAL_TOPIC, properties.REAL_QUEUE_ID),
    properties.OP_HALF_TOPIC: (properties.TAGS,),
}
_NUMBERS: Mapping[str, Callable[[str], int | None]] = {
    properties.REAL_QUEUE_ID: parse_int,
    properties.DELAY: parse_int,
    properties.TIMER_OUT_MS: parse_long,
}
NEVER_CHECKED = str(2**31 - 1)
"""TRANSACTION_CHECK_TIMES of a half message that every check discards: the service reads nothing else of it."""


def is_service_topic(topic: str) -> bool:
    """Whether a service reads properties of the messages of this topic."""
    return topic in _NEEDED


def missing_properties(topic: str, found: Mapping[str, str]) -> list[str]:
    """List the properties that a topic's service needs and that are missing, or not the number that they should be."""
    if topic == properties.HALF_TOPIC and found.get(properties.TRANSACTION_CHECK_TIMES) == NEVER_CHECKED:
        return []
    return [name for name in _NEEDED.get(topic, ()) if not _is_valid(name, found.get(name))]


def missing_in_text(topic: str, data: bytes | bytearray, start: int = 0, stop: int = sys.maxsize) -> list[str]:
    """As `missing_properties`, for the property text in data[start:stop]; fast if nothing is missing."""
    if all(usual.search(data, start, stop) for usual in _usual_texts(topic)):
        return []
    return missing_properties(topic, properties.parse_properties(bytes(data[start:stop])))


def _is_valid(name: str, value: str | None) -> bool:
    return value is not None and (name not in _NUMBERS or _NUMBERS[name](value) is not None)


@cache
def _usual_texts(topic: str) -> list[re.Pattern[bytes]]:
    """Return a pattern for each property that the topic needs; only sound properties match, though not all of them."""
    number = rb"[0-9]{1,9}(?![^\x02])"
    due_time = rb"[0-9]{1,18}(?![^\x02])"
    values = {properties.REAL_QUEUE_ID: number, properties.DELAY: number, properties.TIMER_OUT_MS: due_time}
    return [
        re.compile(rb"\x02" + name.encode() + rb"\x01" + values.get(name, rb"[^\x02]"))
        for name in _NEEDED.get(topic, ())
    ]


@dataclass(frozen=True, slots=True)
class FanOut:
    """Which messages a broker version puts into light message queues too, if `enableMultiDispatch` is on.

    `topics` and the `prefixes` of topics are excluded. `skips_paths`: a queue whose name contains "/" gets no unit.
    """

    topics: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    skips_paths: bool = False

    def includes(self, topic: str) -> bool:
        """Return whether messages of a topic can have light queues."""
        return topic not in self.topics and not topic.startswith(self.prefixes)


NEWEST = FanOut(
    frozenset({properties.SCHEDULE_TOPIC}), (properties.RETRY_PREFIX, properties.SYSTEM_TOPIC_PREFIX), skips_paths=True
)
"""The rules of 5.2.0 and newer."""


def light_queues(
    topic: str, queue_id: int, found: Mapping[str, str], rules: FanOut = NEWEST, *, lmq: bool = True
) -> Iterator[tuple[str, int, int]]:
    """Yield (queue name, queue id, queue offset) of each light queue that gets a message with these properties.

    Stops at a queue offset that is not a number, at which a broker throws. `lmq`: enableLmq, with which light queues
    have the queue id 0.
    """
    if not rules.includes(topic):
        return
    for name, offset in properties.lmq_queues(found):
        if not (rules.skips_paths and "/" in name):
            yield name, 0 if lmq and properties.is_lmq(name) else queue_id, offset


def batch_extent(found: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return (base queue offset, number of messages) of a record in a BatchCQ topic; 1 message if no inner batch."""
    inner = properties.inner_batch(found)
    return inner if inner is not None else (queue_offset, 1)


def is_sound_topic(topic: bytes) -> bool:
    """Return whether topic bytes are text that a broker would have accepted."""
    if not topic:
        return False
    try:
        topic.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(c >= 0x20 for c in topic)


def one_bit_apart(one: str, other: str) -> bool:
    """Return whether two topics differ in one bit; bytes that are not UTF-8 fit any character."""
    different = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    if len(one) != len(other) or len(different) != 1:
        return False
    ((a, b),) = different
    return a == "\ufffd" or (ord(a) ^ ord(b)).bit_count() == 1
