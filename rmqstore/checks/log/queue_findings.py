"""Findings about the logs that need the queues: missing files, false BLANKs, queue offsets that do not continue."""

from __future__ import annotations

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.findings import codes_of
from rmqstore.checks.log.logs import Logs, Pointing
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.record_findings import topics_text, transaction_facts
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Findings
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.properties import is_lite
from rmqstore.scan.tiling import Kind

_RESTARTS = 8  # restarts of a queue that are reported one by one


def check_missing_files(result: LogResult, findings: Findings, pointing: Pointing) -> None:
    """Report missing files, with the messages that they held according to consume queues.

    `check_dledger` reports those of DLedger data.
    """
    for run in result.tiling:
        if (
            run.kind is not Kind.HOLE
            or result.body_offset
            or run.stop <= result.expired_to
            or result.queue.find(run.start)
        ):
            continue
        facts: dict[str, Fact] = {"from": run.start, "to": run.stop}
        facts |= _lost_facts(pointing, run.start)
        findings.add(result.finding(codes.CL_MISSING_FILE, run.start, run.stop - run.start, facts))


def check_false_blanks(result: LogResult, findings: Findings, pointing: Pointing) -> None:
    """Report BLANKs where messages were according to consume queues, and treat them as damage from now on.

    Source: CommitLog.DefaultAppendMessageCallback#doAppend writes one only where the next message does not fit, 5.4.0
    """
    for run in list(result.tiling) if pointing.lost else []:
        if run.kind is not Kind.BLANK or run.start not in pointing.lost:
            continue
        home = result.queue.find(run.start)
        if home is not None and run.start == home.start and run.stop < home.stop:
            continue  # DLedger 0.4 discards the entries after a snapshot in this way; the queues keep their units
        result.mark_dirty(run.start)
        facts = _lost_facts(pointing, run.start)
        findings.add(result.finding(codes_of(result).false_blank, run.start, run.stop - run.start, facts))


def _lost_facts(pointing: Pointing, start: int) -> dict[str, Fact]:
    """Return how many messages consume queues name in a run of the log, and of which topics."""
    lost = pointing.lost.get(start)
    return {"messages": lost.total(), "topics": topics_text(lost)} if lost else {}


def check_queue_offsets(findings: Findings, logs: Logs) -> None:
    """Report gaps, repeats, outliers and restarts of queue offsets that neither damage nor misfiled records explain.

    Queue offsets continue from the legacy log to DLedger, so queues are judged over all logs of the store.
    """
    for name, part in sorted(logs.queues.items()):
        _QueueOffsets(name, findings, logs).judge(part)


class _QueueOffsets:
    def __init__(self, name: QueueName, findings: Findings, logs: Logs) -> None:
        self.name = name
        self.findings = findings
        self.logs = logs

    def judge(self, part: QueuePart) -> None:
        """Add the findings of the queue; `part` covers all logs of the store."""
        misfiled = self.logs.misfiled
        self._judge_withheld(part)
        for one in part.outliers:
            if one.at not in misfiled.offsets:
                only: dict[str, Fact] = {} if one.expected is None else {"expected": one.expected}
                self._add(codes.CL_QUEUE_OFFSET, one.at, only | {"got": one.got})
        for gap in part.gaps:
            explained = self.logs.bad_between(gap.before, gap.at) or (
                gap.got - gap.expected == 1 and (*self.name, gap.expected) in misfiled.units
            )
            if not explained:
                self._add(codes.CL_QUEUE_OFFSET_GAP, gap.at, {"expected": gap.expected, "got": gap.got})
        restarts = [at for at in part.restarts if not self._left_out(at)]
        times: dict[str, Fact] = {"times": len(restarts)} if len(restarts) > _RESTARTS else {}
        if is_lite(self.name[0]):
            restarts = []  # normal: a broker deletes a lite queue that is not written
        for at in restarts[-1:] if times else restarts:
            self._add(codes.CL_QUEUE_RESTARTED, at, times)
        for at, index in part.repeats:
            self._add(codes.CL_QUEUE_OFFSET_REPEAT, at, {"queue_offset": index})
        if self.logs.foreign_from is None:
            self.findings.count(codes.CL_QUEUE_OFFSET_REPEAT, part.repeat_count - len(part.repeats))

    def _judge_withheld(self, part: QueuePart) -> None:
        """Report a record of queue offset 0 that its transaction bits keep out of its queue, which begins with 1."""
        if not part.messages or part.first != 1 or self.logs.min_offset != 0:
            return
        at = next((r.withheld[self.name] for r in self.logs.results if self.name in r.withheld), part.first_at)
        message = self.logs.record(at, MAX_RECORD)
        if at < part.first_at and message is not None and not self.logs.hides_between(0, part.first_at):
            facts: dict[str, Fact] = {"queue_offset": 0}
            self._add(codes.CL_SYSFLAG, at, facts | transaction_facts(message.sys_flag), message.size)

    def _left_out(self, at: int) -> bool:
        """Return whether a record is stale or in a file of another broker: both have their own finding."""
        stale = self.logs.result_at(at).stale_from
        return any(start is not None and at >= start for start in (stale, self.logs.foreign_from))

    def _add(self, code: str, at: int, facts: dict[str, Fact], size: int = 0) -> None:
        if self._left_out(at):
            return
        result = self.logs.result_at(at)
        place: dict[str, Fact] = {"topic": self.name[0], "queue_id": self.name[1]}
        length = size + result.body_offset if size else 0
        self.findings.add(result.finding(code, at - result.body_offset, length, place | facts))
