"""Values of the evidence table: queue slots, expected messages, rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import Message

Name = tuple[str, int]
"""A queue: topic, queue id."""


@dataclass(frozen=True, slots=True)
class QueueSlot:
    """A queue offset of a queue, with the contents of its unit.

    `tags_code` is None if no unit has one. `count` is the number of messages in the batch, 0 outside BatchCQ topics.
    `fan_out` are (light message queue, queue offset) pairs that share the message.
    """

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int | None = None
    count: int = 0
    fan_out: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        return self.topic, self.queue_id, self.queue_offset

    def fits_tags(self, tags: str | None) -> bool:
        """Return whether TAGS give the unit's tags code, as far as that code is a hash of TAGS."""
        code = self.tags_code
        if code is None or self.topic == properties.SCHEDULE_TOPIC or consumequeue.is_ext_address(code):
            return True
        return properties.tags_code(tags) == code

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id} {self.queue_offset}"


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that witnesses expect, with what they say about it; None if no witness says it.

    `offset` is global, `size` of its record in bytes, `store_timestamp` in ms. `inferred`: its slot
    follows from a gap of its queue, which has no unit for it; only light message queues point to it.
    """

    slot: QueueSlot
    offset: int | None = None
    size: int | None = None
    store_timestamp: int | None = None
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Testimony:
    """What one witness says about one field at one place.

    The record begins at `start` if `exact`, otherwise it is between the records at `start` and `stop` (global offsets).
    """

    start: int
    stop: int
    field: str
    value: Any
    witness: str

    @property
    def exact(self) -> bool:
        return self.start == self.stop


def key_of(message: Message) -> tuple[str, int, int]:
    """Return topic, queue id and queue offset in a record's header, comparable with `QueueSlot.key`."""
    return message.topic_text, message.queue_id, message.queue_offset
