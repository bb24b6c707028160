"""Where DLedger's entries begin behind a legacy commitlog, also where the files on both sides are gone. Pure.

While legacy files are there DLedger deletes none of its own: its entry 0 stood right behind the legacy log. So a file
that is missing between the two is lost, and whose it was follows from what still knows entry 0, or its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.verify import Verified
from rmqstore.files.store import Store
from rmqstore.formats import dledger


def entries_begin(store: Store, verified: Verified) -> int | None:
    """The global offset of DLedger's entry 0; None where nothing proves it, and where the log began later.

    Proofs: entry 0 itself; files that join; entry 0's unit in DLedger's index; the first message's unit in a consume
    queue, which is 48 bytes behind the start of a DLedger file and at the start of a legacy one.
    """
    log, legacy = verified.dledger, verified.legacy
    if log is None or not log.queue.files:
        return None
    start, size = log.queue.start, log.queue.file_size
    first = log.queue.pread(dledger.ENTRY.size, start)
    entry = dledger.ENTRY.parse(first) if len(first) == dledger.ENTRY.size else {}
    if start == 0 or (entry.get("index"), entry.get("pos")) == (0, start):
        return start
    if legacy is None or not legacy.queue.files:
        return None
    end = legacy.queue.stop
    if end >= start or end % size or legacy.queue.file_size != size:
        return start if end == start else None
    from rmqstore.repair.salvage.dledger_headers import unit_of
    from rmqstore.repair.salvage.evidence.lost_messages import find_known

    unit = unit_of(store, 0)
    if unit is not None and end <= unit.pos <= start and unit.pos % size == 0:
        return unit.pos
    places = find_known(store, verified, [(end, start)]).by_offset
    for border in range(end, start, size):
        if border + log.lead in places:
            return border
        if border not in places:
            return None
    return None


def reach(store: Store, verified: Verified, log: LogResult) -> int:
    """Where a log ends: at its last record; in front of DLedger's first entry for a legacy commitlog.

    Where that entry's place is not known it cannot be told whose files are missing, and the legacy log ends with the
    files that it has.
    """
    if log is verified.logs.results[-1]:
        return log.wrote
    stop = log.tiling.stop
    begin = entries_begin(store, verified)
    joins = begin is not None and stop % log.queue.file_size == begin % log.queue.file_size == 0
    return max(stop, begin) if joins and begin is not None else stop


def missing_front(store: Store, verified: Verified, log: LogResult) -> tuple[int, int] | None:
    """The first files of DLedger's data, where they are gone, as global offsets."""
    begin = entries_begin(store, verified) if log is verified.dledger else None
    return (begin, log.queue.start) if begin is not None and begin < log.queue.start else None


def uncovered(store: Store, verified: Verified, filled: Sequence[int]) -> list[tuple[int, int]]:
    """What no file of a mixed store's log holds between its two parts; `filled`: starts of files that a plan makes."""
    legacy, log = verified.legacy, verified.dledger
    if legacy is None or log is None or not legacy.queue.files or not log.queue.files:
        return []
    size, first = log.queue.file_size, reach(store, verified, legacy)
    starts = [at for at in range(first, log.queue.start, size) if at not in filled]
    return [(at, min(at + size, log.queue.start)) for at in starts]
