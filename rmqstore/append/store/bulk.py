"""Dispatch chunks of records to consume queues and index.

Source: as `rmqstore.append.store.dispatch`
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from rmqstore.append.messages.encoder import TopicName
from rmqstore.append.store.consumequeue import ConsumeQueue, Put
from rmqstore.append.store.dispatch import Dispatcher, OpenQueue
from rmqstore.checks.index.keys import KeyReader
from rmqstore.errors import MessageRefused
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, is_lmq
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import Dispatch, DispatchedRows, QueueNames, QueueTable
from rmqstore.scan.kernels import I64
from rmqstore.scan.properties import PropertyTexts, read_texts
from rmqstore.scan.units import UnitArray, lay_out

Known = Callable[[str, int], bool]


class DispatchChunk(NamedTuple):
    """Records of the log to dispatch, and what the caller knows about them already.

    `offsets`: their physical offsets (bytes). `numbers`: the number of every record's queue, from
    `BulkDispatch.states`. Shape: (n,) each
    """

    columns: Columns
    offsets: I64
    numbers: I64
    texts: PropertyTexts | None = None


class BulkDispatch:
    """Dispatches chunks of new records, in order of their physical offsets.

    `known` returns whether a queue gets units.
    """

    def __init__(self, dispatcher: Dispatcher, known: Known = lambda topic, queue_id: True) -> None:
        self.table = QueueTable()
        self._dispatcher = dispatcher
        self._keys = KeyReader(self.table)
        self._known = known
        self._states: list[tuple[TopicName, OpenQueue] | None] = []
        options = dispatcher.options
        self._queues = QueueNames(self.table, options.batch_topics, lambda _, queue_id: queue_id >= 0)
        fans_out = None if options.lmq else frozenset[str]()
        self._units = Dispatch(self._queues, options.delay_levels or DEFAULT_DELAY_LEVELS, fans_out)
        self.written: DispatchChunk | None = None
        """The chunk that is written, but not dispatched."""
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[DispatchChunk] | None = None

    def states(self, columns: Columns) -> tuple[I64, list[tuple[TopicName, OpenQueue] | None]]:
        """Return the number of every record's queue, and the queues by number, None for a queue that gets no units."""
        numbers = self.table.of(columns)
        self._queues.learn()
        self._learn()
        return numbers, self._states

    def write(self, write: Callable[[], DispatchChunk]) -> None:
        """Append a chunk to the log by calling `write` in a thread, and meanwhile dispatch the chunk before it.

        Thus no unit is written before its record. The next call, or `settle`, dispatches the new chunk; until then,
        its bytes must not change. Errors: those of `write`, NoSpace.
        """
        written, self.written = self.written, None
        self._writing = self._writer.submit(write)
        try:
            if written is not None:
                self.dispatch(written)
        finally:
            self.wait()
        self.written = self._writing.result()

    def wait(self) -> None:
        """Wait until `write` has ended, which still runs after an interrupted call."""
        if self._writing is not None:
            wait([self._writing])

    def close(self) -> None:
        """End the thread of `write`."""
        self._writer.shutdown()

    def settle(self) -> None:
        """Dispatch the chunk that was written last, unless it is dispatched already. Errors: NoSpace."""
        self.wait()
        written, self.written = self.written, None
        if written is not None:
            self.dispatch(written)

    def dispatch(self, chunk: DispatchChunk) -> None:
        """Dispatch records that have been written. Errors: NoSpace."""
        columns, offsets, numbers, _ = chunk
        properties = chunk.texts or PropertyTexts(columns)
        options = self._dispatcher.options
        if options.index:
            self._to_index(columns, numbers, offsets, properties)
        self._dispatcher.timestamp = int(columns.store_timestamp[-1])
        units = self._units.units(columns, numbers, read_texts(columns, texts=properties), offsets)
        self._learn()  # light queues may be new
        for rows in units.rows:
            self._append_rows(rows)
        for name, row in units.batches:
            if name in self._dispatcher.queues:
                self._dispatcher.put_batch(self._dispatcher.queues[name], row)
        self._release_descriptors()

    def _append_rows(self, rows: DispatchedRows) -> None:
        """Append units queue by queue: runs of consecutive queue offsets at once, after `put` of the first unit."""
        laid = lay_out(rows.number, len(self._states), rows.queue_offset, rows.offset, rows.size, rows.tags)
        assert laid.units is not None
        for known, queue_offset, start, stop in laid.stretches(self._states):
            if known is None:
                continue
            state = known[1]
            state.next_offset, state.started = max(state.next_offset, queue_offset + stop - start), True
            queue = self._dispatcher.simple(state)
            if queue.continues(int(laid.offset[start]), queue_offset):
                _append(queue, laid.units[start:stop])
                continue
            for row in range(start, stop):
                _, size, code = laid.units[row].tolist()
                put = queue.put(int(laid.offset[row]), size, code, queue_offset + row - start)
                if put is Put.WRITTEN:
                    _append(queue, laid.units[row + 1 : stop])
                    break

    def _to_index(self, columns: Columns, numbers: I64, offsets: I64, properties: PropertyTexts) -> None:
        keys = self._keys.keys(columns, numbers, properties)
        if not self._dispatcher.options.tag_key:
            keys = keys.take(keys.required)
        order = np.argsort(keys.offset, kind="stable")  # KeyReader returns the keys of unusual texts last
        key_offsets = offsets[np.searchsorted(columns.offset, keys.offset[order])]
        self._dispatcher.index.add(key_offsets, keys.time[order], keys.hash[order], int(offsets[-1]))

    def _learn(self) -> None:
        """Add the state of every new queue in the table."""
        for number in range(len(self._states), len(self.table)):
            topic = self.table.topics[number].decode("utf-8", "surrogateescape")
            queue_id = self.table.queue_ids[number]
            state = None
            if queue_id >= 0 and (is_lmq(topic) or self._known(topic, queue_id)):
                with suppress(MessageRefused):
                    state = (TopicName.of(topic), self._dispatcher.queue(topic, queue_id))
            self._states.append(state)

    def _release_descriptors(self) -> None:
        """Close the descriptors of full files, or of all files if there are too many queues."""
        if self._dispatcher.too_many_open:
            self._dispatcher.release_descriptors()
            return
        for queue in self._dispatcher.files():
            for file in queue.queue.files[-2::-1]:
                if file.released:
                    break
                file.release_descriptor()


def _append(queue: ConsumeQueue, units: UnitArray) -> None:
    """Append units that continue the queue. Errors: NoSpace."""
    if not len(units):
        return
    data = units.view(np.uint8).data
    at = 0
    while at < len(data):
        file = queue.queue.last_file()
        part = data[at : at + file.left]
        file.append(part)
        at += len(part)
    last = units[-1]
    queue.max_physic_offset = int(last["commitlog_offset"]) + int(last["size"])
