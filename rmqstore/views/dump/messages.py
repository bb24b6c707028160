"""Read the messages of a store in address order: the legacy commitlog, then DLedger.

Work is distributed by splits of files, as in `scan.workers`. The result for a split is its selected records, rendered,
and the runs that are not records, from which `Skipped` sums up what was skipped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats.message import Fault, Message
from rmqstore.messages.lines import MessageLines
from rmqstore.messages.rows import BodyStyle, Row, record_is_sound
from rmqstore.messages.table import MessageTable
from rmqstore.messages.unpacked import unpacked
from rmqstore.scan.columns import NOTHING, Columns
from rmqstore.scan.kernels import I64, U8, Bool
from rmqstore.scan.old_records import without_old_records
from rmqstore.scan.records import scan_file, scan_split
from rmqstore.scan.resync import resync
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.scan.workers import SplitPart, joined
from rmqstore.views.dump.selection import Selection, Selector, offsets_between
from rmqstore.views.dump.workers import map_into_shared

if TYPE_CHECKING:
    from rmqstore.messages.arrow import ArrowRows


RENDERED_BY = {"arrow": "rmqstore.messages.arrow"}
"""What renders records in a form that only an export needs."""
SPLIT = 4 << 20
CHUNK = SPLIT + (64 << 10)  # holds a split with the record that extends beyond its end
WRONG_CRC = (Fault.BODY_CRC, Fault.RECORD_CRC)
_MAX_SPANS = 100

T = TypeVar("T")
Buffer = bytes | memoryview
Progress = Callable[[int], None] | None


@dataclass(slots=True)
class Skipped:
    """What a reader skipped, and how many damaged records it showed nevertheless (`shown`).

    `count` spans of `bytes` in total were skipped; `spans` lists the first 100 as (queue, start, stop, reason).
    Units: bytes, global offsets.
    """

    count: int = 0
    bytes: int = 0
    shown: int = 0
    spans: list[tuple[str, int, int, str]] = field(default_factory=list)
    holes: int = 0
    """How many of the spans are gaps of missing files."""
    known: set[tuple[str, int]] | None = None
    """Starts of the runs that were added, for a reader that may read a part of a log several times."""
    live: bool = False
    """A broker is writing to the store: bytes after the last record may be half-written."""
    _pending: list[tuple[str, Run]] = field(default_factory=list)  # count only if records follow
    _reached: int | None = None  # end of the previous file of the queue

    def __bool__(self) -> bool:
        return self.count > 0 or self.shown > 0

    def at_file(self, queue: str, file: MappedFile) -> None:
        """Announce the file that contains the next runs. Files missing before it count as a hole."""
        if self._reached is not None and file.start > self._reached:
            self.feed(queue, Run(Kind.HOLE, self._reached, file.start))
        self._reached = file.stop

    def feed(self, queue: str, run: Run, shown: bool = False) -> None:
        """Add the next run of a queue. Zeros and holes count only if records follow them."""
        if run.kind in (Kind.RECORDS, Kind.INTERNAL):
            self._settle()
        elif run.kind is Kind.DIRTY:
            if run.count:
                self._settle()
            if shown:
                self.shown += self._is_new(queue, run)
            elif self.live and not run.count:
                self._pending.append((queue, run))
            else:
                self._add(queue, run)
        elif run.kind is not Kind.BLANK:
            self._pending.append((queue, run))

    def take(self, other: Skipped) -> None:
        """Add what another reader skipped, for example farther on in the same queue."""
        self.count += other.count
        self.bytes += other.bytes
        self.holes += other.holes
        self.shown += other.shown
        self.spans += other.spans[: _MAX_SPANS - len(self.spans)]
        self._pending += other._pending

    def close(self, *, records_follow: bool = False) -> None:
        """End a queue, or a file if files are read in another order; `records_follow` in a later file."""
        if records_follow:
            self._settle()
        self._pending, self._reached = [], None

    def _settle(self) -> None:
        """Count the pending runs, as records follow them; on a live store, the broker may have filled them since."""
        for queue, run in self._pending:
            if run.kind is Kind.HOLE or not self.live:
                self._add(queue, run)
        self._pending = []

    def _is_new(self, queue: str, run: Run) -> bool:
        if self.known is None:
            return True
        before = len(self.known)
        self.known.add((queue, run.start))
        return len(self.known) > before

    def _add(self, queue: str, run: Run) -> None:
        if not self._is_new(queue, run):
            return
        self.count += 1
        self.holes += run.kind is Kind.HOLE
        self.bytes += run.stop - run.start
        if len(self.spans) < _MAX_SPANS:
            why = run.cause.name.lower().replace("_", " ") if run.cause is not Fault.NONE else run.kind.name.lower()
            self.spans.append((queue, run.start, run.stop, why))


@dataclass(frozen=True, slots=True)
class Log:
    """One log of a store. `body_offset`: bytes before every message (the DLedger entry header)."""

    name: str
    queue: MappedFileQueue
    body_offset: int


def logs_of(store: Store, what: str = "messages") -> list[Log]:
    """Return the logs of a store in address order. `what`: "messages" for both, or "commitlog" or "dledger"."""
    logs = [Log("dledger" if body_offset else "commitlog", queue, body_offset) for queue, body_offset in store.logs]
    return sorted((log for log in logs if what in ("messages", log.name)), key=lambda log: log.queue.start)


OtherRecords = Callable[[Store, ScanOptions, int, Progress], Iterator[tuple[str, Columns]]]
"""Yields file name and records that are not messages of the log; takes the number of processes, and what counts the
bytes read."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker does with a split. It can be pickled.

    `form`: how records are rendered: "text" (JSON lines), "csv", "message" (`FoundRecord`), "arrow" (record batch) or
    "columns" (`MessageTable`). `entries`: render DLedger entries with the message inside. `foreign`: include records
    whose PHYSICALOFFSET is not their offset. `export`: only sound records, with the fields of an export, and with
    `schema.POSITIONS` if `positions`. `instead`: what reads other records, which the job has instead of messages;
    `stale`: those of earlier logs. `iso`: times in ISO 8601 instead of epoch ms. `split_batches`: the messages of batch
    records instead of these.
    """

    selection: Selection
    form: str = "text"
    entries: bool = False
    body: BodyStyle = field(default_factory=BodyStyle)
    foreign: bool = False
    export: bool = False
    positions: bool = False
    instead: OtherRecords | None = None
    stale: bool = False
    iso: bool = False
    split_batches: bool = False
    scan: ScanOptions = field(default_factory=ScanOptions)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A parsed record, its global offset, and its fault."""

    message: Message
    offset: int
    fault: Fault


@dataclass(slots=True)
class Rendered(SplitPart):
    """A worker's result for a split: `count` records, and the runs between them (runs of records merged, no columns).

    Text: the first `used` bytes are in the area that the worker was given, the rest is in `text`; `ends` has the line
    ends of every chunk, only if not all lines may be needed. Other forms are in `records`. `runs`: (run, whether its
    damaged record is shown).
    """

    count: int = 0
    records: list[Any] = field(default_factory=list)
    ends: list[I64] = field(default_factory=list)
    used: int = 0
    text: list[Buffer] = field(default_factory=list)
    runs: list[tuple[Run, bool]] = field(default_factory=list)

    def room(self, size: int) -> U8:
        """Return memory for the next piece of text."""
        new: U8 = np.empty(size, dtype=np.uint8)
        self.text.append(new.data)
        return new


@lru_cache(maxsize=4)
def _selector(selection: Selection) -> Selector:
    return Selector(selection)


@lru_cache(maxsize=4)
def lines_of(job: Job) -> MessageLines:
    """Return the renderer, one per process and job: it caches the texts of topics, queues and hosts."""
    lines = MessageLines(
        job.body,
        entries=job.entries,
        csv=job.form == "csv",
        export=job.export,
        positions=job.positions,
        repaired=job.selection.repaired,
        stale=job.stale,
    )
    lines.iso = job.iso
    lines.fillers = job.selection.fillers
    return lines


@lru_cache(maxsize=4)
def _arrow_rows(job: Job) -> ArrowRows:
    renderer: type[ArrowRows] = importlib.import_module(RENDERED_BY["arrow"]).ArrowRows
    return renderer(job.body, positions=job.positions, repaired=job.selection.repaired, stale=job.stale)


def render_split(job: Job, split: Split, area: U8 | None = None) -> Rendered:
    """Render the selected records that start in a split. Text goes into `area` while it has room."""
    out = Rendered()
    selector = _selector(job.selection)
    name = split.file.name

    def sink(size: int) -> U8:
        if area is not None and not out.text and out.used + size <= len(area):
            out.used += size
            return area[out.used - size : out.used]
        return out.room(size)

    for run in scan_split(split, job.scan):
        out.extend(run.start, run.stop)
        columns, oks, shown = _shown(run, job, selector)
        if columns is not None and len(columns):
            fault = run.cause if run.kind is Kind.DIRTY else Fault.NONE
            _render(job, columns, out, (name, fault, oks), sink)
        if run.kind is Kind.RECORDS and out.runs and out.runs[-1][0].kind is Kind.RECORDS:
            continue
        out.runs.append((replace(run, columns=None), shown and run.kind is Kind.DIRTY))
    return out


def _render(
    job: Job, columns: Columns, out: Rendered, about: tuple[str, Fault, Bool | None], sink: Callable[[int], U8]
) -> None:
    """Add records to a result. `about`: their file, their fault, and which of them are sound (None: all)."""
    name, fault, oks = about
    if job.split_batches:
        columns = unpacked(columns)
        mask = _selector(job.selection).mask(columns)  # the texts of each message count
        columns = columns if mask is None else columns.take(np.flatnonzero(mask))
    out.count += len(columns)
    if job.form == "message":
        out.records += [FoundRecord(columns.message(i), at, fault) for i, at in enumerate(columns.offset.tolist())]
    elif job.form == "columns":
        out.records.append(MessageTable.of(columns.copied(), _selector(job.selection).table))
    elif job.form == "arrow":
        out.records.append(_arrow_rows(job).batch(columns))
    else:
        ends = lines_of(job).text(columns, name, oks, sink)
        out.ends += [ends] if job.selection.limit is not None or job.selection.reverse else []


def _instead(job: Job, found: Iterator[tuple[str, Columns]]) -> Iterator[Rendered]:
    """Yield the selected records that are not messages of the log."""
    selector = _selector(job.selection)
    for file, columns in found:
        mask = selector.mask(columns)
        chosen = columns if mask is None else columns.take(np.flatnonzero(mask))
        if len(chosen):
            out = Rendered()
            _render(job, chosen, out, (file, Fault.NONE, None), out.room)
            yield out


def _shown(run: Run, job: Job, selector: Selector) -> tuple[Columns | None, Bool | None, bool]:
    """Return the selected records of a run, which of them are sound (None: all), and whether the job shows the run."""
    columns = run.columns
    if columns is None or (job.export and run.kind is not Kind.RECORDS):
        return None, None, False
    if run.kind is Kind.DIRTY and run.cause is Fault.PHYSICAL_OFFSET and not job.foreign:
        return None, None, False
    return *wanted_records(run, columns, selector), True


def wanted_records(run: Run, columns: Columns, selector: Selector) -> tuple[Columns, Bool | None]:
    """Return the selected records of a run, and which of them are sound (None: all)."""
    oks: Bool | None = None
    if run.kind is Kind.DIRTY:
        oks = np.array([run.cause not in WRONG_CRC and record_is_sound(columns, 0)])
    mask = selector.mask(columns)
    if mask is not None and not mask.all():
        index = np.flatnonzero(mask)
        columns = columns.take(index)
        oks = oks[index] if oks is not None else None
    return columns, oks


def read_text(
    store: Store, what: str, job: Job, damage: Skipped | None, *, jobs: int = 1, progress: Progress = None
) -> Iterator[tuple[int, list[Buffer]]]:
    """Yield (number of records, pieces of text) for some thousand records at a time, in address order.

    The pieces are valid until the next iteration. Reading stops at `job.selection.limit`; with `reverse`, the newest
    records come first. Fills in `damage`. `progress` is called with the bytes of every split that was read.
    """
    parts = _parts(store, what, job, damage, jobs, progress)
    if job.selection.limit is None and not job.selection.reverse:
        yield from ((part.count, part.text) for part in parts if part.count)
    else:
        for lines in _chosen((_cut_lines(b"".join(part.text), part.ends) for part in parts), job.selection):
            yield len(lines), list(lines)


def _chosen(groups: Iterator[list[T]], selection: Selection) -> Iterator[list[T]]:
    """Yield the records in the order of the selection, up to its limit; no group is taken after that."""
    left = selection.limit
    for group in groups:
        chosen = selection.ordered(group)[:left]
        if chosen:
            yield chosen
        if left is not None and not (left := left - len(chosen)):
            return


def _cut_lines(text: bytes, chunks: list[I64]) -> list[bytes]:
    """Return the lines of some chunks. A row of CSV may contain line breaks, so line ends are given (`chunks`)."""
    out, begin = [], 0
    for ends in chunks:
        low = begin
        for end in ends.tolist():
            out.append(text[low : begin + end])
            low = begin + end
        begin = low
    return out


def read_messages(
    store: Store, what: str, job: Job, damage: Skipped | None = None, *, jobs: int = 1, progress: Progress = None
) -> Iterator[list[Row]]:
    """Yield rows (dicts), otherwise as `read_text`."""
    for _, text in read_text(store, what, replace(job, form="text"), damage, jobs=jobs, progress=progress):
        yield [orjson.loads(line) for line in b"".join(text).splitlines()]


def read_records(
    store: Store, what: str, job: Job, damage: Skipped | None = None, *, jobs: int = 1, progress: Progress = None
) -> Iterator[list[FoundRecord]]:
    """Yield records, otherwise as `read_text`."""
    parts = _parts(store, what, replace(job, form="message"), damage, jobs, progress)
    return _chosen((part.records for part in parts), job.selection)


def _parts(
    store: Store, what: str, job: Job, damage: Skipped | None, jobs: int = 1, progress: Progress = None
) -> Iterator[Rendered]:
    """Yield the results of all splits; with `reverse` the last split first, its records still in address order."""
    if job.instead is not None:
        yield from _instead(job, job.instead(store, job.scan, jobs, progress))
        return
    damage = Skipped() if damage is None else damage
    logs = logs_of(store, what)
    if job.selection.repaired is NOTHING and store.files.has_entry(store.journal_directory):
        from rmqstore.messages.repaired import repaired_records

        job = replace(job, selection=replace(job.selection, repaired=repaired_records(store)))
    if job.selection.reverse:
        for log in reversed(logs):
            yield from _backwards(log if job.foreign else own_log(log), job, damage)
        return
    if job.selection.limit is not None:
        jobs = 1
    for log in logs:
        # the last file is examined when it is reached: with a limit, it often is not
        last = log.queue.without_oldest(len(log.queue.files)).start
        earlier = [split for split in splits_for(log, job.selection) if split.file.start < last]
        yield from _forwards(log.name, earlier, job, damage, jobs, progress)
        own = log if job.foreign else own_log(log)
        later = [split for split in splits_for(own, job.selection) if split.file.start >= last]
        yield from _forwards(log.name, later, job, damage, jobs, progress)
        damage.close()


def own_log(log: Log) -> Log:
    """Return a log without old records that directly follow its last message."""
    return replace(log, queue=without_old_records(log.queue, log.body_offset))


def _forwards(
    name: str, splits: list[Split], job: Job, damage: Skipped, jobs: int, progress: Progress
) -> Iterator[Rendered]:
    render = partial(render_split, job)
    mapper = partial(map_into_shared, jobs=jobs) if jobs > 1 and job.form in ("text", "csv") else None
    for split, part in joined(render, splits, jobs, mapper):
        damage.at_file(name, split.file)
        for run, shown in part.runs:
            damage.feed(name, run, shown)
        if progress is not None:
            progress(min(split.stop, split.file.length) - split.start)
        yield part


def splits_for(log: Log, selection: Selection, size: int = SPLIT) -> Iterator[Split]:
    """Yield splits that cover all records that the selection can match by offset and store time."""
    low, high = offsets_between(log.queue, log.body_offset, selection.since, selection.until)
    if selection.start is not None:  # a DLedger entry starts `body_offset` bytes before its message
        low = max(low, selection.start - log.body_offset)
    if selection.stop is not None:
        high = min(high, selection.stop - log.body_offset)
    for file in log.queue.files:
        if file.stop <= low or file.start >= high:
            continue
        at, exact = 0, True
        length = _data_end(file)
        if low > file.start:
            found = _first_record(file, low - file.start, log.body_offset)
            if found is None:
                continue
            at = found
        while at < length or (at == 0 and exact):
            stop = at + size
            last = stop >= length
            yield Split(file, at, file.file_size if last else stop, log.body_offset, exact)
            if last or file.start + stop >= high:
                break
            at, exact = stop, False


def _data_end(file: MappedFile) -> int:
    """Return the end of a file's data according to the file system: only holes follow, which read as zeros."""
    length = min(file.length, file.file_size)
    try:
        opened = file.open()
    except OSError:
        return length
    with opened:
        return opened.data_end(length)


def _first_record(file: MappedFile, at: int, body_offset: int) -> int | None:
    try:
        window = Window(file, ScanOptions())
    except FileNotFoundError:
        return None
    try:
        return resync(window, at, file.start, window.end, body_offset)[0]
    finally:
        window.close()


def _backwards(log: Log, job: Job, damage: Skipped) -> Iterator[Rendered]:
    """Yield results newest first: scan each file without CRCs to find record borders, then read it group by group."""
    seen_records = False
    by_file: dict[int, list[Split]] = {}
    for split in splits_for(log, job.selection):
        by_file.setdefault(split.file.start, []).append(split)
    for own in reversed(by_file.values()):
        groups: list[tuple[int, int]] = []
        file, begin, stop = own[0].file, own[0].start, own[-1].stop
        walk = replace(job.scan, crc=False)
        has_records = False
        try:
            for run in scan_file(file, start=begin, stop=stop, body_offset=log.body_offset, exact=True, options=walk):
                shown = run.columns is not None and (run.cause is not Fault.PHYSICAL_OFFSET or job.foreign)
                damage.feed(log.name, replace(run, columns=None), shown)
                if run.columns is None:
                    continue
                has_records = True
                at, end = run.start - file.start, run.stop - file.start
                if groups and groups[-1][1] == at and end - groups[-1][0] < SPLIT:
                    groups[-1] = (groups[-1][0], end)
                else:
                    groups.append((at, end))
        except FileNotFoundError:
            continue
        damage.close(records_follow=seen_records)
        seen_records = seen_records or has_records
        for start, end in reversed(groups):
            part = render_split(job, Split(file, start, end, log.body_offset, exact=True))
            for run, shown in part.runs:  # the scan above has reported everything but wrong CRCs
                if run.cause in WRONG_CRC:
                    damage.feed(log.name, run, shown)
            yield part


def dump_messages(
    store: Store,
    selection: Selection | None = None,
    *,
    what: str = "messages",
    body: str | None = None,
    raw_body: bool = False,
    damage: Skipped | None = None,
) -> Iterator[Row]:
    """Yield messages as dicts, in the order and with the fields of `rmqstore dump --format ndjson`.

    `body`: "text", "json", "hex", "base64", or None for no body; `raw_body` leaves it compressed. Fills in `damage`.
    """
    style = BodyStyle(body or ("base64" if raw_body else None), raw_body)
    job = Job(selection or Selection(), "text", what == "dledger", style, foreign=what == "commitlog")
    for rows in read_messages(store, what, job, damage):
        yield from rows


def read_batches(store: Store, job: Job, damage: Skipped | None = None, *, progress: Progress = None) -> Iterator[Any]:
    """Yield the records of a job of form "arrow" as record batches."""
    left = job.selection.limit
    for part in _parts(store, "messages", job, damage, progress=progress):
        for batch in part.records:
            rows = batch if left is None else batch.slice(0, left)
            if rows.num_rows:
                yield rows
            left = left if left is None else left - rows.num_rows
            if left == 0:
                return


def read_tables(store: Store, damage: Skipped) -> Iterator[MessageTable]:
    """Yield the sound messages of a store as tables."""
    job = Job(Selection(), "columns", export=True, scan=ScanOptions(chunk=CHUNK))
    for part in _parts(store, "messages", job, damage):
        yield from part.records
