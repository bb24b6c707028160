"""The progress of consumer groups in each queue: offset, lag, time of the next message, and what POP has handed out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.files.config import Committed
from rmqstore.files.store import Store
from rmqstore.formats.properties import REAL_TOPIC, parse_properties
from rmqstore.views import lookup
from rmqstore.views.pop import PopProgress, PopState

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group in a queue. `min` and `max`: of the queue, None if it does not exist.

    `lag`: messages from the offset to the end. `next_timestamp`: store time of the next message (ms), None without one.
    `pop`: how many messages of the queue the group has received through POP, by state.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    min: int | None
    max: int | None
    next_timestamp: int | None
    pop: dict[str, int] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Messages that the group has not received; None if the queue does not exist."""
        if self.min is None or self.max is None:
            return None
        return max(0, self.max - max(self.offset, self.min))


class QueuePositions:
    """Ends of queues and store times of their messages. Errors: CannotRead for RocksDB that cannot be read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._units = lookup.queue_reader(store)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return queue offsets [min, max) as consumers see them; None for an unknown queue."""
        return self._units(topic, queue_id).bounds(self.store.log_start)

    def message(self, topic: str, queue_id: int, queue_offset: int) -> lookup.Found | None:
        """Return the message at a queue offset; None if there is none, or it is damaged."""
        unit = self._units(topic, queue_id).at(queue_offset)
        found = None if unit is None else lookup.by_offset(self.store, unit.offset)
        return found if found is not None and found.sound else None

    def time(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return the store time (ms) of the message at a queue offset."""
        found = self.message(topic, queue_id, queue_offset)
        return None if found is None else found.message.store_timestamp

    def at_time(self, topic: str, queue_id: int, wanted: int) -> int:
        """Return the first queue offset stored at a time (ms) or later; the queue's maximum if there is none.

        A damaged message counts as stored before. Source: ConsumeQueue#getOffsetInQueueByTime
        """
        bounds = self.bounds(topic, queue_id)
        low, high = bounds or (0, 0)
        while low < high:
            middle = (low + high) // 2
            if (self.time(topic, queue_id, middle) or 0) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def queues(self, topic: str) -> list[int]:
        """Return the ids of the queues of a topic."""
        return sorted(queue_id for name, queue_id in lookup.queue_names(self.store) if name == topic)


def group_progress(
    store: Store,
    offsets: ConsumerOffsets,
    *,
    groups: frozenset[str] = frozenset(),
    topics: frozenset[str] = frozenset(),
) -> Iterator[GroupProgress]:
    """Yield the progress of the given groups in the given topics (empty: all), by group, topic and queue.

    Errors: CannotRead for queues in RocksDB that cannot be read.
    """
    positions = QueuePositions(store)
    received: Counter[tuple[str, str, int, PopState]] = Counter(
        (p.group, p.topic, p.queue_id, p.state) for p in PopProgress.read(store, offsets, newest=None).received.values()
    )
    for one in sorted(offsets.rows(), key=lambda one: (one.group, one.topic, one.queue_id)):
        if (groups and one.group not in groups) or (topics and one.topic not in topics):
            continue
        bounds = positions.bounds(one.topic, one.queue_id)
        following = None
        if bounds is not None:
            following = positions.time(one.topic, one.queue_id, max(one.offset, bounds[0]))
        place = (one.group, one.topic, one.queue_id)
        pop = {state.value: count for state in PopState if (count := received[*place, state])}
        low, high = bounds or (None, None)
        yield GroupProgress(one.group, one.topic, one.queue_id, one.offset, low, high, following, pop)


def describe(found: lookup.Found) -> dict[str, object]:
    """Return what identifies a message for a person: queue, key and time."""
    message = found.message
    known = parse_properties(message.properties)
    return {
        "topic": message.topic_text,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp": message.store_timestamp,
        "keys": known.get("KEYS"),
        "unique_key": known.get("UNIQ_KEY"),
        "real_topic": known.get(REAL_TOPIC),
    }


def of_group(offsets: ConsumerOffsets, group: str) -> list[Committed]:
    """Return all offsets of a group."""
    return sorted(one for one in offsets.rows() if one.group == group)
