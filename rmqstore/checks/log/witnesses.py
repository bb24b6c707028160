"""What consume queues, the index and DLedger's index list outside of the good records of a log: witnesses of messages.

The checks of queues tell each unit that no record accounts for, chunk by chunk, so that no queue is read again. What is
kept are intervals of queue offsets, and of the index only its offsets outside of good records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.formats.consumequeue import QueueName, is_message_unit
from rmqstore.formats.message import MIN_SIZE
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.kernels import I64, Bool, consecutive, within
from rmqstore.scan.tiling import Kind

if TYPE_CHECKING:
    from rmqstore.checks.log.commitlog import LogResult

END = 1 << 62
"""After every offset of a log."""


def outside_records(results: Sequence[LogResult]) -> Ranges:
    """Return the offsets of the logs that no good record has: damage, holes, BLANKs, and all after the end."""
    spans = [(run.start, run.stop) for r in results for run in r.tiling if run.kind is not Kind.RECORDS]
    spans += [(a.tiling.stop, b.tiling.start) for a, b in pairwise(results)]
    spans.append((results[-1].wrote if results else 0, END))
    return Ranges.of(spans)


@dataclass(slots=True)
class Witnesses:
    """What lists messages that the log does not have.

    `outside`: offsets without a good record. `listed`: queue offsets whose unit points there, by queue. `before`: queue
    offsets whose unit points before the log, by queue: of messages that expired, or are gone with the first files.
    `replaced`: queue offsets whose unit points into a file of another log, by queue: its records have their places.
    `shared`: light queues, whose units point to messages of other queues. `offsets`: log offsets outside of good
    records that index entries and entries of DLedger's index have, sorted; `named`: those that a unit has, too.
    """

    outside: Ranges = field(default_factory=Ranges)
    listed: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    before: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    replaced: dict[QueueName, list[tuple[int, int]]] = field(default_factory=dict)
    offsets: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    named: Bool = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def add_units(self, name: QueueName, part: QueuePart, number: int, offset: I64, size: I64) -> None:
        """Add consecutive units of a queue, the first with queue offset `number`, that point into this log.

        Those count that the good messages of the queue leave room for, and whose offsets rise: a broker wrote them.
        """
        real = is_message_unit(offset, size) & (size >= MIN_SIZE) & within(self.outside, offset)
        rows = np.flatnonzero(real)
        if not len(rows):
            return
        numbers, at = rows + number, offset[rows]
        fits = _fits(part, numbers, at)
        numbers, at = numbers[fits], at[fits]
        rises = np.ones(len(at), dtype=np.bool_)
        rises[:-1] &= at[:-1] < at[1:]  # one that is too high must not exclude those after it
        numbers, at = numbers[rises], at[rises]
        highest = np.maximum.accumulate(np.concatenate(([-1], at)))[:-1] if len(at) else at
        keep = at > highest
        numbers, at = numbers[keep], at[keep]
        if not len(numbers):
            return
        self.name_offsets(at)
        rows_of = self.listed.setdefault(name, [])
        end = max([part.next if part.messages else -1, *(stop for _, stop in rows_of)])
        for a, b in consecutive(numbers):
            start, stop = int(numbers[a]), int(numbers[b - 1]) + 1
            # units lost between the end and this one had messages, too: a broker numbers them without a gap
            before = start - end
            if part.messages and 0 <= end < start and before <= (int(at[a]) - part.last_at) // MIN_SIZE:
                start = end
            rows_of.append((start, stop))
            end = max(end, stop)

    def add_batch(self, name: QueueName, base: int, count: int, at: int) -> None:
        """Add a unit of a batch queue that points to no batch: `count` messages from queue offset `base` on."""
        if at in self.outside:
            self.listed.setdefault(name, []).append((base, base + count))
            self.name_offsets(np.array([at], dtype=np.int64))

    def add_expired(self, name: QueueName, rows: I64) -> None:
        """Add the queue offsets of units that point before the log, in order."""
        for a, b in consecutive(rows):
            self.before.setdefault(name, []).append((int(rows[a]), int(rows[b - 1]) + 1))

    def name_offsets(self, at: I64) -> None:
        """Note that a unit has these log offsets."""
        if len(self.offsets) and len(at):
            where = np.searchsorted(self.offsets, at)
            there = where < len(self.offsets)
            there[there] = self.offsets[where[there]] == at[there]
            self.named[where[there]] = True

    @property
    def unnamed(self) -> int:
        """The number of messages that only index entries or entries of DLedger's index show."""
        return int((~self.named).sum())


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
