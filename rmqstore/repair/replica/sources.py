"""Which replica's bytes go where: all replicas with good bytes at a place must agree. Reads the replicas only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmqstore.files.records import message_at
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica
from rmqstore.repair.replica.spans import Span, joined, overlapping, within, without

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes [start, stop) of one file of a log, global offsets, that come from a replica.

    `good`: whole records, and a BLANK. Else they are what a replica with damage of its own has in place of a missing
    file: what can be told of them is for the rest of the repair to find.
    """

    place: Place
    start: int
    stop: int
    replica: Replica
    good: bool = True


@dataclass(slots=True)
class Sources:
    """What the replicas give for the places; `notes` say what is not taken, and why."""

    taken: list[Taken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_sources(places: Sequence[Place], allowed: Mapping[Place, Sequence[Replica]]) -> Sources:
    """Bytes for each place from the replicas that are proved for it."""
    out = Sources()
    wanted: dict[int, list[Span]] = {}
    for place in allowed:
        wanted.setdefault(place.log.lead, []).append(place.span)
    files = {lead: joined(spans) for lead, spans in wanted.items()}
    for place in places:
        replicas = allowed.get(place, ())
        if replicas:
            _take(place, replicas, files[place.log.lead], out)
    return out


def _take(place: Place, replicas: Sequence[Replica], wanted: Sequence[Span], out: Sources) -> None:
    taken: list[Taken] = []
    for low, high in place.pieces():
        covered: list[Span] = []
        for replica in replicas:
            found = _good(replica, place, low, high, wanted)
            if found is None:
                out.notes.append(
                    f"{replica.name} has records at offset {low:,} that do not fit between those of this store: "
                    "nothing is taken there"
                )
                return
            at = _first_disagreement(place, replica, found, taken)
            if at is not None:
                out.notes.append(f"the replicas disagree at offset {at:,}: nothing is taken there")
                return
            taken += [Taken(place, a, b, replica) for a, b in without(found, covered)]
            covered = joined([*covered, *found])
        gaps = without([(low, high)], covered)
        end = next((start for start, stop in gaps if stop >= place.lost_until), None) if place.open_end else None
        if end is not None:  # what this store never had is not taken from behind damage
            taken = [t for t in taken if t.start < end]
            taken += _raw(place, [gap for gap in gaps if gap[0] < end], replicas)
            break
        if place.open_end or place.log.queue.find(low) is None:
            taken += _raw(place, gaps, replicas)
    if place.open_end:  # behind the last good record nothing needs the replica's damage
        end = max((t.stop for t in taken if t.good), default=place.start)
        taken = [t for t in taken if t.stop <= end]
    if any(t.good for t in taken):
        out.taken += sorted(taken, key=lambda t: t.start)
    else:
        out.notes.append(f"no replica has sound bytes for offset {place.start:,} to {place.stop:,}")


def _good(replica: Replica, place: Place, low: int, high: int, wanted: Sequence[Span]) -> list[Span] | None:
    """Runs of whole good records of a replica in [low, high); None where they do not fit the place.

    Records of the replica that reach over an end of the place contradict the records of the store beside it.
    """
    lead, size = place.log.lead, place.log.queue.file_size
    border = (low // size + 1) * size
    out: list[Span] = []
    for run in overlapping(replica.sound(lead, wanted), low, high):
        begin, end = _records_in(replica, lead, run, low, high)
        if begin < low or (end > high and not (place.open_end and end <= border)):
            return None
        out.append((begin, end))
    last = max((end for _, end in out), default=low)
    if high == border and last < high and replica.closes_file(lead, last, high):
        out = joined([*out, (last, high)])
    return within(out, low, border)


def _records_in(replica: Replica, lead: int, run: Span, low: int, high: int) -> Span:
    """The records of a run that have a byte in [low, high), from the start of the first to the end of the last."""
    begin, end = run
    if begin < low:
        begin = _border(replica, lead, run, low)
    if end > high:
        end = high if replica.sound_record(lead, high) else _border_behind(replica, lead, (begin, end), high)
    return begin, end


def _border(replica: Replica, lead: int, run: Span, at: int) -> int:
    """`at` where a record starts there; else something before it."""
    return at if replica.sound_record(lead, at) else run[0]


def _border_behind(replica: Replica, lead: int, run: Span, at: int) -> int:
    """Where the record that holds the byte before `at` ends."""
    queue, start = replica.log(lead), run[0]
    while queue is not None and start < at:
        message = message_at(queue, start + lead)
        if message is None:
            return run[1]
        start += lead + message.size
    return start


def _first_disagreement(place: Place, replica: Replica, found: Sequence[Span], taken: Sequence[Taken]) -> int | None:
    """The first offset at which a replica has other good bytes than those that were taken from the others."""
    for other in taken:
        for low, high in within(found, other.start, other.stop):
            for at in range(low, high, _BLOCK):
                stop = min(at + _BLOCK, high)
                mine = replica.bytes_at(place.log.lead, at, stop)
                theirs = other.replica.bytes_at(place.log.lead, at, stop)
                if mine != theirs:
                    return at + next((i for i, (x, y) in enumerate(zip(mine, theirs, strict=False)) if x != y), 0)
    return None


def _raw(place: Place, gaps: Sequence[Span], replicas: Sequence[Replica]) -> list[Taken]:
    """What the replicas have, damaged as it is, where this store has no bytes at all."""
    out = []
    for low, high in gaps:
        for replica in replicas:
            if len(replica.bytes_at(place.log.lead, low, high)) == high - low:
                out.append(Taken(place, low, high, replica, good=False))
                break
    return out
