"""The index files as one table (offset, key hash), asked by the pass over the log: dangling entries, missing ones.

Units are in log order, so a directory of blocks with their least and greatest offset finds the few that a piece of
the log concerns; damage only makes a block's range wider.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from rmqstore.checks.index.files import Block, IndexFile, time_diffs
from rmqstore.checks.index.keys import Keys
from rmqstore.checks.index.tally import IndexTally, add_found
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.disk.reading import read_at
from rmqstore.formats import index
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool

_PIECE = 1 << 31  # bytes of log that one comparison covers: offset and hash then fit into 62 bits
_NO_END = (1 << 63) - 1
Entries = tuple[I64, I64, I64, I64, I64]
"""File number, unit number, offset, hash and time difference (s) of index entries."""


def _among(values: I64, known: I64) -> Bool:
    """The same as np.isin, which imports numpy.ma: that takes longer than the index of a small store."""
    ordered = np.sort(known)
    at = np.searchsorted(ordered, values)
    at[at == len(ordered)] = 0
    return ordered[at] == values if len(ordered) else np.zeros(len(values), np.bool_)


def _count(table: dict[int, tuple[int, int, int]], hit: Bool, number: I64, unit: I64, offset: I64) -> None:
    """Add the entries of a mask, file by file."""
    if not hit.any():
        return
    for n in np.unique(number[hit]).tolist():
        rows = np.flatnonzero(hit & (number == n))
        first = int(rows[np.argmin(unit[rows])])
        add_found(table, n, (len(rows), int(unit[first]), int(offset[first])))


class IndexCatalog:
    """All entries of all index files. It holds no open file and can be sent to worker processes."""

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
        """First indexed offset; older messages were indexed in files that are gone. None: nothing is indexed."""
        return next((f.begin_phy_offset for f in self.files if f.last), None)

    @property
    def horizon(self) -> int:
        """Messages before this offset have all their entries; behind it a kill, or a live broker, may have cut in.

        Units: bytes. After a clean exit everything is dispatched, without an end.
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
        seen: Callable[[int, int, bytes], None] | None = None,
    ) -> None:
        """Compare the entries that point into [start, stop) with what the messages there are owed.

        `start` and `stop` bound good records only (a RECORDS run), `keys` are those of all messages between, `columns`
        the messages themselves, which entries may prove to be damaged. `seen` gets each piece and what `told` says
        of it.
        """
        for lo in range(start, stop, _PIECE):
            hi = min(lo + _PIECE, stop)
            inside = (keys.offset >= lo) & (keys.offset < hi)
            entries, whole = self._entries(lo, hi)
            if seen is not None:
                seen(lo, hi, self._digest(entries, whole))
            self._check(lo, entries, whole, (keys.take(inside), columns), tally)

    def hashes(self, lo: int, hi: int) -> tuple[I64, I64]:
        """Offsets and key hashes of all entries that point into [lo, hi)."""
        (_, _, offset, key_hash, _), _ = self._entries(lo, hi)
        return offset, key_hash

    def digest(self, lo: int, hi: int) -> bytes:
        """Return a digest of all entries that point into [lo, hi), with the names and begin times of their files."""
        return self._digest(*self._entries(lo, hi))

    def _digest(self, entries: Entries, whole: bool) -> bytes:
        number, *columns = entries
        digest = hashlib.blake2b(b"\1" if whole else b"\0", digest_size=16)
        for n in np.unique(number).tolist():  # files expire, and others get their number
            rows = np.flatnonzero(number == n)
            file = self.files[n]
            digest.update(f"{file.name} {file.begin_timestamp} {len(rows)} ".encode("utf-8", "surrogateescape"))
            for column in columns:
                digest.update(np.ascontiguousarray(column[rows]).tobytes())
        return digest.digest()

    def _check(
        self, lo: int, entries: Entries, whole: bool, messages: tuple[Keys, Columns | None], tally: IndexTally
    ) -> None:
        number, unit, offset, key_hash, diff = entries
        keys, columns = messages
        have = (offset - lo) << 31 | key_hash
        owed = (keys.offset - lo) << 31 | keys.hash
        begin = self.start
        for same in (owed, owed[keys.required]):  # as 5.4.0 writes them, or as older ones do
            if np.array_equal(have, same):
                time = keys.time if same is owed else keys.time[keys.required]
                self._late(time, np.ones(len(have), np.bool_), (number, unit, offset, diff), tally)
                return
        order = np.argsort(owed)
        ordered = owed[order]
        at = np.searchsorted(ordered, have)
        at[at == len(ordered)] = 0
        found = ordered[at] == have if len(ordered) else np.zeros(len(have), np.bool_)
        damaged: I64 = np.empty(0, dtype=np.int64)
        if columns is not None and not found.all():
            from rmqstore.checks.index.contradicted import contradicted

            rows = contradicted(self.files, (number, unit, offset, key_hash, diff), ~found, columns)
            tally.contradicted.update(rows)
            damaged = np.array(sorted(rows), dtype=np.int64)
        _count(tally.dangling, ~found & ~np.isin(offset, damaged), number, unit, offset)
        if found.any():
            self._late(keys.time[order[at[found]]], found, (number, unit, offset, diff), tally)
        if begin is None or not whole:
            return
        must = keys.required & (keys.offset >= begin) & (keys.offset < self.horizon) & ~np.isin(keys.offset, damaged)
        absent = keys.offset[must][~_among(owed[must], have)]
        if len(absent):
            tally.add_missing(len(np.unique(absent)), len(absent), int(absent.min()), int(absent.max()))

    def _late(self, time: I64, found: Bool, entries: tuple[I64, I64, I64, I64], tally: IndexTally) -> None:
        """Entries whose time is not that of their message (`time`, ms, of those found)."""
        number, unit, offset, diff = entries
        wanted = time_diffs(self.files, number[found], time)
        late = np.zeros(len(found), dtype=np.bool_)
        # the first entry of a file was put with the begin of the file before
        late[found] = (diff[found] != wanted) & (unit[found] != 1)
        _count(tally.late, late, number, unit, offset)

    def _entries(self, lo: int, hi: int) -> tuple[Entries, bool]:
        """File number, unit number, offset, hash and time difference (s) of all entries that point into [lo, hi).

        The second part is False when a file has expired, or cannot be read any more: nothing is then missing.
        """
        if self._table is None:
            self._table = np.array(self._blocks, dtype=np.int64).reshape(-1, 5)
        table = self._table
        rows = np.flatnonzero((table[:, 3] < hi) & (table[:, 4] >= lo))
        parts: list[tuple[I64, I64, I64, I64, I64]] = []
        whole = True
        for number, first, count, _, _ in table[rows].tolist():
            file = self.files[number]
            raw = read_at(file.path, count * index.UNIT.size, index.unit_at(first, file.slots))
            whole = whole and len(raw) == count * index.UNIT.size
            units: Any = index.UNIT.array(raw)
            offset = units["phy_offset"].astype(np.int64)
            inside = np.flatnonzero((offset >= lo) & (offset < hi) & (units["key_hash"] >= 0))
            if len(inside):
                hashes = units["key_hash"][inside].astype(np.int64)
                diff = units["time_diff"][inside].astype(np.int64)
                parts.append((np.full(len(inside), number), inside + first, offset[inside], hashes, diff))
        if not parts:
            none = np.empty(0, dtype=np.int64)
            return (none, none, none, none, none), whole
        a, b, c, d, e = (np.concatenate(column) for column in zip(*parts, strict=True))
        return (a, b, c, d, e), whole

    def check_end(self, wrote: int, findings: Findings) -> None:
        """A finding for each file with entries that point to the log's end (`wrote`, bytes) or behind it."""
        for number, file in enumerate(self.files):
            count = unit = phy_offset = 0
            for of, first, length, _, greatest in self._blocks:
                if of != number or greatest < wrote or file.moving:
                    continue
                raw = read_at(file.path, length * index.UNIT.size, index.unit_at(first, file.slots))
                offset = index.UNIT.array(raw)["phy_offset"].astype(np.int64)
                behind = np.flatnonzero(offset >= wrote)
                if len(behind) and not count:
                    unit, phy_offset = first + int(behind[0]), int(offset[behind[0]])
                count += len(behind)
            if count:
                facts: dict[str, Fact] = {"unit": unit, "count": count, "wrote": wrote, "phy_offset": phy_offset}
                at = index.unit_at(unit, file.slots)
                findings.add(Finding(codes.IX_DANGLING_ENTRY, "index", file.name, at, index.UNIT.size, facts))

    def report(self, tally: IndexTally, findings: Findings, committed: int | None = None) -> None:
        """Findings of a whole pass over the log: one for each file with dangling entries, one for what is missing.

        `committed`: data at or behind it waits for a leader (DLedger), and is not indexed before.
        """
        for code, table in ((codes.IX_DANGLING_ENTRY, tally.dangling), (codes.IX_BAD_ENTRY, tally.late)):
            for number, (count, unit, offset) in sorted(table.items()):
                file = self.files[number]
                facts: dict[str, Fact] = {"unit": unit, "count": count, "phy_offset": offset}
                if table is tally.late:
                    facts["what"] = "time"
                at = index.unit_at(unit, file.slots)
                findings.add(Finding(code, "index", file.name, at, index.UNIT.size, facts))
        if tally.messages and not (committed is not None and tally.first >= max(committed, self._reaches() + 1)):
            facts = {"messages": tally.messages, "entries": tally.entries, "first_offset": tally.first}
            facts["last_offset"] = tally.last
            findings.add(Finding(codes.IX_NOT_INDEXED, "index", self._file_of(tally.first), tally.first, 0, facts))

    def _reaches(self) -> int:
        """Offset of the last message that is indexed; -1 for none."""
        return max((file.end_phy_offset for file in self.files if file.last), default=-1)

    def _file_of(self, offset: int) -> str:
        """The file that would hold the entries of a message."""
        name = ""
        for file in self.files:
            if file.last and file.begin_phy_offset <= offset:
                name = file.name
        return name
