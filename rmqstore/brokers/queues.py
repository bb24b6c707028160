"""How a starting broker recovers, truncates and extends consume queues.

ConsumeQueue (units of 20 bytes): recovery, truncation, re-dispatch, minimum offset. Units are compared as arrays;
those that the simulated start writes are kept as outlines (`WrittenUnits`).
Source: ConsumeQueue#recover, #truncateDirtyLogicFiles, #putMessagePositionInfo, #correctMinOffset (RocketMQ 4.3.0 to
5.5.1).

BatchConsumeQueue (units of 46 bytes): file positions are unrelated to queue offsets here: minimum and maximum offset
are read from units.
Source: BatchConsumeQueue#recover, #truncateDirtyLogicFiles, #putBatchMessagePositionInfo, #correctMinOffset (RocketMQ
5.0.0 to 5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmqstore.brokers.forecast import ShiftedUnits, StartFails
from rmqstore.brokers.mapped_files import SimulatedFile, SimulatedFiles, WrittenUnits, java_divmod, wrapped_long
from rmqstore.brokers.rules import BrokerRules
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import BATCH_UNIT_SIZE, PRE_BLANK_SIZE, UNIT_SIZE
from rmqstore.scan.kernels import leading
from rmqstore.texts import Text

_FIRST_BLOCK = 3276 * UNIT_SIZE
_BLOCK = _FIRST_BLOCK * 16
_LAST_UNIT = ((1 << 63) - 1) // UNIT_SIZE  # the positions of later units overflow

Int64s = NDArray[np.int64]
Offset = TypeVar("Offset", int, Int64s)


@dataclass(frozen=True, slots=True)
class Units:
    """Consecutive units from file position `at` on: commitlog addresses and sizes."""

    at: int
    offset: Int64s
    size: Int64s


class FileBegin(NamedTuple):
    """The valid units at the begin of a file: their bytes, the greatest address, and the last address and size."""

    valid: int = 0
    greatest: int = -1
    last: int = 0
    last_size: int = 0


RecoveredFiles = dict[str, FileBegin]  # by path: `Path` objects are larger


def _units(at: int, raw: bytes) -> Units:
    table = consumequeue.UNIT.array(raw)
    return Units(at, table["commitlog_offset"].astype(np.int64), table["size"].astype(np.int64))


class SimpleQueue:
    """One consume queue of a simulated broker."""

    __slots__ = (
        "_begins",
        "_kept",
        "_recovered",
        "_shifted",
        "dispatched",
        "files",
        "keeps_units",
        "max_physic_offset",
        "min_logic_offset",
        "queue_id",
        "rules",
        "topic",
    )

    def __init__(
        self, topic: str, queue_id: int, files: SimulatedFiles, rules: BrokerRules, recovered: RecoveredFiles
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = files
        self.rules = rules
        self.max_physic_offset = -1
        self.min_logic_offset = 0
        self.dispatched = 0
        self._shifted: list[ShiftedUnits] = []
        self.keeps_units = False
        """Keep the bytes of added units until `outline` is called, not only their outlines."""
        self._kept: list[WrittenUnits] = []
        self._begins = recovered
        self._recovered: tuple[SimulatedFile, int] | None = None
        """The last file that `recover` read, and the greatest address of its units."""

    @property
    def ends(self) -> tuple[int, int]:
        """Minimum and maximum queue offset that the broker reports, in units."""
        low, high = (java_divmod(at, UNIT_SIZE)[0] for at in (self.min_logic_offset, self.files.max_offset()))
        return low, high

    @property
    def shifted(self) -> tuple[ShiftedUnits, ...]:
        """The added units at a position other than their message's queue offset."""
        end = self.ends[1]
        return tuple(s._replace(stop=min(s.stop, end)) for s in self._shifted if s.start < end)

    # --- units ----------------------------------------------------------------------------------------------------

    def units(self, file: SimulatedFile) -> Iterator[Units]:
        """Yield the units of a file in blocks, as the broker would see them in memory.

        A span of which only the outline is kept yields only its first and last unit.
        """
        at = 0
        block = _FIRST_BLOCK
        spans = file.added
        while at + UNIT_SIZE <= self.files.file_size:
            span = next((s for s in spans if s.stop > at), None)
            if span is not None and span.at <= at and span.kept is not None:
                yield _units(at, bytes(span.kept[at - span.at :]))
                at = span.stop
                continue
            if span is not None and span.at <= at:
                n = (span.stop - at) // UNIT_SIZE
                if at == span.at:
                    yield Units(at, np.array([span.first]), np.array([span.last_size if n == 1 else 1]))
                    n -= 1
                    at += UNIT_SIZE
                if n > 0:  # the last unit represents the others of the span, whose addresses rise up to it
                    yield Units(span.stop - UNIT_SIZE, np.array([span.last]), np.array([span.last_size]))
                at = span.stop
                continue
            stop = min(at + block, self.files.file_size - self.files.file_size % UNIT_SIZE)
            if span is not None:
                stop = min(stop, span.at)
            raw = self.files.read(file, stop - at, at)
            raw = raw[: len(raw) // UNIT_SIZE * UNIT_SIZE]
            if not raw:
                return
            yield _units(at, raw)
            at += len(raw)
            block = _BLOCK

    def unit_at(self, file: SimulatedFile, at: int) -> tuple[int, int]:
        """Return address and size of the unit at a file position."""
        for span in file.added:
            if span.at <= at < span.stop:
                if span.kept is not None:
                    unit = consumequeue.UNIT.parse(bytes(span.kept[at - span.at : at - span.at + UNIT_SIZE]))
                    return unit["commitlog_offset"], unit["size"]
                if at == span.at:
                    return span.first, span.last_size
                return span.last, span.last_size
        raw = self.files.read(file, UNIT_SIZE, at)
        if len(raw) < UNIT_SIZE:
            return 0, 0
        unit = consumequeue.UNIT.array(raw)[0]
        return int(unit["commitlog_offset"]), int(unit["size"])

    def serves(self, queue_offset: int, address: int) -> bool:
        """Return whether consumers find the message at a commitlog address at this queue offset."""
        low, high = self.ends
        if not low <= queue_offset < high:
            return False
        at = queue_offset * UNIT_SIZE
        file = next((f for f in self.files.files if f.start <= at < f.start + self.files.file_size), None)
        return file is not None and self.unit_at(file, at - file.start)[0] == address

    def first_from(self, address: int) -> int:
        """Return the queue offset of the first unit whose message is at this commitlog address or after it.

        The end of the queue if there is none.
        """
        low, high = self.ends
        for file in self.files.files:
            for units in self.units(file):
                number = (file.start + units.at) // UNIT_SIZE + np.arange(len(units.offset))
                hits = np.flatnonzero((units.offset >= address) & (number >= low) & (number < high))
                if len(hits):
                    return int(number[hits[0]])
        return high

    def _address(self, offset: Offset, size: Offset) -> Offset:
        """Return maxPhysicOffset after adding a unit: the end of its message (up to 4.4.0 its start)."""
        return offset if self.rules.cq_address_is_start else offset + size

    # --- the start ------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Recover as ConsumeQueue#recover does: from the third file from the end up to the first invalid unit."""
        self.files.recover(self._valid_bytes)

    def _valid_bytes(self, file: SimulatedFile) -> int:
        path = str(file.path)
        found = self._begins.get(path)
        if found is None:
            found = self._begins[path] = self._begin_of(file)
        if found.valid:
            self.max_physic_offset = self._address(found.last, found.last_size)
        self._recovered = (file, found.greatest) if found.valid else None
        return found.valid

    def _begin_of(self, file: SimulatedFile) -> FileBegin:
        found = FileBegin()
        for units in self.units(file):
            ok = consumequeue.is_unit(units.offset, units.size)
            n = leading(ok)
            if n:
                greatest = max(found.greatest, int(units.offset[:n].max()))
                found = FileBegin(units.at + n * UNIT_SIZE, greatest, int(units.offset[n - 1]), int(units.size[n - 1]))
            if n < len(ok):
                break
        return found

    def truncate(self, log_end: int) -> None:
        """Truncate as ConsumeQueue#truncateDirtyLogicFiles does: it ignores the size in unit 0 of a file."""
        if self._recovered is not None:
            recovered, greatest = self._recovered
            self._recovered = None
            if recovered is self.files.last() and not recovered.added and greatest < log_end:
                return  # nothing has changed since `recover` read the file, which is most of the work
        self.max_physic_offset = log_end
        while (file := self.files.last()) is not None:
            file.wrote = 0
            first, size = self.unit_at(file, 0)
            if first >= log_end:
                self.files.delete_last()
                continue
            file.wrote = UNIT_SIZE
            self.max_physic_offset = self._address(first, size)
            for units in self.units(file):
                skip = 1 if units.at == 0 else 0
                offset, sizes = units.offset[skip:], units.size[skip:]
                ok = consumequeue.is_unit(offset, sizes) & (offset < log_end)
                n = leading(ok)
                if n:
                    file.wrote = units.at + (skip + n) * UNIT_SIZE
                    self.max_physic_offset = self._address(int(offset[n - 1]), int(sizes[n - 1]))
                if n < len(ok):
                    break
            return

    def put(self, address: int, size: int, queue_offset: int, *, misplaced: bool = False) -> None:
        """Add the unit of one message (ConsumeQueue#putMessagePositionInfo).

        `misplaced`: its record has the PHYSICALOFFSET of another place, as in swapped log files.
        """
        if self._address(address, size) <= self.max_physic_offset:
            return
        expected = wrapped_long(queue_offset * UNIT_SIZE)
        file = self.files.last_for_append(expected)
        if file.first_created and queue_offset != 0 and file.wrote == 0:
            self.min_logic_offset = expected
            until = java_divmod(expected, self.files.file_size)[1]
            if until > 0:  # not a multiple of a unit after an overflow
                blanks = -(-until // UNIT_SIZE)
                self._append(file, np.zeros(blanks, np.int64), np.full(blanks, PRE_BLANK_SIZE))
        if queue_offset != 0:
            current = file.wrote + file.start
            if expected < current:
                return
            if expected != current:
                self._note_shift(current, 1, queue_offset)
        self.max_physic_offset = self._address(address, size)
        if file.wrote < self.files.file_size:
            self._append(file, np.array([address]), np.array([size]), misplaced=misplaced)
            self.dispatched += 1

    def _note_shift(self, at: int, count: int, queue_offset: int) -> None:
        new = ShiftedUnits(at // UNIT_SIZE, at // UNIT_SIZE + count, queue_offset)
        while self._shifted and self._shifted[-1].stop > new.start:  # the queue has been truncated since
            last = self._shifted.pop()
            if last.start < new.start:
                self._shifted.append(last._replace(stop=new.start))
        if self._shifted and self._shifted[-1].goes_on(new):
            new = ShiftedUnits(self._shifted[-1].start, new.stop, self._shifted.pop().queue_offset)
        self._shifted.append(new)

    def put_many(self, address: Int64s, size: Int64s, queue_offset: Int64s) -> None:
        """Add the units of messages in log order; runs without gaps in one step, as `put` would one by one."""
        end = self._address(address, size)
        i, n = 0, len(address)
        breaks = np.flatnonzero((np.diff(queue_offset) != 1) | (np.diff(address) <= 0)) + 1
        while i < n:
            if end[i] <= self.max_physic_offset:
                beyond = end[i:] > self.max_physic_offset
                if not beyond.any():
                    return
                i += int(np.argmax(beyond))
            file = self.files.last()
            if file is None or not 0 < file.wrote < self.files.file_size or not 0 < queue_offset[i] <= _LAST_UNIT:
                self.put(int(address[i]), int(size[i]), int(queue_offset[i]))
                i += 1
                continue
            k = int(np.searchsorted(breaks, i, side="right"))
            stop = int(breaks[k]) if k < len(breaks) else n
            current = file.start + file.wrote
            early = -(-current // UNIT_SIZE) - int(queue_offset[i])
            if early > 0:  # these units exist already
                i = min(stop, i + early)
                continue
            stop = min(stop, i + max(1, (self.files.file_size - file.wrote) // UNIT_SIZE))
            if int(queue_offset[i]) * UNIT_SIZE != current:
                self._note_shift(current, stop - i, int(queue_offset[i]))
            self._append(file, address[i:stop], size[i:stop])
            self.max_physic_offset = self._address(int(address[stop - 1]), int(size[stop - 1]))
            self.dispatched += stop - i
            i = stop

    def _append(self, file: SimulatedFile, address: Int64s, size: Int64s, *, misplaced: bool = False) -> None:
        while file.added and file.added[-1].at >= file.wrote:  # truncated since: this span is overwritten
            file.added.pop()
        before = file.added[-1] if file.added else None
        if before is not None and before.stop > file.wrote:
            before.cut(file.wrote, *self.unit_at(file, file.wrote - UNIT_SIZE))
        # those of misplaced records may point beyond the end at which the queue is truncated
        first, keeps = int(address[0]), self.keeps_units or misplaced
        joins = before is not None and before.stop == file.wrote and 0 < before.last < first
        joins = joins and before is not None and before.misplaced == misplaced
        if before is None or not joins or (before.kept is not None) != keeps:
            before = WrittenUnits(file.wrote, file.wrote, first, first, 0, bytearray() if keeps else None, misplaced)
            file.added.append(before)
            if keeps and not misplaced:
                self._kept.append(before)
        file.wrote += len(address) * UNIT_SIZE
        before.stop, before.last, before.last_size = file.wrote, int(address[-1]), int(size[-1])
        if before.kept is not None:
            rows = np.zeros(len(address), consumequeue.UNIT.dtype)
            rows["commitlog_offset"], rows["size"] = address, size
            before.kept += rows.tobytes()

    def outline(self) -> None:
        """Drop the bytes of kept units; keep only outlines."""
        for span in self._kept:
            span.kept = None
        self._kept.clear()

    # --- minimum offset -------------------------------------------------------------------------------------------

    def correct_min_offset(self, log_start: int) -> None:
        """Set the minimum offset (ConsumeQueue#correctMinOffset).

        Errors: StartFails where the Java code throws (5.0.0 to 5.4.0).
        """
        if self.rules.binary_min_offset:
            self._correct_by_binary_search(log_start)
        else:
            self._correct_linearly(log_start)

    def _correct_linearly(self, log_start: int) -> None:
        if not self.files.files:
            return
        file = self.files.files[0]
        for units in self.units(file):
            left = (file.wrote - units.at) // UNIT_SIZE
            if left <= 0:
                return
            hits = np.flatnonzero(units.offset[:left] >= log_start)
            if len(hits):
                self.min_logic_offset = file.start + units.at + int(hits[0]) * UNIT_SIZE
                return

    def _correct_by_binary_search(self, log_start: int) -> None:
        last = self.files.last()
        if last is None:
            if self.rules.forgets_end_of_empty_queue:
                self.min_logic_offset, self.max_physic_offset = 0, -1
            return
        if self.min_logic_offset >= self.files.max_offset():
            return
        if last.wrote - UNIT_SIZE < 0 and self.rules.empty_last_queue_file_is_fatal:
            empty = Text("consume queue {topic}/{id} ends with an empty file after a full one")
            raise StartFails(
                empty.format(topic=self.topic, id=self.queue_id),
                "load exception java.lang.IllegalArgumentException",
            )
        if last.wrote >= UNIT_SIZE and self.unit_at(last, last.wrote - UNIT_SIZE)[0] < log_start:
            self.min_logic_offset = last.start + last.wrote
            return
        file = self.files.files[0]
        start = self.min_logic_offset - file.start
        intact = start >= 0
        start = max(0, start)
        if start >= file.wrote:
            return
        if intact and self.unit_at(file, start)[0] >= log_start:
            return
        low, high = 0, file.wrote - start - UNIT_SIZE
        while high - low > UNIT_SIZE:
            mid = (low + high) // 2 // UNIT_SIZE * UNIT_SIZE
            address = self.unit_at(file, start + mid)[0]
            if address > log_start:
                high = mid
            elif address == log_start:
                low = high = mid
                break
            else:
                low = mid
        for i in range(low, high + 1, UNIT_SIZE):
            if self.unit_at(file, start + i)[0] >= log_start:
                self.min_logic_offset = file.start + start + i
                return

    def destroy(self) -> None:
        """Delete all files (ConsumeQueue#destroy)."""
        self.max_physic_offset = -1
        self.min_logic_offset = 0
        self.files.destroy()

    def units_put(self) -> tuple[tuple[int, int], ...]:
        """Return the half-open intervals of unit numbers that the simulated start wrote for messages."""
        out: list[tuple[int, int]] = []
        for file in self.files.files:
            for span in file.added:
                low, high = (file.start + span.at) // UNIT_SIZE, (file.start + min(span.stop, file.wrote)) // UNIT_SIZE
                if low >= high or consumequeue.is_pre_blank(span.last, span.last_size):
                    continue
                if out and out[-1][1] == low:
                    low = out.pop()[0]
                out.append((low, high))
        return tuple(out)

    def ghost_units(self) -> int:
        """Count valid units on disk after the end in the last file: the next start would count them as its own."""
        file = self.files.last()
        if file is None:
            return 0
        count = 0
        at, block = file.wrote, UNIT_SIZE  # mostly there is none
        while at + UNIT_SIZE <= self.files.file_size:
            raw = self.files.read(file, min(block, self.files.file_size - at), at)
            raw = raw[: len(raw) // UNIT_SIZE * UNIT_SIZE]
            if not raw:
                break
            table = consumequeue.UNIT.array(raw)
            ok = consumequeue.is_unit(table["commitlog_offset"], table["size"])
            n = leading(ok)
            count += n
            if n < len(ok):
                break
            at, block = at + len(raw), _FIRST_BLOCK
        return count


_BATCH_BLOCK = 1424 * BATCH_UNIT_SIZE


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
        self.shifted: tuple[ShiftedUnits, ...] = ()
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
        for at in range(0, self.files.file_size - BATCH_UNIT_SIZE + 1, _BATCH_BLOCK):
            raw = self.files.read(file, min(_BATCH_BLOCK, self.files.file_size - at), at)
            table = consumequeue.BATCH_UNIT.array(raw)
            for i in range(_BATCH_BLOCK // BATCH_UNIT_SIZE):
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
