"""What consume queues, the index and DLedger's index list outside of the good records of a log: witnesses of messages.

The checks of queues tell each unit that no record accounts for, chunk by chunk, so that no queue is read again. What is
kept are intervals of queue offsets, and of the index only its offsets outside of good records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.files.mapped_file_queue import MAX_RECORD, OddKind, file_name_to_offset
from rmqstore.formats.consumequeue import QueueName, is_message_unit
from rmqstore.formats.dledger import ENTRY
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.kernels import I64, Bool, consecutive, within
from rmqstore.scan.tiling import Kind

if TYPE_CHECKING:
    from rmqstore.checks.log.commitlog import LogResult

END = 1 << 62
"""After every offset of a log."""


FILES_AFTER = 2
"""Files after the end of a log in which messages can have been of which only services and consumers tell."""
_BITS = 40
_FAR = 1 << _BITS  # bytes after the end of a log; none extends so far


def outside_records(results: Sequence[LogResult]) -> Ranges:
    """Return the offsets of the logs that no good record has: damage, holes, BLANKs, and all after the end.

    Before the first file, they begin with an empty file. Old records that a truncation left after the end were lost
    before, and are not outside.
    """
    ends = [*(r.tiling.start for r in results[1:]), END]  # a file of unknown size may seem to reach into the next log
    spans = [
        (run.start, min(run.stop, end))
        for r, end in zip(results, ends, strict=False)
        for run in r.tiling
        if run.kind is not Kind.RECORDS
    ]
    spans += [(a.tiling.stop, b.tiling.start) for a, b in pairwise(results)]
    spans += [(begin_of(results), r.min_offset) for r in results[:1] if r.queue.files]
    if not results:
        return Ranges(((0, END),))
    last = results[-1]
    spans.append((last.wrote, END))
    old = [(run.start, run.stop) for run in last.tiling if run.kind is Kind.RECORDS and run.start >= last.wrote]
    return Ranges.of(spans) - Ranges.of(old)


def begin_of(results: Sequence[LogResult]) -> int:
    """Return where the logs began according to their oldest file, even if that is empty and others after it are gone.

    A clean-up deletes from the front, whole files, and leaves none empty.
    Source: MappedFileQueue#deleteExpiredFileByTime, DefaultMappedFile#destroy (4.9.7 to 5.5.1)
    """
    queue = next((r.queue for r in results if r.queue.files), None)
    if queue is None:
        return 0
    starts = (file_name_to_offset(odd.path.name) for odd in queue.odd if odd.kind is OddKind.EMPTY)
    empty = [at for at in starts if at is not None and at % queue.file_size == 0 and at < queue.begin]
    return min([*empty, *(r.min_offset for r in results if r.queue.files)])


class TailUnits(NamedTuple):
    """Units of one queue that list messages after the end of the log: queue offsets, log offsets and sizes."""

    name: QueueName
    number: I64
    offset: I64
    size: I64


@dataclass(slots=True)
class Witnesses:
    """What lists messages that the log does not have.

    `outside`: offsets without a good record. `listed`: queue offsets whose unit points there, by queue. `before`: queue
    offsets whose unit points before the log, by queue: of messages that expired, or are gone with the first files.
    `replaced`: queue offsets whose unit points into a file of another log, by queue: its records have their places.
    `whole`: queue offsets and log offsets of whole messages in DLedger entries with a damaged header, by queue.
    `shared`: light queues, whose units point to messages of other queues. `offsets`: log offsets outside of good
    records that the index, DLedger's index, the timer log and rows of rocksdbstore/ have, and of damaged records whose
    headers are wrong, sorted; `named`: those that a unit has, too, or a damaged record with a right header.
    `begin`: where the log began. `tail`: the end of its last good record, in a file of `file_size`; `stale`: old
    records of a truncated log are after it, and the units there are as old. `filled`: those of `listed` that have no
    unit of their own, only later ones. `bytes_in`: the bytes of the messages of units, by the start of their part of
    `outside`; `after`: the units after the end; `entries`: the offsets of messages there that DLedger's index lists.
    `cut`: queues whose last units may be gone: their last file was cut after a unit, has only zeros,
    or was moved.
    """

    outside: Ranges = field(default_factory=Ranges)
    listed: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    before: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    replaced: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    whole: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    offsets: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    named: Bool = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    begin: int = 0
    tail: int = END
    file_size: int = END
    stale: bool = False
    bytes_in: Counter[int] = field(default_factory=Counter)
    filled: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    cut: set[QueueName] = field(default_factory=set)
    entries: Sequence[int] = ()
    after: list[TailUnits] = field(default_factory=list)
    _units: list[I64] = field(default_factory=list)
    _sizes: list[I64] = field(default_factory=list)
    _starts: I64 | None = None
    _ends: I64 | None = None

    def add_units(self, name: QueueName, part: QueuePart, number: int, offset: I64, size: I64) -> None:
        """Add consecutive units of a queue, the first with queue offset `number`, that point into this log.

        Those count that the good messages of the queue leave room for, and whose offsets rise: a broker wrote them.
        """
        left = self.file_size - offset % self.file_size
        size = _without_high_bit(size, np.minimum(left, MAX_RECORD))
        real = is_message_unit(offset, size) & (size >= MIN_SIZE) & (size <= MAX_RECORD) & within(self.outside, offset)
        after = (offset - self.tail < (0 if self.stale else _FAR)) & (size + BLANK_SIZE <= left)
        real &= (offset < self.tail) | after
        rows = np.flatnonzero(real)
        if not len(rows):
            return
        at = self._corrected(offset[rows], size[rows])
        fits = _fits(part, rows + number, at)
        rows, at = rows[fits], at[fits]
        numbers = rows + number
        rises = np.ones(len(at), dtype=np.bool_)
        rises[:-1] &= at[:-1] < at[1:]  # one that is too high must not exclude those after it
        rows, numbers, at = rows[rises], numbers[rises], at[rises]
        highest = np.maximum.accumulate(np.concatenate(([-1], at)))[:-1] if len(at) else at
        keep = at > highest
        rows, numbers, at = rows[keep], numbers[keep], at[keep]
        if not len(numbers):
            return
        self.name_offsets(at, size[rows])
        if not is_lmq(name[0]):
            self._add_sizes(name, numbers, at, size[rows])
        rows_of = self.listed.setdefault(name, [])
        end = max([part.next if part.messages else -1, *(stop for _, stop in rows_of)])
        for a, b in consecutive(numbers):
            start, stop = int(numbers[a]), int(numbers[b - 1]) + 1
            # units lost between the end and this one had messages, too: a broker numbers them without a gap
            before = start - end
            if part.messages and 0 <= end < start and before <= (int(at[a]) - part.last_at) // MIN_SIZE:
                self.filled.setdefault(name, []).append((end, start))
                start = end
            rows_of.append((start, stop))
            end = max(end, stop)

    def add_batch(self, name: QueueName, base: int, count: int, at: int, size: int) -> None:
        """Add a unit of a batch queue that points to no batch: `count` messages from queue offset `base` on."""
        if at < self.begin:
            self.before.setdefault(name, []).append((base, base + count))
        elif at in self.outside:
            self.listed.setdefault(name, []).append((base, base + count))
            where = np.array([at], dtype=np.int64)
            self.name_offsets(where, np.array([size], dtype=np.int64))
            self._add_sizes(name, np.array([base], dtype=np.int64), where, np.array([size], dtype=np.int64))

    def add_expired(self, name: QueueName, rows: I64) -> None:
        """Add the queue offsets of units that point before the log, in order."""
        for a, b in consecutive(rows):
            self.before.setdefault(name, []).append((int(rows[a]), int(rows[b - 1]) + 1))

    def name_offsets(self, at: I64, size: I64) -> None:
        """Note that units have these log offsets and sizes.

        An entry of the index whose offset differs in one bit is of the same message: messages begin and end as the unit
        says.
        """
        self._units.append(at)
        self._sizes.append(size)
        if len(self.offsets) and len(at):
            where, there = _found(self.offsets, at)
            self.named[where[there]] = True
            for rows, entries in self._one_bit_off(at):
                ends = at[rows] + size[rows]
                self.named[entries[self._begins(ends) | np.isin(ends, at)]] = True

    def add_offsets(self, at: I64) -> None:
        """Add log offsets of messages that other parts of a store list, after the units were read."""
        at = at[within(self.outside, at) & (at - self.tail < FILES_AFTER * self.file_size)]
        new = np.setdiff1d(at, self.offsets)
        if len(new):
            known = np.concatenate([self.offsets, new])
            named = np.concatenate([self.named, np.isin(new, np.concatenate([new[:0], *self._units]))])
            order = np.argsort(known, kind="stable")
            self.offsets, self.named = known[order], named[order]

    def add_records(self, placed: list[int], unplaced: list[int]) -> None:
        """Add the log offsets of damaged records: the headers of some name their places, as units do."""
        self.add_offsets(np.array(unplaced, dtype=np.int64))
        self.named |= np.isin(self.offsets, np.array(placed, dtype=np.int64))

    def _corrected(self, at: I64, size: I64) -> I64:
        """Return the offsets of units, those with one wrong bit as the index lists them.

        The offset in the index is right if a message of this size ends there where another begins.
        """
        right = at.copy()
        for rows, entries in self._one_bit_off(at):
            ends = self._begins(self.offsets[entries] + size[rows])
            right[rows[ends]] = self.offsets[entries[ends]]
        return right

    def _one_bit_off(self, at: I64) -> Iterator[tuple[I64, I64]]:
        """Yield, for each bit, which of these offsets the index has only with that bit changed, and where."""
        alone = np.flatnonzero(~_found(self.offsets, at)[1] if len(self.offsets) else np.zeros(0, dtype=np.bool_))
        for bit in range(_BITS if len(alone) else 0):
            where, there = _found(self.offsets, at[alone] ^ (1 << bit))
            yield alone[there], where[there]

    def _begins(self, at: I64) -> Bool:
        """Return at which offsets messages begin that the index lists, or good records."""
        if self._ends is None:
            self._ends = np.array([stop for _, stop in self.outside.parts], dtype=np.int64)
        found = _found(self._ends, at)[1] | _found(self.offsets, at)[1]
        return found | _found(self.offsets, at + ENTRY.size)[1]  # after the header of a DLedger entry

    def _add_sizes(self, name: QueueName, numbers: I64, at: I64, size: I64) -> None:
        """Note how many bytes the messages of units take in each part of `outside`, and which are after the end."""
        if self._starts is None:
            self._starts = np.array([start for start, _ in self.outside.parts], dtype=np.int64)
        parts, where = np.unique(np.searchsorted(self._starts, at, side="right") - 1, return_inverse=True)
        for part, total in zip(parts.tolist(), np.bincount(where, weights=size).tolist(), strict=True):
            self.bytes_in[self.outside.parts[part][0]] += int(total)
        if len(after := np.flatnonzero(at >= self.tail)):
            self.after.append(TailUnits(name, numbers[after], at[after], size[after]))

    @property
    def after_end(self) -> dict[QueueName, int]:
        """The queues whose units list messages after the end of the log, with the highest offset of such a message."""
        out: dict[QueueName, int] = {}
        for units in self.after:
            out[units.name] = max(out.get(units.name, -1), int(units.offset[-1]))
        return out

    @property
    def reach(self) -> int:
        """The end of the last message after the end of the log that a unit lists; the end of the log without one."""
        return max((int(units.offset[-1] + units.size[-1]) for units in self.after), default=self.tail)

    @property
    def last_after(self) -> int:
        """The offset of the last message after the end of the log that a unit or a DLedger entry lists; -1: none."""
        return max([-1, *self.after_end.values(), *self.entries])

    @property
    def bytes_after(self) -> int:
        """The bytes of the messages after the end of the log that units list."""
        return sum(int(units.size.sum()) for units in self.after)

    def of_another_life(self) -> dict[QueueName, Ranges]:
        """Return the places of units after the end of the log whose messages overlap others.

        They are of two histories of the log: those that continue it count.
        """
        if not self.after:
            return {}
        offset = np.concatenate([units.offset for units in self.after])
        order = np.argsort(offset, kind="stable")
        ends = offset + _true_sizes(offset, np.concatenate([units.size for units in self.after]), order)
        if not (offset[order][1:] < ends[order][:-1]).any():
            return {}
        kept, end = np.zeros(len(offset), dtype=np.bool_), self.tail
        for i in order.tolist():
            if offset[i] >= end:
                kept[i], end = True, int(ends[i])
        out: dict[QueueName, Ranges] = {}
        at = 0
        for units in self.after:
            lost = units.number[~kept[at : at + len(units.number)]]
            if len(lost):
                out[units.name] = out.get(units.name, Ranges()) | Ranges.points(lost.tolist())
            at += len(units.number)
        return out

    @property
    def unnamed(self) -> I64:
        """The log offsets of messages that only index entries or entries of DLedger's index show.

        An offset within a message that a unit lists has a wrong bit: it begins none. So has one alone, far after all
        others: a log has no gap.
        """
        out = self.offsets[~self.named]
        if len(out):
            far = np.diff(np.concatenate(([self.tail], self.offsets, [END]))) > FILES_AFTER * self.file_size
            alone = far[:-1] & far[1:] & (self.offsets > self.tail)
            out = out[~alone[~self.named]]
        if not (len(out) and self._units):
            return out
        at, size = np.concatenate(self._units), np.concatenate(self._sizes)
        order = np.argsort(at, kind="stable")
        before = order[np.searchsorted(at[order], out, side="left") - 1]
        end = at[before] + size[before]
        within_it = (at[before] < out) & (out < end) & (np.isin(end, at) | self._begins(end))
        return out[~within_it]

    def unnamed_from(self, offset: int) -> int:
        """Return how many messages from a log offset on only these entries show."""
        return int((self.unnamed >= offset).sum())


def _without_high_bit(size: I64, most: I64) -> I64:
    """Return the sizes of units, those that no record there has without their highest bit: it lists a message, too."""
    right, wrong = size.copy(), np.flatnonzero((size < 0) | (size > most))
    field = size[wrong] & 0xFFFFFFFF
    right[wrong] = field ^ (1 << np.log2(np.maximum(field, 1)).astype(np.int64))
    return right


def _true_sizes(offset: I64, size: I64, order: I64) -> I64:
    """Return the sizes of messages, those with one wrong bit up to the next message, in `order` of their offsets."""
    before, right = order[:-1], size.copy()
    for head in (0, ENTRY.size):
        room = np.diff(offset[order]) - head
        other = size[before] ^ room
        wrong = (room < size[before]) & (room >= MIN_SIZE) & (other & (other - 1) == 0)
        right[before[wrong]] = room[wrong]
    return right


def _found(known: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return where numbers are among known ones, which are sorted, and which are there."""
    where = np.searchsorted(known, wanted)
    there: Bool = where < len(known)
    there[there] = known[where[there]] == wanted[there]
    return where, there


def _fits(part: QueuePart, numbers: I64, at: I64) -> Bool:
    """Return which units fit the good messages of their queue: they leave the queue offset open at that log offset."""
    if not part.messages:
        return np.ones(len(numbers), dtype=np.bool_)
    if part.outliers or part.repeats or part.restarts:  # which queue offset a record truly has is in doubt
        return (numbers >= part.next) & (at > part.last_at) | within(_gaps(part), numbers)
    fits = (numbers < part.first) & (at < part.first_at) | (numbers >= part.next) & (at > part.last_at)
    for gap in part.gaps:
        fits |= (numbers >= gap.expected) & (numbers < gap.got) & (at > gap.before) & (at < gap.at)
    return fits


def _gaps(part: QueuePart) -> Ranges:
    return Ranges.of((gap.expected, gap.got) for gap in part.gaps)
