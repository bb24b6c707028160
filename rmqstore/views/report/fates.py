"""What is now in the place of a message that a repair could not keep."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from rmqstore.checks.filler_notes import repaired_records
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.formats.message import is_filler
from rmqstore.views import lookup


class Fate(StrEnum):
    """What a consumer gets at a queue offset."""

    FILLER = "filler"
    PRESENT = "present"
    """The message itself: another copy of the log gave it back, or it was never lost."""
    DAMAGED = "damaged"
    """A queue entry without a good record."""
    EXPIRED = "expired"
    """The queue begins after it."""
    GONE = "gone"
    """Nothing: the queue has no entry there."""
    UNKNOWN = "unknown"


class Fates:
    """Reads what is at places of the queues of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue = lookup.queue_reader(store)

    @cached_property
    def _unmarked(self) -> frozenset[int]:
        return frozenset(repaired_records(self.store).fillers)

    def of(self, topic: str, queue_id: int, queue_offset: int) -> Fate:
        """Return what is at a queue offset now."""
        try:
            units = self._queue(topic, queue_id)
            bounds = units.bounds(self.store.log_start)
            unit = units.at(queue_offset)
        except CannotRead:
            return Fate.UNKNOWN
        if bounds is not None and queue_offset < bounds[0]:
            return Fate.EXPIRED
        if unit is None:
            return Fate.GONE
        found = lookup.by_offset(self.store, unit.offset)
        if found is None or not found.sound:
            return Fate.DAMAGED
        if is_filler(found.message) or found.offset in self._unmarked:
            return Fate.FILLER
        same = unit.batch > 1 or found.queue_place == (topic, queue_id, queue_offset)
        return Fate.PRESENT if same else Fate.DAMAGED
