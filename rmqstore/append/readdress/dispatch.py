"""Units and index entries of many records at once; what is rare goes record by record through `Dispatcher`.

Source: as `rmqstore.append.store.dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

from rmqstore.append.files.mapped_file import now_ms
from rmqstore.append.messages.encoder import TopicName
from rmqstore.append.store.consumequeue import ConsumeQueue, Put
from rmqstore.append.store.dispatch import Dispatcher, DispatchOptions, QueueState, WrittenRecord
from rmqstore.append.store.index import IndexFile, IndexService
from rmqstore.append.store.index_builder import IndexFileBuilder
from rmqstore.checks.index.keys import KeyReader
from rmqstore.checks.log.owed_units import owed_units
from rmqstore.errors import MessageRefused
from rmqstore.formats import index
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64
from rmqstore.scan.properties.texts import PropertyTexts, read_texts
from rmqstore.scan.queues import QueueTable

Known = Callable[[str, int], bool]


class ReaddressDispatch:
    """Consume queues and index of a store that is built from columns, in address order."""

    def __init__(self, root: Path, options: DispatchOptions, slots: int, units: int, known: Known) -> None:
        self.root = root
        self.options = options
        self.table = QueueTable()
        # the index is written here in bulk; the service is there because a dispatcher has one, and stays empty
        self._rare = Dispatcher(root, options, IndexService(root / "index", slots, units))
        self.index = _IndexWriter(root / "index", slots, units)
        self._keys = KeyReader(self.table)
        self._known = known
        self._states: list[tuple[TopicName, QueueState] | None] = []
        self._one_by_one: set[int] = set()  # queues whose units need more than tags: schedule, batches

    def dispatch(self, columns: Columns, places: I64) -> None:
        """The records of a chunk are now at `places` (bytes)."""
        numbers = self.table.of(columns)
        self._learn()
        properties = PropertyTexts(columns)
        if self.options.index:
            self._to_index(columns, numbers, places, properties)
        texts = read_texts(columns, texts=properties)
        owed = owed_units(columns)
        if self.options.lmq and texts.fan_out:  # light queues are fed by several others: in address order
            self._singly(columns, np.flatnonzero(owed), numbers, places)
            self._close_full()
            return
        order = np.argsort(numbers, kind="stable")
        order = order[owed[order]]
        grouped = numbers[order]
        cuts = [0, *(np.flatnonzero(np.diff(grouped)) + 1).tolist(), len(order)]
        for low, high in pairwise(cuts):
            known = self._states[int(grouped[low])] if low < high else None
            if known is None:
                continue
            rows = order[low:high]
            if int(grouped[low]) in self._one_by_one:
                self._singly(columns, rows, numbers, places)
            else:
                self._together(columns, rows, places, texts.tags_code, known[1])
        self._close_full()

    def _together(self, columns: Columns, rows: I64, places: I64, tags: I64, state: QueueState) -> None:
        """Units of one queue without a gap between them, else one by one."""
        if state.simple is None:
            directory = self.root / "consumequeue" / state.topic / str(state.queue_id)
            state.simple = ConsumeQueue(directory, self.options.consume_queue_file_size)
        queue, wanted = state.simple, columns.queue_offset[rows]
        offsets, sizes, codes = places[rows], columns.size[rows], tags[rows]
        start, n = 0, len(rows)
        while start < n:
            put = queue.put(int(offsets[start]), int(sizes[start]), int(codes[start]), int(wanted[start]))
            start += 1
            if put is not Put.WRITTEN or start == n:
                continue
            jump = np.flatnonzero(np.diff(wanted[start - 1 :]) != 1)
            stop = start + int(jump[0]) if len(jump) else n
            _append(queue, offsets[start:stop], sizes[start:stop], codes[start:stop])
            start = stop

    def _singly(self, columns: Columns, rows: I64, numbers: I64, places: I64) -> None:
        starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
        for i in rows.tolist():
            known = self._states[int(numbers[i])]
            if known is None:
                continue
            self._rare.dispatch(
                known[0],
                known[1],
                WrittenRecord(
                    int(places[i]),
                    int(columns.size[i]),
                    int(columns.queue_offset[i]),
                    int(columns.store_timestamp[i]),
                    int(columns.sys_flag[i]),
                    bytes(columns.raw[int(starts[i]) : int(stops[i])]),
                ),
                to_index=False,
            )

    def _to_index(self, columns: Columns, numbers: I64, places: I64, properties: PropertyTexts) -> None:
        keys = self._keys.keys(columns, numbers, properties)
        if not self.options.tag_key:
            keys = keys.take(keys.required)
        order = np.argsort(keys.offset, kind="stable")  # rare texts come last
        offset = keys.offset[order]
        self.index.add(places[np.searchsorted(columns.offset, offset)], keys.time[order], keys.hash[order])

    def _learn(self) -> None:
        for number in range(len(self._states), len(self.table)):
            topic = self.table.topics[number].decode("utf-8", "surrogateescape")
            queue_id = self.table.queue_ids[number]
            state = None
            if queue_id >= 0 and self._known(topic, queue_id):
                with suppress(MessageRefused):
                    state = (TopicName.of(topic), self._rare.queue(topic, queue_id))
            self._states.append(state)
            if topic == SCHEDULE_TOPIC or topic in self.options.batch_topics:
                self._one_by_one.add(number)

    def _close_full(self) -> None:
        """What is full is not written again: few descriptors stay open."""
        for queue in self._rare.files():
            for file in queue.queue.files[-2::-1]:
                if not file.available:
                    break
                file.flush()
                file.close()

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the last unit of a queue, 0 without one."""
        state = self._rare.queues.get((topic, queue_id))
        return state.simple.max_offset if state is not None and state.simple is not None else 0

    def finish(self) -> int:
        """Bring all to the disk; the end timestamp of the last full index file (ms).

        Errors: NoSpace and others.
        """
        for queue in self._rare.files():
            queue.queue.flush()
            queue.queue.close()
        return self.index.finish()

    def abandon(self) -> None:
        """Let go of all files."""
        for queue in self._rare.files():
            queue.queue.abandon()
        self.index.abandon()


def _append(queue: ConsumeQueue, offsets: I64, sizes: I64, tags: I64) -> None:
    """Units that follow the last one without a gap. Errors: NoSpace."""
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


class _IndexWriter:
    """Index files, one after the other, from rows in address order."""

    def __init__(self, directory: Path, slots: int, units: int) -> None:
        self._directory, self._slots, self._units = directory, slots, units
        self._file: IndexFile | None = None
        self._name_time = 0
        self._full_end = 0

    def add(self, offsets: I64, times: I64, hashes: I64) -> None:
        """Entries in the order in which a broker would put them. Units: bytes, ms. Errors: NoSpace."""
        at = 0
        while at < len(offsets):
            if self._file is None or self._file.builder.full:
                self._next()
            assert self._file is not None
            stop = at + self._file.builder.room
            self._file.add(offsets[at:stop], times[at:stop], hashes[at:stop])
            at = stop

    def _next(self) -> None:
        previous = (0, 0)
        if self._file is not None:
            builder = self._file.builder
            previous = (builder.end_phy_offset, builder.end_timestamp)
            self._full_end = builder.end_timestamp
            self._file.flush()
            self._file.close()
            self._file = None
        self._name_time = max(now_ms(), self._name_time + 1)  # no two files of one millisecond
        name = index.file_name(self._name_time)
        self._file = IndexFile.create(self._directory / name, IndexFileBuilder(self._slots, self._units, previous))

    def finish(self) -> int:
        if self._file is not None:
            if self._file.builder.full:
                self._full_end = self._file.builder.end_timestamp
            self._file.flush()
        self.abandon()
        return self._full_end

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
