"""What the pass over the log counts: good records, their times and queues, and the order of DLedger entries.

Parts are merged in address order, so the result does not depend on the splits. `beside/dledger.py` judges the entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.record_findings import ControlTally
from rmqstore.checks.log.stored_units import WatchedReads
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64
from rmqstore.scan.old_records import StoreTimes

_UNIT = dledger.INDEX_UNIT
_MAX_GAPS = 1000


EntryUnits = MappedFileQueue | WatchedReads
"""The DLedger index."""


@dataclass(frozen=True, slots=True)
class EntryGap:
    """An entry at `at` with an unexpected index, or a lower term than the entry that ends at `before`."""

    before: int
    at: int
    expected_index: int
    index: int
    last_term: int
    term: int


@dataclass(slots=True)
class EntryTally:
    """The good entries of a part of the data.

    `begin`, `end`: start of the first entry and end of the last (offsets, -1: no entry). `wrong`: number of entries
    whose index unit differs, from index `first_wrong` to `last_wrong`; `absent`: those of them with a zero unit or
    none. `internal`: entries without a message, which only DLedger 0.4 writes.
    """

    entries: int = 0
    begin: int = -1
    end: int = -1
    first_index: int = -1
    last_index: int = -1
    first_term: int = -1
    last_term: int = -1
    wrong: int = 0
    absent: int = 0
    first_wrong: int = -1
    last_wrong: int = -1
    internal: int = 0
    gaps: list[EntryGap] = field(default_factory=list)

    def merge(self, other: EntryTally) -> None:
        """Append the next part."""
        if not other.entries:
            return
        if not self.entries:
            self.begin, self.first_index, self.first_term = other.begin, other.first_index, other.first_term
        elif (other.first_index != self.last_index + 1 or other.first_term < self.last_term) and (
            len(self.gaps) < _MAX_GAPS
        ):
            self.gaps.append(
                EntryGap(
                    self.end,
                    other.begin,
                    self.last_index + 1,
                    other.first_index,
                    self.last_term,
                    other.first_term,
                )
            )
        self.gaps += other.gaps[: _MAX_GAPS - len(self.gaps)]
        self.entries += other.entries
        self.end, self.last_index, self.last_term = other.end, other.last_index, other.last_term
        self.internal += other.internal
        self.wrong += other.wrong
        self.absent += other.absent
        if other.wrong:
            self.first_wrong = other.first_wrong if self.first_wrong < 0 else min(self.first_wrong, other.first_wrong)
            self.last_wrong = max(self.last_wrong, other.last_wrong)


def add_entries(columns: Columns, index: EntryUnits | None, tally: EntryTally) -> None:
    """Add the entries of a RECORDS run and compare them with their index units; call it in address order.

    `index` None: do not compare.
    """
    if not len(columns):
        return
    numbers, terms = columns.entry_index, columns.entry_term
    part = EntryTally(
        entries=len(columns),
        begin=int(columns.offset[0]) - dledger.BODY_OFFSET,
        end=int(columns.offset[-1] + columns.size[-1]),
        first_index=int(numbers[0]),
        last_index=int(numbers[-1]),
        first_term=int(terms[0]),
        last_term=int(terms[-1]),
    )
    if index is not None:
        _compare(columns, numbers, index, part)
    tally.merge(part)


def add_internal(raw: bytes, begin: int, index: EntryUnits | None, tally: EntryTally) -> None:
    """Add an entry without a message; `raw` is its header, `begin` its offset.

    If DLedger 0.4 appends an entry as the leader, its unit has the type NORMAL, whatever the type of the entry is.
    """
    entry = dledger.ENTRY.unpack(raw)
    number, term = entry["index"], entry["term"]
    part = EntryTally(1, begin, begin + entry["size"], number, number, term, term, internal=1)
    if index is not None:
        unit = index.unit(_UNIT, number) or _UNIT.unpack(bytes(_UNIT.size))
        wanted = {"pos": begin, "size": entry["size"], "index": number, "term": term}
        if unit["magic"] not in (dledger.NORMAL, entry["magic"]) or any(unit[k] != v for k, v in wanted.items()):
            part.wrong, part.absent = 1, int(unit["magic"] == 0 and unit["size"] == 0)
            part.first_wrong = part.last_wrong = number
    tally.merge(part)


def _compare(columns: Columns, numbers: I64, index: EntryUnits, part: EntryTally) -> None:
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high - low >= 4 * len(numbers) + 64:  # not consecutive: the scan reports this damage
        return
    raw = index.pread((high - low + 1) * _UNIT.size, dledger.index_at(low))
    raw = raw.ljust((high - low + 1) * _UNIT.size, b"\0")  # missing units count as absent
    units: Any = _UNIT.array(raw)[numbers - low]
    same = (
        (units["magic"] == columns.entry_magic)
        & (units["pos"] == columns.entry_pos)
        & (units["size"] == columns.entry_size)
        & (units["index"] == numbers)
        & (units["term"] == columns.entry_term)
    )
    wrong = np.flatnonzero(~same)
    if len(wrong):
        part.wrong = len(wrong)
        part.absent = int(np.count_nonzero((units["magic"][wrong] == 0) & (units["size"][wrong] == 0)))
        part.first_wrong, part.last_wrong = int(numbers[wrong].min()), int(numbers[wrong].max())


@dataclass(slots=True, kw_only=True)
class LogContents(StoreTimes):
    """The good records, added in address order. Offsets are global, in bytes; times in ms.

    `fillers`: offsets of records written by a repair. `withheld`: the first record of each queue with queue offset 0
    whose transaction bits keep it out of the queue. `unserved`: queue offsets of messages that the service of their
    system topic cannot process, by queue.
    """

    messages: int = 0
    bytes: int = 0
    entries: EntryTally = field(default_factory=EntryTally)
    queues: dict[QueueName, QueuePart] = field(default_factory=dict)
    fillers: list[int] = field(default_factory=list)
    withheld: dict[QueueName, int] = field(default_factory=dict)
    controls: ControlTally = field(default_factory=ControlTally)
    unserved: dict[QueueName, Ranges] = field(default_factory=dict)

    def append(self, part: LogContents) -> None:
        """Append the next part, except for its queues."""
        self.messages += part.messages
        self.bytes += part.bytes
        self.fillers.extend(part.fillers)
        self.withheld = part.withheld | self.withheld
        self.controls.merge(part.controls)
        for name, numbers in part.unserved.items():
            self.unserved[name] = self.unserved.get(name, Ranges()) | numbers
        if part.messages:
            if self.first_time < 0:
                self.first_time, self.first_at = part.first_time, part.first_at
            self.last_time = part.last_time
            self.entries.merge(part.entries)
            self.add_back(part.max_time, part.first_at, part.back_from, part.back_max)
