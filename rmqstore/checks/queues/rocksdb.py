"""Consume queues in a RocksDB against the log, with the words of queues in files.

Rows behind the end that the column family `offset` names are leftovers that no reader sees: a broker corrects that
end after a truncation and deletes the rows later.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from rmqstore.checks.log.logs import Logs, Name
from rmqstore.checks.log.queue_parts import KEPT, Missing, QueuePart
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.checks.queues.consumequeue import check_consume_queues
from rmqstore.checks.queues.queue_check import QueueCheck
from rmqstore.checks.queues.rocksdb_batches import check_batch_rows
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.queue_home import QueueHome
from rmqstore.files.rocksdb.config import TABLES, config_table
from rmqstore.files.rocksdb.database import MISSING_EXTRA, CannotRead, DamagedDatabase, is_readable
from rmqstore.files.rocksdb.queues import Bound, RocksDBQueue, RocksDBQueues
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats.configjson import JsonValue

DIRECTORY = "consumequeue/"
WHICH = (
    "the store has queues in files and in RocksDB, and nothing says which of them the broker reads: give its "
    "broker.conf with -c (storeType, rocksdbCQDoubleWriteEnable); until then the files are not checked"
)
_NO_BATCHES = (
    "a broker with its queues in RocksDB does not deliver all messages of a batch topic (queue.type=BatchCQ); which of "
    "them is not forecast"
)
_SAID = 20  # queues that cannot be read, named one by one


@dataclass(slots=True)
class RocksDBFacts:
    """What there was to check: queue states for the report, and in words what could not be read."""

    states: dict[str, QueueState] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: dict[Name, int] = field(default_factory=dict)
    """Messages per queue whose rows cannot be read."""
    damaged: bool = False
    undelivered: list[str] = field(default_factory=list)
    """Batch topics, of which a broker does not deliver all messages, in words."""


@dataclass(slots=True)
class RowsRead:
    """Which RocksDB directories can be read: `queues` those of consumequeue/, `tables` the configuration's."""

    queues: bool = False
    tables: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    unchecked: list[str] = field(default_factory=list)
    damaged: bool = False
    """Whether the library is there and cannot open the database of the queues."""


def damaged_database(reason: str, **more: Fact) -> Finding:
    """The finding for a database of consume queues with wrong bytes or missing files."""
    return Finding(codes.CQ_ROCKSDB, "consumequeue", facts={"reason": reason, **more})


def look_into_rocksdb(store: Store, findings: Findings) -> RowsRead:
    """Opens what a store has as RocksDB. `directories` are those that need no other word in `unchecked`.

    Errors: none.
    """
    out = RowsRead()
    if store.part is not None:
        if (store.path / "CURRENT").is_file():
            out.unchecked.append(f"{store.path.name}/: a RocksDB is checked as a part of its whole store only")
        return out
    if store.rocksdb_consume_queue:
        out.directories.add("consumequeue")
        if not is_readable():
            out.unchecked.append(f"{DIRECTORY}: consume queues in RocksDB are not checked: that {MISSING_EXTRA}")
        else:
            try:
                RocksDBQueues(store)
                out.queues = True
            except DamagedDatabase as e:
                out.damaged = True
                findings.add(damaged_database(str(e)))
            except CannotRead as e:
                out.damaged = True
                out.unchecked.append(f"{DIRECTORY}: the RocksDB of the consume queues cannot be read: {e}")
    if is_readable():
        for name in filter(TABLES.__contains__, store.rocksdb_config):
            out.directories.add(f"config/{name}")
            _config(store, name, out)
    return out


def _config(store: Store, name: str, out: RowsRead) -> None:
    try:
        out.tables[name], broken = config_table(store.root, name)
    except CannotRead as e:
        out.unchecked.append(f"config/{name}/: this RocksDB cannot be read: {e}")
        return
    if broken:
        out.unchecked.append(f"config/{name}/: {broken} of its values are not JSON")


def check_rocksdb_queues(
    store: Store, logs: Logs, findings: Findings, batch_topics: frozenset[str] = frozenset()
) -> RocksDBFacts:
    """All consume queues of a RocksDB, also those of `batch_topics`.

    Errors: none; what cannot be read is said in `unchecked`.
    """
    facts = RocksDBFacts()
    try:
        queues = RocksDBQueues(store)
    except CannotRead as e:
        facts.unchecked.append(f"{DIRECTORY}: the RocksDB of the consume queues cannot be read: {e}")
        return facts
    names: set[Name] = set()
    bounds: dict[Name, dict[str, Bound]] | None = None
    complete = False
    reasons: list[str] = []
    try:
        names.update(queues.names())
        complete = True
    except CannotRead as e:
        reasons.append(str(e))
    try:
        bounds = queues.bounds()
    except CannotRead as e:
        reasons.append(str(e))
    if queues.foreign:
        facts.notes.append(f"{DIRECTORY}: {queues.foreign} keys in the RocksDB are not those of consume queue units")
    names.update(bounds or ())
    if not complete:
        names.update(logs.queues)
    batches = {name for name in names if name[0] in batch_topics}
    names -= batches
    checks: list[_RowsCheck] = []
    unread: list[str] = []

    def judge(store: Store, files: ConsumeQueueFiles, part: QueuePart, logs: Logs, findings: Findings) -> QueueCheck:
        ends = None if bounds is None else bounds.get((files.topic, files.queue_id), {})
        checks.append(_RowsCheck(store, files, part, logs, findings, queues, ends))
        return checks[-1]

    def kept() -> Iterator[ConsumeQueueFiles]:
        for files in queues.files(names):
            yield files
            check = checks.pop()  # one queue at a time, however many there are
            if check.rows.unreadable:
                unread.append(check.label)
                reasons.extend(one.reason for one in check.rows.unreadable)
            if count := check.unreadable_messages():
                facts.unreadable[files.topic, files.queue_id] = count

    facts.states = check_consume_queues(store, logs, findings, kept(), judge)
    for label, reason in _batches(queues, batches, bounds, logs, findings, facts):
        unread.append(label)
        reasons.append(reason)
    if reasons:
        facts.damaged = True
        count = sum(facts.unreadable.values())
        findings.add(damaged_database(reasons[0], messages=count, queues=", ".join(unread[:_SAID])))
    facts.unchecked.extend(facts.undelivered)
    if next(store.queue_directories(QueueKind.SIMPLE), None) is not None:
        if store.queue_home is QueueHome.ROCKSDB:
            facts.notes.append(f"{DIRECTORY}: queues in files beside the RocksDB, which this broker does not read")
        else:
            facts.unchecked.append(f"{DIRECTORY}: {WHICH}")
    return facts


def _batches(
    queues: RocksDBQueues,
    names: set[Name],
    bounds: Mapping[Name, Mapping[str, Bound]] | None,
    logs: Logs,
    findings: Findings,
    facts: RocksDBFacts,
) -> list[tuple[str, str]]:
    """Adds the states of batch queues to `facts`; queues with rows that cannot be read, and why."""
    unread: list[tuple[str, str]] = []
    topics: set[str] = set()
    for name, rows, state in check_batch_rows(queues, names, bounds, logs, findings):
        label = f"{name[0]}/{name[1]}"
        facts.states[label] = state
        unread.extend((label, one.reason) for one in rows.unreadable[:1])
        if count := rows.unreadable_in(0, state.expected_max):
            facts.unreadable[name] = count
        topics.add(name[0])
    facts.undelivered = [f"{topic}: {_NO_BATCHES}" for topic in sorted(topics)]
    return unread


class _RowsCheck(QueueCheck):
    """The rows of one queue. `ends` is what the column family `offset` says of it; None when that is not known."""

    def __init__(
        self,
        store: Store,
        files: ConsumeQueueFiles,
        part: QueuePart,
        logs: Logs,
        findings: Findings,
        queues: RocksDBQueues,
        ends: Mapping[str, Bound] | None,
    ) -> None:
        super().__init__(store, files, part, logs, findings)
        self.queues = queues
        self.ends = ends
        assert isinstance(files.queue, RocksDBQueue)
        self.rows = files.queue

    def units(self) -> None:
        """Judge every row that no message accounts for, and what is said of the queue's ends."""
        for number in islice(self.rows.strange_offsets(), KEPT):
            about: dict[str, Fact] = {"queue_offset": number, "reason": "no valid queue offset"}
            self._add(codes.CQ_DANGLING_UNIT, 0, 1, about)
        super().units()
        if self.ends is not None and not self.logs.grows:
            self._ends(self.ends)

    def _span(self) -> tuple[int, int]:
        start, stop = super()._span()
        last = self.ends.get("max") if self.ends is not None else None
        return start, stop if last is None else max(start, min(stop, last.queue_offset + 1))

    def _units(self, start: int, stop: int) -> Iterator[tuple[int, np.ndarray[tuple[int], np.dtype[np.void]]]]:
        for number, units, _ in self.rows.runs(start, stop):
            yield number, units

    def _files(self) -> None:
        """Without files, none can be missing."""

    def _queue_of(self, topic: str, queue_id: int) -> MappedFileQueue:
        return self.queues.queue(topic, queue_id)

    def _ends(self, ends: Mapping[str, Bound]) -> None:
        """Units outside of the ends are never read; an end behind all units lets readers wait there."""
        accounted = self.part.accounted
        if not accounted and "max" not in ends:
            return
        first, stop = min((a for a, _ in accounted), default=-1), max((b for _, b in accounted), default=0)
        low, high = ends.get("min"), ends.get("max")
        told = high.queue_offset + 1 if high is not None else 0
        if told < stop:
            self._unseen(max(told, first), stop, "the queue ends before it")
        elif high is not None and told > self.part.next and high.commitlog_offset >= self.logs.wrote:
            about: dict[str, Fact] = {
                "queue_offset": max(stop, 0),
                "units": told - stop,
                "commitlog_offset": high.commitlog_offset,
                "wrote": self.logs.wrote,
            }
            self._add(codes.CQ_BEYOND_LOG, stop, told - stop, about)
        if low is not None and low.queue_offset > first >= 0:
            self._unseen(first, min(low.queue_offset, stop), "the queue begins behind it")

    def _unseen(self, start: int, stop: int, reason: str) -> None:
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
        """Missing messages whose rows could be asked for."""
        for m in super().still_missing():
            if not any(u.start < m.stop and m.start < u.stop for u in self.rows.unreadable):
                yield m

    def unreadable_messages(self) -> int:
        """How many messages between the queue's ends have a row that cannot be read."""
        if not self.ends or "max" not in self.ends:
            return 0
        first = self.ends["min"].queue_offset if "min" in self.ends else 0
        return self.rows.unreadable_in(first, self.ends["max"].queue_offset + 1)

    def state(self) -> QueueState:
        """Min and max as a reader sees them, and the max that the log asks for."""
        state = super().state()
        last = self.ends.get("max") if self.ends is not None else None
        if last is not None:
            state.max = last.queue_offset + 1
        return state
