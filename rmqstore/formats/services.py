"""What the broker's services read in the messages of their topics.

Without these properties, a message is never delivered. The timer, and a delay level of 4.9, retry it forever and never
reach the messages after it; a delay level of 5.x skips it. A transaction can be neither committed nor checked.
Source: ScheduleMessageService#messageTimeup, TimerMessageStore#enqueue and #convertMessage,
EndTransactionProcessor#endMessageTransaction, TransactionalMessageServiceImpl#fillOpRemoveMap (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache

from rmqstore.formats import properties
from rmqstore.formats.text.javatext import parse_int, parse_long

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
