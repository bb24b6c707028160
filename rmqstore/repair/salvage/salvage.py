"""Repairs damage within the logs (`Salvage`), from the evidence to the steps of a plan, and the end of a log.

Everything after the end is zeroed, so that old records do not reappear. A zero file of the right length after the end
is normal and stays. The bytes of a BLANK at the end of a file are undefined and never read, so they stay, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from rmqstore.checks.log.commitlog import LogResult, framed_records, is_framed
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.queue_parts import place_of
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.documents.content import ContentReader, Json, Literal, Parts, Zeros, chunks
from rmqstore.documents.steps import Create, Span
from rmqstore.files.mapped_file_queue import MappedFile, file_name_to_offset
from rmqstore.formats import dledger, properties
from rmqstore.formats import message as records
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import OP_TOPICS, Fault, Message, parse_message
from rmqstore.repair.plan.plan_builder import WRONG_PLACES, PlanBuilder, first_few, first_notes
from rmqstore.repair.plan.recover_options import MOST_KEPT, RecoverOptions
from rmqstore.repair.salvage.candidates import Restored
from rmqstore.repair.salvage.evidence import Evidence, Expected, Known, QueueSlot, key_of
from rmqstore.repair.salvage.fillers import build_unseen, build_visible
from rmqstore.repair.salvage.framed import Fix, FramedRecords
from rmqstore.repair.salvage.layout import Cell, EntryNumbers, SpanLayout, limit_entries, number_entries, place
from rmqstore.repair.salvage.places import Around, Damage, Neighbours, entries_begin, find_damage, missing_front
from rmqstore.repair.salvage.solve import Solver, reach, take_in_blanks, take_in_neighbours
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import last_nonzero_in
from rmqstore.texts import Placed, Text, many
from rmqstore.texts import joined as joined_texts


def zero_from(draft: PlanBuilder, log: LogResult, end: int, why: str) -> None:
    """Zero everything from `end` (global offset) on; files that begin after it go into quarantine."""
    dirty = False
    for file in log.queue.files:
        if file.stop <= end or draft.path(file.path) in draft.gone:
            continue
        last = last_nonzero_in(file, 1)
        if file.start <= end:
            if last is not None and file.start + last >= end:
                _zero(draft, file, end - file.start, last + 1, why)
            continue
        dirty |= last is not None
        if dirty:  # also discard the files after it: a hole must not remain
            draft.discard(file.path, why)


def _zero(draft: PlanBuilder, file: MappedFile, start: int, stop: int, why: str) -> None:
    name = draft.path(file.path)
    if stop - start <= MOST_KEPT:
        draft.spans.append(Span(name, start, stop - start, f"{file.start + start}.bin", why))
    draft.zero(file.path, start, stop - start, why)


def plan_tail(draft: PlanBuilder, log: LogResult, end: int) -> None:
    """Add the steps that remove the bytes after the end (global offset) of a log.

    A damaged record at the very end is removed too, as a broker does: no record follows it.
    """
    if log.stale_from is not None:
        zero_from(draft, log, log.wrote, Text("old records of a truncated log"))
        return
    for run in log.tiling.tail():
        file = log.queue.find(run.start)
        start = max(run.start, end)
        if run.kind is not Kind.DIRTY or file is None or draft.path(file.path) in draft.gone or run.stop <= start:
            continue
        damaged = run.count and run.cause is not Fault.PHYSICAL_OFFSET
        why = Text("damaged records at the very end") if damaged else Text("not a record: an interrupted write")
        _zero(draft, file, start - file.start, run.stop - file.start, why)


def lose_tail(draft: PlanBuilder, evidence: Evidence, log: LogResult, end: int) -> frozenset[QueueName]:
    """Count the bytes lost after the end of the log; return the queues that had messages there."""
    counts = evidence.verified.report.findings.counts
    between = _lose_between(draft, evidence)
    tail = [run for run in log.tiling.tail() if run.kind is Kind.DIRTY and run.stop > end]
    dirty = log.stale_from is not None or tail
    if not dirty and not any(n and PROBLEMS[code].points_after_log for code, n in counts.items()):
        return between
    if log.stale_from is not None:
        return between
    witnesses, pointing = evidence.logs.witnesses, evidence.logs.pointing
    damaged = [run for run in tail if is_framed(run)]
    draft.lost_bytes += max(witnesses.bytes_after, sum(run.stop - max(run.start, end) for run in damaged))
    names = {pointing.queue_in(name) for name in witnesses.after_end}
    headers = (message for run in damaged for _, message in framed_records(log, run.start, run.stop))
    names.update((one.topic_text, one.queue_id) for one in headers if one.is_dispatched)
    return between | frozenset(name for name in names if name is not None)


def _lose_between(draft: PlanBuilder, evidence: Evidence) -> frozenset[QueueName]:
    """Count the bytes of DLedger's first files if they are missing, and no step creates them.

    Return the queues that lose one; none if fillers could replace the files, because the units are then the only trace
    of the messages, and must stay.
    """
    legacy, log = evidence.verified.legacy, evidence.verified.dledger
    if legacy is None or log is None or not legacy.queue.files or not log.queue.files:
        return frozenset()
    homes = {draft.path(d) for result in evidence.logs.results for d in result.queue.directories}
    places = [step.path.rpartition("/") for step in draft.steps if isinstance(step, Create)]
    made = {file_name_to_offset(name) for home, _, name in places if home in homes}
    size, end = log.queue.file_size, log.queue.start
    starts = [at for at in range(reach(evidence, legacy), end, size) if at not in made]
    if not starts:
        return frozenset()
    known = evidence.about([(at, min(at + size, end)) for at in starts])
    draft.lost_bytes += sum(expected.size or 0 for expected in known.at.values())
    draft.notes.append(
        Text(
            "no file of the log contains {first:,} to {last:,}: their content cannot be recovered",
            first=starts[0],
            last=min(starts[-1] + size, end),
        )
    )
    return frozenset() if entries_begin(evidence) is not None else frozenset(slot.name for slot in known.slots)


def drop_unused(draft: PlanBuilder, log: LogResult) -> None:
    """Discard files after the end of the log that are after a missing file, or too many for DLedger to start."""
    before = None
    hole = False
    for file in log.queue.files:
        hole |= before is not None and file.start > before.stop and file.start >= log.wrote
        before = file
        if hole and draft.path(file.path) not in draft.gone:
            draft.discard(file.path, Text("after the end of the log, and after a missing file"))
    if log.body_offset:
        from rmqstore.checks.beside.dledger import UNUSED, unused_files  # a plain store does not need the module

        for file in unused_files(log.queue, log.tiling):
            draft.discard(file.path, UNUSED)


def first_damage(log: LogResult, listed: list[int], end: int) -> int | None:
    """Return the first damaged byte of a log (global offset), where `truncate` cuts it; None without damage.

    `listed`: offsets of findings. `end`: where this repair ends the log. DLedger continues after the end of a legacy
    commitlog, so damage there counts.
    """
    bad, end = log.tiling.first_bad(), min(end, log.tiling.stop)
    places = [at for at in listed if log.tiling.start <= at < end]
    if bad is not None and bad.start < end:
        places.append(bad.start)
    return min(places, default=None)


@dataclass(frozen=True, slots=True)
class Filler:
    """A record that keeps the queue offset of a damaged one; of a batch, its `count` queue offsets.

    `offset` is global, of the record itself (in DLedger: entry position + 48); `length` in bytes. `groups` have not
    consumed this queue offset yet and will get it. `marked` is how a consumer can recognize it: "property", "tag", or
    "" for not at all. `placed`: a unit, or what is left of the record, shows that the message was there.
    """

    offset: int
    length: int
    topic: str
    queue_id: int
    queue_offset: int
    groups: tuple[str, ...]
    marked: str
    placed: bool = True
    count: int = 1

    def to_json(self) -> dict[str, Json]:
        """Return what a plan lists of it."""
        names = ("topic", "queue_id", "queue_offset", "count", "offset", "length", "marked", "placed")
        return {**{name: getattr(self, name) for name in names}, "groups": list(self.groups)}


Piece = Literal | Zeros
_SHORT = 1 << 12


def sparse(record: bytes) -> list[Piece]:
    """Return the bytes of a record as pieces, with a long run of zeros as `Zeros`."""
    low = record.find(bytes(_SHORT)) if len(record) >= _SHORT << 4 else -1
    if low < 0:
        return [Literal(record)]
    high = len(record) - len(record[low:].lstrip(b"\0"))
    return [Literal(record[:low]), Zeros(high - low), Literal(record[high:])]


def joined(parts: Iterable[Piece]) -> Parts:
    """Join pieces into one content; adjacent bytes and short runs of zeros become one piece."""
    out: list[Piece] = []
    for dense, run in groupby(parts, lambda part: isinstance(part, Literal) or part.size < _SHORT):
        pieces = list(run)
        out += [Literal(b"".join(piece.read(piece.size, 0) for piece in pieces))] if dense else pieces
    return Parts(tuple(part for part in out if part.size))


def split(content: Parts, at: int) -> tuple[Literal, Parts]:
    """Split a content into its first `at` bytes and the rest."""
    first = Literal(ContentReader(content).take(at))
    rest: list[Piece] = []
    for part in content.parts:
        skip, at = min(at, part.size), max(0, at - part.size)
        rest.append(Literal(part.data[skip:]) if isinstance(part, Literal) else Zeros(part.size - skip))
    return first, joined(rest)


def differences(old: bytes, new: bytes) -> list[tuple[int, int]]:
    """Return the ranges in which two byte strings of equal length differ; near ranges are merged.

    Errors: ValueError for different lengths.
    """
    out: list[tuple[int, int]] = []
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            if out and i - out[-1][1] < 16:
                out[-1] = (out[-1][0], i + 1)
            else:
                out.append((i, i + 1))
    return out


_LISTED = 20


class Steps:
    """Adds the steps of a salvage to a draft, and collects visible fillers and notes.

    `restored` are messages that a CRC corrected; `damaged` messages that stay readable although some of their original
    bytes are unknown, as facts of a plan; `kept` those of them, and others, that no broker reads now; `covered` the
    ranges of global offsets that steps repair; `unplaced` lost queue offsets without room for a filler; `rebuild`
    queues that must be rebuilt. `given_up` counts good messages that are lost to damage beside them.
    """

    def __init__(
        self, draft: PlanBuilder, evidence: Evidence, neighbours: Neighbours, levels: properties.DelayLevels
    ) -> None:
        self.draft = draft
        self.evidence = evidence
        self.neighbours = neighbours
        self.levels = levels
        self.notes: list[str] = []
        self.fillers: list[Filler] = []
        self.wrong: list[dict[str, Json]] = []
        self.restored: list[Restored] = []
        self.damaged: list[dict[str, Json]] = []
        self.kept: list[dict[str, Json]] = []
        self.rebuild: set[QueueName] = set()
        self.unplaced: list[QueueSlot] = []
        self.covered: list[tuple[int, int]] = []
        self.given_up = 0

    # --- damaged spans --------------------------------------------------------------------------------------------

    def cover(self, layout: SpanLayout, numbers: EntryNumbers) -> None:
        """Add the step for a span, and count the bytes that are lost there."""
        damage, body_offset = layout.damage, layout.body_offset
        around = self.neighbours.around(damage.stop)
        parts: list[Literal | Zeros] = []
        for cell in layout.cells:
            if cell.blank:
                blank = dledger.build_blank(cell.length) if body_offset else records.build_blank(cell.length)
                parts += [Literal(blank), Zeros(cell.length - len(blank))]
                continue
            if cell.kept is None:
                record = self._filler(cell, body_offset, around)
            else:
                record = cell.kept.record
                self.restored += [cell.kept.restored] if cell.kept.restored is not None else []
                self._list_kept(record, cell.start + body_offset)
                if cell.expected is not None:
                    self._give_unit(cell.expected, cell.start + body_offset, len(record))
            if body_offset:
                index, term = numbers[cell.start]
                size = body_offset + len(record)
                head = dledger.ENTRY.build(size=size, index=index, term=term, pos=cell.start, body_length=len(record))
                parts.append(Literal(head))
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
            self.draft.lost_bytes += damage.length
            return
        dirty = [run for run in damage.runs if run.kind is Kind.DIRTY]
        gone = [c for c in layout.cells if c.kept is None]
        lossy = any(not c.blank or any(run.stop > c.start for run in dirty) for c in gone)
        on_disk = damage.length - damage.short
        saved = lossy and on_disk > 0 and any(run.kind in (Kind.DIRTY, Kind.RECORDS) for run in damage.runs)
        if lossy and on_disk:
            self.draft.lost_bytes += sum(c.length for c in gone if not c.blank)
        if saved:
            self._save(damage.file, damage.start, on_disk, why)
        for cell in layout.cells:
            if cell.kept is None or not cell.kept.unproved:
                continue
            start, length = cell.start + layout.body_offset, cell.length - layout.body_offset
            self._list_damaged(cell.kept.record, start, cell.kept.unproved)
            if not saved:
                self._save(damage.file, start, length, why)

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
            self.draft.extend(file.path, file.length, file.file_size, rest, why)
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
                placed = old is not None or (cell.expected.offset == at and not cell.expected.inferred)
                self._count_visible(cell.expected, at, record, marked, placed=placed)
            else:
                self.unplaced.append(slot)
        if not record:
            record = build_unseen(at, length, around)
        if cell.given_up:
            self._note_given_up(cell, body_offset)
        return record

    def _note_given_up(self, cell: Cell, body_offset: int) -> None:
        """Note a good message that is lost to the damage beside it."""
        self.given_up += 1
        what = str(cell.expected.slot) if cell.expected is not None else Text("a record of no queue")
        if self.given_up <= _LISTED:
            self.notes.append(
                Text(
                    "a good message is sacrificed ({what}): the damaged gap is too short for a filler; its "
                    "bytes are kept in lost+found, and {length:,} bytes from {start:,} on become the filler",
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

    def _count_visible(self, expected: Expected, at: int, record: bytes, marked: str, *, placed: bool) -> None:
        slot = expected.slot
        message, _ = parse_message(record)
        assert message is not None
        found = properties.parse_properties(message.properties)
        code = properties.dispatch_tags_code(slot.topic, found, message.store_timestamp, self.levels)
        count = max(1, slot.count)
        groups = self.evidence.progress.groups(slot.places, count)
        self.fillers.append(Filler(at, len(record), *slot.key, groups, marked, placed, count))
        self._give_unit(expected, at if slot.tags_code == code else -1, len(record))

    def _give_unit(self, expected: Expected, at: int, size: int) -> None:
        """Have the queues of a message rebuilt, unless a unit has this place and size."""
        if expected.inferred or (expected.offset, expected.size) != (at, size):
            slot = expected.slot
            self.rebuild.add(slot.name)
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
            self.draft.lost_bytes += len(fix.old)
        assert new is not None
        if fix.slot is not None or fix.unproved:
            self._save(file, at, len(fix.old), fix.why)
        self._write_changes(file, at, fix.old, new, fix.why)
        self._tell_wrong(fix.old, new)
        self.covered.append((at - log.body_offset, at + len(fix.old)))
        self.rebuild.update(fix.queues)
        if fix.unproved:
            self._list_damaged(new, at, fix.unproved)

    def _list_kept(self, record: bytes, at: int) -> None:
        """List a message in damage that the repair keeps."""
        message, _ = parse_message(record)
        if message is not None and message.is_dispatched and len(self.kept) < _MOST_KEPT:
            row: dict[str, Json] = {"topic": message.topic_text, "queue_id": message.queue_id}
            self.kept.append(row | {"queue_offset": message.queue_offset, "offset": at})

    def _tell_wrong(self, old: bytes, new: bytes) -> None:
        """Note the place in the header of a record if the new one has another: the store has no message there."""
        (before, _), (after, _) = parse_message(old), parse_message(new)
        if before is not None and after is not None and (place := place_of(before)) != place_of(after):
            (topic, queue_id), start, stop = place
            self.wrong.append(
                {"topic": topic, "queue_id": queue_id, "queue_offset": start, "count": stop - start},
            )

    def _list_damaged(self, record: bytes, at: int, why: str) -> None:
        """List a message that stays readable, although some of its original bytes are unknown."""
        self.notes.append(Text("the message at {at:,} is kept, but {why}", at=at, why=why))
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
    fields = sorted({name for k in kept for name in k.fields})
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


_MOST_KEPT = 10_000  # messages that a plan lists
MOST_FILLERS = 1000
"""Maximum number of visible fillers without --accept-fillers."""


class Salvage:
    """The repair of all damage before the last record that is good or can be proved: its `steps`.

    `ends`: where the logs end, as `reach` says. `refusals`: damage that is not repaired, with the option that would
    repair it.
    """

    def __init__(self, draft: PlanBuilder, framed: FramedRecords, options: RecoverOptions, ends: Sequence[int]) -> None:
        self.draft = draft
        self.ends = ends
        self.framed = framed
        self.evidence = evidence = framed.evidence
        self.store = evidence.store
        self.logs = evidence.logs
        self.findings = evidence.verified.report.findings
        self.options = options
        self.levels = delay_levels(evidence.store)
        neighbours = Neighbours(evidence.logs.results, options.now_ms or int(time.time() * 1000))
        self.solver = Solver(evidence, neighbours, self.levels, accept_odds=options.accept_odds)
        self.steps = Steps(draft, evidence, neighbours, self.levels)
        self.refusals: list[str] = []
        self.missing = False

    def run(self) -> None:
        """Add everything to the draft."""
        steps, evidence, framed = self.steps, self.evidence, self.framed
        damages = self._damages()
        new = (parse_message(fix.new)[0] for fix in self._fixes() if fix.new is not None)
        corrected = frozenset(key_of(message) for message in new if message is not None)
        known = evidence.about([(d.start, d.stop) for d in damages], corrected)
        evidence.add_ends(known)
        steps.notes.extend(known.notes)
        steps.rebuild.update(known.contested)
        layouts = self.solver.solve(damages, known)
        for layout in layouts:
            layout.merge = self.options.merge_neighbours
        self._place(layouts, known)
        steps.unplaced = framed.place(steps.unplaced)
        numbers = number_entries(self.store, layouts, entries_begin(evidence))
        for layout in layouts:
            if layout.refused:
                self.refusals.append(layout.refused)
            else:
                steps.cover(layout, numbers)
        for fix in self._fixes():
            steps.fix(fix)
        if steps.wrong:
            self.draft.facts[WRONG_PLACES] = list(steps.wrong)
        self.refusals.extend(framed.refusals)
        self._blanks()
        self._gaps()
        self._tell()

    def _fixes(self) -> list[Fix]:
        return [fix for at, fix in self.framed.fixes.items() if not self._is_link(fix.log.queue.find(at))]

    # --- damage and layouts ---------------------------------------------------------------------------------------

    def _damages(self) -> list[Damage]:
        """Return the spans to repair."""
        out: list[Damage] = []
        for log, end in zip(self.logs.results, self.ends, strict=True):
            front = missing_front(self.evidence, log)
            for damage in find_damage(log, end=end, front=front):
                if damage.file is None and not self.options.accept_fillers:
                    self.missing = True
                    self.refusals.append(
                        Text(
                            "{file} is missing: --accept-fillers replaces it with a file of fillers",
                            file=damage.home.name,
                        )
                    )
                elif not self._is_link(damage.file):
                    out.append(damage)
        out = take_in_blanks(out)
        merge = self.options.merge_neighbours
        return take_in_neighbours(out, self.evidence.progress, self.levels) if merge else out

    def _is_link(self, file: MappedFile | None) -> bool:
        """Return whether a file is a symbolic link, through which no repair writes; its damage stays."""
        entry = self.store.files.examined(file.path) if file is not None else None
        if file is None or entry is None or entry.link is None:
            return False
        text = Text(
            "{path} is a symbolic link, and a repair never writes through a link: its damage stays "
            "until the file is in the place of the link",
            path=self.store.relative(file.path),
        )
        if text not in self.refusals:
            self.refusals.append(text)
        return True

    def _place(self, layouts: Sequence[SpanLayout], known: Known) -> None:
        """Assign lost queue offsets without a place to free bytes between the records around them, in their order."""
        cells = [c for layout in layouts for c in layout.cells]
        claimed = {c.expected.slot.key for c in cells if c.expected is not None}
        between = [row for row in known.between if row[2].key not in claimed]
        for layout in layouts:  # units that point into the middle of a record
            start, stop = layout.damage.start, layout.damage.stop
            inside = (expected.slot for at, expected in known.at.items() if start <= at < stop)
            between += [(start - 1, stop, slot) for slot in inside if slot.key not in claimed]
        limit_entries(layouts, entries_begin(self.evidence))
        self.steps.unplaced.extend(place(layouts, between))
        for layout in layouts:
            layout.finish()

    def _blanks(self) -> None:
        """Correct the size of BLANKs that do not fill the rest of their file."""
        log = next((r for r in self.logs.results if not r.body_offset), None)
        for finding in self.findings.listed:
            left = finding.facts.get("left")
            file = log.queue.find(finding.offset) if log is not None else None
            if finding.code != codes.CL_BLANK_SIZE or file is None or not isinstance(left, int):
                continue
            size, at = records.build_blank(left)[:4], finding.offset - file.start
            self.draft.overwrite(file.path, at, size, Text("the size of a BLANK is the rest of its file"))
            self.steps.covered.append((finding.offset, finding.offset + records.BLANK_SIZE))

    def _gaps(self) -> None:
        """Report queue offsets without a record: a rebuilt queue would be shifted."""
        steps, shift = self.steps, self.options.allow_shift
        for slot in steps.unplaced:
            steps.rebuild.add(slot.name)
        if steps.unplaced:
            some = first_few([str(slot) for slot in steps.unplaced])
            text = Text("no room for a filler for {some}: a queue that a broker rebuilds is shifted by them", some=some)
            if shift:
                steps.notes.append(text)
            else:
                hint = Text("--accept-fillers makes room") if self.missing else Text("--accept-shift accepts that")
                self.draft.decisions.append(Placed("{text}; {hint}", text=text, hint=hint))
        steps.rebuild.update(self.framed.torn)
        (steps.notes if shift else self.refusals).extend(self.framed.gaps)

    # --- what a plan says of it -----------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Add what the operator must know and decide."""
        steps, draft = self.steps, self.draft
        visible = sorted(steps.fillers, key=lambda f: f.offset)
        if len(visible) > MOST_FILLERS and not self.options.accept_fillers:
            draft.decisions.append(
                Text(
                    "{visible} would get a visible filler; --accept-fillers accepts that",
                    visible=many(len(visible), "lost message"),
                )
            )
        draft.notes.extend(first_notes([*self.refusals, *steps.notes]))
        if visible and self.evidence.progress.unreadable:
            draft.notes.append(
                Text(
                    "unknown which groups will get the fillers: {unreadable}",
                    unreadable=self.evidence.progress.unreadable,
                )
            )
        if any(f.topic in OP_TOPICS for f in visible):
            draft.notes.append(Text("a lost op message ended transactions: the broker may ask their producers again"))
        draft.more["visible_fillers"] = len(visible)
        if visible:
            draft.facts["fillers"] = [f.to_json() for f in visible]
        if steps.restored:
            draft.facts["mended"] = [asdict(r) for r in sorted(steps.restored, key=lambda r: r.offset)]
        if steps.kept:
            draft.facts["kept"] = list(steps.kept)
        draft.list_damaged(steps.damaged)
        if steps.given_up:
            draft.more["good_messages_given_up"] = steps.given_up
        draft.unproved.update(code for _, code in self.framed.left)
        seen = Counter(group for filler in visible for group in filler.groups)
        draft.more["groups_that_will_see_them"] = dict(sorted(seen.items()))
