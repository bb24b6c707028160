"""Every lost or damaged message: what the next broker start would lose, or what a repair could not keep.

The plan of a repair says which messages damage has taken; the forecast says where a start would cut the log. This
module does not decide what is lost: it collects what is left of each message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqstore.checks.beside.consumer_offsets import ConsumerOffsets
from rmqstore.checks.verify import Verified
from rmqstore.files.disk.reading import read_at
from rmqstore.files.index_sizes import index_sizes
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.formats import index, properties
from rmqstore.formats.message import HEAD, MAGIC_V1_U32, MAGIC_V2_U32, check_message, parse_message
from rmqstore.repair.journal.folder import LOST_FOUND, QUARANTINE, JournalFolder
from rmqstore.repair.plan.plan import Plan
from rmqstore.views import lookup
from rmqstore.views.dump.messages import Damage, Job, read_messages
from rmqstore.views.dump.selection import Selection
from rmqstore.views.index_files import Indexed, entries_at
from rmqstore.views.lookup import Found

INTACT, DAMAGED, GONE = "intact", "damaged", "gone"
_NAME_DIGITS = 17
_LARGEST_SPAN = 256 << 20
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1_U32, MAGIC_V2_U32)))
RecordAt = Callable[[int], Found | None]


@dataclass(frozen=True, slots=True)
class LostMessage:
    """One message. What neither its record nor its queue entry tells is None.

    `cause`: damage, or cut (a start would delete it, though it is sound). `body`: intact, damaged or gone.
    `mended`: the repair restores it, or has. `filler`: a filler has its queue offset after the repair.
    `key_hashes`: of its index entries; `indexed_time`: the store time that they tell, up to a second too early.
    `consumed_by` is None where the progress of groups is not known. Units: bytes, ms.
    """

    topic: str
    queue_id: int
    queue_offset: int
    offset: int | None
    size: int | None = None
    keys: str | None = None
    unique_key: str | None = None
    tags: str | None = None
    store_timestamp: int | None = None
    key_hashes: tuple[int, ...] = ()
    indexed_time: int | None = None
    cause: str = "damage"
    body: str = GONE
    mended: bool = False
    filler: bool = False
    consumed_by: tuple[str, ...] | None = ()
    found: Found | None = None

    def to_json(self) -> dict[str, Any]:
        """The row of `lost --json`."""
        return {
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "offset": self.offset,
            "size": self.size,
            "keys": self.keys,
            "key_hashes": list(self.key_hashes),
            "unique_key": self.unique_key,
            "tags": self.tags,
            "store_timestamp": self.store_timestamp,
            "indexed_time": self.indexed_time,
            "cause": self.cause,
            "body": self.body,
            "mended": self.mended,
            "filler": self.filler,
            "consumed_by": None if self.consumed_by is None else list(self.consumed_by),
        }


@dataclass(slots=True)
class Losses:
    """All of them. `damaged` come first, in address order; `cut` reads the log when it is asked.

    `unlisted`: messages per queue (`TOPIC/ID`) that are known to be lost, but by no more than their number.
    `at_least`: there may be more.
    """

    when: str
    damaged: list[LostMessage] = field(default_factory=list)
    cut_from: int | None = None
    unlisted: dict[str, int] = field(default_factory=dict)
    at_least: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Messages that are lost for good, as far as they are known: those of `cut` left out."""
        return sum(not one.mended for one in self.damaged) + sum(self.unlisted.values())


def _with_entries(one: LostMessage, entries: Indexed | None) -> LostMessage:
    return one if entries is None else replace(one, key_hashes=tuple(entries.hashes), indexed_time=entries.time)


class LostMessages:
    """Collects the lost messages of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queue = lookup.queue_reader(store)
        self.offsets = ConsumerOffsets.read(store)

    # --- before a repair ----------------------------------------------------------------------------------------------

    def at_next_start(self, verified: Verified, plan: Plan | None) -> Losses:
        """What damage has taken, by the plan of a repair, and where the next start would cut the log.

        `plan` is None where no repair can be planned: then only the cut is known.
        """
        out = Losses("next start")
        broker = verified.report.broker or {}
        stop = broker.get("commitlog_stop")
        if broker.get("starts") and isinstance(stop, int) and broker.get("messages_lost"):
            out.cut_from = stop
        if plan is None:
            out.at_least = True
            return out
        self._from_plan(out, plan, self._here, self._index_paths())
        out.damaged.sort(key=lambda one: one.offset or 0)
        return out

    def cut(self, losses: Losses) -> Iterator[LostMessage]:
        """The sound messages that the next start would delete, in address order."""
        if losses.cut_from is None:
            return
        damaged = {one.offset for one in losses.damaged}
        job = Job(Selection(start=losses.cut_from))
        for rows in read_messages(self.store, "messages", job, Damage()):
            for row in rows:
                found = lookup.by_offset(self.store, int(row["offset"]))
                if found is not None and found.sound and found.offset not in damaged:
                    blank = LostMessage("", 0, 0, found.offset, cause="cut")
                    yield self._consumed(_with_record(blank, found))

    # --- after one ----------------------------------------------------------------------------------------------------

    def in_repair(self, folder: JournalFolder, plan: Plan) -> Losses:
        """What a repair covered with fillers or mended, from its plan and its lost+found."""
        out = Losses("repair")
        kept = _kept_records(folder)
        # the index of today has entries for the fillers: it is asked only where the repair left it as it was
        self._from_plan(out, plan, kept.get, _quarantined_index(folder), self._index_paths())
        out.damaged.sort(key=lambda one: one.offset or 0)
        return out

    # --- what both share ----------------------------------------------------------------------------------------------

    def _from_plan(self, out: Losses, plan: Plan, record_at: RecordAt, *index_paths: list[Path]) -> None:
        """The rows of a plan's facts; each list of index files is asked for what the ones before it do not know."""
        rows = [(row, False) for row in _rows(plan.facts.get("fillers"))]
        rows += [(row, True) for row in _rows(plan.facts.get("mended"))]
        for row, mended in rows:
            out.damaged.append(self._damaged(row, mended, record_at))
        offsets = {one.offset for one in out.damaged if one.offset is not None}
        sizes = index_sizes(self.store)
        known: dict[int, Indexed] = {}
        for paths in index_paths if sizes is not None else ():
            assert sizes is not None
            known |= entries_at(paths, sizes, offsets - known.keys())
        out.damaged = [_with_entries(one, known.get(-1 if one.offset is None else one.offset)) for one in out.damaged]
        listed = Counter(f"{one.topic}/{one.queue_id}" for one in out.damaged if not one.mended)
        for queue, count in plan.loss.queues.items():
            if count > listed[queue]:
                out.unlisted[queue] = count - listed[queue]
        unplaced = plan.loss.messages - sum(plan.loss.queues.values())
        if unplaced > 0:
            out.unlisted[""] = unplaced
        out.at_least |= bool(plan.loss.more.get("at_least"))

    def _damaged(self, row: Mapping[str, Any], mended: bool, record_at: RecordAt) -> LostMessage:
        topic, queue_id, queue_offset = str(row["topic"]), int(row["queue_id"]), int(row["queue_offset"])
        one = LostMessage(topic, queue_id, queue_offset, int(row["offset"]), mended=mended, filler=not mended)
        found = (self._here if mended else record_at)(int(row["offset"]))
        if found is not None and _is_at(found, one):
            return self._consumed(_with_record(one, found))
        try:
            unit = self.queue(topic, queue_id).at(queue_offset)
        except CannotRead:
            unit = None
        if unit is not None and "length" in row and unit.offset == row["offset"]:
            one = replace(one, size=unit.size)
        elif unit is not None:
            found = record_at(unit.offset)
            one = replace(one, offset=unit.offset, size=unit.size)
            if found is not None and _is_at(found, one):
                one = _with_record(one, found)
        return self._consumed(one)

    def _here(self, offset: int) -> Found | None:
        return lookup.by_offset(self.store, offset)

    def _index_paths(self) -> list[Path]:
        return [entry.path for entry in self.store.index_files]

    def _consumed(self, one: LostMessage) -> LostMessage:
        if self.offsets.unreadable:
            return replace(one, consumed_by=None)
        groups = self.offsets.of(one.topic, one.queue_id)
        return replace(one, consumed_by=tuple(p.group for p in groups if p.has_consumed(one.queue_offset)))


def with_keys(rows: Iterable[LostMessage], keys: Iterable[str]) -> Iterator[tuple[LostMessage, tuple[str, ...]]]:
    """The lost messages that one of these keys may belong to, and which: by the record, else by the index's hashes.

    A hash of 31 bits may be that of another key: one in two billion for each pair.
    """
    wanted = list(dict.fromkeys(keys))
    by_topic: dict[str, dict[int, list[str]]] = {}
    for one in rows:
        if one.found is not None:
            own = {*(one.keys or "").split(" "), one.unique_key}
            fits = tuple(key for key in wanted if key in own)
        else:
            table = by_topic.get(one.topic)
            if table is None:
                table = by_topic[one.topic] = {}
                for key in wanted:
                    table.setdefault(index.key_hash(index.key_text(one.topic, key)), []).append(key)
            fits = tuple(key for key_hash in one.key_hashes for key in table.get(key_hash, ()))
        if fits:
            yield one, fits


def _rows(fact: object) -> Iterator[Mapping[str, Any]]:
    """The rows of a plan's fact; a saved plan can hold anything."""
    wanted = {"topic", "queue_id", "queue_offset", "offset"}
    yield from (
        row for row in (fact if isinstance(fact, list) else ()) if isinstance(row, dict) and wanted <= row.keys()
    )


def _is_at(found: Found, one: LostMessage) -> bool:
    message = found.message
    return (message.topic_text, message.queue_id, message.queue_offset) == (one.topic, one.queue_id, one.queue_offset)


def _with_record(one: LostMessage, found: Found) -> LostMessage:
    message = found.message
    known = properties.parse_properties(message.properties)
    return replace(
        one,
        topic=message.topic_text,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        offset=one.offset if found.offset is None else found.offset,
        size=message.size,
        keys=known.get(properties.KEYS),
        unique_key=known.get(properties.UNIQ_KEY),
        tags=known.get(properties.TAGS),
        store_timestamp=message.store_timestamp,
        body=INTACT if found.sound else DAMAGED,
        found=found,
    )


def _kept_records(folder: JournalFolder) -> dict[int, Found]:
    """The records that lost+found holds, by their log offset. A file `OFFSET.bin` has the bytes from that offset on."""
    out: dict[int, Found] = {}
    for home in folder.homes():
        place = home / LOST_FOUND
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if not path.stem.isdigit():
                continue
            data = read_at(path, _LARGEST_SPAN, 0)
            for match in _MAGIC.finditer(data):
                at = match.start() - HEAD.at("magic")
                message = parse_message(data, at)[0] if at >= 0 else None
                offset = int(path.stem) + at
                # a record whose own offset field is damaged is believed at the start of the span alone
                if message is not None and (message.physical_offset == offset or at == 0):
                    out[offset] = Found(message, None, str(path), at, check_message(message, offset))
    return out


def _quarantined_index(folder: JournalFolder) -> list[Path]:
    """Index files that the repair put aside: they still have the entries of messages that are lost."""
    out = []
    for home in folder.homes():
        place = home / QUARANTINE
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            name = path.name.partition("-")[2]
            if len(name) >= _NAME_DIGITS and name.isdigit() and path.is_file():
                out.append(path)
    return out
