"""Rebuilds consume queues in RocksDB: a new database with the rows of all messages replaces the old one.

The new database has one row for each message of the repaired log and no others: rows of expired messages and rows
after a queue's end are not copied.

Source: RocksDBConsumeQueueStore#putMessagePosition0, RocksDBConsumeQueueOffsetTable#getMinCqOffset,
#truncateDirtyOffset (RocketMQ 5.4.0)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.append.scratch import ScratchFolder
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.progress import ConsumerProgress
from rmqstore.checks.verified import Verified
from rmqstore.errors import Refused
from rmqstore.files.rocksdb.database import (
    CannotRead,
    DamagedDatabase,
    Database,
    NoDatabase,
    UnknownFormat,
    is_readable,
    missing_extra,
    open_database,
)
from rmqstore.files.rocksdb.queues import OFFSETS, UNITS, Bound, RocksDBQueue, RocksDBQueues
from rmqstore.files.rocksdb.written_rows import was_deleted, written_rows
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.files.store_queues import has_database, is_database_file, place_is_configured, places_found
from rmqstore.files.versions import NEWEST
from rmqstore.formats import consumequeue, rocksdbkeys
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName, parse_queue_label
from rmqstore.formats.rocksdbkeys import CHECKPOINT_KEY, CHECKPOINT_VALUE, OFFSET_VALUE, UNIT_VALUE, OffsetKey, UnitKey
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.consume_queue import CHUNK, Extension, QueueImage
from rmqstore.repair.rebuild.consume_queues import LogUnits, Odds, RebuildChoices, known_topic
from rmqstore.repair.rebuild.rocksdb import StagedDatabase, swap_in, writing
from rmqstore.repair.repaired_log import RepairedLog, can_exist, end_of
from rmqstore.texts import Text

_OF_UNIT = [one.name for one in consumequeue.UNIT]
"""Fields that a row and a unit of a queue in files have in common."""
WHY = Text("RocksDB of the consume queues, rebuilt from the log's messages")
_WHERE = Text(
    "nothing is left of the RocksDB of the queues to tell its directory; consumequeue/ is assumed, and a broker with "
    "useSeparateStorePathForRocksdbCQ=true (5.5.0 and newer) would not start: give its broker.conf with -c"
)
_NAMED = 10
Rows = npt.NDArray[Any]


@dataclass(slots=True)
class OldRows:
    """The readable part of the old database; `damage` is the reason why the rest cannot be read.

    `ended`: the ends of all queues are known. `elsewhere`: these rows are not in the directory of the new database.
    """

    database: Database
    names: set[QueueName] = field(default_factory=set)
    bounds: Mapping[QueueName, Mapping[str, Bound]] = field(default_factory=dict)
    dispatched: int = 0
    damage: str = ""
    ended: bool = False
    elsewhere: bool = False

    @staticmethod
    def of(store: Store) -> OldRows:
        """Read the database of a store.

        Errors: Refused without the RocksDB library, and if it cannot open a database that may be sound.
        """
        if not is_readable():
            raise Refused(
                Text(
                    "consume queues in RocksDB are written with the RocksDB library: that {missing_extra}",
                    missing_extra=missing_extra(),
                )
            )
        directory = store.rocksdb_directory
        nothing = NoDatabase(directory, (UNITS, OFFSETS))
        if not has_database(store.files, directory):
            return OldRows(nothing)  # a broker creates one
        try:
            open_database(store.files, directory)
        except DamagedDatabase as e:
            return OldRows(nothing, damage=str(e))
        except UnknownFormat as e:
            raise Refused(
                Text(
                    "the RocksDB in {directory}/ has a format that this RocksDB library does not know: {e}",
                    directory=directory.name,
                    e=e,
                ),
                Text(
                    "if a newer RocksDB wrote it, use a newer rocksdict; if it is damaged, move its files (not "
                    "the directories) out of its directory and run this command again"
                ),
            ) from e
        except CannotRead as e:
            raise Refused(
                Text("the RocksDB in {directory}/ cannot be opened here: {e}", directory=directory.name, e=e)
            ) from e
        try:
            queues = RocksDBQueues(store)
        except CannotRead as e:
            return OldRows(nothing, damage=str(e))
        old = OldRows(queues.database)
        try:
            old.bounds = queues.bounds()
            old.dispatched = queues.dispatched() or 0
            old.ended = True
            old.names.update(queues.names())
        except CannotRead as e:
            old.damage = str(e)
        old.names.update(old.bounds)
        return old

    def queue(self, name: QueueName) -> RocksDBQueue:
        """Return one queue, which may have no rows."""
        return RocksDBQueue(self.database, *name)

    def extension(self, store: Store, name: QueueName) -> Extension:
        """Return the extension whose addresses the rows of a queue may have."""
        return Extension.of(store, *name)

    def was_deleted(self, name: QueueName, logs: Logs) -> bool:
        """Return whether a queue of the log was deleted on purpose, so that it has no rows."""
        part = logs.queues.get(name)
        known = self.ended and not self.damage and name not in self.names
        return part is not None and known and was_deleted(name[0], part.last_at, self.dispatched)


class RowsImage(QueueImage):
    """The rows that one queue should have, for queue offsets [low, high). `without`: ranges that have no row."""

    def __init__(self, rows: RocksDBQueue, *given: Any) -> None:
        self.rows = rows
        self._last: tuple[int, Rows] = (0, np.empty(0, dtype=UNIT_VALUE.dtype))
        self.without: list[tuple[int, int]] = []
        super().__init__(*given)

    def rows_now(self, start: int, count: int) -> Rows:
        """Return rows [start, start + count) of the old database, zeros for missing ones."""
        if self._last[0] == start and len(self._last[1]) == count:
            return self._last[1]
        out: Rows = np.zeros(count, dtype=UNIT_VALUE.dtype)
        for number, units, times in self.rows.runs(start, min(start + count, self.rows.behind)):
            part = out[number - start : number - start + len(units)]
            part[_OF_UNIT] = units[_OF_UNIT]
            part["store_timestamp"] = times
        self._last = start, out
        return out

    def stored(self, at: int, length: int) -> bytes:
        """Return the old rows as bytes of a queue in files."""
        rows = self.rows_now(at // UNIT_SIZE, -(-length // UNIT_SIZE))
        return rows[_OF_UNIT].astype(consumequeue.UNIT.dtype).tobytes()[:length]

    def new_rows(self, start: int, count: int) -> Rows:
        """Return rows [start, start + count) as they should be.

        A row without a message in the log gets the store time of the row before it, so that times never fall.
        """
        raw = self.wanted(start, count)
        near = bisect_right(self.without, start, key=lambda one: one[1])
        for a, b in takewhile(lambda one: one[0] < start + count, self.without[near:]):
            low, high = max(a, start), min(b, start + count)
            raw[(low - start) * UNIT_SIZE : (high - start) * UNIT_SIZE] = bytes((high - low) * UNIT_SIZE)
        units = consumequeue.UNIT.array(bytes(raw))
        old = self.rows_now(start, count)
        times = self.units.store_times(start, count)
        kept = (times == 0) & (old["commitlog_offset"] == units["commitlog_offset"]) & (old["size"] == units["size"])
        times[kept] = old["store_timestamp"][kept]
        filled = np.maximum.accumulate(np.where(times != 0, np.arange(count), 0))
        out: Rows = np.zeros(count, dtype=UNIT_VALUE.dtype)
        out[_OF_UNIT] = units[_OF_UNIT]
        out["store_timestamp"] = np.where(out["size"] > 0, times[filled], 0)
        return out


class RowsRebuild:
    """Rebuilds all queues of a store in a new RocksDB; rows of queues that are not wanted are copied.

    `units` are those of the messages, as rows; `old` has the rows of today, which are in the database that is replaced,
    or in files.
    """

    def __init__(self, units: LogUnits, old: OldRows) -> None:
        self.units = units
        self.draft, self.store, self.verified, self.logs = units.draft, units.store, units.verified, units.logs
        self.old = old
        self.end = end_of(units.views)
        self.dispatched = 0
        self.bounds: dict[bytes, bytes] = {}
        self.differs = bool(old.damage) or old.elsewhere
        self.beside = self.store.rocksdb_beside
        self.progress = None if old.ended or self.beside else ConsumerProgress(self.store)
        self.ends_by_progress: list[str] = []
        self.odds: list[Odds] = []

    def names(self) -> list[QueueName]:
        """Return all queues, in the order of their keys."""
        known = self.old.names.union(self.units.names)
        if self.progress is not None:
            known |= {n for n in self.progress.names() if self.progress.furthest(*n) > 0 and n[1] >= 0}
        if self.beside:
            known |= {name for label in self.verified.report.queues if (name := parse_queue_label(label)) is not None}
        rule = written_rows(self.store)
        known = {name for name in known if rule.has(name[0]) and not self.old.was_deleted(name, self.logs)}
        return sorted(known, key=_unit_prefix)

    def in_files(self, name: QueueName) -> bool:
        """Return whether a queue is in files too, which determine where it ends."""
        return self.beside and not self.store.reads_rows(name[0])

    def plan(self) -> None:
        """Add the steps, unless the old database is already as it should be.

        Errors: Refused if rows to be copied cannot be read; NoSpace, NotReadable if the library fails.
        """
        folder = ScratchFolder()
        changed = False
        with writing():
            new = NewDatabase(folder.path / "database", (UNITS, OFFSETS))
            for name in self.names():
                if self.units.choices.wanted is not None and name not in self.units.choices.wanted:
                    self._copy(new, name)
                elif self._is_due(name):
                    changed |= self._queue(new, name)
            self._note_dispatched()
            self._discard_other()
            if not (changed or self.differs):
                return
            keys = sorted(self.bounds)
            new.put(OFFSETS, keys, [self.bounds[key] for key in keys])
            files = new.finish()
        for odds in self.odds:
            self.units.tell(odds)
        place_is_known = places_found(self.store.files, self.store.root) or place_is_configured(self.store.config)
        if not (place_is_known or self.old.elsewhere):
            self.draft.decisions.append(_WHERE)
        swap_in(self.draft, self.store.rocksdb_directory, StagedDatabase(new, files, folder), WHY)
        self._tell_ends()

    def _discard_other(self) -> None:
        """Discard a second RocksDB, with which a broker does not start.

        Errors: Refused if nothing says which of them the broker uses.
        """
        other = self.store.other_rocksdb
        if other is None:
            return
        config = self.store.config
        if not place_is_configured(config):
            advice = Text("give the broker's broker.conf with -c (useSeparateStorePathForRocksdbCQ)")
            if place_is_configured(config.read_by(NEWEST)):
                reads_none = Text(
                    "RocketMQ {version} uses neither: name the version that does, such as --broker {newest}"
                )
                advice = reads_none.format(version=config.version, newest=NEWEST)
            raise Refused(
                Text(
                    "{other}/ and {rocksdb_directory}/ both have a RocksDB of consume queues",
                    other=other.name,
                    rocksdb_directory=self.store.rocksdb_directory.name,
                ),
                advice,
            )
        for entry in self.store.files.list(other):
            if not entry.directory and is_database_file(entry.path.name):
                self.draft.discard(
                    entry.path, Text("a second RocksDB of the queues: brokers from 5.5.0 on do not start")
                )

    def _tell_ends(self) -> None:
        if self.old.damage:
            which = (
                Text("the RocksDB beside the queue files") if self.beside else Text("the RocksDB of the consume queues")
            )
            self.draft.notes.append(Text("{which} is damaged: {damage}", which=which, damage=self.old.damage))
        if self.old.damage and not self.old.ended and not self.beside:
            named = ", ".join(self.ends_by_progress[:_NAMED]) + ", …" * (len(self.ends_by_progress) > _NAMED)
            known = (
                Text(
                    "offsets of consumers give the end of {named}; any other such queue begins again at 0", named=named
                )
                if named
                else Text("they begin again at 0")
            )
            self.draft.notes.append(
                Text(
                    "the ends of queues without a message in the log cannot be read from the RocksDB: {known}",
                    known=known,
                )
            )

    def _is_due(self, name: QueueName) -> bool:
        if name in self.old.names:
            return True
        if not can_exist(name):
            return False
        return self.units.choices.deleted_too or known_topic(self.logs.topics, name[0])

    # --- one queue ------------------------------------------------------------------------------------------------

    def _queue(self, new: NewDatabase, name: QueueName) -> bool:
        """Write the rows of a queue; return whether they differ from the old ones."""
        rows = self.old.queue(name)
        if self.old.ended:
            last = self.old.bounds.get(name, {}).get("max")
            rows.end_at(last.queue_offset + 1 if last is not None else 0)
        files = ConsumeQueueFiles(*name, QueueKind.SIMPLE, rows)
        units, codes = self.units, self.units.kept_codes(name, self.old.extension(self.store, name))
        image = RowsImage(rows, files, units.of(name), units.facts.min_offset, units.facts.damaged, codes)
        if image.empty:
            return self._without_messages(name, image)
        if name[0] in self.verified.batch_topics:  # a row for an inner batch, at its first queue offset
            image.without, image.gaps = image.gaps, []
        changed = bool(rows.unreadable)
        first = last = None
        for start in range(image.low, image.high, CHUNK):
            wanted = image.new_rows(start, min(CHUNK, image.high - start))
            changed |= not np.array_equal(image.rows_now(start, len(wanted)), wanted)
            there = np.flatnonzero(wanted["size"] > 0)
            raw = wanted[there].tobytes()
            values = [raw[at : at + UNIT_VALUE.size] for at in range(0, len(raw), UNIT_VALUE.size)]
            new.put(UNITS, _keys(name, start + there), values)
            first = wanted[there[0]] if first is None else first
            last = wanted[there[-1]]
        assert first is not None and last is not None
        self.dispatched = max(self.dispatched, int(last["commitlog_offset"]) + int(last["size"]))
        low = Bound(int(first["commitlog_offset"]), image.low)
        high = Bound(int(last["commitlog_offset"]), image.high - 1)
        if not self.in_files(name):
            self.draft.ends[files.label] = image.high + units.later(name)
            self.odds.append(units.odds(files.label, image))
        return self._bound(name, low, high) or changed

    def _without_messages(self, name: QueueName, image: RowsImage) -> bool:
        """Keep only the end of a queue without messages: the next message gets this queue offset."""
        old = self.old.bounds.get(name, {})
        last = old.get("max")
        label = f"{name[0]}/{name[1]}"
        if self.progress is not None and (end := self.progress.furthest(*name)) > 0:
            self.draft.ends[label] = end
            self.ends_by_progress.append(label)
            return self._bound(name, Bound(self.end, end), Bound(0, end - 1))
        last_end = end = last.queue_offset + 1 if last is not None else 0
        if image.usable:
            end = min(last_end, image.high) if last is not None else image.high
        if self.in_files(name) and label in self.verified.report.queues:
            end = self.draft.ends.get(label, self.verified.report.queues[label].max)
        self.draft.ends[label] = end
        if end == last_end and (last is None or last.commitlog_offset < self.end):
            for bound, value in old.items():
                self._put_bound(name, bound, value)
            return False
        if end <= 0:
            return True
        return self._bound(name, Bound(self.end, end), Bound(0, end - 1))

    def _bound(self, name: QueueName, low: Bound, high: Bound) -> bool:
        """Record the ends of a queue; return whether a broker would find other ones in the old database."""
        self._put_bound(name, "min", low)
        self._put_bound(name, "max", high)
        old = self.old.bounds.get(name, {})
        least = old.get("min")
        if old.get("max") != high:
            return True
        if least is None or least.queue_offset == low.queue_offset:
            return False  # a broker determines a missing minimum itself
        return least.queue_offset > low.queue_offset or least.commitlog_offset >= self.units.facts.min_offset

    def _put_bound(self, name: QueueName, bound: str, value: Bound) -> None:
        key = OffsetKey(_topic(name), "min" if bound == "min" else "max", name[1] & 0xFFFFFFFF).build()
        self.bounds[key] = OFFSET_VALUE.build(commitlog_offset=value.commitlog_offset, queue_offset=value.queue_offset)

    def _copy(self, new: NewDatabase, name: QueueName) -> None:
        """Copy the rows of a queue unchanged."""
        prefix = _unit_prefix(name)
        try:
            for keys, values in self.old.database.chunks(UNITS, prefix, prefix[:-1] + rocksdbkeys.CTRL_2):
                new.put(UNITS, keys, values)
        except CannotRead as e:
            raise Refused(
                Text("rows of {topic}/{queue_id} cannot be read: {e}", topic=name[0], queue_id=name[1], e=e),
                Text("rebuild all queues: leave out --topic and --queue"),
            ) from e
        for bound, value in self.old.bounds.get(name, {}).items():
            self._put_bound(name, bound, value)

    def _note_dispatched(self) -> None:
        """Record the log position from which a start dispatches. Queues that were copied may end before the log."""
        known = min(self.old.dispatched, self.end)
        dispatched = known if self.units.choices.wanted is not None else max(self.dispatched, known)
        if self.units.choices.limit is not None:
            dispatched = min(dispatched, self.units.choices.limit)
        self.differs |= self.old.dispatched > dispatched
        if dispatched > 0:
            self.bounds[CHECKPOINT_KEY.build()] = CHECKPOINT_VALUE.build(max_phy_offset=dispatched)


def plan_rows(draft: PlanBuilder, verified: Verified, views: Sequence[RepairedLog], choices: RebuildChoices) -> None:
    """Plan a new RocksDB with the rows of the queues. Errors: as `OldRows.of` and `RowsRebuild.plan`."""
    old = OldRows.of(draft.store)
    RowsRebuild(LogUnits(draft, verified, views, choices, as_rows=True), old).plan()


def plan_beside(draft: PlanBuilder, verified: Verified, views: Sequence[RepairedLog], choices: RebuildChoices) -> bool:
    """Plan a new RocksDB for a store that has queues in files too; return whether it will match the log.

    Without the RocksDB library, or in DLedger mode, it is not rebuilt.
    """
    if not is_readable() or verified.dledger is not None:
        return False
    try:
        plan_rows(draft, verified, views, choices)
    except Refused as e:
        draft.notes.append(e.message)
        return False
    return True


def _topic(name: QueueName) -> bytes:
    return name[0].encode("utf-8", "surrogatepass")


def _unit_prefix(name: QueueName) -> bytes:
    """Return what the keys of all rows of a queue begin with: their queue offsets follow."""
    return UnitKey(_topic(name), name[1] & 0xFFFFFFFF, 0).build()[:-8]


def _keys(name: QueueName, queue_offsets: npt.NDArray[np.int64]) -> list[bytes]:
    prefix = _unit_prefix(name)
    tails = queue_offsets.astype(">i8").tobytes()
    return [prefix + tails[at : at + 8] for at in range(0, len(tails), 8)]
