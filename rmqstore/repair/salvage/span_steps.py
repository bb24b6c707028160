"""The steps that cover damaged spans: contents of the cells, fillers and who sees them, what is lost. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.files.store import Store
from rmqstore.formats import dledger, properties
from rmqstore.formats import message as records
from rmqstore.formats.message import Message, parse_message
from rmqstore.repair.plan.content import Literal, Parts, Zeros
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.steps import Extend, Span
from rmqstore.repair.salvage.contents import differences, merged, sparse, split, written_out
from rmqstore.repair.salvage.dledger_headers import EntryPlan
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.filler_records import Around, QueueSlot, build_unseen, build_visible
from rmqstore.repair.salvage.evidence.lost_messages import Lost
from rmqstore.repair.salvage.evidence.spans import Damage, Neighbours
from rmqstore.repair.salvage.fillers import Entry, Filler, Restored
from rmqstore.repair.salvage.layout import Cell, Layout
from rmqstore.scan.tiling import Kind

_LISTED = 20


class Cover:
    """What the steps of a salvage are, and what they cost, while they are collected.

    `covered`: global offsets of what the steps put right; `unplaced`: lost queue offsets without room for a filler.
    """

    def __init__(self, store: Store, neighbours: Neighbours) -> None:
        self.store = store
        self.neighbours = neighbours
        self.draft = PlanBuilder(store)
        self.audience = ConsumerProgress(store)
        self.levels = delay_levels(store)
        self.fillers: list[Filler] = []
        self.restored: list[Restored] = []
        self.entries: list[Entry] = []
        self.lost_spans: list[tuple[int, int]] = []
        self.queues: Counter[str] = Counter()
        self.lost_bytes = 0
        self.rebuild: set[tuple[str, int]] = set()
        self.unplaced: list[QueueSlot] = []
        self.covered: list[tuple[int, int]] = []
        self.given_up = 0

    def cover(self, layout: Layout, plans: EntryPlan) -> None:
        """One step for a span."""
        damage, lead = layout.damage, layout.lead
        around = self.neighbours.around(damage.stop)
        parts: list[Literal | Zeros] = []
        lossy = False
        for cell in layout.cells:
            if cell.blank:
                blank = dledger.build_blank(cell.length) if lead else records.build_blank(cell.length)
                parts += [Literal(blank), Zeros(cell.length - len(blank))]
                lossy |= damage.file is not None and self._holds_bytes(cell, damage)
                continue
            record = cell.kept
            if cell.restored is not None:
                self.restored.append(cell.restored)
            if record is None:
                record = self.filler(cell, lead, around)
                lossy = True
                if cell.given_up:
                    self._give_up(cell, lead)
            if lead:
                head = plans.head(cell, len(record))
                parts.append(Literal(head))
                self.entries.append(plans.entry(cell))
            parts += sparse(record)
        self._step(layout, merged(parts), lossy)

    @staticmethod
    def _holds_bytes(cell: Cell, damage: Damage) -> bool:
        return any(run.kind is Kind.DIRTY and run.stop > cell.start for run in damage.runs)

    def _step(self, layout: Layout, content: Parts, lossy: bool) -> None:
        damage = layout.damage
        why = _why(layout)
        self.covered.append((damage.start, damage.stop))
        if damage.file is None:
            like = damage.log.queue.files[0].path
            self.draft.create(damage.home, content.size, content, why, like)
            self.lost_spans.append((damage.start, damage.length))
            self.lost_bytes += damage.length
            return
        path, at = self.draft.path(damage.file.path), damage.start - damage.file.start
        on_disk = damage.length - damage.short
        for cell in layout.cells:
            if cell.unproved:
                place = cell.start + layout.lead
                self.draft.notes.append(f"the message at {place:,} stays: {cell.unproved}")
                length = cell.length - layout.lead
                self.draft.spans.append(Span(path, place - damage.file.start, length, f"{place}.bin", why))
        if lossy and on_disk:
            self.lost_spans.append((damage.start, damage.length))
            self.lost_bytes += sum(c.length for c in layout.cells if c.kept is None and not c.blank)
            if any(run.kind in (Kind.DIRTY, Kind.RECORDS) for run in damage.runs):
                self.draft.spans.append(Span(path, at, on_disk, f"{damage.start}.bin", why))
        if damage.short:
            first, rest = split(content, on_disk)
            if on_disk:
                self.draft.overwrite(damage.file.path, at, first, why)
            self.draft.add(Extend(path, damage.file.length, damage.file.file_size, rest, why))
            return
        self._overwrite(layout, content, why)

    def _overwrite(self, layout: Layout, content: Parts, why: str) -> None:
        """The whole span; of a single framed record that was mended only the bytes that change."""
        damage = layout.damage
        assert damage.file is not None
        at = damage.start - damage.file.start
        framed = len(damage.runs) == 1 and damage.runs[0].count
        if framed and all(c.kept is not None for c in layout.cells):
            old = damage.log.queue.pread(damage.length, damage.start)
            new = written_out(content)
            if len(old) == len(new):
                for low, high in differences(old, new):
                    self.draft.overwrite(damage.file.path, at + low, new[low:high], why)
                return
        self.draft.overwrite(damage.file.path, at, content, why)

    def filler(self, cell: Cell, lead: int, around: Around) -> bytes:
        """The bytes of the record that a cell gets."""
        at, length = cell.start + lead, cell.length - lead
        lost, old = cell.lost, cell.message
        if lost is not None:
            time = self._time(lost, old, around)
            there = replace(around, store_timestamp=time, append_crc=around.append_crc)
            built = build_visible(lost.seat, at, length, there, old if self._believed(old, lost) else None)
            if built is not None:
                self._visible(lost, at, built.record, built.marked)
                return built.record
            self.unplaced.append(lost.seat)
        record = build_unseen(at, length, around)
        self.fillers.append(Filler(at, length, "unseen"))
        return record

    def _give_up(self, cell: Cell, lead: int) -> None:
        """Say which good message made room for damage beside it."""
        self.given_up += 1
        seat = cell.lost.seat if cell.lost is not None else None
        what = f"{seat.topic}/{seat.queue_id} {seat.queue_offset}" if seat is not None else "a record of no queue"
        if self.given_up <= _LISTED:
            self.draft.notes.append(
                f"a good message is given up ({what}): the damage beside it is too short for a record; its bytes are "
                f"kept in lost+found, and {cell.length - lead:,} bytes from {cell.start + lead:,} on become its filler"
            )

    def _believed(self, old: Message | None, lost: Lost) -> bool:
        """Whether header and properties of a damaged record can be kept: its unit (or its place) agrees with them."""
        if old is None:
            return False
        seat = lost.seat
        own = (old.topic_text, old.queue_id, old.queue_offset)
        return own == (seat.topic, seat.queue_id, seat.queue_offset)

    def _time(self, lost: Lost, old: Message | None, around: Around) -> int:
        """The store time of the lost message where something says it, else the next record's."""
        top = around.store_timestamp
        wanted = lost.store_timestamp
        if lost.seat.topic == properties.SCHEDULE_TOPIC and lost.seat.tags_code and lost.offset is not None:
            wanted = self.levels.stored_at(lost.seat.queue_id + 1, lost.seat.tags_code)
        elif wanted is None and old is not None and self._believed(old, lost):
            wanted = old.store_timestamp
        return wanted if wanted is not None and 0 < wanted <= top else top

    def _visible(self, lost: Lost, at: int, record: bytes, marked: str) -> None:
        seat = lost.seat
        message, _ = parse_message(record)
        assert message is not None
        found = properties.parse_properties(message.properties)
        code = properties.dispatch_tags_code(seat.topic, found, message.store_timestamp, self.levels)
        self.fillers.append(
            Filler(
                at,
                len(record),
                "visible",
                seat.topic,
                seat.queue_id,
                seat.queue_offset,
                code,
                self.audience.groups(seat),
                marked,
            )
        )
        self.queues[f"{seat.topic}/{seat.queue_id}"] += max(1, seat.count)
        fits = (lost.offset, lost.size) == (at, len(record)) and lost.seat.tags_code == code
        if not fits:
            self.rebuild.add((seat.topic, seat.queue_id))
            self.rebuild.update((queue, 0) for queue, _ in seat.fan_out)


def _why(layout: Layout) -> str:
    kept = [c for c in layout.cells if c.kept is not None]
    fields = sorted({name for c in kept for name in c.fields})
    if len(kept) == len(layout.cells):
        return f"mended in place: {', '.join(fields)}" if fields else "mended in place"
    visible = sum(c.kept is None and c.lost is not None for c in layout.cells)
    unseen = sum(c.kept is None and c.lost is None and not c.blank for c in layout.cells)
    parts = [f"{visible} visible"] * bool(visible) + [f"{unseen} unseen"] * bool(unseen)
    text = f"{' and '.join(parts)} filler{'s' if visible + unseen > 1 else ''}" if parts else ""
    if any(c.blank for c in layout.cells):
        text = f"{text} and a BLANK" if text else "BLANK at the file's end"
    return text + (f", {len(kept)} mended" if kept else "")
