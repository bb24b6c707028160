"""Dispatches the messages of the repaired log: the rows (queue, queue offset, place) from which queues are rebuilt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import is_directory_name
from rmqstore.formats.services import is_sound_topic
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import BatchRow, Dispatch, DispatchedRows, Name, QueueNames, QueueTable
from rmqstore.scan.properties import read_texts


class Sink(Protocol):
    """The consumer of rows; `rows.number` is an index of `names`, which only grows."""

    def rows(self, names: list[Name], rows: DispatchedRows) -> None: ...

    def batch(self, name: Name, row: BatchRow) -> None: ...


class Redispatch:
    """Dispatches the records of a log to a sink."""

    def __init__(self, store: Store, sink: Sink, batch_topics: Iterable[str] = ()) -> None:
        self.sink = sink
        self.batch_topics = frozenset(batch_topics)
        self.table = QueueTable()
        self.queues = QueueNames(self.table, self.batch_topics, can_have_queues)
        self.levels = delay_levels(store)
        self.fans_out: frozenset[str] | None = None
        if store.light_in_rocksdb:
            from rmqstore.files.rocksdb.queues import written_rows

            self.fans_out = written_rows(store).topics
        self.dispatch = Dispatch(self.queues, self.levels, self.fans_out)

    def run(self, view: RepairedLog, start: int = 0) -> None:
        """Dispatch all records of a view from a global offset on."""
        for columns in view.chunks(start=start):
            self.columns(columns)

    def columns(self, columns: Columns) -> None:
        """Dispatch one chunk of records."""
        number = self.table.of(columns)
        self.queues.learn()
        units = self.dispatch.units(columns, number, read_texts(columns))
        for rows in units.rows:
            self.sink.rows(self.queues.names, rows)
        for name, row in units.batches:
            self.sink.batch(name, row)


def can_have_queues(topic: bytes, queue_id: int) -> bool:
    """Return whether a topic and a queue id, which may be damaged, can have a queue."""
    return queue_id >= 0 and is_sound_topic(topic) and is_directory_name(topic)
