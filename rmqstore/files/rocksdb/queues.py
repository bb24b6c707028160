"""Read consume queues from a RocksDB as if they were files: units of 20 bytes, addressed by queue offset.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocksDB 9, RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.rocksdb.database import CannotRead, Database, NoDatabase, open_database
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store, StoreKind
from rmqstore.files.store_queues import has_database
from rmqstore.formats import consumequeue, rocksdbkeys
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.formats.javatext import java_text
from rmqstore.formats.rocksdbkeys import OffsetKey, UnitKey, parse_offset_key, parse_unit_key
from rmqstore.texts import Text

__all__ = ["Bound", "OffsetKey", "RocksDBQueue", "RocksDBQueues", "Unreadable"]


UNITS = rocksdbkeys.DEFAULT_CF.decode()
OFFSETS = rocksdbkeys.OFFSET_CF.decode()
MAX_UNITS = (1 << 63) // UNIT_SIZE - 1  # queue offsets from here on have no 63-bit position in a queue file
_STEP = 64  # queue offsets of the first step across damage
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """The first or last message of a queue according to the column family `offset`."""

    commitlog_offset: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Queue offsets [start, stop) of a queue that could not be read, and the reason."""

    start: int
    stop: int
    reason: str


class RocksDBQueue(MappedFileQueue):
    """One queue. A queue offset without a row reads as zeros, and a row with a malformed value as an invalid unit.

    `first` and `behind` are the first queue offset and the one after the last. `unreadable` grows while the queue is
    read.
    """

    def __init__(self, database: Database, topic: str, queue_id: int) -> None:
        super().__init__(f"consumequeue/{topic}/{queue_id}", [database.directory], UNIT_SIZE, [])
        self._database = database
        key = UnitKey(topic.encode("utf-8", "surrogatepass"), queue_id & 0xFFFFFFFF, 0)
        self.key_topic, self.queue_id = key.topic, queue_id
        self.unreadable: list[Unreadable] = []
        self.first, self.behind = self._ends()
        self.end_at(self.behind)

    def end_at(self, behind: int) -> None:
        """End the queue before the queue offset `behind`, unless it ends earlier."""
        self.behind = min(self.behind, behind)
        start, stop = self.first * UNIT_SIZE, self.behind * UNIT_SIZE
        self.files = (MappedFile(Path(), start, stop - start, stop - start),) if start < stop else ()
        self._starts = [file.start for file in self.files]

    def _key(self, queue_offset: int) -> bytes:
        return UnitKey(self.key_topic, self.queue_id, queue_offset).build()

    def _ends(self) -> tuple[int, int]:
        """Return the first queue offset that has a row, and the queue offset after the last row."""
        try:
            first = self._queue_offset(self._database.first_key(UNITS, self._key(0)))
            if first is None:
                return 0, 0
            for key in self._database.keys_before(UNITS, self._key(MAX_UNITS)):
                last = self._queue_offset(key)
                if last is not None:
                    return first, last + 1
                if key < self._key(first):
                    break
        except CannotRead as e:
            self.unreadable.append(Unreadable(0, MAX_UNITS, str(e)))
        return 0, 0

    def _queue_offset(self, key: bytes | None) -> int | None:
        """Return the queue offset in a key of this queue; None for any other key."""
        found = parse_unit_key(key) if key is not None else None
        if found is None or (found.topic, found.queue_id) != (self.key_topic, self.queue_id):
            return None
        return found.queue_offset if 0 <= found.queue_offset < MAX_UNITS else None

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Array, Array]]:
        """Yield (first queue offset, units, store times) of every run of consecutive rows in [start, stop)."""
        at, stop = max(0, start), min(stop, MAX_UNITS)
        while at < stop:
            try:
                for keys, values in self._database.chunks(UNITS, self._key(at), self._key(stop)):
                    offsets, units, times = self._columns(keys, values)
                    edges = (np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()
                    for a, b in zip([0, *edges], [*edges, len(offsets)], strict=True):
                        if a < b:
                            at = int(offsets[b - 1]) + 1
                            yield int(offsets[a]), units[a:b], times[a:b]
                return
            except CannotRead as e:
                resume = self._after_damage(at, stop)
                self._note(at, resume, str(e))
                at = resume

    def before(self, queue_offset: int) -> int:
        """Return the queue offset after the last row below `queue_offset`; 0 if there is no such row."""
        try:
            for key in self._database.keys_before(UNITS, self._key(queue_offset)):
                found = self._queue_offset(key)
                if found is not None and found < queue_offset:
                    return found + 1
                if key < self._key(0):
                    break
        except CannotRead as e:
            self._note(0, queue_offset, str(e))
        return 0

    def _columns(self, keys: list[bytes], values: list[bytes]) -> tuple[Array, Array, Array]:
        """Convert rows to queue offsets, units and store times."""
        length = len(self._key(0))
        if set(map(len, keys)) != {length}:
            rows = [(k, v) for k, v in zip(keys, values, strict=True) if len(k) == length]
            keys, values = [k for k, _ in rows], [v for _, v in rows]
        size = rocksdbkeys.UNIT_VALUE.size
        if set(map(len, values)) - {size}:
            values = [v if len(v) == size else b"\xff" * size for v in values]  # reads as an invalid unit
        whole = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), length)
        tails = np.ascontiguousarray(whole[:, -8:]).view(">i8").reshape(len(keys))
        rows_ = rocksdbkeys.UNIT_VALUE.array(b"".join(values))
        units = np.zeros(len(rows_), dtype=consumequeue.UNIT.dtype)
        for field in consumequeue.UNIT:
            units[field.name] = rows_[field.name]
        return tails.astype(np.int64), units, rows_["store_timestamp"].astype(np.int64)

    def _after_damage(self, at: int, stop: int) -> int:
        """Return a queue offset after unreadable rows from which rows are readable again, in growing steps."""
        step = _STEP
        while at + step < stop:
            try:
                self._database.first_key(UNITS, self._key(at + step))
                return at + step
            except CannotRead:
                step *= 2
        return stop

    def _note(self, start: int, stop: int, reason: str) -> None:
        if not any(u.start <= start and stop <= u.stop for u in self.unreadable):
            self.unreadable.append(Unreadable(start, stop, reason))

    def unreadable_in(self, start: int, stop: int) -> int:
        """Count the queue offsets in [start, stop) that could not be read so far."""
        total, reached = 0, start
        for span in sorted(self.unreadable, key=lambda u: u.start):
            low, high = max(span.start, reached), min(span.stop, stop)
            total += max(0, high - low)
            reached = max(reached, high)
        return total

    def pread(self, size: int, offset: int) -> bytes:
        """Read whole units as bytes; missing rows are zeros, and the result is short at the end of the queue."""
        first = offset // UNIT_SIZE
        stop = min(first + -(-size // UNIT_SIZE), self.behind)
        if stop <= first:
            return b""
        result = np.zeros(stop - first, dtype=consumequeue.UNIT.dtype)
        for queue_offset, units, _ in self.runs(first, stop):
            result[queue_offset - first : queue_offset - first + len(units)] = units
        return result.tobytes()[:size]

    def strange_offsets(self) -> Iterator[int]:
        """Yield the impossible queue offsets among the rows: negative ones, and those from `MAX_UNITS` on."""
        prefix = self._key(0)[:-8]
        try:
            for keys, _ in self._database.chunks(UNITS, self._key(MAX_UNITS), prefix[:-1] + rocksdbkeys.CTRL_2):
                for key in keys:
                    found = parse_unit_key(key)
                    if found is not None:
                        yield found.queue_offset
        except CannotRead as e:
            self._note(0, MAX_UNITS, str(e))


def simple_queue(store: Store, topic: str, queue_id: int) -> MappedFileQueue:
    """Return a queue (not of a BatchCQ topic) from files or from the RocksDB of a store.

    Errors: CannotRead if it is in a RocksDB that cannot be opened.
    """
    if store.kind is StoreKind.ROCKSDB:
        return RocksDBQueues(store).queue(topic, queue_id)
    return store.consume_queue(topic, queue_id).queue


class RocksDBQueues:
    """All queues in the RocksDB of a store.

    Errors: CannotRead if the database cannot be opened, or lacks the column families of consume queues.
    """

    def __init__(self, store: Store) -> None:
        directory = store.rocksdb_directory
        missing = not has_database(store.files, directory)
        self.database = NoDatabase(directory, (UNITS, OFFSETS)) if missing else open_database(store.files, directory)
        for family in (UNITS, OFFSETS):
            if family not in self.database.families:
                raise CannotRead(Text("it has no column family {family}", family=family))
        self.foreign = 0  # number of keys that are not unit keys, counted by `names`

    def queue(self, topic: str, queue_id: int) -> RocksDBQueue:
        """Return one queue, which may have no rows."""
        return RocksDBQueue(self.database, topic, queue_id)

    def names(self) -> Iterator[QueueName]:
        """Yield topic and queue id of every queue that has rows, in key order.

        Errors: CannotRead if damage makes it impossible to find the next queue.
        """
        self.foreign = 0
        for _, found in self._first_keys():
            if found is None:
                self.foreign += 1
            else:
                yield java_text(found.topic), found.queue_id

    def foreign_rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of the rows whose keys are not unit keys. Errors: CannotRead."""
        for key, found in self._first_keys():
            if found is None:
                yield key, self.database.value(UNITS, key) or b""

    def _first_keys(self) -> Iterator[tuple[bytes, UnitKey | None]]:
        """Yield the first key of each queue, and every key that is not a unit key, with None."""
        at: bytes = b""
        while (key := self.database.first_key(UNITS, at)) is not None:
            found = parse_unit_key(key)
            if found is None or found.queue_id < 0:
                yield key, None
                at = key + b"\0"
            else:
                yield key, found
                at = found.build()[:-9] + rocksdbkeys.CTRL_2

    def files(self, names: Iterable[QueueName]) -> Iterator[ConsumeQueueFiles]:
        """Yield the named queues in the form of queues in files, sorted by topic and id."""
        for topic, queue_id in sorted(names):
            yield ConsumeQueueFiles(topic, queue_id, QueueKind.SIMPLE, self.queue(topic, queue_id))

    def seen(self) -> Iterator[ConsumeQueueFiles]:
        """Yield every queue with the rows that a broker reads; rows after the `max` bound are leftovers.

        Errors: CannotRead.
        """
        bounds = self.bounds()
        for files in self.files(self.names()):
            assert isinstance(files.queue, RocksDBQueue)
            last = bounds.get((files.topic, files.queue_id), {}).get("max")
            files.queue.end_at(last.queue_offset + 1 if last is not None else 0)
            yield files

    def bounds(self) -> dict[QueueName, dict[str, Bound]]:
        """Return the `min` and `max` bounds of every queue, from the column family `offset`. Errors: CannotRead."""
        bounds: dict[QueueName, dict[str, Bound]] = {}
        for keys, values in self.database.chunks(OFFSETS):
            for key, value in zip(keys, values, strict=True):
                found, bound = parse_offset_key(key), _bound(value)
                if found is not None and bound is not None:
                    bounds.setdefault((java_text(found.topic), found.queue_id), {})[found.bound] = bound
        return bounds

    def last(self, queue: RocksDBQueue) -> Bound | None:
        """Return the `max` bound of one queue. Errors: CannotRead."""
        return _bound(self.database.value(OFFSETS, OffsetKey(queue.key_topic, "max", queue.queue_id).build()))

    def dispatched(self) -> int | None:
        """Return the physical offset after the last dispatched message, as stored by the broker; None if not stored.

        Errors: CannotRead.
        """
        value = self.database.value(OFFSETS, rocksdbkeys.CHECKPOINT_KEY.build())
        if value is None or len(value) != rocksdbkeys.CHECKPOINT_VALUE.size:
            return None
        return int(rocksdbkeys.CHECKPOINT_VALUE.parse(value)["max_phy_offset"])


def _bound(value: bytes | None) -> Bound | None:
    if value is None or len(value) != rocksdbkeys.OFFSET_VALUE.size:
        return None
    row = rocksdbkeys.OFFSET_VALUE.parse(value)
    return Bound(row["commitlog_offset"], row["queue_offset"])
