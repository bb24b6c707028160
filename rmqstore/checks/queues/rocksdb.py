"""Compare consume queues in a RocksDB with the log, with the same findings as for queues in files.

Readers do not see rows after the end that the column family `offset` names: after a truncation, a broker corrects
this end first and deletes the rows later.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from rmqstore.checks.log.logs import Logs, Name
from rmqstore.checks.log.queue_parts import KEPT, Missing
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState, Report
from rmqstore.checks.queues.consumequeue import check_consume_queues
from rmqstore.checks.queues.queue_check import QueueCheck
from rmqstore.checks.queues.rocksdb_batches import check_batch_rows
from rmqstore.files.config_databases import TABLES, StoredTable, directory_of, tables_in
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.queue_home import QueueHome
from rmqstore.files.rocksdb.config import stored_table
from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, UnknownFormat, is_readable, missing_extra
from rmqstore.files.rocksdb.queues import Bound, RocksDBQueue, RocksDBQueues
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.scan.unit_rows import Units

DIRECTORY = "consumequeue/"
WHICH = (
    "the store has queues in files and in RocksDB, and nothing says which of them the broker reads: give its "
    "broker.conf with -c (storeType, rocksdbCQDoubleWriteEnable); until then the files are not checked"
)
_NO_BATCHES = (
    "a broker with its queues in RocksDB does not deliver all messages of a batch topic (queue.type=BatchCQ); which of "
    "them is not forecast"
)
_NAMED_QUEUES = 20


@dataclass(slots=True)
class RocksDBFacts:
    """The states of all queues, and which rows cannot be read; `damaged`: some, or the whole database."""

    states: dict[str, QueueState] = field(default_factory=dict)
    unreadable: dict[Name, int] = field(default_factory=dict)
    """Number of messages per queue whose rows cannot be read."""
    damaged: bool = False


@dataclass(slots=True)
class RowsRead:
    """The RocksDB directories of a store. `queues`: whether consumequeue/ can be read; `tables`: the configuration.

    `directories` are those that were opened, or that the report names as unchecked. `damaged`: RocksDB cannot open the
    database of the queues.
    """

    queues: bool = False
    tables: dict[str, StoredTable] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    damaged: bool = False


def damaged_database(reason: str, **more: Fact) -> Finding:
    """Return the finding of a database of consume queues with wrong bytes or missing files."""
    return Finding(codes.CQ_ROCKSDB, "consumequeue", facts={"reason": reason, **more})


def unknown_format(reason: str, **more: Fact) -> Finding:
    """Return the finding of a database of consume queues with a format that the library does not know."""
    return Finding(codes.CQ_ROCKSDB_FORMAT, "consumequeue", facts={"reason": reason, **more})


def open_rocksdb(store: Store, report: Report) -> RowsRead:
    """Open the RocksDB directories of a store. Errors: none; see `unchecked` of the report."""
    out = RowsRead()
    if store.part is not None:
        if (store.path / "CURRENT").is_file():
            report.unchecked.append(f"{store.path.name}/: a RocksDB is checked as a part of its whole store only")
        return out
    if store.rocksdb_consume_queue:
        out.directories.add("consumequeue")
        if not is_readable():
            report.unchecked.append(f"{DIRECTORY}: consume queues in RocksDB are not checked: that {missing_extra()}")
        else:
            try:
                RocksDBQueues(store)
                out.queues = True
            except DamagedDatabase as e:
                out.damaged = True
                report.findings.add(damaged_database(str(e)))
            except UnknownFormat as e:
                out.damaged = True
                report.findings.add(unknown_format(str(e)))
                report.unchecked.append(f"{DIRECTORY}: rows of the consume queues")
            except CannotRead as e:
                out.damaged = True
                report.unchecked.append(f"{DIRECTORY}: the RocksDB of the consume queues cannot be read: {e}")
    if is_readable():
        _read_config(store, report, out)
    return out


def _read_config(store: Store, report: Report, out: RowsRead) -> None:
    """Read the tables of the configuration that the broker reads, and open the others."""
    used = {table: directory_of(store, table) for table in TABLES}
    for name in store.rocksdb_config:
        for table in tables_in(name):
            out.directories.add(f"config/{name}")
            try:
                found = stored_table(store.root, name, table)
            except CannotRead as e:
                report.unchecked.append(f"config/{name}/: this RocksDB cannot be read: {e}")
                break
            if found.broken:
                report.unchecked.append(f"config/{name}/: {found.broken} rows of {table} cannot be read")
            if used[table] == name:
                out.tables[table] = found


def check_rocksdb_queues(store: Store, logs: Logs, report: Report, batch_topics: frozenset[str]) -> RocksDBFacts:
    """Check all consume queues of a RocksDB, simple and batch. Errors: none; see `unchecked` of the report."""
    facts = RocksDBFacts()
    findings = report.findings
    try:
        queues = RocksDBQueues(store)
    except CannotRead as e:
        report.unchecked.append(f"{DIRECTORY}: the RocksDB of the consume queues cannot be read: {e}")
        return facts
    reasons: list[str] = []
    names, bounds = _names_and_bounds(queues, logs, reasons)
    if queues.foreign:
        report.notes.append(f"{DIRECTORY}: {queues.foreign} keys in the RocksDB are not those of consume queue units")
    batches = {name for name in names if name[0] in batch_topics}
    names -= batches
    unread: list[str] = []

    def checks() -> Iterator[QueueCheck]:
        for files in queues.files(names):
            ends = None if bounds is None else bounds.get((files.topic, files.queue_id), {})
            check = _RowsCheck(store, files, logs, findings, queues, ends)
            yield check
            if check.rows.unreadable:
                unread.append(check.label)
                reasons.extend(one.reason for one in check.rows.unreadable)
            if count := check.unreadable_messages():
                facts.unreadable[files.topic, files.queue_id] = count

    facts.states = check_consume_queues(store, logs, findings, checks())
    batch_names: set[str] = set()
    for name, rows, state in check_batch_rows(queues, batches, bounds, logs, findings):
        label = f"{name[0]}/{name[1]}"
        facts.states[label] = state
        if rows.unreadable:
            unread.append(label)
            reasons.append(rows.unreadable[0].reason)
        if count := rows.unreadable_in(0, state.expected_max):
            facts.unreadable[name] = count
        batch_names.add(name[0])
    if reasons:
        facts.damaged = True
        count = sum(facts.unreadable.values())
        findings.add(damaged_database(reasons[0], messages=count, queues=", ".join(unread[:_NAMED_QUEUES])))
    report.unchecked.extend(f"{topic}: {_NO_BATCHES}" for topic in sorted(batch_names))
    if next(store.queue_directories(QueueKind.SIMPLE), None) is not None:
        if store.queue_home is QueueHome.ROCKSDB:
            report.notes.append(f"{DIRECTORY}: queues in files beside the RocksDB, which this broker does not read")
        else:
            report.unchecked.append(f"{DIRECTORY}: {WHICH}")
    return facts


def _names_and_bounds(
    queues: RocksDBQueues, logs: Logs, reasons: list[str]
) -> tuple[set[Name], dict[Name, dict[str, Bound]] | None]:
    """Return all queues, and their ends (None if unreadable). `reasons` gets the reasons for unreadable rows."""
    names: set[Name] = set()
    bounds = None
    try:
        names.update(queues.names())
    except CannotRead as e:
        reasons.append(str(e))
        names.update(logs.queues)
    try:
        bounds = queues.bounds()
        names.update(bounds)
    except CannotRead as e:
        reasons.append(str(e))
    return names, bounds


class _RowsCheck(QueueCheck):
    """One queue in RocksDB. `ends`: its ends according to the column family `offset`; None if this cannot be read."""

    def __init__(
        self,
        store: Store,
        files: ConsumeQueueFiles,
        logs: Logs,
        findings: Findings,
        queues: RocksDBQueues,
        ends: Mapping[str, Bound] | None,
    ) -> None:
        super().__init__(store, files, logs, findings)
        self.queues = queues
        self.ends = ends
        assert isinstance(files.queue, RocksDBQueue)
        self.rows = files.queue

    def check_units(self) -> None:
        """Check every row that no message accounts for, and the ends of the queue."""
        for number in islice(self.rows.strange_offsets(), KEPT):
            about: dict[str, Fact] = {"queue_offset": number, "reason": "no valid queue offset"}
            self._add(codes.CQ_DANGLING_UNIT, 0, 1, about)
        super().check_units()
        if self.ends is not None and not self.logs.grows:
            self._check_ends(self.ends)

    def _span(self) -> tuple[int, int]:
        start, stop = super()._span()
        last = self.ends.get("max") if self.ends is not None else None
        return start, stop if last is None else max(start, min(stop, last.queue_offset + 1))

    def _units(self, start: int, stop: int) -> Iterator[tuple[int, Units]]:
        for number, units, _ in self.rows.runs(start, stop):
            yield number, units

    def _check_files(self) -> None:
        """Check nothing: there are no files."""

    def _queue_of(self, topic: str, queue_id: int) -> MappedFileQueue:
        return self.queues.queue(topic, queue_id)

    def _check_ends(self, ends: Mapping[str, Bound]) -> None:
        """Report units outside of the ends, which no reader sees, and an end behind all units, where readers wait."""
        accounted = self.part.accounted
        if not accounted and "max" not in ends:
            return
        first, stop = min((a for a, _ in accounted), default=-1), max((b for _, b in accounted), default=0)
        low, high = ends.get("min"), ends.get("max")
        end = high.queue_offset + 1 if high is not None else 0
        if end < stop:
            self._report_unseen(max(end, first), stop, "the queue ends before it")
        elif high is not None and end > self.part.next and high.commitlog_offset >= self.logs.wrote:
            about: dict[str, Fact] = {
                "queue_offset": max(stop, 0),
                "units": end - stop,
                "commitlog_offset": high.commitlog_offset,
                "wrote": self.logs.wrote,
            }
            self._add(codes.CQ_BEYOND_LOG, stop, end - stop, about)
        if low is not None and low.queue_offset > first >= 0:
            self._report_unseen(first, min(low.queue_offset, stop), "the queue begins behind it")

    def _report_unseen(self, start: int, stop: int, reason: str) -> None:
        about: dict[str, Fact] = {
            "messages": stop - start,
            "queue_offset": start,
            "first_offset": self._points_to(start),
            "last_offset": self._points_to(stop - 1),
            "reason": reason,
        }
        self._add(codes.CQ_MISSING_UNIT, start, stop - start, about)

    def _points_to(self, index: int) -> int:
        for _, units, _ in self.rows.runs(index, index + 1):
            return int(units[0]["commitlog_offset"])
        return -1

    def still_missing(self) -> Iterator[Missing]:
        """Yield missing messages whose rows are not in an unreadable range."""
        for m in super().still_missing():
            if not any(u.start < m.stop and m.start < u.stop for u in self.rows.unreadable):
                yield m

    def unreadable_messages(self) -> int:
        """Count the messages between the queue's ends whose rows cannot be read."""
        if not self.ends or "max" not in self.ends:
            return 0
        first = self.ends["min"].queue_offset if "min" in self.ends else 0
        return self.rows.unreadable_in(first, self.ends["max"].queue_offset + 1)

    def state(self) -> QueueState:
        """Return the state; the maximum for readers is in the column family `offset`."""
        state = super().state()
        last = self.ends.get("max") if self.ends is not None else None
        if last is not None:
            state.max = last.queue_offset + 1
        return state
