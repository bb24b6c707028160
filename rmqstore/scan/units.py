"""Fixed-size units as NumPy arrays: consume queue, DLedger index, timer log, index slots and units.

Only data extents are read (SEEK_DATA): the 160 MB of a DLedger index with one megabyte in it cost one megabyte.
What is left out is zero. Nothing raises on bytes; a file that cannot be read, or vanishes, gives nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rmqstore.files.disk.reading import open_regular
from rmqstore.files.disk.sparse import data_extents
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.rocksdb.queues import RocksDBQueue
from rmqstore.formats import consumequeue
from rmqstore.formats.layout import Layout
from rmqstore.scan.kernels import I64

CHUNK = 1 << 20
Units = npt.NDArray[np.void]


class KnownUnits(Protocol):
    """The units that the good messages of a log are owed, known from a pass over it.

    `complete` is false when messages have none here that would get one.
    """

    complete: bool

    def known_units(self) -> Iterator[tuple[tuple[str, int], I64, I64, I64]]:
        """(queue, commitlog offsets, sizes, queue offsets) piece by piece, each queue's in log order."""


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
        """Global offset behind the last unit, bytes."""
        return self.start + len(self.units) * self.units.dtype.itemsize

    @property
    def number(self) -> int:
        """Logical number of the first unit over all files."""
        return self.start // self.units.dtype.itemsize


def file_chunks(
    file: MappedFile, layout: Layout, *, base: int = 0, start: int = 0, stop: int | None = None, chunk: int = CHUNK
) -> Iterator[UnitChunk]:
    """Units of one file's data extents, in order, in chunks; a chunk is a fresh array.

    `base` is where the units begin in the file, `start` and `stop` (positions in the file) limit what is read.
    Units: bytes. Errors: none.
    """
    size = layout.size
    stop = min(file.length, file.file_size, stop if stop is not None else file.length)
    stop = base + max(0, stop - base) // size * size
    try:
        fd = open_regular(file.path)
    except OSError:
        return
    try:
        at = base + max(0, start - base) // size * size
        for lo, hi in data_extents(fd, at, stop):
            at = max(at, base + (lo - base) // size * size)
            end = min(stop, base - (base - hi) // size * size)
            while at < end:
                raw = _pread(fd, min(max(size, chunk // size * size), end - at), at)
                units: Units = layout.array(raw)
                if not len(units):
                    return
                yield UnitChunk(file, file.start + at, units)
                at += len(units) * size
    finally:
        os.close(fd)


def unit_chunks(
    queue: MappedFileQueue, layout: Layout, *, start: int = 0, stop: int | None = None, chunk: int = CHUNK
) -> Iterator[UnitChunk]:
    """Units of a queue in files, holes left out, or of one in a RocksDB, without the rows that it lacks.

    Units: `start` and `stop` are global offsets in bytes. Errors: none.
    """
    if isinstance(queue, RocksDBQueue):
        limit = queue.behind if stop is None else min(queue.behind, -(-stop // layout.size))
        for number, units, _ in queue.runs(start // layout.size, limit):
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


def _pread(fd: int, size: int, at: int) -> bytes:
    try:
        return os.pread(fd, size, at)
    except OSError:
        return b""


def last_nonzero(queue: MappedFileQueue, size: int) -> int | None:
    """Global offset (bytes) of the last unit of `size` bytes that is not all zero; None without one."""
    for file in reversed(queue.files):
        at = last_nonzero_in(file, size)
        if at is not None:
            return file.start + at
    return None


def last_nonzero_in(file: MappedFile, size: int, base: int = 0) -> int | None:
    """The same within one file whose units begin at `base`: a position in the file."""
    try:
        fd = open_regular(file.path)
    except OSError:
        return None
    try:
        end = min(file.length, file.file_size)
        for lo, hi in reversed(list(data_extents(fd, base, end))):
            top = hi
            while top > lo:
                bottom = max(lo, top - CHUNK)
                kept = len(_pread(fd, top - bottom, bottom).rstrip(b"\0"))
                if kept:
                    return base + (bottom + kept - 1 - base) // size * size
                top = bottom
        return None
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """Where the units of a consume queue end, as its recovery would see it if it began at the first file.

    `end` is a global offset (bytes), `max_phy` the end of the last unit's message (-1: no unit), `units` how many
    there are from the first file on, `pre_blanks` how many of them are pre-blanks.
    """

    end: int
    max_phy: int
    units: int
    pre_blanks: int


def recovery_end(queue: MappedFileQueue) -> QueueEnd:
    """Walk all files: a unit counts while its offset is not negative and its size positive; a full file goes on.

    Gaps between files are not noticed, as the broker does not notice them.
    Source: ConsumeQueue#recover, RocketMQ 5.4.0
    """
    size = consumequeue.UNIT.size
    end, max_phy, units, blanks = queue.start, -1, 0, 0
    for file in queue.files:
        end = at = file.start
        for chunk in file_chunks(file, consumequeue.UNIT):
            if chunk.start != at:
                break
            got: Any = chunk.units
            good = consumequeue.is_unit(got["commitlog_offset"], got["size"])
            n = len(good) if good.all() else int(np.argmin(good))
            if n:
                last = got[n - 1]
                max_phy = int(last["commitlog_offset"]) + int(last["size"])
                blanks += int(np.count_nonzero(consumequeue.is_pre_blank(got["commitlog_offset"][:n], got["size"][:n])))
                units += n
            at += n * size
            if n < len(good):
                break
        end = at
        if at < file.start + min(file.length, file.file_size) // size * size or file.length < file.file_size:
            break
    return QueueEnd(end, max_phy, units, blanks)
