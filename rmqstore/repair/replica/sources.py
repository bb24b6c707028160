"""The places of a log that need bytes, the replica for each, and what queues and index say about its records.

Places are damage, missing files, fillers, and both ends. All replicas with good bytes at a place must agree.

Without a replica, a unit or an index entry that contradicts its message counts, because it may be the only trace of
damage in the message. A replica has units and entries of its own for the same record:

* they fit the record: the unit or entry of this store is damaged, and is written again;
* they contradict it too: its properties are damaged in the replica. It stays, because its body is proved, and is listed
  as damaged, like a damaged record of this store; so are records for which this store has no unit or entry;
* the replica has none: nothing shows which is damaged, and this store's own unit or entry counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqstore.checks.beside.index import report_contradicted
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Severity
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verified import Verified
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import UNIT, split_queue_label
from rmqstore.repair.repaired_log import Span, joined, meets, overlapping, records_between, within, without
from rmqstore.repair.replica.replica import ReplicaLog, ReplicaWitnesses, closes_file, filler_spans, has_unit
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text

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
    store: Store, verified: Verified, log: LogResult, replicas: Sequence[ReplicaLog], heal_options: HealOptions
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
        inside += earlier_files(log, replicas)
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


def _outvoted(log: LogResult, replicas: Sequence[ReplicaLog]) -> Iterator[Place]:
    """Yield records that differ from the same good record of at least two, and of all, replicas that have one."""
    if len(replicas) < 2:
        return
    for start, stop in differing_records(log, replicas):
        theirs = _theirs(replicas, (start, stop))
        if len(theirs) > 1 and len(set(theirs)) == 1 and log.queue.pread(stop - start, start) != theirs[0]:
            yield Place(log, start, stop, OUTVOTED)


def differing_records(log: LogResult, replicas: Sequence[ReplicaLog]) -> Iterator[Span]:
    """Yield the good records of a log that lie in a block of bytes which is not the same in all replicas."""
    for run in log.tiling:
        if run.kind is not Kind.RECORDS:
            continue
        differing = list(_differing(log, replicas, run))
        for span in records_between(log, run.start, run.stop - 1) if differing else ():
            if meets(span, differing):
                yield span


def _theirs(replicas: Sequence[ReplicaLog], span: Span) -> list[bytes]:
    """Return the bytes of a span in all replicas with a sound record at its start that nothing there contradicts."""
    return [r.bytes_at(*span) for r in replicas if r.sound_record(span[0]) and not r.doubtful(span)]


def _differing(log: LogResult, replicas: Sequence[ReplicaLog], run: Run) -> Iterator[Span]:
    """Yield blocks of a run of records that differ in a replica."""
    for low in range(run.start, run.stop, _BLOCK):
        high = min(low + _BLOCK, run.stop)
        own = log.queue.pread(high - low, low)
        if any(r.bytes_at(low, high) != own for r in replicas):
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


def _between(verified: Verified, log: LogResult, replicas: Sequence[ReplicaLog]) -> Iterator[Place]:
    """Yield files missing between a legacy commitlog and DLedger's data: a replica tells to which log they belong."""
    legacy, entries = verified.legacy, verified.dledger
    if legacy is None or entries is None or not legacy.queue.files:
        return
    low, high = legacy.tiling.stop, entries.tiling.start
    begins = [data.queue.start for r in replicas if (data := r.replica.log(entries.body_offset)) is not None]
    border = max(low, min([high, *begins]))
    if log is entries and border < high:
        yield Place(log, border, high, MISSING)
    elif log is legacy and low < border:
        size = log.queue.file_size
        end = max((r.end(low) for r in replicas), default=low)
        if end > low:
            yield Place(log, low, min(-(-end // size) * size, border), MISSING)


def _with_blanks(log: LogResult, fillers: Sequence[Span]) -> list[Span]:
    """Extend fillers by a BLANK after them, which may have replaced bytes of the last message of a file."""
    out = []
    for start, stop in fillers:
        run = log.tiling.find(stop)
        out.append((start, run.stop if run is not None and run.kind is Kind.BLANK else stop))
    return joined(out)


def _contradicted(verified: Verified, log: LogResult, replicas: Sequence[ReplicaLog]) -> Iterator[Place]:
    """Yield records with sound CRCs that contradict a witness of this store and differ from a replica's."""
    for at in sorted(_suspects(verified, log)):
        run = log.tiling.find(at)
        span = _record_at(log, at) if run is not None and run.kind is Kind.RECORDS else None
        if span is not None:
            own = log.queue.pread(span[1] - span[0], span[0])
            if any(other != own for other in _theirs(replicas, span)):
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
    store: Store, verified: Verified, log: LogResult, replicas: Sequence[ReplicaLog], heal_options: HealOptions
) -> Iterator[Place]:
    """Yield damage after the last good record, or all that a replica has there.

    The latter with `extend`, or if this store had messages there: queues, index, checkpoint or consumer offsets point
    beyond its end. In that case, entries of a DLedger replica may be this store's although the replica does not know
    them to be committed.
    """
    dirty = [run.stop for run in log.tiling.tail() if run.kind is Kind.DIRTY] if log.stale_from is None else []
    known = any(n and PROBLEMS[code].points_after_log for code, n in verified.report.findings.counts.items())
    if not (dirty or known or heal_options.extend):
        return
    ends = [(r.end if known else r.committed_end)(log.wrote) for r in replicas]
    end = max(ends, default=log.wrote)
    stop = end if known or heal_options.extend else min(end, max(dirty))
    if stop > log.wrote:
        named = verified.logs.witnesses.last_after + 1 if known else 0
        yield Place(log, log.wrote, stop, TAIL, open_end=True, lost_until=named)


def earlier_files(log: LogResult, replicas: Sequence[ReplicaLog]) -> Iterator[Place]:
    """Yield the range of files that a replica has before the first one of the log."""
    begins = (r.queue.start for r in replicas)
    first = min((start for start in begins if start % log.queue.file_size == 0), default=log.queue.start)
    if first < log.queue.start:
        yield Place(log, first, log.queue.start, MISSING)


_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes [start, stop) of one file of a log (global offsets) to take from a replica.

    `good` bytes are whole records, or a BLANK. Others are the damaged bytes of a replica in place of a missing file;
    the rest of the repair examines them.
    """

    place: Place
    start: int
    stop: int
    replica: ReplicaLog
    good: bool = True


@dataclass(slots=True)
class Sources:
    """What to take for the places; `notes` say what is not taken, and why."""

    taken: list[Taken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_sources(allowed: Mapping[Place, Sequence[ReplicaLog]]) -> Sources:
    """Find the bytes for each place in the replicas that are proved for it."""
    out = Sources()
    wanted: dict[int, list[Span]] = {}
    for place in allowed:
        wanted.setdefault(place.log.body_offset, []).append(place.span)
    files = {body_offset: joined(spans) for body_offset, spans in wanted.items()}
    for place, replicas in allowed.items():
        if replicas:
            _take(place, replicas, files[place.log.body_offset], out)
    return out


def _take(place: Place, replicas: Sequence[ReplicaLog], wanted: Sequence[Span], out: Sources) -> None:
    taken: list[Taken] = []
    for low, high in place.pieces():
        covered: list[Span] = []
        good: list[tuple[ReplicaLog, list[Span]]] = []
        for replica in replicas:
            found = _good(replica, place, low, high, wanted)
            if found is None:
                out.notes.append(
                    Text(
                        "{replica} has records at offset {low:,} that do not fit between those of this store: "
                        "nothing is taken there",
                        replica=replica.name,
                        low=low,
                    )
                )
                return
            good.append((replica, found))
        for replica, found in _doubtful_last(good, wanted):
            at = _first_disagreement(replica, found, taken)
            if at is not None:
                out.notes.append(Text("the replicas disagree at offset {at:,}: nothing is taken there", at=at))
                return
            taken += [Taken(place, a, b, replica) for a, b in without(found, covered)]
            covered = joined([*covered, *found])
        gaps = [gap for gap in without([(low, high)], covered) if not _is_blank_here(place, gap)]
        end = next((start for start, stop in gaps if stop >= place.lost_until), None) if place.open_end else None
        if end is not None:  # nothing after damage that this store never had
            taken = [t for t in taken if t.start < end]
            taken += _raw(place, [gap for gap in gaps if gap[0] < end], replicas)
            break
        if place.open_end or place.log.queue.find(low) is None:
            taken += _raw(place, gaps, replicas)
    if place.open_end:  # no damage of the replica after its last good record
        end = max((t.stop for t in taken if t.good), default=place.start)
        taken = [t for t in taken if t.stop <= end]
    if any(t.good for t in taken):
        out.taken += sorted(taken, key=lambda t: t.start)
    else:
        out.notes.append(
            Text("no replica has sound bytes for offset {start:,} to {stop:,}", start=place.start, stop=place.stop)
        )


def _is_blank_here(place: Place, gap: Span) -> bool:
    """Return whether this store's file ends with a BLANK there, which a replica's damage must not replace."""
    queue, body_offset = place.log.queue, place.log.body_offset
    return gap[1] % queue.file_size == 0 and closes_file(queue, body_offset, *gap)


def _doubtful_last(
    good: Sequence[tuple[ReplicaLog, list[Span]]], wanted: Sequence[Span]
) -> Iterator[tuple[ReplicaLog, list[Span]]]:
    """Yield the good bytes of each replica: records that its own queues or index contradict come last.

    Such a record has a proved body, but damaged properties. It is left out if any replica has a better one.
    """
    better: list[Span] = []
    for replica, found in good:
        read = replica.witnesses(wanted)
        clean = without(found, read.spans if read is not None else [])
        better = joined([*better, *clean])
        yield replica, clean
    for replica, found in good:
        if doubtful := without(found, better):
            yield replica, doubtful


def _good(replica: ReplicaLog, place: Place, low: int, high: int, wanted: Sequence[Span]) -> list[Span] | None:
    """Return runs of whole good records of a replica in [low, high); None if they do not fit the place.

    Records of the replica that extend beyond the place contradict the records of this store beside it.
    """
    size = place.log.queue.file_size
    border = (low // size + 1) * size
    out: list[Span] = []
    for run in overlapping(replica.sound(wanted), low, high):
        begin, end = _records_in(replica, run, low, high)
        if begin < low or (end > high and not (place.open_end and end <= border)):
            return None
        out.append((begin, end))
    last = max((end for _, end in out), default=low)
    if high == border and last < high and closes_file(replica.queue, replica.body_offset, last, high):
        out = joined([*out, (last, high)])
    return within(out, low, border)


def _records_in(replica: ReplicaLog, run: Span, low: int, high: int) -> Span:
    """Return the range of a run's records that share a byte with [low, high)."""
    begin, end = run
    if begin < low and replica.sound_record(low):
        begin = low
    if end > high:
        end = high if replica.sound_record(high) else _border_after(replica, (begin, end), high)
    return begin, end


def _border_after(replica: ReplicaLog, run: Span, at: int) -> int:
    """Return the end of the record that contains the byte before `at`."""
    start = run[0]
    while start < at:
        message = message_at(replica.queue, start + replica.body_offset)
        if message is None:
            return run[1]
        start += replica.body_offset + message.size
    return start


def _first_disagreement(replica: ReplicaLog, found: Sequence[Span], taken: Sequence[Taken]) -> int | None:
    """Return the first offset at which a replica's good bytes differ from those taken from others; None if none do."""
    for other in taken:
        for low, high in within(found, other.start, other.stop):
            for at in range(low, high, _BLOCK):
                stop = min(at + _BLOCK, high)
                mine, theirs = replica.bytes_at(at, stop), other.replica.bytes_at(at, stop)
                if mine != theirs:
                    return at + next((i for i, (x, y) in enumerate(zip(mine, theirs, strict=False)) if x != y), 0)
    return None


def _raw(place: Place, gaps: Sequence[Span], replicas: Sequence[ReplicaLog]) -> list[Taken]:
    """Take damaged bytes of the replicas for gaps where this store has no bytes at all."""
    out = []
    for low, high in gaps:
        for replica in replicas:
            if len(replica.bytes_at(low, high)) == high - low:
                out.append(Taken(place, low, high, replica, good=False))
                break
    return out


def judge(after: Verified, taken: Sequence[Taken]) -> list[int]:
    """Correct the findings about records that came from replicas.

    Return the global offsets of those whose properties are damaged in the replica.
    """
    found = _Judge(after, taken)
    found.reject_wrong_witnesses()
    return sorted(found.add_doubts())


class _Judge:
    def __init__(self, after: Verified, taken: Sequence[Taken]) -> None:
        self.after = after
        self.findings = after.report.findings
        self.logs = {log.name: log for log in after.logs.results}
        self.good = [t for t in taken if t.good]

    def reject_wrong_witnesses(self) -> None:
        """Replace findings about records that a replica confirms by findings about this store's units and entries."""
        kept: list[Finding] = []
        for finding in self.findings.listed:
            kept.append(self._of_entries(finding) or self._of_unit(finding) or finding)
            if kept[-1] is not finding:
                self.findings.counts[finding.code] -= 1
                self.findings.counts[kept[-1].code] += 1
        self.findings.listed = kept
        self.findings.counts = +self.findings.counts

    def _of_entries(self, finding: Finding) -> Finding | None:
        log = self.logs.get(finding.queue)
        if finding.code != codes.CL_CONTRADICTED or log is None:
            return None
        at = finding.offset + log.body_offset
        replica = self._taken_at(at)
        if replica is None or not replica.confirm_keys(at):
            return None
        entries = log.index.contradicted.pop(at).entries
        facts = {"messages": 1, "entries": entries, "first_offset": at, "last_offset": at}
        return Finding(codes.IX_NOT_INDEXED, "index", "", at, 0, facts)

    def _of_unit(self, finding: Finding) -> Finding | None:
        at, queue_offset = (finding.facts.get(name) for name in ("commitlog_offset", "queue_offset"))
        if finding.code != codes.CQ_WRONG_TAG or not isinstance(at, int) or not isinstance(queue_offset, int):
            return None
        replica = self._taken_at(at)
        if replica is None or not replica.confirm_tags(at, *split_queue_label(finding.queue), queue_offset):
            return None
        return replace(finding, facts={k: v for k, v in finding.facts.items() if k != "tags_code"})

    def _taken_at(self, at: int) -> ReplicaWitnesses | None:
        """Return the replica's source of the record at a global offset; None for any other record."""
        for taken in self.good:
            if taken.start <= at - taken.replica.body_offset < taken.stop:
                return taken.replica.witnesses([(taken.start, taken.stop)])
        return None

    def add_doubts(self) -> Iterator[int]:
        """Add findings that only the replicas have; yield the offsets of all records that are damaged there."""
        known = {at for log in self.after.logs.results for at in log.index.contradicted}
        for taken in self.good:
            body_offset = taken.place.log.body_offset
            read = taken.replica.witnesses([(taken.start, taken.stop)])
            log = next(r for r in self.after.logs.results if r.body_offset == body_offset)
            if read is None or not overlapping(read.spans, taken.start, taken.stop):
                continue
            for at in {*read.entries, *read.units, *read.text}:
                if not taken.start <= at - body_offset < taken.stop:
                    continue
                by_entries = at in read.entries and self._add_entries(log, at, read)
                by_unit = at in read.units and self._add_unit(log, read.units[at])
                if by_entries or by_unit or at in read.text:
                    yield at
        new = {at for log in self.after.logs.results for at in log.index.contradicted} - known
        report_contradicted(self.after.logs, self.findings, new)

    def _add_entries(self, log: LogResult, at: int, read: ReplicaWitnesses) -> bool:
        """Note what the replica's index says of a record; return whether this store's index does not confirm it."""
        if at in log.index.contradicted:
            return True
        catalog = self.after.index
        if catalog is not None and len(catalog.hashes(at, at + 1)[0]):
            return False
        log.index.contradicted[at] = read.entries[at]
        return True

    def _add_unit(self, log: LogResult, found: Finding) -> bool:
        """Note what the replica's unit says of a record; return whether this store's unit does not confirm it."""
        at, queue_offset = found.facts["commitlog_offset"], found.facts["queue_offset"]
        known = (f for f in self.findings.listed if f.code == codes.CQ_WRONG_TAG)
        if any((f.queue, f.facts.get("commitlog_offset")) == (found.queue, at) for f in known):
            return True
        assert isinstance(queue_offset, int)
        if has_unit(log, *split_queue_label(found.queue), queue_offset):
            return False
        self.findings.add(replace(found, file="", offset=queue_offset * UNIT.size))
        return True
