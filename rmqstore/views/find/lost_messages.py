"""Messages that a store knows of and no longer has: replaced by a filler, damaged, or in a missing log file.

A filler, the journal of its repair, an index entry from before or after the repair, or a queue entry knows of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rmqstore.errors import UsageError
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.formats import messageid, properties
from rmqstore.formats.message import is_filler
from rmqstore.repair.journal.folder import JournalFolder
from rmqstore.views import lookup
from rmqstore.views.index_files import IndexFiles
from rmqstore.views.lookup import Found
from rmqstore.views.lost import (
    LostMessage,
    LostMessages,
    applied_repairs,
    filler_rows,
    kept_records,
    quarantined_index,
)

UNKNOWN = -1
"""Queue id and queue offset of a message whose queue entry is not known."""
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class MissingMessage:
    """A lost message. `cause`: filler, damaged (its record is), or missing-file (no log file has its offset).

    `repair`: name of the repair that put a filler in its place, "" if that is not known; `journal`: its directory.
    """

    message: LostMessage
    cause: str
    repair: str = ""
    journal: Path | None = None

    @property
    def place(self) -> tuple[str, int, int, int | None]:
        """What identifies the message."""
        return self.message.topic, self.message.queue_id, self.message.queue_offset, self.message.offset

    def to_json(self) -> dict[str, Any]:
        """Return the row of `find --json` and `get --json`."""
        row = self.message.to_json()
        for name in ("queue_id", "queue_offset"):
            row[name] = None if row[name] == UNKNOWN else row[name]
        journal = None if self.journal is None else str(self.journal)
        return row | {"cause": self.cause, "repair": self.repair or None, "journal": journal}


class _Repair:
    """A repair with the messages that it replaced. Its lost+found is read when it is needed."""

    def __init__(self, folder: JournalFolder, rows: list[Mapping[str, Any]]) -> None:
        self.folder = folder
        self.rows = {int(row["offset"]): row for row in rows}

    @cached_property
    def kept(self) -> dict[int, Found]:
        return kept_records(self.folder)

    def row_at(self, offset: int) -> Mapping[str, Any] | None:
        """Return the row of the filler that covers a log offset."""
        if offset in self.rows:
            return self.rows[offset]
        return next((row for at, row in self.rows.items() if at < offset < at + int(row.get("length", 0))), None)


class LostFinder:
    """Finds the lost messages of one store. Journals are read once."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @cached_property
    def _view(self) -> LostMessages:
        return LostMessages(self.store)

    @cached_property
    def _repairs(self) -> list[_Repair]:
        return [_Repair(folder, filler_rows(plan)) for folder, plan in applied_repairs(self.store)]

    @cached_property
    def _unmarked(self) -> frozenset[int]:
        from rmqstore.checks.filler_notes import repaired_records

        return frozenset(repaired_records(self.store).fillers)

    def is_filler(self, found: Found) -> bool:
        """Return whether a record of the log is a filler."""
        return is_filler(found.message) or found.offset in self._unmarked

    def of_filler(self, found: Found) -> MissingMessage:
        """Return the message in whose place a filler is."""
        assert found.offset is not None
        known = self.in_repair(found.offset)
        if known is not None:
            return known
        message = found.message
        own = properties.parse_properties(message.properties)
        row = dict(zip(("topic", "queue_id", "queue_offset"), found.queue_place, strict=True), offset=found.offset)
        one = self._view.damaged(row, False, lambda _: None)
        keys = {"keys": own.get(properties.KEYS), "unique_key": own.get(properties.UNIQ_KEY)}
        return MissingMessage(_with(one, size=message.size, **keys), "filler")

    def in_repairs(self, texts: Collection[str]) -> Iterator[tuple[MissingMessage, str]]:
        """Yield the messages that repairs replaced and that a key, an id or TOPIC/QUEUE/OFFSET names, with that text.

        Ids and keys come from what the repair kept of the record, and from the index files that it replaced.
        """
        for repair in self._repairs:
            found = {(offset, text) for text in texts for offset in self._named(repair, text)}
            for offset, text in sorted(found):
                yield self._lost(repair, repair.rows[offset]), text

    def _named(self, repair: _Repair, text: str) -> Iterator[int]:
        if not repair.rows:
            return
        place = parsed_place(text)
        decoded = messageid.decode_offset_message_id(text)
        for offset, row in repair.rows.items():
            kept = repair.kept.get(offset)
            if place == (row["topic"], row["queue_id"], row["queue_offset"]):
                yield offset
            elif kept is not None and kept.queue_place == (row["topic"], row["queue_id"], row["queue_offset"]):
                if lookup.has_key(kept.message, text):
                    yield offset
            elif decoded is not None and decoded.physical_offset == offset:
                yield offset
        topics = {str(row["topic"]) for row in repair.rows.values()}
        for hit in IndexFiles(self.store, quarantined_index(repair.folder)).hits(topics, (text,)):
            known = repair.rows.get(hit.offset)
            if known is not None and known["topic"] == hit.topic and hit.offset not in repair.kept:
                yield hit.offset

    def at(self, offset: int, topic: str) -> MissingMessage:
        """Return the message at a log offset where no good record is; `topic` comes from its index entry."""
        known = self.in_repair(offset)
        if known is not None:
            return known
        try:
            place = lookup.place_of(self.store, topic, offset)
        except CannotRead:
            place = None
        cause = "damaged" if self.has_file(offset) else "missing-file"
        if place is None:
            return MissingMessage(LostMessage(topic, UNKNOWN, UNKNOWN, offset, consumed_by=None), cause)
        row = {"topic": topic, "queue_id": place[0], "queue_offset": place[1], "offset": offset}
        return MissingMessage(self._unrepaired(row), cause)

    def at_place(self, place: Place) -> MissingMessage | None:
        """Return the message of a queue entry that points to no good record; None if there is no such entry."""
        try:
            unit = lookup.QueueUnits(self.store, place[0], place[1]).at(place[2])
        except CannotRead:
            return None
        if unit is None or lookup.by_offset(self.store, unit.offset) is not None:
            return None
        known = self.in_repair(unit.offset)
        if known is not None:
            return known
        row = dict(zip(("topic", "queue_id", "queue_offset"), place, strict=True), offset=unit.offset)
        one = _with(self._unrepaired(row), size=unit.size)
        return MissingMessage(one, "damaged" if self.has_file(unit.offset) else "missing-file")

    def _unrepaired(self, row: Mapping[str, Any]) -> LostMessage:
        return replace(self._view.damaged(row, False, lambda _: None), filler=False)

    def has_file(self, offset: int) -> bool:
        """Return whether a log file has this offset."""
        return any(log.find(offset) is not None for log, _ in self.store.logs)

    def in_repair(self, offset: int) -> MissingMessage | None:
        """Return the message that a repair replaced by a filler that covers a log offset."""
        for repair in self._repairs:
            row = repair.row_at(offset)
            if row is not None:
                return self._lost(repair, row)
        return None

    def _lost(self, repair: _Repair, row: Mapping[str, Any]) -> MissingMessage:
        one = self._view.damaged(row, False, repair.kept.get)
        return MissingMessage(one, "filler", repair.folder.name, repair.folder.path)


def parsed_place(text: str) -> Place | None:
    """Parse `TOPIC/QUEUE/OFFSET`; None for any other text, such as a key with slashes."""
    try:
        return lookup.parse_queue_offset(text)
    except UsageError:
        return None


def _with(one: LostMessage, **more: Any) -> LostMessage:
    return replace(one, **{name: value for name, value in more.items() if getattr(one, name) is None})
