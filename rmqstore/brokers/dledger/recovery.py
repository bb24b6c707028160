"""Simulates DLedgerMmapFileStore#recover: where the entries end, which files are deleted, what ends the process.

Source: DLedgerMmapFileStore#recover, MmapFileList (DLedger 0.1 to 0.3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqstore.brokers.load.mapped_files import SimulatedFiles
from rmqstore.brokers.log.file_bytes import FileBytes
from rmqstore.brokers.log.walk import LogReader
from rmqstore.brokers.rules.forecast import PROCESS_EXIT, StartFails
from rmqstore.files.files import Files
from rmqstore.formats import dledger
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import leading
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text

_UNIT = dledger.INDEX_UNIT.size
_FIELDS = ("magic", "pos", "size", "index", "term")
_BODY_LENGTH_AT = dledger.ENTRY.at("body_length")
Entry = Mapping[str, int]


@dataclass(slots=True)
class DLedgerState:
    """DLedger's state after its recovery; -1 means unknown."""

    start_file: int = 0
    process_offset: int = 0
    entries_end: int = 0
    """End of the last accepted entry. What looks like a BLANK moves `process_offset` on to the next file."""
    reason: str = ""
    begin_index: int = -1
    end_index: int = -1
    end_term: int = -1
    committed_index: int = -1
    committed_pos: int = -1
    index_rebuilt_from: int | None = None


class DLedgerRecovery:
    """One simulated recovery of a group directory; changes the given lists of files as the broker changes its own."""

    def __init__(
        self, files: Files, data: SimulatedFiles, index: SimulatedFiles, reader: LogReader, thorough: bool
    ) -> None:
        self.files = files
        self.data = data
        self.index = index
        self.reader = reader
        self.thorough = thorough
        self.state = DLedgerState()

    def run(self, directory: Path) -> DLedgerState:
        """Recover the group in `directory`.

        Errors: StartFails if the broker's process or its load ends.
        """
        self._check_order("before")
        if not self.data.files:
            self.index.truncate_dirty_files(0)
            return self.state
        number = self._first_file()
        self.state.start_file = number
        self.state.entries_end = self.data.files[number].start
        self._walk(number)
        last = self.data.files[-1]
        if last.start - self.state.process_offset > self.data.file_size:
            raise StartFails(
                Text(
                    "DLedger's entries end at {process_offset}, more than a file before the last one",
                    process_offset=self.state.process_offset,
                ),
                "[MONITOR]The processOffset is too small, you should check it manually",
                PROCESS_EXIT,
            )
        if self.state.end_index != -1:
            self._check_last()
            self._revise_begin()
        self.data.truncate_dirty_files(self.state.process_offset)
        self.index.truncate_dirty_files(_index_at(self.state.end_index + 1))
        self._check_order("after")
        self._committed(directory)
        return self.state

    def _check_order(self, when: str) -> None:
        """Fail on a gap between files (MmapFileList#checkSelf)."""
        for files, what in ((self.data, "data"), (self.index, "index")):
            for a, b in zip(files.files, files.files[1:], strict=False):
                if b.start - a.start != files.file_size:
                    raise StartFails(
                        Text(
                            "a DLedger {what} file is missing between {path} and {path2}",
                            what=what,
                            path=a.path.name,
                            path2=b.path.name,
                        ),
                        f"check {what} file order failed {when} recovery",
                    )

    # --- start file -----------------------------------------------------------------------------------------------

    def _first_file(self) -> int:
        number = max(0, len(self.data.files) - 3)
        while number > 0 and not self._first_entry_fits(number):
            number -= 1
        return number

    def _first_entry_fits(self, number: int) -> bool:
        file = self.data.files[number]
        entry = parse_entry(self.data.read(file, dledger.ENTRY.size, 0))
        if entry is None or entry["magic"] < dledger.MAGIC or entry["size"] <= dledger.HEADER_SIZE:
            return False
        if entry["pos"] != file.start or entry["body_length"] + dledger.BODY_OFFSET != entry["size"]:
            return False
        return self._index_agrees(entry, file.start)

    def _index_agrees(self, entry: Entry, pos: int) -> bool:
        unit = self._index_unit(entry["index"])
        return unit is not None and all(unit[f] == (pos if f == "pos" else entry[f]) for f in _FIELDS)

    def _index_unit(self, number: int) -> Entry | None:
        raw = self._index_bytes(number, 1)
        return dledger.INDEX_UNIT.unpack(raw) if len(raw) == _UNIT else None

    def _index_bytes(self, number: int, count: int) -> bytes:
        """Return `count` index units from entry `number` on, fewer if no file holds them.

        As in MmapFileList, position 0 means the first file, wherever it starts.
        """
        out = b""
        at = _index_at(number)
        left = count * _UNIT
        while left > 0:
            file = next((f for f in self.index.files if f.start <= at < f.start + self.index.file_size), None)
            if file is None and at == 0 and self.index.files:
                file = self.index.files[0]
            if file is None:
                break
            position = at % self.index.file_size
            size = min(left, self.index.file_size - position, file.wrote - position)
            raw = self.index.read(file, size, position) if size > 0 else b""
            out += raw
            if not raw or len(raw) < size:
                break
            at += size
            left -= size
        return out

    # --- walk -----------------------------------------------------------------------------------------------------

    def _walk(self, number: int) -> None:
        state = self.state
        while number < len(self.data.files):
            file = self.data.files[number]
            state.process_offset = file.start
            with FileBytes(file) as read:
                blank = self._walk_file(number, read)
            if not blank:
                return
            state.process_offset = file.start + self.data.file_size
            state.reason = Text("end of file")
            number += 1

    def _walk_file(self, number: int, read: FileBytes) -> bool:
        """Advance `process_offset` through one file; return True at a BLANK, False if the walk ends."""
        file = self.data.files[number]
        at = 0
        for run in self.reader.runs(number, 0, self.thorough or self.reader.tiling is None):
            run_end = run.stop - file.start
            while at < run_end:
                if run.kind is Kind.RECORDS and run.start - file.start == at:
                    before = at
                    if run.columns is None:
                        at = self._trust(run.count, at, run_end, read)
                    else:
                        at = self._take(run.columns, at)
                    if at > before:
                        self._accepted(file.start + at)
                    if at == run_end:
                        continue
                outcome = self._one(read, file.start, at)
                if isinstance(outcome, bool):
                    return outcome
                at += outcome
                self._accepted(file.start + at)
        outcome = self._one(read, file.start, at)
        return outcome is True

    def _accepted(self, end: int) -> None:
        self.state.process_offset = self.state.entries_end = end

    def _trust(self, count: int, at: int, run_end: int, read: FileBytes) -> int:
        """Accept a run of `count` good entries unread, numbered on from the first; return the position after them.

        The position stays `at` if the first entry does not follow the last one.
        """
        entry = parse_entry(read(dledger.ENTRY.size, at))
        if entry is None or (self.state.end_index not in (-1, entry["index"] - 1)):
            return at
        self.state.end_index = entry["index"] + count - 1
        self.state.end_term = max(self.state.end_term, entry["term"])
        return run_end

    def _take(self, columns: Columns, at: int) -> int:
        """Accept the leading entries of a chunk that pass every check of the broker; return the position after them."""
        state = self.state
        index, term, size = columns.entry_index, columns.entry_term, columns.entry_size
        before = np.concatenate(([state.end_index if state.end_index != -1 else int(index[0]) - 1], index[:-1]))
        ok = index == before + 1
        ok &= term >= np.maximum.accumulate(np.concatenate(([state.end_term], term[:-1])))
        ok &= (columns.entry_pos == columns.offset - columns.body_offset) & (columns.entry_magic == dledger.MAGIC)
        ok &= columns.i32(columns.entry_at + _BODY_LENGTH_AT) + dledger.BODY_OFFSET == size
        stops = np.append(columns.offset[1:], columns.offset[-1] + columns.size[-1] + columns.body_offset)
        ok &= size == stops - columns.offset
        n = leading(ok)
        if not n:
            return at
        self._compare_index(columns, n)
        state.end_index = int(index[n - 1])
        state.end_term = int(term[n - 1])
        return at + int(size[:n].sum())

    def _compare_index(self, columns: Columns, n: int) -> None:
        if self.state.index_rebuilt_from is not None:
            self._append_index(int(columns.entry_index[n - 1]) + 1)
            return
        first = int(columns.entry_index[0])
        raw = self._index_bytes(first, n)
        units = dledger.INDEX_UNIT.array(raw[: len(raw) // _UNIT * _UNIT])
        same = np.zeros(n, dtype=np.bool_)
        m = len(units)
        same[:m] = (
            (units["magic"] == columns.entry_magic[:m])
            & (units["pos"] == (columns.offset - columns.body_offset)[:m])
            & (units["size"] == columns.entry_size[:m])
            & (units["index"] == columns.entry_index[:m])
            & (units["term"] == columns.entry_term[:m])
        )
        if not same.all():
            self._rebuild_index(first + int(np.argmin(same)))
            self._append_index(first + n)

    def _rebuild_index(self, number: int) -> bool:
        """Rewrite the index from this entry on (#rebuildWithPos); False if that fails, which deletes the index."""
        at = _index_at(number)
        self.index.truncate_dirty_files(at)
        if self.index.max_offset() != at:
            self.index.destroy()
            if at < 0:
                return False
            self.index.last_for_append(at).wrote = at % self.index.file_size
        self.state.index_rebuilt_from = number
        return True

    def _append_index(self, until: int) -> None:
        """Extend the index to the unit before entry `until`, creating files as needed."""
        at = _index_at(until)
        while self.index.max_offset() < at:
            file = self.index.last_for_append(at)
            file.wrote = min(self.index.file_size, at - file.start)

    def _one(self, read: FileBytes, start: int, at: int) -> bool | int:
        """Check the entry at a position as the broker does: its size, True at a BLANK, False if the walk ends."""
        state = self.state
        limit = self.data.file_size
        raw = read(dledger.ENTRY.size, at)
        magic = int.from_bytes(raw[:4], "big", signed=True)
        if len(raw) >= 4 and at + 4 <= limit and magic == dledger.BLANK_MAGIC:
            return True
        entry = parse_entry(raw) if at + dledger.ENTRY.size <= limit else None
        if entry is None or entry["size"] == 0:
            state.reason = Text("no bytes left") if entry is None else Text("size 0")
            return False
        size = entry["size"]
        reason = ""
        if entry["pos"] != start + at:
            reason = f"pos {entry['pos']} != {start + at}"
        elif entry["body_length"] + dledger.BODY_OFFSET != size:
            reason = f"size {size} != {entry['body_length']} + {dledger.BODY_OFFSET}"
        elif not 0 <= at + size <= limit:
            reason = Text("the entry extends beyond the end of the file")
        elif entry["magic"] != dledger.MAGIC:
            reason = Text("unknown magic {magic}", magic=entry["magic"])
        elif state.end_index != -1 and entry["index"] != state.end_index + 1:
            reason = Text("index {index} after {end_index}", index=entry["index"], end_index=state.end_index)
        elif entry["term"] < state.end_term:
            reason = Text("term {term} after {end_term}", term=entry["term"], end_term=state.end_term)
        elif size <= dledger.HEADER_SIZE:
            reason = f"size {size} should > {dledger.HEADER_SIZE}"
        if reason:
            state.reason = reason
            return False
        known = state.index_rebuilt_from is not None or self._index_agrees(entry, start + at)
        if not known and not self._rebuild_index(entry["index"]):
            state.reason = f"rebuild index truncatePos={_index_at(entry['index'])}"
            return False
        if state.index_rebuilt_from is not None:
            self._append_index(entry["index"] + 1)
        state.end_index = entry["index"]
        state.end_term = entry["term"]
        return size

    # --- afterwards -----------------------------------------------------------------------------------------------

    def _check_last(self) -> None:
        """Fail on a negative number of the last entry, which DLedgerMmapFileStore#get refuses."""
        last = self.state.end_index
        if last < 0:
            raise StartFails(Text("the last DLedger entry has the number {last}", last=last), f"{last} should gt 0")

    def _revise_begin(self) -> None:
        """Delete index files that end below the first entry (DLedgerMmapFileStore#reviseLedgerBeginIndex)."""
        entry = parse_entry(self.data.read(self.data.files[0], dledger.ENTRY.size, 0))
        if entry is None:
            return
        self.state.begin_index = entry["index"]
        begin = _index_at(entry["index"])
        old = [f for f in self.index.files if f.start + self.index.file_size <= begin]
        self.index.forget(old)

    def _committed(self, directory: Path) -> None:
        """Set the committed index and position: the checkpoint's, limited to the last entry.

        Errors: StartFails if the resulting entry comes before the first one, or has no index unit.
        Source: DLedgerMmapFileStore#recover, #updateCommittedIndex, #indexCheck, #getEntryPosAndSize
        """
        state = self.state
        checkpoint = dledger.parse_dledger_checkpoint(self.files.read_at(directory / "checkpoint", 4096, 0))
        if checkpoint.refused is not None:
            raise StartFails(
                Text("committedIndex in {directory}/checkpoint is not a number", directory=directory.name),
                f'java.lang.NumberFormatException: For input string: "{checkpoint.refused}"',
            )
        given = checkpoint.committed_index
        if given is None or given < 0 or state.end_index == -1 or given < state.begin_index:
            return
        number = min(given, state.end_index)
        if number < state.begin_index:
            raise StartFails(
                Text(
                    "DLedger's entries end with {number}, but its first data file begins with entry {begin_index}",
                    number=number,
                    begin_index=state.begin_index,
                ),
                f"{number} should be gt {state.begin_index}, ledgerBeginIndex may be revised",
            )
        rebuilt = state.index_rebuilt_from
        if rebuilt is not None and number >= rebuilt:
            position = self._position_of(number)
        else:
            unit = self._index_unit(number)
            position = None if unit is None else unit["pos"] + unit["size"]
        if position is None:
            raise StartFails(
                Text("the committed DLedger entry {number} no longer has an index unit", number=number),
                f"Get null index for {number}",
            )
        state.committed_index = number
        state.committed_pos = position

    def _position_of(self, number: int) -> int | None:
        """Return where an entry ends according to the data, because the broker has yet to write its index unit."""
        for i in range(len(self.data.files) - 1, -1, -1):
            first = parse_entry(self.data.read(self.data.files[i], dledger.ENTRY.size, 0))
            if first is None or first["index"] > number:
                continue
            for run in self.reader.runs(i, 0, True):
                if run.columns is None:
                    continue
                hit = np.flatnonzero(run.columns.entry_index == number)
                if len(hit):
                    k = int(hit[0])
                    return int(run.columns.entry_pos[k] + run.columns.entry_size[k])
            return None
        return None


def _index_at(number: int) -> int:
    """Return the position of an entry's index unit as a Java long, which overflows for a damaged number."""
    return (number * _UNIT + (1 << 63)) % (1 << 64) - (1 << 63)


def parse_entry(raw: bytes) -> Entry | None:
    """Unpack the header of an entry without checking it; None if `raw` is too short."""
    return dledger.ENTRY.unpack(raw) if len(raw) >= dledger.ENTRY.size else None
