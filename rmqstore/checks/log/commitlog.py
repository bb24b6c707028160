"""The commitlog and DLedger data as a whole: parts of the pass put together, and what only the whole can tell."""

from __future__ import annotations

import copy
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.control_tally import ControlTally
from rmqstore.checks.log.entry_tally import EntryTally
from rmqstore.checks.log.log_pass import BatchRow, LogPart, PassOptions, scan_split, unit_reader
from rmqstore.checks.log.queue_parts import QueuePart, UnitRows, add_interval
from rmqstore.checks.problems.report import Findings
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.message import Fault
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE, Mapper, Split, joined, plan_splits

Progress = Callable[[int], None]
UnitOf = Callable[[str, int, int], int | None]


class UnitKeeper(KnownUnits, Protocol):
    """Takes the units of a log's messages while a pass goes over it, in address order."""

    def begin_log(self) -> None:
        """A log's pass begins."""

    def forget_log(self) -> None:
        """Take back what came since: the log is read once more."""

    def add(self, rows: Iterable[UnitRows], *, complete: bool) -> None:
        """Units of a part of the log; `complete` is false where messages that are owed one have none here."""


@dataclass(slots=True)
class Misfiled:
    """Records whose header says another queue than the unit that points to them: their offsets, and those units."""

    offsets: set[int] = field(default_factory=set)
    units: set[tuple[str, int, int]] = field(default_factory=set)


@dataclass(slots=True)
class LogResult:
    """What the pass over one log (plain or DLedger) gave.

    `wrote`, `next_append`, `stop` in bytes, global offsets; times in ms. `stale_from`: where old records of a
    truncated log begin (None: nowhere). `lead` is 0 or 48.
    """

    queue: MappedFileQueue
    tiling: Tiling
    lead: int
    messages: int = 0
    bytes: int = 0
    first_time: int = -1
    last_time: int = -1
    max_time: int = -1
    min_time: int = 1 << 62
    entries: EntryTally = field(default_factory=EntryTally)
    index: IndexTally = field(default_factory=IndexTally)
    queues: dict[tuple[str, int], QueuePart] = field(default_factory=dict)
    batches: dict[tuple[str, int], list[BatchRow]] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)  # topics that only their messages prove to have a BatchCQ
    back_from: int | None = None
    back_max: int = -1
    damaged_time: int = -1
    stale_from: int | None = None
    unreadable: bool = False
    expired_to: int = 0  # files below this vanished while a live broker was looked at
    controls: ControlTally = field(default_factory=ControlTally)
    fillers: list[int] = field(default_factory=list)  # offsets of records that a repair put there
    cut_at: int | None = None  # where a deadline ended the reading
    grows: bool = False  # a broker writes to it: what lies behind the end is not judged

    @property
    def wrote(self) -> int:
        """End of the last good record that is not stale."""
        if self.stale_from is None:
            return self.tiling.wrote()
        before = [r.stop for r in self.tiling if r.kind is Kind.RECORDS and r.start < self.stale_from]
        return min(before[-1], self.stale_from) if before else self.tiling.start

    @property
    def reaches(self) -> int:
        """End of the last record, also of one that is framed but wrong: what units and entries may point to."""
        end = self.wrote
        for run in self.tiling.tail() if self.stale_from is None else []:
            if run.kind is not Kind.DIRTY or not run.count:
                break
            end = run.stop
        return end

    @property
    def rolled(self) -> int:
        """The same, or the end of the BLANK behind it, as a broker reports it after closing a file."""
        run = self.tiling.find(self.reaches) if self.stale_from is None else None
        return run.stop if run is not None and run.kind is Kind.BLANK else self.reaches

    @property
    def damaged_tail(self) -> int:
        """Framed but wrong records directly behind the last good one."""
        end = self.reaches
        return sum(r.count for r in self.tiling.tail() if r.stop <= end)

    @property
    def latest(self) -> int:
        """Greatest store time of any framed record (ms); that of a wrong one counts when it is near."""
        near = self.max_time <= self.damaged_time <= self.max_time + 86_400_000
        return self.damaged_time if near else self.max_time

    @property
    def next_append(self) -> int:
        return self.tiling.next_append() if self.stale_from is None else self.wrote

    @property
    def min_offset(self) -> int:
        """Start of the first file (CommitLog#getMinOffset)."""
        return max(self.queue.begin, self.expired_to)

    def file_of(self, offset: int) -> str:
        """Name of the file that holds a global offset; "" without one."""
        file = self.queue.find(offset)
        return file.name if file else ""

    def numbers(self) -> dict[str, Any]:
        """What a report says of this log, as plain one or as DLedger data; times only where it has messages."""
        times = {"first_timestamp": self.first_time, "last_timestamp": self.max_time} if self.messages else {}
        if self.lead:
            return {
                "group_dir": "",
                "first_index": self.entries.first_index,
                "last_index": self.entries.last_index,
                "term": self.entries.last_term,
                "first_pos": self.min_offset,
                "wrote": self.wrote,
                "committed_index": None,
                "entries": self.messages + self.entries.internal,
                "damaged": self.damaged,
                "files": len(self.queue.files),
                **times,
            }
        return {
            "min_offset": self.min_offset,
            "wrote": self.wrote,
            "next_append": self.next_append,
            "files": len(self.queue.files),
            "messages": self.messages,
            "damaged": self.damaged,
            "bytes": self.bytes,
            "file_size": self.queue.file_size,
            **times,
        }

    @property
    def damaged(self) -> int:
        """Records that are framed but wrong: their place in the log is known, and what is wrong with them was said."""
        return sum(run.count for run in self.tiling if run.kind is Kind.DIRTY)

    def bad_between(self, low: int, high: int) -> bool:
        """Whether damage, zeros or a hole lie within [low, high)."""
        starts, stops = self._bad
        i = bisect_left(stops, low + 1)
        return i < len(starts) and starts[i] < high

    def disbelieve(self, start: int) -> None:
        """Take the BLANK at `start` (global offset) for damage from now on."""
        self.tiling.disbelieve(start, Fault.BLANK)
        self._bad_cache = None

    _bad_cache: tuple[list[int], list[int]] | None = None

    @property
    def _bad(self) -> tuple[list[int], list[int]]:
        if self._bad_cache is None:
            bad = [r for r in self.tiling if r.kind in (Kind.DIRTY, Kind.HOLE, Kind.ZERO)]
            self._bad_cache = ([r.start for r in bad], [r.stop for r in bad])
        return self._bad_cache


class KnownParts(Protocol):
    """Knows parts of a log that need not be read again."""

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return what reads the other parts, by `inner` or by `jobs` processes, and yields all in order."""


@dataclass(frozen=True, slots=True)
class PassWork:
    """How a pass over a log is carried out: by how many processes, in which splits (bytes), until when.

    `mapper` does the work in place of `jobs` processes. Behind `deadline` (monotonic clock, s) no further split is
    begun: `LogResult.cut_at` then says how far the pass came. `units` gets the units that the messages should have.
    `known` are parts that need not be read again.
    """

    jobs: int = 1
    split_size: int = SPLIT_SIZE
    progress: Progress | None = None
    mapper: Mapper | None = None
    deadline: float | None = None
    units: UnitKeeper | None = None
    known: KnownParts | None = None

    def parts(self, splits: Sequence[Split], options: PassOptions) -> Iterator[tuple[Split, LogPart]]:
        """What the splits say, joined."""
        mapper = self.mapper
        if self.known is not None and not options.keep_units:  # units are not kept
            options = replace(options, watch=True)
            mapper = self.known.mapper(options, self.jobs, self.mapper)
        return joined(partial(scan_split, options=options), splits, self.jobs, mapper)


def read_log(
    queue: MappedFileQueue,
    options: PassOptions,
    findings: Findings,
    *,
    lead: int = 0,
    work: PassWork | None = None,
) -> LogResult:
    """Pass over all files of a log and put the parts together. Findings about records are in `findings` behind it."""
    work = work or PassWork()
    units = work.units
    if units is not None:
        options = replace(options, keep_units=True)
        units.begin_log()
    splits = plan_splits(queue, lead=lead, size=work.split_size)
    result = _pass(queue, lead, options, work.parts(splits, options), findings, work)
    if result.inner:
        options = replace(options, batch_topics=options.batch_topics | result.inner)
        if units is not None:
            units.forget_log()
        parts = work.parts(splits, options)
        silent = replace(work, progress=None)
        inner, result = result.inner, _pass(queue, lead, options, parts, Findings(keep=0), silent)
        result.inner |= inner
    _stale(result)
    if result.stale_from is not None:  # what stale records say of queues, keys and entries is not of this log
        stop = min(result.stale_from, options.stop_before)
        valid = [s for s in splits if s.file.start < stop]
        if units is not None:
            units.forget_log()
        parts = work.parts(valid, replace(options, stop_before=stop))
        again = _pass(queue, lead, options, parts, Findings(keep=0), replace(work, progress=None, deadline=None))
        again.tiling, again.stale_from = result.tiling, result.stale_from
        again.back_from, again.back_max = result.back_from, result.back_max
        again.inner |= result.inner
        again.damaged_time, again.unreadable = result.damaged_time, result.unreadable
        again.expired_to = max(result.expired_to, again.expired_to)
        return again
    return result


def _pass(
    queue: MappedFileQueue,
    lead: int,
    options: PassOptions,
    parts: Iterable[tuple[Split, LogPart]],
    findings: Findings,
    work: PassWork,
) -> LogResult:
    unit_at = unit_reader(options)
    result = LogResult(queue, Tiling(queue.begin), lead)
    result.tiling.breaks = frozenset(f.start for f in queue.files)
    result.tiling.parsed = set() if options.crosscheck or options.forecast else None
    for split, part in parts:
        if part.vanished:
            result.expired_to = split.file.stop
            continue
        _append(result, part, findings, unit_at)
        if work.units is not None:
            work.units.add(part.units, complete=part.units_complete)
        if work.progress is not None:
            work.progress(split.stop - split.start)
        # whole files, so that a run that goes on begins at a boundary and every run gets on
        late = work.deadline is not None and time.monotonic() > work.deadline
        if late and split.stop >= split.file.file_size and split.file.stop < queue.stop:
            result.cut_at = split.file.stop
            break
    for name, queue_part in result.queues.items():
        queue_part.judge(partial(unit_at, *name), all_of_it=True)
    return result


def _append(result: LogResult, part: LogPart, findings: Findings, unit_at: UnitOf) -> None:
    tiling = result.tiling
    for run in part.runs:
        if run.start > tiling.stop:
            tiling.add(Run(Kind.HOLE, tiling.stop, run.start))
        tiling.add(run)
        result.unreadable |= run.cause is Fault.UNREADABLE
    if tiling.parsed is not None:
        tiling.parsed |= part.parsed
    findings.merge(part.findings)
    result.fillers.extend(part.fillers)
    result.controls.merge(part.controls)
    result.messages += part.messages
    result.damaged_time = max(result.damaged_time, part.damaged_time)
    result.bytes += part.bytes
    if part.messages:
        if result.first_time < 0:
            result.first_time = part.first_time
        result.last_time = part.last_time
        result.entries.merge(part.entries)
        result.index.merge(part.index)
        if part.max_time < result.max_time:
            if result.back_from is None:
                result.back_from = part.first_at
            result.back_max = max(result.back_max, part.max_time)
        else:
            result.back_from, result.back_max = part.back_from, part.back_max
        result.max_time = max(result.max_time, part.max_time)
        result.min_time = min(result.min_time, part.min_time)
    result.inner |= part.inner
    for name, rows in part.batches.items():
        result.batches.setdefault(name, []).extend(rows)
    for name, new in part.queues.items():
        known = result.queues.setdefault(name, new)
        if known is not new:
            for stretch in new.stretches:
                known.add_stretch(stretch)
            _extend(known, new)
        if len(known.stretches) > 1:
            known.judge(partial(unit_at, *name), all_of_it=False)


def join_queues(results: list[LogResult]) -> dict[tuple[str, int], QueuePart]:
    """The queues of several logs in address order as one: queue offsets go on from the legacy log to DLedger."""
    if len(results) == 1:
        return results[0].queues
    out: dict[tuple[str, int], QueuePart] = {}
    for result in results:
        for name, part in result.queues.items():
            if name in out:
                _join(out[name], part)
            else:
                out[name] = copy.deepcopy(part)
    return out


def _join(known: QueuePart, new: QueuePart) -> None:
    """Go on with the next log: both have been judged."""
    known.follow(new)
    known.gaps.extend(new.gaps)
    known.outliers.extend(new.outliers)
    known.restarts.extend(new.restarts)
    known.repeats.extend(new.repeats)
    known.repeat_count += new.repeat_count
    _extend(known, new)


def _extend(known: QueuePart, new: QueuePart) -> None:
    known.messages += new.messages
    for interval in new.accounted:
        add_interval(known.accounted, *interval)
    for missing in new.missing:
        known.add_missing(missing)
    for shifted in new.shifted:
        known.add_shifted(shifted)


def _stale(result: LogResult) -> None:
    """Old records behind the end: older than the records before them, and behind a torn record or repeating offsets.

    After a broker truncated its log it writes over the old records; what it has not reached stays. Where the new end
    does not meet an old record's start a torn rest lies between them, else queue offsets repeat. Files behind the one
    with the end are deleted when a log is truncated, so all of it lies in that file.
    Source: MappedFileQueue#truncateDirtyFiles, RocketMQ 5.4.0
    """
    start = result.back_from
    file = result.queue.find(start) if start is not None else None
    if start is None or file is None or result.tiling.wrote() > file.stop:
        return
    if start == file.start:  # a file behind the end is deleted: the bytes before this one are not of this log
        return
    torn = result.tiling.find(start - 1) if start > result.tiling.start else None
    behind = [at for part in result.queues.values() for at, _ in part.repeats if at >= start]
    if (torn is not None and torn.kind is Kind.DIRTY and not torn.count and torn.stop == start) or behind:
        result.stale_from = start


def end_of_log(queue: MappedFileQueue, lead: int = 0) -> int:
    """The wrote position now, from the last file that holds anything: what a look at a live log is bounded by."""
    for file in reversed(queue.files):
        tiling = Tiling(file.start)
        try:
            for run in scan_file(file, lead=lead, options=ScanOptions(crc=False)):
                tiling.add(Run(run.kind, run.start, run.stop, run.count))
        except FileNotFoundError:
            continue
        if tiling.records():
            return reach_of(tiling)
    return queue.start


def reach_of(tiling: Tiling) -> int:
    """End of the last record of any kind, good or framed but wrong or stale."""
    return max(tiling.wrote(), *(r.stop for r in tiling if r.count), tiling.start)
