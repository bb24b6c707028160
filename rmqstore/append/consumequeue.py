"""Write consume queues: 20-byte units in order, after pre-blanks if necessary, or 46-byte batch units.

Source: ConsumeQueue#putMessagePositionInfo, BatchConsumeQueue#putBatchMessagePositionInfo (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path

from rmqstore.append.mapped_files import SharedFiles, WritableMappedFileQueue
from rmqstore.formats.consumequeue import BATCH_UNIT, PRE_BLANK, UNIT, is_batch_unit, is_pre_blank, is_unit, pre_blanks

_PACK = UNIT.packer.pack
_PACK_BATCH = BATCH_UNIT.packer.pack
SCAN = 1 << 18  # bytes to read at a time in the search for the end


class Put(Enum):
    """The result of putting a unit."""

    WRITTEN = "written"
    REPEATED = "repeated"  # skipped, because the queue has a unit of this or a later message
    MISPLACED = "misplaced"  # written, but not at its queue offset ("logic queue order maybe wrong")


class ConsumeQueue:
    """One queue of a topic, with 20-byte units.

    `max_physic_offset` is the physical offset after the last message dispatched to it (-1: none), `min_logic_offset`
    the position of its first unit that is not a pre-blank; both in bytes.
    """

    def __init__(self, directory: Path, file_size: int, shared: SharedFiles | None = None) -> None:
        self.queue = WritableMappedFileQueue([directory], file_size, shared=shared)
        self.max_physic_offset = -1
        self.min_logic_offset = 0
        self.end = 0
        """The end of the units according to `load` (bytes)."""

    @property
    def max_offset(self) -> int:
        """The queue offset after the last unit."""
        return self.queue.max_offset // UNIT.size

    def put(self, offset: int, size: int, tags_code: int, queue_offset: int) -> Put:
        """Append the unit of a message.

        Units: `offset` (physical) and `size` in bytes, `queue_offset` in units. Errors: NoSpace.
        Source: ConsumeQueue#putMessagePositionInfo
        """
        if offset + size <= self.max_physic_offset:
            return Put.REPEATED
        expected = queue_offset * UNIT.size
        unit = _PACK(offset, size, tags_code)
        result = Put.WRITTEN
        queue = self.queue
        if not queue.files:  # the new file contains the unit at once, because a broker takes zeros for a first unit
            queue.last_file(expected, PRE_BLANK * pre_blanks(queue_offset, queue.file_size) + unit)
            self.min_logic_offset = expected
        else:
            current = queue.max_offset
            if queue_offset:
                if expected < current:
                    return Put.REPEATED
                if expected > current:
                    result = Put.MISPLACED
            file = queue.files[-1]
            if file.full:
                queue.last_file(expected, unit)
            else:
                file.append(unit)
        self.max_physic_offset = offset + size
        return result

    def continues(self, offset: int, queue_offset: int) -> bool:
        """Return whether the unit of a message at a physical offset (bytes) is the next one of files that exist."""
        queue = self.queue
        return bool(queue.files) and offset >= self.max_physic_offset and queue_offset * UNIT.size == queue.max_offset

    def load(self, version: str | None = None) -> None:
        """Open the files and find the end of the units in the last three of them, without writing.

        Errors: Refused if the load of that RocketMQ version returns false. Source: ConsumeQueue#recover
        """
        self.queue.load(version)
        self.end, self.max_physic_offset = _end(self.queue, UNIT.size, _good_units)
        self.min_logic_offset = self._first_unit()

    def _first_unit(self) -> int:
        """Return the position (bytes) of the first unit of a message, after the pre-blanks of the first file."""
        if not self.queue.files:
            return 0
        file, at = self.queue.files[0], 0
        while raw := file.read(at, SCAN // UNIT.size * UNIT.size):
            count = _leading_pre_blanks(raw)
            at += count * UNIT.size
            if count * UNIT.size < len(raw):
                break
        return file.start + at

    def settle(self) -> None:
        """Truncate and zero everything after the end that `load` found. Errors: NoSpace and others."""
        if self.end == 0:
            self.queue.destroy()  # a broker would take the zeros at the start of a file for a unit
            return
        self._cut(self.end)

    def truncate(self, offset: int) -> None:
        """Truncate and zero the units that point to a physical offset (bytes) or later.

        Source: ConsumeQueue#truncateDirtyLogicFiles, which leaves the bytes of truncated units
        """
        end = self.queue.max_offset
        self.max_physic_offset = -1
        start = self.queue.min_offset if self.queue.files else 0
        while end > start:
            file = self.queue.find_by_offset(end - UNIT.size)
            raw = file.read(end - UNIT.size - file.start, UNIT.size) if file else b""
            if len(raw) == UNIT.size:
                at, size, _ = UNIT.packer.unpack(raw)
                if at < offset and not is_pre_blank(at, size):
                    self.max_physic_offset = at + size
                    break
            end -= UNIT.size
        if end == start:
            self.queue.destroy()  # a broker takes the last pre-blank for a message below 2 GiB and skips earlier ones
            return
        self._cut(end)

    def _cut(self, end: int) -> None:
        self.queue.truncate_dirty_files(end, blank=True)
        if end > self.queue.min_offset:
            self.queue.drop_empty_last()
        self.queue.set_where(end)
        self.end = end


class BatchConsumeQueue:
    """One queue of a batch topic, with 46-byte units, whose file positions do not correspond to queue offsets."""

    def __init__(self, directory: Path, file_size: int, shared: SharedFiles | None = None) -> None:
        self.queue = WritableMappedFileQueue([directory], file_size, shared=shared)
        self.max_physic_offset = -1
        self.max_queue_offset = 0
        self.end = 0
        """The end of the units according to `load` (bytes)."""

    @property
    def max_offset(self) -> int:
        """The queue offset after the last batch."""
        return self.max_queue_offset

    def put(
        self, offset: int, size: int, tags_code: int, store_timestamp: int, base_offset: int, batch_size: int
    ) -> Put:
        """Append the unit of a batch.

        Units: as `ConsumeQueue.put`, `store_timestamp` in ms. Errors: NoSpace.
        Source: BatchConsumeQueue#putBatchMessagePositionInfo
        """
        if offset <= self.max_physic_offset:
            return Put.REPEATED
        unit = _PACK_BATCH(offset, size, tags_code, store_timestamp, base_offset, batch_size, -1, 0)
        files = self.queue.files
        if not files or files[-1].full:
            self.queue.last_file(0, unit)
        else:
            files[-1].append(unit)
        self.max_physic_offset = offset
        self.max_queue_offset = base_offset + batch_size
        return Put.WRITTEN

    def load(self, version: str | None = None) -> None:
        """Open the files and find the end of the units, without writing. Errors: as `ConsumeQueue.load`."""
        self.queue.load(version)
        self.end, _ = _end(self.queue, BATCH_UNIT.size, _good_batch_units)
        self._find_last(self.end)

    def settle(self) -> None:
        """Truncate and zero everything after the end that `load` found. Errors: NoSpace and others."""
        self._cut(self.end)

    def truncate(self, offset: int) -> None:
        """Truncate and zero the units that point to a physical offset (bytes) or later."""
        end = self.queue.max_offset
        start = self.queue.min_offset if self.queue.files else 0
        while end > start:
            file = self.queue.find_by_offset(end - 1)
            if file is None:
                break
            at = (end - 1 - file.start) // BATCH_UNIT.size * BATCH_UNIT.size
            raw = file.read(at, BATCH_UNIT.size)
            if len(raw) == BATCH_UNIT.size and 0 <= int.from_bytes(raw[:8], "big", signed=True) < offset:
                end = file.start + at + BATCH_UNIT.size
                break
            end = file.start + at
        self._cut(max(end, start))

    def _cut(self, end: int) -> None:
        self.queue.truncate_dirty_files(end, blank=True)
        self.queue.drop_empty_last()
        self.queue.set_where(end)
        self._find_last(end)

    def _find_last(self, end: int) -> None:
        """Set the maximum offsets from the last unit before `end`."""
        self.max_physic_offset, self.max_queue_offset = -1, 0
        file = self.queue.find_by_offset(end - 1) if end else None
        if file is not None:
            raw = file.read((end - 1 - file.start) // BATCH_UNIT.size * BATCH_UNIT.size, BATCH_UNIT.size)
            if len(raw) == BATCH_UNIT.size:
                unit = BATCH_UNIT.parse(raw)
                self.max_physic_offset = unit["commitlog_offset"]
                self.max_queue_offset = unit["base_offset"] + unit["batch_size"]


def _good_units(raw: bytes) -> tuple[int, int]:
    """Count the good units at the start, and return the physical offset after the last one's message (-1: none)."""
    import numpy as np

    units = UNIT.array(raw)
    bad = np.flatnonzero(~is_unit(units["commitlog_offset"], units["size"]))
    n = int(bad[0]) if len(bad) else len(units)
    if not n or is_pre_blank(units["commitlog_offset"][n - 1], units["size"][n - 1]):
        return n, -1  # a pre-blank has no message
    return n, int(units["commitlog_offset"][n - 1]) + int(units["size"][n - 1])


def _leading_pre_blanks(raw: bytes) -> int:
    from rmqstore.scan.kernels import leading

    units = UNIT.array(raw)
    blank = is_pre_blank(units["commitlog_offset"], units["size"])
    return leading(blank)


def _good_batch_units(raw: bytes) -> tuple[int, int]:
    """Count the good batch units at the start, and return the physical offset of the last one's message."""
    good, last = 0, -1
    for at in range(0, len(raw) - BATCH_UNIT.size + 1, BATCH_UNIT.size):
        unit = BATCH_UNIT.unpack(raw, at)
        if not is_batch_unit(unit["commitlog_offset"], unit["size"], unit["base_offset"], unit["batch_size"]):
            break
        good, last = good + 1, unit["commitlog_offset"]
    return good, last


def _end(queue: WritableMappedFileQueue, unit: int, count_good: Callable[[bytes], tuple[int, int]]) -> tuple[int, int]:
    """Find the global offset after the last good unit, and return it with what `count_good` returns for that unit."""
    files = queue.files
    end = files[0].start if files else 0
    last = -1
    for file in files[max(0, len(files) - 3) :]:
        at, whole = 0, file.file_size // unit * unit
        end = file.start
        while at < whole:
            raw = file.read(at, min(SCAN // unit * unit, whole - at))
            n, found = count_good(raw)
            last = found if n else last
            at += n * unit
            end = file.start + at
            if n * unit < len(raw) or not raw:
                return end, last
        end = file.stop
    return end, last
