"""Divides a damaged span into cells, one per record, as far as units, framing and the DLedger index show.

The cells of DLedger data are numbered: index and term in each header continue those of the entries around. The indexes
on both sides of a span show how many entries it contained, and the index file shows where they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import accumulate

from rmqstore.checks.log.commitlog import LogResult, framed_records
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE, Fault, Message, check_message
from rmqstore.repair.repaired_log import last_before
from rmqstore.repair.salvage.candidates import Kept, is_another_one
from rmqstore.repair.salvage.evidence import Between, Expected, QueueSlot
from rmqstore.repair.salvage.fillers import LARGEST_UNSEEN, SMALLEST, smallest_visible
from rmqstore.repair.salvage.places import Damage, header_at, unit_of
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text, many

_ROOMY = 320
"""Preferred length (bytes) of a filler for a record of unknown size: enough for its mark."""

MERGE_OPTION = "--merge-neighbours"
_MOST = 1024  # bytes of such a filler
_TRIED = 64  # maximum number of slots that do not fit, before the next room is tried


@dataclass(slots=True)
class Cell:
    """The place of one record: `length` bytes from `start` (global offset; in DLedger data the entry's).

    `expected` is the message that witnesses expect there, `message` a record with valid framing, `blank` the end of the
    file. `kept` is the solver's answer if the message is not lost. `given_up`: a good message is lost, because the
    damage beside it is too short for a filler.
    """

    start: int
    length: int
    expected: Expected | None = None
    message: Message | None = None
    blank: bool = False
    kept: Kept | None = None
    given_up: bool = False

    @property
    def stop(self) -> int:
        return self.start + self.length

    @property
    def unknown(self) -> bool:
        """Return whether nothing is known about the record."""
        return self.expected is None and self.kept is None and not self.blank and self.message is None

    def take_in(self, start: int, length: int) -> None:
        """Add bytes beside the cell that are too few for a record; a kept message is then lost."""
        if not length:
            return
        self.start = min(self.start, start)
        self.length += length
        if self.kept is not None:
            self.kept, self.given_up = None, True
        elif not self.given_up:
            self.message = None


@dataclass(slots=True)
class Limit:
    """How many messages, of which `taken` are placed, fit into spans whose number of lost entries is known."""

    most: int
    taken: int = 0


@dataclass(slots=True)
class Free:
    """Bytes [start, stop) without a known record, in which `slots` are placed.

    `last`: the file ends at `stop`. `single`: the bytes are those of one unknown record. `limit`: shared with other
    free bytes; None without one. `needed`: bytes of the shortest fillers of all slots; `promised`: bytes that the slots
    were placed with.
    """

    start: int
    stop: int
    last: bool
    body_offset: int
    single: bool = False
    slots: list[QueueSlot] = field(default_factory=list)
    limit: Limit | None = None
    needed: int = 0
    promised: int = 0

    def clear(self) -> None:
        """Remove all slots."""
        self.slots.clear()
        self.needed = self.promised = 0
        if self.limit is not None:
            self.limit.taken = 0

    def take(self, slot: QueueSlot, least: int) -> bool:
        """Place one more slot, with at least `least` bytes for each, unless `full`; return whether it fits."""
        needed = smallest_visible(slot) + self.body_offset
        promised = self.promised + (needed if self.single else max(least, needed))
        fits = promised + (BLANK_SIZE if self.last else 0) <= self.stop - self.start and not self._at_limit
        if fits:
            self.slots.append(slot)
            self.needed += needed
            self.promised = promised
            if self.limit is not None:
                self.limit.taken += 1
        return fits

    @property
    def _at_limit(self) -> bool:
        return self.limit is not None and self.limit.taken >= self.limit.most

    @property
    def full(self) -> bool:
        """Return whether there is no room for another filler."""
        if (self.single and self.slots) or self._at_limit:
            return True
        return self.stop - self.start - self.needed < SMALLEST + self.body_offset


@dataclass(slots=True)
class SpanLayout:
    """The cells of one damaged span, and the `free` bytes in which no record is known.

    `refused` is the reason if the span cannot be repaired. `merge` allows a good message to be given up for damage
    beside it that is too short for a record.
    """

    damage: Damage
    cells: list[Cell] = field(default_factory=list)
    free: list[Free] = field(default_factory=list)
    refused: str = ""
    merge: bool = False

    @property
    def body_offset(self) -> int:
        return self.damage.log.body_offset

    def finish(self) -> None:
        """Divide the free bytes into cells, so that the cells cover the span."""
        size = self.damage.log.queue.file_size
        divided = (cell for free in self.free for cell in _divide(free, size))
        self.cells = self._joined(sorted((*self.cells, *divided), key=lambda c: c.start))

    def _joined(self, cells: list[Cell]) -> list[Cell]:
        """Merge cells too short for a record into a rebuilt neighbour, or into a good message if `merge` allows it."""
        out: list[Cell] = []
        for i, cell in enumerate(cells):
            least = BLANK_SIZE if cell.blank else SMALLEST + self.body_offset
            known = cell.kept is not None or cell.expected is not None or cell.message is not None
            before = out[-1] if out and not out[-1].blank else None
            after = cells[i + 1] if i + 1 < len(cells) else None
            beside = [c for c in (before, after) if c is not None]
            rebuilt = [c for c in beside if c.kept is None]
            if known or cell.length >= least:
                out.append(cell)
            elif rebuilt:
                rebuilt[0].take_in(cell.start, cell.length)
            elif self.merge and beside:
                min(beside, key=lambda c: c.expected is not None).take_in(cell.start, cell.length)
            else:
                self.refused = Text(
                    "no record is as short as {length} (at {start:,}): {merge_option} gives up a good message beside "
                    "them",
                    length=many(cell.length, "byte"),
                    start=cell.start,
                    merge_option=MERGE_OPTION,
                )
                out.append(cell)
        return out


def lay_out(
    damage: Damage,
    expected: Mapping[int, Expected],
    bounds: Sequence[tuple[int, int]],
    taken: Sequence[Cell],
    own: Callable[[Message, int], bool],
) -> SpanLayout:
    """Find the cells of a span.

    `bounds` are (start, length) of its first entries if DLedger's index has them, `taken` the good records by which it
    was extended. `own` returns whether a record with another PHYSICALOFFSET may belong here; otherwise it is stale, and
    its size proves nothing.
    """
    body_offset, cells, rest = damage.log.body_offset, {cell.start: cell for cell in taken}, damage.start
    if bounds and cells.keys() <= {start for start, _ in bounds}:
        for start, length in bounds:
            if start in cells:
                cells[start].take_in(cells[start].stop, start + length - cells[start].stop)
                continue
            found = message_at(damage.log.queue, start + body_offset)
            fits = found is not None and found.size == length - body_offset
            cells[start] = Cell(start, length, expected.get(start + body_offset), found if fits else None)
        rest = sum(bounds[-1])
    if rest < damage.stop:
        framed = {at: m for at, m in _sound_messages(damage, rest) if at not in cells}
        framed |= {at: m for at, m in _frames(damage) if at >= rest}
        frames = [Cell(at, body_offset + m.size, message=m) for at, m in sorted(framed.items())]
        moved = _moved(frames, body_offset)
        for cell in frames:
            cell.expected = expected.get(cell.start + body_offset)
            if _is_here(cell, body_offset, moved, own):
                cells[cell.start] = cell
        for cell in _named(damage, expected, sorted(cells.values(), key=lambda c: c.start)):
            cells[cell.start] = cell
    layout = SpanLayout(damage, sorted(cells.values(), key=lambda c: c.start))
    at = damage.start
    for cell in (*layout.cells, Cell(damage.stop, 0)):
        if cell.start > at:
            last = damage.at_end and cell.start == damage.stop
            layout.free.append(Free(at, cell.start, last, body_offset))
        at = cell.stop
    return layout


def _frames(damage: Damage) -> Iterator[tuple[int, Message]]:
    """Yield records with valid framing and other damage; a run can hold several."""
    for run in damage.runs:
        if run.kind is Kind.DIRTY and run.count:
            yield from framed_records(damage.log, run.start, run.stop)


def _sound_messages(damage: Damage, start: int) -> Iterator[tuple[int, Message]]:
    """Messages of DLedger entries that follow each other from `start` on, under damaged headers."""
    body_offset = damage.log.body_offset
    for at, message in framed_records(damage.log, start, damage.stop) if body_offset else ():
        if check_message(message, at + body_offset) is not Fault.NONE:
            return
        yield at, message


def _moved(frames: Sequence[Cell], body_offset: int) -> frozenset[int]:
    """Return shifts (bytes) that several records of a span share, as after a swap of files."""
    shifts = Counter(f.message.physical_offset - f.start - body_offset for f in frames if f.message is not None)
    return frozenset(shift for shift, n in shifts.items() if n > 1 and shift)


def _is_here(cell: Cell, body_offset: int, moved: frozenset[int], own: Callable[[Message, int], bool]) -> bool:
    """Return whether a framed record belongs here, whatever its PHYSICALOFFSET is."""
    message, at = cell.message, cell.start + body_offset
    if message is None or message.physical_offset == at:
        return True
    if cell.expected is not None:
        return not is_another_one(message, at, cell.expected.slot)
    return message.physical_offset - at not in moved and own(message, at)


def _named(damage: Damage, expected: Mapping[int, Expected], frames: Sequence[Cell]) -> Iterator[Cell]:
    """Yield cells at the offsets of units, if they fit between the framed records and each other."""
    body_offset, starts = damage.log.body_offset, [f.start for f in frames]
    stops = [damage.start, *accumulate((f.stop for f in frames), max)]
    inside = sorted(at for at in (offset - body_offset for offset in expected) if damage.start <= at < damage.stop)
    inside = [at for at in inside if stops[bisect_right(starts, at)] <= at]
    limit = damage.stop - (BLANK_SIZE if damage.at_end else 0)
    for i, start in enumerate(inside):
        one, after = expected[start + body_offset], bisect_right(starts, start)
        bound = min([limit, *inside[i + 1 : i + 2], *starts[after : after + 1]])
        length = (one.size or 0) + body_offset
        if length - body_offset < MIN_SIZE or start + length > bound:
            length = bound - start  # the size is damaged too
        if length >= smallest_visible(one.slot) + body_offset:
            yield Cell(start, length, one)


# --- queue offsets without a known place ------------------------------------------------------------------------------


def place(layouts: Sequence[SpanLayout], between: Sequence[Between]) -> list[QueueSlot]:
    """Assign lost queue offsets to rooms between the records around them; return those without room.

    The one whose range ends first is placed first, so that the offsets of a queue stay in order. If there is enough
    room, each filler gets the bytes for its mark.
    """
    unplaced: list[QueueSlot] = []
    for least in (_ROOMY, 0):
        unknown = [(c, layout.body_offset) for layout in layouts for c in layout.cells if c.unknown]
        single = [Free(c.start, c.stop, False, body_offset, single=True) for c, body_offset in unknown]
        free = [f for layout in layouts for f in layout.free]
        for one in free:
            one.clear()
        unplaced = _fill(sorted((*single, *free), key=lambda room: room.start), between, least)
        if not unplaced or not least:
            for (cell, _), room in zip(unknown, single, strict=True):
                cell.expected = Expected(room.slots[0]) if room.slots else None
            break
    return unplaced


def _fill(rooms: Sequence[Free], between: Sequence[Between], least: int) -> list[QueueSlot]:
    waiting: list[tuple[int, str, int, int, QueueSlot]] = []
    coming = sorted(between, key=lambda row: row[0], reverse=True)
    unplaced: list[QueueSlot] = []
    for room in rooms:
        while coming and coming[-1][0] < room.stop:
            _, after, slot = coming.pop()
            heappush(waiting, (after, *slot.key, slot))
        while waiting and waiting[0][0] < room.stop:
            unplaced.append(heappop(waiting)[-1])
        passed: set[QueueName] = set()  # if an offset does not fit, all later ones of its queue wait
        held: list[tuple[int, str, int, int, QueueSlot]] = []
        while waiting and not room.full and len(held) <= _TRIED:
            row = heappop(waiting)
            slot = row[-1]
            if slot.name in passed or not room.take(slot, least):
                passed.add(slot.name)
                held.append(row)
        for row in held:
            heappush(waiting, row)
    return unplaced + [row[-1] for row in sorted(waiting)] + [slot for _, _, slot in coming]


def _divide(free: Free, file_size: int) -> Iterator[Cell]:
    """Yield cells over free bytes: one per slot, then the rest."""
    at, ends = free.start, BLANK_SIZE if free.last else 0
    share, rest = (free.stop - at - ends) // max(1, len(free.slots)), free.needed
    for slot in free.slots:
        least = smallest_visible(slot) + free.body_offset
        length = max(least, min(share, _MOST))
        rest -= least
        if rest + ends > free.stop - at - length:
            length = least
        if not rest and not free.last and 0 < free.stop - at - length < SMALLEST + free.body_offset:
            length = free.stop - at
        yield Cell(at, length, Expected(slot))
        at += length
    yield from _rest(at, free, file_size)


def _rest(at: int, free: Free, file_size: int) -> Iterator[Cell]:
    """Yield cells for the rest of free bytes: a BLANK at the end of a file, otherwise unseen fillers."""
    least = SMALLEST + free.body_offset
    if free.last:
        if at % file_size == 0 and free.stop - at >= least + BLANK_SIZE:  # a file starts with a record
            yield Cell(at, least)
            at += least
        if free.stop > at:
            yield Cell(at, free.stop - at, blank=True)
        return
    while at < free.stop:
        left = free.stop - at
        length = left if left <= LARGEST_UNSEEN else min(LARGEST_UNSEEN, left - least)
        yield Cell(at, length)
        at += length


_LEAD = dledger.ENTRY.size
_LEAST = SMALLEST + _LEAD
_MOST_ENTRIES = 1 << 20


EntryNumbers = dict[int, tuple[int, int]]
"""Index and term of each cell in DLedger data, by the start of the cell."""


def index_bounds(store: Store, damage: Damage) -> list[tuple[int, int]]:
    """Return (start, length) of the entries of a span if the index file has all of them; otherwise nothing.

    The entries must tile the span; at the end of a file a BLANK may follow the last one. After the last good entry of
    the log, return the first entries, as far as the index file has them without a gap.
    """
    log, out = damage.log, list[tuple[int, int]]()
    if damage.start >= log.wrote:
        return _bounds_after(store, damage)
    after = next((r for r in log.tiling if r.kind is Kind.RECORDS and r.stop > damage.stop), None)
    following = header_at(log, max(after.start, damage.stop)) if log.body_offset and after is not None else None
    index = following.index - 1 if following is not None else -1
    while len(out) < _MOST_ENTRIES and (unit := unit_of(store, index)) is not None and unit.pos >= damage.start:
        if unit.pos < damage.stop:
            out.append((unit.pos, unit.size))
        index -= 1
    out.reverse()
    at = damage.start
    for start, length in out:
        if start != at or length < _LEAD + MIN_SIZE:
            return []
        at += length
    tiles = at == damage.stop or (damage.at_end and damage.stop - at >= dledger.MIN_BLANK_SIZE)
    return out if out and tiles else []


def _bounds_after(store: Store, damage: Damage) -> list[tuple[int, int]]:
    out, at, index = list[tuple[int, int]](), damage.start, damage.log.entries.last_index + 1
    while (unit := unit_of(store, index)) is not None and unit.pos <= at and at + unit.size <= damage.stop:
        if unit.pos == at and unit.size >= _LEAD + MIN_SIZE:
            out.append((at, unit.size))
            at += unit.size
        index += 1
    return out


def number_entries(store: Store, layouts: Sequence[SpanLayout], begin: int | None) -> EntryNumbers:
    """Number the cells of all spans; spans without good entries between them are numbered together.

    `begin` is the global offset of entry 0 if it is known. A span whose cells cannot be numbered is refused.
    """
    out: EntryNumbers = {}
    for group, before, after in _groups(layouts):
        refused = _number(store, out, group, before, after, begin)
        for layout in group:
            layout.refused = layout.refused or refused
    return out


def limit_entries(layouts: Sequence[SpanLayout], begin: int | None) -> None:
    """Limit the free bytes of DLedger data to the lost entries of which no cell is known yet, as `number_entries`."""
    for group, before, after in _groups(layouts):
        first = _first_index(group, before, begin)
        following = header_at(group[0].damage.log, after.start) if after is not None else None
        if first is None or following is None:
            continue
        limit = Limit(following.index - first - len(list(_entries(group))))
        for free in (free for layout in group for free in layout.free):
            free.limit = limit


def _groups(layouts: Sequence[SpanLayout]) -> Iterator[tuple[list[SpanLayout], Run | None, Run | None]]:
    """Yield the spans of DLedger data without good entries between them, with the good entries on both sides."""
    groups: dict[tuple[int, int], list[SpanLayout]] = {}
    around: dict[tuple[int, int], tuple[Run | None, Run | None]] = {}
    for layout in layouts:
        if layout.body_offset:
            before, after = _runs_around(layout.damage)
            key = (before.start if before else -1, after.start if after else -1)
            groups.setdefault(key, []).append(layout)
            around[key] = (before, after)
    for key, group in groups.items():
        yield group, *around[key]


def _first_index(group: Sequence[SpanLayout], before: Run | None, origin: int | None) -> int | None:
    """Return the index of the first lost entry by the entry before it, or by the global offset of entry 0."""
    if before is None:
        return 0 if group[0].damage.start == origin else None
    entry = header_at(group[0].damage.log, before.start)
    return entry.index + before.count if entry is not None else None


def _number(
    store: Store, out: EntryNumbers, group: list[SpanLayout], before: Run | None, after: Run | None, origin: int | None
) -> str:
    """Number the spans between two runs of good entries; return the reason if that is impossible, otherwise ""."""
    log, start = group[0].damage.log, group[0].damage.start
    following = header_at(log, after.start) if after is not None else None
    begin = _first_index(group, before, origin)
    if begin is None and following is not None:
        begin = following.index - len(list(_entries(group)))
    if begin is None or begin < 0:
        return Text("the indexes of the lost entries are unknown")
    if following is not None and not _fit_count(group, following.index - begin):
        return Text(
            "missing at {start:,}, more than the span can hold: {entries}",
            entries=many(following.index - begin, "entry", "entries"),
            start=start,
        )
    term = _last_term(log, before) if before is not None else 0
    high = following.term if following is not None else term
    for index, (_, cell) in enumerate(_entries(group), begin):
        entries = (unit_of(store, index), header_at(log, cell.start))
        known = [e.term for e in entries if e is not None and (e.index, e.pos) == (index, cell.start)]
        term = known[0] if known and term <= known[0] <= high else (term or high)
        out[cell.start] = (index, term)
    return ""


def _entries(group: Sequence[SpanLayout]) -> Iterator[tuple[SpanLayout, Cell]]:
    return ((layout, cell) for layout in group for cell in layout.cells if not cell.blank)


def _fit_count(group: list[SpanLayout], wanted: int) -> bool:
    """Split or merge unknown cells until their number is that of the missing indexes; return whether that succeeds."""
    while (count := len(list(_entries(group)))) != wanted:
        if not (_split_one(group) if count < wanted else _join_one(group)):
            return False
    return True


def _split_one(group: list[SpanLayout]) -> bool:
    """Add an entry: split the longest unknown cell, or shorten a BLANK."""
    free = [(a, c) for a, c in _entries(group) if c.kept is None and c.length >= 2 * _LEAST and c.expected is None]
    blanks = [(a, c) for a in group for c in a.cells if c.blank and c.length >= _LEAST + dledger.MIN_BLANK_SIZE]
    if not free and not blanks:
        return False
    layout, cell = max(free or blanks, key=lambda row: row[1].length)
    if free:
        half = cell.length // 2
        new = Cell(cell.start + half, cell.length - half)
        cell.length, cell.message = half, None
    else:
        new = Cell(cell.start, _LEAST)
        cell.start += _LEAST
        cell.length -= _LEAST
    layout.cells.append(new)
    layout.cells.sort(key=lambda c: c.start)
    return True


def _join_one(group: list[SpanLayout]) -> bool:
    """Merge an unknown cell into its neighbour."""
    for layout in group:
        for i, cell in enumerate(layout.cells):
            if cell.blank or cell.kept is not None or cell.expected is not None:
                continue
            beside = [layout.cells[k] for k in (i - 1, i + 1) if 0 <= k < len(layout.cells)]
            other = next((c for c in beside if c.kept is None), None)
            if other is not None:
                other.start = min(other.start, cell.start)
                other.length += cell.length
                other.message = None
                layout.cells.remove(cell)
                return True
    return False


def _runs_around(damage: Damage) -> tuple[Run | None, Run | None]:
    """Return the runs of good entries on both sides, without entries by which the damage was extended."""
    before = None
    for run in (run for run in damage.log.tiling if run.kind is Kind.RECORDS):
        taken = sum(run.start <= at < run.stop for at in damage.taken)
        if run.start < damage.start:
            before = replace(run, stop=min(run.stop, damage.start), count=run.count - taken)
        elif run.stop > damage.stop:
            return before, replace(run, start=max(run.start, damage.stop), count=run.count - taken)
    return before, None


def _last_term(log: LogResult, run: Run) -> int:
    """Return the term of the last entry of a run."""
    found = last_before(log, run.stop)
    entry = header_at(log, found[-1][0]) if found else None
    return entry.term if entry is not None else 0
