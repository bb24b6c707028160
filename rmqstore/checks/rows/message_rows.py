"""RDB-*: the rows of timed messages, half messages and the index in rocksdbstore/, compared with the log.

They are checked whenever the database has rows, whether or not broker.conf names the feature: a broker with the feature
reads them, and it is the broker's setting at its next start that counts.

Not a problem: rows of timed messages that are delivered, which stay for 30 minutes and more; index entries of messages
in log files that were deleted; rows that an unclean shutdown or a running broker has not written yet.

Source: MessageRocksDBStorage, TimerMessageRocksDBStore, Timeline, TransMessageRocksDBStore, IndexRocksDBStore
(RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, QueueRange, Report
from rmqstore.checks.rows.missing_rows import (
    IndexCounts,
    ended_halves,
    missing_halves,
    missing_index_rows,
    missing_timers,
)
from rmqstore.checks.rows.row_faults import Row, RowFault, faulty_rows, first_numbers
from rmqstore.files.log_ends import SmallReads
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, is_readable, missing_extra
from rmqstore.files.rocksdb.rows import DIRECTORY, MessageRows
from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.formats.rocksdbstore import (
    FAMILIES,
    INDEX_FAMILY,
    LAST_OFFSET,
    POSITION_KEYS,
    SCAN_OFFSET,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
    parse_position,
)
from rmqstore.formats.text import many
from rmqstore.texts import Text

_MOST_OPEN = 128  # files
_PAST = 10_000  # ms before its start from which a broker without `timeline_checkpoint` delivers
Offsets = npt.NDArray[np.int64]


@dataclass(slots=True)
class MessageRowFacts:
    """What rocksdbstore/ contains.

    `readable`: all rows were read. `counts`: rows per column family. `positions`: the position keys of each family,
    None for one that is too short. `pending_timers`: rows of timed messages that are still to be delivered.
    """

    readable: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[bytes, int | None]] = field(default_factory=dict)
    pending_timers: int = 0


def check_message_rows(
    store: Store, logs: Logs, report: Report, *, queue_range: QueueRange | None = None
) -> MessageRowFacts | None:
    """Check the rows of rocksdbstore/; None if it cannot hold any, and the log has no half message that needs one.

    `queue_range` None: do not compare with the timer queue. Errors: none; see `unchecked` of the report.
    """
    has_halves = queue_range is not None and queue_range(properties.ROCKSDB_HALF_TOPIC, 0) is not None
    if not (store.may_have_message_rows or has_halves):
        return None
    facts = MessageRowFacts()
    if store.may_have_message_rows and not is_readable():
        facts.readable = False
        report.unchecked.append(
            Text(
                "{directory}/: rows of timed messages, half messages and the index are not checked: that "
                "{missing_extra}",
                directory=DIRECTORY,
                missing_extra=missing_extra(),
            )
        )
        return facts
    try:
        rows = MessageRows.open(store)
        with LogAsItIs(logs) as log:
            _Check(store, logs, log, report, rows, facts, queue_range).run()
    except DamagedDatabase as e:
        facts.readable = False
        if report.live:
            report.unchecked.append(Text("{directory}/: this RocksDB cannot be read: {e}", directory=DIRECTORY, e=e))
        else:
            report.findings.add(Finding(codes.RDB_DAMAGED, DIRECTORY, facts={"reason": str(e)}))
    except CannotRead as e:
        facts.readable = False
        report.unchecked.append(Text("{directory}/: this RocksDB cannot be read: {e}", directory=DIRECTORY, e=e))
    return facts


class LogAsItIs:
    """The log on disk, as a `LogView`; its files stay open until the end of the block."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._open: dict[str, SmallReads] = {}
        self._files = ExitStack()
        self.start, self.end = logs.min_offset, logs.wrote

    def __enter__(self) -> LogAsItIs:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        self._open.clear()

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes at a global offset; the result is short where the log has none, and at the end of a file."""
        for log in self._logs.results:
            file = log.queue.find(offset)
            if file is not None:
                return self._file(file).pread(min(size, file.stop - offset), offset - file.start)
        return b""

    def _file(self, file: MappedFile) -> SmallReads:
        path = str(file.path)
        if path not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self.__exit__()
            self._open[path] = self._files.enter_context(SmallReads(file))
        return self._open[path]


@dataclass(slots=True)
class _FamilyTally:
    """The rows of a family with a problem: how many, and the first."""

    rows: int = 0
    first: Row | None = None
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row | None, reason: RowFault) -> None:
        self.rows += 1
        self.first = self.first or row
        self.reasons[reason.value] += 1

    def facts(self, family: str) -> dict[str, Fact]:
        found: dict[str, Fact] = {"family": family, "rows": self.rows}
        if self.first is not None:
            found["commitlog_offset"] = self.first.commitlog_offset
            found["unique_id"] = self.first.unique_id
        return found


@dataclass(slots=True)
class _Missing:
    """Messages of a family without a row: how many, and the first."""

    messages: int = 0
    first: Row | None = None

    def add(self, row: Row) -> None:
        self.messages += 1
        self.first = self.first or row

    def report(
        self, code: str, family: str, add: Callable[[str, str, dict[str, Fact]], None], count: str = "rows"
    ) -> None:
        if self.first is not None:
            about: dict[str, Fact] = {count: self.messages, "commitlog_offset": self.first.commitlog_offset}
            add(code, family, about | {"unique_id": self.first.unique_id})


class _Check:
    def __init__(
        self,
        store: Store,
        logs: Logs,
        log: LogAsItIs,
        report: Report,
        rows: MessageRows,
        facts: MessageRowFacts,
        queue_range: QueueRange | None,
    ) -> None:
        self.store = store
        self.logs = logs
        self.log = log
        self.report = report
        self.rows = rows
        self.facts = facts
        self.queue_range = queue_range
        self.wrong = {family: _FamilyTally() for family in FAMILIES}
        self.beyond = {family: _FamilyTally() for family in FAMILIES}
        self.expired = _FamilyTally()
        self.halves: list[Offsets] = []
        self.indexed = IndexCounts.of(logs)
        self.due: list[Offsets] = []

    def run(self) -> None:
        for family in self.rows.unknown_families:
            self.report.unchecked.append(
                Text("{directory}/: no known broker has its column family {family}", directory=DIRECTORY, family=family)
            )
        for family in FAMILIES:
            self._positions(family)
        for family in FAMILIES:
            self.facts.counts[family] = 0
            for keys, values in self.rows.rows(family):
                self.facts.counts[family] += len(keys)
                self._chunk(family, keys, values)
        self.facts.pending_timers = sum(len(due) for due in self.due)
        if self.report.live or self.logs.grows:  # rows and log were not read at the same time
            return
        self._report_rows()
        self._report_positions()
        self._report_timeline()
        self._report_stale()
        self._report_missing()

    def _positions(self, family: str) -> None:
        found = ((key, self.rows.stored(family, key)) for key in POSITION_KEYS[family])
        self.facts.positions[family] = {key: parse_position(value) for key, value in found if value is not None}

    def _chunk(self, family: str, keys: list[bytes], values: list[bytes]) -> None:
        first = first_numbers(keys)
        if family == TIMER_FAMILY:
            pending = np.flatnonzero(first >= (self.facts.positions[family].get(TIMELINE) or 0))
            if len(pending) < len(keys):
                keys, values = [keys[i] for i in pending], [values[i] for i in pending]
            self.due.append(first[pending])
        right = np.ones(len(keys), dtype=np.bool_)
        for number, row, fault in faulty_rows(family, keys, values, self.log):
            right[number] = False
            if fault is RowFault.BEFORE:
                self.expired.add(row, fault)
            elif fault is RowFault.BEYOND:
                self.beyond[family].add(row, fault)
            elif row is None or not self.logs.damaged(row.commitlog_offset):
                self.wrong[family].add(row, fault)
        if family == TRANS_FAMILY:
            self.halves.append(first[right])
        elif family == INDEX_FAMILY:
            self.indexed.add(keys)

    def _add(self, code: str, family: str, facts: dict[str, Fact]) -> None:
        self.report.findings.add(Finding(code, DIRECTORY, family, facts={"family": family} | facts))

    def _report_rows(self) -> None:
        for family in FAMILIES:
            if self.beyond[family].rows:
                found = self.beyond[family].facts(family) | {"wrote": self.log.end}
                self._add(codes.RDB_DANGLING_ROW, family, found)
            if self.wrong[family].rows:
                ((reason, _),) = self.wrong[family].reasons.most_common(1)
                self._add(codes.RDB_WRONG_ROW, family, self.wrong[family].facts(family) | {"reason": reason})
        if self.expired.rows:
            self.report.notes.append(
                Text(
                    "{directory}/: {rows} of timed or half messages in log files that were deleted: a broker "
                    "drops them",
                    directory=DIRECTORY,
                    rows=many(self.expired.rows, "row"),
                )
            )

    def _report_positions(self) -> None:
        for family, found in self.facts.positions.items():
            for key, value in found.items():
                name = key.decode()
                if value is None:
                    self._add(codes.RDB_POSITION, family, {"key": name, "reason": Text("shorter than 8 bytes")})
                elif value < 0:
                    self._add(codes.RDB_POSITION, family, {"key": name, "value": value, "reason": "negative"})
                elif key == LAST_OFFSET and value >= self.log.end and value > 0:
                    about: dict[str, Fact] = {"key": name, "value": value, "reason": Text("beyond the log")}
                    self._add(codes.RDB_POSITION, family, about | {"wrote": self.log.end})
                elif key == SCAN_OFFSET:
                    self._check_scan(name, value)

    def _check_scan(self, name: str, value: int) -> None:
        top = self.queue_range(properties.TIMER_TOPIC, 0) if self.queue_range is not None else None
        if top is not None and value > top[1]:
            about: dict[str, Fact] = {
                "key": name,
                "value": value,
                "reason": Text("beyond the timer queue"),
                "end": top[1],
            }
            self._add(codes.RDB_POSITION, TIMER_FAMILY, about)

    def _report_timeline(self) -> None:
        """Report rows of timed messages without the time from which a start delivers: it begins with the present."""
        if not self.facts.pending_timers or TIMELINE in self.facts.positions[TIMER_FAMILY]:
            return
        due = np.concatenate(self.due)
        overdue = int(np.count_nonzero(due < time.time() * 1000 - _PAST))
        about: dict[str, Fact] = {"rows": len(due), "first_due_time": int(due.min()), "last_due_time": int(due.max())}
        self._add(codes.RDB_NO_TIMELINE, TIMER_FAMILY, about | ({"messages": overdue} if overdue else {}))

    def _report_stale(self) -> None:
        """Report half messages with a row although a later record says that they were committed or rolled back."""
        halves = np.unique(np.concatenate(self.halves)) if self.halves else np.empty(0, dtype=np.int64)
        if not len(halves):
            return
        last = self.facts.positions[TRANS_FAMILY].get(LAST_OFFSET) or 0
        stale = set()
        for at, half in ended_halves(self.store, self.logs, int(halves[0])):
            if self.logs.lag_is_normal and at >= last:  # the next start may dispatch it again
                continue
            number = int(np.searchsorted(halves, half))
            if number < len(halves) and int(halves[number]) == half:
                stale.add(half)
        if stale:
            self._add(codes.RDB_STALE_HALF, TRANS_FAMILY, {"rows": len(stale), "commitlog_offset": min(stale)})

    def _report_missing(self) -> None:
        """Report rows that should be there."""
        halves = _Missing()
        for half in missing_halves(self.store, self.logs, self.rows, self.log):
            halves.add(half)
        halves.report(codes.RDB_MISSING_HALF, TRANS_FAMILY, self._add)
        timers = _Missing()
        for timed in missing_timers(self.store, self.logs, self.rows, self.log):
            timers.add(timed)
        timers.report(codes.RDB_MISSING_TIMER, TIMER_FAMILY, self._add, "messages")
        entries = _Missing()
        for entry in missing_index_rows(self.logs, self.rows, self.indexed):
            if entry.kind == "U":
                entries.add(entry)
        entries.report(codes.RDB_NOT_INDEXED, INDEX_FAMILY, self._add)
