"""Find one message by log offset, queue offset, offset message id, unique id or key, or in a file of lost+found.

Every way reads a few kilobytes at any store size. Unique ids and keys are looked up only in the index files: one slot
and its chain per topic, key and file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqstore.errors import UsageError
from rmqstore.files.files import Files
from rmqstore.files.index import index_chain, index_header, index_sizes
from rmqstore.files.log_ends import first_true, queue_bounds
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, message_at
from rmqstore.files.rocksdb.queues import RocksDBQueue, RocksDBQueues
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.topics import queue_names, topics
from rmqstore.formats import consumequeue, dledger, index, messageid, properties
from rmqstore.formats.bodies import messages_in
from rmqstore.formats.halfrecord import message_with_body
from rmqstore.formats.message import MIN_SIZE, Fault, Message, check_message, parse_message
from rmqstore.formats.services import batch_extent
from rmqstore.texts import Text
from rmqstore.views.dump.batches import Array
from rmqstore.views.dump.rocksdb import bounds_of

_UNITS = 1 << 16  # units read at a time
_MOST_DIGITS = 19  # of an Int64
Place = tuple[str, int, int]
"""(topic, queue id, queue offset)."""


class IndexHit(NamedTuple):
    """An index entry with the hash of a topic and key. `offset`: log offset of its message."""

    offset: int
    topic: str
    key: str


class Covered(NamedTuple):
    """The global offsets of the first and the last message that an index file indexes."""

    first: int
    last: int


class KeyIndex:
    """All index files of a store, or other `files` of the same size (`paths`), such as those that a repair replaced.

    `broken`: names of files with an implausible header or chain.
    """

    def __init__(self, store: Store, files: Files | None = None, paths: Iterable[Path] | None = None) -> None:
        self.files = store.files if files is None else files
        self.sizes = index_sizes(store)
        self.broken: set[str] = set()
        self._heads: list[tuple[Path, dict[str, int]]] = []
        if paths is None:
            paths = [entry.path for entry in store.index_files]
        for path in paths if self.sizes is not None else ():
            head = index_header(self.files, path)
            if head is not None:
                self._heads.append((path, head))
            if head is None or not self._is_plausible(head):
                self.broken.add(path.name)

    def _is_plausible(self, head: dict[str, int]) -> bool:
        assert self.sizes is not None
        return 0 <= head["index_count"] <= self.sizes[1] and 0 <= head["begin_phy_offset"] <= head["end_phy_offset"]

    def __bool__(self) -> bool:
        """Return whether any file has entries."""
        return any(index.entries(head["index_count"]) for _, head in self._heads)

    def covered(self) -> list[Covered]:
        """Return the range of every file that has entries, in the order of the files."""
        return [
            Covered(head["begin_phy_offset"], head["end_phy_offset"])
            for _, head in self._heads
            if index.entries(head["index_count"])
        ]

    def hits(self, topics: Iterable[str], keys: Iterable[str]) -> Iterator[IndexHit]:
        """Yield the entries for any of the keys in any of the topics, newest message first, duplicates included.

        Another key may have the same hash, so callers must compare with the message.
        Source: IndexService#queryOffset
        """
        wanted: dict[int, list[tuple[str, str]]] = {}
        for key in keys:
            for topic in topics:
                wanted.setdefault(index.key_hash(index.key_text(topic, key)), []).append((topic, key))
        for path, head in reversed(self._heads):
            found = [
                IndexHit(offset, topic, key)
                for key_hash, names in wanted.items()
                for offset in self._chain(path, head, key_hash)
                for topic, key in names
            ]
            yield from sorted(found, reverse=True)

    def _chain(self, path: Path, head: dict[str, int], wanted: int) -> Iterator[int]:
        """Yield the log offsets of the units with this hash, newest first; add the file to `broken` if necessary."""
        assert self.sizes is not None
        slots, units = self.sizes
        for number, unit in index_chain(self.files, path, slots, units, wanted):
            stray = index.slot_of(unit["key_hash"], slots) != index.slot_of(wanted, slots)
            if number > head["index_count"] or unit["prev_index"] >= number or stray or not any(unit.values()):
                self.broken.add(path.name)  # a slot beyond the end, a loop, another slot's chain, or zeros
            if unit["key_hash"] == wanted:
                yield int(unit["phy_offset"])
            if stray:
                return


class Indexed(NamedTuple):
    """The contents of a message's index entries: hashes of its keys, and its store time (ms, up to 1 s too early)."""

    hashes: list[int]
    time: int


def entries_at(
    files: Files, paths: Iterable[Path], sizes: tuple[int, int], offsets: Collection[int]
) -> dict[int, Indexed]:
    """Return the index entries of the messages at these log offsets, from any index files.

    Skips files that end before the first of the offsets according to their header.
    """
    out: dict[int, Indexed] = {}
    wanted = np.array(sorted(offsets), dtype=np.int64)
    slots, units = sizes
    for path in paths:
        head = index_header(files, path)
        if head is None or not len(wanted) or head["end_phy_offset"] < wanted[0]:
            continue
        stop = min(max(head["index_count"], 0), units)
        for first in range(1, stop, _UNITS):
            count = min(_UNITS, stop - first)
            rows = index.UNIT.array(files.read_at(path, count * index.UNIT.size, index.unit_at(first, slots)))
            for i in np.flatnonzero(np.isin(rows["phy_offset"].astype(np.int64), wanted)).tolist():
                # the broker computes time_diff of a file's first entry before it sets the file's begin_timestamp
                later = 0 if first + i == 1 else 1000 * int(rows["time_diff"][i])
                found = out.setdefault(int(rows["phy_offset"][i]), Indexed([], head["begin_timestamp"] + later))
                if (key_hash := int(rows["key_hash"][i])) not in found.hashes:
                    found.hashes.append(key_hash)
    return out


_CACHED_QUEUES = 64
_BATCH_FIELDS = ("commitlog_offset", "size", "tags_code", "batch_size")


@dataclass(frozen=True, slots=True)
class Found:
    """A message and its place.

    `offset`: global offset of the record (in DLedger: after the entry's header); None for a file outside of a log.
    `file`: path relative to the store's root, and `at`: position in that file, both for display.
    """

    message: Message
    offset: int | None
    file: str
    at: int
    fault: Fault

    @property
    def sound(self) -> bool:
        return self.fault is Fault.NONE

    @property
    def log_offset(self) -> int:
        """`offset` of a message in a log."""
        assert self.offset is not None
        return self.offset

    @property
    def queue_place(self) -> Place:
        return self.message.topic_text, self.message.queue_id, self.message.queue_offset


def by_offset(store: Store, offset: int) -> Found | None:
    """Return the message at a log offset; in DLedger, also at the offset of its entry."""
    for log, body_offset in store.logs:
        for at in dict.fromkeys((offset, offset + body_offset)):
            message = message_at(log, at)
            file = log.find(at)
            if message is not None and file is not None:
                return Found(message, at, store.relative(file.path), at - file.start, check_message(message, at))
    return None


def with_body(store: Store, offset: int) -> Found | None:
    """Return the damaged record at a log offset whose body its CRC proves; topic and properties may be lost."""
    for log, body_offset in store.logs:
        for at in dict.fromkeys((offset, offset + body_offset)):
            file = log.find(at)
            size = int.from_bytes(log.pread(4, at), "big", signed=True) if file is not None else 0
            if file is None or not MIN_SIZE <= size <= min(MAX_RECORD, file.stop - at):
                continue
            message = message_with_body(log.pread(size, at))
            if message is not None and message.physical_offset == at:
                return Found(message, at, store.relative(file.path), at - file.start, Fault.LENGTHS)
    return None


def by_message_id(store: Store, text: str) -> Found | None:
    """Return the message of an offset message id, if the record at the id's offset has this id.

    Source: MessageDecoder#decodeMessageId
    """
    decoded = messageid.decode_offset_message_id(text)
    found = by_offset(store, decoded.physical_offset) if decoded is not None else None
    return found if found is not None and found.message.offset_message_id() == text.upper() else None


def by_key(store: Store, key: str, files: KeyIndex | None = None, names: Iterable[str] = ()) -> Iterator[Found]:
    """Yield the messages with this unique id or key according to the index, newest file first.

    `files` and `names` (of topics) save time for callers that look up many keys.
    Source: IndexService#queryOffset
    """
    seen: set[int] = set()
    for hit in (files or KeyIndex(store)).hits(names or topics(store), (key,)):
        if hit.offset in seen:
            continue
        seen.add(hit.offset)
        found = by_offset(store, hit.offset)
        if found is not None and has_key(found.message, key):
            yield found


def around(store: Store, offset: int) -> tuple[Found | None, int | None]:
    """Return the record that contains a log offset, if there is one, and the end of the last record of the logs.

    Reads the log from the length of the largest record before the offset on.
    """
    from rmqstore.views.dump.messages import Job, read_records
    from rmqstore.views.dump.selection import Selection

    before = Selection(start=max(0, offset - MAX_RECORD), stop=offset + 1)
    found = None
    for records in read_records(store, "messages", Job(before)):
        found = records[-1]
    if found is not None and found.offset <= offset < found.offset + found.message.size:
        return by_offset(store, found.offset), None
    last = next(read_records(store, "messages", Job(Selection(limit=1, reverse=True))), None)
    return None, last[0].offset + last[0].message.size if last else None


def in_file(files: Files, path: Path) -> Found | None:
    """Return the record at the start of a file, for example of a journal's lost+found."""
    data = files.read_at(path, MAX_RECORD, 0)
    message, fault = parse_message(data)
    if message is None:  # a damaged record, or a DLedger entry
        for at in (0, dledger.ENTRY.size):
            left, broken = parse_message(data, at) if at + MIN_SIZE <= len(data) else (None, fault)
            left, broken = (left, broken) if left is not None else (message_with_body(data, at), Fault.LENGTHS)
            if left is not None:
                return Found(left, None, str(path), at, broken or check_message(left, None))
        return None
    return Found(message, None, str(path), 0, check_message(message, None) if fault is Fault.NONE else fault)


def place_of(store: Store, topic: str, offset: int) -> tuple[int, int] | None:
    """Return (queue id, queue offset) of the unit of a topic that points to a log offset; None if there is none.

    Errors: CannotRead
    """
    for queue_id in sorted(number for name, number in queue_names(store) if name == topic):
        queue = QueueUnits(store, topic, queue_id)
        first, stop = queue.bounds() or (0, 0)
        at = first_true(first, stop, partial(_reaches, queue, offset))
        unit = queue.at(at) if at < stop else None
        if unit is not None and unit.offset == offset:
            return queue_id, at
    return None


def _reaches(queue: QueueUnits, offset: int, queue_offset: int) -> bool:
    unit = queue.at(queue_offset)
    return unit is not None and unit.offset >= offset


def find_one(store: Store, where: int | str) -> Found | None:
    """Return the message of a log offset, TOPIC/QUEUE/OFFSET, offset message id, unique id or key (the newest).

    Errors: UsageError for a TOPIC/QUEUE/OFFSET whose QUEUE or OFFSET is not a number
    """
    text = str(where)
    offset = parse_offset(text)
    if offset is not None:
        return by_offset(store, offset)
    place = parse_queue_offset(text)
    if place is not None:
        return QueueUnits(store, *place[:2]).message(place[2])
    return by_message_id(store, text) or next(by_key(store, text), None)


def parse_offset(text: str) -> int | None:
    """Parse a log offset, such as 180887 or 180,887; None for any other text."""
    digits = text.replace(",", "").replace("_", "")
    return int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else None


def parse_queue_offset(text: str) -> Place | None:
    """Parse `TOPIC/QUEUE/OFFSET` (topic without slash); None for any other text.

    Errors: UsageError for a queue or an offset that is not a number.
    """
    if text.count("/") != 2 or text.startswith(("/", ".")):
        return None
    topic, queue_id, queue_offset = text.split("/")
    try:
        return topic, int(queue_id), int(queue_offset.replace(",", ""))
    except ValueError:
        raise UsageError(
            Text("{text} is not TOPIC/QUEUE/OFFSET", text=text), Text("queue and offset are numbers: Order/2/17")
        ) from None


def parsed_place(text: str) -> Place | None:
    """Parse `TOPIC/QUEUE/OFFSET`; None for any other text, such as a key with slashes."""
    try:
        return parse_queue_offset(text)
    except UsageError:
        return None


@dataclass(frozen=True, slots=True)
class Unit:
    """A consume queue unit. `offset`: global offset of the record (bytes). `batch`: number of messages (BatchCQ)."""

    offset: int
    size: int
    tags_code: int
    batch: int = 1


class QueueUnits:
    """The units of one consume queue (files, BatchCQ files or RocksDB).

    Errors: CannotRead for RocksDB that cannot be read.
    """

    def __init__(self, store: Store, topic: str, queue_id: int) -> None:
        self._store = store
        self._rows = RocksDBQueues(store) if store.reads_rows(topic) else None
        self._simple = self._rows.queue(topic, queue_id) if self._rows else store.consume_queue(topic, queue_id).queue
        self._batch = store.consume_queue(topic, queue_id, QueueKind.BATCH).queue
        self._read: tuple[MappedFile, Array] | None = None

    def bounds(self, log_start: int = 0) -> tuple[int, int] | None:
        """Return queue offsets [min, max) as consumers see them; None for an unknown queue."""
        if self._rows is not None and isinstance(self._simple, RocksDBQueue):
            last = self._rows.last(self._simple)
            if last is not None or self._simple.files:
                rows = bounds_of(self._simple, last, log_start)
                return rows.min, rows.max
        for queue in (self._simple, self._batch):
            if queue.files:
                found = queue_bounds(queue, log_start, batch=queue is self._batch)
                return found.min, found.max
        return None

    def at(self, queue_offset: int) -> Unit | None:
        """Return the unit of a queue offset, or None."""
        if queue_offset < 0:
            return None
        return self._batch_unit(queue_offset) or self._simple_unit(queue_offset)

    def message(self, queue_offset: int) -> Found | None:
        """Return the message that the unit of a queue offset points to, which may be another one; None without one."""
        unit = self.at(queue_offset)
        return None if unit is None else by_offset(self._store, unit.offset)

    def between(self, low: int, high: int) -> Iterator[tuple[int, Unit]]:
        """Yield (queue offset, unit) of the units that point into [low, high) of the log, in order."""
        first, stop = self.bounds() or (0, 0)
        for number in range(first_true(first, stop, partial(_reaches, self, low)), stop):
            unit = self.at(number)
            if unit is None:
                continue
            if unit.offset >= high:
                return
            yield number, unit

    def _simple_unit(self, queue_offset: int) -> Unit | None:
        row = self._simple.unit(consumequeue.UNIT, queue_offset)
        if row is None or not consumequeue.is_message_unit(row["commitlog_offset"], row["size"]):
            return None
        return Unit(int(row["commitlog_offset"]), int(row["size"]), int(row["tags_code"]))

    def _batch_unit(self, queue_offset: int) -> Unit | None:
        # base offsets increase: only the last unit of a file that starts at or before the queue offset can contain it
        for file in dict.fromkeys((*(self._read or ())[:1], *reversed(self._batch.files))):
            rows = self._batch_rows(file)
            number = int(np.searchsorted(rows["base_offset"], queue_offset, "right")) - 1
            if number >= 0 and queue_offset < rows["base_offset"][number] + rows["batch_size"][number]:
                return Unit(*(int(rows[number][name]) for name in _BATCH_FIELDS))
        return None

    def _batch_rows(self, file: MappedFile) -> Array:
        if self._read is None or self._read[0] != file:
            rows = consumequeue.BATCH_UNIT.array(self._batch.pread(file.length, file.start))
            rows = rows[rows["size"] > 0]
            self._read = file, rows[np.argsort(rows["base_offset"], kind="stable")]
        return self._read[1]


def queue_reader(store: Store) -> Callable[[str, int], QueueUnits]:
    """Return a cached function from topic and queue id to `QueueUnits`."""
    return lru_cache(_CACHED_QUEUES)(partial(QueueUnits, store))


def names_another_place(message: Message, place: Place) -> bool:
    """Return whether a message, to which the unit of a place points, is not of that place by its own record.

    A light queue points to messages of other queues, and an inner batch has several queue offsets.
    """
    topic, queue_id, queue_offset = place
    if properties.is_lmq(topic):
        return False
    found = properties.parse_properties(message.properties)
    base, count = batch_extent(found, message.queue_offset)
    here = (message.topic_text, message.queue_id) == (topic, queue_id)
    return not (here and base <= queue_offset < base + max(1, count))


def has_key(message: Message, key: str) -> bool:
    """Return whether a text is the unique id or a key of a message, or of a message in it if it is a batch."""
    topic, wanted = message.topic_text, index.key_text(message.topic_text, key)
    texts = (message.properties, *(one.properties for one in messages_in(message)))
    return any(wanted in properties.index_keys(topic, properties.parse_properties(text)) for text in texts)
