"""What compaction keeps of a topic: a log of its own, and a queue with units of 46 bytes that point into it.

The last message of each key stays there when the commitlog has deleted it. The positions in this log are those of the
log itself, also PHYSICALOFFSET in its records; files of both halves have the same names, which leave gaps after a
compaction. Units are sorted by queue offset and have gaps, too. An end marker or zeros end the units of a file.

Source: CompactionLog, TopicPartitionLog, SparseConsumeQueue#recover (RocketMQ 5.1.0 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.compaction import SPARSE_UNIT
from rmqstore.formats.consumequeue import QueueName, is_batch_unit
from rmqstore.formats.message import Message, parse_message
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.kernels import consecutive, leading
from rmqstore.scan.units import Units, file_chunks
from rmqstore.scan.window import ScanOptions

UNIT = SPARSE_UNIT
OPTIONS = ScanOptions(check_offset=False)
"""How the log is scanned: records keep the record CRC of their old place in the commitlog."""


class CompactedQueue(NamedTuple):
    """The two halves of a compacted queue; None for a half that has no directory."""

    topic: str
    queue_id: int
    log: MappedFileQueue | None
    units: MappedFileQueue | None

    @property
    def label(self) -> str:
        """The name of the queue in reports: `TOPIC/ID`."""
        return f"{self.topic}/{self.queue_id}"


class AcceptedUnits(NamedTuple):
    """Units that a broker reads, one after the other. `start`: global offset of the first, in bytes.

    `end`: the bytes of the unit after them that ends the file; empty if more of them follow, or the file ends.
    """

    start: int
    units: Units
    end: bytes


class KeptMessage(NamedTuple):
    """A message of the compaction log, its file, and its position in that file in bytes."""

    message: Message
    file: MappedFile
    at: int


def compacted_queues(store: Store) -> list[CompactedQueue]:
    """Return the compacted queues of a whole store, sorted. Errors: OSError if a directory cannot be listed."""
    if store.part is not None or "compaction" not in store.top:
        return []
    logs = {(q.topic, q.queue_id): q.queue for q in store.consume_queues(QueueKind.COMPACTION_LOG)}
    units = {(q.topic, q.queue_id): q.queue for q in store.consume_queues(QueueKind.COMPACTION_CQ)}
    return [CompactedQueue(*name, logs.get(name), units.get(name)) for name in sorted(logs.keys() | units.keys())]


def written_units(file: MappedFile) -> Iterator[AcceptedUnits]:
    """Yield the units of a file up to the first that a broker does not accept; a hole ends them, too."""
    at = file.start
    for chunk in file_chunks(file, UNIT):
        if chunk.start != at:
            return
        fields = (chunk.units[name] for name in ("log_offset", "size", "queue_offset", "batch_size"))
        n = leading(is_batch_unit(*(field.astype(np.int64) for field in fields)))
        more = n == len(chunk.units)
        yield AcceptedUnits(at, chunk.units[:n], b"" if more else chunk.units[n].tobytes())
        if not more:
            return
        at = chunk.stop


def queue_offsets(queue: CompactedQueue) -> Ranges:
    """Return the queue offsets of the messages that compaction keeps of a queue, as its units list them."""
    found = Ranges()
    for file in queue.units.files if queue.units is not None else ():
        for chunk in written_units(file):
            numbers = chunk.units["queue_offset"].astype(np.int64)
            found |= Ranges.of((int(numbers[a]), int(numbers[b - 1]) + 1) for a, b in consecutive(numbers))
    return found


def kept(store: Store) -> dict[QueueName, Ranges]:
    """Return the queue offsets of all messages that compaction keeps; empty for a store without compacted topics."""
    return {(one.topic, one.queue_id): queue_offsets(one) for one in compacted_queues(store)}


def message_at(queue: CompactedQueue, queue_offset: int) -> KeptMessage | None:
    """Return the message with a queue offset; None if compaction has not kept it, or its record cannot be read."""
    for file in queue.units.files if queue.units is not None else ():
        for chunk in written_units(file):
            rows = np.flatnonzero(chunk.units["queue_offset"].astype(np.int64) == queue_offset)
            if len(rows):
                unit = chunk.units[int(rows[0])]
                return _record(queue, int(unit["log_offset"]), int(unit["size"]))
    return None


def _record(queue: CompactedQueue, offset: int, size: int) -> KeptMessage | None:
    log_file = queue.log.find(offset) if queue.log is not None else None
    if log_file is None or size > MAX_RECORD:
        return None
    message, _ = parse_message(log_file.read_at(size, offset - log_file.start))
    return None if message is None else KeptMessage(message, log_file, offset - log_file.start)
