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

from rmqstore.formats import properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import INNER_BATCH, is_dispatched
from rmqstore.formats.services import batch_extent, is_service_topic, light_queues
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.properties import Texts


class QueueTable:
    """The numbers of all queues seen so far, which never change.

    `topics[i]` and `queue_ids[i]` identify queue i.
    """

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.queue_ids: list[int] = []
        self._by_name: dict[tuple[bytes, int], int] = {}
        self._slots = native.QueueSlots(native.load())

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
        names = columns.buf, columns.topic_at, columns.topic_length, columns.queue_id
        numbers, unknown = self._slots.find(*names)
        count = 64  # a few records of the first chunk usually introduce all queues
        while unknown:
            for i in np.flatnonzero(numbers < 0)[:count].tolist():
                self.number(columns.topic(i), int(columns.queue_id[i]))
            self._slots.add(self.topics, self.queue_ids)
            numbers, unknown = self._slots.find(*names)
            count *= 4
        return numbers


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


def message_counts(columns: Columns) -> I64:
    """Return how many messages each record has: several in an inner batch, none in what no broker dispatches."""
    counts = is_dispatched(columns.sys_flag).astype(np.int64)
    for i in np.flatnonzero((counts > 0) & (columns.sys_flag & INNER_BATCH > 0)).tolist():
        counts[i] = batch_extent(record_properties(columns, i), 0)[1]
    return counts


def record_properties(columns: Columns, i: int) -> Mapping[str, str]:
    """Return the parsed properties of record i."""
    return properties.parse_properties(columns.properties(i))
