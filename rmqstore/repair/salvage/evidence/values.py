"""The values of the evidence table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Name = tuple[str, int]
"""A queue: topic, queue id."""


@dataclass(frozen=True, slots=True)
class QueueSlot:
    """A place in a queue, and what the queue's unit says of it.

    `tags_code` None: free. `count` messages of a batch, 0 outside of BatchCQ topics. `fan_out`: (light message queue,
    queue offset) pairs.
    """

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int | None = None
    count: int = 0
    fan_out: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from all others."""
        return self.topic, self.queue_id, self.queue_offset

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id} {self.queue_offset}"


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that witnesses expect. `offset` (global) and `size` of its record in bytes; None: nothing says them.

    `store_timestamp` in ms, where its unit has it.
    """

    slot: QueueSlot
    offset: int | None = None
    size: int | None = None
    store_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What one witness says about one field at one place.

    The record begins at `start` if `exact`; else it lies between the records at `start` and `stop` (global offsets).
    """

    start: int
    stop: int
    field: str
    value: Any
    witness: str

    @property
    def exact(self) -> bool:
        return self.start == self.stop
