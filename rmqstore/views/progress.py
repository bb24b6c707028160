"""The progress of consumer groups in each queue: offset, lag, time of the next message, and what POP consumers have
received and acknowledged.

With POP, the offset of a group moves when messages are handed out, not when they are acknowledged. What a group has
acknowledged is in the revive log, in the timer, or in kvStore/ (`formats/pop.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rmqstore.checks.beside.config import ConsumerOffsets, QueueProgress
from rmqstore.errors import reason
from rmqstore.files.config import Committed
from rmqstore.files.log_ends import first_true
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.rows import pop_rows
from rmqstore.files.store import Store
from rmqstore.files.topics import queue_names
from rmqstore.formats import pop
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.properties import REAL_TOPIC, TAGS, TIMER_TOPIC, UNIQ_KEY, parse_properties
from rmqstore.texts import Placed, Text
from rmqstore.views import lookup
from rmqstore.views.lookup import KeyIndex

NEWEST = 20_000
"""How many of the newest check points and acknowledgements are read per queue for one message."""


class PopState(StrEnum):
    """What a POP group has done with a message that it has received."""

    ACKNOWLEDGED = "acknowledged"
    INVISIBLE = "invisible"
    """Received, not acknowledged: the broker delivers it again at `visible_time`."""
    RETURNED = "returned"
    """Not acknowledged in time: the broker has put it into the retry topic of the group."""
    UNKNOWN = "unknown"
    """Received; the store does not tell whether it was acknowledged."""


@dataclass(frozen=True, slots=True)
class Popped:
    """One message as received by a group. `visible_time` and `pop_time`: ms; 0 if unknown. `times`: how often.

    `again`: a broker that starts delivers it again at once, because the stored offset of the group is not past it. A
    broker stores offsets every 5 seconds, and check points at once, so that this is common after a kill.
    Source: ConfigManager#persist, PopMessageProcessor#getPopOffset (RocketMQ 5.5.1)
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    state: PopState
    pop_time: int = 0
    visible_time: int = 0
    times: int = 1
    again: bool = False

    @property
    def is_consumed(self) -> bool:
        """Whether the group has acknowledged the message, and does not get it again."""
        return self.state is PopState.ACKNOWLEDGED and not self.again


Place = tuple[str, str, int, int]  # group, topic, queue id, queue offset


@dataclass(slots=True)
class PopProgress:
    """What all groups of a store have received through POP.

    `unreadable`: why a part is unknown, or "". `is_complete`: whether all check points in the log were read.
    """

    received: dict[Place, Popped] = field(default_factory=dict)
    groups: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of group and topic that use POP."""
    is_complete: bool = True
    unreadable: str = ""

    @classmethod
    def read(cls, store: Store, offsets: ConsumerOffsets | None = None, *, newest: int | None = NEWEST) -> PopProgress:
        """Read check points and acknowledgements, and kvStore/; of each queue the `newest` (None: all).

        Errors: none; see `unreadable`.
        """
        out = cls()
        if store.part is not None:
            return out
        offsets = offsets or ConsumerOffsets.read(store)
        out._groups_by_retry_topic(offsets)
        what: str = Text("the queues of the revive log")
        try:
            out._read_revive_log(store, offsets, newest)
            what = Placed("{directory}/", directory=pop.KV_DIRECTORY)
            out._read_rows(store)
        except CannotRead as e:
            words = Text("{what}: what POP consumers have received is not read: {why}")
            out.unreadable = words.format(what=what, why=reason(e))
        return out

    def of(self, progress: QueueProgress, topic: str, queue_id: int, queue_offset: int) -> Popped | None:
        """Return what a group did with a message; None if it has not received it, or does not use POP."""
        group = progress.group
        found, past = self.received.get((group, topic, queue_id, queue_offset)), progress.has_consumed(queue_offset)
        if found is None and (group, topic) in self.groups and past:
            return Popped(group, topic, queue_id, queue_offset, PopState.UNKNOWN)
        return found and replace(found, again=not past)

    def has_consumed(self, progress: QueueProgress, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a group is past a message, and has acknowledged it if it received it through POP."""
        found = self.of(progress, topic, queue_id, queue_offset)
        return progress.has_consumed(queue_offset) if found is None else found.is_consumed

    def _groups_by_retry_topic(self, offsets: ConsumerOffsets) -> None:
        """Add the pairs whose retry topic has an offset: a broker sets it when it first returns a message."""
        pairs = {(one.group, one.topic) for one in offsets.rows()}
        self.groups |= {pair for pair in pairs if any((pair[0], name) in pairs for name in pop.retry_topics(*pair))}

    def _add(self, found: Popped) -> None:
        self.groups.add((found.group, found.topic))
        place = (found.group, found.topic, found.queue_id, found.queue_offset)
        known = self.received.get(place)
        if known is None or found.pop_time >= known.pop_time:
            self.received[place] = found

    # --- kvStore/ -------------------------------------------------------------------------------------------------

    def _read_rows(self, store: Store) -> None:
        for _, _, row in pop_rows(store):
            if row is not None:
                self._add(
                    Popped(
                        row.group,
                        row.topic,
                        row.queue_id,
                        row.queue_offset,
                        PopState.INVISIBLE,
                        row.pop_time,
                        row.visible_time,
                        row.attempts + 1,
                    )
                )

    # --- the revive log -------------------------------------------------------------------------------------------

    def _read_revive_log(self, store: Store, offsets: ConsumerOffsets, newest: int | None) -> None:
        """Read the check points and acknowledgements of the revive log, and those that still wait in the timer.

        Source: PopReviveService#consumeReviveMessage, #mergeAndRevive (RocketMQ 5.5.1)
        """
        log = _ReviveLog(store, newest)
        processed = {(one.topic, one.queue_id): one.offset for one in offsets.rows() if one.group == pop.REVIVE_GROUP}
        for topic, queue_id in log.queues():
            log.read(topic, queue_id, processed.get((topic, queue_id), -1))
        if log.found:
            log.read(TIMER_TOPIC, 0, -1)
        self.is_complete = log.is_complete
        late = _LateAcknowledgements(store, newest)
        for point in log.points.values():
            acknowledged = log.acknowledged.get(point.key, set()) | point.acknowledged
            for offset in point.offsets:
                state = PopState.ACKNOWLEDGED if offset in acknowledged else PopState.INVISIBLE
                key = point.key
                if key in log.processed and (
                    state is PopState.INVISIBLE or late.is_late(key.group, key.topic, key.queue_id, offset)
                ):
                    state = PopState.RETURNED
                self._add(Popped(key.group, key.topic, key.queue_id, offset, state, key.pop_time, point.visible_time))


class _LateAcknowledgements:
    """Acknowledgements that came when the broker had returned the message: the group has a copy in its retry topic."""

    def __init__(self, store: Store, newest: int | None) -> None:
        self.store, self.newest = store, newest
        self.queue_ids: defaultdict[str, list[int]] = defaultdict(list)
        for topic, queue_id in queue_names(store):
            self.queue_ids[topic].append(queue_id)
        self.copies: dict[tuple[str, str], frozenset[str]] = {}
        self._units = lookup.queue_reader(store)

    def is_late(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the retry topic of the group has a copy of a message."""
        pair = group, topic
        if pair not in self.copies:
            names = [(name, number) for name in pop.retry_topics(*pair) for number in self.queue_ids[name]]
            self.copies[pair] = frozenset(filter(None, (key for name in names for key in self._keys(*name))))
        return bool(self.copies[pair]) and self._key(topic, queue_id, queue_offset) in self.copies[pair]

    def _keys(self, topic: str, queue_id: int) -> Iterator[str | None]:
        """Yield the unique ids of the newest messages of a queue."""
        first, stop = self._units(topic, queue_id).bounds(self.store.log_start) or (0, 0)
        start = first if self.newest is None else max(first, stop - self.newest)
        yield from (self._key(topic, queue_id, queue_offset) for queue_offset in range(start, stop))

    def _key(self, topic: str, queue_id: int, queue_offset: int) -> str | None:
        found = self._units(topic, queue_id).message(queue_offset)
        return None if found is None else parse_properties(found.message.properties).get(UNIQ_KEY)


class _ReviveLog:
    """The check points and acknowledgements of one store, wherever they are."""

    def __init__(self, store: Store, newest: int | None) -> None:
        self.store, self.newest = store, newest
        self.points: dict[pop.PopKey, pop.CheckPoint] = {}
        self.acknowledged: dict[pop.PopKey, set[int]] = {}
        self.processed: set[pop.PopKey] = set()
        self.found = False
        self.is_complete = True

    def queues(self) -> list[QueueName]:
        """Return the queues of the revive log."""
        return sorted(name for name in queue_names(self.store) if name[0].startswith(pop.REVIVE_TOPIC))

    def read(self, topic: str, queue_id: int, processed: int) -> None:
        """Read the newest messages of a queue; `processed`: the last queue offset that the broker has processed."""
        self.found = True
        units = lookup.QueueUnits(self.store, topic, queue_id)
        bounds = units.bounds(self.store.log_start)
        if bounds is None:
            return
        start = bounds[0] if self.newest is None else max(bounds[0], bounds[1] - self.newest)
        self.is_complete &= start == bounds[0]
        for queue_offset in range(start, bounds[1]):
            found = units.message(queue_offset)
            if found is None or not found.sound:
                continue
            known = parse_properties(found.message.properties)
            if topic == TIMER_TOPIC and not known.get(REAL_TOPIC, "").startswith(pop.REVIVE_TOPIC):
                continue
            self._take(known.get(TAGS, ""), bytes(found.message.body), is_processed=queue_offset <= processed)

    def _take(self, tag: str, body: bytes, *, is_processed: bool) -> None:
        if tag == pop.CHECK_POINT_TAG:
            point = pop.parse_check_point(body)
            if point is not None:
                self.points[point.key] = point
                if is_processed:
                    self.processed.add(point.key)
        elif tag in (pop.ACK_TAG, pop.BATCH_ACK_TAG):
            acknowledgement = pop.parse_acknowledgement(body)
            if acknowledgement is not None:
                self.acknowledged.setdefault(acknowledgement.key, set()).update(acknowledgement.offsets)


def is_in_retry_topic(found: Popped, unique_key: str | None, files: KeyIndex) -> bool | None:
    """Return whether a copy of a message is in a retry topic of the group; None if no index can tell."""
    if not unique_key or not files:
        return None
    names = pop.retry_topics(found.group, found.topic)
    return next(files.hits(names, (unique_key,)), None) is not None


EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group in a queue. `min` and `max`: of the queue, None if it does not exist.

    `lag`: messages from the offset to the end. `unread_gone`: messages that the group had not read and that are gone
    with the log before its begin, of those that queue files still list. `next_timestamp`: store time of the next
    message (ms), None without one. `pop`: how many messages of the queue the group has received through POP, by state;
    None if that cannot be read.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    min: int | None
    max: int | None
    unread_gone: int
    next_timestamp: int | None
    pop: dict[str, int] | None = field(default_factory=dict)

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

    def gone(self, topic: str, queue_id: int, offset: int) -> int:
        """Return how many messages from a queue offset on queue files list that are before the begin of the log.

        Rows of RocksDB go later than the log, and prove nothing.
        """
        begin = self.store.log_start
        if begin <= 0 or self.store.reads_rows(topic):
            return 0
        units = self._units(topic, queue_id)
        listed, there = units.bounds(), units.bounds(begin)
        return max(0, there[0] - max(offset, listed[0])) if listed is not None and there is not None else 0

    def message(self, topic: str, queue_id: int, queue_offset: int) -> lookup.Found | None:
        """Return the message at a queue offset; None if there is none, or it is damaged."""
        found = self._units(topic, queue_id).message(queue_offset)
        return found if found is not None and found.sound else None

    def time(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return the store time (ms) of the message at a queue offset."""
        found = self.message(topic, queue_id, queue_offset)
        return None if found is None else found.message.store_timestamp

    def at_time(self, topic: str, queue_id: int, wanted: int) -> int:
        """Return the first queue offset stored at a time (ms) or later; the queue's maximum if there is none.

        A damaged message counts as stored before. Source: ConsumeQueue#getOffsetInQueueByTime
        """
        first, stop = self.bounds(topic, queue_id) or (0, 0)
        return first_true(first, stop, lambda at: (self.time(topic, queue_id, at) or 0) >= wanted)

    def queues(self, topic: str) -> list[int]:
        """Return the ids of the queues of a topic."""
        return sorted(queue_id for name, queue_id in queue_names(self.store) if name == topic)


def group_progress(
    store: Store,
    offsets: ConsumerOffsets,
    popped: PopProgress,
    wanted: Callable[[Committed], bool] = lambda _: True,
) -> Iterator[GroupProgress]:
    """Yield the progress that belongs to the wanted offsets, by group, topic and queue.

    Errors: CannotRead for queues in RocksDB that cannot be read.
    """
    positions = QueuePositions(store)
    received: Counter[tuple[str, str, int, PopState]] = Counter(
        (p.group, p.topic, p.queue_id, p.state) for p in popped.received.values()
    )
    for one in sorted(filter(wanted, offsets.rows()), key=lambda one: (one.group, one.topic, one.queue_id)):
        bounds = positions.bounds(one.topic, one.queue_id)
        following, gone = None, 0
        if bounds is not None:
            gone = positions.gone(one.topic, one.queue_id, one.offset)
            following = positions.time(one.topic, one.queue_id, max(one.offset, bounds[0]))
        place = (one.group, one.topic, one.queue_id)
        pop = None
        if not popped.unreadable:
            pop = {state.value: count for state in PopState if (count := received[*place, state])}
        low, high = bounds or (None, None)
        yield GroupProgress(one.group, one.topic, one.queue_id, one.offset, low, high, gone, following, pop)


def of_group(offsets: ConsumerOffsets, group: str) -> list[Committed]:
    """Return all offsets of a group."""
    return sorted(one for one in offsets.rows() if one.group == group)
