"""Salvage: a damaged span of the log is covered with valid records of exactly its length. Pure.

What can be proved is mended in place. What is lost gets one visible filler per queue offset, so that everything
behind it stays readable at its offset; bytes that no queue misses get a filler that no queue sees, or belong to the
BLANK at their file's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.store import Store
from rmqstore.formats import message as records
from rmqstore.formats import properties
from rmqstore.formats.message import Fault, Message, check_message, parse_message
from rmqstore.repair.plan.plan import Loss
from rmqstore.repair.plan.steps import Span
from rmqstore.repair.salvage.candidates.batch_records import CODES as BATCH_CODES
from rmqstore.repair.salvage.candidates.fields import mend, mend_record_crc
from rmqstore.repair.salvage.candidates.flipped_bit import unflip_body
from rmqstore.repair.salvage.candidates.headers import HeaderFixes
from rmqstore.repair.salvage.contents import differences
from rmqstore.repair.salvage.dledger_headers import index_bounds, plan_entries
from rmqstore.repair.salvage.evidence.filler_records import Around
from rmqstore.repair.salvage.evidence.lost_messages import Known, Lost, Ranges, find_known, fits_queue
from rmqstore.repair.salvage.evidence.spans import Damage, Neighbours, find_damage
from rmqstore.repair.salvage.fillers import Entry, Filler, Restored, SalvageResult
from rmqstore.repair.salvage.layout import Cell, Layout, lay_out, place
from rmqstore.repair.salvage.legacy_boundary import entries_begin, missing_front, reach
from rmqstore.repair.salvage.merge import seat_of, take_in_blanks, take_in_neighbours, taken_cells
from rmqstore.repair.salvage.queue_ends import Untold, find_untold, open_ends, take_ends
from rmqstore.repair.salvage.span_steps import Cover

__all__ = ["Entry", "Filler", "SalvageResult", "plan_salvage"]

MOST_FILLERS = 1000
"""More visible fillers than this need the operator's word (--accept-fillers)."""

_LISTED = 8
_NO_UNIT = (records.TRANSACTION_PREPARED, records.TRANSACTION_ROLLBACK)


def plan_salvage(
    store: Store,
    verified: Verified,
    *,
    accept_fillers: bool = False,
    allow_shift: bool = False,
    merge_neighbours: bool = False,
    accept_odds: bool = False,
    now_ms: int,
) -> SalvageResult:
    """The steps that cover all damage that good records follow. Bytes behind the last good record are not covered.

    `accept_fillers`: also more than 1,000 visible fillers, and a missing file. `allow_shift`: also where a queue offset
    stays without a record, so that a queue built again by a broker moves up. `merge_neighbours`: also damage too short
    for a record, together with a good message beside it, which is lost then. `accept_odds`: put a flipped bit right
    even if other damage looks like it more often than `ACCEPTED_ODDS`. `now_ms` is a store time where no neighbour has
    one.
    """
    work = _Salvage(store, verified, now_ms)
    work.accept_fillers, work.allow_shift, work.merge = accept_fillers, allow_shift, merge_neighbours
    work.accept_odds = accept_odds
    return work.result()


class _Salvage(Cover):
    def __init__(self, store: Store, verified: Verified, now_ms: int) -> None:
        super().__init__(store, Neighbours(verified.logs.results, now_ms))
        self.verified = verified
        self.logs = verified.logs
        self.accept_fillers = self.allow_shift = self.merge = self.accept_odds = False
        self.refusals: list[str] = []
        self.renumbered = self.missing = False
        self.left: set[tuple[int, str]] = set()
        self.untold = Untold()
        self.seats: dict[tuple[str, int, int], int] = {}

    def result(self) -> SalvageResult:
        damages = self._damages()
        headers = HeaderFixes(self.store, self.verified, self.neighbours)
        spans = [(d.start, d.stop) for d in damages]
        known = find_known(self.store, self.verified, spans) if spans else Known()
        ranges = Ranges(spans)
        take_ends(known, self.logs, ranges, self.audience)
        self.draft.notes.extend(known.notes)
        self.seats = {(k.seat.topic, k.seat.queue_id, k.seat.queue_offset): at for at, k in known.by_offset.items()}
        layouts = self._layouts(damages, known)
        for layout in layouts:
            self._prove(layout, known)
        self._place(layouts, known)
        plans = plan_entries(self.store, layouts, entries_begin(self.store, self.verified))
        for layout in layouts:
            if layout.refused:
                self.refusals.append(layout.refused)
            elif plans.refused(layout):
                self.refusals.append(plans.refused(layout))
            else:
                self.cover(layout, plans)
        self.untold = find_untold(self.verified, layouts, open_ends(self.logs, known, ranges))
        self._headers(headers)
        self._blanks()
        self._gaps(headers)
        return self._put_together()

    # --- what is where --------------------------------------------------------------------------------------------

    def _damages(self) -> list[Damage]:
        out: list[Damage] = []
        for log in self.logs.results:
            front = missing_front(self.store, self.verified, log)
            for damage in find_damage(log, end=reach(self.store, self.verified, log), front=front):
                if damage.file is None and not self.accept_fillers:
                    self.missing = True
                    self.refusals.append(
                        f"{damage.home.name} is missing: --accept-fillers puts a file of fillers in its place"
                    )
                    continue
                out.append(damage)
        out = take_in_blanks(out)
        return take_in_neighbours(out, self.audience, self.levels) if self.merge else out

    def _layouts(self, damages: Sequence[Damage], known: Known) -> list[Layout]:
        out: list[Layout] = []
        for d in damages:
            layout = lay_out(
                d,
                known.by_offset,
                index_bounds(self.store, d, self.neighbours) if d.log.lead else (),
                taken_cells(d, self.levels),
                own=lambda message, at: message.transaction_type in _NO_UNIT or self._own_seat(message, at) is not None,
            )
            layout.merge = self.merge
            out.append(layout)
        return out

    def _prove(self, layout: Layout, known: Known) -> None:
        """What of the span can be mended, and which lost messages its frames name themselves."""
        damage, lead = layout.damage, layout.lead
        around = self.neighbours.around(damage.stop)
        for cell in layout.cells:
            raw = damage.log.queue.pread(cell.length - lead, cell.start + lead)
            if cell.kept is not None or cell.given_up or len(raw) < cell.length - lead:
                continue
            if cell.message is not None and cell.lost is None:
                cell.lost = self._own_seat(cell.message, cell.start + lead)
            self._mend(cell, raw, lead, around)
        for free in list(layout.free):
            start, length = free.start + lead, free.stop - free.start - lead
            if free.last or length > records.MIN_SIZE << 16:
                continue
            mended = mend(damage.log.queue.pread(length, start), start, None, around)
            if mended is None:
                continue
            message, _ = parse_message(mended.record)
            lost = self._own_seat(message, start) if message is not None else None
            if lost is not None:
                layout.free.remove(free)
                layout.cells.append(Cell(free.start, free.stop - free.start, lost, kept=mended.record))
        layout.cells.sort(key=lambda c: c.start)

    def _mend(self, cell: Cell, raw: bytes, lead: int, around: Around) -> None:
        message, at = cell.message, cell.start + lead
        if message is not None and lead and _sound(message, raw, at) and self._seated(message, at, cell.lost):
            cell.kept = raw  # only the header around it is wrong
            return
        dispatched = cell.lost is not None and cell.lost.offset == at  # its unit says so, whatever SYSFLAG says
        if message is not None and message.transaction_type in _NO_UNIT and not dispatched:
            if cell.lost is None and self._unflip(cell, raw, at):
                return
            if check_message(replace(message, physical_offset=at), at) is Fault.NONE and cell.lost is None:
                mended = mend(raw, at, None, around)
                if mended is not None:
                    cell.kept, cell.fields = mended.record, mended.fields
            return
        if cell.lost is None:
            return
        if message is not None and self._seated(message, at, cell.lost) and self._unflip(cell, raw, at):
            return
        mended = mend(raw, at, cell.lost, around)
        if mended is None and message is not None:
            mended = mend_record_crc(raw, at, cell.lost)
        if mended is not None:
            cell.kept, cell.fields, cell.unproved = mended.record, mended.fields, mended.unproved

    def _unflip(self, cell: Cell, raw: bytes, at: int) -> bool:
        """Put a flipped bit of the body right; everything else in the record must be sound."""
        message = cell.message
        if message is None or check_message(message, at) is not Fault.BODY_CRC:
            return False
        if properties.property_faults(message.properties):
            return False
        found = unflip_body(raw, message, accept_odds=self.accept_odds)
        if found is None:
            return False
        cell.kept, cell.fields = found.record, ("body",)
        seat = (message.topic_text, message.queue_id, message.queue_offset)
        cell.restored = Restored(at, *seat, found.at, found.bit, found.odds)
        return True

    def _seated(self, message: Message, at: int, lost: Lost | None) -> bool:
        if message.transaction_type in _NO_UNIT:
            return True
        seat = lost.seat if lost is not None else None
        return seat is not None and (message.topic_text, message.queue_id, message.queue_offset) == (
            seat.topic,
            seat.queue_id,
            seat.queue_offset,
        )

    def _own_seat(self, message: Message, at: int) -> Lost | None:
        """The place in a queue that a damaged record says itself, if the queue has it free."""
        topic = message.topic_text
        part = self.logs.queues.get((topic, message.queue_id))
        if self.seats.get((topic, message.queue_id, message.queue_offset), at) != at:
            return None  # its unit says that it stood elsewhere: a file that was swapped
        if part is None:
            topics = self.logs.topics or frozenset()
            if topic not in topics and not any(name == topic for name, _ in self.logs.queues):
                return None
        elif not fits_queue(part, message.queue_offset, at):
            return None
        seat = seat_of(message, self.levels)
        return Lost(seat, None, None) if seat is not None else None

    def _place(self, layouts: Sequence[Layout], known: Known) -> None:
        """Lost queue offsets without a place get one in free bytes between the records around them, in their order."""
        claimed = {
            (c.lost.seat.topic, c.lost.seat.queue_id, c.lost.seat.queue_offset)
            for layout in layouts
            for c in layout.cells
            if c.lost is not None
        }
        floating = [
            row for row in known.floating if (row[2].topic, row[2].queue_id, row[2].queue_offset) not in claimed
        ]
        for layout in layouts:  # units that point into the middle of a record
            start, stop = layout.damage.start, layout.damage.stop
            for offset, lost in known.by_offset.items():
                seat = lost.seat
                if start <= offset < stop and (seat.topic, seat.queue_id, seat.queue_offset) not in claimed:
                    floating.append((start - 1, stop, seat))
        self.unplaced.extend(place(layouts, floating))
        for layout in layouts:
            layout.finish()

    # --- records that frame, with a wrong header or text ------------------------------------------------------------

    def _headers(self, headers: HeaderFixes) -> None:
        for fix in headers.fixes:
            log, at = fix.log, fix.start
            file = log.queue.find(at)
            if file is None or any(a < at + len(fix.old) and at < b for a, b in self.covered):
                continue
            new = fix.new
            if fix.seat is not None and new is None:  # nothing sound can be made of it: a filler
                around = self.neighbours.around(at + len(fix.old))
                cell = Cell(at - log.lead, len(fix.old) + log.lead, Lost(fix.seat, at, len(fix.old)))
                new = self.filler(cell, log.lead, around)
                self.lost_spans.append((at, len(fix.old)))
                self.lost_bytes += len(fix.old)
            if new is None:
                self.refusals.append(fix.why)
                continue
            path = self.draft.path(file.path)
            if fix.seat is not None or fix.unproved:
                self.draft.spans.append(Span(path, at - file.start, len(fix.old), f"{at}.bin", fix.why))
            for low, high in differences(fix.old, new):
                self.draft.overwrite(file.path, at - file.start + low, new[low:high], fix.why)
            self.covered.append((at - log.lead, at + len(fix.old)))
            self.rebuild.update(fix.queues)
            if fix.unproved:
                self.draft.notes.append(f"the message at {at:,} stays: {fix.unproved}")
        self.refusals.extend(headers.refusals)
        self.left = headers.left
        self.renumbered = any(fix.queues for fix in headers.fixes) and not headers.gaps

    def _blanks(self) -> None:
        """BLANKs in the right place with a size that differs from what is left of their file."""
        for finding in self.verified.report.findings.listed:
            left = finding.facts.get("left")
            log = next((r for r in self.logs.results if not r.lead), None)
            file = log.queue.find(finding.offset) if log is not None else None
            if finding.code != codes.CL_BLANK_SIZE or file is None or not isinstance(left, int):
                continue
            size = records.build_blank(left)[:4]
            self.draft.overwrite(
                file.path, finding.offset - file.start, size, "the BLANK says what is left of its file"
            )
            self.covered.append((finding.offset, finding.offset + records.BLANK_SIZE))

    def _gaps(self, headers: HeaderFixes) -> None:
        """Queue offsets that stay without a record: a rebuilt queue would be shifted."""
        if self.unplaced:
            for seat in self.unplaced:
                self.queues[f"{seat.topic}/{seat.queue_id}"] += max(1, seat.count)
                self.rebuild.add((seat.topic, seat.queue_id))
            some = ", ".join(f"{s.topic}/{s.queue_id} {s.queue_offset}" for s in self.unplaced[:_LISTED])
            more = f" and {len(self.unplaced) - _LISTED} more" if len(self.unplaced) > _LISTED else ""
            text = f"no filler finds room for {some}{more}: a queue that a broker builds again is shifted by them"
            if self.allow_shift:
                self.draft.notes.append(text)
            else:
                hint = "--accept-fillers makes room" if self.missing else "--accept-shift accepts that"
                self.draft.brakes.append(f"{text}; {hint}")
        self.rebuild.update(headers.torn)
        (self.draft.notes if self.allow_shift else self.refusals).extend(headers.gaps)

    # --- the whole ------------------------------------------------------------------------------------------------

    def _put_together(self) -> SalvageResult:
        visible = sum(f.kind == "visible" for f in self.fillers)
        if visible > MOST_FILLERS and not self.accept_fillers:
            self.draft.brakes.append(f"{visible:,} lost messages get a visible filler; --accept-fillers accepts that")
        if self.untold.bytes:
            self.draft.notes.append(self.untold.text())
        if visible and not self.audience.known:
            self.draft.notes.append("which groups will see the fillers is not known: no readable consumerOffset.json")
        if any(f.topic in (properties.OP_HALF_TOPIC, properties.ROCKSDB_OP_HALF_TOPIC) for f in self.fillers):
            self.draft.notes.append(
                "with a lost op message the end of transactions is lost: producers may be asked again"
            )
        return SalvageResult(
            steps=tuple(self.draft.steps),
            spans=tuple(self.draft.spans),
            lost_spans=tuple(sorted(self.lost_spans)),
            fillers=tuple(sorted(self.fillers, key=lambda f: f.offset)),
            restored=tuple(sorted(self.restored, key=lambda r: r.offset)),
            entries=tuple(self.entries),
            rebuild_queues=frozenset(self.rebuild),
            loss=Loss(
                sum(self.queues.values()) + self.untold.messages,
                self.lost_bytes,
                dict(self.queues),
                {"at_least": True} if self.untold.bytes else {},
            ),
            given_up=self.given_up,
            cures=self._cures(),
            brakes=tuple(self.draft.brakes),
            refusals=tuple(self.refusals),
            notes=tuple(self.draft.notes),
        )

    def _cures(self) -> tuple[str, ...]:
        out: set[str] = set()
        for finding in self.verified.report.findings.listed:
            low, high = finding.offset, finding.offset + max(1, finding.length)
            if finding.code in (codes.CQ_WRONG_TAG, *BATCH_CODES):  # the unit is right, its record was mended
                low = int(finding.facts.get("commitlog_offset") or 0)
                high = low + 1
            elif not finding.problem.of_log or (finding.offset, finding.code) in self.left:
                continue
            if any(a < high and low < b for a, b in self.covered):
                out.add(finding.code)
        if self.renumbered and not out & {codes.CL_QUEUE_OFFSET_GAP}:
            repeats = (codes.CL_QUEUE_OFFSET_GAP, codes.CL_QUEUE_OFFSET_REPEAT)
            out.update(code for code in repeats if self.verified.report.findings.counts.get(code))
            queues = {f"{topic}/{queue_id}" for topic, queue_id in self.rebuild}
            units = [
                f for f in self.verified.report.findings.listed if f.code in (codes.CQ_DANGLING_UNIT, codes.CQ_SHIFTED)
            ]
            out.update(f.code for f in units if f.queue in queues)  # right as they are, now that their messages are
        return tuple(sorted(out))


def _sound(message: Message, raw: bytes, at: int) -> bool:
    stored, computed = records.record_crc(raw, 0, len(raw))
    return check_message(message, at) is Fault.NONE and stored in (None, computed)
