"""Builds the steps that repair damaged spans and records, and counts what is lost."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import dledger, properties
from rmqstore.formats import message as records
from rmqstore.formats.message import Message, parse_message
from rmqstore.formats.text import many
from rmqstore.repair.plan.content import Json, Literal, Parts, Zeros, chunks
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.steps import Extend, Span
from rmqstore.repair.salvage.candidates.edit import Mended, Restored
from rmqstore.repair.salvage.contents import differences, joined, sparse, split
from rmqstore.repair.salvage.evidence.places import Around, Damage, Neighbours
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.evidence.values import Expected, Name, QueueSlot, key_of
from rmqstore.repair.salvage.fillers import build_unseen, build_visible
from rmqstore.repair.salvage.framed import Fix
from rmqstore.repair.salvage.layout import Cell, SpanLayout
from rmqstore.repair.salvage.loss import Ledger
from rmqstore.repair.salvage.numbering import EntryNumbers
from rmqstore.repair.salvage.result import Filler
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text
from rmqstore.texts import joined as joined_texts

_LISTED = 20


class Steps:
    """The steps of a salvage, with fillers, losses and notes, while they are collected.

    `covered` are the ranges of global offsets that steps repair, `unplaced` lost queue offsets without room for a
    filler, `rebuild` queues that must be rebuilt.
    """

    def __init__(self, evidence: Evidence, neighbours: Neighbours, levels: properties.DelayLevels) -> None:
        self.evidence = evidence
        self.neighbours = neighbours
        self.levels = levels
        self.draft = PlanBuilder(evidence.store)
        self.loss = Ledger()
        self.fillers: list[Filler] = []
        self.restored: list[Restored] = []
        self.damaged: list[dict[str, Json]] = []
        self.rebuild: set[Name] = set()
        self.unplaced: list[QueueSlot] = []
        self.covered: list[tuple[int, int]] = []
        self.given_up = 0

    # --- damaged spans --------------------------------------------------------------------------------------------

    def cover(self, layout: SpanLayout, numbers: EntryNumbers) -> None:
        """Add the step for a span, and count what is lost there."""
        damage, body_offset = layout.damage, layout.body_offset
        around = self.neighbours.around(damage.stop)
        parts: list[Literal | Zeros] = []
        for cell in layout.cells:
            if cell.blank:
                blank = dledger.build_blank(cell.length) if body_offset else records.build_blank(cell.length)
                parts += [Literal(blank), Zeros(cell.length - len(blank))]
                continue
            record = cell.kept.record if cell.kept is not None else self._filler(cell, body_offset, around)
            if isinstance(cell.kept, Mended) and cell.kept.restored is not None:
                self.restored.append(cell.kept.restored)
            if cell.kept is not None and cell.expected is not None:
                self._give_unit(cell.expected, cell.start + body_offset, len(record))
            if body_offset:
                parts.append(Literal(numbers.head(cell, len(record))))
            parts += sparse(record)
        why = _why(layout)
        self._keep_lost_bytes(layout, why)
        self.covered.append((damage.start, damage.stop))
        content = joined(parts)
        if not _frames(layout):
            self._write(damage, content, why)
        elif damage.file is not None:
            old = damage.log.queue.pread(damage.length, damage.start)
            self._write_changes(damage.file, damage.start, old, b"".join(chunks(content)), why)

    def _keep_lost_bytes(self, layout: SpanLayout, why: str) -> None:
        """Count the lost bytes, and have them saved in lost+found."""
        damage = layout.damage
        if damage.file is None:
            self.loss.bytes += damage.length
            return
        for cell in layout.cells:
            if isinstance(cell.kept, Mended) and cell.kept.unproved:
                self._list_damaged(cell.kept.record, cell.start + layout.body_offset, cell.kept.unproved)
                self._save(damage.file, cell.start + layout.body_offset, cell.length - layout.body_offset, why)
        dirty = [run for run in damage.runs if run.kind is Kind.DIRTY]
        gone = [c for c in layout.cells if c.kept is None]
        lossy = any(not c.blank or any(run.stop > c.start for run in dirty) for c in gone)
        on_disk = damage.length - damage.short
        if lossy and on_disk:
            self.loss.bytes += sum(c.length for c in gone if not c.blank)
            if any(run.kind in (Kind.DIRTY, Kind.RECORDS) for run in damage.runs):
                self._save(damage.file, damage.start, on_disk, why)

    def _save(self, file: MappedFile, start: int, length: int, why: str) -> None:
        """Have `length` bytes from a global offset on saved in lost+found."""
        path = self.draft.path(file.path)
        self.draft.spans.append(Span(path, start - file.start, length, f"{start}.bin", why))

    def _write_changes(self, file: MappedFile, start: int, old: bytes, new: bytes, why: str) -> None:
        """Overwrite only the bytes that differ, from a global offset on."""
        for low, high in differences(old, new):
            self.draft.overwrite(file.path, start - file.start + low, new[low:high], why)

    def _write(self, damage: Damage, content: Parts, why: str) -> None:
        """Overwrite a span, extend a file that is too short, or create a missing one."""
        file, at = damage.file, damage.start
        if file is None:
            self.draft.create(damage.home, content.size, content, why, damage.log.queue.files[0].path)
        elif damage.short:
            first, rest = split(content, damage.length - damage.short)
            if first.size:
                self.draft.overwrite(file.path, at - file.start, first, why)
            self.draft.add(Extend(self.draft.path(file.path), file.length, file.file_size, rest, why))
        else:
            self.draft.overwrite(file.path, at - file.start, content, why)

    # --- fillers --------------------------------------------------------------------------------------------------

    def _filler(self, cell: Cell, body_offset: int, around: Around) -> bytes:
        """Return the bytes of the filler for a lost record."""
        at, length, record = cell.start + body_offset, cell.length - body_offset, b""
        if cell.expected is not None:
            slot, old = cell.expected.slot, cell.message
            old = old if old is not None and key_of(old) == slot.key else None  # its header agrees with its unit
            there = replace(around, store_timestamp=self._time(cell.expected, old, around))
            built = build_visible(slot, at, length, there, old)
            if built is not None:
                record, marked = built
                self._count_visible(cell.expected, at, record, marked)
            else:
                self.unplaced.append(slot)
        if not record:
            record = build_unseen(at, length, around)
            self.fillers.append(Filler(at, length, "unseen"))
        if cell.given_up:
            self._note_given_up(cell, body_offset)
        return record

    def _note_given_up(self, cell: Cell, body_offset: int) -> None:
        """Note a good message that is lost to the damage beside it."""
        self.given_up += 1
        what = str(cell.expected.slot) if cell.expected is not None else Text("a record of no queue")
        if self.given_up <= _LISTED:
            self.draft.notes.append(
                Text(
                    "a good message is given up ({what}): the damage beside it is too short for a record; its "
                    "bytes are kept in lost+found, and {length:,} bytes from {start:,} on become its filler",
                    what=what,
                    length=cell.length - body_offset,
                    start=cell.start + body_offset,
                )
            )

    def _time(self, expected: Expected, old: Message | None, around: Around) -> int:
        """Return the store time (ms) of the lost message if a witness knows it, otherwise the next record's."""
        top, slot = around.store_timestamp, expected.slot
        wanted = expected.store_timestamp
        if slot.topic == properties.SCHEDULE_TOPIC and slot.tags_code and expected.offset is not None:
            wanted = self.levels.stored_at(slot.queue_id + 1, slot.tags_code)
        elif wanted is None and old is not None:
            wanted = old.store_timestamp
        return wanted if wanted is not None and 0 < wanted <= top else top

    def _count_visible(self, expected: Expected, at: int, record: bytes, marked: str) -> None:
        slot = expected.slot
        message, _ = parse_message(record)
        assert message is not None
        found = properties.parse_properties(message.properties)
        code = properties.dispatch_tags_code(slot.topic, found, message.store_timestamp, self.levels)
        groups = self.evidence.progress.groups(slot)
        self.fillers.append(Filler(at, len(record), "visible", *slot.key, groups, marked))
        self.loss.add(slot)
        self._give_unit(expected, at if slot.tags_code == code else -1, len(record))

    def _give_unit(self, expected: Expected, at: int, size: int) -> None:
        """Have the queues of a message rebuilt, unless a unit has this place and size."""
        if expected.inferred or (expected.offset, expected.size) != (at, size):
            slot = expected.slot
            self.rebuild.add((slot.topic, slot.queue_id))
            self.rebuild.update((queue, 0) for queue, _ in slot.fan_out)

    # --- single records -------------------------------------------------------------------------------------------

    def fix(self, fix: Fix) -> None:
        """Add the steps for a framed record with a wrong field, unless a step already repairs its place."""
        log, at, new = fix.log, fix.start, fix.new
        file = log.queue.find(at)
        if file is None or any(a < at + len(fix.old) and at < b for a, b in self.covered):
            return
        if new is None and fix.slot is not None:  # it cannot be repaired, and gets a filler
            around = self.neighbours.around(at + len(fix.old))
            cell = Cell(at - log.body_offset, len(fix.old) + log.body_offset, Expected(fix.slot, at, len(fix.old)))
            new = self._filler(cell, log.body_offset, around)
            self.loss.bytes += len(fix.old)
        assert new is not None
        if fix.slot is not None or fix.unproved:
            self._save(file, at, len(fix.old), fix.why)
        self._write_changes(file, at, fix.old, new, fix.why)
        self.covered.append((at - log.body_offset, at + len(fix.old)))
        self.rebuild.update(fix.queues)
        if fix.unproved:
            self._list_damaged(new, at, fix.unproved)

    def _list_damaged(self, record: bytes, at: int, why: str) -> None:
        """List a message that stays readable, although some of its original bytes are unknown."""
        self.draft.notes.append(Text("the message at {at:,} is kept, but {why}", at=at, why=why))
        message, _ = parse_message(record)
        if message is not None:
            self.damaged.append(
                {
                    "topic": message.topic_text,
                    "queue_id": message.queue_id,
                    "queue_offset": message.queue_offset,
                    "offset": at,
                    "size": len(record),
                    "store_timestamp": message.store_timestamp,
                }
            )


def _frames(layout: SpanLayout) -> bool:
    """Return whether the records of a span have valid framing and none is lost: only single bytes change."""
    runs = layout.damage.runs
    framed = len(runs) == 1 and bool(runs[0].count) and not layout.damage.short
    return framed and all(cell.kept is not None for cell in layout.cells)


def _why(layout: SpanLayout) -> str:
    kept = [c.kept for c in layout.cells if c.kept is not None]
    fields = sorted({name for k in kept if isinstance(k, Mended) for name in k.fields})
    if len(kept) == len(layout.cells):
        return Text("mended in place: {fields}", fields=joined_texts(fields)) if fields else Text("mended in place")
    visible = sum(c.kept is None and c.expected is not None for c in layout.cells)
    unseen = sum(c.kept is None and c.expected is None and not c.blank for c in layout.cells)
    parts = [many(visible, "visible filler")] * bool(visible) + [many(unseen, "unseen filler")] * bool(unseen)
    if any(c.blank for c in layout.cells):
        parts.append(Text("a BLANK") if parts else Text("BLANK at the end of the file"))
    if kept:
        parts.append(Text("{count} mended", count=len(kept)))
    return joined_texts(parts)
