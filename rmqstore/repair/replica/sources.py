"""Chooses the replica for each place; all replicas with good bytes there must agree. Reads only the replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rmqstore.files.mapped_file_queue import message_at
from rmqstore.repair.log.spans import Span, joined, overlapping, within, without
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica, closes_file
from rmqstore.texts import Text

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes [start, stop) of one file of a log (global offsets) to take from a replica.

    `good` bytes are whole records, or a BLANK. Others are the damaged bytes of a replica in place of a missing file;
    the rest of the repair examines them.
    """

    place: Place
    start: int
    stop: int
    replica: Replica
    good: bool = True


@dataclass(slots=True)
class Sources:
    """What to take for the places; `notes` say what is not taken, and why."""

    taken: list[Taken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_sources(allowed: Mapping[Place, Sequence[Replica]]) -> Sources:
    """Find the bytes for each place in the replicas that are proved for it."""
    out = Sources()
    wanted: dict[int, list[Span]] = {}
    for place in allowed:
        wanted.setdefault(place.log.body_offset, []).append(place.span)
    files = {body_offset: joined(spans) for body_offset, spans in wanted.items()}
    for place, replicas in allowed.items():
        if replicas:
            _take(place, replicas, files[place.log.body_offset], out)
    return out


def _take(place: Place, replicas: Sequence[Replica], wanted: Sequence[Span], out: Sources) -> None:
    taken: list[Taken] = []
    for low, high in place.pieces():
        covered: list[Span] = []
        good: list[tuple[Replica, list[Span]]] = []
        for replica in replicas:
            found = _good(replica, place, low, high, wanted)
            if found is None:
                out.notes.append(
                    Text(
                        "{replica} has records at offset {low:,} that do not fit between those of this store: "
                        "nothing is taken there",
                        replica=replica.name,
                        low=low,
                    )
                )
                return
            good.append((replica, found))
        for replica, found in _doubtful_last(place, good, wanted):
            at = _first_disagreement(place, replica, found, taken)
            if at is not None:
                out.notes.append(Text("the replicas disagree at offset {at:,}: nothing is taken there", at=at))
                return
            taken += [Taken(place, a, b, replica) for a, b in without(found, covered)]
            covered = joined([*covered, *found])
        gaps = [gap for gap in without([(low, high)], covered) if not _is_blank_here(place, gap)]
        end = next((start for start, stop in gaps if stop >= place.lost_until), None) if place.open_end else None
        if end is not None:  # nothing after damage that this store never had
            taken = [t for t in taken if t.start < end]
            taken += _raw(place, [gap for gap in gaps if gap[0] < end], replicas)
            break
        if place.open_end or place.log.queue.find(low) is None:
            taken += _raw(place, gaps, replicas)
    if place.open_end:  # no damage of the replica after its last good record
        end = max((t.stop for t in taken if t.good), default=place.start)
        taken = [t for t in taken if t.stop <= end]
    if any(t.good for t in taken):
        out.taken += sorted(taken, key=lambda t: t.start)
    else:
        out.notes.append(
            Text("no replica has sound bytes for offset {start:,} to {stop:,}", start=place.start, stop=place.stop)
        )


def _is_blank_here(place: Place, gap: Span) -> bool:
    """Return whether this store's file ends with a BLANK there, which a replica's damage must not replace."""
    queue, body_offset = place.log.queue, place.log.body_offset
    return gap[1] % queue.file_size == 0 and closes_file(queue, body_offset, *gap)


def _doubtful_last(
    place: Place, good: Sequence[tuple[Replica, list[Span]]], wanted: Sequence[Span]
) -> Iterator[tuple[Replica, list[Span]]]:
    """Yield the good bytes of each replica: records that its own queues or index contradict come last.

    Such a record has a proved body, but damaged properties. It is left out if any replica has a better one.
    """
    better: list[Span] = []
    for replica, found in good:
        read = replica.witnesses(place.log.body_offset, wanted)
        clean = without(found, read.spans if read is not None else [])
        better = joined([*better, *clean])
        yield replica, clean
    for replica, found in good:
        if doubtful := without(found, better):
            yield replica, doubtful


def _good(replica: Replica, place: Place, low: int, high: int, wanted: Sequence[Span]) -> list[Span] | None:
    """Return runs of whole good records of a replica in [low, high); None if they do not fit the place.

    Records of the replica that extend beyond the place contradict the records of this store beside it.
    """
    body_offset, size = place.log.body_offset, place.log.queue.file_size
    border = (low // size + 1) * size
    out: list[Span] = []
    for run in overlapping(replica.sound(body_offset, wanted), low, high):
        begin, end = _records_in(replica, body_offset, run, low, high)
        if begin < low or (end > high and not (place.open_end and end <= border)):
            return None
        out.append((begin, end))
    last = max((end for _, end in out), default=low)
    if high == border and last < high and closes_file(replica.log(body_offset), body_offset, last, high):
        out = joined([*out, (last, high)])
    return within(out, low, border)


def _records_in(replica: Replica, body_offset: int, run: Span, low: int, high: int) -> Span:
    """Return the range of a run's records that share a byte with [low, high)."""
    begin, end = run
    if begin < low and replica.sound_record(body_offset, low):
        begin = low
    if end > high:
        end = (
            high
            if replica.sound_record(body_offset, high)
            else _border_behind(replica, body_offset, (begin, end), high)
        )
    return begin, end


def _border_behind(replica: Replica, body_offset: int, run: Span, at: int) -> int:
    """Return the end of the record that contains the byte before `at`."""
    queue, start = replica.log(body_offset), run[0]
    while queue is not None and start < at:
        message = message_at(queue, start + body_offset)
        if message is None:
            return run[1]
        start += body_offset + message.size
    return start


def _first_disagreement(place: Place, replica: Replica, found: Sequence[Span], taken: Sequence[Taken]) -> int | None:
    """Return the first offset at which a replica's good bytes differ from those taken from others; None if none do."""
    for other in taken:
        for low, high in within(found, other.start, other.stop):
            for at in range(low, high, _BLOCK):
                stop = min(at + _BLOCK, high)
                mine = replica.bytes_at(place.log.body_offset, at, stop)
                theirs = other.replica.bytes_at(place.log.body_offset, at, stop)
                if mine != theirs:
                    return at + next((i for i, (x, y) in enumerate(zip(mine, theirs, strict=False)) if x != y), 0)
    return None


def _raw(place: Place, gaps: Sequence[Span], replicas: Sequence[Replica]) -> list[Taken]:
    """Take damaged bytes of the replicas for gaps where this store has no bytes at all."""
    out = []
    for low, high in gaps:
        for replica in replicas:
            if len(replica.bytes_at(place.log.body_offset, low, high)) == high - low:
                out.append(Taken(place, low, high, replica, good=False))
                break
    return out
