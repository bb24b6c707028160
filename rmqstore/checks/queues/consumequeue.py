"""Compare simple consume queues with the log: missing units, units without a message, ends, extensions.

The pass over the log has compared the messages with their units (`log/queue_parts.py`). This module checks the
remaining units, and reports the messages without a unit. `rocksdb.py` has a subclass for queues in RocksDB.

The units of an extension form a chain by their sizes; addresses in a consume queue point to them.
Source: ConsumeQueueExt#recover, #get (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqstore.checks.foreign_files import report_held
from rmqstore.checks.log.logs import (
    ANOTHER_RECORD,
    IN_A_BLANK,
    NO_RECORD,
    Held,
    Logs,
    UnownedUnit,
    are_of_another_queue,
    row_facts,
    rows,
)
from rmqstore.checks.log.queue_parts import KEPT, Missing, QueuePart
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.formats.message import TRANSACTION_COMMIT, Fault, check_message
from rmqstore.formats.services import is_sound_topic, one_bit_apart
from rmqstore.scan.kernels import I64, Bool, consecutive, leading, within
from rmqstore.scan.units import UnitArray, last_nonzero_in, recovery_end, unit_chunks
from rmqstore.texts import Text


def complement(intervals: list[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of [start, stop) that are in none of the intervals, which may overlap, in any order."""
    at = start
    for a, b in sorted(intervals):
        if a > at:
            yield at, min(a, stop)
        at = max(at, b)
        if at >= stop:
            return
    if at < stop:
        yield at, stop


class QueueChunk(NamedTuple):
    """Consecutive units as columns, the first at index `start`; `valid`: which can be units."""

    start: int
    offset: I64
    size: I64
    tags: I64
    valid: Bool


class QueueCheck:
    """One consume queue; `part` are its messages in the log, as the pass over the log compared them with the units."""

    def __init__(self, store: Store, files: ConsumeQueueFiles, logs: Logs, findings: Findings) -> None:
        self.store = store
        self.files = files
        self.queue = files.queue
        self.part = part = logs.queues.get((files.topic, files.queue_id), QueuePart(0, 0, 0, 0))
        self.logs = logs
        self.findings = findings
        self.label = files.label
        self.end = part.units_end  # after the last valid unit, in units
        self.first = part.first_unit
        self.pre_blanks: list[tuple[int, int]] = []
        self._blank_to = 0
        self.expired_to = 0
        self.outlier_units = {o.expected: o for o in part.outliers if o.expected is not None}
        self.outlier_rows = {o.got for o in part.outliers}
        self.loose: list[UnownedUnit] = []
        self.into_damage: Counter[int | None] = Counter()  # units by start of the damage

    def check_units(self) -> None:
        """Check every unit that is not accounted for."""
        self._check_files()
        for a, b in complement(self.part.accounted, *self._span()):
            for number, units in self._units(a, b):
                self._check_chunk(number, units)
        self._report_unowned()
        self._check_pre_blanks()
        if self._may_go_on():
            self.logs.witnesses.cut.add((self.files.topic, self.files.queue_id))

    def _may_go_on(self) -> bool:
        """Return whether units may be gone after the last one: their file was cut, has only zeros, or was moved.

        Beside damage in the log, also whether no file is left.
        Source: MappedFileQueue#getLastMappedFile (4.9.7 to 5.5.1) creates a file when a unit is to be written into it
        """
        if not self.queue.files:
            return self.logs.empties_queues
        last = self.queue.files[-1]
        end = self._readable_end * UNIT_SIZE - last.start
        return end <= 0 or bool(self.part.shifted) or (last.length < last.file_size and last.length - end < UNIT_SIZE)

    def _span(self) -> tuple[int, int]:
        """Return the first unit, and the one after the last unit."""
        return self.queue.start // UNIT_SIZE, self.queue.stop // UNIT_SIZE

    def _units(self, start: int, stop: int) -> Iterator[tuple[int, UnitArray]]:
        """Yield the units [start, stop) in chunks of (index of the first, units)."""
        for chunk in unit_chunks(self.queue, consumequeue.UNIT, start=start * UNIT_SIZE, stop=stop * UNIT_SIZE):
            yield chunk.number, chunk.units

    def _queue_of(self, topic: str, queue_id: int) -> MappedFileQueue:
        return self.store.consume_queue(topic, queue_id).queue

    def check_without_log(self) -> None:
        """Check the units without their messages."""
        self._check_files()
        end = recovery_end(self.queue)
        self.end = end.end // UNIT_SIZE
        before = -1
        for chunk in unit_chunks(self.queue, consumequeue.UNIT):
            offset: I64 = chunk.units["commitlog_offset"].astype(np.int64)
            size: I64 = chunk.units["size"].astype(np.int64)
            index = np.arange(chunk.number, chunk.number + len(offset))
            self.pre_blanks.extend(_stretches(index[consumequeue.is_pre_blank(offset, size)]))
            real = np.flatnonzero(consumequeue.is_message_unit(offset, size) & (index < self.end))
            if len(real) and self.first < 0:
                self.first = int(index[real[0]])
            falls = real[np.flatnonzero(np.diff(np.concatenate(([before], offset[real]))) <= 0)] if len(real) else real
            for i in falls[:KEPT].tolist():
                facts: dict[str, Fact] = {"queue_offset": int(index[i]), "commitlog_offset": int(offset[i])}
                self._add(codes.CQ_OUT_OF_ORDER, int(index[i]), 1, facts)
            before = int(offset[real[-1]]) if len(real) else before
            ghosts = (index >= self.end) & ((offset != 0) | (size != 0))
            for a, b in _stretches(index[ghosts]):
                self._add(codes.CQ_GHOST_UNITS, a, b - a, {"queue_offset": a, "units": b - a, "end": self.end})
        self._check_pre_blanks()

    def _check_files(self) -> None:
        """Report missing files and an empty last file."""
        for low, high in self.queue.holes():
            facts: dict[str, Fact] = {"queue_offset": low // UNIT_SIZE, "units": (high - low) // UNIT_SIZE}
            self.findings.add(Finding(codes.CQ_MISSING_FILE, self.label, "", low, high - low, facts))
        if self.queue.files:
            last = self.queue.files[-1]
            if self.end * UNIT_SIZE <= last.start and last_nonzero_in(last, UNIT_SIZE) is None:
                self.findings.add(Finding(codes.CQ_ZERO_LAST_FILE, self.label, last.name, last.start, last.length))

    @property
    def _readable_end(self) -> int:
        """Index after the last valid or expired unit."""
        return max(self.end, self.expired_to)

    @property
    def _next_unit(self) -> int:
        """Index at which a broker reads on: after the last unit, or after the pre-blanks at the queue's start."""
        return max(self._readable_end, self._blank_to)

    def _check_chunk(self, start: int, units: UnitArray) -> None:
        """Check consecutive units, the first at index `start`, that no message accounts for."""
        offset: I64 = units["commitlog_offset"].astype(np.int64)
        size: I64 = units["size"].astype(np.int64)
        tags: I64 = units["tags_code"].astype(np.int64)
        used: Bool = (offset != 0) | (size != 0) | (tags != 0)
        if not used.any():
            return
        chunk = QueueChunk(start, offset, size, tags, consumequeue.is_unit(offset, size))
        blank: Bool = consumequeue.is_pre_blank(offset, size)
        expired: Bool = chunk.valid & ~blank & (offset < self.logs.min_offset)
        for a, b in _stretches(np.flatnonzero(blank)):
            self.pre_blanks.append((start + a, start + b))
            if start + a in (self.queue.start // UNIT_SIZE, self._blank_to):
                self._blank_to = start + b
        if expired.any():
            self.expired_to = max(self.expired_to, start + int(np.flatnonzero(expired)[-1]) + 1)
        self._witness(chunk, expired)
        rest = np.flatnonzero(used & ~blank & ~expired)
        is_tail = rest >= self._next_unit - start
        for i in rest[~is_tail].tolist():
            self._check_unit(chunk, i)
        self._check_tail(chunk, rest[is_tail])

    def _witness(self, chunk: QueueChunk, expired: Bool) -> None:
        """Note what these units list before the log, and outside of its records."""
        name, witnesses = (self.files.topic, self.files.queue_id), self.logs.witnesses
        gone = expired & (chunk.offset < witnesses.begin)
        witnesses.add_expired(name, chunk.start + np.flatnonzero(gone))
        offset = np.where(gone, -1, chunk.offset)
        for a, b, by in self._places(chunk.start, chunk.start + len(offset)):
            rows = slice(a - chunk.start, b - chunk.start)
            witnesses.add_units(name, self.part, a - by, offset[rows], chunk.size[rows])
        if any(result.body_offset for result in self.logs.results):
            self._find_whole(name, chunk)

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts [a, b) of a range of units, and how much too high they stand, as others of their file do."""
        moved = [(s.start, s.by) for s in self.part.shifted]
        if not moved:
            yield start, stop, 0
            return
        inside = {at for s in self.part.shifted for at in (s.start, s.stop)}
        known = sorted([*moved, *((a, 0) for a, _ in self.part.accounted if a not in inside)])
        per_file = self.queue.file_size // UNIT_SIZE
        files = range(start - start % per_file, stop, per_file)
        for a, b in pairwise(sorted({start, stop, *(at for at, _ in known if start < at < stop), *files[1:]})):
            same = [(at, by) for at, by in known if at // per_file == a // per_file]
            before = [by for at, by in same if at <= a]
            yield a, b, before[-1] if before else same[0][1] if same else 0

    def _find_whole(self, name: QueueName, chunk: QueueChunk) -> None:
        """Note units whose message is whole, although the header of its DLedger entry is damaged.

        Brokers read the message by its unit, without the header.
        """
        damaged = within(self.logs.witnesses.outside, chunk.offset) & chunk.valid
        for row in np.flatnonzero(damaged)[:KEPT].tolist():
            number, offset, size = chunk.start + row, int(chunk.offset[row]), int(chunk.size[row])
            message = self.logs.record(offset, size) if self.logs.damaged(offset) else None
            if message is None or message.size != size or check_message(message, offset) is not Fault.NONE:
                continue
            if (message.topic_text, message.queue_id, message.queue_offset) == (*name, number):
                self.logs.witnesses.whole.setdefault(name, []).append((number, offset))
                self.logs.witnesses.name_offsets(chunk.offset[row : row + 1], chunk.size[row : row + 1])

    def _check_tail(self, chunk: QueueChunk, rows: I64) -> None:
        """Check units after the end. A broker reads those that follow it directly; others are ghosts."""
        end = self._readable_end
        for a, b in _stretches(rows):
            if chunk.start + a == self._next_unit:
                good = chunk.valid[a:b]
                stop = a + leading(good)
                beyond = chunk.offset[a:stop] + chunk.size[a:stop] > self.logs.wrote
                if self.logs.grows and beyond.any():  # dispatched during the check
                    self.end = max(self.end, chunk.start + stop)
                    continue
                for i in (a + np.flatnonzero(~beyond)).tolist():
                    self._check_unit(chunk, i)
                for x, y in _stretches(a + np.flatnonzero(beyond)):
                    facts: dict[str, Fact] = {
                        "queue_offset": chunk.start + x,
                        "units": y - x,
                        "commitlog_offset": int(chunk.offset[x]),
                        "wrote": self.logs.wrote,
                    }
                    self._add(codes.CQ_BEYOND_LOG, chunk.start + x, y - x, facts)
                self.end = max(self.end, chunk.start + stop)
                a = stop
            if a < b:
                first = chunk.start + a
                self._add(codes.CQ_GHOST_UNITS, first, b - a, {"queue_offset": first, "units": b - a, "end": end})

    def _add(self, code: str, index: int, units: int, facts: Mapping[str, Fact]) -> None:
        self.findings.add(self._finding(code, index, units, facts))

    def _finding(self, code: str, index: int, units: int, facts: Mapping[str, Fact]) -> Finding:
        at = index * UNIT_SIZE
        return Finding(code, self.label, self.queue.name_at(at), at, units * UNIT_SIZE, facts)

    def _check_unit(self, chunk: QueueChunk, i: int) -> None:
        """Check one unit that no message of this queue accounts for."""
        index, offset, size, tags = chunk.start + i, int(chunk.offset[i]), int(chunk.size[i]), int(chunk.tags[i])
        facts: dict[str, Fact] = {"queue_offset": index, "commitlog_offset": offset, "size": size, "tags_code": tags}
        if not chunk.valid[i]:
            self._add(codes.CQ_DANGLING_UNIT, index, 1, facts | {"reason": Text("no valid unit")})
            return
        known = self.outlier_units.get(index)
        if known is not None and known.at == offset:
            return  # the unit is right, but QUEUEOFFSET of the record is wrong, which has its own finding
        if self.logs.damaged(offset):  # the unit is right, but its record is damaged, which has its own finding
            self.into_damage[self.logs.damage_at(offset)] += 1
            return
        file = self.logs.file_start(offset)
        if self.logs.blank_at(offset) is not None:  # no broker reads the bytes in a BLANK
            if self.logs.hidden(offset, size) and not any(m.start <= index < m.stop for m in self.part.missing):
                self.into_damage[self.logs.damage_at(offset)] += 1
            else:
                self.loose.append(UnownedUnit(index, offset, size, tags, file, IN_A_BLANK))
            return
        message = self.logs.record(offset, size)
        if message is None:
            self.loose.append(UnownedUnit(index, offset, size, tags, file, NO_RECORD))
            return
        topic, queue_id = message.topic_text, message.queue_id
        if (topic, queue_id) == (self.files.topic, self.files.queue_id):
            facts |= {"topic": topic, "queue_id": queue_id, "message_queue_offset": message.queue_offset}
            code = codes.CQ_SHIFTED if message.transaction_type in (0, TRANSACTION_COMMIT) else codes.CQ_DANGLING_UNIT
            self._add(code, index, 1, facts)
            return
        owned = self._owned(topic, queue_id, message.queue_offset, offset)
        if not owned and size != message.size:  # a log of another broker has some records at the same offsets too
            self.loose.append(UnownedUnit(index, offset, size, tags, file, ANOTHER_RECORD))
            return
        place = (topic, queue_id, message.queue_offset, message.size, owned, is_sound_topic(message.topic))
        self.loose.append(UnownedUnit(index, offset, size, tags, file, "", *place))

    def _report_unowned(self) -> None:
        """Decide what the unowned units are: of another queue, of another log, or right although the record is wrong.

        `Pointing` holds back findings that one finding about a whole file or store may replace.
        """
        pointing = self.logs.pointing
        fit = sum(b - a for a, b in self.part.accounted) - sum(s.stop - s.start for s in self.part.shifted)
        pointing.fit += fit
        pointing.loose += len(self.loose)
        most_fit = len(self.loose) < 2 or len(self.loose) <= fit
        topics = self.logs.topics
        if topics is None:
            topics = frozenset(topic for topic, _ in self.logs.queues)
        moved = self._note_moved(fit)
        self._report_lost(moved)
        for row in rows(self.loose):
            one, count = row[0], len(row)
            known = (self.files.topic in topics or one.topic not in topics) and not self._is_renamed(one, fit)
            if one.reason:
                pointing.nowhere[one.file] += count
                self._hold(codes.CQ_DANGLING_UNIT, row, {"reason": one.reason})
            elif moved or are_of_another_queue(row, fit, known):
                about: dict[str, Fact] = {"right_queue": f"{one.topic}/{one.queue_id}", "has_its_own": one.owned}
                self._hold(codes.CQ_OTHER_QUEUE, row, about)
            else:
                for unit in row:
                    of_another = unit.owned or self._is_right(unit)
                    if of_another or not most_fit or properties.is_lmq(self.files.topic):
                        about = {"topic": unit.topic, "queue_id": unit.queue_id}
                        self._hold(codes.CQ_WRONG_QUEUE, [unit], about | {"message_queue_offset": unit.queue_offset})
                    else:
                        self._misfiled(unit)
        self.loose = []

    def _report_lost(self, moved: bool) -> None:
        """Note the units that point into damage. If the directory is of another queue, they count for that one."""
        name = self.files.topic, self.files.queue_id
        owner = self.logs.pointing.moved[name] if moved else name
        for start, units in self.into_damage.items():
            if start is not None and owner is not None:
                self.logs.pointing.damaged(start, owner[0], units)
        self.into_damage.clear()

    def _is_right(self, unit: UnownedUnit) -> bool:
        """Return whether a record is right where it is: its place in this queue is taken, or it is unlike one of it.

        That is one of an unlike topic, or with two other fields, that continues the records of its own queue.
        """
        own = self.logs.queues.get((unit.topic, unit.queue_id))
        same_topic = unit.topic == self.files.topic
        two = same_topic and unit.queue_id != self.files.queue_id and unit.queue_offset != unit.number
        if two or not (same_topic or one_bit_apart(unit.topic, self.files.topic)):
            return own is not None and own.messages > 1 and not own.is_odd(unit.offset)
        return self.part.has_message(unit.number)

    def _is_renamed(self, unit: UnownedUnit, fit: int) -> bool:
        """Return whether the directory, without a good unit, can be the missing one of a queue with a lower id."""
        lower = unit.topic == self.files.topic and unit.queue_id < self.files.queue_id
        return not fit and lower and not self._queue_of(unit.topic, unit.queue_id).stop

    def _note_moved(self, fit: int) -> bool:
        """Note in `Pointing` if the directory is of another queue, or of another log; return whether of another queue.

        `fit`: number of good units. Of another log: most units meet no message, and few fit, as by chance.
        """
        others = [one for one in self.loose if not one.reason]
        owners = {(one.topic, one.queue_id) for one in others}
        of_another_queue = not fit and len(owners) == 1 and len(others) > 1
        of_another_log = len(self.loose) > max(1, 2 * fit) and 2 * len(others) < len(self.loose)
        if of_another_queue or of_another_log:
            owner = owners.pop() if of_another_queue and not others[0].owned else None
            self.logs.pointing.move((self.files.topic, self.files.queue_id), owner)
        return of_another_queue

    def _hold(self, code: str, row: list[UnownedUnit], about: dict[str, Fact]) -> None:
        finding = self._finding(code, row[0].number, len(row), row_facts(row) | about)
        self.logs.pointing.held.append(Held(finding, row[0].file if row[0].reason else -1))

    def _misfiled(self, unit: UnownedUnit) -> None:
        """Report a record with a wrong topic or queue id: this unit is right, because no other points to the record."""
        logs = self.logs
        logs.misfiled.offsets.add(unit.offset)
        logs.misfiled.units.add((self.files.topic, self.files.queue_id, unit.number))
        if not unit.sound:
            return  # the invalid topic has its own finding
        facts: dict[str, Fact] = {
            "topic": unit.topic,
            "queue_id": unit.queue_id,
            "queue_offset": unit.queue_offset,
            "unit_topic": self.files.topic,
            "unit_queue_id": self.files.queue_id,
            "unit_queue_offset": unit.number,
        }
        log = logs.at(unit.offset)
        if log is not None:
            self.findings.add(
                log.finding(codes.CL_HEADER, unit.offset - log.body_offset, unit.length + log.body_offset, facts)
            )

    def _owned(self, topic: str, queue_id: int, queue_offset: int, offset: int) -> bool:
        """Return whether a message has its own unit in its own queue."""
        part = self.logs.queues.get((topic, queue_id))
        if part is None or not part.has_unit(queue_offset):
            return False
        unit = self._queue_of(topic, queue_id).unit(consumequeue.UNIT, queue_offset)
        return unit is not None and unit["commitlog_offset"] == offset

    def check_shifted(self) -> None:
        """Report units at another index than the queue offset of their message, and units out of order."""
        stretches = [
            s
            for s in self.part.shifted
            if not (s.stop - s.start == 1 and s.start in self.outlier_units and s.start - s.by in self.outlier_rows)
        ]
        stretches.sort(key=lambda s: s.start - s.by)
        i = 0
        while i < len(stretches):
            low, high, j = stretches[i].start, stretches[i].stop, i + 1
            while j < len(stretches) and stretches[j].start < high:  # queue offsets increase, but units do not
                low = min(low, stretches[j].start)
                j += 1
            if j > i + 1:
                self._add(codes.CQ_OUT_OF_ORDER, low, high - low, {"queue_offset": low, "units": high - low})
            else:
                s = stretches[i]
                facts: dict[str, Fact] = {"queue_offset": s.start - s.by, "stands_at": s.start, "units": high - low}
                self._add(codes.CQ_SHIFTED, s.start, s.stop - s.start, facts)
            i = j

    def _check_pre_blanks(self) -> None:
        """Check pre-blank units: they are normal before the first real unit, if the log has none of their messages."""
        if not self.pre_blanks:
            return
        first = self.first
        if first < 0 and self._readable_end == 0:
            a, b = self.pre_blanks[0][0], self.pre_blanks[-1][1]
            self._add(codes.CQ_PRE_BLANK_ONLY, a, b - a, {"units": b - a})
            return
        for a, b in self.pre_blanks:
            if first >= 0 and a > first:
                self._add(codes.CQ_BAD_PRE_BLANK, a, b - a, {"queue_offset": a, "units": b - a})
                continue
            count = sum(min(b, m.stop) - max(a, m.start) for m in self.part.missing if m.start < b and a < m.stop)
            if count > 0:
                self._add(codes.CQ_PARTLY_REBUILT, a, b - a, {"pre_blanks": b - a, "messages": count, "first_unit": b})

    def still_missing(self) -> Iterator[Missing]:
        """Yield the messages without a unit that no other finding explains.

        If such a stretch had to be divided, the unknown log offset at the cut is -1.
        """
        folded = list(self.pre_blanks) + [(a // UNIT_SIZE, b // UNIT_SIZE) for a, b in self.queue.holes()]
        restart = max(self.part.restarts, default=-1)
        for m in self.part.missing:
            if m.last_at < restart or (m.count == 1 and m.start in self.outlier_rows):
                continue
            for a, b in complement(folded, m.start, m.stop):
                if a < self.end and any(self.queue.pread(UNIT_SIZE, a * UNIT_SIZE)):
                    continue  # another unit is in its place, and has its own finding
                yield Missing(a, b, m.first_at if a == m.start else -1, m.last_at if b == m.stop else -1)

    def dispatched(self) -> int:
        """Return the end (global offset) of the message of the last accounted unit; -1 without accounted units."""
        if not self.part.accounted:
            return -1
        unit = self.queue.unit(consumequeue.UNIT, self.part.units_end - 1)
        return unit["commitlog_offset"] + unit["size"] if unit is not None else -1

    def state(self) -> QueueState:
        """Return minimum and maximum offset for readers, and the maximum according to the log."""
        high = self._readable_end
        low = self.first if self.first >= 0 else high
        expected = self.part.next if self.part.messages else high
        return QueueState(low, high, max(expected, 0))


def _stretches(sorted_index: I64) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive numbers as half-open intervals."""
    for a, b in consecutive(sorted_index):
        yield int(sorted_index[a]), int(sorted_index[b - 1]) + 1


def check_consume_queues(
    store: Store,
    logs: Logs,
    findings: Findings,
    checks: Iterable[QueueCheck] | None = None,
    without: Collection[QueueName] = (),
) -> dict[str, QueueState]:
    """Check all simple consume queues against the log, and return their states.

    `checks`: one for each queue; None: for the files of consumequeue/. `without`: queues of the log that need not
    exist.
    """
    if checks is None:
        checks = (QueueCheck(store, files, logs, findings) for files in store.consume_queues(QueueKind.SIMPLE))
    states: dict[str, QueueState] = {}
    seen: set[QueueName] = set()
    dispatched = -1
    incomplete: list[tuple[QueueName, QueuePart, MappedFileQueue]] = []
    for check in checks:
        check.check_units()
        check.check_shifted()
        name = (check.files.topic, check.files.queue_id)
        seen.add(name)
        states[check.label] = check.state()
        dispatched = max(dispatched, check.dispatched())
        if check.part.missing:
            incomplete.append((name, replace(check.part, missing=list(check.still_missing())), check.queue))
    for name, part in sorted(logs.queues.items()):
        if name not in seen and name not in without and part.missing:
            incomplete.append((name, part, MappedFileQueue(name[0], [], UNIT_SIZE, [])))
            states[f"{name[0]}/{name[1]}"] = QueueState(0, 0, part.next)
    report_held(store, logs, findings)
    _report_missing(incomplete, dispatched, logs, findings)
    return states


def _report_missing(
    queues: list[tuple[QueueName, QueuePart, MappedFileQueue]], dispatched: int, logs: Logs, findings: Findings
) -> None:
    """Report messages without a unit. Those after all dispatched messages are only waiting, if a lag is normal."""
    waiting: list[Missing] = []
    for name, part, queue in queues:
        lost: list[Missing] = []
        for m in part.missing:
            if logs.misfiled.explains(m):
                continue
            may_wait = logs.lag_is_normal or (logs.committed is not None and m.first_at >= logs.committed)
            (waiting if may_wait and m.first_at >= dispatched else lost).append(m)
        if lost:
            findings.extend(_missing_units(name, lost, queue) if queue.files else [_missing_queue(name, lost, logs)])
    if waiting:
        first = min((m.first_at for m in waiting if m.first_at >= 0), default=-1)
        facts: dict[str, Fact] = {"messages": sum(m.count for m in waiting), "from": first}
        findings.add(Finding(codes.CQ_BEHIND, "consumequeue", "", max(0, first), 0, facts))


def _missing_queue(name: QueueName, lost: list[Missing], logs: Logs) -> Finding:
    topic, queue_id = name
    messages = sum(m.count for m in lost)
    facts: dict[str, Fact] = {"messages": messages, "first_offset": lost[0].first_at, "last_offset": lost[-1].last_at}
    never_deleted = properties.is_system_topic(topic) or properties.is_lmq(topic)
    exists = logs.topics is None or topic in logs.topics or never_deleted
    code = codes.CQ_MISSING_QUEUE if exists else codes.CQ_DELETED_TOPIC
    return Finding(code, f"{topic}/{queue_id}", "", lost[0].start * UNIT_SIZE, messages * UNIT_SIZE, facts)


def _missing_units(name: QueueName, lost: list[Missing], queue: MappedFileQueue) -> Iterator[Finding]:
    for m in lost:
        facts: dict[str, Fact] = {"messages": m.count, "queue_offset": m.start}
        offsets = {"first_offset": m.first_at, "last_offset": m.last_at}
        facts |= {fact: at for fact, at in offsets.items() if at >= 0}
        at = m.start * UNIT_SIZE
        yield Finding(codes.CQ_MISSING_UNIT, f"{name[0]}/{name[1]}", queue.name_at(at), at, m.count * UNIT_SIZE, facts)


def check_queues_alone(store: Store, findings: Findings) -> dict[str, QueueState]:
    """Check simple consume queues without their log.

    It finds invalid units in the middle, commitlog offsets that do not increase, pre-blanks after real units or alone,
    units after the end, and files that are missing or all zero.
    """
    states: dict[str, QueueState] = {}
    for files in store.consume_queues(QueueKind.SIMPLE):
        check = QueueCheck(store, files, Logs([], grows=True), findings)
        check.check_without_log()
        states[files.label] = check.state()
    return states


_LISTED = 1000
_BLOCK = 1 << 20
_SIZE_AT = consumequeue.EXT_UNIT.fields[0].size  # the size field comes first


Broken = Callable[[MappedFile, int, int], None]
"""Takes a file, a position in it, and the invalid size of the unit there."""


def check_queue_extensions(store: Store, findings: Findings) -> None:
    """Check every queue of consumequeue_ext/, and the addresses in its consume queue."""
    for files in store.consume_queues(QueueKind.EXT):

        def report(file: MappedFile, at: int, size: int, label: str = files.label) -> None:
            facts: dict[str, Fact] = {"size": size, "reason": Text("unit size")}
            length = consumequeue.EXT_UNIT.size
            findings.add(Finding(codes.CQ_EXT, label, file.name, file.start + at, length, facts))

        starts = np.fromiter((at for at, _ in ext_units(files, report)), dtype=np.int64)
        _addresses(store, files, starts, findings)


def ext_units(files: ConsumeQueueFiles, broken: Broken) -> Iterator[tuple[int, int]]:
    """Yield (global offset, tags code) of every unit, and call `broken` where the chain of a file breaks."""
    for file in files.queue.files:
        at = 0
        buffer, base = b"", 0
        end = min(file.length, file.file_size)
        while at + _SIZE_AT <= end:
            if not base <= at <= base + len(buffer) - consumequeue.EXT_UNIT.size:
                buffer, base = file.read_at(_BLOCK, at), at
            head = buffer[at - base : at - base + consumequeue.EXT_UNIT.size]
            size = int.from_bytes(head[:_SIZE_AT], "big", signed=True)
            if size in (0, -1):  # -1 closes the file, 0 is its end
                break
            fits = size >= consumequeue.EXT_UNIT.size == len(head) and at + size <= end
            unit = consumequeue.EXT_UNIT.unpack(head) if fits else None
            if unit is None or unit["bitmap_size"] + consumequeue.EXT_UNIT.size != size:
                broken(file, at, size)
                break
            yield file.start + at, int(unit["tags_code"])
            at += size


def _addresses(store: Store, files: ConsumeQueueFiles, starts: I64, findings: Findings) -> None:
    """Report addresses in the consume queue that are not the start of a unit."""
    queue: MappedFileQueue = store.consume_queue(files.topic, files.queue_id).queue
    low = files.queue.start
    for chunk in unit_chunks(queue, consumequeue.UNIT):
        tags: I64 = chunk.units["tags_code"].astype(np.int64)
        rows = np.flatnonzero(consumequeue.is_ext_address(tags) & (chunk.units["size"] > 0))
        if not len(rows):
            continue
        real = consumequeue.ext_offset(tags[rows])
        missing = ~np.isin(real, starts) & (real >= low)
        for i in rows[missing][:_LISTED].tolist():
            at = chunk.start + i * consumequeue.UNIT_SIZE
            facts: dict[str, Fact] = {
                "queue_offset": chunk.number + i,
                "address": int(tags[i]),
                "reason": Text("no unit there"),
            }
            findings.add(Finding(codes.CQ_EXT, files.label, chunk.file.name, at, consumequeue.UNIT_SIZE, facts))
