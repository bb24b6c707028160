"""The log as it will be when the plan is carried out: its records without what is cut, with what is written over.

Rebuilding reads this view, so that consume queues and index fit the repaired log before a byte of it is changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, file_name_to_offset
from rmqstore.files.records import MAX_RECORD
from rmqstore.formats.message import MIN_SIZE, Message, parse_message
from rmqstore.repair.plan.content import Content, ContentReader, Zeros
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.steps import Create, Extend, Overwrite
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import Bool
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes [start, stop) of a log, global offsets, that the plan writes."""

    start: int
    stop: int
    content: Content


class RepairedLog:
    """One log, plain or DLedger (`lead` 0 or 48), up to `end` (global offset).

    `believed`: records as they were, where that is proved, though no step writes them; what is made from the log must
    not be made to fit their damage.
    """

    def __init__(
        self, result: LogResult, end: int, patches: Sequence[Patch] = (), believed: Sequence[Patch] = ()
    ) -> None:
        self.result = result
        self.queue: MappedFileQueue = result.queue
        self.lead = result.lead
        self.end = end
        self.believed = [p for p in believed if p.start < end and not _meets(p, patches)]
        self.patches = sorted((*(p for p in patches if p.start < end), *self.believed), key=lambda p: p.start)
        # what is framed but wrong in a place that no step covers: the scan below does not test body CRCs again
        dirty = [(r.start, r.stop) for r in result.tiling if r.kind is Kind.DIRTY]
        self._outside = _Spans(dirty)
        self._covered = _Spans([(p.start, p.stop) for p in self.patches])
        self._straddled: dict[int, int] = {}  # records that a patch changes in part: start -> stop
        for run in result.tiling:
            if (
                run.kind is Kind.DIRTY
                and run.count
                and any(
                    not (p.start <= run.start and run.stop <= p.stop)
                    for p in self.patches
                    if p.start < run.stop and run.start < p.stop
                )
            ):
                self._straddled[run.start] = run.stop

    @staticmethod
    def of(result: LogResult, end: int, draft: PlanBuilder, believed: Sequence[Patch] = ()) -> RepairedLog:
        """The view that the steps of a draft leave."""
        homes = {draft.path(d): d for d in result.queue.directories}
        patches = []
        tails: dict[int, Content] = {}  # what makes files longer; a record can begin before it
        for step in draft.steps:
            if not isinstance(step, Overwrite | Create | Extend) or isinstance(step.content, Zeros):
                continue
            home, _, name = step.path.rpartition("/")
            start = file_name_to_offset(name)
            if home not in homes or start is None:
                continue
            at = 0 if isinstance(step, Create) else step.at
            if isinstance(step, Extend):
                tails[start + at] = step.content
            elif step.content.size:
                patches.append(Patch(start + at, start + at + step.content.size, step.content))
        joined = [_longer(p, tails.pop(p.stop)) if p.stop in tails else p for p in patches]
        joined += [Patch(start, start + tail.size, tail) for start, tail in tails.items() if tail.size]
        return RepairedLog(result, end, joined, believed)

    @property
    def changed(self) -> bool:
        """Whether steps write into it."""
        return len(self.patches) > len(self.believed)

    def chunks(self, files: Sequence[MappedFile] | None = None, start: int = 0) -> Iterator[Columns]:
        """Records of the view that are in the files, in address order; `patched` has those that steps write."""
        for file in self.queue.files if files is None else files:
            if file.start >= self.end or file.stop <= start:
                continue
            stop = min(file.file_size, self.end - file.start)
            for run in scan_file(file, stop=stop, lead=self.lead, exact=True, options=ScanOptions(crc=False)):
                if run.kind is not Kind.RECORDS or run.columns is None or run.stop <= start:
                    continue
                columns = self._kept(run.columns, run.start, run.stop, start)
                if len(columns):
                    yield columns

    def _kept(self, columns: Columns, low: int, high: int, start: int) -> Columns:
        keep: Bool | None = None
        if low < start or high > self.end:
            begins = columns.offset - self.lead
            keep = (begins >= start) & (begins + columns.size + self.lead <= self.end)
        for spans in (self._outside, self._covered):
            for a, b in spans.within(low, high):
                if keep is None:
                    keep = np.ones(len(columns), dtype=np.bool_)
                begins = columns.offset - self.lead
                stops = columns.offset + columns.size
                hit = (begins < b) & (stops > a)
                keep &= ~hit
                if spans is self._covered:
                    for i in np.flatnonzero(hit & ((begins < a) | (stops > b))).tolist():
                        self._straddled[int(begins[i])] = int(stops[i])
        return columns if keep is None else columns.take(keep)

    def patched(self) -> Iterator[tuple[int, Message]]:
        """(global offset, message) of the records that the steps write or change; call it after `chunks`."""
        done: list[tuple[int, int]] = []
        for start, stop in sorted(self._straddled.items()):
            done.append((start, stop))
            raw = bytearray(self.queue.pread(stop - start, start))
            for patch in self.patches:
                if patch.start < stop and patch.stop > start:
                    self._overlay(raw, start, patch)
            at = 0
            while at + self.lead + MIN_SIZE <= len(raw):
                message, _ = parse_message(bytes(raw), at + self.lead)
                if message is None:
                    break
                yield start + at + self.lead, message
                at += self.lead + message.size
        for patch in self.patches:
            if any(a < patch.stop and patch.start < b for a, b in done):
                continue
            yield from self._records(patch)

    @staticmethod
    def _overlay(raw: bytearray, start: int, patch: Patch) -> None:
        reader = ContentReader(patch.content)
        reader.take(max(0, start - patch.start))
        at = max(0, patch.start - start)
        new = reader.take(min(patch.stop - max(patch.start, start), len(raw) - at))
        raw[at : at + len(new)] = new

    def _records(self, patch: Patch) -> Iterator[tuple[int, Message]]:
        reader = ContentReader(patch.content)
        at = patch.start
        while at + self.lead + MIN_SIZE <= patch.stop:
            head = reader.take(self.lead + 4)
            size = int.from_bytes(head[self.lead :], "big", signed=True)
            if len(head) < self.lead + 4 or not MIN_SIZE <= size <= MAX_RECORD:
                return
            message, _ = parse_message(head[self.lead :] + reader.take(size - 4))
            if message is None:
                return
            yield at + self.lead, message
            at += self.lead + size

    def bytes_at(self, size: int, offset: int) -> bytes:
        """Bytes of the view at a global offset; zeros where neither a file nor a step has any."""
        raw = bytearray(self.queue.pread(size, offset).ljust(size, b"\0"))
        for patch in self.patches:
            if patch.start < offset + len(raw) and patch.stop > offset:
                self._overlay(raw, offset, patch)
        return bytes(raw)


@dataclass(frozen=True, slots=True)
class _Joined:
    """Two contents, one behind the other."""

    first: Content
    second: Content

    @property
    def size(self) -> int:
        return self.first.size + self.second.size

    def pieces(self) -> Iterator[bytes | int]:
        yield from self.first.pieces()
        yield from self.second.pieces()


def _meets(patch: Patch, others: Sequence[Patch]) -> bool:
    return any(other.start < patch.stop and patch.start < other.stop for other in others)


def _longer(patch: Patch, tail: Content) -> Patch:
    return Patch(patch.start, patch.stop + tail.size, _Joined(patch.content, tail))


class _Spans:
    """Sorted ranges, asked for overlaps."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        ordered = sorted(spans)
        self._starts = [a for a, _ in ordered]
        self._stops = [b for _, b in ordered]

    def within(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        i = bisect_right(self._stops, low) if self._stops else 0
        stop = bisect_left(self._starts, high)
        for k in range(i, stop):
            yield self._starts[k], self._stops[k]
