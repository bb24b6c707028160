"""Keeps the units of queues to be rebuilt in a temporary file, so that memory does not grow with their number."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqstore.append.scratch import Scratch
from rmqstore.checks.log.queue_parts import QueuePart, UnitRows
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.scan.dispatch import BatchRow, DispatchedRows
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.units import UnitArray, lay_out

WINDOW = 1 << 19
"""Number of rows that are sorted together."""
_JOINED = 1 << 16
"""Number of units from which on `known_units` begins another array."""


def _triples(table: array[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first queue offset, number of units, position in the spill) of every segment."""
    return zip(table[0::3], table[1::3], table[2::3], strict=True)


def _following(segments: Iterable[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield groups of segments with consecutive queue offsets, of little more than _JOINED units each."""
    together: list[tuple[int, int, int]] = []
    stop = room = 0
    for one in segments:
        if together and (one[0] != stop or room <= 0):
            yield together
            together = []
        if not together:
            room = _JOINED
        together.append(one)
        stop, room = one[0] + one[1], room - one[1]
    if together:
        yield together


def _put_away(spill: Scratch, rows: UnitRows) -> Iterator[tuple[QueueName, int, int, int]]:
    """Append units to the spill; yield (queue, first queue offset, number, position) of every segment."""
    base = spill.append(rows.units.view(np.uint8).data)
    for name, first, a, b in rows.stretches:
        yield name, first, b - a, base + a * UNIT_SIZE


def _read(spill: Scratch, count: int, at: int) -> UnitArray:
    return consumequeue.UNIT.array(spill.read(count * UNIT_SIZE, at))


class _Index(NamedTuple):
    """Segments sorted by their first queue offset: `order` are their numbers, `reached` the highest stop so far."""

    order: I64
    first: I64
    reached: I64

    @staticmethod
    def of(segments: I64) -> _Index:
        order = np.argsort(segments[:, 0], kind="stable")
        first, count = segments[order, 0], segments[order, 1]
        return _Index(order, first, np.maximum.accumulate(first + count))


@dataclass(slots=True)
class BufferedUnits:
    """The units of one queue: their places in the spill, and the units of a BatchCQ as they are.

    `segments`: three numbers for each segment, see `_triples`. `times` has the store times of the units, if kept.
    """

    spill: Scratch
    segments: array[int] = field(default_factory=lambda: array("q"))
    batches: list[BatchRow] = field(default_factory=list)
    times: Scratch | None = None
    _index: _Index | None = None

    @property
    def total(self) -> int:
        """The number of units, of which several can have the same queue offset."""
        return sum(count for _, count, _ in _triples(self.segments))

    def ranges(self) -> list[tuple[int, int]]:
        """Return the queue offsets that have a unit, as half-open intervals, merged and sorted."""
        index = self._by_offset()
        if not len(index.first):
            return []
        begins = np.flatnonzero(np.concatenate(([True], index.first[1:] > index.reached[:-1])))
        stops = index.reached[np.append(begins[1:], len(index.first)) - 1]
        return list(zip(index.first[begins].tolist(), stops.tolist(), strict=True))

    def _near(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the segments with units in [start, stop), in log order."""
        index = self._by_offset()
        low = int(np.searchsorted(index.reached, start, side="right"))
        high = int(np.searchsorted(index.first, stop))
        near = []
        for number in sorted(index.order[low:high].tolist()):
            first, count, at = self.segments[3 * number : 3 * number + 3]
            if start < first + count:
                near.append((first, count, at))
        return near

    def _by_offset(self) -> _Index:
        if self._index is None or 3 * len(self._index.order) != len(self.segments):
            self._index = _Index.of(np.array(self.segments, dtype=np.int64).reshape(-1, 3))
        return self._index

    def fill(self, target: bytearray, start: int) -> None:
        """Replace the units from `start` on in `target`, which has the ones on disk, by those of messages.

        If several messages have the same queue offset, as in a topic that was deleted and created again, the one counts
        that the unit on disk points to, since consumers get it; otherwise the first message counts.
        """
        stop = start + len(target) // UNIT_SIZE
        near = self._near(start, stop)
        was = bytes(target) if _overlap(near) else b""
        for a, b, known in self._parts(reversed(near), start, stop):
            target[a * UNIT_SIZE : b * UNIT_SIZE] = known
        if was:
            old, rows = consumequeue.UNIT.array(was), np.frombuffer(target, dtype=np.uint8).reshape(-1, UNIT_SIZE)
            for a, b, known in self._parts(near, start, stop):
                units, there = consumequeue.UNIT.array(known), old[a:b]
                same = (units["commitlog_offset"] == there["commitlog_offset"]) & (units["size"] == there["size"])
                rows[a:b][same] = np.frombuffer(known, dtype=np.uint8).reshape(-1, UNIT_SIZE)[same]

    def _parts(
        self, segments: Iterable[tuple[int, int, int]], start: int, stop: int
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield the units of segments in [start, stop): their range, counted from `start`, and their bytes."""
        for first, count, at in segments:
            a, b = max(first, start), min(first + count, stop)
            yield a - start, b - start, self.spill.read((b - a) * UNIT_SIZE, at + (a - first) * UNIT_SIZE)

    def store_times(self, start: int, count: int) -> I64:
        """Return the store times (ms) of units [start, start + count), 0 for unknown ones. Shape: (count,)."""
        out = np.zeros(count, dtype=np.int64)
        for first, number, at in reversed(self._near(start, start + count)):
            a, b = max(first, start), min(first + number, start + count)
            if a < b and self.times is not None:
                place = (at // UNIT_SIZE + a - first) * out.itemsize
                out[a - start : b - start] = np.frombuffer(self.times.read((b - a) * out.itemsize, place), np.int64)
        return out


def _overlap(segments: list[tuple[int, int, int]]) -> bool:
    reached = -1
    for first, count, _ in sorted(segments):
        if first < reached:
            return True
        reached = first + count
    return False


def _corrected(part: QueuePart, first: int, offsets: I64) -> Iterator[tuple[int, int, int]]:
    """Yield (first queue offset, start, stop) of the pieces of a segment, whose messages are at `offsets` in the log.

    Messages before the queue's last restart are left out, as are those whose queue offset is wrong while none is left
    for them.
    """
    done = int(np.searchsorted(offsets, part.restarts[-1])) if part.restarts else 0
    if part.outliers and done < len(offsets):
        low = bisect_left(part.outliers, int(offsets[done]), key=lambda one: one.at)
        high = bisect_right(part.outliers, int(offsets[-1]), key=lambda one: one.at)
        for one in part.outliers[low:high]:
            i = one.got - first
            if not (done <= i < len(offsets) and offsets[i] == one.at):
                continue
            yield first + done, done, i
            if one.expected is not None:
                yield one.expected, i, i + 1
            done = i + 1
    yield first + done, done, len(offsets)


class KeptUnits:
    """The units of all good messages, kept by a verification, so that a rebuild need not read the log again.

    `complete`: every message that must have a unit has one here; messages of BatchCQ topics are not among them.
    """

    def __init__(self) -> None:
        self.spill = Scratch()
        self.complete: bool = True
        self._segments: dict[QueueName, array[int]] = {}
        self._mark: dict[QueueName, int] = {}

    def begin_log(self) -> None:
        """Note that reading a log begins."""
        self._mark = {name: len(table) for name, table in self._segments.items()}

    def forget_log(self) -> None:
        """Drop the units since `begin_log`: the log will be read again."""
        for name, table in self._segments.items():
            del table[self._mark.get(name, 0) :]
        self.complete = False  # the tiling stays that of the first reading

    def add(self, rows: Iterable[UnitRows], *, complete: bool) -> None:
        """Add the units of a part of the log; parts must come in address order."""
        self.complete &= complete
        for one in rows:
            for name, first, count, at in _put_away(self.spill, one):
                self._segments.setdefault(name, array("q")).extend((first, count, at))

    def segments(self) -> Iterator[tuple[QueueName, int, int, int]]:
        """Yield (queue, first queue offset, number of units, position in the spill), in log order for each queue."""
        for name, table in self._segments.items():
            for first, count, at in _triples(table):
                yield name, first, count, at

    def known_units(self) -> Iterator[tuple[QueueName, I64, I64, I64]]:
        """Yield (queue, commitlog offsets, sizes, queue offsets) in pieces, in log order for each queue."""
        for name, table in self._segments.items():
            for pieces in _following(_triples(table)):
                units = np.concatenate([_read(self.spill, count, at) for _, count, at in pieces])
                size, offset = units["size"].astype(np.int64), units["commitlog_offset"].astype(np.int64)
                yield name, offset, size, np.arange(pieces[0][0], pieces[0][0] + len(units))


class UnitBuffer:
    """Collects the units of `wanted` queues (None: of all) while the log is read.

    `parts` are the verification's findings about queue offsets: restarts of a queue, and single wrong offsets.
    Messages that end after `limit` (global offset) get no unit yet; `later` counts them per queue. `times`: keep store
    times too, in another spill.
    """

    def __init__(
        self,
        wanted: frozenset[QueueName] | None,
        parts: Mapping[QueueName, QueuePart],
        limit: int | None = None,
        spill: Scratch | None = None,
        *,
        times: bool = False,
    ) -> None:
        self.wanted = wanted
        self.limit = limit
        self.later: Counter[QueueName] = Counter()
        self.parts = parts
        self.spill = spill or Scratch()
        self.times = Scratch() if times else None
        self.queues: dict[QueueName, BufferedUnits] = {}
        self._names: list[QueueName] = []
        self._want: Bool = np.empty(0, dtype=np.bool_)
        self._rows: list[DispatchedRows] = []
        self._count = 0

    def rows(self, names: list[QueueName], rows: DispatchedRows) -> None:
        """Add rows; `rows.number` indexes `names`."""
        self._names = names
        if self.wanted is not None:
            known = len(self._want)
            if known < len(names):
                more = np.array([n in self.wanted for n in names[known:]], dtype=np.bool_)
                self._want = np.concatenate((self._want, more))
            rows = rows.keep(self._want[rows.number])
        rows = self._within(rows)
        self._rows.append(rows)
        self._count += len(rows.number)
        if self._count >= WINDOW:
            self.flush()

    def _within(self, rows: DispatchedRows) -> DispatchedRows:
        """Drop and count the messages after the limit."""
        if self.limit is None:
            return rows
        keep = rows.offset + rows.size <= self.limit
        if keep.all():
            return rows
        found, counts = np.unique(rows.number[~keep], return_counts=True)
        for n, count in zip(found.tolist(), counts.tolist(), strict=True):
            self.later[self._names[n]] += count
        return rows.keep(keep)

    def batch(self, name: QueueName, row: BatchRow) -> None:
        """Add a message or an inner batch of a BatchCQ topic."""
        if self.limit is not None and row.offset + row.size > self.limit:
            self.later[name] += row.count
        elif self.wanted is None or name in self.wanted:
            self._queue(name).batches.append(row)

    def flush(self) -> None:
        """Sort the rows since the last flush by queue, and move them to the spill."""
        if not self._count:
            self._rows.clear()
            return
        number, index, offset, size, tags, time = map(np.concatenate, zip(*self._rows, strict=True))
        self._rows.clear()
        self._count = 0
        queues = len(self._names)
        laid = lay_out(number, queues, index, offset, size, tags)
        if self.times is not None:
            self.times.append(lay_out(number, queues, time, offset).index.view(np.uint8).data)
        for segment in _put_away(self.spill, UnitRows.of(laid, laid.stretches(self._names))):
            self._segment(*segment)

    def take(self, kept: KeptUnits) -> None:
        """Take the units that the verification kept, in the same spill, instead of reading the log."""
        for segment in kept.segments():
            if self.wanted is None or segment[0] in self.wanted:
                self._segment(*segment)

    def take_batches(self, name: QueueName, rows: Iterable[BatchRow]) -> None:
        """Take the units of a BatchCQ topic's queue, in log order."""
        if self.wanted is None or name in self.wanted:
            self._queue(name).batches.extend(rows)

    def _segment(self, name: QueueName, first: int, count: int, at: int) -> None:
        """Add a segment of a queue, without units before its last restart, and with wrong queue offsets corrected."""
        part = self.parts.get(name)
        if part is None or not (part.restarts or part.outliers):
            pieces: Iterable[tuple[int, int, int]] = ((first, 0, count),)
        else:
            offsets: I64 = _read(self.spill, count, at)["commitlog_offset"].astype(np.int64)
            pieces = _corrected(part, first, offsets)
        for place, a, b in pieces:
            if place >= 0 and a < b:
                self._queue(name).segments.extend((place, b - a, at + a * UNIT_SIZE))

    def _queue(self, name: QueueName) -> BufferedUnits:
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = BufferedUnits(self.spill, times=self.times)
        return queue
