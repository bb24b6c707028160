"""Proves that another store is a replica: it has equal records at the same offsets, around every place and in samples.

Two replicas have the same log up to some offset, and different ones after it if they diverged (another epoch or term).
So every place before an equal record is before the divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.errors import Refused
from rmqstore.repair.log.records_near import first_behind, last_before, records_between
from rmqstore.repair.log.spans import Span
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica
from rmqstore.scan.tiling import Kind

_SAMPLES = 64  # files of which the first records are compared


class _State(Enum):
    EQUAL = 1
    DIFFERENT = 2
    NOTHING = 3  # the replica has no good record there


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of comparing a log with a replica's.

    `equal` is the number of equal records, `equal_until` the end of the last one, `diverges_at` the start of the first
    record after it that differs; None if none does. Global offsets.
    """

    equal: int
    equal_until: int
    diverges_at: int | None

    def covers(self, place: Place) -> bool:
        """Return whether the replica's bytes at a place belong to the same log."""
        if place.stop < place.log.wrote:
            return place.stop <= self.equal_until
        # no record of this log follows, so the last one before it must be equal
        ends = [run.stop for run in place.log.tiling if run.kind is Kind.RECORDS and run.stop <= place.start]
        return self.diverges_at is None and self.equal_until >= max(ends, default=place.start)


def prove(log: LogResult, replica: Replica, places: Sequence[Place], wanted: Callable[[Span], bool]) -> Proof:
    """Compare the records around the places, and samples over the whole log, with a replica's.

    `wanted` returns whether to compare a record; fillers and suspect records are not compared.
    Errors: Refused if nothing proves that it is a replica.
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
    for span in records_between(log, until, behind[0]):
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
    """Yield the first records of files over the whole log, and the last records."""
    files = [f for f in log.queue.files if f.start < log.wrote]
    step = max(1, len(files) // _SAMPLES)
    for file in files[::step]:
        yield from first_behind(log, file.start)
    yield from last_before(log, log.wrote)


def _around(log: LogResult, at: int) -> Iterator[Span]:
    yield from last_before(log, at)
    yield from first_behind(log, at)
