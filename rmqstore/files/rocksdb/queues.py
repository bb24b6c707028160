"""Consume queues that are rows of a RocksDB, in the shape of queues in files: units of 20 bytes by queue offset.

Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocksDB 9, RocketMQ 5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.queue_home import has_database
from rmqstore.files.rocksdb.database import CannotRead, Database, NoDatabase, open_database
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, rocksdbkeys
from rmqstore.formats.rocksdbkeys import OffsetKey, UnitKey, parse_offset_key, parse_unit_key
from rmqstore.formats.text.javatext import java_text

UNIT = consumequeue.UNIT.size
UNITS = rocksdbkeys.DEFAULT_CF.decode()
OFFSETS = rocksdbkeys.OFFSET_CF.decode()
MAX_UNITS = (1 << 63) // UNIT - 1  # queue offsets whose place in a file would still have a number
_STEP = 64
Array = npt.NDArray[Any]
Name = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """What the column family `offset` says of a queue's first or last message."""

    commitlog_offset: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Queue offsets [start, stop) of a queue that the database could not be asked for, and why."""

    start: int
    stop: int
    reason: str


class RocksDBQueue(MappedFileQueue):
    """One queue. A queue offset without a row reads as a zero unit, a row that is not a unit as an invalid one.

    `unreadable` grows while the queue is read.
    """

    def __init__(self, database: Database, topic: str, queue_id: int) -> None:
        super().__init__(f"consumequeue/{topic}/{queue_id}", [database.directory], UNIT, [])
        self._database = database
        key = UnitKey(topic.encode("utf-8", "surrogatepass"), queue_id & 0xFFFFFFFF, 0)
        self.key_topic, self.queue_id = key.topic, queue_id
        self.unreadable: list[Unreadable] = []
        self.first, self.behind = self._ends()
        if self.first < self.behind:
            start, stop = self.first * UNIT, self.behind * UNIT
            self.files = (MappedFile(Path(), start, stop - start, stop - start),)
            self._starts = [start]

    def _key(self, queue_offset: int) -> bytes:
        return UnitKey(self.key_topic, self.queue_id, queue_offset).build()

    def _ends(self) -> tuple[int, int]:
        """The first queue offset with a row, and the one behind the last."""
        try:
            low = self._number(self._database.first_key(UNITS, self._key(0)))
            if low is None:
                return 0, 0
            for key in self._database.keys_before(UNITS, self._key(MAX_UNITS)):
                high = self._number(key)
                if high is not None:
                    return low, high + 1
                if key < self._key(low):
                    break
        except CannotRead as e:
            self.unreadable.append(Unreadable(0, MAX_UNITS, str(e)))
        return 0, 0

    def _number(self, key: bytes | None) -> int | None:
        found = parse_unit_key(key) if key is not None else None
        if found is None or (found.topic, found.queue_id) != (self.key_topic, self.queue_id):
            return None
        return found.queue_offset if 0 <= found.queue_offset < MAX_UNITS else None

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Array, Array]]:
        """(queue offset of the first, units, store times) of every stretch of rows in [start, stop)."""
        at, stop = max(0, start), min(stop, MAX_UNITS)
        while at < stop:
            try:
                for keys, values in self._database.chunks(UNITS, self._key(at), self._key(stop)):
                    number, units, times = self._columns(keys, values)
                    edges = (np.flatnonzero(np.diff(number) != 1) + 1).tolist()
                    for a, b in zip([0, *edges], [*edges, len(number)], strict=True):
                        if a < b:
                            at = int(number[b - 1]) + 1
                            yield int(number[a]), units[a:b], times[a:b]
                return
            except CannotRead as e:
                resume = self._behind_damage(at, stop)
                self._note(at, resume, str(e))
                at = resume

    def before(self, queue_offset: int) -> int:
        """The queue offset behind the last row in front of one; 0 without such a row."""
        try:
            for key in self._database.keys_before(UNITS, self._key(queue_offset)):
                found = self._number(key)
                if found is not None and found < queue_offset:
                    return found + 1
                if key < self._key(0):
                    break
        except CannotRead as e:
            self._note(0, queue_offset, str(e))
        return 0

    def _columns(self, keys: list[bytes], values: list[bytes]) -> tuple[Array, Array, Array]:
        length = len(self._key(0))
        if set(map(len, keys)) != {length}:
            rows = [(k, v) for k, v in zip(keys, values, strict=True) if len(k) == length]
            keys, values = [k for k, _ in rows], [v for _, v in rows]
        size = rocksdbkeys.UNIT_VALUE.size
        if set(map(len, values)) - {size}:
            values = [v if len(v) == size else b"\xff" * size for v in values]  # as a unit: not valid
        whole = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), length)
        tails = np.ascontiguousarray(whole[:, -8:]).view(">i8").reshape(len(keys))
        rows_ = rocksdbkeys.UNIT_VALUE.array(b"".join(values))
        units = np.zeros(len(rows_), dtype=consumequeue.UNIT.dtype)
        for field in consumequeue.UNIT:
            units[field.name] = rows_[field.name]
        return tails.astype(np.int64), units, rows_["store_timestamp"].astype(np.int64)

    def _behind_damage(self, at: int, stop: int) -> int:
        """The first queue offset behind unreadable rows from which rows can be had again."""
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
        """How many queue offsets of [start, stop) could not be read so far."""
        total, reached = 0, start
        for span in sorted(self.unreadable, key=lambda u: u.start):
            low, high = max(span.start, reached), min(span.stop, stop)
            total += max(0, high - low)
            reached = max(reached, high)
        return total

    def pread(self, size: int, offset: int) -> bytes:
        """Units as bytes, from a unit's first byte on; zeros where a row is missing, short behind the last."""
        first = offset // UNIT
        stop = min(first + -(-size // UNIT), self.behind)
        if stop <= first:
            return b""
        out = np.zeros(stop - first, dtype=consumequeue.UNIT.dtype)
        for number, units, _ in self.runs(first, stop):
            out[number - first : number - first + len(units)] = units
        return out.tobytes()[:size]

    def strange_offsets(self) -> Iterator[int]:
        """Queue offsets of rows that no queue can have: negative ones, and ones beyond all counting."""
        prefix = self._key(0)[:-8]
        try:
            for keys, _ in self._database.chunks(UNITS, self._key(MAX_UNITS), prefix[:-1] + rocksdbkeys.CTRL_2):
                for key in keys:
                    found = parse_unit_key(key)
                    if found is not None:
                        yield found.queue_offset
        except CannotRead as e:
            self._note(0, MAX_UNITS, str(e))


class RocksDBQueues:
    """All queues of consumequeue/.

    Errors: CannotRead where the database cannot be opened, or has not the column families of consume queues.
    """

    def __init__(self, store: Store) -> None:
        directory = store.root / "consumequeue"
        gone = not has_database(directory)
        self.database = NoDatabase(directory, (UNITS, OFFSETS)) if gone else open_database(directory)
        for family in (UNITS, OFFSETS):
            if family not in self.database.families:
                raise CannotRead(f"it has no column family {family}")
        self.foreign = 0  # keys that belong to no unit, counted by `names`

    def queue(self, topic: str, queue_id: int) -> RocksDBQueue:
        """One queue, there or not."""
        return RocksDBQueue(self.database, topic, queue_id)

    def names(self) -> Iterator[Name]:
        """Topic and id of every queue that has rows, in the order of their keys.

        Errors: CannotRead when a place between them is damaged.
        """
        at: bytes = b""
        self.foreign = 0
        while (key := self.database.first_key(UNITS, at)) is not None:
            found = parse_unit_key(key)
            if found is None or found.queue_id < 0:
                self.foreign += 1
                at = key + b"\0"
                continue
            yield java_text(found.topic), found.queue_id
            at = found.build()[:-9] + rocksdbkeys.CTRL_2

    def files(self, names: Iterable[Name]) -> Iterator[ConsumeQueueFiles]:
        """Queues as checks and views take them, sorted by topic and id."""
        for topic, queue_id in sorted(names):
            yield ConsumeQueueFiles(topic, queue_id, QueueKind.SIMPLE, self.queue(topic, queue_id))

    def bounds(self) -> dict[Name, dict[str, Bound]]:
        """What the column family `offset` says: per queue its `min` and `max` message.

        Errors: CannotRead.
        """
        out: dict[Name, dict[str, Bound]] = {}
        for keys, values in self.database.chunks(OFFSETS):
            for key, value in zip(keys, values, strict=True):
                found, bound = parse_offset_key(key), _bound(value)
                if found is not None and bound is not None:
                    out.setdefault((java_text(found.topic), found.queue_id), {})[found.bound] = bound
        return out

    def last(self, queue: RocksDBQueue) -> Bound | None:
        """The `max` of one queue.

        Errors: CannotRead.
        """
        return _bound(self.database.value(OFFSETS, OffsetKey(queue.key_topic, "max", queue.queue_id).build()))

    def dispatched(self) -> int | None:
        """End of the last dispatched message (global offset), as the broker noted it; None without a note.

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


__all__ = ["Bound", "OffsetKey", "RocksDBQueue", "RocksDBQueues", "Unreadable"]
