"""What waits in a store, for whom and until when: for its delivery time, a decision, an acknowledgement or a consumer.

Each message counts once, where it is now. Delayed messages wait in a level of SCHEDULE_TOPIC_XXXX, from the offset in
delayOffset.json on; timed ones in the timer log, its queue or rocksdbstore/; half messages from the offset of the
broker's own group on, without those that an operation message ends. What POP consumers have received and what groups
have not read is what `offsets` shows.

Source: ScheduleMessageService, TimerMessageStore#dequeue, TransactionalMessageServiceImpl#check (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.beside.timer import due_times, good_units, next_to_enqueue
from rmqstore.errors import reason
from rmqstore.files.config import delay_offsets, loaded_config
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.rows import MessageRows
from rmqstore.files.store import Store
from rmqstore.files.topics import queue_names
from rmqstore.formats import properties, timer
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.rocksdbstore import TIMELINE, TIMER_FAMILY, TRANS_FAMILY, parse_timer_row, parse_trans_row
from rmqstore.texts import Text
from rmqstore.views import lookup
from rmqstore.views.lookup import Found
from rmqstore.views.progress import PopProgress, PopState, group_progress

READ = 20_000
"""Messages of one queue, or units of the timer log, that are read to tell their topics; the others are only counted."""
_TRANSACTIONS = "CID_RMQ_SYS_TRANS"
"""The broker's own group, which reads half and operation messages (MixAll.CID_SYS_RMQ_TRANS)."""


class WaitKind(StrEnum):
    """Why a message waits."""

    DELAYED = "delayed"
    TIMED = "timed"
    HALF = "half"
    POP = "pop"
    RETRY = "retry"
    UNREAD = "unread"


@dataclass(slots=True)
class Waiting:
    """Messages that wait for the same reason, of one topic and, if it is known, for one group.

    `topic`: where consumers will read them; None for messages that are only counted. `oldest`: store time, of received
    ones the time of receipt; `next_due`: when the first of them is due (ms); None if that is not known.
    """

    kind: WaitKind
    topic: str | None
    group: str | None = None
    messages: int = 0
    oldest: int | None = None
    next_due: int | None = None

    def add(self, messages: int, oldest: int | None = None, due: int | None = None) -> None:
        """Add messages with their earliest times."""
        self.messages += messages
        self.oldest = _earlier(self.oldest, oldest)
        self.next_due = _earlier(self.next_due, due)


@dataclass(slots=True)
class Pending:
    """All that waits; `unread`: parts of the store that could not be read, in words."""

    rows: dict[tuple[WaitKind, str | None, str | None], Waiting] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def of(self, kind: WaitKind, topic: str | None, group: str | None = None) -> Waiting:
        """Return the row of a kind, topic and group; it is made if there is none."""
        place = kind, topic, group
        if place not in self.rows:
            self.rows[place] = Waiting(kind, topic, group)
        return self.rows[place]

    def listed(self) -> list[Waiting]:
        """Return the rows that have messages, by kind, and the largest first."""
        order = list(WaitKind)
        found = (row for row in self.rows.values() if row.messages)
        return sorted(found, key=lambda row: (order.index(row.kind), -row.messages, row.topic or "", row.group or ""))

    def totals(self) -> list[Waiting]:
        """Return the sum of each kind, without topic and group."""
        out = {kind: Waiting(kind, None) for kind in WaitKind}
        for row in self.rows.values():
            out[row.kind].add(row.messages, row.oldest, row.next_due)
        return list(out.values())


def pending(store: Store, groups: frozenset[str] = frozenset(), topics: frozenset[str] = frozenset()) -> Pending:
    """Return what waits for the given groups, in the given topics (empty: all).

    What waits in a retry topic belongs to its group. Errors: none; see `Pending.unread`.
    """
    work = _Work(store)
    for part in (work.delayed, work.timed, work.half, work.rows, work.consumers):
        try:
            part()
        except CannotRead as error:
            work.out.unread.append(reason(error))
    found = work.out.rows
    work.out.rows = {
        place: row
        for place, row in found.items()
        if (not groups or row.group in groups) and (not topics or row.topic in topics)
    }
    work.out.unread = list(dict.fromkeys(work.out.unread))
    return work.out


class _Work:
    def __init__(self, store: Store) -> None:
        self.store, self.out = store, Pending()
        self.offsets = ConsumerOffsets.read(store)
        self.queue = lookup.queue_reader(store)

    @cached_property
    def names(self) -> frozenset[QueueName]:
        """Topic and id of every queue, which are listed once. Errors: CannotRead."""
        return queue_names(self.store)

    def _from(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """Return queue offsets [first, stop) of the messages of a queue from an offset on."""
        first, stop = self.queue(topic, queue_id).bounds(self.store.log_start) or (0, 0)
        return max(first, offset), stop

    def _offset(self, topic: str, queue_id: int, group: str = _TRANSACTIONS) -> int:
        """Return how far a group has read a queue, by default the broker itself."""
        return self.offsets.queues.get(topic, {}).get(queue_id, {}).get(group, 0)

    def _put(self, kind: WaitKind, found: Found | None, due: int | None) -> None:
        """Count a message that will go to the topic in its properties; without a readable record only its number."""
        if found is None or not found.sound:
            self.out.of(kind, None).add(1, due=due)
            return
        topic = properties.parse_properties(found.message.properties).get(properties.REAL_TOPIC)
        if topic is not None and properties.is_system_topic(topic):
            return  # a check point or an acknowledgement of POP, in the timer
        group = topic.removeprefix(properties.RETRY_PREFIX) if topic and properties.is_retry_topic(topic) else None
        self.out.of(kind, topic, group).add(1, found.message.store_timestamp, due)

    def delayed(self) -> None:
        """Count the messages of the delay levels; the code of their unit is the time at which they are due."""
        known = loaded_config(self.store.files, self.store.root, "delayOffset.json", delay_offsets)
        done = known or {}
        for topic, queue_id in sorted(self.names):
            if topic != properties.SCHEDULE_TOPIC:
                continue
            units = self.queue(topic, queue_id)
            first, stop = self._from(topic, queue_id, done.get(queue_id, 0))
            if known is None and stop > first:
                self.out.unread.append(Text("delayOffset.json: delivered messages may be among those that are delayed"))
            for number in range(first, min(stop, first + READ)):
                unit = units.at(number)
                found = lookup.by_offset(self.store, unit.offset) if unit is not None else None
                self._put(WaitKind.DELAYED, found, unit.tags_code if unit is not None else None)
            self._count(WaitKind.DELAYED, first, stop)

    def _count(self, kind: WaitKind, first: int, stop: int) -> None:
        """Count the messages of a queue that are not read one by one."""
        if stop - first > READ:
            self.out.of(kind, None).add(stop - first - READ)

    def timed(self) -> None:
        """Count the messages of the timer log that are not delivered, and those of its queue that are not in it yet."""
        queue, path = self.store.timer_log, self.store.root / "config" / "timercheck"
        stored = self.store.files.is_file(path)
        values = timer.parse_timercheck(
            self.store.files.read_at(path, timer.TIMERCHECK_FILE_SIZE, 0) if stored else b""
        )
        left = READ
        for _, units in good_units(queue) if queue is not None else ():
            due, magic = due_times(units), units["magic"].astype("int64")
            waits = (due >= values["last_read_time"]) & ((magic & timer.MAGIC_DELETE) == 0)
            for at, when in zip(units["commitlog_offset"][waits].tolist()[:left], due[waits].tolist(), strict=False):
                self._put(WaitKind.TIMED, lookup.by_offset(self.store, at), when)
            if (more := int(waits.sum()) - left) > 0:
                self.out.of(WaitKind.TIMED, None).add(more)
            left = max(0, left - int(waits.sum()))
        if (properties.TIMER_TOPIC, 0) not in self.names or self.store.may_have_message_rows:
            return
        start = next_to_enqueue(self.store, queue) if queue is not None else None
        first, stop = self._from(
            properties.TIMER_TOPIC, 0, values["last_timer_queue_offset"] if start is None else start
        )
        for number in range(first, min(stop, first + READ)):
            found = self.queue(properties.TIMER_TOPIC, 0).message(number)
            text = properties.parse_properties(found.message.properties) if found is not None else {}
            if properties.TIMER_DEL_UNIQKEY not in text:
                self._put(WaitKind.TIMED, found, parse_long(text.get(properties.TIMER_OUT_MS, "")))
        self._count(WaitKind.TIMED, first, stop)

    def half(self) -> None:
        """Count the half messages that no operation message ends; a copy of one that was checked again counts once."""
        half, operation = properties.HALF_TOPIC, properties.OP_HALF_TOPIC
        for queue_id in sorted(number for topic, number in self.names if topic == half):
            ended: set[int] = set()
            first, stop = self._from(operation, queue_id, self._offset(operation, queue_id))
            for number in range(first, stop):
                found = self.queue(operation, queue_id).message(number)
                text = found.message.body.decode("utf-8", "replace") if found is not None else ""
                ended |= {int(word) for word in text.split(",") if word.isascii() and word.isdecimal()}
            seen: set[str] = set()
            first, stop = self._from(half, queue_id, self._offset(half, queue_id))
            for number in range(first, min(stop, first + READ)):
                found = self.queue(half, queue_id).message(number) if number not in ended else None
                known = properties.parse_properties(found.message.properties) if found is not None else {}
                unique = known.get(properties.UNIQ_KEY, "")
                if number not in ended and (not unique or unique not in seen):
                    self._put(WaitKind.HALF, found, None)
                seen.add(unique)
            self._count(WaitKind.HALF, first, stop)

    def rows(self) -> None:
        """Count the rows of timed and half messages in rocksdbstore/."""
        if not self.store.may_have_message_rows:
            return
        rows = MessageRows.open(self.store)
        reached = max(rows.position(TIMER_FAMILY, TIMELINE) or 0, 0)
        for key, value in _pairs(rows, TIMER_FAMILY):
            timed = parse_timer_row(key, value)
            if timed is not None and timed.deliver_time >= reached:
                self._put(WaitKind.TIMED, lookup.by_offset(self.store, timed.commitlog_offset), timed.deliver_time)
        for key, value in _pairs(rows, TRANS_FAMILY):
            half = parse_trans_row(key, value)
            if half is not None:
                self._put(WaitKind.HALF, lookup.by_offset(self.store, half.commitlog_offset), None)

    def consumers(self) -> None:
        """Count what groups have received through POP and not acknowledged, and what they have not read."""
        if self.offsets.unreadable:
            self.out.unread.append(self.offsets.unreadable)
        popped = PopProgress.read(self.store, self.offsets, newest=None)
        if popped.unreadable:
            self.out.unread.append(popped.unreadable)
        for one in popped.received.values():
            is_past = self._offset(one.topic, one.queue_id, one.group) > one.queue_offset
            if one.state is PopState.INVISIBLE and is_past:  # otherwise the group gets it again, as an unread one
                self.out.of(WaitKind.POP, one.topic, one.group).add(1, one.pop_time or None, one.visible_time or None)
        for row in group_progress(self.store, self.offsets, popped):
            if row.lag and not properties.is_system_topic(row.topic):
                kind = WaitKind.RETRY if properties.is_retry_topic(row.topic) else WaitKind.UNREAD
                self.out.of(kind, row.topic, row.group).add(row.lag, row.next_timestamp)


def _pairs(rows: MessageRows, family: str) -> Iterator[tuple[bytes, bytes]]:
    for keys, values in rows.rows(family):
        yield from zip(keys, values, strict=True)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)
