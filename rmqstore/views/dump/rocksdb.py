"""Consume queues and configuration in RocksDB, for `info` and `dump`. Needs the extra `rocksdb`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from rmqstore.files.config import tables_in
from rmqstore.files.log_ends import QueueBounds, first_true
from rmqstore.files.rocksdb.database import CHUNK, CannotRead
from rmqstore.files.rocksdb.links import database_files
from rmqstore.files.rocksdb.queues import Bound, RocksDBQueue, RocksDBQueues
from rmqstore.files.rocksdb.rows import stored_table
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.texts import Placed
from rmqstore.views.dump.batches import Array, Batch, fields_of, unparsed_rows, wanted_rows, within
from rmqstore.views.dump.selection import Selection


def queue_bounds(store: Store, log_start: int) -> dict[QueueName, QueueBounds]:
    """Return the bounds of every queue as consumers see them, by topic and queue id.

    Errors: CannotRead.
    """
    queues = RocksDBQueues(store)
    ends = queues.bounds()
    names = sorted({*queues.names(), *ends})
    return {name: bounds_of(queues.queue(*name), ends.get(name, {}).get("max"), log_start) for name in names}


def bounds_of(queue: RocksDBQueue, last: Bound | None, log_start: int) -> QueueBounds:
    """Return the bounds of a queue as consumers see them. Rows that point below the log's start have expired.

    `last`: the queue's row `max` in the offset table. Errors: CannotRead.
    Source: RocksDBConsumeQueueOffsetTable#getMinCqOffset, #getMaxCqOffset (RocketMQ 5.4.0)
    """
    _all_readable(queue)
    stop = last.queue_offset + 1 if last is not None else queue.behind
    first = first_true(queue.first, max(queue.first, stop), lambda n: _points_to(queue, n) >= log_start)
    stop = max(first, stop)
    return QueueBounds(first, stop, last.commitlog_offset if last else _points_to(queue, stop - 1), stop - first)


def _points_to(queue: RocksDBQueue, index: int) -> int:
    for _, units, _ in queue.runs(index, index + 1):
        return int(units[0]["commitlog_offset"])
    _all_readable(queue)
    return -1


def _all_readable(queue: RocksDBQueue) -> None:
    if queue.unreadable:
        raise CannotRead(queue.unreadable[0].reason)


def config_entries(store: Store, name: str) -> tuple[int, dict[str, int]]:
    """Return (bytes on disk, number of entries by table) of a RocksDB directory of the configuration.

    Errors: CannotRead; OSError if the directory cannot be listed.
    """
    directory = store.root / "config" / name
    rows = {table: len(stored_table(store, name, table).rows) for table in tables_in(name)}
    return sum(length for _, length, _ in database_files(store.files, directory)), rows


def consume_queue_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the units of the selected queues with the store time that RocksDB rows have in addition.

    `selection.start` and `stop` are queue offsets; tags are compared by their code.
    Errors: CannotRead, after all readable rows.
    """
    queues = RocksDBQueues(store)
    codes = np.array([properties.tags_code(t) for t in selection.tags], dtype=np.int64)
    names = sorted(n for n in queues.names() if selection.wants_queue(*n) and store.reads_rows(n[0]))
    foreign = queues.foreign_rows() if queues.foreign else iter(())
    while chunk := list(islice(foreign, CHUNK)):
        yield from unparsed_rows(chunk)
    problem = ""
    for topic, queue_id in selection.ordered(names):
        queue = queues.queue(topic, queue_id)
        for number, units, times in _runs(queue, selection):
            wanted = within(times, selection.since, selection.until)
            if len(codes):
                wanted &= np.isin(units["tags_code"].astype(np.int64), codes)
            batch: Batch = {
                "topic": topic,
                "queue_id": queue_id,
                "queue_offset": np.arange(number, number + len(units)),
                **fields_of(units, consumequeue.UNIT),
                "store_timestamp": times,
            }
            yield from wanted_rows(batch, wanted, selection)
        if queue.unreadable:
            problem = problem or Placed("{queue}: {why}", queue=f"{topic}/{queue_id}", why=queue.unreadable[0].reason)
    if problem:
        raise CannotRead(problem)


def _runs(queue: RocksDBQueue, selection: Selection) -> Iterator[tuple[int, Array, Array]]:
    """Yield runs of rows in the selected order; in reverse, a bounded number of rows at a time."""
    start = max(queue.first, selection.start or 0)
    stop = queue.behind if selection.stop is None else min(queue.behind, selection.stop)
    if not selection.reverse:
        yield from queue.runs(start, stop)
        return
    while stop > start:
        low = max(start, stop - CHUNK)
        yield from reversed(list(queue.runs(low, stop)))
        stop = queue.before(low) if low > start else start
