"""The solver: for each damaged record the one answer that all witnesses allow.

* `Kept`: its original bytes are proved; the answer names the corrected fields, if any.
* None: nothing proves them. A filler keeps the queue offset if it is known.

The candidates (`candidates.py`) are tried in order, the likeliest first. The solver never takes a candidate that a
witness contradicts, nor one of several that fit.

A filler needs `SMALLEST` bytes, plus DLedger's header. A damaged span that is too short for one is extended by a BLANK
after it. A good message beside it is taken only on request (--merge-neighbours), because it is lost.

Damage at the very end of a log may hide a sound message, if only the header before it was damaged. The solver decides
there, too (`reach`). Records that no witness proves are truncated, as by a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.progress import ConsumerProgress
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.formats import consumequeue, properties
from rmqstore.formats import message as records
from rmqstore.formats.halfrecord import message_with_body
from rmqstore.formats.message import (
    MIN_SIZE,
    PHYSICAL_OFFSET_AT,
    Fault,
    Message,
    check_message,
    fits_record_crc,
    parse_message,
)
from rmqstore.formats.services import light_queues
from rmqstore.repair.repaired_log import first_after, last_before
from rmqstore.repair.salvage.candidates import (
    Kept,
    changed_fields,
    dispatched_flag,
    is_possible,
    mend_fields,
    mend_record_crc,
    put,
    set_fields,
    unflip_body,
)
from rmqstore.repair.salvage.evidence import Evidence, Expected, Known, QueueSlot, in_gap, key_of
from rmqstore.repair.salvage.fillers import SMALLEST
from rmqstore.repair.salvage.framed import usable
from rmqstore.repair.salvage.layout import Cell, SpanLayout, index_bounds, lay_out
from rmqstore.repair.salvage.places import Around, Damage, Neighbours, entries_begin, find_damage
from rmqstore.repair.salvage.whole_bodies import keep_body, mend_text
from rmqstore.scan.tiling import Kind, Run


class _RecordBeside(NamedTuple):
    """A good record beside a span; in DLedger data `start` is the start of its entry."""

    start: int
    stop: int
    message: Message


def slot_of(message: Message, levels: properties.DelayLevels) -> QueueSlot | None:
    """Return the queue offset in a record's header; None if no queue contains the record."""
    if not message.is_dispatched or message.queue_offset < 0 or message.queue_id < 0:
        return None
    topic = message.topic_text
    if properties.property_faults(message.properties):
        return QueueSlot(topic, message.queue_id, message.queue_offset)
    found = properties.parse_properties(message.properties)
    code = properties.dispatch_tags_code(topic, found, message.store_timestamp, levels)
    batch = properties.inner_batch(found) if message.sys_flag & records.INNER_BATCH else None
    fan_out = tuple((name, at) for name, _, at in light_queues(topic, message.queue_id, found))
    return QueueSlot(topic, message.queue_id, message.queue_offset, code, batch[1] if batch else 0, fan_out)


def take_in_blanks(damages: Sequence[Damage]) -> list[Damage]:
    """Extend short spans directly before a BLANK to the end of their file: a new BLANK replaces both."""
    return [_with_blank(d) if _short(d) else d for d in damages]


def take_in_neighbours(
    damages: Sequence[Damage], progress: ConsumerProgress, levels: properties.DelayLevels
) -> list[Damage]:
    """Extend short spans by the good record beside them whose loss costs least, and merge spans that then touch."""
    out: list[Damage] = []
    for i, damage in enumerate(damages):
        if not (out and _touch(out[-1], damage)) and _short(damage):
            after = damages[i + 1].start if i + 1 < len(damages) else None
            damage = _with_neighbour(damage, after, progress, levels)
        if out and _touch(out[-1], damage):
            first = out.pop()
            runs, taken = first.runs + damage.runs, first.taken + damage.taken
            damage = replace(damage, start=first.start, runs=runs, short=first.short + damage.short, taken=taken)
        out.append(damage)
    return out


def _short(damage: Damage) -> bool:
    return not damage.at_end and damage.length < SMALLEST + damage.log.body_offset


def _touch(one: Damage, other: Damage) -> bool:
    return one.log is other.log and one.file is other.file and one.stop == other.start and not one.at_end


def _with_blank(damage: Damage) -> Damage:
    run = damage.log.tiling.find(damage.stop)
    size = damage.log.queue.file_size
    if run is None or run.kind is not Kind.BLANK or run.start != damage.stop or damage.start % size == 0:
        return damage
    if run.stop % size or damage.stop // size != (run.stop - 1) // size:
        return damage
    return replace(damage, stop=run.stop, runs=(*damage.runs, run), at_end=True)


def _with_neighbour(
    damage: Damage, after: int | None, progress: ConsumerProgress, levels: properties.DelayLevels
) -> Damage:
    """Extend a span by one neighbour: preferably one in no queue, else one that most groups have consumed.

    Messages of system topics are the last choice. `after` is the start of the next damage: the record between both
    would merge two spans into a large one.
    """
    sides = list(_sides(damage))
    if not sides:
        return damage

    def cost(side: _RecordBeside) -> tuple[bool, bool, bool, int]:
        slot = slot_of(side.message, levels)
        shared = side.stop == after
        if slot is None:
            return False, False, shared, 0
        return (
            True,
            properties.is_system_topic(slot.topic),
            shared,
            len(progress.groups(slot.places, max(1, slot.count))),
        )

    side = min(sides, key=cost)
    piece = Run(Kind.RECORDS, side.start, side.stop, 1)
    runs = (piece, *damage.runs) if side.start < damage.start else (*damage.runs, piece)
    start, stop = min(side.start, damage.start), max(side.stop, damage.stop)
    return replace(damage, start=start, stop=stop, runs=runs, taken=(side.start,))


def _sides(damage: Damage) -> Iterator[_RecordBeside]:
    """Yield the good records that touch a span, in the same file."""
    log, size = damage.log, damage.log.queue.file_size
    before = last_before(log, damage.start)[-1:] if damage.start % size else ()
    after = first_after(log, damage.stop)[:1] if damage.stop % size else ()
    for start, stop in (*before, *after):
        message = (
            message_at(log.queue, start + log.body_offset) if damage.start == stop or damage.stop == start else None
        )
        if message is not None:
            yield _RecordBeside(start, stop, message)


def taken_cells(damage: Damage, levels: properties.DelayLevels) -> list[Cell]:
    """Return the good records by which a span was extended, as cells."""
    out: list[Cell] = []
    body_offset = damage.log.body_offset
    for start in damage.taken:
        message = message_at(damage.log.queue, start + body_offset)
        if message is not None:
            slot = slot_of(message, levels)
            at = start + body_offset
            expected = None if slot is None else Expected(slot, at, message.size, message.store_timestamp)
            raw = damage.log.queue.pread(message.size, at)
            out.append(Cell(start, body_offset + message.size, expected, message, kept=Kept(raw)))
    return out


@dataclass(frozen=True, slots=True)
class Solver:
    """Finds the answers for the records of damaged spans.

    `accept_odds` accepts corrections with high odds of being wrong.
    """

    evidence: Evidence
    neighbours: Neighbours
    levels: properties.DelayLevels
    accept_odds: bool = False

    def solve(self, damages: Sequence[Damage], known: Known) -> list[SpanLayout]:
        """Return the layout of each span from what is known, with the answer of every cell."""
        named = {expected.slot.key: at for at, expected in known.at.items()}

        def own(message: Message, at: int) -> bool:
            return not message.is_dispatched or self.own_slot(message, at, named) is not None

        out: list[SpanLayout] = []
        for damage in damages:
            bounds = index_bounds(self.evidence.store, damage) if damage.log.body_offset else ()
            out.append(lay_out(damage, known.at, bounds, taken_cells(damage, self.levels), own))
            self._solve(out[-1], named)
        return out

    def _solve(self, layout: SpanLayout, named: Mapping[tuple[str, int, int], int]) -> None:
        """Set the answer of every cell of a span, and search free bytes for records."""
        damage, body_offset = layout.damage, layout.body_offset
        around = self.neighbours.around(damage.stop)
        for cell in layout.cells:
            raw = damage.log.queue.pread(cell.length - body_offset, cell.start + body_offset)
            if cell.kept is not None or cell.given_up or len(raw) < cell.length - body_offset:
                continue
            message = cell.message if cell.expected is None else None
            if cell.expected is None and cell.message is None:
                message = message_with_body(raw)
            if message is not None and message.topic:
                cell.expected = self.own_slot(message, cell.start + body_offset, named)
            cell.kept = self.answer(cell, raw, body_offset, around)
            if cell.kept is not None:
                cell.expected = self._as_kept(cell.kept.record, cell.expected)
        for free in list(layout.free):
            start, length = free.start + body_offset, free.stop - free.start - body_offset
            if free.last or length > MIN_SIZE << 16:
                continue
            raw = damage.log.queue.pread(length, start)
            mended = mend_fields(raw, start, None, around) or self._by_neighbours(raw, start, named, around)
            message = parse_message(mended.record)[0] if mended is not None else None
            one = self.own_slot(message, start, named) if message is not None else None
            if one is not None and mended is not None and message is not None:
                record = mended.record
                if not message.is_dispatched:  # it has a place in its queue
                    record = set_fields(record, sys_flag=dispatched_flag(message)) or record
                layout.free.remove(free)
                layout.cells.append(Cell(free.start, free.stop - free.start, one, kept=Kept(record)))
        layout.cells.sort(key=lambda c: c.start)

    def _by_neighbours(
        self, raw: bytes, at: int, named: Mapping[tuple[str, int, int], int], around: Around
    ) -> Kept | None:
        """Return the record with a whole body whose place only the records around it prove."""
        message = message_with_body(raw)
        expected = self.own_slot(message, at, named) if message is not None and message.topic else None
        if expected is None:
            return None
        return keep_body(raw, at, expected, self.evidence.tags, append_crc=around.append_crc)

    def _as_kept(self, record: bytes, expected: Expected | None) -> Expected | None:
        """Return what is known of a kept record: a CRC may prove another queue or offset than its header had."""
        message = parse_message(record)[0]
        if message is None or not message.is_dispatched:
            return expected
        slot = slot_of(message, self.levels)
        return expected if slot is None or (expected and expected.slot.key == slot.key) else Expected(slot)

    def answer(self, cell: Cell, raw: bytes, body_offset: int, around: Around) -> Kept | None:
        """Return the answer for one record, of which `raw` are the bytes on disk."""
        message, at, expected = cell.message, cell.start + body_offset, cell.expected
        slot = expected.slot if expected is not None else None
        agrees = message is not None and (
            not message.is_dispatched or (slot is not None and key_of(message) == slot.key)
        )
        if message is not None and body_offset and agrees and is_sound(message, raw, at):
            return self._with_sound_text(message, raw, slot)  # only the entry header is wrong
        dispatched = expected is not None and expected.offset == at  # it has a unit, regardless of SYSFLAG
        if message is not None and not message.is_dispatched and not dispatched:
            if expected is not None:
                return None
            here = check_message(replace(message, physical_offset=at), at) is Fault.NONE
            return (
                self._unflip(message, raw, at)
                or mend_record_crc(raw, at, None, accept_odds=self.accept_odds)
                or (mend_fields(raw, at, None, around) if here else None)
            )
        if expected is None:
            return None
        return (
            (self._unflip(message, raw, at) if message is not None and agrees else None)
            or mend_fields(raw, at, expected, around)
            or (self._in_sister_queue(message, raw, at) if message is not None else None)
            or (mend_record_crc(raw, at, expected, accept_odds=self.accept_odds) if message is not None else None)
            or keep_body(raw, at, expected, self.evidence.tags, append_crc=around.append_crc)
        )

    def _in_sister_queue(self, message: Message, raw: bytes, at: int) -> Kept | None:
        """Return the record with the QUEUEID of the other queue of its topic with which the record CRC fits."""
        if not message.carries_crc:
            return None
        for topic, queue_id in self.evidence.logs.queues:
            if topic != message.topic_text or queue_id == message.queue_id:
                continue
            out = bytearray(raw)
            put(out, "queue_id", queue_id)
            record = bytes(out)
            if is_sound(replace(message, queue_id=queue_id), record, at):
                return Kept(record, changed_fields(raw, record))
        return None

    def _with_sound_text(self, message: Message, raw: bytes, slot: QueueSlot | None) -> Kept | None:
        """Return the answer for a record whose checksums fit, with its property text repaired if it is damaged."""
        if not properties.property_faults(message.properties):
            return Kept(raw)
        code = slot.tags_code if slot is not None and slot.topic != properties.SCHEDULE_TOPIC else None
        code = None if code is not None and consumequeue.is_ext_address(code) else code
        mended = mend_text(raw, QueueSlot(*key_of(message), code), self.evidence.tags)
        return mended if mended is not None and usable(message, mended.record) else None

    def own_slot(self, message: Message, at: int, named: Mapping[tuple[str, int, int], int]) -> Expected | None:
        """Return the queue offset in a damaged record's own header, if the records around leave it open.

        If they leave only another one, and its PHYSICALOFFSET is impossible too, so that the record is not an old one,
        it has that one. `named` are the global offsets of slots to which units point: such a slot belongs to the record
        there, although a record of a swapped file claims it. Prepared and rollback records have queue offset 0, so with
        another one, the transaction bits are wrong (CommitLog.DefaultAppendMessageCallback#doAppend).
        """
        if message.queue_offset and not message.is_dispatched:
            message = replace(message, sys_flag=dispatched_flag(message))
        topic, queues = message.topic_text, self.evidence.logs.queues
        part = queues.get((topic, message.queue_id))
        if part is None:  # a queue id that no other record has: that of the only queue with a gap here
            lacking = [
                name for name, one in queues.items() if name[0] == topic and in_gap(one, message.queue_offset, at)
            ]
            if len(lacking) == 1:
                message = replace(message, queue_id=lacking[0][1])
            elif topic not in (self.evidence.logs.topics or ()) and not any(name == topic for name, _ in queues):
                return None
        else:
            numbers = self.evidence.open_offsets(part, at)
            if message.queue_offset not in numbers:
                if len(numbers) != 1 or is_possible(message.physical_offset, at):
                    return None
                message = replace(message, queue_offset=numbers[0])
        if named.get(key_of(message), at) != at:
            return None
        slot = slot_of(message, self.levels)
        return Expected(slot) if slot is not None else None

    def _unflip(self, message: Message, raw: bytes, at: int) -> Kept | None:
        """Correct a flipped bit of the body; everything else in the record must be sound."""
        if check_message(message, at) is not Fault.BODY_CRC or properties.property_faults(message.properties):
            return None
        return unflip_body(raw, message, accept_odds=self.accept_odds)


def is_sound(message: Message, raw: bytes, at: int) -> bool:
    """Return whether a record has the right PHYSICALOFFSET and fits all its checksums."""
    return check_message(message, at) is Fault.NONE and fits_record_crc(raw)


def reach(evidence: Evidence, log: LogResult) -> int:
    """Return the global offset where a log ends: after its last record that is good or can be proved.

    A legacy commitlog ends before DLedger's first entry. If the place of that entry is unknown, it is also unknown
    whose files are missing, and the legacy log ends with its existing files.
    """
    if log is evidence.logs.results[-1]:
        return _proved_end(evidence, log)
    stop, begin = log.tiling.stop, entries_begin(evidence)
    joins = begin is not None and stop % log.queue.file_size == begin % log.queue.file_size == 0
    return max(stop, begin) if joins and begin is not None else stop


def _proved_end(evidence: Evidence, log: LogResult) -> int:
    """Return the end of the last proved record after the good ones, which a unit or its own header locates.

    Old records of a truncated log prove nothing, and neither do files after a missing one.
    """
    tail = takewhile(lambda run: run.kind is not Kind.HOLE, log.tiling.tail())
    end = max((run.stop for run in tail if run.kind is Kind.DIRTY), default=log.wrote)
    unsure = evidence.logs.grows or log.stale_from is not None or not log.messages
    if unsure or not evidence.mends_end or end == log.wrote:
        return log.wrote
    damages = [damage for damage in find_damage(log, end=end) if damage.start >= log.wrote]
    known = evidence.about([(d.start, d.stop) for d in damages])
    solver = Solver(evidence, Neighbours(evidence.logs.results, 0), delay_levels(evidence.store))
    found = log.wrote
    for layout in solver.solve(damages, known):
        found = max([found, *(cell.stop for cell in layout.cells if _is_named(cell, log))])
    return found


def _is_named(cell: Cell, log: LogResult) -> bool:
    """Return whether the stored PHYSICALOFFSET of a kept record, or a unit, is its actual place."""
    if cell.kept is None:
        return False
    at = cell.start + log.body_offset
    if cell.expected is not None and cell.expected.offset == at:
        return True
    return log.queue.pread(8, at + PHYSICAL_OFFSET_AT) == at.to_bytes(8, "big")
