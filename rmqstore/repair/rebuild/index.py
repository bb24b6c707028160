"""Rebuilds index files from the log: only wrong ones, with the messages between their sound neighbours.

Files that may be wrong are built and compared with those on disk; equal ones are not replaced.

Source: IndexService#buildIndex, IndexFile#putKey (RocketMQ 5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import numpy as np

from rmqstore.append.index_builder import IndexFileBuilder
from rmqstore.append.scratch import Scratch, ScratchContent
from rmqstore.checks.beside.index import check_index, indexes_tags
from rmqstore.checks.index.catalog import IndexFile
from rmqstore.checks.index.keys import KeyReader
from rmqstore.checks.index.tally import Contradicted, IndexTally
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.report import Findings
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import CHUNK, Content, ContentReader
from rmqstore.files.files import Files
from rmqstore.files.index import index_sizes
from rmqstore.files.mapped_file_queue import MAX_RECORD, DirEntry
from rmqstore.formats import index
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.repaired_log import RepairedLog, Span, end_of
from rmqstore.repair.unrepaired import contradicted_messages
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool, leading
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text

WHY = Text("rebuilt from the keys of the log's messages")
_SAMPLE = 4096  # entries
_FAR = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class IndexFileRun:
    """Adjacent files to rebuild: their names, and the sound files before and after them."""

    names: tuple[str, ...]
    before: IndexFile | None
    after: IndexFile | None


class IndexRebuild:
    """Plans a rebuild of index files.

    `everything`: all files; `complete`: the last file too. `as_they_are`: messages that contradict their entries are
    indexed with their present keys; otherwise these entries are kept.
    """

    def __init__(
        self,
        draft: PlanBuilder,
        verified: Verified,
        views: Sequence[RepairedLog],
        *,
        everything: bool = False,
        complete: bool = False,
        as_they_are: bool = False,
    ) -> None:
        self.draft = draft
        self.store = draft.store
        self.views = views
        self.logs = verified.logs
        self.folder = self.store.root / "index"
        self.end = end_of(views)
        known = verified.index if not verified.report.live else None
        self.catalog = known if known is not None else check_index(self.store, Findings(keep=0))
        config = self.store.config
        self.slots, self.units = index_sizes(self.store) or (config.int("maxHashSlotNum"), config.int("maxIndexNum"))
        found = contradicted_messages(verified, views)
        self.kept = {} if as_they_are else found
        self.forgotten = found if as_they_are else {}
        self.everything = everything
        self.bad = self._bad(verified, everything)
        if complete and self.store.index_files:  # after a crash, the last file may lack entries
            self.bad.add(self.store.index_files[-1].path.name)
        if self.bad:
            self.bad |= self._out_of_order()
        self.scratch = Scratch()

    def _bad(self, verified: Verified, everything: bool) -> set[str]:
        """Return the names of the files that may be wrong."""
        names = {e.path.name for e in self.store.index_files}
        findings = verified.report.findings
        listed = [f for f in findings.listed if f.problem.area is Area.INDEX]
        counted = sum(n for code, n in findings.counts.items() if PROBLEMS[code].area is Area.INDEX)
        if everything or counted > len(listed):
            return names
        bad = {f.file for f in listed if f.file}
        spans = [span for view in self.views for span in view.written if not self._has_its_entries(view, span)]
        spans += [(at, at + 1) for at in self.forgotten]
        spans += [
            (int(f.facts["first_offset"] or 0), int(f.facts["last_offset"] or 0) + 1)
            for f in listed
            if f.code == codes.IX_NOT_INDEXED
        ]
        files = self.catalog.files
        for i, file in enumerate(files):
            stop = files[i + 1].begin_phy_offset if i + 1 < len(files) else _FAR
            stop = max(stop, self._end_of_last(file))  # the keys of one message may be in two files
            touched = any(a < stop and b > file.begin_phy_offset for a, b in spans)
            if file.last and (touched or file.end_phy_offset >= self.end):
                bad.add(file.name)
        return bad & names

    def _out_of_order(self) -> set[str]:
        """Return the names of files that are not in log order, and those between: they are no neighbours of others."""
        files = [file for file in self.catalog.files if file.last]
        begins = np.array([file.begin_phy_offset for file in files], dtype=np.int64)
        lower_later = begins > np.minimum.accumulate(begins[::-1])[::-1]
        higher_before = begins < np.maximum.accumulate(begins)
        return {file.name for file, odd in zip(files, lower_later | higher_before, strict=True) if odd}

    def _end_of_last(self, file: IndexFile) -> int:
        """Return the global offset after the last message with entries in a file; only its first byte if damaged."""
        message = self.logs.record(file.end_phy_offset, MAX_RECORD)
        return file.end_phy_offset + (message.size if message is not None else 1)

    def _has_its_entries(self, view: RepairedLog, span: Span) -> bool:
        """Return whether a range that steps write is in one damaged record, and its entries are right after them.

        That is much faster than building its file again, and true for most mended records.
        """
        run = view.result.tiling.find(span[0])
        if run is None or run.kind is not Kind.DIRTY or run.count != 1 or span[1] > run.stop:
            return False
        columns = next(view.records(run.start, run.stop), None)
        if columns is None:
            return False
        table, tally = QueueTable(), IndexTally()
        keys = KeyReader(table).keys(columns, table.of(columns))
        self.catalog.check(run.start, run.stop, keys, tally)
        return tally == IndexTally()

    def plan(self) -> None:
        """Add the steps for the files that may be wrong; with `everything`, a store without files gets all."""
        tag_keys = self._tag_keys()
        new = [IndexFileRun((), None, None)] if self.everything else []
        for segment in self._segments() if self.bad else new:
            self._segment(segment, tag_keys)

    def _segments(self) -> Iterator[IndexFileRun]:
        known = {f.name: f for f in self.catalog.files}
        names: list[str] = []
        before: IndexFile | None = None
        for entry in self.store.index_files:
            name = entry.path.name
            file = known.get(name)
            if name in self.bad or file is None:
                names.append(name)
            else:
                if names:
                    yield IndexFileRun(tuple(names), before, file if file.last else None)
                names = []
                before = file if file.last else before
        if names:
            yield IndexFileRun(tuple(names), before, None)

    def _segment(self, segment: IndexFileRun, tag_keys: bool) -> None:
        before, after = segment.before, segment.after
        start = before.end_phy_offset if before is not None else 0
        stop = after.begin_phy_offset if after is not None else self.end - 1
        skip = _entries_at(before, start, from_end=True) if before is not None else 0
        taken = _entries_at(after, stop, from_end=False) if after is not None else 0
        previous = (before.end_phy_offset, before.end_timestamp) if before is not None else (0, 0)
        writer = _IndexFiles(self, list(segment.names), previous, before.name if before is not None else "")
        for offset, time, hashes in self._keys(start, stop, tag_keys):
            first, last = 0, len(offset)
            if skip and last:
                first = min(skip, int(np.count_nonzero(offset == start)))
            if taken and last:
                last -= min(taken, int(np.count_nonzero(offset == stop)))
            writer.add(offset[first:last], time[first:last], hashes[first:last])
        writer.finish()

    def _keys(self, start: int, stop: int, tag_keys: bool) -> Iterator[tuple[I64, I64, I64]]:
        """Yield offsets, store times (ms) and hashes of the entries of messages in [start, stop], in log order."""
        table = QueueTable()
        reader = KeyReader(table)

        def within(offset: I64) -> Bool:
            keep: Bool = (offset >= start) & (offset <= stop)
            return keep

        kept = np.array(sorted(self.kept), dtype=np.int64)
        kept = kept[within(kept)]
        late = [(at, _as_stored(self.kept[at])) for at in kept.tolist()]
        for view in self.views:
            if view.end <= start or view.queue.start > stop:
                continue
            for columns in view.chunks(start=start - view.body_offset if start else 0):
                if int(columns.offset[0]) > stop:
                    break
                keys = reader.keys(columns, table.of(columns))
                keep = within(keys.offset)
                if not tag_keys:
                    keep &= keys.required
                if len(kept):
                    keep &= ~np.isin(keys.offset, kept)
                order = np.flatnonzero(keep)
                order = order[np.argsort(keys.offset[order], kind="stable")]  # rare texts come last in a chunk
                offset, time, hashes = keys.offset[order], keys.time[order], keys.hash[order]
                while late and len(offset) and late[0][0] < int(offset[-1]):
                    at = int(np.searchsorted(offset, late[0][0]))
                    yield offset[:at], time[:at], hashes[:at]
                    offset, time, hashes = offset[at:], time[at:], hashes[at:]
                    yield late.pop(0)[1]
                yield offset, time, hashes
        for _, entries in late:
            yield entries

    def _tag_keys(self) -> bool:
        """Return whether this store's broker indexes TAGS values too, judging by sound files first."""
        newest_first = list(reversed(self.catalog.files))
        files = [f.path for bad in (False, True) for f in newest_first if (f.name in self.bad) is bad]
        return indexes_tags(self.store, self.logs, files, self.slots)


class _IndexFiles:
    """Fills files one after the other, and adds a step for each."""

    def __init__(self, work: IndexRebuild, names: list[str], previous: tuple[int, int], after: str) -> None:
        self.work = work
        self.names = names
        self.after = after
        self.builder = IndexFileBuilder(work.slots, work.units, previous)
        self.content = ScratchContent(work.scratch)

    def add(self, offset: I64, time: I64, hashes: I64) -> None:
        """Add entries, in log order."""
        at = 0
        while at < len(offset):
            if self.builder.room == 0:
                self._close()
            stop = min(len(offset), at + self.builder.room)
            place = index.unit_at(self.builder.index_count, self.work.slots)
            self.content.add(place, self.builder.add(offset[at:stop], time[at:stop], hashes[at:stop]))
            at = stop

    def finish(self) -> None:
        """Close the last file, and discard old files that are not replaced."""
        if self.builder.index_count > 1:
            self._close()
        for name in self.names:
            self.work.draft.discard(self.work.folder / name, WHY)

    def _close(self) -> None:
        builder, work = self.builder, self.work
        table = builder.table.astype(">i4").tobytes()
        head = builder.header() + table
        where = work.scratch.append(head)
        self.content.parts.insert(0, (0, len(head), where))
        name = self._name(builder.begin_timestamp)
        size = index.file_size(work.slots, work.units)
        old = next((e for e in work.store.index_files if e.path.name == name), None)
        if old is not None and not work.everything and _holds(work.store.files, old, size, self.content):
            work.bad.discard(name)
        else:
            if old is not None:
                work.draft.discard(old.path, WHY)
            like = next((e.path for e in work.store.index_files if e.path.name not in work.bad), None)
            work.draft.create(work.folder / name, size, self.content, WHY, like)
        self.builder = IndexFileBuilder(work.slots, work.units, (builder.end_phy_offset, builder.end_timestamp))
        self.content = ScratchContent(work.scratch)

    def _name(self, begin: int) -> str:
        """Return a file's old name, or a new one after the preceding file: names determine the order of files."""
        if self.names:
            self.after = self.names.pop(0)
            return self.after
        name = index.file_name(max(begin, 0), UTC)
        there = {e.path.name for e in self.work.store.index_files}  # these stay, or are rebuilt under their names
        if name <= self.after:
            name = f"{int(self.after) + 1:017d}"
        draft, folder = self.work.draft, self.work.folder
        while name in there or draft.path(folder / name) in draft.made:
            name = f"{int(name) + 1:017d}"
        self.after = name
        return name


def _holds(files: Files, old: DirEntry, size: int, content: Content) -> bool:
    """Return whether a file has this size and content, followed by zeros."""
    if old.length != size:
        return False
    reader = ContentReader(content)
    for at in range(0, size, CHUNK):
        wanted = min(CHUNK, size - at)
        if files.read_at(old.path, wanted, at) != reader.take(wanted).ljust(wanted, b"\0"):
            return False
    return True


def _entries_at(file: IndexFile, offset: int, *, from_end: bool) -> int:
    """Count the entries at an end of a file for the message at `offset`, whose other keys are in the adjacent file."""
    count = min(file.last, _SAMPLE)
    first = file.last - count + 1 if from_end else 1
    raw = file.units(first, count)
    units: Any = index.UNIT.array(raw)
    same = units["phy_offset"] == offset
    same = same[::-1] if from_end else same
    return leading(same)


def _as_stored(message: Contradicted) -> tuple[I64, I64, I64]:
    """Return the entries that a message has in the index, regardless of its properties."""
    hashes = np.array(message.hashes, dtype=np.int64)
    return np.full(len(hashes), message.offset), np.full(len(hashes), message.store_timestamp), hashes
