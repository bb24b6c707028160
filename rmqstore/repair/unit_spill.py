"""Units of the queues to be rebuilt, kept in a temporary file: memory stays the same for any number of messages."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from rmqstore.checks.log_pass import BatchRow
from rmqstore.checks.queues import QueuePart
from rmqstore.formats import consumequeue
from rmqstore.repair.disk import Scratch
from rmqstore.repair.log_rows import Name
from rmqstore.scan.kernels import I64, Bool

WINDOW = 1 << 19
UNIT = consumequeue.UNIT.size


@dataclass(slots=True)
class QueueUnits:
    """Where the units of one queue lie in the spill.

    `segments`: first queue offset, number, position in the spill; three numbers each. A unit met first counts.
    """

    spill: Scratch
    segments: array[int] = field(default_factory=lambda: array("q"))
    batches: list[BatchRow] = field(default_factory=list)

    def ranges(self) -> list[tuple[int, int]]:
        """Queue offsets that have a unit: half-open intervals, merged and sorted."""
        out: list[tuple[int, int]] = []
        for first, count, _ in sorted(self._segments()):
            if out and first <= out[-1][1]:
                out[-1] = (out[-1][0], max(out[-1][1], first + count))
            else:
                out.append((first, first + count))
        return out

    def _segments(self) -> Iterator[tuple[int, int, int]]:
        table = self.segments
        return zip(table[0::3], table[1::3], table[2::3], strict=True)

    def fill(self, target: bytearray, start: int) -> None:
        """Write the units [start, start + len(target) // 20) that are known over the target."""
        stop = start + len(target) // UNIT
        for first, count, at in reversed(list(self._segments())):  # the earliest record of an offset wins
            a, b = max(first, start), min(first + count, stop)
            if a < b:
                known = self.spill.read((b - a) * UNIT, at + (a - first) * UNIT)
                target[(a - start) * UNIT : (b - start) * UNIT] = known


class UnitSpill:
    """Takes the rows of a log pass; keeps those of `wanted` queues (None: of all).

    `parts` say what the verification found about a queue's offsets: where it began again, which single record has a
    wrong one. Messages that end behind `limit` (global offset) get no unit yet; `later` counts them per queue.
    """

    def __init__(
        self, wanted: frozenset[Name] | None, parts: Mapping[Name, QueuePart], limit: int | None = None
    ) -> None:
        self.wanted = wanted
        self.limit = limit
        self.later: Counter[Name] = Counter()
        self.parts = parts
        self.spill = Scratch()
        self.queues: dict[Name, QueueUnits] = {}
        self._names: list[Name] = []
        self._want: Bool = np.empty(0, dtype=np.bool_)
        self._rows: list[tuple[I64, ...]] = []
        self._count = 0

    def rows(self, names: list[Name], number: I64, queue_offset: I64, offset: I64, size: I64, tags: I64) -> None:
        """Gather rows; `number` indexes `names`."""
        self._names = names
        row: tuple[I64, ...] = (number, queue_offset, offset, size, tags)
        if self.wanted is not None:
            known = len(self._want)
            if known < len(names):
                more = np.array([n in self.wanted for n in names[known:]], dtype=np.bool_)
                self._want = np.concatenate((self._want, more))
            keep = self._want[number]
            if not keep.all():
                row = tuple(v[keep] for v in row)
        row = self._within(row)
        self._rows.append(row)
        self._count += len(row[0])
        if self._count >= WINDOW:
            self.flush()

    def _within(self, row: tuple[I64, ...]) -> tuple[I64, ...]:
        """Without the messages behind the limit."""
        if self.limit is None:
            return row
        number, _, offset, size, _ = row
        keep = offset + size <= self.limit
        if keep.all():
            return row
        found, counts = np.unique(number[~keep], return_counts=True)
        for n, count in zip(found.tolist(), counts.tolist(), strict=True):
            self.later[self._names[n]] += count
        return tuple(v[keep] for v in row)

    def batch(self, name: Name, offset: int, size: int, tags: int, time: int, base: int, count: int) -> None:
        """A message or inner batch of a BatchCQ topic."""
        if self.limit is not None and offset + size > self.limit:
            self.later[name] += count
        elif self.wanted is None or name in self.wanted:
            self._queue(name).batches.append(BatchRow(offset, size, tags, time, base, count))

    def flush(self) -> None:
        """Sort what was gathered by queue and put it away."""
        if not self._count:
            self._rows.clear()
            return
        number, index, offset, size, tags = (np.concatenate([row[i] for row in self._rows]) for i in range(5))
        self._rows.clear()
        self._count = 0
        small = number.astype(np.uint16) if len(self._names) < 65536 else number
        order = np.argsort(small, kind="stable")
        ranked, index = number[order], index[order]
        units = np.empty(len(order), dtype=consumequeue.UNIT.dtype)
        units["commitlog_offset"] = offset[order]
        units["size"] = size[order]
        units["tags_code"] = tags[order]
        edges = np.flatnonzero((np.diff(ranked) != 0) | (np.diff(index) != 1)) + 1
        starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(order)]
        base = self.spill.append(units.view(np.uint8).data)
        for a, b in zip(starts, stops, strict=True):
            self._segment(self._names[int(ranked[a])], int(index[a]), a, b, base, units["commitlog_offset"])

    def _segment(self, name: Name, first: int, a: int, b: int, base: int, offsets: I64) -> None:
        part = self.parts.get(name)
        if part is not None and part.restarts:
            restart = part.restarts[-1]
            a, skipped = a + int(np.searchsorted(offsets[a:b], restart)), a
            first += a - skipped
        if first < 0 or a >= b:
            return
        outliers = {g.at: g for g in part.outliers} if part is not None and part.outliers else None
        table = self._queue(name).segments
        if outliers is not None:
            for i in range(a, b):
                gap = outliers.get(int(offsets[i]))
                place = first + i - a if gap is None or gap.got != first + i - a else gap.expected
                table.extend((place, 1, base + i * UNIT))
            return
        table.extend((first, b - a, base + a * UNIT))

    def _queue(self, name: Name) -> QueueUnits:
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueUnits(self.spill)
        return queue
