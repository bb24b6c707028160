"""Numbers the DLedger entries of repaired spans: index and term in each header continue those of the entries around.

The indexes on both sides of a span show how many entries it contained, and the index file shows where they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.formats.message import MIN_SIZE
from rmqstore.repair.log.records_near import last_before
from rmqstore.repair.salvage.evidence.entries import EvidenceEntry, header_at, unit_of
from rmqstore.repair.salvage.evidence.places import Damage
from rmqstore.repair.salvage.fillers import SMALLEST
from rmqstore.repair.salvage.layout import Cell, SpanLayout
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text

_LEAD = dledger.ENTRY.size
_LEAST = SMALLEST + _LEAD
_MOST_ENTRIES = 1 << 20


@dataclass(slots=True)
class EntryNumbers:
    """Index and term of each cell in DLedger data, by the start of the cell."""

    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)

    def head(self, cell: Cell, body: int) -> bytes:
        """Return the header (48 bytes) for a record of `body` bytes."""
        index, term = self.numbers[cell.start]
        return dledger.ENTRY.build(size=_LEAD + body, index=index, term=term, pos=cell.start, body_length=body)


def index_bounds(store: Store, damage: Damage) -> list[tuple[int, int]]:
    """Return (start, length) of the entries of a span if the index file has all of them; otherwise nothing.

    The entries must tile the span; at the end of a file a BLANK may follow the last one. After the last good entry of
    the log, return the first entries, as far as the index file has them without a gap.
    """
    log, out = damage.log, list[tuple[int, int]]()
    if damage.start >= log.wrote:
        return _bounds_behind(store, damage)
    after = next((r for r in log.tiling if r.kind is Kind.RECORDS and r.stop > damage.stop), None)
    behind = header_at(log, max(after.start, damage.stop)) if log.body_offset and after is not None else None
    index = behind.index - 1 if behind is not None else -1
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


def _bounds_behind(store: Store, damage: Damage) -> list[tuple[int, int]]:
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
    out = EntryNumbers()
    groups: dict[tuple[int, int], list[SpanLayout]] = {}
    around: dict[tuple[int, int], tuple[Run | None, Run | None]] = {}
    for layout in layouts:
        if layout.body_offset:
            before, after = _runs_around(layout.damage)
            key = (before.start if before else -1, after.start if after else -1)
            groups.setdefault(key, []).append(layout)
            around[key] = (before, after)
    for key, group in groups.items():
        refused = _number(store, out, group, *around[key], begin)
        for layout in group:
            layout.refused = layout.refused or refused
    return out


def _number(
    store: Store, out: EntryNumbers, group: list[SpanLayout], before: Run | None, after: Run | None, origin: int | None
) -> str:
    """Number the spans between two runs of good entries; return the reason if that is impossible, otherwise ""."""
    log, start = group[0].damage.log, group[0].damage.start
    first, behind = _first_of(log, before), _first_of(log, after)
    begin = first.index + before.count if first is not None and before is not None else None
    if before is None and start == origin:
        begin = 0
    elif begin is None and behind is not None:
        begin = behind.index - len(list(_entries(group)))
    if begin is None or begin < 0:
        return Text("the indexes of the lost entries are unknown")
    if behind is not None and not _fit_count(group, behind.index - begin):
        return Text(
            "{index} entries are missing at {start:,}, more than the span can hold",
            index=behind.index - begin,
            start=start,
        )
    term = _last_term(log, before) if before is not None else 0
    high = behind.term if behind is not None else term
    for index, (_, cell) in enumerate(_entries(group), begin):
        entries = (unit_of(store, index), header_at(log, cell.start))
        known = [e.term for e in entries if e is not None and (e.index, e.pos) == (index, cell.start)]
        term = known[0] if known and term <= known[0] <= high else (term or high)
        out.numbers[cell.start] = (index, term)
    return ""


def _first_of(log: LogResult, run: Run | None) -> EvidenceEntry | None:
    """Return the first entry of a run according to its header."""
    return header_at(log, run.start) if run is not None else None


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
