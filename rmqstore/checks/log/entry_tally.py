"""What the entries of DLedger data say of themselves and of their index units, counted by the pass over the log.

It merges in address order, so that it does not depend on how the data was split; `dledger.py` judges the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.layout import Layout
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64

_UNIT = dledger.INDEX_UNIT
_MAX_GAPS = 1000


class EntryUnits(Protocol):
    """The units of the DLedger index, as `MappedFileQueue` gives them."""

    def pread(self, size: int, offset: int, /) -> bytes:
        """Bytes at an offset; short at the end."""

    def unit(self, layout: Layout, number: int, /) -> dict[str, Any] | None:
        """One unit by its number; None without one."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that do not follow those before: the run at `at` begins with another index or a lower term."""

    before: int
    at: int
    expected_index: int
    index: int
    last_term: int
    term: int


@dataclass(slots=True)
class EntryTally:
    """What the good entries of a part of the data say; parts are merged in address order.

    `begin`, `end`: offsets of the first entry and behind the last (bytes, -1: no entry). `wrong`: entries whose index
    unit differs, with the first and last such index; `absent`: how many of them have a zero unit, or none. `internal`:
    entries without a message, which only DLedger 0.4 writes.
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
    gaps: list[Gap] = field(default_factory=list)

    def merge(self, other: EntryTally) -> None:
        """Append the part behind this one."""
        if not other.entries:
            return
        if not self.entries:
            self.begin, self.first_index, self.first_term = other.begin, other.first_index, other.first_term
        elif (other.first_index != self.last_index + 1 or other.first_term < self.last_term) and (
            len(self.gaps) < _MAX_GAPS
        ):
            self.gaps.append(
                Gap(
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
    """Take the entries of a RECORDS run into the tally, compared with their index units (None: no index).

    Call it run by run in address order.
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
    """Take an entry without a message into the tally: `raw` is its head, `begin` its offset.

    DLedger 0.4 gives the unit of an entry that it appends as a leader the type NORMAL, whatever the entry's is.
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
    if low < 0 or high - low >= 4 * len(numbers) + 64:  # not one behind the other: damage that the scan has named
        return
    raw = index.pread((high - low + 1) * _UNIT.size, dledger.index_at(low))
    raw = raw.ljust((high - low + 1) * _UNIT.size, b"\0")  # what no file holds is absent
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
