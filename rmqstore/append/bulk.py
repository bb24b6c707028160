"""Append tables of messages at once: checks, queue offsets, and their dispatch to consume queues and index.

Source: as `rmqstore.append.dispatch`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqstore.append.commitlog import RecordLog
from rmqstore.append.consumequeue import ConsumeQueue, Put
from rmqstore.append.dispatch import Dispatcher, DispatchOptions, OpenQueue, messages_in
from rmqstore.append.encoder import RowRefused, TopicName, encode_table, refuse_oversize
from rmqstore.append.store_options import StoreOptions
from rmqstore.checks.index.keys import KeyReader
from rmqstore.errors import MessageRefused
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import BLANK_SIZE, INNER_BATCH, is_dispatched
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, is_lmq
from rmqstore.messages.table import MessageTable
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import Dispatch, DispatchedRows, QueueNames, QueueTable
from rmqstore.scan.kernels import I64
from rmqstore.scan.properties import PropertyTexts, read_texts
from rmqstore.scan.units import UnitArray, lay_out
from rmqstore.texts import Text

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

    def entries(self, columns: Columns, properties: PropertyTexts) -> int:
        """Return the number of index entries of records."""
        return len(self._keys.keys(columns, self.states(columns)[0], properties).offset)

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
            self._dispatcher.shared.release()
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


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """A table as records without their places, for `MessageStore.put_table`.

    `given`: the messages' own numbers by field; a store time of 0 means now. `counts`: the number of messages in each
    record. `one_by_one`: the messages, if they cannot be appended together.
    """

    columns: Columns
    texts: PropertyTexts
    given: Mapping[str, I64]
    counts: I64
    one_by_one: MessageTable | None

    def __len__(self) -> int:
        return len(self.columns)


def encode(table: MessageTable, options: StoreOptions, log: RecordLog) -> EncodedTable:
    """Check the messages of a table against the limits of a store, and encode them for its log.

    Errors: RowRefused for the first refused message.
    """
    columns = encode_table(table, options.limits)
    too_big = columns.size + log.body_offset + BLANK_SIZE > log.queue.file_size
    if too_big.any():
        row = int(np.argmax(too_big))
        try:
            refuse_oversize(int(columns.size[row]), log.queue.file_size, log.body_offset)
        except MessageRefused as error:
            raise RowRefused(row, error) from error
    texts = PropertyTexts(columns)
    one_by_one = options.dledger is not None or _needs_properties(table, texts, options.dispatch)
    counts = _counts(table, options.dispatch.batch_topics)
    return EncodedTable(columns, texts, table.numbers, counts, table if one_by_one else None)


def _needs_properties(table: MessageTable, texts: PropertyTexts, options: DispatchOptions) -> bool:
    """Return whether a record may be a batch of its queue, or the store adds properties to a message."""
    if options.batch_topics:
        topics = [table.topics[k] for k in np.unique(table.topic).tolist()]
        if any(topic.decode("utf-8", "replace") in options.batch_topics for topic in topics):
            return True
    return options.lmq and any(b"INNER_MULTI_DISPATCH" in text for text in texts.texts(texts.with_special_names()))


def _counts(table: MessageTable, batch_topics: frozenset[str]) -> I64:
    """Return the number of messages in each record."""
    counts = np.ones(len(table), dtype=np.int64)
    for i in np.flatnonzero(table.numbers["sys_flag"] & INNER_BATCH).tolist():
        topic = table.topics[int(table.topic[i])].decode("utf-8", "surrogateescape")
        if topic in batch_topics:
            counts[i] = messages_in(INNER_BATCH, table.properties.take(np.array([i])).raw()[0])
    return counts


def queue_offsets(
    bulk: BulkDispatch, encoded: EncodedTable, renumber: bool, ahead: Mapping[QueueName, int]
) -> tuple[I64, I64, dict[QueueName, int]]:
    """Return the number of every record's queue, its queue offset, and the next offset of each queue after them.

    `ahead` has the next offsets of queues that differ from the store's, because of tables that were only checked.
    Errors: RowRefused for the first message that does not continue its queue.
    """
    columns = encoded.columns
    numbers, states = bulk.states(columns)
    ends: dict[QueueName, int] = {}
    queue_offset = np.zeros(len(columns), dtype=np.int64)
    dispatched = np.flatnonzero(is_dispatched(columns.sys_flag))
    if not len(dispatched):
        return numbers, queue_offset, ends
    # NumPy uses a radix sort, which is faster, for 16-bit numbers
    narrow = np.uint16 if len(states) < 1 << 16 else np.int64
    rows = dispatched[np.argsort(numbers[dispatched].astype(narrow), kind="stable")]
    starts = np.flatnonzero(np.diff(numbers[rows], prepend=-1))  # of the queues
    given, count = encoded.given["queue_offset"][rows], encoded.counts[rows]
    first = np.empty(len(starts), dtype=np.int64)
    keys = []
    for i, start in enumerate(starts.tolist()):
        known = states[int(numbers[rows[start]])]
        assert known is not None
        state = known[1]
        keys.append((state.topic, state.queue_id))
        continues = renumber or state.started or keys[i] in ahead
        first[i] = ahead.get(keys[i], state.next_offset) if continues else given[start]
    stops = np.cumsum(count)
    lengths = np.diff(starts, append=len(rows))
    stops += np.repeat(first - (stops - count)[starts], lengths)
    queue_offset[rows] = stops - count
    bad = np.repeat(first < 0, lengths)
    if not renumber:
        bad |= given != queue_offset[rows]
    if bad.any():
        row = int(rows[bad].min())
        known = states[int(numbers[row])]
        assert known is not None
        own = int(encoded.given["queue_offset"][row])
        raise RowRefused(row, discontinued(known[1], own, int(queue_offset[row])))
    ends.update(zip(keys, stops[[*(starts[1:] - 1), -1]].tolist(), strict=True))
    return numbers, queue_offset, ends


def discontinued(state: OpenQueue, own: int, next_offset: int) -> MessageRefused:
    words = Text("queue offset {own} does not continue {queue}, whose next offset is {next}")
    return MessageRefused(
        words.format(own=own, queue=f"{state.topic}/{state.queue_id}", next=next_offset),
        Text("omit queue_offset, and the store assigns it (import: --renumber)"),
    )
