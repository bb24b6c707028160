"""Proves that another store is a replica, and up to where.

It is one if it has equal records at the same offsets, around every place and in samples. Two replicas have the same log
up to some offset, and different ones after it if they diverged (another epoch or term). So every place before an equal
record is before the divergence.

If no equal record follows a damaged place, the replica's log may end inside the place, like that of a follower that was
behind. Two logs are equal up to any record that both have, so one proved record in the place proves all of the
replica's log before it. The proofs are:

* an entry of this store's index with the hash of the record's unique key, which points to the same offset;
* controller mode: both nodes have the same epoch, which has one master, and therefore one log;
* DLedger: this store's index has the entry, with its term; or the entry has the term of this store's next entry. A term
  has one leader, and therefore one log.

After the lost end of this store's log, the records alone show nothing, but other files may know of the lost messages:

* the index has the hash of each message's unique key;
* DLedger's index has position, size and term of each entry;
* consume queue units have queue, queue offset and size;
* in controller mode, the epochs of both nodes.

One damaged witness does not prove a divergence: after a divergence, all of them contradict the replica up to its end.

If no witness is left, nothing proves that the replica has what this store had. Entries that a DLedger replica knows to
be committed need no witness: if this store had other entries there, they were not committed, and the group discards
them. Entries after them need this store's DLedger index, or the key of their message in its index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from rmqstore.checks.beside.dledger import entries_after
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.verified import Verified
from rmqstore.errors import Refused
from rmqstore.files.controller import stored_epochs
from rmqstore.files.store import Store
from rmqstore.formats import dledger, index, properties
from rmqstore.formats.message import Message
from rmqstore.repair.repaired_log import Span, first_after, last_before, overlapping, records_between, within
from rmqstore.repair.replica.replica import ReplicaLog
from rmqstore.repair.replica.sources import Place, differing_records
from rmqstore.repair.salvage.evidence import Evidence, Expected
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text

_BORDERS = 3  # borders of files at which other file sizes are proved
_SAMPLES = 64  # files of which the first records are compared


class _Agreement(Enum):
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


def prove(log: LogResult, replica: ReplicaLog, places: Sequence[Place], wanted: Callable[[Span], bool]) -> Proof:
    """Compare the records around the places, and samples over the whole log, with a replica's.

    `wanted` returns whether to compare a record; fillers and suspect records are not compared.
    Errors: Refused if nothing proves that it is a replica.
    """
    _refuse_other_sizes(log, replica)
    near = {at for place in places for at in place.span} | {replica.last_sound(log.wrote)}
    spans = {*_samples(log), *(span for at in near for span in (*last_before(log, at), *first_after(log, at)))}
    found: dict[_Agreement, list[Span]] = {state: [] for state in _Agreement}
    for span in sorted(filter(wanted, spans)):
        found[_agreement(log, replica, span)].append(span)
    equal, different = found[_Agreement.EQUAL], found[_Agreement.DIFFERENT]
    if not equal:
        inside = (replica.has_sound(at, at + 1) for at, _ in found[_Agreement.NOTHING])
        if replica.replica.own and not different and not any(inside):
            return Proof(0, log.queue.start, None)  # the log has no record of this file left; other files may prove it
        raise Refused(
            _no_proof(log, replica, different), Text("give another node of the same group, or a copy of this store")
        )
    until = equal[-1][1]
    after = next((start for start, _ in different if start >= until), None)
    if after is None:  # after a divergence, few records of the two logs start at the same offset
        rest = (span for span in found[_Agreement.NOTHING] if span[0] >= until)
        after = next((span[0] for span in rest if replica.has_sound(span[0], span[0] + 1)), None)
    if after is None:
        return Proof(len(equal), until, None)
    for span in records_between(log, until, after):
        state = _agreement(log, replica, span) if wanted(span) else _Agreement.NOTHING
        if state is _Agreement.DIFFERENT:
            return Proof(len(equal), until, span[0])
        if state is _Agreement.EQUAL:
            until = span[1]
    return Proof(len(equal), until, after)


def fork(log: LogResult, replica: ReplicaLog, wanted: Callable[[Span], bool]) -> int | None:
    """Return the start of the first good record of a log that is another good one in a replica; None without one.

    All records are compared. Fillers of earlier repairs and records that a witness contradicts prove nothing.
    """
    for start, stop in differing_records(log, [replica]):
        if start >= log.wrote:
            return None
        if (
            wanted((start, stop))
            and log.queue.pread(stop - start, start) != replica.bytes_at(start, stop)
            and replica.has_sound(start, start + 1)
            and not replica.doubtful((start, stop))
        ):
            return start
    return None


def _refuse_other_sizes(log: LogResult, replica: ReplicaLog) -> None:
    """Refuse a replica with other file sizes, in which records cross a border of files.

    A log never has a record across a border, so messages after the first border have other offsets. If no record
    crosses, as in a copy with joined files, the addresses are the same.
    Errors: Refused.
    """
    theirs = replica.queue
    if theirs.file_size == log.queue.file_size:
        return
    small, large = sorted((theirs.file_size, log.queue.file_size))
    low, high = max(theirs.start, log.queue.start), min(theirs.stop, log.wrote)
    borders = (at for at in range(low // small * small + small, high, small) if at % large)
    crossed = _crossed_there if theirs.file_size == large else _crossed_here
    for border in islice(borders, _BORDERS):
        if crossed(log, replica, border):
            raise Refused(
                Text(
                    "{replica} is not a replica: its {queue} has files of {their_size:,} bytes, those of this "
                    "store have {file_size:,}, and a record crosses offset {border:,}, where one ends",
                    replica=replica.name,
                    queue=log.queue.name,
                    their_size=theirs.file_size,
                    file_size=log.queue.file_size,
                    border=border,
                ),
                Text("give another node of the same group, or a copy of this store"),
            )


def _crossed_there(log: LogResult, replica: ReplicaLog, border: int) -> bool:
    """Return whether a record of the replica crosses an offset."""
    runs = overlapping(replica.sound([(border, border + 1)]), border, border + 1)
    return bool(runs) and runs[0][0] < border and not replica.sound_record(border)


def _crossed_here(log: LogResult, _: ReplicaLog, border: int) -> bool:
    """Return whether a record of the log crosses an offset."""
    run = log.tiling.find(border)
    if run is None or run.kind is not Kind.RECORDS or run.start == border:
        return False
    return next((start for start, _ in first_after(log, border)), -1) != border


def _no_proof(log: LogResult, replica: ReplicaLog, different: Sequence[Span]) -> str:
    name = log.queue.name
    if different:
        at = different[0][0]
        return Text(
            "{replica} is not a replica: its {name} has another record at offset {at:,}",
            replica=replica.name,
            name=name,
            at=at,
        )
    ranges = Text(
        "offsets {their_start:,} to {their_stop:,}, this store {start:,} to {stop:,}",
        their_start=replica.queue.start,
        their_stop=replica.queue.stop,
        start=log.queue.start,
        stop=log.queue.stop,
    )
    return Text(
        "{replica} has no record in common with this store: its {name} has files for {ranges}",
        replica=replica.name,
        name=name,
        ranges=ranges,
    )


def _agreement(log: LogResult, replica: ReplicaLog, span: Span) -> _Agreement:
    start, stop = span
    own = log.queue.pread(stop - start, start)
    if len(own) == stop - start and own == replica.bytes_at(start, stop):
        return _Agreement.EQUAL
    return _Agreement.DIFFERENT if replica.sound_record(start) else _Agreement.NOTHING


def _samples(log: LogResult) -> Iterator[Span]:
    """Yield the first records of files over the whole log, and the last records."""
    files = [f for f in log.queue.files if f.start < log.wrote]
    step = max(1, len(files) // _SAMPLES)
    for file in files[::step]:
        yield from first_after(log, file.start)
    yield from last_before(log, log.wrote)


_KEY = 16  # bytes; a shorter key may be one that a producer chose, which is not unique


def proved_until(store: Store, verified: Verified, replica: ReplicaLog, place: Place) -> int:
    """Return the offset up to which a replica's records in a place are proved; the place's start if none is."""
    found = [(span, m) for span, m in _records(replica, place) if span[1] <= place.stop]
    if not found:
        return place.start
    if place.log.body_offset:
        spans = [span for span, _ in found]
        units = dict(entries_after(store, place.log))
        indexed = [stop for start, stop in spans if start in units and same_entry(replica, start, units[start])]
        return max([_by_term(replica, place, spans), *indexed])
    end = max(_by_index(verified, place, found), common_epoch_end(store, replica))
    return max((stop for (_, stop), _ in found if stop <= end), default=place.start)


def _records(replica: ReplicaLog, place: Place) -> Iterator[tuple[Span, Message]]:
    """Yield the replica's sound records in a place."""
    body_offset, at = place.log.body_offset, place.start
    runs = within(overlapping(replica.sound([place.span]), *place.span), *place.span)
    while runs and at < runs[-1][1]:
        message = replica.sound_record(at)
        if message is None:
            at = next((start for start, _ in runs if start > at), place.stop)
            continue
        stop = at + body_offset + message.size
        yield (at, stop), message
        at = stop


def _by_index(verified: Verified, place: Place, found: list[tuple[Span, Message]]) -> int:
    """Return the end of the last record whose unique key the index has."""
    keys = indexed_keys(verified, place)
    for (start, stop), message in reversed(found):
        if unique_key_hash(message) in keys.get(start, ()):
            return stop
    return place.start


def indexed_keys(verified: Verified, place: Place) -> dict[int, set[int]]:
    """Return the key hashes that this store's index has for the messages of a place, by offset of the message."""
    out: dict[int, set[int]] = {}
    if verified.index is not None:
        body_offset = place.log.body_offset
        offset, hashes = verified.index.hashes(place.start + body_offset, place.stop + body_offset)
        for at, key in zip(offset.tolist(), hashes.tolist(), strict=True):
            out.setdefault(at, set()).add(key)
    return out


def unique_key_hash(message: Message) -> int | None:
    """Return the hash by which the index has a message's unique key; None without one."""
    key = properties.parse_properties(message.properties).get(properties.UNIQ_KEY)
    return index.key_hash(index.key_text(message.topic_text, key)) if key else None


def key_remains(replica: ReplicaLog, place: Place) -> bool:
    """Return whether damaged bytes of this store still have the unique key of a replica's record, at its offset."""
    for (start, stop), message in _records(replica, place):
        key = properties.parse_properties(message.properties).get(properties.UNIQ_KEY, "").encode()
        at = start + replica.bytes_at(start, stop).rfind(key)
        if len(key) >= _KEY and place.log.queue.pread(len(key), at) == key:
            return True
    return False


def common_epoch_end(store: Store, replica: ReplicaLog) -> int:
    """Return the offset up to which both nodes have the last common epoch; 0 without one.

    Source: EpochFileCache#findConsistentPoint (RocketMQ 5.4.0)
    """
    ours, theirs = stored_epochs(store), stored_epochs(replica.store)
    for n, entry in reversed([*enumerate(ours)]):
        if entry in theirs:
            after = [later.start_offset for later in (*ours[n + 1 : n + 2], *theirs[theirs.index(entry) + 1 :][:1])]
            return min(after, default=1 << 62)
    return 0


def same_entry(replica: ReplicaLog, start: int, unit: Mapping[str, int]) -> bool:
    """Return whether a replica's entry at a global offset is the one of a unit of this store's DLedger index."""
    theirs = dledger.ENTRY.parse(replica.bytes_at(start, start + dledger.ENTRY.size))
    return all(theirs[name] == unit[name] for name in ("pos", "size", "index", "term"))


def _by_term(replica: ReplicaLog, place: Place, found: list[Span]) -> int:
    """Return the end of the replica's last entry with the term of this store's next two entries.

    Two entries are compared, because the term of one may be damaged.
    """
    size = dledger.ENTRY.size
    after = first_after(place.log, place.stop)
    terms = {_term(place.log.queue.pread(size, start)) for start, _ in after[:2]}
    same = [stop for start, stop in found if {_term(replica.bytes_at(start, start + size))} == terms]
    return max(same, default=place.start)


def _term(entry: bytes) -> int:
    return int(dledger.ENTRY.parse(entry)["term"])


@dataclass(slots=True)
class LostEnd:
    """The results of the witnesses for a replica's records in the lost end of a log; global offsets of records.

    `agreed` is the end of the last record that the index proves, `fits` of the last one that any witness fits, and
    `diverges_at` the start of the first one that is contradicted, without a later record that agrees. `supported`: at
    least one witness of a plain log agrees.
    """

    agreed: int
    diverges_at: int | None = None
    fits: int = 0
    supported: bool = False


def compare_lost_end(store: Store, verified: Verified, replica: ReplicaLog, place: Place) -> LostEnd:
    """Compare a place, usually the end of a log, which no record of the log follows, with a replica's records."""
    body_offset = place.log.body_offset
    keys = indexed_keys(verified, place)
    units = Evidence(store, verified).about([place.span]).at
    entries = {pos + body_offset: unit for pos, unit in entries_after(store, place.log)}
    by_key, by_unit = LostEnd(place.start), LostEnd(place.start)
    for at in sorted({*keys, *units, *entries}):
        start = at - body_offset
        if not place.start <= start < place.stop or not replica.has_sound(start, start + 1):
            continue
        message = replica.sound_record(start)
        stop = start + body_offset + message.size if message is not None else start
        proved = _proved(replica, message, start, keys.get(at, set()), entries.get(at))
        agrees = proved if proved is not None else _fits(message, units.get(at))
        if proved is not None:
            _note(by_key, start, stop, agrees=proved)
        if agrees is not None:
            _note(by_unit, start, stop, agrees=agrees)
    differs = (by_key.diverges_at, by_unit.diverges_at, _other_epoch(store, replica, place))
    first = min((at for at in differs if at is not None), default=None)
    fits = by_unit.agreed
    in_epoch = common_epoch_end(store, replica) > place.start
    supported = fits > place.start or in_epoch or key_remains(replica, place)
    return LostEnd(by_key.agreed if first is None else min(by_key.agreed, first), first, fits, supported)


def _note(end: LostEnd, start: int, stop: int, *, agrees: bool) -> None:
    if agrees:
        end.agreed, end.diverges_at = stop, None
    elif end.diverges_at is None:
        end.diverges_at = start


def _proved(
    replica: ReplicaLog, message: Message | None, start: int, keys: set[int], entry: dict[str, int] | None
) -> bool | None:
    """Return whether index and DLedger's index have this record or another one; None if they do not tell."""
    if message is None:
        return False if keys or entry else None
    if entry is not None:
        return same_entry(replica, start, entry)
    key = unique_key_hash(message)
    return key in keys if keys and key is not None else None


def _fits(message: Message | None, unit: Expected | None) -> bool | None:
    """Return whether a consume queue unit fits a record; None without a unit."""
    if unit is None or message is None:
        return None if unit is None else False
    slot = unit.slot
    theirs = message.topic_text, message.queue_id, message.queue_offset
    return theirs == slot.key and unit.size in (None, message.size)


def _other_epoch(store: Store, replica: ReplicaLog, place: Place) -> int | None:
    """Return where the common epochs end, if this store's log continued there, in an epoch of its own."""
    end = common_epoch_end(store, replica)
    dirty = [run.stop for run in place.log.tiling.tail() if run.kind is Kind.DIRTY]
    reached = max([place.lost_until, *dirty])
    if not place.start <= end < min(reached, place.stop):
        return None
    return end if replica.has_sound(end, place.stop) else None
