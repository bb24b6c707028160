"""Find the first and last record or unit of a mapped file queue with a few reads instead of a scan.

This is for overviews: records after damage in the last file are not found (`verify` finds them). It does not import
NumPy, so that `info` starts quickly.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rmqstore.files.files import SmallReads
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.formats import consumequeue, dledger
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import (
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    MIN_SIZE,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
    Fault,
    check_message,
    parse_message,
)
from rmqstore.texts import Text

_BLOCK = 1 << 20
_LAST = 64  # number of records at the end that are checked for torn writes
_LONGEST_READ = 64 << 20  # bytes; longer records count as whole without being read
_LONGEST_HEAD = dledger.ENTRY.size + HEADS_BY_FLAG[0x30].size
_MAGIC_AT = HEAD.at("magic")
_ENTRY_SIZE_AT = dledger.ENTRY.at("size")
_ENTRY_POS_AT = dledger.ENTRY.at("pos")


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log.

    `wrote` is the global offset after the last whole record, `last_timestamp` that record's store time in ms (None
    without a record), and `torn` the length in bytes of records after it that have a valid head but a damaged rest.
    """

    wrote: int
    last_timestamp: int | None
    found_by: str
    torn: int = 0


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _i64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def store_timestamp(head: bytes) -> int:
    """Return the store time (ms) in the head of a record."""
    layout = HEADS_BY_FLAG[_u32(head, SYS_FLAG_AT) & 0x30]
    return _i64(head, layout.at("store_timestamp"))


def record_at(head: bytes, position: int, body_offset: int) -> int | None:
    """Return the size of the record that starts with `head` at a global position; None if it is not a record.

    `body_offset` is the size of the DLedger entry header before the record, which counts as part of it; 0 in a
    commitlog.
    """
    if len(head) < body_offset + HEAD.size:
        return None
    if body_offset and (_u32(head, 0) != dledger.MAGIC or _i64(head, _ENTRY_POS_AT) != position):
        return None
    size = _u32(head, body_offset)
    if (
        _u32(head, body_offset + _MAGIC_AT) not in (MAGIC_V1_U32, MAGIC_V2_U32)
        or size < MIN_SIZE
        or _i64(head, body_offset + PHYSICAL_OFFSET_AT) != position + body_offset
    ):
        return None
    if body_offset and _u32(head, _ENTRY_SIZE_AT) != size + body_offset:
        return None
    return size + body_offset


def first_timestamp(queue: MappedFileQueue, body_offset: int) -> int | None:
    """Return the store time (ms) of the record at the start of a file, from the first of four files that has one."""
    for file in queue.files[:4]:
        with SmallReads(file) as f:
            head = f.pread(_LONGEST_HEAD, 0)
        if record_at(head, file.start, body_offset) is not None:
            return store_timestamp(head[body_offset:])
    return None


def find_end(queue: MappedFileQueue, body_offset: int, hint: int) -> LogEnd:
    """Find the end of a log by walking from the record or entry at the global offset `hint` (-1: unknown).

    Without a record at `hint`, or if it is torn, the walk starts at the last file that begins with a record.
    """
    for file in reversed(queue.files):
        with SmallReads(file) as f:
            if file.start <= hint < file.stop:
                at = hint - file.start
                if record_at(f.pread(_LONGEST_HEAD, at), hint, body_offset) is not None:
                    end = _walk(
                        f, file, at, body_offset, Text("consume queues") if not body_offset else Text("DLedger index")
                    )
                    if end.wrote > hint or record_at(f.pread(_LONGEST_HEAD, 0), file.start, body_offset) is None:
                        return end
                    # that record is torn, and earlier ones may be too: walk the whole file
            if record_at(f.pread(_LONGEST_HEAD, 0), file.start, body_offset) is None:
                continue
            if file.start < hint < queue.stop and hint >= file.stop:
                continue
            return _walk(f, file, 0, body_offset, Text("last file"))
    return LogEnd(queue.start, None, "")


def _walk(f: SmallReads, file: MappedFile, at: int, body_offset: int, found_by: str) -> LogEnd:
    """Walk from record to record by their heads, then drop torn records at the end, which are read in full."""
    limit = min(file.length, file.file_size)
    block, base = b"", at
    last: deque[tuple[int, int, int]] = deque(maxlen=_LAST)
    while at < limit:
        if at - base + _LONGEST_HEAD > len(block):
            block, base = f.pread(min(_BLOCK, limit - at), at), at
        head = block[at - base : at - base + _LONGEST_HEAD]
        size = record_at(head, file.start + at, body_offset)
        if size is None or at + size > limit:
            break
        last.append((at, size, store_timestamp(head[body_offset:])))
        at += size
    end, time = at, last[-1][2] if last else None
    while last and not _is_whole(f, *last[-1][:2], body_offset):
        at, _, _ = last.pop()
        time = last[-1][2] if last else time
    return LogEnd(file.start + at, time, found_by, end - at)


def _is_whole(f: SmallReads, at: int, size: int, body_offset: int) -> bool:
    """Return whether the record that follows a valid head is complete, by its lengths and body CRC."""
    if size > _LONGEST_READ:
        return True
    message, _ = parse_message(f.pread(size, at), body_offset)
    return message is not None and check_message(message, None) is not Fault.BODY_CRC


def first_true(lo: int, hi: int, test: Callable[[int], bool]) -> int:
    """Binary-search [lo, hi) for the first number that passes a monotonic test; `hi` if none does."""
    return lo + bisect_left(range(lo, hi), True, key=test)


@dataclass(frozen=True, slots=True)
class UnitRange:
    """The unit numbers [first, stop), counted over all files of a queue, and the bytes of the last unit."""

    first: int
    stop: int
    last: bytes = b""


def written_units(
    queue: MappedFileQueue,
    layout: Layout,
    written: Callable[[bytes], bool],
    dropped: Callable[[bytes], int] = lambda head: 0,
) -> UnitRange:
    """Find the written units by binary search for the first unwritten one, in the last file that has a written unit.

    `dropped` returns, from the first unit of a file, how many units were erased at the start of that file.
    """
    size = layout.size
    for file in reversed(queue.files):
        with SmallReads(file) as f:
            first = dropped(f.pread(size, 0))
            if not written(f.pread(size, first * size)):
                continue
            count = min(file.length, file.file_size) // size
            n = first_true(first + 1, count, lambda i, f=f: not written(f.pread(size, i * size)))  # type: ignore[misc]
            return UnitRange(queue.start // size, file.start // size + n, f.pread(size, (n - 1) * size))
    return UnitRange(queue.start // size, queue.start // size)


_MOST_OPEN = 128  # files


class OpenQueues:
    """Reads at global offsets of queues or logs, whose files stay open until the end of the block."""

    def __init__(self, queues: Iterable[MappedFileQueue]) -> None:
        self._queues = tuple(queues)
        self._open: dict[Path, SmallReads] = {}
        self._files = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        self._open.clear()

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes at a global offset; the result is short where there are none, and at the end of a file."""
        file = next((file for queue in self._queues if (file := queue.find(offset)) is not None), None)
        if file is None:
            return b""
        if file.path not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self.__exit__()
            self._open[file.path] = self._files.enter_context(SmallReads(file))
        return self._open[file.path].pread(min(size, file.stop - offset), offset - file.start)


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The range of a consume queue that consumers can read: queue offsets [min, max).

    `last_commitlog_offset` is the physical offset of the last message (-1: none), `units` the number of units.
    """

    min: int
    max: int
    last_commitlog_offset: int
    units: int


def queue_bounds(queue: MappedFileQueue, log_start: int, *, batch: bool) -> QueueBounds:
    """Find the bounds of a consume queue; units that point below the start of the log are expired and do not count.

    Source: ConsumeQueue#getMinOffsetInQueue, #getMaxOffsetInQueue, BatchConsumeQueue (RocketMQ 4.9.7, 5.1.4, 5.4.0)
    """
    layout = consumequeue.BATCH_UNIT if batch else consumequeue.UNIT

    def is_written(raw: bytes) -> bool:
        if len(raw) < layout.size:
            return False
        unit = layout.unpack(raw)
        if batch:
            names = ("commitlog_offset", "size", "base_offset", "batch_size")
            return consumequeue.is_batch_unit(*(unit[n] for n in names))
        return consumequeue.is_unit(unit["commitlog_offset"], unit["size"])

    units = written_units(queue, layout, is_written)
    with OpenQueues([queue]) as opened:

        def is_readable(number: int) -> bool:
            raw = opened.read(layout.size, number * layout.size)
            if len(raw) < layout.size:
                return False
            unit = layout.unpack(raw)
            offset = unit["commitlog_offset"]
            return offset >= log_start and consumequeue.is_message_unit(offset, unit["size"])

        first = first_true(units.first, units.stop, is_readable)
        first_raw = opened.read(layout.size, first * layout.size) if first < units.stop else b""
    if not units.last:
        return QueueBounds(0, 0, -1, 0) if batch else QueueBounds(first, units.stop, -1, units.stop - first)
    unit = layout.unpack(units.last)
    is_message = consumequeue.is_message_unit(unit["commitlog_offset"], unit["size"])
    last = unit["commitlog_offset"] if is_message else -1
    if not batch:
        return QueueBounds(first, units.stop, last, units.stop - first)
    top = unit["base_offset"] + unit["batch_size"]
    low = layout.unpack(first_raw)["base_offset"] if first_raw else top
    return QueueBounds(low, top, last, units.stop - first)
