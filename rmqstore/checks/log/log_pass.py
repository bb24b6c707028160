"""The pass over the log: it reads every record once, for all checks that need records.

A worker reads one split with `scan_split`; the resulting `LogPart` is small for a split of any size. `commitlog.py`
joins the parts; the other modules of `checks` judge the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.log_contents import EntryUnits, LogContents, add_entries, add_internal
from rmqstore.checks.log.queue_parts import QueueComparison, UnitRows
from rmqstore.checks.log.record_findings import (
    add_service_faults,
    code_of,
    damage_finding,
    flag_findings,
    host_findings,
    record_finding,
    time_findings,
    withheld,
    wrong_times,
)
from rmqstore.checks.log.stored_units import BesideSplit, UnitFiles, WatchedReads, opened, units_of
from rmqstore.checks.problems.report import Fact, Findings
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import INNER_BATCH, Fault
from rmqstore.formats.properties import DelayLevels, inner_batch
from rmqstore.formats.ranges import Ranges
from rmqstore.formats.services import is_sound_topic
from rmqstore.scan.columns import Columns, filler_mask
from rmqstore.scan.dispatch import BatchRow, Dispatch, QueueNames, QueueTable, record_properties
from rmqstore.scan.kernels import I64
from rmqstore.scan.properties import PropertyTexts, read_texts
from rmqstore.scan.records import scan_file
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import BLOCK_BITS, Kind, Run
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import joined

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.index.keys import KeyReader
    from rmqstore.files.store import Store


@dataclass(frozen=True, slots=True)
class PassOptions:
    """What the pass does. `given` are the settings of broker.conf; the store is read through `files`."""

    store: Path
    given: tuple[tuple[str, str], ...]
    scan: ScanOptions
    crosscheck: bool = True  # compare with the consume queues
    forecast: bool = False  # note which properties a simulated broker must parse
    batch_topics: frozenset[str] = frozenset()
    known_topics: frozenset[str] | None = None  # with a known kind of queue; None: do not derive kinds from messages
    live: bool = False  # a broker writes to the store
    stop_before: int = 1 << 62  # for a live store: the log's end when the pass began
    keep: int = 10_000  # findings to list
    levels: DelayLevels | None = None  # None: every split determines them
    index: IndexCatalog | None = None  # entries to compare with the messages' keys
    fans_out: frozenset[str] | None = None  # topics whose messages get units in light queues; None: all
    keep_units: bool = False  # fill LogPart.units
    trusts_units: bool = False  # every message has its unit: queues are derived from this log
    watch: bool = False  # fill LogPart.beside
    digests: bool = True  # with digests
    files: Files = LOCAL
    run_id: bytes = field(default_factory=lambda: os.urandom(8))  # a worker lists a store once per run


@dataclass(slots=True)
class LogPart(LogContents):
    """The result of one split.

    `vanished`: the file expired during the pass. `runs` have no columns. `units` are those that the messages should
    have, without BatchCQ topics; not `units_complete` if units of other messages are left out too.
    """

    begin: int | None = None
    end: int | None = None
    vanished: bool = False
    runs: list[Run] = field(default_factory=list)
    damaged_time: int = -1  # greatest store time of framed but damaged records
    index: IndexTally = field(default_factory=IndexTally)
    batches: dict[QueueName, list[BatchRow]] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)  # topics with inner batches, treated as SimpleCQ in this pass
    units: list[UnitRows] = field(default_factory=list)
    units_complete: bool = True
    parsed: set[int] = field(default_factory=set)  # see Tiling.parsed
    newer: int = 0  # see Tiling.newer
    findings: Findings = field(default_factory=Findings)
    beside: BesideSplit | None = None  # what the split was compared with


def watched_reads(body_offset: int, options: PassOptions) -> WatchedReads:
    """Return readers that note everything that a split of a log (`body_offset` 0 or 48) is compared with."""
    store = opened(options.store, options.given, options.run_id, options.files)
    entry_units = _entry_units(store, body_offset, options)
    return WatchedReads(_units(options), options.index, entry_units, digests=options.digests)


def _entry_units(store: Store, body_offset: int, options: PassOptions) -> MappedFileQueue | None:
    files = store.dledger if body_offset and not options.trusts_units else None
    return files.index if files is not None and files.index.directories else None


def _units(options: PassOptions) -> UnitFiles | None:
    """Return the units to compare messages with; None if they are not compared."""
    if not options.crosscheck or options.trusts_units:
        return None
    store = opened(options.store, options.given, options.run_id, options.files)
    return units_of(store, options.run_id, fresh=options.live)


def unit_reader(options: PassOptions) -> Callable[[str, int, int], int | None]:
    """Return a function that gives the commitlog offset in the unit of (topic, queue id, index); None without one.

    A unit that repeats the one before it is none: a repair puts it where no message has the queue offset.
    """
    units = _units(options)

    def unit_at(topic: str, queue_id: int, index: int) -> int | None:
        if units is None or index < 0:
            return None
        first = max(0, index - 1)
        found = units.read(topic, queue_id, first, index - first + 1)
        if len(found) <= index - first or found["size"][-1] <= 0:
            return None
        offset = int(found["commitlog_offset"][-1])
        return offset if index == first or offset != found["commitlog_offset"][0] else None

    return unit_at


def scan_split(split: Split, options: PassOptions) -> LogPart:
    """Read one split of the log."""
    part = LogPart()
    part.findings.keep = options.keep
    scan = _SplitScan(part, split, options)
    try:
        for run in scan_file(
            split.file,
            start=split.start,
            stop=split.stop,
            body_offset=split.body_offset,
            exact=split.exact,
            options=options.scan,
        ):
            if run.start >= options.stop_before:
                part.end = split.file.start + split.file.file_size  # written after the pass began, or stale
                part.begin = run.start if part.begin is None else part.begin
                break
            if run.stop > options.stop_before and run.columns is not None:
                run = _until(run, options.stop_before)
            if part.begin is None:
                part.begin = run.start
            part.end = run.stop
            scan.run(run)
    except FileNotFoundError:
        part.vanished = True
    scan.rows.flush()
    part.queues = scan.rows.parts
    part.units = scan.rows.kept
    part.units_complete &= not part.batches
    part.findings.extend(scan.rows.findings)
    part.beside = scan.watched.result() if scan.watched is not None else None
    return part


def _until(run: Run, stop: int) -> Run:
    """Return the records of a run that start before `stop` (global offset)."""
    columns = run.columns
    if run.kind is not Kind.RECORDS or columns is None:
        return run
    n = int(np.searchsorted(columns.offset - columns.body_offset, stop))
    end = int(columns.offset[n - 1] + columns.size[n - 1])
    return Run(Kind.RECORDS, run.start, end, n, columns=columns.slice(0, n))


class _SplitScan:
    """Applies all checks that need records to the runs of one split; the results are in `part`."""

    def __init__(self, part: LogPart, split: Split, options: PassOptions) -> None:
        self.part = part
        self.split = split
        self.options = options
        self.store = opened(options.store, options.given, options.run_id, options.files)
        self.watched = watched_reads(split.body_offset, options) if options.watch else None
        units = _units(options)
        self.levels = options.levels or delay_levels(self.store)
        stored = self.watched if self.watched is not None and units is not None else units
        self.rows = QueueComparison(
            stored, keep=options.keep_units, levels=self.levels, trusts=options.trusts_units and options.crosscheck
        )
        self.table = QueueTable()
        self.keys: KeyReader | None = None
        if options.index is not None:  # a log alone has no index and need not load these modules
            from rmqstore.checks.index.keys import KeyReader

            self.keys = KeyReader(self.table)
        index = _entry_units(self.store, split.body_offset, options)
        self.entry_units: EntryUnits | None = self.watched if index is not None and self.watched is not None else index
        self.queues = QueueNames(self.table, options.batch_topics, lambda topic, _: is_sound_topic(topic))
        self.dispatch = Dispatch(self.queues, self.levels, options.fans_out)

    def run(self, run: Run) -> None:
        part = self.part
        columns = run.columns
        last = part.runs[-1] if part.runs else None
        if last is not None and last.kind is Kind.RECORDS and run.kind is Kind.RECORDS:
            part.runs[-1] = Run(Kind.RECORDS, last.start, run.stop, last.count + run.count)
        else:
            part.runs.append(Run(run.kind, run.start, run.stop, run.count, run.cause, run.claimed))
        if run.kind is Kind.DIRTY and columns is not None:
            part.findings.add(damage_finding(run, columns, self.split.file))
            part.damaged_time = max(part.damaged_time, int(columns.store_timestamp[0]))
        if run.kind is Kind.RECORDS and columns is not None:
            self.records(columns)
        elif run.kind is Kind.INTERNAL:
            head = self.split.file.read_at(self.split.body_offset, run.start - self.split.file.start)
            if len(head) == self.split.body_offset:
                add_internal(head, run.start, self.entry_units, part.entries)

    def records(self, columns: Columns) -> None:
        part = self.part
        part.messages += len(columns)
        part.bytes += int(columns.size.sum())
        untimely = wrong_times(columns)
        part.findings.extend(time_findings(columns, untimely, self.split.file.name))
        part.add_times(columns, np.delete(np.arange(len(columns)), untimely) if len(untimely) else slice(None))
        if columns.body_offset:
            add_entries(columns, self.entry_units, part.entries)
        number = self.table.of(columns)
        self.queues.learn()
        tags = self.options.crosscheck or self.options.forecast or self.options.keep_units
        properties_of = PropertyTexts(columns)
        if self.options.index is not None and self.keys is not None:
            stop = int(columns.offset[-1] + columns.size[-1])
            keys = self.keys.keys(columns, number, properties_of)
            seen = self.watched.index if self.watched is not None else None
            self.options.index.check(
                int(columns.offset[0]) - columns.body_offset, stop, keys, part.index, columns, seen
            )
        part.findings.extend(flag_findings(columns, self.split.file.name))
        part.withheld = withheld(columns, number, self.queues) | part.withheld
        part.findings.extend(host_findings(columns, self.split.file.name))
        texts = read_texts(columns, tags=tags, texts=properties_of)
        if texts.parsed:
            part.parsed.update(((columns.offset[texts.parsed] - columns.body_offset) >> BLOCK_BITS).tolist())
        part.newer |= columns.newer
        fillers = filler_mask(columns)
        if fillers is not None:
            part.fillers += columns.offset[fillers].tolist()
        part.controls.add(columns, texts.controls)
        for queue, numbers in add_service_faults(columns, number, self.queues, texts.faults).items():
            name = self.queues.names[queue]
            part.unserved[name] = part.unserved.get(name, Ranges()) | numbers
        code = code_of(Fault.PROPERTIES, columns.body_offset)
        for i, faults in texts.faults.items():
            about: dict[str, Fact] = {"faults": joined(faults[:4], "; ")}
            part.findings.add(record_finding(code, columns, i, self.split.file.name, about))
        if self.queues.unsound:
            wrong = np.flatnonzero(np.isin(number, list(self.queues.unsound))).tolist()
            code = code_of(Fault.TOPIC, columns.body_offset)
            part.findings.extend(record_finding(code, columns, i, self.split.file.name, {}) for i in wrong)
            part.units_complete &= not wrong
        self._inner_batches(columns, number)
        units = self.dispatch.units(columns, number, texts)
        for rows in units.rows:
            self.rows.add(self.queues.names, rows)
        for name, row in units.batches:
            part.batches.setdefault(name, []).append(row)

    def _inner_batches(self, columns: Columns, number: I64) -> None:
        """Note topics whose messages prove that they have a BatchCQ, unless their kind of queue is known."""
        if self.options.known_topics is None:
            return
        flagged = np.flatnonzero(columns.sys_flag & INNER_BATCH)
        known = self.options.known_topics | self.options.batch_topics if len(flagged) else frozenset()
        for i in flagged.tolist():
            topic = self.queues.names[int(number[i])][0]
            if topic in known or topic in self.part.inner or int(number[i]) in self.queues.unsound:
                continue
            if inner_batch(record_properties(columns, i)) is not None:
                self.part.inner.add(topic)
