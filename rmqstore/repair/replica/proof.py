"""Proves that another store is a replica: it has equal records at the same offsets, around every place and in samples.

Two replicas have the same log up to some offset, and different ones after it if they diverged (another epoch or term).
So every place before an equal record is before the divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.errors import Refused
from rmqstore.repair.log.records_near import first_behind, last_before, records_between
from rmqstore.repair.log.spans import Span, overlapping
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text

_BORDERS = 3  # borders of files at which other file sizes are proved
_SAMPLES = 64  # files of which the first records are compared


class _State(Enum):
    EQUAL = 1
    DIFFERENT = 2
    NOTHING = 3  # no good record of the replica starts there


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
    _refuse_other_sizes(log, replica)
    near = {at for place in places for at in place.span} | {replica.last_sound(log.body_offset, log.wrote)}
    spans = {*_samples(log), *(span for at in near for span in _around(log, at))}
    found: dict[_State, list[Span]] = {state: [] for state in _State}
    for span in sorted(filter(wanted, spans)):
        found[_state(log, replica, span)].append(span)
    equal, different = found[_State.EQUAL], found[_State.DIFFERENT]
    if (
        not equal
        and replica.own
        and not different
        and not any(_inside(replica, log.body_offset, span) for span in found[_State.NOTHING])
    ):
        return Proof(0, log.queue.start, None)  # the log has no record of this file left; other files may prove it
    if not equal:
        raise Refused(
            _no_proof(log, replica, different), Text("give another node of the same group, or a copy of this store")
        )
    until = equal[-1][1]
    behind = next((start for start, _ in different if start >= until), None)
    if behind is None:  # after a divergence, few records of the two logs start at the same offset
        rest = (span for span in found[_State.NOTHING] if span[0] >= until)
        behind = next((span[0] for span in rest if _inside(replica, log.body_offset, span)), None)
    if behind is None:
        return Proof(len(equal), until, None)
    for span in records_between(log, until, behind):
        state = _state(log, replica, span) if wanted(span) else _State.NOTHING
        if state is _State.DIFFERENT:
            return Proof(len(equal), until, span[0])
        if state is _State.EQUAL:
            until = span[1]
    return Proof(len(equal), until, behind)


def _refuse_other_sizes(log: LogResult, replica: Replica) -> None:
    """Refuse a replica with other file sizes, in which records cross a border of files.

    A log never has a record across a border, so messages after the first border have other offsets. If no record
    crosses, as in a copy with joined files, the addresses are the same.
    Errors: Refused.
    """
    theirs = replica.log(log.body_offset)
    if theirs is None or theirs.file_size == log.queue.file_size:
        return
    small, large = sorted((theirs.file_size, log.queue.file_size))
    low, high = max(theirs.start, log.queue.start), min(theirs.stop, log.wrote)
    borders = (at for at in range(low // small * small + small, high, small) if at % large)
    crossed = _crossed_there if theirs.file_size == large else _crossed_here
    for border in islice(borders, _BORDERS):
        if crossed(log, replica, border):
            raise Refused(
                Text(
                    "{replica} is not a replica: its {queue} has files of {file_size:,} bytes, those of this "
                    "store have {file_size2:,}, and a record crosses offset {border:,}, where one ends",
                    replica=replica.name,
                    queue=log.queue.name,
                    file_size=theirs.file_size,
                    file_size2=log.queue.file_size,
                    border=border,
                ),
                Text("give another node of the same group, or a copy of this store"),
            )


def _crossed_there(log: LogResult, replica: Replica, border: int) -> bool:
    """Return whether a record of the replica crosses an offset."""
    runs = overlapping(replica.sound(log.body_offset, [(border, border + 1)]), border, border + 1)
    return bool(runs) and runs[0][0] < border and not replica.sound_record(log.body_offset, border)


def _crossed_here(log: LogResult, _: Replica, border: int) -> bool:
    """Return whether a record of the log crosses an offset."""
    run = log.tiling.find(border)
    if run is None or run.kind is not Kind.RECORDS or run.start == border:
        return False
    return next((start for start, _ in first_behind(log, border)), -1) != border


def _no_proof(log: LogResult, replica: Replica, different: Sequence[Span]) -> str:
    name = log.queue.name
    if different:
        at = different[0][0]
        return Text(
            "{replica} is not a replica: its {name} has another record at offset {at:,}",
            replica=replica.name,
            name=name,
            at=at,
        )
    theirs = replica.log(log.body_offset)
    if theirs is None:
        return Text("{replica} is not a replica: it has no {name}", replica=replica.name, name=name)
    ranges = Text(
        "offsets {start:,} to {stop:,}, this store {start2:,} to {stop2:,}",
        start=theirs.start,
        stop=theirs.stop,
        start2=log.queue.start,
        stop2=log.queue.stop,
    )
    return Text(
        "{replica} has no record in common with this store: its {name} has files for {ranges}",
        replica=replica.name,
        name=name,
        ranges=ranges,
    )


def _state(log: LogResult, replica: Replica, span: Span) -> _State:
    start, stop = span
    own = log.queue.pread(stop - start, start)
    if len(own) == stop - start and own == replica.bytes_at(log.body_offset, start, stop):
        return _State.EQUAL
    return _State.DIFFERENT if replica.sound_record(log.body_offset, start) else _State.NOTHING


def _inside(replica: Replica, body_offset: int, span: Span) -> bool:
    """Return whether a record starts within the replica's good records."""
    return bool(overlapping(replica.sound(body_offset, [span]), span[0], span[0] + 1))


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
