"""Simulates how a starting broker walks the commitlog in recovery and in re-dispatch.

Every version accepts the runs of good records that a scan finds, except for the records that `LogReader._take` selects.
Everything else (damage, zeros, records of another place) goes through the broker's byte-exact parser.
Source: CommitLog#recoverNormally, #recoverAbnormally (RocketMQ 4.3.0 to 5.5.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqstore.brokers.load.mapped_files import SimulatedFile
from rmqstore.brokers.log.file_bytes import FileBytes
from rmqstore.brokers.log.files import LogFiles
from rmqstore.brokers.queues.dispatch import DispatchCondition, Queues, needs_exact_parser
from rmqstore.brokers.rules.forecast import DispatchThrows, QueueKey
from rmqstore.brokers.rules.record import Checked
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import BLANK, BORN_HOST_V6, MAGIC_V2_U32, STORE_HOST_V6
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import Bool
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text

_NEVER = 1 << 63
_OTHER_FILE = Text("the PHYSICALOFFSET belongs to another file")


@dataclass(slots=True)
class Walk:
    """The end of a walk: `stop` is processOffset, `file` the index of the last file that was read."""

    stop: int
    file: int
    reason: str = ""
    fatal: bool = False
    stale: int = 0
    """Accepted records whose PHYSICALOFFSET is not their own offset."""
    half_accepted: int = 0
    sizes: int = 0
    """Sum of TOTALSIZE in the last file that was read."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How recovery walks: it begins at `begin` (bytes) of the first file.

    `accept_half`: a record whose parts do not add up does not end it. `bounded`: a record whose PHYSICALOFFSET is in
    another file does (checkCommitLogOffsetOnRecover).
    """

    begin: int = 0
    accept_half: bool = False
    bounded: bool = False

    def misses(self, checked: Checked, start: int, file_size: int) -> bool:
        """Return whether the walk ends at a record of the file that starts at `start`."""
        return self.bounded and checked.success and not start <= checked.physical_offset <= start + file_size


@dataclass(slots=True)
class _BufferDispatch:
    """The state of re-dispatch in one buffer of the log. Units: bytes, positions in the file.

    `at` is reputFromOffset, `buffer` the position in the ByteBuffer: they differ after a half message, and after an
    entry whose message is a BLANK. The buffer has `size` bytes, of which `done` count as read (half messages do not).
    Re-dispatch ends at `end`, or earlier when `ended`; `failed` means at bytes that are not a record.
    """

    at: int
    buffer: int
    size: int
    end: int
    done: int = 0
    ended: bool = False
    failed: bool = False

    def advance(self, length: int) -> None:
        """Move past a dispatched record."""
        self.at += length
        self.buffer += length
        self.done += length


@dataclass(frozen=True, slots=True)
class _Target:
    """The queues to which records are dispatched (None: no dispatch), and the condition for it."""

    queues: Queues | None
    condition: DispatchCondition

    def mask(self, part: Columns) -> Bool:
        """Return which records of a chunk are dispatched."""
        if self.queues is None:
            return np.zeros(len(part), dtype=np.bool_)
        return self.condition.mask(part.physical_offset, part.size)

    def dispatch(self, checked: Checked, *, misplaced: bool = False) -> None:
        """Dispatch one record if it meets the condition."""
        if self.queues is not None and self.condition.meets(checked.physical_offset, checked.size):
            self.queues.dispatch(checked, misplaced=misplaced)

    def dispatch_columns(self, part: Columns, mask: Bool) -> None:
        if self.queues is not None:
            self.queues.dispatch_columns(part, mask)


@dataclass(slots=True)
class DroppedRecords:
    """Good records at or after a position: those that a broker drops if it stops there."""

    messages: int = 0
    queues: Counter[QueueKey] = field(default_factory=Counter)
    """Those of them whose queues are known: all, unless the log was not read again."""
    in_kept_file: int = 0
    """Those of them whose bytes stay, in the file that contains the position."""


class LogReader(LogFiles):
    """Walks the files of a log as recovery and re-dispatch do."""

    jumped_at: int | None = None
    """Offset of the last damage at which the latest `reput` skipped the rest of the readable bytes."""

    # --- recovery -------------------------------------------------------------------------------------------------

    def walk(
        self, index: int, queues: Queues | None, condition: DispatchCondition, manner: Manner | None = None
    ) -> Walk:
        """Walk from the start of file `index` until a record fails or the last file ends; dispatch to `queues`."""
        manner = manner or Manner()
        start = self.files[index].start
        known = (
            self.known_from(start, queues) if queues is not None and not self.body_offset and not manner.begin else None
        )
        if queues is not None and known is not None and self.units is not None:
            walked = self.walk(index, None, condition, manner)
            if walked.stop >= known:
                queues.dispatch_known(self.units, start, known, condition)
                return walked
        begin = manner.begin
        out = Walk(start, index)
        columns = self.thorough or self.too_new or queues is not None
        above = _NEVER if queues is None else condition.above
        while True:
            file = self.files[out.file]
            out.stop = file.start + begin
            out.sizes = 0
            if queues is not None:
                queues.next_log_file()
            with FileBytes(file) as read:
                checked = self.check(read, begin, self.file_size)[0] if begin else None
                if checked is not None and not (checked.success and checked.size):
                    done = self._ends(checked, out) and not checked.success
                else:
                    runs = self.runs(out.file, begin, columns, above)
                    done = self._walk_file(file, read, out, runs, _Target(queues, condition), manner)
            if done or out.file + 1 >= len(self.files):
                return out
            out.file += 1
            begin = 0

    def _walk_file(
        self,
        file: SimulatedFile,
        read: FileBytes,
        out: Walk,
        runs: Iterator[Run],
        target: _Target,
        manner: Manner,
    ) -> bool:
        """Walk one file from `out.stop` on, advancing it; return False at a BLANK (the next file follows).

        Return True if the walk ends.
        """
        at = out.stop - file.start
        for run in runs:
            run_end = run.stop - file.start
            aligned = run.start - file.start == at
            while at < run_end:
                if aligned and run.kind is Kind.RECORDS and not self.all_exact:
                    part = run.columns
                    if part is not None and part.offset[0] != file.start + at + self.body_offset:
                        part = part.take(part.offset >= file.start + at + self.body_offset)
                    refused = None if part is None else self._take(part, read, file, out, target)
                    if refused is not None:
                        at, bad = refused
                        out.stop = file.start + at
                        return self._ends(bad, out)
                    out.sizes += run_end - at - self.body_offset * (run.count if part is None else len(part))
                    at = run_end
                    out.stop = file.start + at
                    continue
                checked, advance = self.check(read, at, self.file_size)
                if checked.success and checked.size == 0:
                    return False
                if not checked.success and not (manner.accept_half and checked.size > 0):
                    return self._ends(checked, out)
                if manner.misses(checked, file.start, self.file_size):
                    out.reason = _OTHER_FILE
                    return True
                aligned = checked.success and checked.physical_offset == file.start + at + self.body_offset
                self._one(checked, aligned, out, target)
                at += advance
                out.sizes += checked.size
                out.stop = file.start + at
        while True:  # after the last run the file ends, unless a broker has appended records since the scan
            checked, advance = self.check(read, at, self.file_size)
            if checked.success and checked.size == 0:
                return False
            if not checked.success:
                return self._ends(checked, out)
            if manner.misses(checked, file.start, self.file_size):
                out.reason = _OTHER_FILE
                return True
            self._one(checked, checked.physical_offset == file.start + at + self.body_offset, out, target)
            at += advance
            out.sizes += checked.size
            out.stop = file.start + at

    def _ends(self, checked: Checked, out: Walk) -> bool:
        out.reason = checked.reason
        out.fatal = checked.fatal
        return True

    def _one(self, checked: Checked, own_place: bool, out: Walk, target: _Target) -> None:
        if not checked.success:
            out.half_accepted += 1
            return
        out.stale += not own_place
        target.dispatch(checked, misplaced=not own_place)

    def _take(
        self, part: Columns, read: FileBytes, file: SimulatedFile, out: Walk, target: _Target
    ) -> tuple[int, Checked] | None:
        """Dispatch a chunk of good records; return position and verdict of the first that this version refuses."""
        odd = [] if self.is_plain(part, file) else needs_exact_parser(part)
        if not self.rules.v2:
            odd += np.flatnonzero(part.magic == MAGIC_V2_U32).tolist()
        if not self.rules.ipv6:
            odd += np.flatnonzero(part.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)).tolist()
        chosen = target.mask(part)
        done = 0
        for i in sorted(set(odd)):
            at = int(part.offset[i]) - file.start - self.body_offset
            checked, _ = self.check(read, at, self.file_size)
            if checked.success and not chosen[i]:
                continue
            before = np.zeros(len(part), dtype=np.bool_)
            before[done:i] = chosen[done:i]
            target.dispatch_columns(part, before)
            if not checked.success:
                out.sizes += int(part.size[:i].sum())
                return at, checked
            target.dispatch(checked)
            done = i + 1
        chosen[:done] = False
        target.dispatch_columns(part, chosen)
        return None

    # --- losses ---------------------------------------------------------------------------------------------------

    def losses(self, stop: int, keep: int) -> DroppedRecords:
        """Count good records at or after `stop`; `in_kept_file` counts those in the file that starts at `keep`."""
        out = DroppedRecords()
        table = QueueTable()
        for index, file in enumerate(self.files):
            if file.start + self.file_size <= stop:
                continue
            for run in self.runs(index, 0, self.thorough or self.too_new, stop, search=False):
                if run.kind is not Kind.RECORDS or run.stop <= stop:
                    continue
                count = run.count
                if run.columns is not None:
                    part = run.columns
                    if run.start < stop:
                        part = part.take(part.offset - self.body_offset >= stop)
                    count = len(part)
                    numbers, times = np.unique(table.of(part), return_counts=True)
                    for number, n in zip(numbers.tolist(), times.tolist(), strict=True):
                        out.queues[java_text(table.topics[number]), table.queue_ids[number]] += n
                out.messages += count
                if file.start == keep:
                    out.in_kept_file += count
        return out

    def good_between(self, start: int, stop: int) -> Iterator[Columns]:
        """Yield the good records in [start, stop) of the log."""
        for index, file in enumerate(self.files):
            if file.start + self.file_size <= start or file.start >= stop:
                continue
            for run in self.runs(index, 0, True, start, search=False):
                if run.kind is Kind.RECORDS and run.columns is not None and run.stop > start:
                    begin = run.columns.offset - self.body_offset
                    yield run.columns.take((begin >= start) & (begin < stop))

    # --- re-dispatch ----------------------------------------------------------------------------------------------

    def reput(self, start: int, end: int, queues: Queues) -> int:
        """Simulate ReputMessageService#doReput from `start` to `end`; return where it stops.

        Records are read without body and CRC. At unreadable bytes, a master skips the rest of the readable bytes of
        the file. A message at which dispatch throws is tried again without end.
        """
        try:
            return self._reput(start, end, queues)
        except DispatchThrows as thrown:
            return thrown.offset - self.body_offset

    def _reput(self, start: int, end: int, queues: Queues) -> int:
        if self.units is not None and start < end == self.known_from(start, queues):
            queues.dispatch_known(self.units, start, end, DispatchCondition())
            return end
        at = start
        self.jumped_at = None
        while at < end:
            index = next((i for i, f in enumerate(self.files) if f.start <= at < f.start + self.file_size), None)
            if index is None:
                if at != 0 or not self.files:
                    return at
                index, at = 0, self.files[0].start
            file = self.files[index]
            readable = min(file.wrote, end - file.start)
            position = at - file.start
            if position >= readable:
                return at
            with FileBytes(file) as read:
                place = _BufferDispatch(position, position, readable - position, end - file.start)
                self._reput_file(file, read, place, queues, index)
            if place.failed:
                self.jumped_at = file.start + place.at
                place.at += place.size - place.done
            if place.at == position:
                return at
            at = file.start + place.at
        return at

    def _reput_file(
        self, file: SimulatedFile, read: FileBytes, place: _BufferDispatch, queues: Queues, index: int
    ) -> None:
        """Dispatch the readable bytes of one file, advancing `place`."""
        readable = place.at + place.size
        for run in self.runs(index, 0, True):
            run_end = min(run.stop - file.start, readable)
            aligned = run.start - file.start == place.at
            while place.buffer < run_end and not place.ended:
                if run.kind is Kind.RECORDS and run.columns is not None and place.buffer == place.at:
                    part = run.columns
                    begin = part.offset - self.body_offset - file.start
                    inside = (begin >= place.at) & (part.offset + part.size <= file.start + readable)
                    if (aligned or bool((begin == place.at).any())) and inside.any():
                        part = part.take(inside)
                        self._take(part, read, file, Walk(0, index), _Target(queues, DispatchCondition()))
                        place.advance(int(part.offset[-1] + part.size[-1]) - file.start - place.at)
                        continue
                self._reput_one(read, place, readable, queues)
        while place.done < place.size and not place.ended:
            self._reput_one(read, place, readable, queues)

    def _reput_one(self, read: FileBytes, place: _BufferDispatch, readable: int, queues: Queues) -> None:
        """Do one iteration of the inner loop of ReputMessageService#doReput."""
        checked, advance = self.check(read, place.buffer, readable, body=False)
        if self.rules.batch_queues and place.at + advance > place.end:  # from 5.0.0 on
            place.ended = True
        elif checked.success and not advance:
            place.at += self.file_size - place.at % self.file_size  # CommitLog#rollNextFile
            place.ended = True
        elif checked.success:
            queues.dispatch(checked)
            place.advance(advance)
            if not checked.size:
                place.buffer += BLANK.size
        elif checked.size > 0:
            place.at += advance
            place.buffer += advance - checked.size + checked.parsed
        else:
            place.failed = place.ended = True
