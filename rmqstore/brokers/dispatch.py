"""Simulates DefaultMessageStore#doDispatch: adds the units of messages to consume queues, whole chunks at a time.

Source: CommitLogDispatcherBuildConsumeQueue#dispatch, ConsumeQueueStore#findOrCreateConsumeQueue,
ConsumeQueue#multiDispatchLmqQueue (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from rmqstore.brokers.forecast import DispatchThrows, StartFails
from rmqstore.brokers.mapped_files import SimulatedFile, SimulatedFiles
from rmqstore.brokers.queues import BatchQueue, RecoveredFiles, SimpleQueue
from rmqstore.brokers.record import Checked
from rmqstore.brokers.rules import BrokerRules
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName, can_be_created
from rmqstore.formats.message import is_dispatched
from rmqstore.formats.properties import LMQ_PREFIX, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC, malformed_offset
from rmqstore.formats.services import light_queues
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool, grouped
from rmqstore.scan.properties import PARSED_NAMES
from rmqstore.scan.units import KnownUnits
from rmqstore.texts import Text


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Settings that decide which queues a message is dispatched to; file sizes in bytes.

    `reads_rows_beside`: queues are in files and in RocksDB, and the broker finds those in RocksDB. `half_rows_fail`:
    the broker keeps half messages in rocksdbstore/, which it cannot open.
    """

    multi_dispatch: bool = False
    lmq: bool = False
    light_in_rocksdb: bool = False
    reads_rows_beside: bool = False
    half_rows_fail: bool = False
    batch_topics: frozenset[str] = frozenset()
    simple_size: int = 6_000_000
    batch_size: int = 13_800_000


@dataclass(frozen=True, slots=True)
class DispatchCondition:
    """Which records are dispatched.

    `above`: only those with PHYSICALOFFSET > above. In duplication and controller mode, `end_within`: only those that
    end at or below it; `start_below`: only those that start below it.
    """

    above: int | None = None
    end_within: int | None = None
    start_below: int | None = None

    def mask(self, physical: I64, size: I64) -> Bool:
        """Return which records meet the condition."""
        out = np.ones(len(physical), dtype=np.bool_)
        if self.above is not None:
            out &= physical > self.above
        if self.end_within is not None:
            out &= physical + size <= self.end_within
        if self.start_below is not None:
            out &= physical < self.start_below
        return out

    def meets(self, physical: int, size: int) -> bool:
        return bool(self.mask(np.array([physical]), np.array([size]))[0])


class _Thrown(NamedTuple):
    """A row at which dispatch throws; `added`: its message has got its unit before."""

    row: int
    thrown: DispatchThrows
    added: bool = True


def _no_queue_file(offset: int, queue: SimpleQueue | BatchQueue) -> DispatchThrows:
    """Return how the dispatch of a message ends if a file of its queue would have no byte.

    Source: MappedFileQueue#getLastMappedFile, DefaultMappedFile#init (RocketMQ 4.9.7 to 5.5.1, seen with all four)
    """
    size = queue.files.file_size
    line = "java.lang.IllegalArgumentException: Negative size" if size else "java.lang.ArithmeticException: / by zero"
    return DispatchThrows(offset, Text("no consume queue file can have {size:,} bytes", size=size), line)


def _no_entry(offset: int, fault: StartFails) -> DispatchThrows:
    return DispatchThrows(offset, fault.reason, fault.log_line, fault.exit_code)


EVERY = DispatchCondition()
_OF_HALVES = frozenset({ROCKSDB_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC})


class Queues:
    """All consume queues of a simulated broker, and the number of units dispatched per topic."""

    def __init__(self, store: Store, rules: BrokerRules, settings: DispatchSettings) -> None:
        self.root = store.root
        self._files = store.files
        self.rules = rules
        self.settings = settings
        self.table: dict[QueueName, SimpleQueue | BatchQueue] = {}
        self.dispatched: Counter[str] = Counter()
        self.entry_fault: StartFails | None = None
        """Why no entry can be added to the index; that of a message at or after `indexed_to` then throws."""
        self.indexed_to = 0
        self.stopped_at: Path | None = None
        """A place where no directory of a queue can be created: a file is there, or no directory can have this name.
        After 30 attempts to write there, the broker flags its queues as not writable, and no further message of any
        queue gets a unit (ConsumeQueue#putMessagePositionInfoWrapper, RunningFlags#isCQWriteable)."""
        self.recovered: RecoveredFiles = {}
        """What the files begin with; starts of several versions may share it."""
        self._keeps_units = False
        self._numbers = QueueTable()
        self._examined = 0  # queues of `_numbers` with a name that can be created

    def __iter__(self) -> Iterator[SimpleQueue | BatchQueue]:
        return iter(self.table.values())

    def add(self, topic: str, queue_id: int, batch: bool, files: list[SimulatedFile] | None = None) -> None:
        """Add a queue with its loaded files."""
        tree = "batchconsumequeue" if batch else "consumequeue"
        size = self.settings.batch_size if batch else self.settings.simple_size
        mapped = SimulatedFiles(self.root / tree / topic / str(queue_id), size, files)
        if batch:
            self.table[(topic, queue_id)] = BatchQueue(topic, queue_id, mapped)
        else:
            self.table[(topic, queue_id)] = simple = SimpleQueue(topic, queue_id, mapped, self.rules, self.recovered)
            simple.keeps_units = self._keeps_units

    def find(self, topic: str, queue_id: int) -> SimpleQueue | BatchQueue:
        """Return the queue; create it if it does not exist."""
        if (topic, queue_id) not in self.table:
            self.add(topic, queue_id, self.rules.batch_queues and topic in self.settings.batch_topics)
        return self.table[(topic, queue_id)]

    def keep_units(self, keeps: bool = True) -> None:
        """Keep the added units of the current log file: a queue that may be truncated inside it needs them all."""
        self._keeps_units = keeps
        for queue in self:
            if isinstance(queue, SimpleQueue):
                queue.keeps_units = keeps

    def next_log_file(self) -> None:
        """Note that the following messages come from another log file: older units are no longer kept."""
        if self._keeps_units:
            for queue in self:
                if isinstance(queue, SimpleQueue):
                    queue.outline()

    def max_address(self) -> int:
        """Return the largest commitlog address in any queue, -1 without units (getMaxPhyOffsetInConsumeQueue)."""
        return max((queue.max_physic_offset for queue in self), default=-1)

    def serve(self, key: QueueName, queue_offset: int, address: int) -> bool:
        """Return whether consumers find the message at a commitlog address at a queue offset."""
        queue = self.table.get(key)
        if isinstance(queue, SimpleQueue):
            return queue.serves(queue_offset, address)
        return queue is not None and queue.ends[0] <= queue_offset < queue.ends[1]

    def truncate(self, log_end: int) -> None:
        for queue in self:
            queue.truncate(log_end)

    def destroy(self) -> None:
        for queue in self:
            queue.destroy()

    def correct_min_offsets(self, log_start: int) -> None:
        for queue in self:
            queue.correct_min_offset(log_start)

    # --- dispatch -------------------------------------------------------------------------------------------------

    def dispatch(self, record: Checked, *, misplaced: bool = False) -> None:
        """Dispatch one message. `misplaced`: its PHYSICALOFFSET is that of another place. Errors: DispatchThrows."""
        queue = self.find(record.topic, record.queue_id)
        if self._has_no_size(queue) and is_dispatched(record.sys_flag):
            raise _no_queue_file(record.physical_offset, queue)
        self._add(record, misplaced=misplaced)
        if self._is_half(record.topic):
            raise self._no_half_row(record.physical_offset)
        if self.entry_fault is not None and self._lacks_entries(record.physical_offset, record.sys_flag):
            raise _no_entry(record.physical_offset, self.entry_fault)

    @property
    def throws(self) -> bool:
        """Whether the dispatch of some message may throw for another reason than its content."""
        sizes = (self.settings.simple_size, self.settings.batch_size)
        return self.settings.half_rows_fail or self.entry_fault is not None or min(sizes) <= 0

    def _is_half(self, topic: str) -> bool:
        return self.settings.half_rows_fail and topic in _OF_HALVES

    def _has_no_size(self, queue: SimpleQueue | BatchQueue) -> bool:
        return queue.files.file_size <= 0 and not queue.files.files

    @overload
    def _lacks_entries(self, offset: int, sys_flag: int) -> bool: ...
    @overload
    def _lacks_entries(self, offset: I64, sys_flag: I64) -> Bool: ...
    def _lacks_entries(self, offset: int | I64, sys_flag: int | I64) -> bool | Bool:
        """Return whether messages at these offsets of the log get entries in the index. Numbers or arrays."""
        return (offset >= self.indexed_to) & is_dispatched(sys_flag)

    @staticmethod
    def _no_half_row(offset: int) -> DispatchThrows:
        """Return how the dispatch of a half message, or of an op message, ends if its row cannot be written.

        Source: TransMessageRocksDBStore#buildTransIndex, MessageRocksDBStorage#getLastOffsetPy (RocketMQ 5.4.0, 5.5.1)
        """
        return DispatchThrows(
            offset,
            Text("rocksdbstore/ cannot be opened, and with transRocksDBEnable=true a half message needs it"),
            "java.lang.NullPointerException",
        )

    def _add(self, record: Checked, *, misplaced: bool) -> None:
        if not is_dispatched(record.sys_flag):
            return
        queue = self.find(record.topic, record.queue_id)
        if self._stops(queue):
            return
        before = queue.dispatched
        if isinstance(queue, SimpleQueue):
            queue.put(record.physical_offset, record.size, record.queue_offset, misplaced=misplaced)
        else:
            queue.put(record.physical_offset, record.size, record.base_offset, record.batch_size)
        self.dispatched[record.topic] += queue.dispatched - before
        if isinstance(queue, SimpleQueue) and record.multi_dispatch is not None and self.settings.multi_dispatch:
            self._fan_out(record, record.multi_dispatch)

    @cached_property
    def _foreign(self) -> frozenset[Path]:
        """Paths where a queue tree, topic directory or queue directory belongs, but which are not directories."""
        trees = [self.root / name for name in ("consumequeue", "batchconsumequeue")]
        out = {tree for tree in trees if self._files.has_entry(tree) and not self._files.is_directory(tree)}
        topics = [entry for tree in trees for entry in self._files.list(tree)]
        for entries in chain([topics], (self._files.list(topic.path) for topic in topics if topic.directory)):
            out.update(entry.path for entry in entries if not entry.directory)
        return frozenset(out)

    def _stops(self, queue: SimpleQueue | BatchQueue) -> bool:
        """Return whether dispatch has stopped, because no file can be created for this queue or an earlier one."""
        if self.stopped_at is None and not queue.files.files:
            folder = queue.files.directory
            places = (folder.parent.parent, folder.parent, folder) if self._foreign else ()
            self.stopped_at = next((p for p in places if p in self._foreign), None)
            if self.stopped_at is None and not self._can_create(queue.topic.encode("utf-8", "surrogatepass")):
                self.stopped_at = folder.parent
        return self.stopped_at is not None

    def _can_create(self, topic: bytes) -> bool:
        return can_be_created(topic, splits_paths=self.rules.splits_paths)

    def _may_stop(self) -> bool:
        """Return whether a queue of the messages so far may have no place for its files."""
        if self._foreign or self.stopped_at is not None:
            return True
        topics = self._numbers.topics
        while self._examined < len(topics) and self._can_create(topics[self._examined]):
            self._examined += 1
        return self._examined < len(topics)

    def _fan_out(self, record: Checked, found: Mapping[str, str]) -> None:
        rules, lmq = self.rules.fan_out, self.settings.lmq
        for name, queue_id, offset in light_queues(record.topic, record.queue_id, found, rules, lmq=lmq):
            if self.settings.reads_rows_beside:  # ConsumeQueue#doDispatchLmqQueue, 5.4.0
                raise DispatchThrows(
                    record.physical_offset,
                    Text("light queues in files cannot be written while RocksDB is read (combineCQPreferCQType)"),
                    "java.lang.ClassCastException: class org.apache.rocketmq.store.queue.RocksDBConsumeQueue",
                )
            queue = self.find(name, queue_id)
            if isinstance(queue, SimpleQueue) and not self._stops(queue):
                queue.put(record.physical_offset, record.size, offset)
        text = malformed_offset(found) if rules.includes(record.topic) else None
        if text is not None:
            raise DispatchThrows(
                record.physical_offset,
                Text("the queue offset of a light queue is not a number"),
                f'java.lang.NumberFormatException: For input string: "{text}"',
            )

    def dispatch_columns(self, columns: Columns, mask: Bool) -> None:
        """Dispatch the messages of a chunk selected by `mask`, in log order; none may need the exact parser.

        Errors: DispatchThrows.
        """
        first = min(self._thrown(columns, np.flatnonzero(mask)), key=lambda one: one.row, default=None)
        if first is None:
            self._add_columns(columns, mask)
            return
        self._add_columns(columns, mask & (np.arange(len(mask)) < first.row + first.added))
        raise first.thrown

    def _thrown(self, columns: Columns, rows: I64) -> Iterator[_Thrown]:
        """Yield the first of these rows at which dispatch throws, for each reason."""
        if not self.throws or not len(rows):
            return
        numbers = self._numbers.of(columns.take(rows))
        for number in np.unique(numbers).tolist():
            row = int(rows[np.argmax(numbers == number)])
            queue, offset = self._numbered(number), int(columns.physical_offset[row])
            if self._has_no_size(queue):
                yield _Thrown(row, _no_queue_file(offset, queue), added=False)
            elif self._is_half(queue.topic):
                yield _Thrown(row, self._no_half_row(offset))
        if self.entry_fault is not None:
            late = rows[self._lacks_entries(columns.physical_offset[rows], columns.sys_flag[rows])]
            if len(late):
                offset = int(columns.physical_offset[late[0]])
                yield _Thrown(int(late[0]), _no_entry(offset, self.entry_fault))

    def _add_columns(self, columns: Columns, mask: Bool) -> None:
        mask = mask & is_dispatched(columns.sys_flag)
        index = np.flatnonzero(mask)
        if not len(index):
            return
        chosen = columns.take(index)
        numbers = self._numbers.of(chosen)
        if self._may_stop():
            index = self._before_stop(index, numbers)
            chosen, numbers = columns.take(index), numbers[: len(index)]
            if not len(index):
                return
        physical, size, offset = chosen.physical_offset, chosen.size, chosen.queue_offset
        for group in grouped(numbers):
            number = int(numbers[group[0]])
            queue = self._numbered(number)
            before = queue.dispatched
            if isinstance(queue, SimpleQueue):
                queue.put_many(physical[group], size[group], offset[group])
            else:
                for i in group.tolist():
                    queue.put(int(physical[i]), int(size[i]), int(offset[i]), 1)
            self.dispatched[queue.topic] += queue.dispatched - before

    def _before_stop(self, index: I64, numbers: I64) -> I64:
        """Return the rows before the first one whose queue file cannot be created."""
        for number in numbers[np.sort(np.unique(numbers, return_index=True)[1])].tolist():  # in log order
            if self._stops(self._numbered(number)):
                return index[: int(np.argmax(numbers == number))]
        return index

    def _numbered(self, number: int) -> SimpleQueue | BatchQueue:
        return self.find(self._numbers.topics[number].decode("utf-8", "replace"), self._numbers.queue_ids[number])

    def dispatch_known(self, units: KnownUnits, start: int, stop: int, condition: DispatchCondition) -> None:
        """Dispatch the messages in [start, stop) of the log from known units; none may need the exact parser."""
        if self._foreign or not all(self._can_create(topic.encode()) for (topic, _), *_ in units.known_units()):
            stop = self._known_stop(units, start, stop, condition)
        for name, address, size, offset in units.known_units():
            if self.settings.light_in_rocksdb and name[0].startswith(LMQ_PREFIX):
                continue
            within = len(address) and address[0] >= start and address[-1] + size[-1] <= stop
            if not (within and condition == EVERY):
                chosen = (address >= start) & (address + size <= stop) & condition.mask(address, size)
                if not chosen.any():
                    continue
                address, size, offset = address[chosen], size[chosen], offset[chosen]
            queue = self.find(*name)
            before = queue.dispatched
            if isinstance(queue, SimpleQueue):
                queue.put_many(address, size, offset)
            self.dispatched[name[0]] += queue.dispatched - before

    def _known_stop(self, units: KnownUnits, start: int, stop: int, condition: DispatchCondition) -> int:
        """Return the offset of the first message whose queue file cannot be created, else `stop`."""
        first: list[tuple[int, QueueName]] = []
        for name, address, size, _ in units.known_units():
            mine = address[(address >= start) & (address + size <= stop) & condition.mask(address, size)]
            if len(mine):
                first.append((int(mine[0]), name))
        return next((at for at, name in sorted(first) if self._stops(self.find(*name))), stop)


def needs_exact_parser(columns: Columns) -> list[int]:
    """Return the records of a chunk whose properties can make the broker's parser throw, or fan out to light queues."""
    if not len(columns):
        return []
    lo = int(columns.at[0])
    hi = int(columns.at[-1] + columns.size[-1])
    data = columns.buf[lo:hi].tobytes()
    found: set[int] = set()
    for needle in PARSED_NAMES:
        p = data.find(needle)
        while p >= 0:
            i = int(np.searchsorted(columns.at, lo + p, side="right")) - 1
            if p + lo >= int(columns.properties_at[i]):
                found.add(i)
            p = data.find(needle, p + 1)
    return sorted(found)
