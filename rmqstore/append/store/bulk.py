"""Dispatch chunks of records to consume queues and index; rare cases go through `Dispatcher` one by one.

Source: as `rmqstore.append.store.dispatch`
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from rmqstore.append.messages.encoder import TopicName
from rmqstore.append.store.consumequeue import ConsumeQueue, Put
from rmqstore.append.store.dispatch import Dispatcher, QueueState, WrittenRecord
from rmqstore.checks.index.keys import KeyReader
from rmqstore.checks.log.owed_units import owed_units
from rmqstore.errors import MessageRefused
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool, grouped
from rmqstore.scan.properties.texts import PropertyTexts, read_texts
from rmqstore.scan.queues import QueueTable

Known = Callable[[str, int], bool]


class BulkDispatch:
    """Dispatches chunks of new records, in order of their physical offsets.

    `known` returns whether a queue gets units. Records for light message queues, delayed messages (with a deliver time
    as tags code) and batches (with other units) are dispatched one by one.
    """

    def __init__(self, dispatcher: Dispatcher, known: Known = lambda topic, queue_id: True) -> None:
        self.table = QueueTable()
        self._dispatcher = dispatcher
        self._keys = KeyReader(self.table)
        self._known = known
        self._states: list[tuple[TopicName, QueueState] | None] = []
        self._one_by_one: set[int] = set()

    def states(self, columns: Columns) -> tuple[I64, list[tuple[TopicName, QueueState] | None]]:
        """Return the number of every record's queue, and the queues by number, None for a queue that gets no units."""
        numbers = self.table.of(columns)
        self._learn()
        return numbers, self._states

    def dispatch(self, columns: Columns, offsets: I64) -> None:
        """Dispatch records that have been written at `offsets` (physical, bytes). Errors: NoSpace."""
        numbers, states = self.states(columns)
        properties = PropertyTexts(columns)
        options = self._dispatcher.options
        if options.index:
            self._to_index(columns, numbers, offsets, properties)
        self._dispatcher.timestamp = int(columns.store_timestamp[-1])
        texts = read_texts(columns, texts=properties)
        owed = owed_units(columns)
        if options.lmq and texts.fan_out:
            self._singly(columns, np.flatnonzero(owed), numbers, offsets)
        else:
            for rows in by_queue(numbers, owed):
                known = states[int(numbers[rows[0]])]
                if known is None:
                    continue
                if int(numbers[rows[0]]) in self._one_by_one:
                    self._singly(columns, rows, numbers, offsets)
                else:
                    self._together(columns, rows, offsets, texts.tags_code, known[1])
        self._relax()

    def _together(self, columns: Columns, rows: I64, offsets: I64, tags: I64, state: QueueState) -> None:
        """Append the units of one queue: runs of consecutive queue offsets at once, after `put` of the first unit."""
        queue, queue_offsets = self._dispatcher.simple(state), columns.queue_offset[rows]
        offsets, sizes, codes = offsets[rows], columns.size[rows], tags[rows]
        start, n = 0, len(rows)
        while start < n:
            put = queue.put(int(offsets[start]), int(sizes[start]), int(codes[start]), int(queue_offsets[start]))
            start += 1
            if put is not Put.WRITTEN or start == n:
                continue
            jumps = np.flatnonzero(np.diff(queue_offsets[start - 1 :]) != 1)
            stop = start + int(jumps[0]) if len(jumps) else n
            _append(queue, offsets[start:stop], sizes[start:stop], codes[start:stop])
            start = stop

    def _singly(self, columns: Columns, rows: I64, numbers: I64, offsets: I64) -> None:
        """Dispatch records one by one to their queues, but not to the index."""
        starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
        for i in rows.tolist():
            known = self._states[int(numbers[i])]
            if known is None:
                continue
            record = WrittenRecord(
                int(offsets[i]),
                int(columns.size[i]),
                int(columns.queue_offset[i]),
                int(columns.store_timestamp[i]),
                int(columns.sys_flag[i]),
                bytes(columns.raw[int(starts[i]) : int(stops[i])]),
            )
            self._dispatcher.dispatch(known[0], known[1], record, to_index=False)

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
            if queue_id >= 0 and self._known(topic, queue_id):
                with suppress(MessageRefused):
                    state = (TopicName.of(topic), self._dispatcher.queue(topic, queue_id))
            self._states.append(state)
            if topic == SCHEDULE_TOPIC or topic in self._dispatcher.options.batch_topics:
                self._one_by_one.add(number)

    def _relax(self) -> None:
        """Close the descriptors of full files, or of all files if there are too many queues."""
        if self._dispatcher.crowded:
            self._dispatcher.relax()
            return
        for queue in self._dispatcher.files():
            for file in queue.queue.files[-2::-1]:
                if file.relaxed:
                    break
                file.relax()


def by_queue(numbers: I64, owed: Bool) -> list[I64]:
    """Return, for each queue, the rows that should have a unit, in order."""
    rows = np.flatnonzero(owed)
    return [rows[group] for group in grouped(numbers[rows])]


def _append(queue: ConsumeQueue, offsets: I64, sizes: I64, tags: I64) -> None:
    """Append units that continue the queue. Errors: NoSpace."""
    if not len(offsets):
        return
    units = np.zeros(len(offsets), dtype=UNIT.dtype)
    units["commitlog_offset"], units["size"], units["tags_code"] = offsets, sizes, tags
    data = units.tobytes()
    at = 0
    while at < len(data):
        file = queue.queue.last_file()
        part = data[at : at + file.left]
        file.append(part)
        at += len(part)
    queue.max_physic_offset = int(offsets[-1] + sizes[-1])
