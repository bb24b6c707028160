"""Repairs rocksdbstore/ and kvStore/, so that their rows and positions fit the log as the repair leaves it.

Each database is replaced as a whole. Rows in rocksdbstore/ go if they name a record that the log no longer has, or
another one than the row says: a broker would drop such a row, or take the record for its message. Rows of kvStore/ go
if they name messages that their queue no longer has: the broker would return a later message with the same queue offset
to the group once more.

Source: MessageRocksDBStorage, TransMessageRocksDBStore#buildTransIndex, IndexRocksDBStore#buildIndex,
TimerMessageRocksDBStore#start (RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import merge

from rmqstore.checks.problems import codes
from rmqstore.checks.row_faults import Row, RowFault, judge_row, parse_row
from rmqstore.checks.rows import (
    IndexCounts,
    LogAsItIs,
    MessageRowFacts,
    ended_halves,
    missing_halves,
    missing_index_rows,
    missing_timers,
)
from rmqstore.checks.verified import Verified
from rmqstore.errors import Refused
from rmqstore.files.rocksdb.database import is_readable, missing_extra, open_database
from rmqstore.files.rocksdb.rows import DIRECTORY, MessageRows, pop_rows
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.message import parse_message
from rmqstore.formats.pop import KV_DIRECTORY, KV_FAMILY, PopRow
from rmqstore.formats.properties import TIMER_OUT_MS, TIMER_TOPIC, UNIQ_KEY, parse_properties
from rmqstore.formats.rocksdbstore import (
    FAMILIES,
    INDEX_FAMILY,
    LAST_OFFSET,
    LAST_TIME,
    POSITION,
    SCAN_OFFSET,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
    IndexRow,
    TimerRow,
    build_index_row,
    build_timer_row,
    build_trans_row,
)
from rmqstore.repair.beside.config import queue_ends
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.rocksdb import replace_database, writing
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.repair.repaired_log import NO_RECORD, RepairedLog, end_of, last_record
from rmqstore.texts import Text, many

WHY = Text("rows of timed messages, half messages and the index that fit the log")
_POP_WHY = Text("without rows of messages that the log does not have, and rows that cannot be parsed")
_SECOND = 1000  # ms
_WAY_OUT = Text(
    "use --replica with --extend; or move {directory}/ out of the store and run this command "
    "again: it makes the rows of open half messages again, and the broker reads the timer topic "
    "from its beginning, and delivers messages whose time has passed once more",
    directory=DIRECTORY,
)
_WORDS = {TIMER_FAMILY: Text("timed messages"), TRANS_FAMILY: Text("half messages"), INDEX_FAMILY: Text("the index")}


class _WrittenLog:
    """The log as a plan leaves it, as a `LogView`."""

    def __init__(self, views: list[RepairedLog], start: int) -> None:
        self.views = views
        self.start = start
        self.end = end_of(views)

    def writes(self, start: int, stop: int) -> bool:
        """Return whether the plan writes a byte in [start, stop)."""
        return any(view.differs(start, stop) for view in self.views)

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes at a global offset; the result is short where the log has none."""
        for view in self.views:
            if view.queue.find(offset) is not None:
                return view.queue.pread(max(0, min(size, view.end - offset)), offset)
        return b""


def plan_message_rows(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the steps that make rocksdbstore/ fit the log after the repair, and that repair RDB-* problems.

    Errors: Refused if rows that cannot be read may point beyond the new end of the log; NoSpace, NotReadable.
    """
    facts = case.verified.rows
    if facts is None or case.verified.report.live:
        return
    if not facts.readable:
        _unreadable(draft, log)
        return
    wanted = case.wanted.intersection(_CODES) | case.asked.intersection((codes.RDB_WRONG_ROW,))
    if not (wanted or log.ends_earlier or log.written):
        return
    if not is_readable():
        draft.notes.append(
            Text(
                "{directory}/ is not written: that {missing_extra}", directory=DIRECTORY, missing_extra=missing_extra()
            )
        )
        return
    with writing():
        work = _Rows(draft, case.verified, facts, wanted, log)
        if work.differs():
            work.write()


_CODES = (
    codes.RDB_DANGLING_ROW,
    codes.RDB_STALE_HALF,
    codes.RDB_MISSING_HALF,
    codes.RDB_MISSING_TIMER,
    codes.RDB_NOT_INDEXED,
    codes.RDB_POSITION,
    codes.RDB_NO_TIMELINE,
)


def _unreadable(draft: PlanBuilder, log: LogAfter) -> None:
    reason = "" if is_readable() else Text(": that {missing_extra}", missing_extra=missing_extra())
    if log.ends_earlier:
        raise Refused(
            Text(
                "the log will end earlier, and rows in {directory}/ that cannot be read may point beyond its "
                "new end{reason}",
                directory=DIRECTORY,
                reason=reason,
            ),
            _WAY_OUT if is_readable() else Text("install it, and run this command again"),
        )
    if log.written:
        draft.notes.append(
            Text(
                "rows in {directory}/ are not read, and stay{reason}; they hold offsets and sizes of "
                "messages, which do not change",
                directory=DIRECTORY,
                reason=reason,
            )
        )


@dataclass(slots=True)
class _Rows:
    """The rows and positions that rocksdbstore/ should have. `dropped`: the number of rows per family that go."""

    draft: PlanBuilder
    verified: Verified
    facts: MessageRowFacts
    wanted: frozenset[str]
    log: LogAfter
    rows: MessageRows = field(init=False)
    written: _WrittenLog = field(init=False)
    stale: frozenset[int] = frozenset()
    added: dict[str, set[tuple[bytes, bytes]]] = field(default_factory=dict)
    last_half: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    positions: dict[str, dict[bytes, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = MessageRows.open(self.draft.store)
        self.written = _WrittenLog(self.log.as_written(), self.verified.logs.min_offset)
        if codes.RDB_STALE_HALF in self.wanted:
            found = ended_halves(self.draft.store, self.verified.logs, 0)
            self.stale = frozenset(half for at, half in found if at < self.written.end)
        self._add_missing()

    def _add_missing(self) -> None:
        """Collect the rows that the finding of each family is about."""
        store, logs = self.draft.store, self.verified.logs
        with LogAsItIs(logs) as log:
            if codes.RDB_MISSING_HALF in self.wanted:
                halves = [row for row in missing_halves(store, logs, self.rows, log) if self._stays(TRANS_FAMILY, row)]
                self.added[TRANS_FAMILY] = {build_trans_row(row) for row in halves}
                self.last_half = max((row.commitlog_offset for row in halves), default=0)
            if codes.RDB_MISSING_TIMER in self.wanted:
                timers = missing_timers(store, logs, self.rows, log)
                stay = [row for row in timers if self._stays(TIMER_FAMILY, row)]
                self.added[TIMER_FAMILY] = {build_timer_row(row) for row in stay}
            if codes.RDB_NOT_INDEXED in self.wanted:
                counts = IndexCounts.of(logs)
                for keys, _ in self.rows.rows(INDEX_FAMILY):
                    counts.add(keys)
                entries = missing_index_rows(logs, self.rows, counts)
                self.added[INDEX_FAMILY] = {build_index_row(row) for row in entries if self._stays(INDEX_FAMILY, row)}

    # --- what should be there -------------------------------------------------------------------------------------

    def differs(self) -> bool:
        """Decide about all rows and positions; return whether any changes."""
        first_due = None
        timeline = self._known(TIMER_FAMILY, TIMELINE) or 0
        for family in FAMILIES:
            for keys, values in self.rows.rows(family):
                for key, value in zip(keys, values, strict=True):
                    row = parse_row(family, key, value)
                    if not self._stays(family, row):
                        self.dropped[family] += 1
                        row = self._in_place_of(row)
                    if isinstance(row, TimerRow) and row.deliver_time >= timeline:
                        first_due = row.deliver_time if first_due is None else min(first_due, row.deliver_time)
        self.positions = {family: self._new_positions(family, first_due) for family in FAMILIES}
        if self.last_half:
            last = max(self.positions[TRANS_FAMILY].get(LAST_OFFSET, 0), self.last_half)
            self.positions[TRANS_FAMILY][LAST_OFFSET] = last
        return bool(self.dropped or any(self.added.values())) or self.positions != self.facts.positions

    def _stays(self, family: str, row: Row | None) -> bool:
        if row is None:
            return codes.RDB_WRONG_ROW not in self.wanted
        size = 1 if isinstance(row, IndexRow) else max(row.size, 1)
        at = row.commitlog_offset
        if at + size > self.written.end and at >= self.written.start:
            return False
        if family == TRANS_FAMILY and at in self.stale:
            return False
        if codes.RDB_WRONG_ROW not in self.wanted and not self.written.writes(at, at + size):
            return True
        return judge_row(row, self.written) in (RowFault.NONE, RowFault.BEFORE)

    def _in_place_of(self, row: Row | None) -> TimerRow | None:
        """Add a row for a pending timed message in place of its old one if the plan changes its unique id."""
        at = row.commitlog_offset if isinstance(row, TimerRow) else 0
        if not isinstance(row, TimerRow) or not self.written.writes(at, at + row.size):
            return None
        message, _ = parse_message(self.written.read(row.size, at))
        if message is None or (message.topic_text, message.size) != (TIMER_TOPIC, row.size):
            return None
        given = parse_properties(message.properties)
        unique_id, due = given.get(UNIQ_KEY), parse_long(given.get(TIMER_OUT_MS, ""))
        if not unique_id or due != row.deliver_time or message.physical_offset != at:
            return None
        new = replace(row, unique_id=unique_id)
        self.added.setdefault(TIMER_FAMILY, set()).add(build_timer_row(new))
        return new

    def _known(self, family: str, key: bytes) -> int | None:
        """Return a position; None if it is missing or no valid number."""
        value = self.facts.positions[family].get(key)
        return None if value is None or value < 0 else value

    def _new_positions(self, family: str, first_due: int | None) -> dict[bytes, int]:
        if not self.log.ends_earlier and self.wanted.isdisjoint((codes.RDB_POSITION, codes.RDB_NO_TIMELINE)):
            return {key: value for key, value in self.facts.positions[family].items() if value is not None}
        found = {key: self._known(family, key) for key in self.facts.positions[family]}
        new = {key: value for key, value in found.items() if value is not None}
        if family == TIMER_FAMILY:
            top = queue_ends(self.draft, self.verified)(TIMER_TOPIC, 0)
            if top is not None and SCAN_OFFSET in new:
                new[SCAN_OFFSET] = min(new[SCAN_OFFSET], top)
            if first_due is not None and TIMELINE not in new:
                new[TIMELINE] = max(1, first_due // _SECOND * _SECOND)
        elif new.get(LAST_OFFSET, 0) >= self.written.end:
            new.pop(LAST_OFFSET, None)
            if (last := last_record(self.written.views)) is not NO_RECORD:
                new[LAST_OFFSET] = last.offset
            if LAST_TIME in new:
                new[LAST_TIME] = min(new[LAST_TIME], self.log.last_time)
        return new

    # --- the new database -----------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the new database, and add the steps that replace the old one."""
        directory, rows = self.draft.store.root / DIRECTORY, {family: self._merged(family) for family in FAMILIES}
        rows |= {family: self.rows.database.rows(family) for family in self.rows.unknown_families}
        replace_database(self.draft, directory, rows, WHY, keeps_options=True)
        self._tell()

    def _merged(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        positions = ((key, POSITION.build(position=value)) for key, value in self.positions[family].items())
        named = sorted([*positions, *self.rows.unknown_names(family).items()])
        return merge(self._kept(family), sorted(self.added.get(family, ())), named)

    def _kept(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        for keys, values in self.rows.rows(family):
            for key, value in zip(keys, values, strict=True):
                if not self.dropped[family] or self._stays(family, parse_row(family, key, value)):
                    yield key, value

    def _tell(self) -> None:
        notes = self.draft.notes
        for family, added in self.added.items():
            if added:
                notes.append(
                    Text(
                        "{directory}/: {rows} of {words} will be made from the log",
                        directory=DIRECTORY,
                        rows=many(len(added), "row"),
                        words=_WORDS[family],
                    )
                )
        for family, count in self.dropped.items():
            removed = Text("{directory}/: {rows} of {words} will be removed")
            if family != TRANS_FAMILY or not self.stale:
                removed = Text(
                    "{directory}/: {rows} of {words} will be removed: their records are not in the log any more, "
                    "or are other ones"
                )
            notes.append(removed.format(directory=DIRECTORY, rows=many(count, "row"), words=_WORDS[family]))
        used = self.facts.counts.get(TRANS_FAMILY) or self.facts.positions.get(TRANS_FAMILY)
        if self.log.ends_earlier and used:
            notes.append(
                Text(
                    "{directory}/: a half message has no row if its commit or rollback was in the part of the "
                    "log that is lost: the broker does not ask for it again",
                    directory=DIRECTORY,
                )
            )


def plan_pop_rows(case: Recovery, draft: PlanBuilder, _: LogAfter) -> None:
    """Plan a new database for kvStore/ without the rows after the ends that the queues will have.

    Rows that cannot be parsed go too, on request. Errors: NoSpace, NotReadable.
    """
    verified, unparsed = case.verified, codes.RDB_POP_ROW in case.asked
    due = bool(draft.ends) or unparsed or codes.RDB_POP_BEYOND in case.wanted
    if verified.report.live or not draft.store.has_pop_rows or not due:
        return
    if not is_readable():
        draft.notes.append(
            Text(
                "{kv_directory}/ is not read: messages received through POP may be delivered again",
                kv_directory=KV_DIRECTORY,
            )
        )
        return
    ends = queue_ends(draft, verified)

    def stays(row: PopRow | None) -> bool:
        if row is None:
            return not unparsed
        end = ends(row.topic, row.queue_id)
        return end is None or row.queue_offset < end

    with writing():
        dropped = Counter(row is None for _, _, row in pop_rows(draft.store) if not stays(row))
        if dropped:
            directory = draft.store.root / KV_DIRECTORY
            old = open_database(draft.store.files, directory)
            rows = {family: old.rows(family) for family in old.families}
            rows[KV_FAMILY] = ((key, value) for key, value, row in pop_rows(draft.store) if stays(row))
            replace_database(draft, directory, rows, _POP_WHY)
    lost, invalid = dropped[False], dropped[True]
    if lost:
        draft.notes.append(
            Text(
                "{kv_directory}/: {rows} of lost messages will be removed",
                kv_directory=KV_DIRECTORY,
                rows=many(lost, "row"),
            )
        )
    if invalid:
        draft.notes.append(
            Text(
                "{kv_directory}/: {rows} without a valid key or value will be removed",
                kv_directory=KV_DIRECTORY,
                rows=many(invalid, "row"),
            )
        )
