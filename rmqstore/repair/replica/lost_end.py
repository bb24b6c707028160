"""Compares a replica's records with what a store still contains about the lost end of its log.

No record of the store's log follows there, so the records alone do not show whether the replica has the same history.
But other files may know of the lost messages:

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

from dataclasses import dataclass

from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.formats.message import Message
from rmqstore.repair.log.spans import overlapping
from rmqstore.repair.replica.branch import common_epoch_end, indexed_keys, key_remains, same_entry, unique_key_hash
from rmqstore.repair.replica.places import Place
from rmqstore.repair.replica.replica import Replica
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.evidence.values import Expected
from rmqstore.repair.salvage.loss import entries_behind
from rmqstore.scan.tiling import Kind


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


def compare_lost_end(store: Store, verified: Verified, replica: Replica, place: Place) -> LostEnd:
    """Compare a place, usually the end of a log, which no record of the log follows, with a replica's records."""
    body_offset = place.log.body_offset
    keys = indexed_keys(verified, place)
    units = Evidence(store, verified).about([place.span]).at
    entries = {pos + body_offset: unit for pos, unit in entries_behind(store, place.log)}
    by_key, by_unit = LostEnd(place.start), LostEnd(place.start)
    for at in sorted({*keys, *units, *entries}):
        start = at - body_offset
        if not place.start <= start < place.stop or not _has(replica, body_offset, start, start + 1):
            continue
        message = _record(replica, body_offset, start)
        stop = start + body_offset + message.size if message is not None else start
        proved = _proved(replica, message, start, keys.get(at, set()), entries.get(at))
        agrees = proved if proved is not None else _fits(message, units.get(at))
        if proved is not None:
            _note(by_key, start, stop, agrees=proved)
        if agrees is not None:
            _note(by_unit, start, stop, agrees=agrees)
    found = [
        at for at in (by_key.diverges_at, by_unit.diverges_at, _other_epoch(store, replica, place)) if at is not None
    ]
    first = min(found, default=None)
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
    replica: Replica, message: Message | None, start: int, keys: set[int], entry: dict[str, int] | None
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
    return theirs == (slot.topic, slot.queue_id, slot.queue_offset) and unit.size in (None, message.size)


def _record(replica: Replica, body_offset: int, start: int) -> Message | None:
    queue = replica.log(body_offset)
    return (
        message_at(queue, start + body_offset)
        if queue is not None and replica.sound_record(body_offset, start)
        else None
    )


def _has(replica: Replica, body_offset: int, low: int, high: int) -> bool:
    """Return whether a replica has good records in a range."""
    return bool(overlapping(replica.sound(body_offset, [(low, high)]), low, high))


def _other_epoch(store: Store, replica: Replica, place: Place) -> int | None:
    """Return where the common epochs end, if this store's log continued there, in an epoch of its own."""
    end = common_epoch_end(store, replica)
    dirty = [run.stop for run in place.log.tiling.tail() if run.kind is Kind.DIRTY]
    reached = max([place.lost_until, *dirty])
    if not place.start <= end < min(reached, place.stop):
        return None
    return end if _has(replica, place.log.body_offset, end, place.stop) else None
