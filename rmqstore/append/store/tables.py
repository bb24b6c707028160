"""Tables of messages as records that a store appends together: checks, and the queue offsets that they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rmqstore.append.messages.encoder import RowRefused, encode_table, refuse_oversize
from rmqstore.append.store.bulk import BulkDispatch
from rmqstore.append.store.commitlog import RecordLog
from rmqstore.append.store.dispatch import DispatchOptions, OpenQueue, messages_in
from rmqstore.append.store.store_options import StoreOptions
from rmqstore.errors import MessageRefused
from rmqstore.formats.message import BLANK_SIZE, INNER_BATCH, is_dispatched
from rmqstore.messages.table import MessageTable
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64
from rmqstore.scan.properties import PropertyTexts
from rmqstore.texts import Text


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
    bulk: BulkDispatch, encoded: EncodedTable, renumber: bool, ahead: Mapping[tuple[str, int], int]
) -> tuple[I64, I64, dict[tuple[str, int], int]]:
    """Return the number of every record's queue, its queue offset, and the next offset of each queue after them.

    `ahead` has the next offsets of queues that differ from the store's, because of tables that were only checked.
    Errors: RowRefused for the first message that does not continue its queue.
    """
    columns = encoded.columns
    numbers, states = bulk.states(columns)
    ends: dict[tuple[str, int], int] = {}
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
    return MessageRefused(
        Text(
            "queue offset {own} does not continue {topic}/{queue_id}, whose next offset is {next_offset}",
            own=own,
            topic=state.topic,
            queue_id=state.queue_id,
            next_offset=next_offset,
        ),
        Text("omit queue_offset, and the store assigns it (import: --renumber)"),
    )
