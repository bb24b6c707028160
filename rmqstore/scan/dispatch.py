"""Dispatch: which consume queue units a broker writes for a chunk of records, as columns.

The pass of `verify`, the rebuild of queues and the import of messages use it. Queues (topic and queue id) are numbered
from 0 in the order in which they occur.
Source: DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue#dispatch, ConsumeQueue#putMessagePositionInfoWrapper,
BatchConsumeQueue#putMessagePositionInfoWrapper (RocketMQ 5.5.1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.formats import properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import is_dispatched
from rmqstore.formats.services import batch_extent, is_service_topic, light_queues
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool, u64
from rmqstore.scan.properties import Texts

U64 = npt.NDArray[np.uint64]
_K = [np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)]
_EIGHT = np.int64(8)
_SLOTS = 1 << 13
_FEW = 64  # number of queues up to which collisions in the slots are rare


class QueueTable:
    """The numbers of all queues seen so far, which never change.

    `topics[i]` and `queue_ids[i]` identify queue i.
    """

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.queue_ids: list[int] = []
        self._by_name: dict[tuple[bytes, int], int] = {}
        loops = native.load()
        self._native = native.QueueSlots(loops) if loops is not None else None
        self._known: dict[int, _KnownQueues] = {}  # by hash
        self._hashes: U64 = np.empty(0, dtype=np.uint64)  # sorted; the arrays below are in this order
        self._numbers: I64 = np.empty(0, dtype=np.int64)
        self._first: U64 = np.empty(0, dtype=np.uint64)  # words of each queue's topic, to detect collisions
        self._last: U64 = np.empty(0, dtype=np.uint64)
        self._mixed: U64 = np.empty(0, dtype=np.uint64)
        self._rest: I64 = np.empty(0, dtype=np.int64)
        self._slots: I64 | None = None  # low bits of a hash → its index in the arrays

    def __len__(self) -> int:
        return len(self.topics)

    def number(self, topic: bytes, queue_id: int) -> int:
        """Return the number of a queue, and assign one to a new queue."""
        key = (topic, queue_id)
        found = self._by_name.get(key)
        if found is None:
            found = len(self.topics)
            self._by_name[key] = found
            self.topics.append(topic)
            self.queue_ids.append(queue_id)
        return found

    def topic(self, number: int) -> str:
        """Return the topic of a queue as text; bytes that are not UTF-8 become escapes."""
        return self.topics[number].decode("utf-8", "backslashreplace")

    def label(self, number: int) -> str:
        """Return `TOPIC/ID` of a queue."""
        return f"{self.topic(number)}/{self.queue_ids[number]}"

    def of(self, columns: Columns) -> I64:
        """Return the queue number of every record.

        Shape: (n,)
        """
        if self._native is not None:
            return self._of_native(columns, self._native)
        words = _Words(columns)
        numbers = self._look_up(words)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            _, first = np.unique(words.hashes[unknown], return_index=True)
            for i in unknown[first].tolist():
                self._learn(words, i, self.number(columns.topic(i), int(columns.queue_id[i])))
            self._arrange()
            numbers = self._look_up(words)
            for i in np.flatnonzero(numbers < 0).tolist():  # queues whose hash another queue has too
                numbers[i] = self.number(columns.topic(i), int(columns.queue_id[i]))
        return numbers

    def _of_native(self, columns: Columns, slots: native.QueueSlots) -> I64:
        names = columns.buf, columns.topic_at, columns.topic_length, columns.queue_id
        numbers, unknown = slots.find(*names)
        count = 64  # a few records of the first chunk usually introduce all queues
        while unknown:
            for i in np.flatnonzero(numbers < 0)[:count].tolist():
                self.number(columns.topic(i), int(columns.queue_id[i]))
            slots.add(self.topics, self.queue_ids)
            numbers, unknown = slots.find(*names)
            count *= 4
        return numbers

    def _look_up(self, words: _Words) -> I64:
        if not self._known:
            return np.full(len(words.hashes), -1, dtype=np.int64)
        if self._slots is not None:  # ten times as fast as a search
            at = self._slots[(words.hashes & np.uint64(len(self._slots) - 1)).astype(np.int64)]
            if self._same(at, words).all():
                return self._numbers[at]
        at = np.searchsorted(self._hashes, words.hashes)
        at[at == len(self._hashes)] = 0
        return np.where(self._same(at, words), self._numbers[at], -1)

    def _same(self, at: I64, words: _Words) -> Bool:
        """Whether the known queues at `at` have these words; words that equal others in short topics are skipped."""
        same: Bool = self._rest[at] == words.rest
        same &= self._last[at] == words.last
        if words.longest > 8:
            same &= self._first[at] == words.first
        if words.longest > 16:
            same &= self._mixed[at] == words.mixed
        return same

    def _learn(self, words: _Words, i: int, number: int) -> None:
        known = _KnownQueues(number, *(int(a[i]) for a in (words.first, words.last, words.mixed, words.rest)))
        self._known.setdefault(int(words.hashes[i]), known)

    def _arrange(self) -> None:
        hashes = sorted(self._known)
        rows = [self._known[h] for h in hashes]
        self._hashes = np.array(hashes, dtype=np.uint64)
        self._numbers = np.array([k.number for k in rows], dtype=np.int64)
        self._first = np.array([k.first for k in rows], dtype=np.uint64)
        self._last = np.array([k.last for k in rows], dtype=np.uint64)
        self._mixed = np.array([k.mixed for k in rows], dtype=np.uint64)
        self._rest = np.array([k.rest for k in rows], dtype=np.int64)
        self._slots = None
        if len(hashes) <= _FEW:
            slots = np.zeros(_SLOTS, dtype=np.int64)
            slots[(self._hashes & np.uint64(_SLOTS - 1)).astype(np.int64)] = np.arange(len(hashes))
            self._slots = slots


class _KnownQueues(NamedTuple):
    number: int
    first: int
    last: int
    mixed: int
    rest: int


class _Words:
    """Topics as 64-bit words, for hashing: the first, the last, and a mix of those between (over 16 bytes)."""

    def __init__(self, columns: Columns) -> None:
        view = u64(columns.buf)
        at, length = columns.topic_at, columns.topic_length
        shortest, longest = (int(length.min()), int(length.max())) if len(length) else (0, 0)
        self.longest = longest
        first = view[at].astype(np.uint64)
        if shortest < 8:
            shift = (np.maximum(_EIGHT - length, 0) * 8).astype(np.uint64)
            first = np.where(shift >= 64, np.uint64(0), first >> np.minimum(shift, 63))
        self.first: U64 = first
        self.last: U64 = first
        if longest > 8:
            last = view[at + np.maximum(length - 8, 0)].astype(np.uint64)
            self.last = last if shortest >= 8 else np.where(length > 8, last, first)
        # a topic length has at most 16 bits
        self.rest: I64 = columns.queue_id << 16 | length
        mixed = np.zeros(len(at), dtype=np.uint64)
        for k in range(8, longest - 8, 8):
            more = length > k + 8
            word = view[np.where(more, at + k, at)].astype(np.uint64)
            mixed = np.where(more, (mixed ^ word) * _K[2] + (mixed >> np.uint64(29)), mixed)
        self.mixed: U64 = mixed
        h = (first * _K[0]) ^ (self.last * _K[1])
        if longest > 16:
            h ^= mixed
        h ^= h >> np.uint64(31)
        h = h * _K[2] + length.astype(np.uint64) * _K[3] + columns.queue_id.astype(np.uint64) * _K[0]
        self.hashes: U64 = h ^ (h >> np.uint64(32))


_SCHEDULE = properties.SCHEDULE_TOPIC.encode()


class DispatchedRows(NamedTuple):
    """Messages and their queue offsets, one array element each.

    `number` identifies the queue. `offset` and `size` in bytes; `tags` is the tags code of the unit; `time` is the
    store time (ms).
    """

    number: I64
    queue_offset: I64
    offset: I64
    size: I64
    tags: I64
    time: I64

    def keep(self, mask: Bool) -> DispatchedRows:
        """Return the rows that a mask selects."""
        return self if mask.all() else DispatchedRows(*(column[mask] for column in self))


@dataclass(frozen=True, slots=True)
class BatchRow:
    """What the unit of a message or inner batch of a BatchCQ topic should contain."""

    offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base: int
    count: int
    queue_offset: int = -1  # in the header; -1: not read


class DispatchedUnits(NamedTuple):
    """The units of a chunk: rows of plain queues, those of light queues apart, and units of BatchCQ topics."""

    rows: list[DispatchedRows]
    batches: list[tuple[QueueName, BatchRow]]


class QueueNames:
    """The names of the queues of a table, and the queues that are dispatched in a special way.

    `names[i]` is (topic, queue id) of queue i; `schedule`, `batch`, `unsound` and `services` are numbers of queues; a
    service of the broker reads those of `services`.
    `is_sound(topic, queue_id)`: whether the queue can have units; `batch_topics` have a BatchCQ.
    """

    def __init__(self, table: QueueTable, batch_topics: frozenset[str], is_sound: Callable[[bytes, int], bool]) -> None:
        self.names: list[QueueName] = []
        self.schedule: set[int] = set()
        self.batch: set[int] = set()
        self.unsound: set[int] = set()
        self.services: set[int] = set()
        self._table = table
        self._batch_topics = batch_topics
        self._is_sound = is_sound

    def learn(self) -> None:
        """Add the queues that are new in the table since the last call."""
        for i in range(len(self.names), len(self._table)):
            topic, queue_id = self._table.topics[i], self._table.queue_ids[i]
            name = java_text(topic)
            self.names.append((name, queue_id))
            if topic == _SCHEDULE:
                self.schedule.add(i)
            if is_service_topic(name):
                self.services.add(i)
            if name in self._batch_topics:
                self.batch.add(i)
            if not self._is_sound(topic, queue_id):
                self.unsound.add(i)

    def number(self, topic: str, queue_id: int) -> int:
        """Return the number of a queue, which is new if no record has it."""
        number = self._table.number(topic.encode(), queue_id)
        self.learn()
        return number


class Dispatch:
    """Turns records into units. `fans_out`: topics whose messages get units in light queues too; None: all topics."""

    def __init__(
        self, queues: QueueNames, levels: properties.DelayLevels, fans_out: frozenset[str] | None = None
    ) -> None:
        self.queues = queues
        self.levels = levels
        self.fans_out = fans_out

    def units(self, columns: Columns, number: I64, texts: Texts, offset: I64 | None = None) -> DispatchedUnits:
        """Return the units of a chunk.

        `number`: each record's queue, which `queues` knows. `offset`: the log offsets of the records (bytes), by
        default those of `columns`. The tags codes in `texts` become deliver times for delayed messages.
        """
        offset = columns.offset if offset is None else offset
        queues, tags = self.queues, texts.tags_code
        if queues.schedule:
            self._put_deliver_times(columns, number, tags)
        dispatched = is_dispatched(columns.sys_flag)
        rows = DispatchedRows(number, columns.queue_offset, offset, columns.size, tags, columns.store_timestamp)
        light = self._light(columns, [i for i in texts.fan_out if dispatched[i]], rows)
        found = DispatchedUnits([] if light is None else [light], [])
        if queues.unsound:
            dispatched &= ~np.isin(number, list(queues.unsound))
        if queues.batch:
            in_batch = np.isin(number, list(queues.batch))
            for i in np.flatnonzero(in_batch & dispatched).tolist():
                at = int(columns.queue_offset[i])
                base, count = batch_extent(record_properties(columns, i), at)
                place, size, code, time = (int(v[i]) for v in (offset, columns.size, tags, columns.store_timestamp))
                row = BatchRow(place, size, code, time, base, count, at)
                found.batches.append((queues.names[int(number[i])], row))
            dispatched &= ~in_batch
        if dispatched.any():
            found.rows.append(rows.keep(dispatched))
        return found

    def _put_deliver_times(self, columns: Columns, number: I64, tags: I64) -> None:
        """Replace the tags codes of records of the schedule topic by the times at which they are due (ms)."""
        for i in np.flatnonzero(np.isin(number, list(self.queues.schedule))).tolist():
            time = int(columns.store_timestamp[i])
            found = record_properties(columns, i)
            code = properties.dispatch_tags_code(properties.SCHEDULE_TOPIC, found, time, self.levels)
            tags[i] = code if code is not None else tags[i]

    def _light(self, columns: Columns, chosen: list[int], rows: DispatchedRows) -> DispatchedRows | None:
        """Return the rows of light queues for the chosen records; None without any."""
        found: list[tuple[int, int, int]] = []  # record, queue, queue offset
        for i in chosen:
            topic, queue_id = self.queues.names[int(rows.number[i])]
            if self.fans_out is None or topic in self.fans_out:
                for name, light_id, queue_offset in light_queues(topic, queue_id, record_properties(columns, i)):
                    number = self.queues.number(name, light_id)
                    if number not in self.queues.unsound:
                        found.append((i, number, queue_offset))
        if not found:
            return None
        record, number_of, at = np.array(found, dtype=np.int64).T
        return DispatchedRows(number_of, at, *(column[record] for column in rows[2:]))


def record_properties(columns: Columns, i: int) -> Mapping[str, str]:
    """Return the parsed properties of record i."""
    return properties.parse_properties(columns.properties(i))
