"""Compare consume queues in a RocksDB with the log, with the same findings as for queues in files.

Readers do not see rows after the end that the column family `offset` names: after a truncation, a broker corrects
this end first and deletes the rows later.

A broker with its queues in RocksDB has no BatchCQ. It writes one row for an inner batch, at its first queue offset, as
for any other message, and none for the other queue offsets of the batch.

Source: RocksDBConsumeQueueTable#buildAndPutCQByteBuffer, RocksDBConsumeQueueOffsetTable,
RocksDBConsumeQueueStore#getConsumeQueue (RocketMQ 5.4.0; and rows written by a real broker)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import KEPT, Missing
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState, Report
from rmqstore.checks.queues.batch_queue import batches_of, report_missing
from rmqstore.checks.queues.consumequeue import QueueCheck, QueueChunk, check_consume_queues
from rmqstore.files.config import TABLES, WITHOUT_POSITIONS, StoredTable, directory_of, tables_in
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, UnknownFormat, is_readable, missing_extra
from rmqstore.files.rocksdb.queues import Bound, RocksDBQueue, RocksDBQueues
from rmqstore.files.rocksdb.rows import stored_table
from rmqstore.files.rocksdb.written_rows import was_deleted
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.files.store_queues import QueueHome
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.text import many
from rmqstore.scan.dispatch import BatchRow
from rmqstore.scan.kernels import Bool
from rmqstore.scan.units import UnitArray
from rmqstore.texts import Text


def _check_batches(
    name: QueueName, rows: RocksDBQueue, batches: list[BatchRow], logs: Logs, findings: Findings
) -> QueueState:
    """Check the rows of a batch queue, and return its state; `batches` are those of the log."""
    label = f"{name[0]}/{name[1]}"
    by_base = {row.base: row for row in batches}
    met: set[int] = set()
    low = -1
    for number, units, _ in rows.runs(rows.first, rows.behind):
        offsets, sizes = units["commitlog_offset"].astype(np.int64), units["size"].astype(np.int64)
        for base, offset, size in zip(
            range(number, number + len(units)), offsets.tolist(), sizes.tolist(), strict=True
        ):
            if offset < logs.min_offset:
                if offset >= logs.witnesses.begin:
                    logs.witnesses.add_batch(name, base, 1, offset, size)
                continue
            row = by_base.get(base)
            if row is not None and (row.offset, row.size) == (offset, size):
                met.add(base)
                low = base if low < 0 else low
            elif row is None and (logs.damaged(offset) or logs.hidden(offset, size)):
                logs.lose(offset, name[0])
                logs.witnesses.add_batch(name, base, 1, offset, size)
            else:
                facts: dict[str, Fact] = {"commitlog_offset": offset, "base_offset": base}
                logs.witnesses.add_batch(name, base, 1, offset, size)
                facts["reason"] = Text("no batch of this queue starts there")
                findings.add(Finding(codes.BCQ_DANGLING_UNIT, label, "", base * UNIT_SIZE, UNIT_SIZE, facts))
    missing = [row for row in batches if row.base not in met and not rows.unreadable_in(row.base, row.base + 1)]
    report_missing(label, missing, UNIT_SIZE, logs, findings)
    expected = max((row.base + row.count for row in batches), default=rows.behind)
    return QueueState(max(low, 0), rows.behind, expected)


WHICH = Text(
    "the store has queues in files and in RocksDB, and nothing says which of them the broker reads: give its "
    "broker.conf with -c (storeType, rocksdbCQDoubleWriteEnable); until then the files are not checked"
)
_NO_BATCHES = Text(
    "a broker with its queues in RocksDB does not deliver all messages of a batch topic "
    "(queue.type=BatchCQ); which of them is not forecast"
)
_NAMED_QUEUES = 20


@dataclass(slots=True)
class RocksDBFacts:
    """The states of all queues, and which rows cannot be read; `damaged`: some, or the whole database."""

    states: dict[str, QueueState] = field(default_factory=dict)
    unreadable: dict[QueueName, int] = field(default_factory=dict)
    """Number of messages per queue whose rows cannot be read."""
    damaged: bool = False
    dispatched: int | None = None
    """The end of the last message that was written to the RocksDB (global offset); None: unknown."""


@dataclass(slots=True)
class RowsRead:
    """The RocksDB directories of a store. `queues`: whether the consume queues can be read; `tables`: configuration.

    `directories` are those that were opened, or that the report names as unchecked. `damaged`: RocksDB cannot open the
    database of the queues.
    """

    queues: bool = False
    tables: dict[str, StoredTable] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    damaged: bool = False


def unreadable_database(store: Store, error: CannotRead, **more: Fact) -> Finding | None:
    """Return the finding of a database of consume queues with damage, or with a format that the library does not know.

    None for another error, which only says that this process cannot read it.
    """
    kinds = {DamagedDatabase: codes.CQ_ROCKSDB, UnknownFormat: codes.CQ_ROCKSDB_FORMAT}
    code = kinds.get(type(error))
    return None if code is None else Finding(code, store.rocksdb_directory.name, facts={"reason": str(error), **more})


def open_rocksdb(store: Store, report: Report) -> RowsRead:
    """Open the RocksDB directories of a store. Errors: none; see `unchecked` of the report."""
    out = RowsRead()
    name = store.rocksdb_directory.name
    if store.part is not None:
        if store.files.is_file(store.path / "CURRENT"):
            report.unchecked.append(
                Text("{path}/: a RocksDB is checked as a part of its whole store only", path=store.path.name)
            )
        return out
    if (other := store.other_rocksdb) is not None and store.uses_rocksdb:
        report.findings.add(Finding(codes.CQ_TWO_ROCKSDB, other.name, facts={"other": name}))
    if store.rocksdb_consume_queue:
        out.directories.add(name)
        if not is_readable():
            report.unchecked.append(
                Text(
                    "{name}/: consume queues in RocksDB are not checked: that {missing_extra}",
                    name=name,
                    missing_extra=missing_extra(),
                )
            )
        else:
            try:
                RocksDBQueues(store)
                out.queues = True
            except CannotRead as e:
                out.damaged = True
                if (finding := unreadable_database(store, e)) is not None:
                    report.findings.add(finding)
                if isinstance(e, UnknownFormat):
                    report.unchecked.append(Text("{name}/: rows of the consume queues", name=name))
                elif finding is None:
                    report.unchecked.append(
                        Text("{name}/: the RocksDB of the consume queues cannot be read: {e}", name=name, e=e)
                    )
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
                found = stored_table(store, name, table)
            except CannotRead as e:
                report.unchecked.append(Text("config/{name}/: this RocksDB cannot be read: {e}", name=name, e=e))
                break
            if found.broken:
                report.unchecked.append(
                    Text(
                        "config/{name}/: {broken} of {table} cannot be read",
                        name=name,
                        broken=many(found.broken, "row"),
                        table=table,
                    )
                )
            if used[table] == name:
                out.tables[table] = found
        if name in WITHOUT_POSITIONS:
            out.directories.add(f"config/{name}")


class RowsComparison:
    """Compares the queues in a RocksDB with the log. `only_light`: only light queues, because all others are in files.

    Take all of `checks()`, then call `finish()`. Errors: CannotRead from the constructor.
    """

    def __init__(self, store: Store, logs: Logs, report: Report, *, only_light: bool = False) -> None:
        self.facts = RocksDBFacts()
        self.store = store
        self.logs = logs
        self.report = report
        self.queues = RocksDBQueues(store)
        self._only_light = only_light
        with suppress(CannotRead):
            self.facts.dispatched = self.queues.dispatched() or 0
        self._unread: list[str] = []
        self._reasons: list[str] = []
        """Why rows cannot be read."""
        self._bounds: dict[QueueName, dict[str, Bound]] | None = None
        """The ends of the queues; None if unreadable."""
        names: set[QueueName] = set()
        try:
            names.update(self.queues.names())
        except CannotRead as e:
            self._reasons.append(str(e))
            names.update(logs.queues)
        try:
            self._bounds = self.queues.bounds()
            names.update(self._bounds)
        except CannotRead as e:
            self._reasons.append(str(e))
        self._names = {name for name in names if is_lmq(name[0])} if only_light else names
        if self.queues.foreign:
            where = store.rocksdb_directory.name
            report.notes.append(
                Text(
                    "{where}/: the RocksDB has {keys} of another form than consume queue units; brokers ignore this",
                    where=where,
                    keys=many(self.queues.foreign, "key"),
                )
            )

    def checks(self, batch_topics: frozenset[str] = frozenset()) -> Iterator[QueueCheck]:
        """Yield the check of each queue that has rows or ends, without batch topics."""
        for files in self.queues.files(name for name in self._names if name[0] not in batch_topics):
            ends = None if self._bounds is None else self._bounds.get((files.topic, files.queue_id), {})
            check = _RowsCheck(self.store, files, self.logs, self.report.findings, self.queues, ends)
            yield check
            if check.rows.unreadable:
                self._unread.append(check.label)
                self._reasons.extend(one.reason for one in check.rows.unreadable)
            if count := check.unreadable_messages():
                self.facts.unreadable[files.topic, files.queue_id] = count

    def deleted(self) -> frozenset[QueueName]:
        """Return the lite queues that a broker deleted on purpose, and note that the log still has their messages."""
        if self._bounds is None or self._reasons:
            return frozenset()
        dispatched = self.facts.dispatched
        missing = ((name, part) for name, part in self.logs.queues.items() if name not in self._names)
        found = frozenset(name for name, part in missing if was_deleted(name[0], part.last_at, dispatched))
        if found:
            self.report.notes.append(
                Text(
                    "{queues} of the log ({some}) are not in the RocksDB: a broker deletes a lite queue that was "
                    "not written for lite.topic.expiration, and leaves its messages in the log",
                    queues=many(len(found), "lite queue"),
                    some=", ".join(sorted(topic for topic, _ in found)[:3]),
                )
            )
        return found

    def check_batches(self, batch_topics: frozenset[str]) -> None:
        """Check the rows of batch topics."""
        names = {name for name in self._names if name[0] in batch_topics}
        batches = batches_of(self.logs)
        topics: set[str] = set()
        for name in sorted(names | batches.keys()):
            rows, label = self.queues.queue(*name), f"{name[0]}/{name[1]}"
            if self._bounds is not None:
                last = self._bounds.get(name, {}).get("max")
                rows.end_at(last.queue_offset + 1 if last is not None else 0)
            state = _check_batches(name, rows, batches.get(name, []), self.logs, self.report.findings)
            self.facts.states[label] = state
            if rows.unreadable:
                self._unread.append(label)
                self._reasons.append(rows.unreadable[0].reason)
            if count := rows.unreadable_in(0, state.expected_max):
                self.facts.unreadable[name] = count
            topics.add(name[0])
        self.report.unchecked.extend(f"{topic}: {_NO_BATCHES}" for topic in sorted(topics))

    def finish(self) -> RocksDBFacts:
        """Report rows that cannot be read, and return the facts."""
        has_light = self._names or any(is_lmq(topic) for topic, _ in self.logs.queues)
        if self._reasons and (has_light or not self._only_light):
            self.facts.damaged = True
            facts: dict[str, Fact] = {"reason": self._reasons[0], "messages": sum(self.facts.unreadable.values())}
            facts["queues"] = ", ".join(self._unread[:_NAMED_QUEUES])
            self.report.findings.add(Finding(codes.CQ_ROCKSDB, self.store.rocksdb_directory.name, facts=facts))
        return self.facts


def check_rocksdb_queues(store: Store, logs: Logs, report: Report, batch_topics: frozenset[str]) -> RocksDBFacts:
    """Check all consume queues of a RocksDB, simple and batch. Errors: none; see `unchecked` of the report."""
    where = f"{store.rocksdb_directory.name}/"
    try:
        compared = RowsComparison(store, logs, report)
    except CannotRead as e:
        report.unchecked.append(
            Text("{where}: the RocksDB of the consume queues cannot be read: {e}", where=where, e=e)
        )
        return RocksDBFacts()
    states = check_consume_queues(store, logs, report.findings, compared.checks(batch_topics), compared.deleted())
    compared.facts.states = states
    compared.check_batches(batch_topics)
    if next(store.queue_directories(QueueKind.SIMPLE), None) is not None:
        if store.queue_home is QueueHome.ROCKSDB:
            report.notes.append(
                Text("consumequeue/: queues in files beside the RocksDB, which this broker does not read")
            )
        else:
            report.unchecked.append(f"{where}: {WHICH}")
    return compared.finish()


def check_files_and_light_rows(store: Store, logs: Logs, report: Report) -> RocksDBFacts:
    """Check the queues in files, and the light queues that are only in the RocksDB beside them.

    Light queues in files are left over: no broker reads them. If the RocksDB cannot be read, light queues are not
    checked. Errors: none.
    """
    in_files = (
        QueueCheck(store, files, logs, report.findings)
        for files in store.consume_queues(QueueKind.SIMPLE)
        if not store.reads_rows(files.topic)
    )
    try:
        compared = RowsComparison(store, logs, report, only_light=True)
    except CannotRead:  # check_double_written names the reason
        light = frozenset(name for name in logs.queues if store.reads_rows(name[0]))
        return RocksDBFacts(check_consume_queues(store, logs, report.findings, in_files, light))
    checks = chain(in_files, compared.checks())
    states = check_consume_queues(store, logs, report.findings, checks, compared.deleted())
    compared.facts.states = states
    return compared.finish()


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
            about: dict[str, Fact] = {"queue_offset": number, "reason": Text("no valid queue offset")}
            self._add(codes.CQ_DANGLING_UNIT, 0, 1, about)
        super().check_units()
        if self.ends is not None and not self.logs.grows:
            self._check_ends(self.ends)

    def _span(self) -> tuple[int, int]:
        start, stop = super()._span()
        last = self.ends.get("max") if self.ends is not None else None
        return start, stop if last is None else max(start, min(stop, last.queue_offset + 1))

    def _units(self, start: int, stop: int) -> Iterator[tuple[int, UnitArray]]:
        for number, units, _ in self.rows.runs(start, stop):
            yield number, units

    def _check_files(self) -> None:
        """Check nothing: there are no files."""

    def _witness(self, chunk: QueueChunk, expired: Bool) -> None:
        """Note what these rows list; those before the log prove nothing: a broker deletes rows at some later time."""
        super()._witness(chunk, np.zeros_like(expired))

    def _queue_of(self, topic: str, queue_id: int) -> MappedFileQueue:
        return self.queues.queue(topic, queue_id)

    def _check_ends(self, ends: Mapping[str, Bound]) -> None:
        """Report units outside of the ends, which no reader sees, and an end after all units, where readers wait."""
        first, stop = self.part.first_unit, self.part.units_end
        if first < 0 and "max" not in ends:
            return
        low, high = ends.get("min"), ends.get("max")
        end = high.queue_offset + 1 if high is not None else 0
        if end < stop:
            self._report_unseen(max(end, first), stop, Text("the queue ends before it"))
        elif high is not None and end > self.part.next and high.commitlog_offset >= self.logs.wrote:
            about: dict[str, Fact] = {
                "queue_offset": max(stop, 0),
                "units": end - stop,
                "commitlog_offset": high.commitlog_offset,
                "wrote": self.logs.wrote,
            }
            self._add(codes.CQ_BEYOND_LOG, stop, end - stop, about)
        if low is not None and low.queue_offset > first >= 0:
            self._report_unseen(first, min(low.queue_offset, stop), Text("the queue begins after it"))

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
