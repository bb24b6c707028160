"""Finds the places of a log that need a replica's bytes: damage, missing files, fillers, both ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems.problem import Severity
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.repair.log.records_near import records_between
from rmqstore.repair.log.spans import Span, joined, meets
from rmqstore.repair.replica.replica import Replica, filler_spans
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.loss import last_named
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text

_BLOCK = 1 << 20
_BAD = (Kind.DIRTY, Kind.ZERO, Kind.HOLE)


@dataclass(frozen=True, slots=True)
class HealOptions:
    """What to take from a replica in addition to damaged places.

    `extend`: records after the end of the log, and before its first file. `fillers`: messages that fillers of earlier
    repairs replaced.
    """

    extend: bool = False
    fillers: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Bytes [start, stop) of a log that a replica may have, as global offsets of record starts.

    `open_end`: the place is after the end of the log, so that the replica's last record there may end after `stop`.
    `lost_until` is the offset up to which this store had messages.
    """

    log: LogResult
    start: int
    stop: int
    kind: str
    open_end: bool = False
    lost_until: int = 0

    @property
    def span(self) -> Span:
        return self.start, self.stop

    def pieces(self) -> Iterator[Span]:
        """Yield its parts, each in one file of the log."""
        size, at = self.log.queue.file_size, self.start
        while at < self.stop:
            border = min(self.stop, (at // size + 1) * size)
            yield at, border
            at = border


DAMAGE, MISSING, FILLER, DOUBT, TAIL = "damaged", Text("missing file"), "filler", "contradicted", Text("end of the log")
OUTVOTED = "outvoted"
"""A record that looks good, but differs from that of all replicas. This store may have diverged."""


def find_places(
    store: Store, verified: Verified, log: LogResult, replicas: Sequence[Replica], heal_options: HealOptions
) -> list[Place]:
    """Find all places of one log of a store, in address order."""
    end = log.wrote if log is verified.logs.results[-1] else log.tiling.stop  # DLedger continues a legacy log
    inside = [*_damaged(log, end), *_between(verified, log, replicas)]
    if heal_options.fillers:
        inside += [Place(log, a, b, FILLER) for a, b in _with_blanks(log, filler_spans(store, log))]
    inside += _contradicted(verified, log, replicas)
    if log is verified.logs.results[-1]:
        inside += _tail(store, verified, log, replicas, heal_options)
    if heal_options.extend and log is verified.logs.results[0]:
        inside += _front(log, replicas)
    apart = joined([*filler_spans(store, log), *(p.span for p in inside)])
    outvoted = [place for place in _outvoted(log, replicas) if not meets(place.span, apart)]
    return sorted([*_merged(inside), *_merged(outvoted)], key=lambda p: p.start)


def _merged(places: Iterable[Place]) -> list[Place]:
    """Merge places that touch."""
    out: list[Place] = []
    for place in sorted(places, key=lambda p: p.start):
        last = out[-1] if out else None
        if last is None or last.stop < place.start:
            out.append(place)
            continue
        out[-1] = replace(
            last,
            stop=max(last.stop, place.stop),
            open_end=last.open_end or place.open_end,
            lost_until=max(last.lost_until, place.lost_until),
        )
    return out


def _outvoted(log: LogResult, replicas: Sequence[Replica]) -> Iterator[Place]:
    """Yield records that differ from the same good record of at least two, and of all, replicas that have one."""
    if len(replicas) < 2:
        return
    for run in log.tiling:
        if run.kind is not Kind.RECORDS:
            continue
        differing = list(_differing(log, replicas, run))
        for start, stop in records_between(log, run.start, run.stop - 1) if differing else ():
            theirs = _theirs(log, replicas, (start, stop)) if meets((start, stop), differing) else []
            if len(theirs) > 1 and len(set(theirs)) == 1 and log.queue.pread(stop - start, start) != theirs[0]:
                yield Place(log, start, stop, OUTVOTED)


def _theirs(log: LogResult, replicas: Sequence[Replica], span: Span) -> list[bytes]:
    """Return the bytes of a span in all replicas with a sound record at its start that nothing there contradicts."""
    body_offset = log.body_offset
    return [
        r.bytes_at(body_offset, *span)
        for r in replicas
        if r.sound_record(body_offset, span[0]) and not r.doubtful(body_offset, span)
    ]


def _differing(log: LogResult, replicas: Sequence[Replica], run: Run) -> Iterator[Span]:
    """Yield blocks of a run of records that differ in a replica."""
    for low in range(run.start, run.stop, _BLOCK):
        high = min(low + _BLOCK, run.stop)
        own = log.queue.pread(high - low, low)
        if any(r.bytes_at(log.body_offset, low, high) != own for r in replicas):
            yield low, high


def _damaged(log: LogResult, end: int) -> Iterator[Place]:
    """Yield damage that begins before `end`, with adjacent BLANKs, which may be damaged too."""
    runs: list[Run] = []
    for run in log.tiling:
        if run.start >= end:
            break
        bad = run.kind in _BAD
        if runs and not bad and run.kind is not Kind.BLANK:
            yield from _of_runs(log, runs)
            runs = []
        elif bad or run.kind is Kind.BLANK:
            runs.append(run)
    yield from _of_runs(log, runs)


def _of_runs(log: LogResult, runs: Sequence[Run]) -> Iterator[Place]:
    bad = [i for i, run in enumerate(runs) if run.kind in _BAD]
    if not bad:
        return
    first = bad[0] - 1 if bad[0] and runs[bad[0]].start % log.queue.file_size else bad[0]
    whole = all(runs[i].kind is Kind.HOLE for i in bad)
    stop = runs[-1].stop if runs[-1].stop % log.queue.file_size == 0 else runs[bad[-1]].stop
    yield Place(log, runs[max(first, 0)].start, stop, MISSING if whole else DAMAGE)


def _between(verified: Verified, log: LogResult, replicas: Sequence[Replica]) -> Iterator[Place]:
    """Yield files missing between a legacy commitlog and DLedger's data: a replica tells to which log they belong."""
    legacy, entries = verified.legacy, verified.dledger
    if legacy is None or entries is None or not legacy.queue.files:
        return
    low, high = legacy.tiling.stop, entries.tiling.start
    begins = [queue.start for r in replicas if (queue := r.log(entries.body_offset)) is not None]
    border = max(low, min([high, *begins]))
    if log is entries and border < high:
        yield Place(log, border, high, MISSING)
    elif log is legacy and low < border:
        size = log.queue.file_size
        end = max((r.end(log.body_offset, low) for r in replicas), default=low)
        if end > low:
            yield Place(log, low, min(-(-end // size) * size, border), MISSING)


def _with_blanks(log: LogResult, fillers: Sequence[Span]) -> list[Span]:
    """Extend fillers by a BLANK after them, which may have replaced bytes of the last message of a file."""
    out = []
    for start, stop in fillers:
        run = log.tiling.find(stop)
        out.append((start, run.stop if run is not None and run.kind is Kind.BLANK else stop))
    return joined(out)


def _contradicted(verified: Verified, log: LogResult, replicas: Sequence[Replica]) -> Iterator[Place]:
    """Yield records with sound CRCs that contradict a witness of this store and differ from a replica's."""
    for at in sorted(_suspects(verified, log)):
        run = log.tiling.find(at)
        span = _record_at(log, at) if run is not None and run.kind is Kind.RECORDS else None
        if span is not None:
            own = log.queue.pread(span[1] - span[0], span[0])
            if any(other != own for other in _theirs(log, replicas, span)):
                yield Place(log, *span, DOUBT)


def _suspects(verified: Verified, log: LogResult) -> set[int]:
    out = set()
    for finding in verified.report.findings.listed:
        if finding.severity < Severity.WARNING:
            continue
        if finding.problem.of_log and finding.queue == log.name:
            out.add(finding.offset)
        for pointed in (finding.facts.get("commitlog_offset"), finding.facts.get("phy_offset")):
            if isinstance(pointed, int) and log.tiling.start <= pointed < log.tiling.stop:
                out.add(pointed)
    return out


def _record_at(log: LogResult, at: int) -> Span | None:
    """Return the record at an offset, which in DLedger data may be that of its entry or of the record itself."""
    for start in (at, at - log.body_offset):
        message = message_at(log.queue, start + log.body_offset)
        if message is not None and message.physical_offset == start + log.body_offset:
            return start, start + log.body_offset + message.size
    return None


def _tail(
    store: Store, verified: Verified, log: LogResult, replicas: Sequence[Replica], heal_options: HealOptions
) -> Iterator[Place]:
    """Yield damage after the last good record, or all that a replica has there.

    The latter with `extend`, or if this store had messages there: queues, index, checkpoint or consumer offsets point
    beyond its end. In that case, entries of a DLedger replica may be this store's although the replica does not know
    them to be committed.
    """
    dirty = [run.stop for run in log.tiling.tail() if run.kind is Kind.DIRTY] if log.stale_from is None else []
    known = any(n and PROBLEMS[code].points_behind_log for code, n in verified.report.findings.counts.items())
    if not (dirty or known or heal_options.extend):
        return
    ends = [(r.end if known else r.committed_end)(log.body_offset, log.wrote) for r in replicas]
    end = max(ends, default=log.wrote)
    stop = end if known or heal_options.extend else min(end, max(dirty))
    if stop > log.wrote:
        named = last_named(Evidence(store, verified), log) + 1 if known else 0
        yield Place(log, log.wrote, stop, TAIL, open_end=True, lost_until=named)


def _front(log: LogResult, replicas: Sequence[Replica]) -> Iterator[Place]:
    """Yield the range of files that a replica has before the first one of the log."""
    queues = [queue for r in replicas if (queue := r.log(log.body_offset)) is not None]
    first = min((q.start for q in queues if q.start % log.queue.file_size == 0), default=log.queue.start)
    if first < log.queue.start:
        yield Place(log, first, log.queue.start, MISSING)
