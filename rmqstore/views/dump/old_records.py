"""Records of earlier logs in bytes that do not belong to the log: after its end, and after a BLANK.

A broker that cuts its log leaves the bytes after the cut until it overwrites them, and it ends a file with a BLANK of
only eight bytes. Files may have been preallocated with old contents. With `writeWithoutMmap`, a broker writes whole
pages of a buffer that still contains an earlier, longer message.
Source: MappedFileQueue#truncateDirtyFiles, DefaultAppendMessageCallback#doAppend, RocketMQ 5.4.0;
        logfile.DefaultMappedFile#appendMessage, RocketMQ 5.5.1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmqstore.checks.log.commitlog import LogResult, PassWork, read_log
from rmqstore.checks.log.log_pass import PassOptions
from rmqstore.checks.problems.report import Findings
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.formats.message import BLANK
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.resync import proven_records
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.scan.workers import Mapper, Progress, jobs_or_default

AFTER_END, AFTER_BLANK = "after-end", "after-blank"
CUT, REUSED = "cut", "reused"


@dataclass(frozen=True, slots=True)
class UnusedBytes:
    """Bytes of a log file without messages of the log. `where`: after-end or after-blank. Units: global offsets."""

    file: MappedFile
    start: int
    stop: int
    where: str


@dataclass(frozen=True, slots=True)
class OldRecords:
    """Some old records of one gap, as columns that are valid until the next iteration.

    `reused`: which of them name another position than their own. Such a record comes from an earlier use of the file or
    of the write buffer; the others were in the log before it was cut.
    Shape: (n,)
    """

    log: LogResult
    gap: UnusedBytes
    columns: Columns
    reused: Bool


class OldRecordFinder:
    """Finds the old records of a store. A pass over the logs tells which bytes belong to them.

    `live`: a broker is writing to the store. `progress` is called with the bytes of the log that were read.
    """

    def __init__(
        self,
        store: Store,
        *,
        jobs: int | None = None,
        options: ScanOptions | None = None,
        live: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.options = options or ScanOptions()
        self.live = live
        self.copies = 0
        """Number of records that were left out because the log contains them."""
        self.results = read_logs(store, self.options, jobs=jobs, live=live, progress=progress)

    @property
    def unreadable(self) -> bool:
        """Whether a part of a log could not be read."""
        return any(result.unreadable for result in self.results)

    def found(self) -> Iterator[OldRecords]:
        """Yield all old records in address order."""
        for result in self.results:
            for gap in gaps_of(result):
                yield from self._in_gap(result, gap)

    def _in_gap(self, result: LogResult, gap: UnusedBytes) -> Iterator[OldRecords]:
        try:
            window = Window(gap.file, self.options)
        except FileNotFoundError:
            return
        begin = gap.file.start
        try:
            for columns in proven_records(window, gap.start - begin, gap.stop - begin):
                reused = columns.elsewhere
                keep = ~reused
                if self.live:  # it may have been appended since the pass
                    keep &= columns.store_timestamp < result.max_time
                for i in np.flatnonzero(reused).tolist():
                    keep[i] = not self._contains(columns, i)
                if keep.any():
                    index: I64 = np.flatnonzero(keep)
                    yield OldRecords(result, gap, columns.take(index), reused[index])
        finally:
            window.close()

    def _contains(self, columns: Columns, i: int) -> bool:
        """Return whether a log contains the same record at the position that the record names."""
        named, at, size = int(columns.physical_offset[i]), int(columns.at[i]), int(columns.size[i])
        for result in self.results:
            is_within = result.min_offset <= named and named + size <= result.wrote
            if is_within and result.queue.pread(size, named) == columns.raw[at : at + size]:
                self.copies += 1
                return True
        return False


def earlier_records(
    store: Store, options: ScanOptions, jobs: int, progress: Progress | None
) -> Iterator[tuple[str, Columns]]:
    """Yield the old records of a store in address order, each with the name of its file."""
    live = store.lock_state().held
    finder = OldRecordFinder(store, jobs=jobs, options=options, live=live, progress=progress)
    for old in finder.found():
        yield old.gap.file.name, old.columns


def read_logs(
    store: Store,
    options: ScanOptions,
    *,
    jobs: int | None = None,
    live: bool = False,
    progress: Progress | None = None,
    mapper: Mapper | None = None,
) -> list[LogResult]:
    """Read the logs of a store, which tells what belongs to them and where they end."""
    passing = replace(_passing(store, options), live=live)
    out = []
    for queue, body_offset in store.logs:
        work = PassWork(jobs_or_default(jobs, queue.bytes_on_disk), progress=progress, mapper=mapper)
        out.append(read_log(queue, passing, Findings(keep=0), body_offset=body_offset, work=work))
    return out


def _passing(store: Store, options: ScanOptions) -> PassOptions:
    given = tuple(sorted(store.config.given.items()))
    return PassOptions(store.path, given, options, crosscheck=False, files=store.files)


def gaps_of(result: LogResult) -> Iterator[UnusedBytes]:
    """Yield the bytes of a log's files after each BLANK and after the end of the log, in address order."""
    end = result.wrote
    for run in result.tiling:
        if run.kind is Kind.BLANK and run.stop <= end:
            file = result.queue.find(run.start)
            start = run.start + BLANK.size
            if file is not None and start < run.stop == file.stop:
                yield UnusedBytes(file, start, run.stop, AFTER_BLANK)
    for file in result.queue.files:
        if file.stop > end:
            yield UnusedBytes(file, max(file.start, end), file.stop, AFTER_END)


def row_of(old: OldRecords, i: int) -> dict[str, Any]:
    """Return the row of `lost --stale` of a record: what and where it is, why it is old, and by how much (ms)."""
    message = old.columns.message(i)
    known = properties.parse_properties(message.properties)
    last = old.log.max_time if old.log.messages else None
    return {
        "topic": message.topic_text,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "log": old.log.name,
        "file": old.gap.file.name,
        "offset": int(old.columns.offset[i]),
        "physical_offset": message.physical_offset,
        "size": message.size,
        "keys": known.get(properties.KEYS),
        "unique_key": known.get(properties.UNIQ_KEY),
        "tags": known.get(properties.TAGS),
        "store_timestamp": message.store_timestamp,
        "older_by": None if last is None else last - message.store_timestamp,
        "where": old.gap.where,
        "why": REUSED if old.reused[i] else CUT,
        "stale": True,
    }
