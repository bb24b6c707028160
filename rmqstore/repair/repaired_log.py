"""The log as a plan leaves it, its records, and their rows in queues.

It is read through the plan's steps, without what the plan cuts off. Consume queues, index and all other parts that
follow from the log are rebuilt from this view, so that they fit the repaired log before a byte of it is changed.

Good records near an offset or in a range are found by reading only the bytes around it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.logs import Logs
from rmqstore.documents.content import Literal, Zeros
from rmqstore.documents.steps import Create, Extend, Overwrite, Truncate
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, file_name_to_offset
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName, is_directory_name
from rmqstore.formats.services import is_sound_topic
from rmqstore.repair.overlay import Overlay
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import BatchRow, Dispatch, DispatchedRows, QueueNames, QueueTable
from rmqstore.scan.properties import read_texts
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Sort ranges, and merge those that touch or overlap."""
    out: list[Span] = []
    for start, stop in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


def within(spans: Iterable[Span], low: int, high: int) -> list[Span]:
    """Return the parts of the ranges that are in [low, high)."""
    cut = [(max(start, low), min(stop, high)) for start, stop in spans]
    return [(start, stop) for start, stop in cut if start < stop]


def without(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Return the ranges without the bytes of `holes`, which are sorted and disjoint."""
    holes = list(holes)
    out: list[Span] = []
    for start, stop in spans:
        for low, high in overlapping(holes, start, stop):
            if start < low:
                out.append((start, low))
            start = max(start, high)
        if start < stop:
            out.append((start, stop))
    return out


def overlapping(spans: Sequence[Span], low: int, high: int) -> Sequence[Span]:
    """Return those of the sorted, disjoint ranges that share a byte with [low, high)."""
    first = bisect_right(spans, low, key=lambda span: span[1])
    return spans[first : bisect_left(spans, high, key=lambda span: span[0])]


def meets(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a range shares a byte with any of the others, which are sorted and disjoint."""
    return bool(overlapping(others, *span))


Change = Overwrite | Create | Extend | Truncate
"""A step that changes the bytes of a log. Its path is that of the file that has the bytes now; see `RepairedLog.of`."""


class RepairedLog:
    """One log, plain or DLedger (`body_offset` 0 or 48), up to `end` (global offset).

    `changes` are the steps of the plan, `originals` the original records, by their global offset, that no step writes:
    without them, queues and index would be rebuilt to fit their damage. `queue` has the files with both. `in_order` are
    records, by global offset, before which the order of the units proves that their queue does not restart.
    """

    def __init__(
        self,
        result: LogResult,
        end: int,
        files: Files,
        changes: Sequence[Change] = (),
        originals: Mapping[int, bytes] | None = None,
        in_order: frozenset[int] = frozenset(),
    ) -> None:
        self.result = result
        self.in_order = in_order
        self.body_offset = result.body_offset
        self.end = end
        self._files = files
        self._changes = changes
        self._starts = {file.path: file.start for file in result.queue.files}
        self.written = joined(span for change in changes if (span := self._span(change))[0] < span[1])
        self.originals = {
            at: raw
            for at, raw in sorted((originals or {}).items())
            if at < end and not meets((at, at + len(raw)), self.written)
        }
        self._covered = joined([*self.written, *((at, at + len(raw)) for at, raw in self.originals.items())])
        self.queue = self._planned()
        # `chunks` does not compute body CRCs, so it leaves out framed records in damage that nothing covers
        self._damaged = joined(span for run in result.tiling if run.kind is Kind.DIRTY for span in self._uncovered(run))

    @staticmethod
    def of(
        result: LogResult,
        end: int,
        draft: PlanBuilder,
        originals: Mapping[int, bytes] | None = None,
        in_order: frozenset[int] = frozenset(),
    ) -> RepairedLog:
        """Return the view of a log after the steps of a draft."""
        own = {draft.path(file.path): file.path for file in result.queue.files}
        homes = {draft.path(directory): directory for directory in result.queue.directories}
        changes: list[Change] = []
        for step in draft.steps:
            home, _, name = step.path.rpartition("/")
            if isinstance(step, Overwrite | Extend | Truncate) and step.path in own:
                changes.append(replace(step, path=str(own[step.path])))
            elif isinstance(step, Create) and home in homes and file_name_to_offset(name) is not None:
                # not the path of the file that has this name now: the plan may rename that one
                changes.append(replace(step, path=str(homes[home] / "new" / name), like=None))
        return RepairedLog(result, end, draft.store.files, changes, originals, in_order)

    def until(self, end: int) -> RepairedLog:
        """Return the view up to an earlier end (global offset)."""
        return RepairedLog(self.result, end, self._files, self._changes, self.originals, self.in_order)

    def as_written(self) -> RepairedLog:
        """Return the view with nothing but what steps write."""
        if not self.originals:
            return self
        return RepairedLog(self.result, self.end, self._files, self._changes, in_order=self.in_order)

    @property
    def changed(self) -> bool:
        """Whether steps write records, and not only zeros."""
        return bool(self.written)

    def differs(self, start: int, stop: int) -> bool:
        """Return whether a step writes a byte in [start, stop) (global offsets), or whether its original is known."""
        return meets((start, stop), self._covered)

    def unrepaired(self) -> list[Span]:
        """Return the bytes up to the end that are not part of a record, and that no step and no original writes."""
        tiling = self.result.tiling
        bad = [(run.start, run.stop) for run in tiling if run.kind is not Kind.RECORDS]
        missing = (tiling.stop, self.end)  # the last files
        return without(within([*bad, missing], 0, self.end), self._covered)

    def chunks(self, files: Sequence[MappedFile] | None = None, start: int = 0) -> Iterator[Columns]:
        """Yield the records that begin at or after `start` (global offset), in address order.

        `files`: only these of `queue`.
        """
        options = ScanOptions(crc=False)
        for file in self.queue.files if files is None else files:
            if file.start >= self.end or file.stop <= start:
                continue
            stop = min(file.file_size, self.end - file.start)
            for run in scan_file(file, stop=stop, body_offset=self.body_offset, exact=True, options=options):
                if run.kind is not Kind.RECORDS or run.columns is None or run.stop <= start:
                    continue
                columns = self._kept(run.columns, run.start, run.stop, start)
                if len(columns):
                    yield columns

    def records(self, start: int, stop: int) -> Iterator[Columns]:
        """Yield the records in [start, stop) of one file (global offsets); a record or its damage begins at `start`."""
        file = self.queue.find(start)
        if file is None or stop > min(file.stop, self.end):
            return
        at, end = start - file.start, stop - file.start
        options = ScanOptions(crc=False)
        for run in scan_file(file, start=at, stop=end, body_offset=self.body_offset, exact=True, options=options):
            if run.kind is Kind.RECORDS and run.columns is not None and run.stop <= stop:
                yield run.columns

    # --- the files --------------------------------------------------------------------------------------------------

    def _start_of(self, path: Path) -> int:
        start = self._starts.get(path)  # a file that is renamed by the plan has another name
        return start if start is not None else file_name_to_offset(path.name) or 0

    def _span(self, change: Change) -> Span:
        """Return the range of records (global offsets) that a step writes; nothing if it writes only zeros."""
        at = self._start_of(Path(change.path)) + (change.at if isinstance(change, Overwrite | Extend) else 0)
        size = 0 if isinstance(change, Truncate) or isinstance(change.content, Zeros) else change.content.size
        return (at, at + size) if at < self.end else (at, at)

    def _planned(self) -> MappedFileQueue:
        """Return the files with the changes and the original records."""
        queue = self.result.queue
        steps: list[Change] = list(self._changes)
        for at, raw in self.originals.items():
            file = queue.find(at)
            if file is not None:
                steps.append(Overwrite(str(file.path), at - file.start, Literal(raw), "", ""))
        if not steps:
            return queue
        files = Overlay(self._files, steps, Path())
        found = {file.start: file for file in queue.files}
        for path in dict.fromkeys(Path(step.path) for step in steps):
            entry, start = files.stat(path), self._start_of(path)
            if entry is not None:
                found[start] = MappedFile(path, start, entry.length, queue.file_size, entry.mtime_ns, files)
        in_order = [found[start] for start in sorted(found)]
        return MappedFileQueue(queue.name, queue.directories, queue.file_size, in_order, queue.odd, queue.size_from)

    # --- what is left out -------------------------------------------------------------------------------------------

    def _uncovered(self, run: Run) -> list[Span]:
        """Return the parts of damage without a sound record: in a run of records, nothing if any of it is covered."""
        span = (run.start, run.stop)
        covered = overlapping(self._covered, *span)
        return [] if run.count and covered else without([span], covered)

    def _kept(self, columns: Columns, low: int, high: int, start: int) -> Columns:
        damaged = overlapping(self._damaged, low, high)
        if start <= low and high <= self.end and not damaged:
            return columns
        begins, stops = columns.offset - self.body_offset, columns.offset + columns.size
        keep = (begins >= start) & (stops <= self.end)
        for a, b in damaged:
            keep &= (begins >= b) | (stops <= a)
        return columns.take(keep)


def end_of(logs: Sequence[RepairedLog]) -> int:
    """Return the end of the last log (global offset)."""
    return max((log.end for log in logs), default=0)


class LastRecord(NamedTuple):
    """The global offset of the last record, and the greatest store time (ms) in its file."""

    offset: int
    time: int


NO_RECORD = LastRecord(0, 0)
"""The last record of a log without any."""


def last_record(logs: Sequence[RepairedLog]) -> LastRecord:
    """Return the last record, which may be NO_RECORD."""
    for log in reversed(logs):
        for file in reversed(log.queue.files):
            ends = [(int(columns.offset[-1]), int(columns.store_timestamp.max())) for columns in log.chunks([file])]
            if ends:
                return LastRecord(ends[-1][0], max(time for _, time in ends))
    return NO_RECORD


class Sink(Protocol):
    """The consumer of rows; `rows.number` is an index of `names`, which only grows."""

    def rows(self, names: list[QueueName], rows: DispatchedRows) -> None: ...

    def batch(self, name: QueueName, row: BatchRow) -> None: ...


class Redispatch:
    """Dispatches the records of a log to a sink."""

    def __init__(self, store: Store, sink: Sink, batch_topics: Iterable[str] = ()) -> None:
        self.sink = sink
        self.batch_topics = frozenset(batch_topics)
        self.table = QueueTable()
        self.queues = QueueNames(self.table, self.batch_topics, can_have_queues)
        self.levels = delay_levels(store)
        self.fans_out: frozenset[str] | None = None
        if store.light_in_rocksdb:
            from rmqstore.files.rocksdb.written_rows import written_rows

            self.fans_out = written_rows(store).topics
        self.dispatch = Dispatch(self.queues, self.levels, self.fans_out)

    def run(self, view: RepairedLog, start: int = 0) -> None:
        """Dispatch all records of a view from a global offset on."""
        for columns in view.chunks(start=start):
            self.columns(columns)

    def columns(self, columns: Columns) -> None:
        """Dispatch one chunk of records."""
        number = self.table.of(columns)
        self.queues.learn()
        units = self.dispatch.units(columns, number, read_texts(columns))
        for rows in units.rows:
            self.sink.rows(self.queues.names, rows)
        for name, row in units.batches:
            self.sink.batch(name, row)


def can_have_queues(topic: bytes, queue_id: int) -> bool:
    """Return whether a topic and a queue id, which may be damaged, can have a queue."""
    return queue_id >= 0 and is_sound_topic(topic) and is_directory_name(topic)


def can_exist(name: QueueName) -> bool:
    """Return the same for the name of a queue."""
    return can_have_queues(name[0].encode("utf-8", "surrogatepass"), name[1])


_NEAR = 8  # records on each side of an offset
_WINDOW = 64 << 10  # bytes


def last_before(log: LogResult, at: int) -> Sequence[Span]:
    """Return the last good records before an offset, also across damage and the BLANK at the end of a file."""
    run = log.tiling.find(at - 1)
    while run is not None and run.kind is not Kind.RECORDS:
        run = log.tiling.find(run.start - 1)
    file = log.queue.find(run.stop - 1) if run is not None else None
    if run is None or file is None:
        return ()
    stop = min(run.stop, at)
    begin, look = max(run.start, file.start), _WINDOW
    while True:
        start = max(begin, stop - look)
        found = list(records_in(log, file, start, stop, exact=start == begin))
        if found or start == begin:
            return found[-_NEAR:]
        look *= 8


def last_record_start(logs: Logs, end: int) -> int:
    """Return the start of the last good record that ends at or before the offset `end`; 0 if there is none.

    The logicsPhysicalOffset of a checkpoint may be any such start up to which the queues are complete: brokers of
    5.5.0 and newer that recover by it (enableAcceleratedRecovery) begin to read there.
    """
    for result in reversed(logs.results):
        at = min(end, result.tiling.stop)
        while near := last_before(result, at):
            starts = [start for start, stop in near if stop <= end]
            if starts:
                return starts[-1] + result.body_offset
            at = near[0][0]
    return 0


def first_after(log: LogResult, at: int) -> Sequence[Span]:
    """Return the first good records at or after an offset, also across damage and BLANKs."""
    run = log.tiling.find(at)
    while run is not None and run.kind is not Kind.RECORDS:
        run = log.tiling.find(run.stop)
    file = log.queue.find(max(run.start, at)) if run is not None else None
    if run is None or file is None:
        return ()
    start = max(run.start, at)
    stop = min(run.stop, start + _WINDOW)
    return list(records_in(log, file, start, stop, exact=True))[:_NEAR]


def records_between(log: LogResult, low: int, high: int) -> Iterator[Span]:
    """Yield all good records that start in [low, high]; `low` is a record's start or the end of a run of records."""
    for run in log.tiling:
        if run.kind is not Kind.RECORDS or run.stop <= low or run.start > high:
            continue
        start = max(run.start, low)
        file = log.queue.find(start)
        if file is not None:
            yield from records_in(log, file, start, min(run.stop, high + 1), exact=True)


def records_in(log: LogResult, file: MappedFile, start: int, stop: int, *, exact: bool) -> Iterator[Span]:
    """Yield [start, stop) of the good records that start in a range of a file, as global offsets."""
    options = ScanOptions(crc=False, chunk=2 * _WINDOW)
    first, last = start - file.start, stop - file.start
    for run in scan_file(file, start=first, stop=last, body_offset=log.body_offset, exact=exact, options=options):
        if run.kind is Kind.RECORDS and run.columns is not None:
            begins = (run.columns.offset - log.body_offset).tolist()
            ends = (run.columns.offset + run.columns.size).tolist()
            yield from zip(begins, ends, strict=True)
