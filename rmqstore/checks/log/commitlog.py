"""Read a whole log (commitlog or DLedger data): join the parts of the pass, and judge what needs the whole log.

`too_young_to_expire` judges the files before the first one: can the broker have deleted them because of their age?
Deleted files leave no other trace: units that point before the log are normal until their queue file expires too.
Source: MappedFileQueue#deleteExpiredFileByTime (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

import copy
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.log_contents import LogContents
from rmqstore.checks.log.log_pass import LogPart, PassOptions, scan_split, unit_reader
from rmqstore.checks.log.queue_parts import Missing, QueuePart, UnitRows, Witness
from rmqstore.checks.log.stored_units import forget_units
from rmqstore.checks.problems.report import Fact, Finding, Findings, Reused
from rmqstore.files.mapped_file_queue import MappedFileQueue, message_at
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import Fault, Message, NewerRecords
from rmqstore.scan.dispatch import BatchRow
from rmqstore.scan.old_records import end_before_old_records
from rmqstore.scan.records import scan_file
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Mapper, Workers, joined, plan_splits
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog


UnitOf = Callable[[str, int, int], int | None]


class UnitKeeper(KnownUnits, Protocol):
    """Collects the units that a log's messages should have, in address order."""

    def begin_log(self) -> None:
        """Start a log."""

    def forget_log(self) -> None:
        """Discard the units added since `begin_log`: the log is read once more."""

    def add(self, rows: Iterable[UnitRows], *, complete: bool) -> None:
        """Add the units of a part of the log; not `complete` if units of some of its messages are left out."""


@dataclass(slots=True)
class Misfiled:
    """Records whose header names another queue than the unit that points to them: their offsets, and these units."""

    offsets: set[int] = field(default_factory=set)
    units: set[tuple[str, int, int]] = field(default_factory=set)

    def explains(self, missing: Missing) -> bool:
        """Return whether messages lack a unit because they are one such record."""
        return missing.count == 1 and missing.first_at in self.offsets


@dataclass(slots=True)
class LogResult(LogContents):
    """The result of the pass over one log. Offsets are global, in bytes; times in ms.

    `body_offset`: bytes before each record, 0 in a commitlog and 48 in DLedger data. `stale_from`: start of old records
    of a truncated log; None if there are none. `expired_to`: the end of the files that a live broker deleted during the
    pass. `cut_at`: where the deadline ended the pass.
    """

    queue: MappedFileQueue
    tiling: Tiling
    body_offset: int
    index: IndexTally = field(default_factory=IndexTally)
    batches: dict[QueueName, list[BatchRow]] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)  # topics that have a BatchCQ according to their messages only
    damaged_time: int = -1  # greatest store time of framed but damaged records
    stale_from: int | None = None
    unreadable: bool = False
    expired_to: int = 0
    cut_at: int | None = None

    @property
    def name(self) -> str:
        """The log's name in findings: "commitlog" or "dledger"."""
        return self.queue.name

    @property
    def wrote(self) -> int:
        """End of the last good record that is not stale."""
        if self.stale_from is None:
            return self.tiling.wrote()
        before = [r.stop for r in self.tiling if r.kind is Kind.RECORDS and r.start < self.stale_from]
        return min(before[-1], self.stale_from) if before else self.tiling.start

    @property
    def reaches(self) -> int:
        """End of the last record, good or framed but damaged: units and index entries may point up to here."""
        end = self.wrote
        for run in self.tiling.tail() if self.stale_from is None else []:
            if run.kind is not Kind.DIRTY or not run.count:
                break
            end = run.stop
        return end

    @property
    def rolled(self) -> int:
        """Like `reaches`, but after the BLANK that follows: a broker reports this offset after it closed a file."""
        run = self.tiling.find(self.reaches) if self.stale_from is None else None
        return run.stop if run is not None and run.kind is Kind.BLANK else self.reaches

    @property
    def damaged_tail(self) -> int:
        """Number of framed but damaged records directly after the last good one."""
        end = self.reaches
        return sum(r.count for r in self.tiling.tail() if r.stop <= end)

    @property
    def latest(self) -> int:
        """Greatest store time of all framed records (ms); a damaged record counts if its time is plausible."""
        near = self.max_time <= self.damaged_time <= self.max_time + 86_400_000
        return self.damaged_time if near else self.max_time

    @property
    def next_append(self) -> int:
        return self.tiling.next_append() if self.stale_from is None else self.wrote

    @property
    def min_offset(self) -> int:
        """Start of the first file (CommitLog#getMinOffset)."""
        return max(self.queue.begin, self.expired_to)

    def finding(self, code: str, start: int, length: int, facts: Mapping[str, Fact] | None = None) -> Finding:
        """Make a finding about `length` bytes of this log from a global offset on."""
        return Finding(code, self.name, self.queue.name_at(start), start, length, facts or {})

    def numbers(self) -> dict[str, Any]:
        """Return the object `commitlog` or `dledger` of the report."""
        times = {"first_timestamp": self.first_time, "last_timestamp": self.max_time} if self.messages else {}
        if self.body_offset:
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
        """Number of records that are framed but damaged."""
        return sum(run.count for run in self.tiling if run.kind is Kind.DIRTY)

    def bad_between(self, low: int, high: int) -> bool:
        """Return whether there is damage, zeros or a hole within [low, high)."""
        starts, stops = self._bad
        i = bisect_left(stops, low + 1)
        return i < len(starts) and starts[i] < high

    def witness(self, queue: QueueName, unit_at: UnitOf) -> Witness:
        """Return what confirms or denies the queue offsets of a queue's records."""
        return Witness(partial(unit_at, *queue), self.bad_between, self.queue.file_size)

    def extend(self, runs: Iterable[Run]) -> None:
        """Append the runs of the next split, after a hole if files are missing before it."""
        for run in runs:
            if run.start > self.tiling.stop:
                self.tiling.add(Run(Kind.HOLE, self.tiling.stop, run.start))
            self.tiling.add(run)
            self.unreadable |= run.cause is Fault.UNREADABLE
        self._bad_cache = None

    def mark_dirty(self, start: int) -> None:
        """Treat the BLANK at `start` (global offset) as damage from now on."""
        self.tiling.mark_dirty(start, Fault.BLANK)
        self._bad_cache = None

    _bad_cache: tuple[list[int], list[int]] | None = None

    @property
    def _bad(self) -> tuple[list[int], list[int]]:
        if self._bad_cache is None:
            bad = [r for r in self.tiling if r.kind in (Kind.DIRTY, Kind.HOLE, Kind.ZERO)]
            self._bad_cache = ([r.start for r in bad], [r.stop for r in bad])
        return self._bad_cache


def is_framed(run: Run) -> bool:
    """Return whether a run has damaged records with valid framing, whose headers name their places."""
    return run.kind is Kind.DIRTY and bool(run.count) and run.cause is not Fault.PHYSICAL_OFFSET


def framed_records(log: LogResult, start: int, stop: int) -> Iterator[tuple[int, Message]]:
    """Yield (global offset, in DLedger of the entry; message) of consecutive records within a span."""
    at = start
    while at < stop:
        message = message_at(log.queue, at + log.body_offset, stop - at - log.body_offset)
        if message is None:
            return
        yield at, message
        at += log.body_offset + message.size


IndexCheck = Callable[[Findings], "IndexCatalog"]
"""Checks the index files, and adds what it finds."""


class KnownParts(Protocol):
    """Parts of a store that need not be read again. `reused`: the files that were not read; None: not told.

    `digests`: whether the parts of this verification need digests of what they are compared with.
    """

    @property
    def reused(self) -> Reused | None: ...

    @property
    def digests(self) -> bool: ...

    def begin(self) -> None:
        """Start a verification."""

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Check the index files, unless the result is known. Called before `mapper`."""

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that reads only unknown parts, with `inner` or `jobs` processes, and yields all in order."""


@dataclass(frozen=True, slots=True)
class PassWork(Workers):
    """How a pass over a log is carried out.

    After `deadline` (monotonic clock, s), no further split is read. `units` collects the units that the messages
    should have. `known` parts are not read again.
    """

    deadline: float | None = None
    units: UnitKeeper | None = None
    known: KnownParts | None = None

    def parts(self, splits: Sequence[Split], options: PassOptions) -> Iterator[tuple[Split, LogPart]]:
        """Read splits and yield them with their parts, in address order."""
        mapper = self.mapper
        if self.known is not None:
            options = replace(options, watch=True, digests=self.known.digests)
            mapper = self.known.mapper(options, self.jobs, self.mapper)
        return joined(partial(scan_split, options=options), splits, self.jobs, mapper)


def read_log(
    queue: MappedFileQueue,
    options: PassOptions,
    findings: Findings,
    *,
    body_offset: int = 0,
    work: PassWork | None = None,
) -> LogResult:
    """Read all files of a log, add the findings about single records to `findings`, and return the joined parts."""
    work = work or PassWork()
    units = work.units
    if units is not None:
        options = replace(options, keep_units=True)
        units.begin_log()
    splits = plan_splits(queue, body_offset=body_offset, size=work.split_size)
    result = _pass(queue, body_offset, options, splits, findings, work)

    def reread(options: PassOptions, splits: Sequence[Split], work: PassWork) -> LogResult:
        if units is not None:
            units.forget_log()
        return _pass(queue, body_offset, options, splits, Findings(keep=0), replace(work, progress=None))

    if result.inner:
        options = replace(options, batch_topics=options.batch_topics | result.inner)
        inner, result = result.inner, reread(options, splits, work)
        result.inner |= inner
    _find_stale(result)
    if result.stale_from is not None:  # queue offsets, keys and entries of stale records do not belong to this log
        stop = min(result.stale_from, options.stop_before)
        valid = [s for s in splits if s.file.start < stop]
        again = reread(replace(options, stop_before=stop), valid, replace(work, deadline=None))
        again.tiling, again.stale_from = result.tiling, result.stale_from
        again.back_from, again.back_max = result.back_from, result.back_max
        again.inner |= result.inner
        again.damaged_time, again.unreadable = result.damaged_time, result.unreadable
        again.expired_to = max(result.expired_to, again.expired_to)
        return again
    return result


def read_log_from(
    queue: MappedFileQueue, begin: int, options: PassOptions, findings: Findings, body_offset: int, work: PassWork
) -> LogResult:
    """Read a log from a global offset on at which a record starts, one split per file, and join the parts.

    The records before `begin` are unknown, so batch topics and stale records are those of the part that is read.
    """
    splits = [
        Split(file, max(begin - file.start, 0), file.file_size, body_offset, exact=True)
        for file in queue.files
        if file.stop > begin
    ]
    result = _pass(queue, body_offset, options, splits, findings, work, begin)
    _find_stale(result)
    return result


def _pass(
    queue: MappedFileQueue,
    body_offset: int,
    options: PassOptions,
    splits: Sequence[Split],
    findings: Findings,
    work: PassWork,
    begin: int | None = None,
) -> LogResult:
    unit_at = unit_reader(options)
    result = LogResult(queue, Tiling(queue.begin if begin is None else begin), body_offset)
    result.tiling.breaks = frozenset(f.start for f in queue.files)
    result.tiling.parsed = set() if options.crosscheck or options.forecast else None
    for split, part in work.parts(splits, options):
        if part.vanished:
            result.expired_to = split.file.stop
            continue
        _append(result, part, findings, unit_at)
        if work.units is not None:
            work.units.add(part.units, complete=part.units_complete)
        if work.progress is not None:
            work.progress(split.stop - split.start)
        # stop at the end of a file only: a resumed run starts at a file, and every run makes progress
        late = work.deadline is not None and time.monotonic() > work.deadline
        if late and split.stop >= split.file.file_size and split.file.stop < queue.stop:
            result.cut_at = split.file.stop
            break
    for name, queue_part in result.queues.items():
        queue_part.judge(result.witness(name, unit_at), all_of_it=True)
    forget_units()
    if result.tiling.start == 0:
        _exclude_strangers(result.queues)
    return result


def _exclude_strangers(queues: Mapping[QueueName, QueuePart]) -> None:
    """Exclude a record before queue offset 0 of its queue, unless other queues of its topic restarted, too.

    Call it on a log that begins at 0. If a topic is deleted and created again, all its queues restart.
    """
    alone = {name for name, part in queues.items() if part.first_is_alone and len(part.restarts) == 1}
    others = {topic for topic, _ in queues.keys() - alone}
    others -= {name[0] for name, part in queues.items() if part.restarts and name not in alone}
    for name in alone:
        if name[0] in others:
            queues[name].exclude_first()


def _append(result: LogResult, part: LogPart, findings: Findings, unit_at: UnitOf) -> None:
    tiling = result.tiling
    result.extend(part.runs)
    if tiling.parsed is not None:
        tiling.parsed |= part.parsed
        tiling.newer = (tiling.newer or NewerRecords.NONE) | NewerRecords(part.newer)
    findings.merge(part.findings)
    result.append(part)
    result.damaged_time = max(result.damaged_time, part.damaged_time)
    result.index.merge(part.index)
    result.inner |= part.inner
    for name, rows in part.batches.items():
        result.batches.setdefault(name, []).extend(rows)
    for name, new in part.queues.items():
        known = result.queues.setdefault(name, new)
        if known is not new:
            known.extend(new)
        if len(known.stretches) > 2:
            known.judge(result.witness(name, unit_at), all_of_it=False)


def join_queues(results: list[LogResult]) -> dict[QueueName, QueuePart]:
    """Join the queues of several logs in address order: queue offsets continue from the legacy log to DLedger."""
    if len(results) == 1:
        return results[0].queues
    out: dict[QueueName, QueuePart] = {}
    for result in results:
        for name, part in result.queues.items():
            if name in out:
                out[name].follow(part)
            else:
                out[name] = copy.deepcopy(part)
    return out


def _find_stale(result: LogResult) -> None:
    """Set `stale_from` if old records follow the end."""
    start = result.back_from
    file = result.queue.find(start) if start is not None else None
    if file is None or result.tiling.wrote() > file.stop:
        return
    try:
        if end_before_old_records(file, start, result.body_offset) is not None:
            result.stale_from = start
    except FileNotFoundError:  # a live broker deleted it
        return


def end_of_log(queue: MappedFileQueue, body_offset: int = 0) -> int:
    """Return the current end of a log, which the broker may be writing, from its last file with records."""
    for file in reversed(queue.files):
        tiling = Tiling(file.start)
        try:
            for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=False)):
                tiling.add(Run(run.kind, run.start, run.stop, run.count))
        except FileNotFoundError:
            continue
        if tiling.records():
            return reach_of(tiling)
    return queue.start


def reach_of(tiling: Tiling) -> int:
    """Return the end of the last framed record: good, damaged or stale."""
    return max(tiling.wrote(), *(r.stop for r in tiling if r.count), tiling.start)


_HOUR_MS = 3_600_000


def too_young_to_expire(store: Store, first: LogResult) -> list[str]:
    """Return a note if the files before the log were too young for that when the broker last ran.

    The last message of a file is not older than the first one of the next file, because a broker then closes the file
    with a BLANK. A running broker writes the checkpoint and its configuration every few seconds.
    """
    if not first.queue.start or not first.messages:
        return []
    files = [entry for name, entry in store.top.items() if name == "checkpoint"]
    files += store.files.list(store.root / "config")
    active = max((entry.mtime_ns // 1_000_000 for entry in files), default=0)
    hours = store.config.int("fileReservedTime")
    if not 0 <= active - first.first_time < hours * _HOUR_MS:
        return []
    return [
        Text(
            "the {queue} begins at {start:,}: the files before it were less than {hours} hours old (fileReservedTime) "
            "when the broker last ran, so they did not expire by age. They were deleted for lack of space or by a "
            "person, are lost, or were never here (a slave that began later)",
            queue=first.queue.name,
            start=first.queue.start,
            hours=hours,
        )
    ]
