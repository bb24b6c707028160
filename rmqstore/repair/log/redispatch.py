"""Dispatches the messages of the repaired log: the rows (queue, queue offset, place) from which queues are rebuilt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.dispatch_rules import (
    QueueNames,
    batch_extent,
    light_queues,
    put_deliver_times,
    record_properties,
)
from rmqstore.checks.log.log_pass import is_sound_topic
from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.formats.consumequeue import is_directory_name
from rmqstore.formats.message import Message, is_dispatched
from rmqstore.formats.text.javatext import java_text
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.properties.texts import read_texts
from rmqstore.scan.queues import QueueTable

Name = tuple[str, int]


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


class Sink(Protocol):
    """The consumer of rows; `rows.number` is an index of `names`, which only grows."""

    def rows(self, names: list[Name], rows: DispatchedRows) -> None: ...

    def batch(self, name: Name, offset: int, size: int, tags: int, time: int, base: int, count: int) -> None: ...


class Redispatch:
    """Turns records into rows, as a broker dispatches them.

    Source: DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue#dispatch, ConsumeQueue#putMessagePositionInfo
    """

    def __init__(self, store: Store, sink: Sink, batch_topics: Iterable[str] = ()) -> None:
        self.sink = sink
        self.batch_topics = frozenset(batch_topics)
        self.table = QueueTable()
        self.queues = QueueNames(self.table, self.batch_topics, can_have_queues)
        self.levels = delay_levels(store)
        self.fans_out: frozenset[str] | None = None
        if store.light_in_rocksdb:
            from rmqstore.files.rocksdb.written import written_rows

            self.fans_out = written_rows(store).topics

    def run(self, view: RepairedLog, start: int = 0) -> None:
        """Dispatch all records of a view from a global offset on."""
        for columns in view.chunks(start=start):
            self.columns(columns)
        for offset, message in view.patched():
            if offset - view.lead >= start:
                self.message(offset, message)

    def columns(self, columns: Columns) -> None:
        """Dispatch one chunk of records."""
        number = self.table.of(columns)
        self.queues.learn()
        texts = read_texts(columns)
        tags = texts.tags_code
        if self.queues.schedule:
            put_deliver_times(columns, number, self.queues.schedule, tags, self.levels)
        dispatched = is_dispatched(columns.sys_flag)
        for i in texts.fan_out:
            if dispatched[i]:
                place = tuple(int(v[i]) for v in (columns.offset, columns.size, tags, columns.store_timestamp))
                self._fan_out(self.queues.names[int(number[i])], record_properties(columns, i), *place)
        if self.queues.unsound:
            dispatched &= ~np.isin(number, list(self.queues.unsound))
        if self.queues.batch:
            in_batch = np.isin(number, list(self.queues.batch))
            for i in np.flatnonzero(in_batch & dispatched).tolist():
                base, count = batch_extent(record_properties(columns, i), int(columns.queue_offset[i]))
                name, time = self.queues.names[int(number[i])], int(columns.store_timestamp[i])
                self.sink.batch(name, int(columns.offset[i]), int(columns.size[i]), int(tags[i]), time, base, count)
            dispatched &= ~in_batch
        if dispatched.any():
            rows = DispatchedRows(
                number, columns.queue_offset, columns.offset, columns.size, tags, columns.store_timestamp
            )
            self.sink.rows(self.queues.names, rows.keep(dispatched))

    def message(self, offset: int, message: Message) -> None:
        """Dispatch one record that a step writes, at a global offset."""
        if not message.is_dispatched:
            return
        found = properties.parse_properties(message.properties)
        topic = java_text(message.topic)
        code = properties.dispatch_tags_code(topic, found, message.store_timestamp, self.levels)
        tags = 0 if code is None else code
        place = (offset, message.size, tags, message.store_timestamp)
        self._fan_out((topic, message.queue_id), found, *place)
        if topic in self.batch_topics:
            base, count = batch_extent(found, message.queue_offset)
            name = (topic, message.queue_id)
            self.sink.batch(name, offset, message.size, tags, message.store_timestamp, base, count)
            return
        self._row(message.topic, message.queue_id, message.queue_offset, *place)

    def _fan_out(self, name: tuple[str, int], found: Mapping[str, str], *place: int) -> None:
        if self.fans_out is not None and name[0] not in self.fans_out:
            return
        for queue, queue_id, queue_offset in light_queues(*name, found):
            self._row(queue.encode(), queue_id, queue_offset, *place)

    def _row(self, topic: bytes, queue_id: int, *values: int) -> None:
        number = self.table.number(topic, queue_id)
        self.queues.learn()
        if number not in self.queues.unsound:
            row = DispatchedRows(*(np.array([v], dtype=np.int64) for v in (number, *values)))
            self.sink.rows(self.queues.names, row)


def can_have_queues(topic: bytes, queue_id: int) -> bool:
    """Return whether a topic and a queue id, which may be damaged, can have a queue."""
    return queue_id >= 0 and is_sound_topic(topic) and is_directory_name(topic)
