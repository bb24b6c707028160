"""Plans the end of a log: zeroes everything after it, so that old records do not reappear.

A zero file of the right length after the end is normal and stays. The bytes of a BLANK at the end of a file are
undefined and never read, so they stay, too.
"""

from __future__ import annotations

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.mapped_file_queue import MappedFile, file_name_to_offset
from rmqstore.formats.message import Fault
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import MOST_KEPT
from rmqstore.repair.plan.steps import Create, Span
from rmqstore.repair.salvage.evidence.places import entries_begin
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.evidence.values import Name
from rmqstore.repair.salvage.loss import behind_end, missing_between
from rmqstore.repair.salvage.reach import reach
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import last_nonzero_in
from rmqstore.texts import Text


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


def lose_tail(draft: PlanBuilder, evidence: Evidence, log: LogResult) -> frozenset[Name]:
    """Count the messages lost after the end of the log; return the queues that lose one."""
    counts = evidence.verified.report.findings.counts
    between = _lose_between(draft, evidence)
    end = reach(evidence, log)
    tail = [run for run in log.tiling.tail() if run.kind is Kind.DIRTY and run.stop > end]
    dirty = log.stale_from is not None or tail
    if not dirty and not any(n and PROBLEMS[code].points_behind_log for code, n in counts.items()):
        return between
    ledger = behind_end(evidence, log)
    damaged = (run.stop - max(run.start, end) for run in tail if run.count and run.cause is not Fault.PHYSICAL_OFFSET)
    ledger.bytes = max(ledger.bytes, sum(damaged))
    ledger.book(draft)
    return between | frozenset(ledger.queues)


def _lose_between(draft: PlanBuilder, evidence: Evidence) -> frozenset[Name]:
    """Count the messages of DLedger's first files if they are missing, and no step creates them.

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
    ledger = missing_between(evidence, [(at, min(at + size, end)) for at in starts])
    ledger.book(draft)
    return frozenset() if entries_begin(evidence) is not None else frozenset(ledger.queues)


def drop_behind_hole(draft: PlanBuilder, log: LogResult) -> None:
    """Discard files after the end of the log and after a missing file: they have no good record."""
    before = None
    hole = False
    for file in log.queue.files:
        hole |= before is not None and file.start > before.stop and file.start >= log.wrote
        before = file
        if hole and draft.path(file.path) not in draft.gone:
            draft.discard(file.path, Text("after the end of the log, and after a missing file"))


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
