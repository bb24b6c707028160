"""Judges the records of a healed store that came from a replica, by the queues and the index of both stores.

Without a replica, a unit or an index entry that contradicts its message counts, because it may be the only trace of
damage in the message. A replica has units and entries of its own for the same record:

* they fit the record: the unit or entry of this store is damaged, and is written again;
* they contradict it too: its properties are damaged in the replica. It stays, because its body is proved, and is listed
  as damaged, like a damaged record of this store; so are records for which this store has no unit or entry;
* the replica has none: nothing shows which is damaged, and this store's own unit or entry counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rmqstore.checks.beside.index import report_contradicted
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.verify import Verified
from rmqstore.formats.consumequeue import UNIT
from rmqstore.repair.log.spans import overlapping
from rmqstore.repair.replica.sources import Taken
from rmqstore.repair.replica.witnesses import Witnesses, has_unit


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
        topic, _, queue_id = finding.queue.rpartition("/")
        if replica is None or not replica.confirm_tags(at, topic, int(queue_id), queue_offset):
            return None
        return replace(finding, facts={k: v for k, v in finding.facts.items() if k != "tags_code"})

    def _taken_at(self, at: int) -> Witnesses | None:
        """Return the replica's source of the record at a global offset; None for any other record."""
        for taken in self.good:
            body_offset = taken.place.log.body_offset
            if taken.start <= at - body_offset < taken.stop:
                return taken.replica.witnesses(body_offset, [(taken.start, taken.stop)])
        return None

    def add_doubts(self) -> Iterator[int]:
        """Add findings that only the replicas have; yield the offsets of all records that are damaged there."""
        known = {at for log in self.after.logs.results for at in log.index.contradicted}
        for taken in self.good:
            body_offset = taken.place.log.body_offset
            read = taken.replica.witnesses(body_offset, [(taken.start, taken.stop)])
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

    def _add_entries(self, log: LogResult, at: int, read: Witnesses) -> bool:
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
        topic, _, queue_id = found.queue.rpartition("/")
        assert isinstance(queue_offset, int)
        if has_unit(log, topic, int(queue_id), queue_offset):
            return False
        self.findings.add(replace(found, file="", offset=queue_offset * UNIT.size))
        return True
