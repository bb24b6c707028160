"""One message by its address: log offset, queue offset, offset message id, unique id, or a file of lost+found.

Every way but one is direct: it reads a few kilobytes at any store size. Only a unique id that no index file knows makes
the caller read the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.errors import UsageError
from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.records import MAX_RECORD, message_at
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.topic_types import configured_types
from rmqstore.formats import consumequeue, dledger, index, messageid, properties
from rmqstore.formats.message import Fault, Message, check_message, parse_message
from rmqstore.views.index_files import IndexFiles


@dataclass(frozen=True, slots=True)
class Found:
    """A message and where it is.

    `offset`: global, of the record itself (in DLedger: behind the entry's header); None for a file outside of a log.
    `file`: path below the store's root, `at`: position in that file, both for people. `fault`: what is wrong with it.
    """

    message: Message
    offset: int | None
    file: str
    at: int
    fault: Fault

    @property
    def sound(self) -> bool:
        return self.fault is Fault.NONE


def by_offset(store: Store, offset: int) -> Found | None:
    """The message at a log offset. In DLedger data the offset of the entry and that of its body both lead to it."""
    for log, lead in _logs(store):
        for at in dict.fromkeys((offset, offset + lead)):
            message = message_at(log, at)
            file = log.find(at)
            if message is not None and file is not None:
                return Found(message, at, store.relative(file.path), at - file.start, check_message(message, at))
    return None


def by_queue_offset(store: Store, topic: str, queue_id: int, queue_offset: int) -> Found | None:
    """The message of a consume queue unit: in queue files, in BatchCQ files, or in the RocksDB of queues."""
    unit = unit_at(store, topic, queue_id, queue_offset)
    return by_offset(store, unit.offset) if unit is not None else None


def by_message_id(store: Store, text: str) -> Found | None:
    """The message of an offset message id: the id contains the offset, and the record must say the same id.

    Source: MessageDecoder#decodeMessageId
    """
    decoded = messageid.decode_offset_message_id(text)
    found = by_offset(store, decoded.physical_offset) if decoded is not None else None
    return found if found is not None and found.message.offset_message_id() == text.upper() else None


def by_key(store: Store, key: str, files: IndexFiles | None = None, names: Iterable[str] = ()) -> Iterator[Found]:
    """Messages whose unique id or one of whose keys is this text, by the index files, newest file first.

    `files` and `names` (of topics): for callers that ask more than once.
    Source: IndexService#queryOffset; a hash may lead to other messages, which are left out
    """
    seen: set[int] = set()
    for hit in (files or IndexFiles(store)).hits(names or topics(store), (key,)):
        if hit.offset in seen:
            continue
        seen.add(hit.offset)
        found = by_offset(store, hit.offset)
        if found is not None and has_key(found.message, key):
            yield found


def in_file(path: Path) -> Found | None:
    """The record that a file of a journal's lost+found holds, or any file that starts with one."""
    message, fault = parse_message(read_at(path, MAX_RECORD, 0))
    if message is None:
        return None
    return Found(message, None, str(path), 0, check_message(message, None) if fault is Fault.NONE else fault)


def topics(store: Store) -> frozenset[str]:
    """Every topic that has a consume queue, in files or in RocksDB, or that topics.json names."""
    kinds = (QueueKind.SIMPLE, QueueKind.BATCH)
    out = {topic for kind in kinds for topic, _, _ in store.queue_directories(kind)}
    out |= (configured_types(store.root) or {}).keys()
    if store.rocksdb_consume_queue:
        with contextlib.suppress(CannotRead):
            out.update(topic for topic, _ in RocksDBQueues(store).names())
    return frozenset(out)


def find_one(store: Store, where: int | str) -> Found | None:
    """The message at a log offset, a TOPIC/QUEUE/OFFSET, an offset message id, a unique id or a key (the newest).

    Unique ids and keys are looked up in the index files; the log is not read.
    Errors: UsageError for a TOPIC/QUEUE/OFFSET whose QUEUE or OFFSET is not a number
    """
    digits = str(where).replace(",", "").replace("_", "")
    if digits.isdigit():
        return by_offset(store, int(digits))
    text = str(where)
    place = parse_queue_offset(text)
    if place is not None:
        return by_queue_offset(store, *place)
    return by_message_id(store, text) or next(by_key(store, text), None)


def parse_queue_offset(text: str) -> tuple[str, int, int] | None:
    """`TOPIC/QUEUE/OFFSET`, where the topic may contain no slash; None for any other text.

    Errors: UsageError for a queue or an offset that is not a number.
    """
    if text.count("/") != 2 or text.startswith(("/", ".")):
        return None
    topic, queue_id, queue_offset = text.split("/")
    try:
        return topic, int(queue_id), int(queue_offset.replace(",", ""))
    except ValueError:
        raise UsageError(f"{text} is not TOPIC/QUEUE/OFFSET", "queue and offset are numbers: Order/2/17") from None


def _logs(store: Store) -> Iterator[tuple[MappedFileQueue, int]]:
    if store.commitlog is not None:
        yield store.commitlog, 0
    if store.dledger is not None:
        yield store.dledger.data, dledger.ENTRY.size


@dataclass(frozen=True, slots=True)
class Unit:
    """What a consume queue says of a message: where its record is (global offset, bytes), its size and its tags code.

    `batch`: number of messages of the unit (BatchCQ), else 1.
    """

    offset: int
    size: int
    tags_code: int
    batch: int = 1


def unit_at(store: Store, topic: str, queue_id: int, queue_offset: int) -> Unit | None:
    """The unit of a queue offset, from files, BatchCQ files or the RocksDB; None where the queue has none.

    Errors: CannotRead for a RocksDB that cannot be read.
    """
    if queue_offset < 0:
        return None
    layout = consumequeue.UNIT
    if store.rocksdb_consume_queue:
        row = RocksDBQueues(store).queue(topic, queue_id).unit(layout, queue_offset)
    else:
        batch = _batch_unit(store, topic, queue_id, queue_offset)
        if batch is not None:
            return batch
        row = store.consume_queue(topic, queue_id).queue.unit(layout, queue_offset)
    if row is None or not consumequeue.is_message_unit(row["commitlog_offset"], row["size"]):
        return None
    return Unit(int(row["commitlog_offset"]), int(row["size"]), int(row["tags_code"]))


def _batch_unit(store: Store, topic: str, queue_id: int, queue_offset: int) -> Unit | None:
    """The same of a BatchCQ, whose units are searched: their base offsets rise."""
    queue = store.consume_queue(topic, queue_id, QueueKind.BATCH).queue
    layout = consumequeue.BATCH_UNIT
    for file in reversed(queue.files):
        rows = layout.array(queue.pread(file.length, file.start))
        first, count = rows["base_offset"], rows["batch_size"]
        hits = (first <= queue_offset) & (queue_offset < first + count) & (rows["size"] > 0)
        if hits.any():
            row = rows[hits][-1]
            return Unit(int(row["commitlog_offset"]), int(row["size"]), int(row["tags_code"]), int(row["batch_size"]))
    return None


def has_key(message: Message, key: str) -> bool:
    """Whether a text is a message's unique id or one of its keys."""
    topic = message.topic_text
    return index.key_text(topic, key) in properties.index_keys(topic, properties.parse_properties(message.properties))
