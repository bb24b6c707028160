"""How a damaged span is divided into records: what stood where, as far as units, frames and indexes tell. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rmqstore.files.records import message_at
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE, Message
from rmqstore.repair.salvage.candidates.fields import is_another_one
from rmqstore.repair.salvage.evidence.filler_records import LARGEST_UNSEEN, SMALLEST, QueueSlot, smallest_visible
from rmqstore.repair.salvage.evidence.lost_messages import Lost
from rmqstore.repair.salvage.evidence.spans import Damage
from rmqstore.repair.salvage.fillers import Restored
from rmqstore.scan.tiling import Kind

_ROOMY = 320
"""Bytes that a filler of unknown size should get: enough for its mark."""

MERGE_OPTION = "--merge-neighbours"
_MOST = 1024
_TRIED = 64


@dataclass(slots=True)
class Cell:
    """One record to be: `length` bytes from `start` (global offset; in DLedger data the entry's).

    `lost` says the queue offset that it keeps, None for none. `message` is what frames there, `blank` the end of the
    file. `kept` bytes stay or were mended; `unproved` says what of them could not be told. `restored`: the flipped bit
    that was put right in them. `given_up`: a good message stood here, and made room for damage beside it.
    """

    start: int
    length: int
    lost: Lost | None = None
    message: Message | None = None
    blank: bool = False
    kept: bytes | None = None
    fields: tuple[str, ...] = ()
    unproved: str = ""
    restored: Restored | None = None
    given_up: bool = False

    @property
    def stop(self) -> int:
        return self.start + self.length

    @property
    def unknown(self) -> bool:
        """Whether nothing says what stood here."""
        return self.lost is None and self.kept is None and not self.blank and self.message is None


@dataclass(slots=True)
class Layout:
    """The cells of one damaged span; `free` is what nothing is known of, with the seats that were put there.

    `merge`: a message that could be kept may make room for damage beside it that is too short for a record.
    """

    damage: Damage
    cells: list[Cell] = field(default_factory=list)
    free: list[Free] = field(default_factory=list)
    refused: str = ""
    merge: bool = False

    @property
    def lead(self) -> int:
        return self.damage.log.lead

    def finish(self) -> None:
        """Divide the free bytes, so that the cells cover the span."""
        cells = list(self.cells)
        for free in self.free:
            cells.extend(_divide(free, self))
        cells.sort(key=lambda c: c.start)
        self.cells = _joined(cells, self)


@dataclass(slots=True)
class Free:
    """Bytes [start, stop) without known record; `seats` are to be placed in them. `last`: the file ends behind."""

    start: int
    stop: int
    last: bool
    lead: int
    seats: list[QueueSlot] = field(default_factory=list)

    def room_for(self, seat: QueueSlot, least: int) -> bool:
        """Whether one more seat finds place, with at least `least` bytes for each."""
        used = sum(max(least, smallest_visible(s) + self.lead) for s in (*self.seats, seat))
        return used + (BLANK_SIZE if self.last else 0) <= self.stop - self.start


def lay_out(
    damage: Damage,
    by_offset: Mapping[int, Lost],
    bounds: Sequence[tuple[int, int]] = (),
    taken: Sequence[Cell] = (),
    *,
    own: Callable[[Message, int], bool] = lambda _message, _at: True,
) -> Layout:
    """What is known to be in a span. `bounds`: (start, length) of all its entries, where DLedger's index says so.

    `taken`: the good records in it. `own`: whether a record that says another place may be of this one; else it is a
    stale one, and its bounds say nothing.
    """
    layout = Layout(damage)
    lead = damage.log.lead
    cells: dict[int, Cell] = {cell.start: cell for cell in taken}
    if not cells.keys() <= {start for start, _ in bounds}:
        bounds = ()
    for start, length in bounds:
        if (own_cell := cells.get(start)) is not None:
            _grow(own_cell, Cell(own_cell.stop, start + length - own_cell.stop))
            continue
        found = message_at(damage.log.queue, start + lead)
        fits = found is not None and found.size == length - lead
        cells[start] = Cell(start, length, by_offset.get(start + lead), found if fits else None)
    if not bounds:
        frames = list(_frames(damage))
        moved = _moved(frames, lead)
        for cell in frames:
            cell.lost = by_offset.get(cell.start + lead)
            message, at = cell.message, cell.start + lead
            here = message is None or message.physical_offset == at
            if message is not None and not here:
                here = (
                    not is_another_one(message, at, cell.lost.seat)
                    if cell.lost is not None
                    else message.physical_offset - at not in moved and own(message, at)
                )
            if here:
                cells[cell.start] = cell
        for cell in _units(damage, by_offset, sorted(cells.values(), key=lambda c: c.start)):
            cells[cell.start] = cell
    layout.cells = sorted(cells.values(), key=lambda c: c.start)
    at = damage.start
    for cell in (*layout.cells, Cell(damage.stop, 0)):
        if cell.start > at:
            last = damage.at_end and cell.start == damage.stop
            layout.free.append(Free(at, cell.start, last, lead))
        at = cell.stop
    return layout


def place(layouts: Sequence[Layout], floating: Sequence[tuple[int, int, QueueSlot]]) -> list[QueueSlot]:
    """Give lost queue offsets without a place one between the records around them; returns those without room.

    `floating`: (before, at, seat), somewhere between two global offsets. The one whose room ends first comes first, so
    that the offsets of a queue stay in their order. With much room every filler gets enough for its mark.
    """
    unplaced: list[QueueSlot] = []
    for least in (_ROOMY, 0):
        slots: list[_Slot] = []
        for layout in layouts:
            for free in layout.free:
                free.seats.clear()
                slots.append(_Slot(free.start, free.stop, free=free))
            slots += [_Slot(c.start, c.stop, cell=c, lead=layout.lead) for c in layout.cells if c.unknown]
        unplaced = _fill(sorted(slots, key=lambda s: s.start), floating, least)
        for slot in slots:
            if slot.cell is not None and slot.seat is not None and (not unplaced or not least):
                slot.cell.lost = Lost(slot.seat)
        if not unplaced:
            break
    return unplaced


@dataclass(slots=True)
class _Slot:
    """Room for seats: free bytes for any number, or one cell for one."""

    start: int
    stop: int
    free: Free | None = None
    cell: Cell | None = None
    lead: int = 0
    seat: QueueSlot | None = None

    @property
    def full(self) -> bool:
        """Whether not even the shortest filler finds room."""
        if self.free is None:
            return self.seat is not None
        used = sum(smallest_visible(s) + self.free.lead for s in self.free.seats)
        return self.stop - self.start - used < SMALLEST + self.free.lead

    def take(self, seat: QueueSlot, least: int) -> bool:
        if self.free is not None:
            if not self.free.room_for(seat, least):
                return False
            self.free.seats.append(seat)
            return True
        if self.seat is not None or self.stop - self.start < smallest_visible(seat) + self.lead:
            return False
        self.seat = seat
        return True


def _fill(slots: Sequence[_Slot], floating: Sequence[tuple[int, int, QueueSlot]], least: int) -> list[QueueSlot]:
    waiting: list[tuple[int, str, int, int, QueueSlot]] = []
    coming = sorted(floating, key=lambda row: row[0], reverse=True)
    unplaced: list[QueueSlot] = []
    for slot in slots:
        while coming and coming[-1][0] < slot.stop:
            _, at, seat = coming.pop()
            heappush(waiting, (at, seat.topic, seat.queue_id, seat.queue_offset, seat))
        while waiting and waiting[0][0] < slot.stop:
            unplaced.append(heappop(waiting)[-1])
        passed: set[tuple[str, int]] = set()  # a queue whose next offset does not fit here waits with all of them
        held: list[tuple[int, str, int, int, QueueSlot]] = []
        while waiting and not slot.full:
            row = heappop(waiting)
            seat = row[-1]
            if row[0] < slot.stop or (seat.topic, seat.queue_id) in passed or not slot.take(seat, least):
                passed.add((seat.topic, seat.queue_id))
                held.append(row)
            if len(held) > _TRIED:
                break
        for row in held:
            heappush(waiting, row)
    return unplaced + [row[-1] for row in sorted(waiting)] + [seat for _, _, seat in coming]


def _frames(damage: Damage) -> Iterator[Cell]:
    """Records that frame but are wrong in another way; one run can hold several."""
    for run in damage.runs:
        if run.kind is not Kind.DIRTY or not run.count:
            continue
        at = run.start
        while at < run.stop:
            message = message_at(damage.log.queue, at + damage.log.lead)
            if message is None or at + damage.log.lead + message.size > run.stop:
                break
            yield Cell(at, damage.log.lead + message.size, message=message)
            at += damage.log.lead + message.size


def _moved(frames: Sequence[Cell], lead: int) -> frozenset[int]:
    """The shift in bytes that several records of a span agree on: a swapped file, an old one."""
    shifts = Counter(f.message.physical_offset - f.start - lead for f in frames if f.message is not None)
    return frozenset(shift for shift, n in shifts.items() if n > 1 and shift)


def _units(damage: Damage, by_offset: Mapping[int, Lost], frames: Sequence[Cell]) -> Iterator[Cell]:
    """Places that units give, where they fit between the frames and each other."""
    lead = damage.log.lead
    taken = {frame.start for frame in frames}
    inside = sorted(
        offset - lead
        for offset in by_offset
        if damage.start <= offset - lead < damage.stop and not any(f.start <= offset - lead < f.stop for f in frames)
    )
    limit = damage.stop - (BLANK_SIZE if damage.at_end else 0)
    for i, start in enumerate(inside):
        lost = by_offset[start + lead]
        after = [s for s in (*inside[i + 1 : i + 2], *(t for t in taken if t > start)) if s > start]
        bound = min([limit, *after])
        length = (lost.size or 0) + lead
        if length - lead < MIN_SIZE or start + length > bound:
            length = bound - start  # the size is damaged too
        if length >= smallest_visible(lost.seat) + lead:
            yield Cell(start, length, lost)


def _divide(free: Free, layout: Layout) -> Iterator[Cell]:
    """Cells over free bytes: a filler for each seat, then what is left."""
    at = free.start
    if free.seats:
        ends = BLANK_SIZE if free.last else 0
        share = (free.stop - at - ends) // len(free.seats)
        for i, seat in enumerate(free.seats):
            length = max(smallest_visible(seat) + free.lead, min(share, _MOST))
            left = free.stop - at - length
            rest_seats = free.seats[i + 1 :]
            if sum(smallest_visible(s) + free.lead for s in rest_seats) + ends > left:
                length = smallest_visible(seat) + free.lead
            if not rest_seats and not free.last and 0 < free.stop - at - length < SMALLEST + free.lead:
                length = free.stop - at
            yield Cell(at, length, Lost(seat))
            at += length
    yield from _rest(at, free, layout)


def _rest(at: int, free: Free, layout: Layout) -> Iterator[Cell]:
    """Bytes that no queue misses: a BLANK at a file's end, else fillers that no queue sees."""
    size = layout.damage.log.queue.file_size
    if free.last:
        if at % size == 0 and free.stop - at >= SMALLEST + free.lead + BLANK_SIZE:  # a file starts with a record
            yield Cell(at, SMALLEST + free.lead)
            at += SMALLEST + free.lead
        if free.stop > at:
            yield Cell(at, free.stop - at, blank=True)
        return
    least = SMALLEST + free.lead
    while at < free.stop:
        left = free.stop - at
        length = left if left <= LARGEST_UNSEEN else min(LARGEST_UNSEEN, left - least)
        yield Cell(at, length)
        at += length


def _joined(cells: list[Cell], layout: Layout) -> list[Cell]:
    """Cells too short for a record go to a neighbour that is rebuilt; a good message is given up only on request."""
    out: list[Cell] = []
    for i, cell in enumerate(cells):
        least = BLANK_SIZE if cell.blank else SMALLEST + layout.lead
        known = cell.kept is not None or cell.lost is not None or cell.message is not None
        before = out[-1] if out and not out[-1].blank else None
        after = cells[i + 1] if i + 1 < len(cells) else None
        if known or cell.length >= least:
            out.append(cell)
        elif before is not None and before.kept is None:
            _grow(before, cell)
        elif after is not None and after.kept is None:
            _grow(after, cell)
        elif layout.merge and (before is not None or after is not None):
            sides = [c for c in (before, after) if c is not None]
            _grow(min(sides, key=lambda c: c.lost is not None), cell)
        else:
            layout.refused = (
                f"{cell.length} bytes at {cell.start:,} are too few for a record, and a good message beside them would "
                f"have to go: {MERGE_OPTION} gives it up"
            )
            out.append(cell)
    return out


def _grow(cell: Cell, short: Cell) -> None:
    """Give bytes that are too few for a record to the cell beside them, which becomes a filler."""
    if not short.length:
        return
    cell.start = min(cell.start, short.start)
    cell.length += short.length
    if cell.kept is None:
        cell.message = cell.message if cell.given_up else None
    else:
        cell.kept, cell.fields, cell.unproved = None, (), ""
        cell.given_up = True
