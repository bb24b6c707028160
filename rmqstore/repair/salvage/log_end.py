"""Where the log ends: everything behind is zeroed, so that old records do not reappear.

A zero file of the right length behind the end is normal and stays. Nothing inside of a closing BLANK is touched: those
bytes are undefined, and nobody reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.record_findings import code_of
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import MappedFile, file_name_to_offset
from rmqstore.files.records import message_at
from rmqstore.files.store import Store
from rmqstore.formats.message import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Fault, Message
from rmqstore.repair.log.redispatch import Name, Sink
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import MOST_KEPT
from rmqstore.repair.plan.steps import Create, Span
from rmqstore.repair.salvage.behind_end import lost_behind
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.filler_records import QueueSlot
from rmqstore.repair.salvage.evidence.lost_messages import Ranges, find_known
from rmqstore.repair.salvage.evidence.spans import find_damage
from rmqstore.repair.salvage.legacy_boundary import entries_begin, uncovered
from rmqstore.repair.salvage.queue_ends import open_ends, take_ends
from rmqstore.scan.kernels import I64
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import last_nonzero_in


def dirty_tail(result: LogResult) -> bool:
    """Whether anything but zeros and BLANKs is behind the end of the log."""
    if result.stale_from is not None:
        return True
    return any(run.kind is Kind.DIRTY for run in result.tiling.tail())


def zero_from(draft: PlanBuilder, result: LogResult, end: int, why: str) -> None:
    """Zero everything from `end` (global offset) on; files that begin behind it go into quarantine."""
    dirty = False
    for file in result.queue.files:
        if file.stop <= end or draft.path(file.path) in draft.gone:
            continue
        last = last_nonzero_in(file, 1)
        if file.start <= end:
            if last is not None and file.start + last >= end:
                _zero(draft, file, end - file.start, last + 1, why)
            continue
        dirty |= last is not None
        if dirty:  # the files behind a discarded one go too: a hole must not stay
            draft.discard(file.path, why)


def _zero(draft: PlanBuilder, file: MappedFile, start: int, stop: int, why: str) -> None:
    name = draft.path(file.path)
    if stop - start <= MOST_KEPT:
        draft.spans.append(Span(name, start, stop - start, f"{file.start + start}.bin", why))
    draft.zero(file.path, start, stop - start, why)


def plan_tail(draft: PlanBuilder, result: LogResult) -> None:
    """Steps for the bytes behind the end of a log that continues as it is.

    A record at the very end whose bytes are wrong goes too, as a broker would have it: nothing follows it.
    """
    if not dirty_tail(result):
        return
    prefix = "DL" if result.lead else "CL"
    if result.stale_from is not None:
        draft.cures.add(f"{prefix}-STALE-TAIL")
        zero_from(draft, result, result.wrote, "old records of a truncated log")
        return
    for run in result.tiling.tail():
        if run.kind is not Kind.DIRTY:
            continue
        file = result.queue.find(run.start)
        if file is None or draft.path(file.path) in draft.gone:
            continue
        cause = code_of(run.cause, result.lead)
        draft.cures.add(cause if run.count else f"{prefix}-DIRTY-TAIL")
        damaged = run.count and run.cause is not Fault.PHYSICAL_OFFSET
        why = "damaged records at the very end" if damaged else "not a record: an interrupted write"
        _zero(draft, file, run.start - file.start, run.stop - file.start, why)


def lose_tail(draft: PlanBuilder, verified: Verified, result: LogResult) -> frozenset[Name]:
    """Count what stood behind the end of the log and is gone; the queues that lose a message by it."""
    counts = verified.report.findings.counts
    between = _lose_between(draft, verified)
    if not dirty_tail(result) and not any(n and PROBLEMS[code].points_behind_log for code, n in counts.items()):
        return between
    behind = lost_behind(draft.store, verified, result, _framed_behind(result, result.wrote))
    damaged = [run for run in result.tiling.tail() if run.count and run.cause is not Fault.PHYSICAL_OFFSET]
    draft.lose(behind.labels(), max(behind.size, sum(run.stop - run.start for run in damaged)))
    draft.lost_messages += behind.unknown
    draft.notes.extend(behind.notes)
    if behind.at_least:
        draft.more["at_least"] = True
    return between | frozenset(behind.counts)


def _lose_between(draft: PlanBuilder, verified: Verified) -> frozenset[Name]:
    """The same for DLedger's first files, behind a legacy commitlog's end, where no step makes them again.

    Where fillers can take their place their units stay: they alone know of those messages.
    """
    homes = {draft.path(d) for result in verified.logs.results for d in result.queue.directories}
    places = [step.path.rpartition("/") for step in draft.steps if isinstance(step, Create)]
    made = [file_name_to_offset(name) for home, _, name in places if home in homes]
    spans = uncovered(draft.store, verified, [at for at in made if at is not None])
    if not spans:
        return frozenset()
    known = find_known(draft.store, verified, spans)
    seats = [lost.seat for lost in known.by_offset.values()] + [seat for _, _, seat in known.floating]
    counts = Counter({(seat.topic, seat.queue_id): 0 for seat in seats})
    for seat in seats:
        counts[seat.topic, seat.queue_id] += max(1, seat.count)
    labels = {f"{topic}/{queue_id}": n for (topic, queue_id), n in counts.items()}
    draft.lose(labels, sum(lost.size or 0 for lost in known.by_offset.values()))
    draft.notes.append(
        f"no file of the log holds {spans[0][0]:,} to {spans[-1][1]:,}: their content cannot be recovered"
    )
    return frozenset() if entries_begin(draft.store, verified) is not None else frozenset(counts)


def drop_behind_hole(draft: PlanBuilder, result: LogResult) -> None:
    """Files behind the end of the log that do not join it, since one is missing between: nothing good is in them."""
    before = None
    hole = False
    for file in result.queue.files:
        hole |= before is not None and file.start > before.stop and file.start >= result.wrote
        before = file
        if hole and draft.path(file.path) not in draft.gone:
            draft.discard(file.path, "behind the end of the log, and behind a missing file")
            draft.cures.add(codes.DL_MISSING_FILE if result.lead else codes.CL_MISSING_FILE)


def _framed_behind(result: LogResult, cut: int) -> dict[int, QueueSlot]:
    """Framed but wrong records at or behind a place, by global offset: they count as lost like good ones."""
    out: dict[int, QueueSlot] = {}
    for run in result.tiling:
        if run.kind is Kind.DIRTY and run.count and run.start >= cut and run.cause is not Fault.PHYSICAL_OFFSET:
            for at, message in _records_of(result, run.start, run.stop):
                out[at] = QueueSlot(message.topic_text, message.queue_id, message.queue_offset)
    return out


def lost_in_damage(store: Store, verified: Verified, result: LogResult, cut: int) -> tuple[Counter[str], bool]:
    """Messages per queue that damage behind a cut held, and whether there may have been more that nothing tells of."""
    last = result is verified.logs.results[-1]
    end = result.wrote if last else result.tiling.stop
    counts: Counter[str] = Counter()
    more = False
    if last:
        behind = lost_behind(store, verified, result, _framed_behind(result, result.wrote))
        counts.update(behind.labels())
        more = behind.at_least
    spans = [(d.start, d.stop) for d in find_damage(result, end=end) if d.stop > cut]
    if not spans:
        return counts, more
    known = find_known(store, verified, spans)
    ranges = Ranges(spans)
    take_ends(known, verified.logs, ranges, ConsumerProgress(store))
    seats = {at: lost.seat for at, lost in known.by_offset.items()}
    for at, seat in _framed_behind(result, cut).items():
        if at < end:
            seats.setdefault(at, seat)
    placed = {(s.topic, s.queue_id, s.queue_offset) for s in seats.values()}
    others = [s for _, _, s in known.floating if (s.topic, s.queue_id, s.queue_offset) not in placed]
    for seat in (*seats.values(), *others):
        counts[f"{seat.topic}/{seat.queue_id}"] += max(1, seat.count)
    return counts, more or bool(open_ends(verified.logs, known, ranges))


def _records_of(result: LogResult, start: int, stop: int) -> Iterator[tuple[int, Message]]:
    at = start
    while at < stop:
        message = message_at(result.queue, at + result.lead, stop - at - result.lead)
        if message is None:
            break
        if message.transaction_type not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            yield at + result.lead, message
        at += result.lead + message.size


def first_damage(result: LogResult, listed: list[int], *, last: bool = True) -> int | None:
    """Where a replica must cut: the first byte outside good records (`listed`: where findings are). Global offset.

    `last`: the log's end is the store's end; behind a legacy commitlog DLedger goes on, so damage at its end counts.
    """
    end = result.wrote if last else result.tiling.stop
    bad = result.tiling.first_bad()
    places = [at for at in listed if result.tiling.start <= at < end]
    if bad is not None and bad.start < end:
        places.append(bad.start)
    return min(places, default=None)


class Counting(Sink):
    """Counts the messages of a part of the log per queue."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes = 0

    def rows(self, names: list[Name], number: I64, queue_offset: I64, offset: I64, size: I64, tags: I64) -> None:
        found, counts = np.unique(number, return_counts=True)
        for n, count in zip(found.tolist(), counts.tolist(), strict=True):
            topic, queue_id = names[n]
            self.counts[f"{topic}/{queue_id}"] += count
        self.bytes += int(size.sum())

    def batch(self, name: Name, offset: int, size: int, tags: int, time: int, base: int, count: int) -> None:
        self.counts[f"{name[0]}/{name[1]}"] += count
        self.bytes += size
