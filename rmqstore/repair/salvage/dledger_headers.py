"""DLedger: the headers around the records of a repaired span, with the index that continuity asks for.

How many entries a span held follows from the indexes around it; where they stood, from the index file. The bodies are
made as in a plain commitlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.formats.message import MIN_SIZE
from rmqstore.repair.salvage.evidence.filler_records import SMALLEST
from rmqstore.repair.salvage.evidence.spans import Damage, Neighbours
from rmqstore.repair.salvage.fillers import Entry
from rmqstore.repair.salvage.layout import Cell, Layout
from rmqstore.scan.tiling import Kind, Run

_LEAD = dledger.ENTRY.size
_LEAST = SMALLEST + _LEAD
_MOST_ENTRIES = 1 << 20


@dataclass(slots=True)
class EntryPlan:
    """Index and term of every cell in DLedger data, by the cell's position; or why they cannot be given."""

    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)  # by the damage's start

    def refused(self, layout: Layout) -> str:
        """Why a span cannot be covered; "" if it can."""
        return self.refusals.get(layout.damage.start, "")

    def entry(self, cell: Cell) -> Entry:
        """What the index unit of a cell must say."""
        index, term = self.numbers[cell.start]
        return Entry(index, term, cell.start, cell.length)

    def head(self, cell: Cell, body: int) -> bytes:
        """The 48 bytes in front of a record of `body` bytes."""
        index, term = self.numbers[cell.start]
        return dledger.ENTRY.build(size=_LEAD + body, index=index, term=term, pos=cell.start, body_length=body)


def index_bounds(store: Store, damage: Damage, neighbours: Neighbours) -> list[tuple[int, int]]:
    """(start, length) of the entries of a span, where the index file has them all and they tile it; else nothing.

    At the end of a file a BLANK may follow the last one.
    """
    behind = _entry_behind(damage.log, damage.stop)
    files = store.dledger
    if behind is None or files is None:
        return []
    out: list[tuple[int, int]] = []
    index = behind[0] - 1
    while index >= 0 and len(out) < _MOST_ENTRIES:
        unit = unit_of(store, index)
        if unit is None or unit.pos < damage.start:
            break
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


def plan_entries(store: Store, layouts: Sequence[Layout], begin: int | None) -> EntryPlan:
    """Number the cells of all spans; spans without good entries between them are numbered together.

    `begin`: the global offset of entry 0, where that is known.
    """
    plan = EntryPlan()
    groups: dict[tuple[int, int], list[Layout]] = {}
    around: dict[tuple[int, int], tuple[Run | None, Run | None]] = {}
    for layout in layouts:
        if not layout.lead:
            continue
        before, after = _runs_around(layout.damage.log, layout.damage)
        key = (before.start if before else -1, after.start if after else -1)
        groups.setdefault(key, []).append(layout)
        around[key] = (before, after)
    for key, group in groups.items():
        _number(store, plan, group, *around[key], begin)
    return plan


def _number(
    store: Store, plan: EntryPlan, group: list[Layout], before: Run | None, after: Run | None, origin: int | None
) -> None:
    log = group[0].damage.log
    first = _header(log, before.start) if before is not None else None
    behind = _header(log, after.start) if after is not None else None
    have = sum(not c.blank for layout in group for c in layout.cells)
    begin = first.index + (before.count if before is not None else 0) if first is not None else None
    if before is None and group[0].damage.start == origin:
        begin = 0
    elif begin is None and behind is not None:
        begin = behind.index - have
    if begin is None or begin < 0:
        for layout in group:
            plan.refusals[layout.damage.start] = "no good entry says which index the lost ones had"
        return
    if behind is not None and not _fit_count(group, behind.index - begin):
        for layout in group:
            plan.refusals[layout.damage.start] = (
                f"{behind.index - begin} entries are missing at {layout.damage.start:,}, more than the span can hold"
            )
        return
    low = _last_term(log, before) if before is not None else 0
    high = behind.term if behind is not None else low
    index = begin
    for layout in group:
        for cell in layout.cells:
            if cell.blank:
                continue
            unit = unit_of(store, index)
            known = unit.term if unit is not None and unit.pos == cell.start else None
            own = _header(log, cell.start)
            if known is None and own is not None and own.index == index and own.pos == cell.start:
                known = own.term
            low = known if known is not None and low <= known <= high else (low or high)
            plan.numbers[cell.start] = (index, low)
            index += 1


def _fit_count(group: list[Layout], wanted: int) -> bool:
    """Split or join cells that nobody knows until there are as many as indexes are missing."""
    cells = [(layout, c) for layout in group for c in layout.cells if not c.blank]
    while len(cells) < wanted:
        free = [(layout, c) for layout, c in cells if c.kept is None and c.length >= 2 * _LEAST and c.lost is None]
        blanks = [(layout, c) for layout in group for c in layout.cells if c.blank and c.length >= _LEAST + 8]
        if free:
            layout, cell = max(free, key=lambda row: row[1].length)
            half = cell.length // 2
            new = Cell(cell.start + half, cell.length - half)
            cell.length, cell.message = half, None
        elif blanks:
            layout, cell = max(blanks, key=lambda row: row[1].length)
            new = Cell(cell.start, _LEAST)
            cell.start += _LEAST
            cell.length -= _LEAST
        else:
            return False
        layout.cells.append(new)
        layout.cells.sort(key=lambda c: c.start)
        cells = [(layout, c) for layout in group for c in layout.cells if not c.blank]
    while len(cells) > wanted:
        if not _join_one(group):
            return False
        cells = [(layout, c) for layout in group for c in layout.cells if not c.blank]
    return True


def _join_one(group: list[Layout]) -> bool:
    """Give the bytes of one cell that nobody knows to its neighbour."""
    for layout in group:
        for i, cell in enumerate(layout.cells):
            if cell.blank or cell.kept is not None or cell.lost is not None:
                continue
            for k in (i - 1, i + 1):
                if not 0 <= k < len(layout.cells):
                    continue
                other = layout.cells[k]
                if other.kept is None:
                    other.start = min(other.start, cell.start)
                    other.length += cell.length
                    other.message = None
                    layout.cells.remove(cell)
                    return True
    return False


def _runs_around(log: LogResult, damage: Damage) -> tuple[Run | None, Run | None]:
    """The good entries on both sides, without those that the damage has taken in."""
    before = after = None
    for run in log.tiling:
        if run.kind is not Kind.RECORDS:
            continue
        taken = sum(run.start <= at < run.stop for at in damage.taken)
        if run.start < damage.start:
            before = replace(run, stop=min(run.stop, damage.start), count=run.count - taken)
        elif run.stop > damage.stop:
            after = replace(run, start=max(run.start, damage.stop), count=run.count - taken)
            break
    return before, after


def _entry_behind(log: LogResult, offset: int) -> tuple[int, int] | None:
    for run in log.tiling:
        if run.kind is Kind.RECORDS and run.stop > offset:
            head = _header(log, max(run.start, offset))
            return (head.index, head.term) if head is not None else None
    return None


def _last_term(log: LogResult, run: Run) -> int:
    """Term of the last entry of a run; the same as the first one's in nearly every log."""
    from rmqstore.scan.records import scan_file
    from rmqstore.scan.window import ScanOptions

    file = log.queue.find(run.start)
    term = 0
    if file is not None:
        options = ScanOptions(crc=False)
        for part in scan_file(
            file, start=run.start - file.start, stop=run.stop - file.start, lead=_LEAD, exact=True, options=options
        ):
            if part.kind is Kind.RECORDS and part.columns is not None:
                term = int(part.columns.entry_term[-1])
    return term


def _header(log: LogResult, at: int) -> Entry | None:
    """Index, term, pos and size that the header at a global offset says."""
    raw = log.queue.pread(_LEAD, at)
    if len(raw) < _LEAD:
        return None
    values = dledger.ENTRY.parse(raw)
    return Entry(values["index"], values["term"], values["pos"], values["size"])


def unit_of(store: Store, index: int) -> Entry | None:
    """The index unit of an entry, when it is one."""
    files = store.dledger
    if files is None or index < 0:
        return None
    raw = files.index.pread(dledger.INDEX_UNIT.size, dledger.index_at(index))
    if len(raw) < dledger.INDEX_UNIT.size:
        return None
    values = dledger.INDEX_UNIT.parse(raw)
    if values["magic"] != dledger.MAGIC or values["index"] != index:
        return None
    return Entry(index, values["term"], values["pos"], values["size"])
