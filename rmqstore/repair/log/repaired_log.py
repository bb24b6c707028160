"""A view of the log after the repair, with the changes of a plan and without what the plan cuts off.

Consume queues and index are rebuilt from this view, so that they fit the repaired log before a byte of it is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, file_name_to_offset
from rmqstore.files.records import MAX_RECORD
from rmqstore.formats.message import MIN_SIZE, Message, parse_message
from rmqstore.repair.log.spans import meets, overlapping
from rmqstore.repair.plan.content import Content, ContentReader, Parts, Zeros
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.steps import Create, Extend, Overwrite
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes [start, stop) of a log (global offsets) that the plan writes."""

    start: int
    stop: int
    content: Content


class RepairedLog:
    """One log, plain or DLedger (`body_offset` 0 or 48), up to `end` (global offset).

    `proved` are original records that no step writes, so that queues and index are not rebuilt to fit their damage.
    """

    def __init__(
        self, result: LogResult, end: int, patches: Sequence[Patch] = (), proved: Sequence[Patch] = ()
    ) -> None:
        self.result = result
        self.queue: MappedFileQueue = result.queue
        self.body_offset = result.body_offset
        self.end = end
        self.proved = [p for p in proved if p.start < end and not _meets(p, patches)]
        self.patches = sorted((*(p for p in patches if p.start < end), *self.proved), key=lambda p: p.start)
        # `chunks` does not compute body CRCs, so it skips framed records in damage that no step covers
        dirty = [run for run in result.tiling if run.kind is Kind.DIRTY]
        self._damaged = [(run.start, run.stop) for run in dirty]
        self._covered = [(p.start, p.stop) for p in self.patches]
        self._straddled: dict[int, int] = {}  # records that a patch changes in part: start -> stop
        for run in dirty:
            patched = overlapping(self._covered, run.start, run.stop) if run.count else ()
            if any(run.start < start or stop < run.stop for start, stop in patched):
                self._straddled[run.start] = run.stop

    @staticmethod
    def of(result: LogResult, end: int, draft: PlanBuilder, proved: Sequence[Patch] = ()) -> RepairedLog:
        """Return the view of a log after the steps of a draft."""
        homes = {draft.path(directory) for directory in result.queue.directories}
        patches = []
        tails: dict[int, Content] = {}  # appended to files; the first record may begin before
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
        return RepairedLog(result, end, joined, proved)

    def until(self, end: int) -> RepairedLog:
        """Return the view up to an earlier end (global offset)."""
        return RepairedLog(self.result, end, [p for p in self.patches if p not in self.proved], self.proved)

    def as_written(self) -> RepairedLog:
        """Return the view with nothing but what steps write."""
        return RepairedLog(self.result, self.end, [p for p in self.patches if p not in self.proved])

    @property
    def changed(self) -> bool:
        """Return whether steps write into it."""
        return len(self.patches) > len(self.proved)

    def writes(self, at: int) -> bool:
        """Return whether a step writes the byte at a global offset, or whether its original is proved."""
        return any(patch.start <= at < patch.stop for patch in self.patches)

    def chunks(self, files: Sequence[MappedFile] | None = None, start: int = 0) -> Iterator[Columns]:
        """Yield the records of the view that no step changes, in address order; `patched` yields the others."""
        for file in self.queue.files if files is None else files:
            if file.start >= self.end or file.stop <= start:
                continue
            stop = min(file.file_size, self.end - file.start)
            for run in scan_file(
                file, stop=stop, body_offset=self.body_offset, exact=True, options=ScanOptions(crc=False)
            ):
                if run.kind is not Kind.RECORDS or run.columns is None or run.stop <= start:
                    continue
                columns = self._kept(run.columns, run.start, run.stop, start)
                if len(columns):
                    yield columns

    def _kept(self, columns: Columns, low: int, high: int, start: int) -> Columns:
        damaged, covered = overlapping(self._damaged, low, high), overlapping(self._covered, low, high)
        if start <= low and high <= self.end and not damaged and not covered:
            return columns
        begins, stops = columns.offset - self.body_offset, columns.offset + columns.size
        keep = (begins >= start) & (stops <= self.end)
        for a, b in (*damaged, *covered):
            keep &= (begins >= b) | (stops <= a)
        for a, b in covered:
            in_part = ((begins < a) & (a < stops)) | ((begins < b) & (b < stops))
            for i in np.flatnonzero(in_part).tolist():
                self._straddled[int(begins[i])] = int(stops[i])
        return columns.take(keep)

    def patched(self) -> Iterator[tuple[int, Message]]:
        """Yield (global offset, message) of the records that steps write or change; call it after `chunks`."""
        straddled = sorted(self._straddled.items())
        for start, stop in straddled:
            raw, at = self.bytes_at(stop - start, start), 0
            while at + self.body_offset + MIN_SIZE <= len(raw):
                message, _ = parse_message(raw, at + self.body_offset)
                if message is None:
                    break
                yield start + at + self.body_offset, message
                at += self.body_offset + message.size
        for patch in self.patches:
            if not meets((patch.start, patch.stop), straddled):
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
        while at + self.body_offset + MIN_SIZE <= patch.stop:
            head = reader.take(self.body_offset + 4)
            size = int.from_bytes(head[self.body_offset :], "big", signed=True)
            if len(head) < self.body_offset + 4 or not MIN_SIZE <= size <= MAX_RECORD:
                return
            message, _ = parse_message(head[self.body_offset :] + reader.take(size - 4))
            if message is None:
                return
            yield at + self.body_offset, message
            at += self.body_offset + size

    def bytes_at(self, size: int, offset: int) -> bytes:
        """Read bytes of the view at a global offset; bytes that neither a file nor a step has are zeros."""
        raw = bytearray(self.queue.pread(size, offset).ljust(size, b"\0"))
        for patch in self.patches:
            if patch.start < offset + len(raw) and patch.stop > offset:
                self._overlay(raw, offset, patch)
        return bytes(raw)


def _meets(patch: Patch, others: Sequence[Patch]) -> bool:
    return any(other.start < patch.stop and patch.start < other.stop for other in others)


def _longer(patch: Patch, tail: Content) -> Patch:
    return Patch(patch.start, patch.stop + tail.size, Parts((patch.content, tail)))
