"""Finds good records of a log near an offset or in a range, reading only the bytes around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.repair.log.spans import Span
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions

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


def first_behind(log: LogResult, at: int) -> Sequence[Span]:
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
