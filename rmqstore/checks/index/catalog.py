"""The index entries of a store as one table, which the pass over the log compares with the messages.

Entries are in log order. A list of blocks with their least and greatest log offset finds the few blocks that may point
into a piece of the log; damage only makes the range of a block wider.

No checksum covers the keys of most records, but their entries may prove them damaged. An entry proves damage if
everything but the key fits: it points to the start of a good record, has that record's store time, and is in the chain
of its hash. Entries of an earlier log, or of another broker, do not have the right time; an entry with a damaged hash
is not in the chain of that hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmqstore.checks.index.keys import Keys
from rmqstore.checks.index.tally import Contradicted, IndexTally, add_found
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.index import index_chain
from rmqstore.formats import index, properties
from rmqstore.formats.index import UNIT, unit_at
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, is_filler_text
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool, within


@dataclass(frozen=True, slots=True)
class Block:
    """Units [first, first + count) of a file, and the range of the log offsets in them."""

    first: int
    count: int
    least: int
    greatest: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file; `last` is the number of its last entry, times in ms, offsets in bytes.

    `moving`: a live broker writes to it.
    """

    name: str
    path: Path
    slots: int
    last: int
    begin_phy_offset: int
    end_phy_offset: int
    begin_timestamp: int
    end_timestamp: int
    full: bool
    moving: bool = False
    files: Files = field(default=LOCAL, repr=False, compare=False)

    def units(self, first: int, count: int) -> bytes:
        """Read units [first, first + count); short or empty if the file has changed or cannot be read."""
        return self.files.read_at(self.path, count * UNIT.size, unit_at(first, self.slots))


class IndexEntries(NamedTuple):
    """Index entries as columns: file number, unit number, log offset, key hash and time field (s). Shape: (n,) each."""

    number: I64
    unit: I64
    offset: I64
    key_hash: I64
    diff: I64


def time_diffs(files: Sequence[IndexFile], number: I64, time: I64) -> I64:
    """Return the time field (s) that entries in the files `number` should have for messages stored at `time` (ms)."""
    begins = np.array([f.begin_timestamp for f in files], dtype=np.int64)[number]
    return np.where(begins <= 0, 0, np.clip((time - begins) // 1000, 0, 0x7FFFFFFF))


_PIECE = 1 << 31  # bytes of log in one comparison, so that offset and hash fit into 62 bits
_NO_END = (1 << 63) - 1
_UNITS = 1 << 16  # read at a time


def _find(values: I64, ordered: I64) -> tuple[I64, Bool]:
    """Return the positions of values in a sorted array, and which of them it contains.

    It does not use np.isin, which imports numpy.ma: that takes longer than the index of a small store.
    """
    at = np.searchsorted(ordered, values)
    at[at == len(ordered)] = 0
    return at, ordered[at] == values if len(ordered) else np.zeros(len(values), np.bool_)


def _count(table: dict[int, tuple[int, int, int]], hit: Bool, entries: IndexEntries) -> None:
    """Add the entries selected by a mask, file by file."""
    if not hit.any():
        return
    for n in np.unique(entries.number[hit]).tolist():
        rows = np.flatnonzero(hit & (entries.number == n))
        first = int(rows[np.argmin(entries.unit[rows])])
        add_found(table, n, (len(rows), int(entries.unit[first]), int(entries.offset[first])))


class IndexCatalog:
    """All entries of all index files. It has no open files and can be sent to worker processes."""

    def __init__(self, complete: bool) -> None:
        self.complete = complete
        self.files: list[IndexFile] = []
        self.unchecked: list[str] = []
        self._blocks: list[tuple[int, int, int, int, int]] = []
        self._table: I64 | None = None

    def add(self, file: IndexFile, blocks: list[Block]) -> None:
        """Append the next file, in name order."""
        self._blocks += [(len(self.files), b.first, b.count, b.least, b.greatest) for b in blocks]
        self._table = None
        self.files.append(file)

    @property
    def start(self) -> int | None:
        """The first indexed offset; None for an empty index. Files with entries of older messages have expired."""
        return next((f.begin_phy_offset for f in self.files if f.last), None)

    @property
    def horizon(self) -> int:
        """Messages before this offset (bytes) have all their entries; later ones may not, after a kill or while live.

        After a clean exit, all messages are indexed.
        """
        if self.complete:
            return _NO_END
        return max((f.end_phy_offset for f in self.files if f.last), default=0)

    def check(
        self,
        start: int,
        stop: int,
        keys: Keys,
        tally: IndexTally,
        columns: Columns | None = None,
        seen: Callable[[int, int, IndexEntries, bool], None] | None = None,
    ) -> None:
        """Compare the entries that point into [start, stop) with those that the messages there should have.

        There are only good records in [start, stop); `keys` are all their keys, `columns` the records, which entries
        may prove to be damaged. `seen` gets each piece [low, high) with the result of `entries`.
        """
        for lo in range(start, stop, _PIECE):
            hi = min(lo + _PIECE, stop)
            inside = (keys.offset >= lo) & (keys.offset < hi)
            entries, whole = self.entries(lo, hi)
            if seen is not None:
                seen(lo, hi, entries, whole)
            self._check(lo, entries, whole, (keys.take(inside), columns), tally)

    def hashes(self, lo: int, hi: int) -> tuple[I64, I64]:
        """Return offsets and key hashes of all entries that point into [lo, hi)."""
        entries, _ = self.entries(lo, hi)
        return entries.offset, entries.key_hash

    def digest(self, entries: IndexEntries, whole: bool) -> bytes:
        """Return a digest of the result of `entries`, with the names and begin times of the files."""
        number, *columns = entries
        digest = hashlib.blake2b(b"\1" if whole else b"\0", digest_size=16)
        for n in np.unique(number).tolist():
            rows = np.flatnonzero(number == n)
            # the name and not the number, which changes when files expire
            file = self.files[n]
            digest.update(f"{file.name} {file.begin_timestamp} {len(rows)} ".encode("utf-8", "surrogateescape"))
            for column in columns:
                digest.update(np.ascontiguousarray(column[rows]).tobytes())
        return digest.digest()

    def _check(
        self, lo: int, entries: IndexEntries, whole: bool, messages: tuple[Keys, Columns | None], tally: IndexTally
    ) -> None:
        keys, columns = messages
        have = (entries.offset - lo) << 31 | entries.key_hash
        expected = (keys.offset - lo) << 31 | keys.hash
        for same in (expected, expected[keys.required]):  # as 5.4.0 writes them, or as older versions do
            if np.array_equal(have, same):
                time = keys.time if same is expected else keys.time[keys.required]
                self._late(time, np.ones(len(have), np.bool_), entries, tally)
                return
        order = np.argsort(expected)
        at, found = _find(have, expected[order])
        damaged: I64 = np.empty(0, dtype=np.int64)
        if columns is not None and not found.all():
            rows = contradicted(self.files, entries, ~found, columns)
            tally.contradicted.update(rows)
            damaged = np.array(sorted(rows), dtype=np.int64)
        _count(tally.dangling, ~found & ~_find(entries.offset, damaged)[1], entries)
        if found.any():
            self._late(keys.time[order[at[found]]], found, entries, tally)
        begin = self.start
        if begin is None or not whole:
            return
        must = keys.required & (keys.offset >= begin) & (keys.offset < self.horizon)
        must &= ~_find(keys.offset, damaged)[1]
        absent = keys.offset[must][~_find(expected[must], np.sort(have))[1]]
        if len(absent):
            tally.add_missing(len(np.unique(absent)), len(absent), int(absent.min()), int(absent.max()))

    def _late(self, time: I64, found: Bool, entries: IndexEntries, tally: IndexTally) -> None:
        """Count `found` entries with another time than that of their message (`time`, ms)."""
        wanted = time_diffs(self.files, entries.number[found], time)
        late = np.zeros(len(found), dtype=np.bool_)
        # the first entry of a file was written with the begin time of the previous file
        late[found] = (entries.diff[found] != wanted) & (entries.unit[found] != 1)
        _count(tally.late, late, entries)

    def entries(self, lo: int, hi: int) -> tuple[IndexEntries, bool]:
        """Return all entries that point into [lo, hi).

        The second value is False if a file has expired or is no longer readable: then no entry counts as missing.
        """
        if self._table is None:
            self._table = np.array(self._blocks, dtype=np.int64).reshape(-1, 5)
        table = self._table
        near = (table[:, 3] < hi) & (table[:, 4] >= lo)
        parts: list[IndexEntries] = []
        whole = True
        for number, first, count, _, _ in table[near].tolist():
            file = self.files[number]
            raw = file.units(first, count)
            whole = whole and len(raw) == count * index.UNIT.size
            units: Any = index.UNIT.array(raw)
            offset = units["phy_offset"].astype(np.int64)
            inside = (offset >= lo) & (offset < hi) & (units["key_hash"] >= 0)
            inside &= (offset > 0) | (units["key_hash"] > 0)  # zeros are no entry
            rows = np.flatnonzero(inside)
            if len(rows):
                hashes = units["key_hash"][rows].astype(np.int64)
                diff = units["time_diff"][rows].astype(np.int64)
                parts.append(IndexEntries(np.full(len(rows), number), rows + first, offset[rows], hashes, diff))
        if not parts:
            return IndexEntries(*[np.empty(0, dtype=np.int64)] * 5), whole
        return IndexEntries(*(np.concatenate(column) for column in zip(*parts, strict=True))), whole

    def offsets_within(self, ranges: Ranges) -> I64:
        """Return the log offsets within some ranges that entries have, sorted, without those of garbage."""
        found = [np.zeros(0, dtype=np.int64)]
        for number, first, count, least, greatest in self._blocks if ranges else ():
            if not ranges.clip(least, greatest + 1):
                continue
            for at in range(first, first + count, _UNITS):
                units: Any = index.UNIT.array(self.files[number].units(at, min(_UNITS, first + count - at)))
                offset = units["phy_offset"].astype(np.int64)
                found.append(np.unique(offset[within(ranges, offset) & _written(units, at)]))
        return np.unique(np.concatenate(found))

    def count_before(self, begin: int) -> int:
        """Return how many messages before a log offset have entries, which are in the order of the log."""
        total, last = 0, -1
        for number, first, count, least, _ in self._blocks:
            if least >= begin:
                continue
            units: Any = index.UNIT.array(self.files[number].units(first, count))
            offset = units["phy_offset"].astype(np.int64)
            old = offset[(offset < begin) & _written(units, first)]
            total += int((np.diff(old, prepend=last) > 0).sum())
            last = max([last, *old[-1:].tolist()])
        return total

    def check_end(self, wrote: int, findings: Findings) -> None:
        """Report each file with entries that point to the end of the log (`wrote`, bytes) or beyond it."""
        for number, file in enumerate(self.files):
            count = unit = phy_offset = 0
            for of, first, length, _, greatest in self._blocks:
                if of != number or greatest < wrote or file.moving:
                    continue
                raw = file.units(first, length)
                offset = index.UNIT.array(raw)["phy_offset"].astype(np.int64)
                after = np.flatnonzero(offset >= wrote)
                if len(after) and not count:
                    unit, phy_offset = first + int(after[0]), int(offset[after[0]])
                count += len(after)
            if count:
                facts: dict[str, Fact] = {"unit": unit, "count": count, "wrote": wrote, "phy_offset": phy_offset}
                at = index.unit_at(unit, file.slots)
                findings.add(Finding(codes.IX_DANGLING_ENTRY, "index", file.name, at, index.UNIT.size, facts))

    def report(self, tally: IndexTally, findings: Findings, committed: int | None = None) -> None:
        """Report the result of a pass over the whole log: each file with wrong entries, and all missing entries.

        `committed`: entries of a DLedger log from here on are not indexed before a leader commits them.
        """
        for code, table in ((codes.IX_DANGLING_ENTRY, tally.dangling), (codes.IX_BAD_ENTRY, tally.late)):
            for number, (count, unit, offset) in sorted(table.items()):
                file = self.files[number]
                facts: dict[str, Fact] = {"unit": unit, "count": count, "phy_offset": offset}
                if table is tally.late:
                    facts["what"] = "time"
                at = index.unit_at(unit, file.slots)
                findings.add(Finding(code, "index", file.name, at, index.UNIT.size, facts))
        used = [file for file in self.files if file.last]
        last = max((file.end_phy_offset for file in used), default=-1)
        if tally.messages and not (committed is not None and tally.first >= max(committed, last + 1)):
            facts = {"messages": tally.messages, "entries": tally.entries, "first_offset": tally.first}
            facts["last_offset"] = tally.last
            names = [file.name for file in used if file.begin_phy_offset <= tally.first]
            name = names[-1] if names else ""  # the file that should contain their entries
            findings.add(Finding(codes.IX_NOT_INDEXED, "index", name, tally.first, 0, facts))


_FEW = 8  # records; if more than these, and most of a chunk, are contradicted, the entries are of an unknown kind
_STEPS = 100_000  # along chains, for one chunk


def contradicted(
    files: Sequence[IndexFile], entries: IndexEntries, loose: Bool, columns: Columns
) -> dict[int, Contradicted]:
    """Return the records that entries prove to be damaged, by offset.

    `entries` are all that point to these records, `loose` those that belong to no key of their record.
    """
    number, unit, offset, key_hash, diff = entries
    rows = np.flatnonzero(loose)
    at = np.minimum(np.searchsorted(columns.offset, offset[rows]), len(columns) - 1)
    same = columns.offset[at] == offset[rows]
    same &= columns.sys_flag[at] & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    rows, at = rows[same], at[same]
    time = columns.store_timestamp[at]
    begins = np.array([f.begin_timestamp for f in files], dtype=np.int64)[number[rows]]
    # the first entry of a file was written with the begin time of the previous file
    fits = np.where(unit[rows] == 1, begins == time, diff[rows] == time_diffs(files, number[rows], time))
    rows, at = rows[fits], at[fits]
    if len(np.unique(at)) > max(_FEW, len(columns) // 2):
        return {}
    chains = _Chains()
    times: dict[int, int] = {}
    for row, i in zip(rows.tolist(), at.tolist(), strict=True):
        file = files[number[row]]
        if chains.hold(file, int(unit[row]), int(key_hash[row])) and _in_order(file, int(unit[row]), int(offset[row])):
            times[i] = times.get(i, 0) + 1
    out = {}
    for i, count in times.items():
        if is_filler_text(columns.properties(i)):
            continue  # a repair wrote it in place of the lost message of the entry
        own = np.flatnonzero(offset == columns.offset[i])
        own = own[[_in_order(files[number[row]], int(unit[row]), int(offset[row])) for row in own.tolist()]]
        own = own[np.lexsort((unit[own], number[own]))]
        given = properties.parse_properties(columns.properties(i))
        out[int(columns.offset[i])] = Contradicted(
            int(columns.offset[i]),
            int(columns.size[i]),
            java_text(columns.topic(i)),
            int(columns.queue_id[i]),
            int(columns.queue_offset[i]),
            int(columns.store_timestamp[i]),
            given.get(properties.UNIQ_KEY, ""),
            given.get(properties.KEYS, ""),
            tuple(key_hash[own].tolist()),
            count,
        )
    return out


def _in_order(file: IndexFile, unit: int, offset: int) -> bool:
    """Return whether the entry before an entry is of the same message or of an earlier one, as a broker writes them.

    Damage can leave an entry with the log offset 0, which is the offset of a message too.
    """
    before: Any = index.UNIT.array(file.units(unit - 1, 1)) if unit > 1 else ()
    return len(before) == 0 or int(before["phy_offset"][0]) <= offset


class _Chains:
    """Follows chains, with at most `_STEPS` steps in all."""

    def __init__(self) -> None:
        self.left = _STEPS

    def hold(self, file: IndexFile, unit: int, key_hash: int) -> bool:
        """Return whether a query for the hash of an entry finds it."""
        for at, _ in index_chain(file.files, file.path, file.slots, file.last + 1, key_hash):
            if at <= unit or self.left <= 0:
                return at == unit
            self.left -= 1
        return False


def _written(units: Any, first: int) -> Bool:
    """Return which index units, the first of which has a number, a broker can have written; garbage fits rarely.

    Units are in log order, and each one continues a chain with an earlier unit. Source: IndexFile#putKey, 5.4.0
    """
    offset, previous = units["phy_offset"].astype(np.int64), units["prev_index"].astype(np.int64)
    good: Bool = (units["key_hash"] >= 0) & (units["time_diff"] >= 0)
    good &= (previous >= 0) & (previous < np.arange(first, first + len(units)))
    before, own, after = offset[:-2], offset[1:-1], offset[2:]
    good[1:-1] &= ~((before <= after) & ((own < before) | (own > after)))
    return good
