"""Simulates BatchConsumeQueue (46-byte units) in a start.

File positions are unrelated to queue offsets here: minimum and maximum offset are read from units.
Source: BatchConsumeQueue#recover, #truncateDirtyLogicFiles, #putBatchMessagePositionInfo, #correctMinOffset (RocketMQ
5.0.0 to 5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqstore.brokers.load.mapped_files import SimulatedFile, SimulatedFiles
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import BATCH_UNIT_SIZE

_BLOCK = 1424 * BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchUnit:
    """The fields of a unit that a start reads."""

    offset: int
    size: int
    base: int
    count: int

    @property
    def valid(self) -> bool:
        return consumequeue.is_batch_unit(self.offset, self.size, self.base, self.count)


_EMPTY = BatchUnit(0, 0, 0, 0)


def _of(row: np.void) -> BatchUnit:
    return BatchUnit(int(row["commitlog_offset"]), int(row["size"]), int(row["base_offset"]), int(row["batch_size"]))


class BatchQueue:
    """One batch consume queue of a simulated broker."""

    def __init__(self, topic: str, queue_id: int, files: SimulatedFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = files
        self.max_physic_offset = -1
        self.min_offset = -1
        self.max_offset = 0
        self.dispatched = 0
        self.shifted = 0
        self._added: dict[tuple[int, int], BatchUnit] = {}

    @property
    def ends(self) -> tuple[int, int]:
        """Minimum and maximum queue offset that the broker reports, in messages."""
        return self.min_offset, self.max_offset

    def _unit(self, file: SimulatedFile, at: int) -> BatchUnit:
        added = self._added.get((file.start, at))
        if added is not None:
            return added
        raw = self.files.read(file, BATCH_UNIT_SIZE, at)
        if len(raw) < BATCH_UNIT_SIZE:
            return _EMPTY
        return _of(consumequeue.BATCH_UNIT.array(raw)[0])

    def _units(self, file: SimulatedFile) -> Iterator[tuple[int, BatchUnit]]:
        for at in range(0, self.files.file_size - BATCH_UNIT_SIZE + 1, _BLOCK):
            raw = self.files.read(file, min(_BLOCK, self.files.file_size - at), at)
            table = consumequeue.BATCH_UNIT.array(raw)
            for i in range(_BLOCK // BATCH_UNIT_SIZE):
                place = at + i * BATCH_UNIT_SIZE
                if place + BATCH_UNIT_SIZE > self.files.file_size:
                    return
                added = self._added.get((file.start, place))
                if added is None and i < len(table):
                    added = _of(table[i])
                yield place, added or _EMPTY

    def recover(self) -> None:
        """Recover as BatchConsumeQueue#recover does."""
        if self.files.files:
            self.files.recover(self._valid_bytes)
            self._revise()

    def _valid_bytes(self, file: SimulatedFile) -> int:
        valid = 0
        for at, unit in self._units(file):
            if not unit.valid:
                break
            valid = at + BATCH_UNIT_SIZE
            self.max_physic_offset = unit.offset
        return valid

    def truncate(self, log_end: int) -> None:
        """Truncate as BatchConsumeQueue#truncateDirtyLogicFiles does."""
        self.max_physic_offset = log_end - 1
        while (file := self.files.last()) is not None:
            file.wrote = 0
            deleted = False
            for at, unit in self._units(file):
                if at == 0:
                    if unit.offset >= log_end:
                        self.files.delete_last()
                        deleted = True
                        break
                elif not unit.valid or unit.offset >= log_end:
                    break
                file.wrote = at + BATCH_UNIT_SIZE
                self.max_physic_offset = unit.offset
            if not deleted:
                break
        self._revise()

    def _revise(self) -> None:
        self._revise_min()
        files = self.files.files
        newest = None
        for file in files[: -3 if len(files) > 2 else None : -1]:
            if file.wrote >= BATCH_UNIT_SIZE:
                newest = self._unit(file, file.wrote - BATCH_UNIT_SIZE)
                break
        self.max_offset = newest.base + newest.count if newest is not None else 0

    def _revise_min(self) -> None:
        if not self.files.files:
            self.max_offset = 0
            self.min_offset = -1
            return
        file = self.files.files[0]
        self.min_offset = self._unit(file, 0).base if file.wrote >= BATCH_UNIT_SIZE else -1

    def put(self, address: int, size: int, base: int, count: int) -> None:
        """Add the unit of one message (BatchConsumeQueue#putBatchMessagePositionInfo)."""
        if base < 0 or count < 0 or address <= self.max_physic_offset:
            return
        file = self.files.last_for_append(self.files.max_offset())
        if file.wrote + BATCH_UNIT_SIZE > self.files.file_size:
            return
        self._added[(file.start, file.wrote)] = BatchUnit(address, size, base, count)
        file.wrote += BATCH_UNIT_SIZE
        self.max_physic_offset = address
        self.max_offset = base + count
        self.dispatched += 1
        if file.first_created and self.min_offset == -1:
            self._revise_min()

    def correct_min_offset(self, log_start: int) -> None:
        """Set the minimum offset as BatchConsumeQueue#correctMinOffset does: from the first file only."""
        self._revise_min()
        if not self.files.files:
            return
        file = self.files.files[0]
        for at, unit in self._units(file):
            if at >= file.wrote or unit.offset >= log_start:
                return
            self.min_offset = unit.base + unit.count

    def destroy(self) -> None:
        """Delete all files (BatchConsumeQueue#destroy)."""
        self.max_physic_offset = -1
        self.min_offset = -1
        self.max_offset = 0
        self.files.destroy()

    def ghost_units(self) -> int:
        """Count valid units on disk after the end in the last file."""
        file = self.files.last()
        if file is None:
            return 0
        count = 0
        for at, unit in self._units(file):
            if at < file.wrote:
                continue
            if not unit.valid:
                break
            count += 1
        return count
