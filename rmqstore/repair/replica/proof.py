"""Proof that another store is a replica: it has equal records at the same offsets, around every place and in samples.

Two replicas have the same log up to some offset, and different ones behind it if they diverged (another epoch or term).
So every place before an equal record is before the divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.errors import Refused
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica
from rmqstore.repair.replica.spans import Span
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions

_NEAR = 8  # records on each side of a place
_SAMPLES = 64  # files of which the first records are compared
_WINDOW = 64 << 10


class _State(Enum):
    EQUAL = 1
    DIFFERENT = 2
    NOTHING = 3  # the replica has no good record there


@dataclass(frozen=True, slots=True)
class Proof:
    """What the comparison of a log with a replica's gave.

    `equal`: records that are equal. `equal_until`: end of the last one of them; `diverges_at`: the first record behind
    it that differs, None where none does. Global offsets.
    """

    equal: int
    equal_until: int
    diverges_at: int | None

    def covers(self, place: Place) -> bool:
        """Whether the replica's bytes at a place are bytes of the same log."""
        if place.stop < place.log.wrote:
            return place.stop <= self.equal_until
        # no record of this log follows, so the last one before it must be equal
        ends = [run.stop for run in place.log.tiling if run.kind is Kind.RECORDS and run.stop <= place.start]
        return self.diverges_at is None and self.equal_until >= max(ends, default=place.start)


def prove(log: LogResult, replica: Replica, places: Sequence[Place], wanted: Callable[[Span], bool]) -> Proof:
    """Compare the records around the places, and samples over the whole log, with a replica's.

    `wanted`: whether a record may be compared; fillers and records in doubt may not.
    Errors: Refused, where nothing proves that it is a replica.
    """
    spans = {span for span in _samples(log) if wanted(span)}
    for place in places:
        spans.update(span for at in (place.start, place.stop) for span in _around(log, at) if wanted(span))
    equal, different = [], []
    for span in sorted(spans):
        state = _state(log, replica, span)
        if state is _State.EQUAL:
            equal.append(span)
        elif state is _State.DIFFERENT:
            different.append(span)
    if not equal:
        raise Refused(
            _no_proof(log, replica, different), "give another node of the same group, or a copy of this store"
        )
    until = equal[-1][1]
    behind = [start for start, _ in different if start >= until]
    if not behind:
        return Proof(len(equal), until, None)
    for span in _records_between(log, until, behind[0]):
        state = _state(log, replica, span) if wanted(span) else _State.NOTHING
        if state is _State.DIFFERENT:
            return Proof(len(equal), until, span[0])
        if state is _State.EQUAL:
            until = span[1]
    return Proof(len(equal), until, behind[0])


def _no_proof(log: LogResult, replica: Replica, different: Sequence[Span]) -> str:
    name = log.queue.name
    if different:
        at = different[0][0]
        return f"{replica.name} is not a replica: its {name} has another record at offset {at:,}"
    theirs = replica.log(log.lead)
    if theirs is None:
        return f"{replica.name} is not a replica: it has no {name}"
    ranges = f"offsets {theirs.start:,} to {theirs.stop:,}, this store {log.queue.start:,} to {log.queue.stop:,}"
    return f"{replica.name} has no record in common with this store: its {name} has files for {ranges}"


def _state(log: LogResult, replica: Replica, span: Span) -> _State:
    start, stop = span
    own = log.queue.pread(stop - start, start)
    if len(own) == stop - start and own == replica.bytes_at(log.lead, start, stop):
        return _State.EQUAL
    return _State.DIFFERENT if replica.sound_record(log.lead, start) else _State.NOTHING


def _samples(log: LogResult) -> Iterator[Span]:
    """The first records of files over the whole log, and the last records."""
    files = [f for f in log.queue.files if f.start < log.wrote]
    step = max(1, len(files) // _SAMPLES)
    for file in files[::step]:
        yield from _behind(log, file.start)
    yield from _before(log, log.wrote)


def _around(log: LogResult, at: int) -> Iterator[Span]:
    yield from _before(log, at)
    yield from _behind(log, at)


def _before(log: LogResult, at: int) -> Sequence[Span]:
    """The last good records before an offset; over the BLANK at the end of a file, and over damage, too."""
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
        found = list(_records(log, file, start, stop, exact=start == begin))
        if found or start == begin:
            return found[-_NEAR:]
        look *= 8


def _behind(log: LogResult, at: int) -> Sequence[Span]:
    """The first good records at or behind an offset; behind a BLANK, and behind damage, too."""
    run = log.tiling.find(at)
    while run is not None and run.kind is not Kind.RECORDS:
        run = log.tiling.find(run.stop)
    file = log.queue.find(max(run.start, at)) if run is not None else None
    if run is None or file is None:
        return ()
    start = max(run.start, at)
    stop = min(run.stop, start + _WINDOW)
    return list(_records(log, file, start, stop, exact=True))[:_NEAR]


def _records_between(log: LogResult, low: int, high: int) -> Iterator[Span]:
    """All good records that start in [low, high]; `low` is the start of one, or the end of a run of them."""
    for run in log.tiling:
        if run.kind is not Kind.RECORDS or run.stop <= low or run.start > high:
            continue
        start = max(run.start, low)
        file = log.queue.find(start)
        if file is not None:
            yield from _records(log, file, start, min(run.stop, high + 1), exact=True)


def _records(log: LogResult, file: MappedFile, start: int, stop: int, *, exact: bool) -> Iterator[Span]:
    """[start, stop) of the good records that start in a range of a file."""
    options = ScanOptions(crc=False, chunk=2 * _WINDOW)
    first, last = start - file.start, stop - file.start
    for run in scan_file(file, start=first, stop=last, lead=log.lead, exact=exact, options=options):
        if run.kind is Kind.RECORDS and run.columns is not None:
            begins = (run.columns.offset - log.lead).tolist()
            ends = (run.columns.offset + run.columns.size).tolist()
            yield from zip(begins, ends, strict=True)
