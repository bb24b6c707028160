"""Fixed-size units as NumPy arrays: those on disk, and those that consume queues should have for a chunk of messages.

On disk are consume queues, DLedger index, timer log, index slots and units. Only data extents are read (SEEK_DATA), so
that a sparse DLedger index of 160 MB with 1 MB of data costs 1 MB. Skipped bytes are zero. Bad bytes never raise an
exception; a file that is missing or unreadable has no units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rmqstore.files.files import OpenFile
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.layout import Layout
from rmqstore.scan import native
from rmqstore.scan.kernels import I64, leading

CHUNK = 1 << 20
Units = npt.NDArray[np.void]


class KnownUnits(Protocol):
    """The units that the good messages of a log should have, as found by a pass over the log.

    `complete` is false if units of some messages are missing.
    """

    complete: bool

    def known_units(self) -> Iterator[tuple[QueueName, I64, I64, I64]]:
        """Yield (queue, physical offsets, sizes, queue offsets) in pieces, in log order within each queue."""


@dataclass(frozen=True, slots=True)
class UnitChunk:
    """Consecutive units; `start` is the global offset of the first.

    Units: `start` in bytes. Shape: units (n,), a structured array with the layout's fields.
    """

    file: MappedFile
    start: int
    units: Units

    @property
    def stop(self) -> int:
        """The global offset (bytes) after the last unit."""
        return self.start + len(self.units) * self.units.dtype.itemsize

    @property
    def number(self) -> int:
        """The number of the first unit, counted over all files."""
        return self.start // self.units.dtype.itemsize


def file_chunks(
    file: MappedFile, layout: Layout, *, base: int = 0, start: int = 0, stop: int | None = None, chunk: int = CHUNK
) -> Iterator[UnitChunk]:
    """Yield the units in the data extents of a file, in order, in chunks of about `chunk` bytes.

    `base` is the position of the first unit in the file; `start` and `stop` (positions in the file) limit the range.
    Units: bytes. Errors: none.
    """
    size = layout.size
    stop = min(file.length, file.file_size, stop if stop is not None else file.length)
    stop = base + max(0, stop - base) // size * size
    try:
        opened = file.open()
    except OSError:
        return
    try:
        at = base + max(0, start - base) // size * size
        for low, high in opened.data_extents(at, stop):
            at = max(at, base + (low - base) // size * size)
            end = min(stop, base - (base - high) // size * size)
            while at < end:
                raw = _read(opened, min(max(size, chunk // size * size), end - at), at)
                units: Units = layout.array(raw)
                if not len(units):
                    return
                yield UnitChunk(file, file.start + at, units)
                at += len(units) * size
    finally:
        opened.close()


def unit_chunks(
    queue: MappedFileQueue, layout: Layout, *, start: int = 0, stop: int | None = None, chunk: int = CHUNK
) -> Iterator[UnitChunk]:
    """Yield the units of a queue in files or in a RocksDB, in chunks; holes and missing rows are skipped.

    Units: `start` and `stop` are global offsets in bytes. Errors: none.
    """
    end = queue.stop if stop is None else min(queue.stop, stop)
    runs = queue.runs(start // layout.size, -(-end // layout.size))
    if runs is not None:
        for number, units, _ in runs:
            yield UnitChunk(queue.files[0], number * layout.size, units)
        return
    for file in queue.files:
        if file.stop <= start or (stop is not None and file.start >= stop):
            continue
        yield from file_chunks(
            file,
            layout,
            start=max(0, start - file.start),
            stop=None if stop is None else stop - file.start,
            chunk=chunk,
        )


def _read(file: OpenFile, size: int, at: int) -> bytes:
    try:
        return file.read(size, at)
    except OSError:
        return b""


def last_nonzero(queue: MappedFileQueue, size: int) -> int | None:
    """Return the global offset (bytes) of the last unit of `size` bytes that is not all zero; None without one."""
    for file in reversed(queue.files):
        at = last_nonzero_in(file, size)
        if at is not None:
            return file.start + at
    return None


def last_nonzero_in(file: MappedFile, size: int, base: int = 0) -> int | None:
    """Return the position in a file of the last unit that is not all zero; units begin at `base`. None without one."""
    try:
        opened = file.open()
    except OSError:
        return None
    try:
        end = min(file.length, file.file_size)
        for low, high in reversed(list(opened.data_extents(base, end))):
            top = high
            while top > low:
                bottom = max(low, top - CHUNK)
                kept = len(_read(opened, top - bottom, bottom).rstrip(b"\0"))
                if kept:
                    return base + (bottom + kept - 1 - base) // size * size
                top = bottom
        return None
    finally:
        opened.close()


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """The end of a consume queue, as a recovery that begins at the first file would find it.

    `end` is a global offset (bytes), `max_phy` the physical offset after the last unit's message (-1: no unit),
    `units` the number of units, and `pre_blanks` how many of these are pre-blanks.
    """

    end: int
    max_phy: int
    units: int
    pre_blanks: int


def recovery_end(queue: MappedFileQueue) -> QueueEnd:
    """Walk a consume queue up to the first invalid unit, as its recovery does.

    Like the broker, this ignores gaps between files.
    Source: ConsumeQueue#recover, RocketMQ 5.4.0
    """
    size = consumequeue.UNIT_SIZE
    end, max_phy, units, pre_blanks = queue.start, -1, 0, 0
    for file in queue.files:
        end = at = file.start
        for chunk in file_chunks(file, consumequeue.UNIT):
            if chunk.start != at:
                break
            offsets: Any = chunk.units["commitlog_offset"]
            sizes: Any = chunk.units["size"]
            good = consumequeue.is_unit(offsets, sizes)
            n = leading(good)
            if n:
                max_phy = int(offsets[n - 1]) + int(sizes[n - 1])
                pre_blanks += int(np.count_nonzero(consumequeue.is_pre_blank(offsets[:n], sizes[:n])))
                units += n
            at += n * size
            if n < len(good):
                break
        end = at
        if at < file.start + min(file.length, file.file_size) // size * size or file.length < file.file_size:
            break
    return QueueEnd(end, max_phy, units, pre_blanks)


UnitArray = np.ndarray[tuple[int], np.dtype[np.void]]
Q = TypeVar("Q")
Rows = tuple[QueueName, int, int, int]
"""(queue, first queue offset, start row, stop row) of rows with consecutive queue offsets."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows grouped by queue, in their original order within each queue; queue q has rows [starts[q], starts[q + 1]).

    `index` are queue offsets, `offset` physical offsets, `units` the consume queue units (None if not requested).
    """

    starts: list[int]
    index: I64
    offset: I64
    units: UnitArray | None

    def stretches(self, queues: Sequence[Q]) -> list[tuple[Q, int, int, int]]:
        """Return all rows as stretches of consecutive queue offsets: (queues[q], first queue offset, start, stop)."""
        is_first = np.ones(len(self.index), dtype=np.bool_)
        np.not_equal(np.diff(self.index), 1, out=is_first[1:])
        is_first[[start for start in self.starts[:-1] if start < len(self.index)]] = True
        first_rows = np.flatnonzero(is_first)
        numbers = np.searchsorted(self.starts, first_rows, side="right") - 1
        first_offsets, starts = self.index[first_rows].tolist(), first_rows.tolist()
        stops = [*starts[1:], len(self.index)]
        return [
            (queues[number], first_offset, start, stop)
            for number, first_offset, start, stop in zip(numbers.tolist(), first_offsets, starts, stops, strict=True)
        ]


def lay_out(
    number: I64, queues: int, index: I64, offset: I64, size: I64 | None = None, tags: I64 | None = None
) -> Laid:
    """Group rows by queue number (below `queues`), and build their units if `size` and `tags` are given.

    Shapes: (n,) each.
    """
    units = None if size is None else np.empty(len(number), dtype=consumequeue.UNIT.dtype)
    starts, index, offset = native.load().lay_out(number, queues, index, offset, size, tags, units)
    return Laid(starts.tolist(), index, offset, units)
