"""Proves how far a replica's log has the same history if no equal record follows a damaged place.

That happens if the replica's log ends inside the place, like that of a follower that was behind. Two logs are equal up
to any record that both have, so one proved record in the place proves all of the replica's log before it. The proofs
are:

* an entry of this store's index with the hash of the record's unique key, which points to the same offset;
* controller mode: both nodes have the same epoch, which has one master, and therefore one log;
* DLedger: this store's index has the entry, with its term; or the entry has the term of this store's next entry. A term
  has one leader, and therefore one log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.formats import dledger, index, properties
from rmqstore.formats.controller import EpochEntry, parse_epoch_file
from rmqstore.formats.message import Message
from rmqstore.repair.log.records_near import first_behind
from rmqstore.repair.log.spans import Span, overlapping, within
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica
from rmqstore.repair.salvage.loss import entries_behind

_EPOCHS = "epochFileCheckpoint"
_MOST = 1 << 20  # bytes of an epoch file
_KEY = 16  # bytes; a shorter key may be one that a producer chose, which is not unique


def proved_until(store: Store, verified: Verified, replica: Replica, place: Place) -> int:
    """Return the offset up to which a replica's records in a place are proved; the place's start if none is."""
    found = [(span, m) for span, m in _records(replica, place) if span[1] <= place.stop]
    if not found:
        return place.start
    if place.log.body_offset:
        spans = [span for span, _ in found]
        units = dict(entries_behind(store, place.log))
        indexed = [stop for start, stop in spans if start in units and same_entry(replica, start, units[start])]
        return max([_by_term(replica, place, spans), *indexed])
    end = max(_by_index(verified, place, found), common_epoch_end(store, replica))
    return max((stop for (_, stop), _ in found if stop <= end), default=place.start)


def _records(replica: Replica, place: Place) -> Iterator[tuple[Span, Message]]:
    """Yield the replica's sound records in a place."""
    body_offset, at = place.log.body_offset, place.start
    queue = replica.log(body_offset)
    runs = within(overlapping(replica.sound(body_offset, [place.span]), *place.span), *place.span)
    while queue is not None and runs and at < runs[-1][1]:
        message = message_at(queue, at + body_offset) if replica.sound_record(body_offset, at) else None
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


def key_remains(replica: Replica, place: Place) -> bool:
    """Return whether damaged bytes of this store still have the unique key of a replica's record, at its offset."""
    for (start, stop), message in _records(replica, place):
        key = properties.parse_properties(message.properties).get(properties.UNIQ_KEY, "").encode()
        at = start + replica.bytes_at(place.log.body_offset, start, stop).rfind(key)
        if len(key) >= _KEY and place.log.queue.pread(len(key), at) == key:
            return True
    return False


def common_epoch_end(store: Store, replica: Replica) -> int:
    """Return the offset up to which both nodes have the last common epoch; 0 without one.

    Source: EpochFileCache#findConsistentPoint (RocketMQ 5.4.0)
    """
    ours, theirs = _epochs(store), _epochs(replica.store)
    for n, entry in reversed([*enumerate(ours)]):
        if entry in theirs:
            behind = [later.start_offset for later in (*ours[n + 1 : n + 2], *theirs[theirs.index(entry) + 1 :][:1])]
            return min(behind, default=1 << 62)
    return 0


def _epochs(store: Store) -> tuple[EpochEntry, ...]:
    """Return the entries of the epoch file; none if it is damaged or missing."""
    if _EPOCHS not in store.top:
        return ()
    found = parse_epoch_file(store.files.read_at(store.top[_EPOCHS].path, _MOST, 0))
    return () if found.faults else found.entries


def same_entry(replica: Replica, start: int, unit: Mapping[str, int]) -> bool:
    """Return whether a replica's entry at a global offset is the one of a unit of this store's DLedger index."""
    theirs = dledger.ENTRY.parse(replica.bytes_at(dledger.ENTRY.size, start, start + dledger.ENTRY.size))
    return all(theirs[name] == unit[name] for name in ("pos", "size", "index", "term"))


def _by_term(replica: Replica, place: Place, found: list[Span]) -> int:
    """Return the end of the replica's last entry with the term of this store's next two entries.

    Two entries are compared, because the term of one may be damaged.
    """
    size = dledger.ENTRY.size
    behind = first_behind(place.log, place.stop)
    terms = {_term(place.log.queue.pread(size, start)) for start, _ in behind[:2]}
    same = [stop for start, stop in found if {_term(replica.bytes_at(size, start, start + size))} == terms]
    return max(same, default=place.start)


def _term(entry: bytes) -> int:
    return int(dledger.ENTRY.parse(entry)["term"])
