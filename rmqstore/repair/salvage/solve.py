"""The solver: for each damaged record the one answer that all witnesses allow.

* `Keep`: the record is sound, only the bytes around it are damaged.
* `Mended`: its original bytes are proved; the answer names the fields and the witnesses.
* `Unrestorable`: nothing proves them. A filler keeps the queue offset if it is known.

The candidates (`candidates.py`) are tried in order, the likeliest first. The solver never takes a candidate that a
witness contradicts, nor one of several that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmqstore.checks.log.logs import Logs
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import (
    MIN_SIZE,
    Fault,
    Message,
    check_message,
    parse_message,
    record_crc,
)
from rmqstore.repair.salvage.candidates.edit import Keep, Mended
from rmqstore.repair.salvage.candidates.fields import is_possible, mend_fields, mend_record_crc
from rmqstore.repair.salvage.candidates.flipped_bit import unflip_body
from rmqstore.repair.salvage.candidates.property_text import mend_properties
from rmqstore.repair.salvage.evidence.places import Around, Damage, Neighbours
from rmqstore.repair.salvage.evidence.table import Evidence, Known
from rmqstore.repair.salvage.evidence.values import Expected, QueueSlot, key_of
from rmqstore.repair.salvage.framed import usable
from rmqstore.repair.salvage.layout import Cell, SpanLayout, lay_out
from rmqstore.repair.salvage.neighbours import slot_of, taken_cells
from rmqstore.repair.salvage.numbering import index_bounds


@dataclass(frozen=True, slots=True)
class Unrestorable:
    """The solver's answer for a record that cannot be restored; `slot` is None if no queue contains it."""

    slot: QueueSlot | None


Answer = Keep | Mended | Unrestorable


class Solver:
    """Finds the answers for the records of damaged spans.

    `accept_odds` accepts corrections with high odds of being wrong.
    """

    def __init__(
        self,
        evidence: Evidence,
        neighbours: Neighbours,
        levels: properties.DelayLevels,
        *,
        accept_odds: bool = False,
    ) -> None:
        self.evidence = evidence
        self.logs: Logs = evidence.logs
        self.neighbours = neighbours
        self.levels = levels
        self.accept_odds = accept_odds

    def layouts(self, damages: Sequence[Damage], known: Known) -> list[SpanLayout]:
        """Return the layout of each span from what is known."""
        named = {expected.slot.key: at for at, expected in known.at.items()}

        def own(message: Message, at: int) -> bool:
            return not message.is_dispatched or self.own_slot(message, at, named) is not None

        out: list[SpanLayout] = []
        for damage in damages:
            bounds = index_bounds(self.evidence.store, damage) if damage.log.body_offset else ()
            out.append(lay_out(damage, known.at, bounds, taken_cells(damage, self.levels), own))
        return out

    def solve(self, layout: SpanLayout, known: Known) -> None:
        """Set the answer of every cell of a span, and search free bytes for records."""
        damage, body_offset = layout.damage, layout.body_offset
        around = self.neighbours.around(damage.stop)
        slots = {expected.slot.key: at for at, expected in known.at.items()}
        for cell in layout.cells:
            raw = damage.log.queue.pread(cell.length - body_offset, cell.start + body_offset)
            if cell.kept is not None or cell.given_up or len(raw) < cell.length - body_offset:
                continue
            if cell.message is not None and cell.expected is None:
                cell.expected = self.own_slot(cell.message, cell.start + body_offset, slots)
            answer = self.answer(cell, raw, body_offset, around)
            cell.kept = answer if not isinstance(answer, Unrestorable) else None
            if isinstance(answer, Mended):
                cell.expected = self._as_mended(answer, cell.expected)
        for free in list(layout.free):
            start, length = free.start + body_offset, free.stop - free.start - body_offset
            if free.last or length > MIN_SIZE << 16:
                continue
            mended = mend_fields(damage.log.queue.pread(length, start), start, None, around)
            message = parse_message(mended.record)[0] if mended is not None else None
            one = self.own_slot(message, start, slots) if message is not None else None
            if one is not None and mended is not None:
                layout.free.remove(free)
                layout.cells.append(Cell(free.start, free.stop - free.start, one, kept=Keep(mended.record)))
        layout.cells.sort(key=lambda c: c.start)

    def _as_mended(self, mended: Mended, expected: Expected | None) -> Expected | None:
        """Return what is known of a mended record: a CRC may prove another queue or offset than its header has."""
        message = parse_message(mended.record)[0]
        if message is None or not message.is_dispatched:
            return expected
        slot = slot_of(message, self.levels)
        return expected if slot is None or (expected and expected.slot.key == slot.key) else Expected(slot)

    def answer(self, cell: Cell, raw: bytes, body_offset: int, around: Around) -> Answer:
        """Return the answer for one record, of which `raw` are the bytes on disk."""
        message, at, expected = cell.message, cell.start + body_offset, cell.expected
        slot = expected.slot if expected is not None else None
        lost = Unrestorable(slot)
        agrees = message is not None and (
            not message.is_dispatched or (slot is not None and key_of(message) == slot.key)
        )
        if message is not None and body_offset and agrees and is_sound(message, raw, at):
            return self._with_sound_text(message, raw, slot)  # only the entry header is wrong
        dispatched = expected is not None and expected.offset == at  # it has a unit, regardless of SYSFLAG
        if message is not None and not message.is_dispatched and not dispatched:
            if expected is not None:
                return lost
            here = check_message(replace(message, physical_offset=at), at) is Fault.NONE
            return (
                self._unflip(message, raw, at)
                or mend_record_crc(raw, at, None, accept_odds=self.accept_odds)
                or (mend_fields(raw, at, None, around) if here else None)
                or lost
            )
        if expected is None:
            return lost
        return (
            (self._unflip(message, raw, at) if message is not None and agrees else None)
            or mend_fields(raw, at, expected, around)
            or (mend_record_crc(raw, at, expected, accept_odds=self.accept_odds) if message is not None else None)
            or lost
        )

    def _with_sound_text(self, message: Message, raw: bytes, slot: QueueSlot | None) -> Answer:
        """Return the answer for a record whose checksums fit, with its property text repaired if it is damaged."""
        if not properties.property_faults(message.properties):
            return Keep(raw)
        code = slot.tags_code if slot is not None and slot.topic != properties.SCHEDULE_TOPIC else None
        mended = mend_properties(raw, None if code is not None and consumequeue.is_ext_address(code) else code)
        return mended if mended is not None and usable(message, mended.record) else Unrestorable(slot)

    def own_slot(self, message: Message, at: int, named: dict[tuple[str, int, int], int]) -> Expected | None:
        """Return the queue offset in a damaged record's own header, if the records around leave it open.

        If they leave only another one, and its PHYSICALOFFSET is impossible too, so that the record is not an old one,
        it has that one. `named` are the global offsets of slots to which units point: such a slot belongs to the record
        there, although a record of a swapped file claims it.
        """
        topic = message.topic_text
        part = self.logs.queues.get((topic, message.queue_id))
        if part is None:
            if topic not in (self.logs.topics or ()) and not any(name == topic for name, _ in self.logs.queues):
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

    def _unflip(self, message: Message, raw: bytes, at: int) -> Mended | None:
        """Correct a flipped bit of the body; everything else in the record must be sound."""
        if check_message(message, at) is not Fault.BODY_CRC or properties.property_faults(message.properties):
            return None
        return unflip_body(raw, message, accept_odds=self.accept_odds)


def is_sound(message: Message, raw: bytes, at: int) -> bool:
    """Return whether a record has the right PHYSICALOFFSET and fits all its checksums."""
    stored, computed = record_crc(raw, 0, len(raw))
    return check_message(message, at) is Fault.NONE and stored in (None, computed)
