"""Determines the end of each log after a repair: after the last message that can be kept.

Damage at the very end of a log may hide a sound message, if only the header before it was damaged. The solver decides,
as in the middle of the log. Records that no witness proves are truncated, as by a broker.
"""

from __future__ import annotations

from itertools import takewhile

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.formats.message import PHYSICAL_OFFSET_AT
from rmqstore.repair.salvage.evidence.places import Neighbours, entries_begin, find_damage
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.layout import Cell
from rmqstore.repair.salvage.solve import Solver
from rmqstore.scan.tiling import Kind


def reach(evidence: Evidence, log: LogResult) -> int:
    """Return the global offset where a log ends: after its last record that is good or can be proved.

    A legacy commitlog ends before DLedger's first entry. If the place of that entry is unknown, it is also unknown
    whose files are missing, and the legacy log ends with its existing files.
    """
    if log is evidence.logs.results[-1]:
        if evidence.end is None:
            evidence.end = _proved_end(evidence, log)
        return evidence.end
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
    for layout in solver.layouts(damages, known):
        solver.solve(layout, known)
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
