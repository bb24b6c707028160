"""Findings that need the whole log: damage, zeros, missing files, tails, and queue offsets that do not continue.

`commitlog.py` joins the parts of the pass; this module judges the result.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.logs import Logs, Pointing
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.record_findings import code_of, lost_pages, topics_text, transaction_facts
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFileQueue
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE, Fault
from rmqstore.formats.properties import is_lite
from rmqstore.scan.tiling import Kind, Run


class _Codes(NamedTuple):
    """Codes of the problems that occur in both a commitlog and DLedger data."""

    no_blank: str
    false_blank: str
    dirty_tail: str
    stale_tail: str


_COMMITLOG = _Codes(codes.CL_NO_BLANK, codes.CL_FALSE_BLANK, codes.CL_DIRTY_TAIL, codes.CL_STALE_TAIL)
_DLEDGER = _Codes(codes.DL_NO_BLANK, codes.DL_FALSE_BLANK, codes.DL_DIRTY_TAIL, codes.DL_STALE_TAIL)


_RESTARTS = 8  # restarts of a queue that are reported one by one
_MIN_UNKNOWN = 4  # fewer records in a row with an unknown magic may be noise


def _codes_of(result: LogResult) -> _Codes:
    return _DLEDGER if result.body_offset else _COMMITLOG


def check_log(result: LogResult, findings: Findings, *, last_part: bool = True, followed: bool = False) -> None:
    """Add the findings that need the whole log.

    `last_part`: the log ends where the store ends. `followed`: DLedger continues after this log; its first start
    closed this log's last file with a BLANK.
    """
    wrote = result.wrote
    reported = 0
    for i, run in enumerate(result.tiling):
        if run.start < reported or (result.stale_from is not None and run.start >= wrote):
            continue
        if run.kind is Kind.DIRTY:
            finding = _damage(result, i, wrote, last_part)
            if finding is not None:
                findings.add(finding)
                reported = finding.offset + finding.length
        elif run.kind is Kind.ZERO and (run.start < wrote or followed):
            file = result.queue.find(run.start)
            at_end = file is not None and run.stop == file.stop
            zeros = codes.DL_HEADER if result.body_offset else codes.CL_ZERO_HOLE
            findings.add(
                result.finding(_codes_of(result).no_blank if at_end else zeros, run.start, run.stop - run.start)
            )
        elif run.kind is Kind.BLANK and not result.body_offset:
            file = result.queue.find(run.start)
            left = (file.stop if file is not None else run.stop) - run.start  # even if the file was truncated within it
            if run.claimed not in (run.stop - run.start, left):
                findings.add(
                    result.finding(codes.CL_BLANK_SIZE, run.start, left, {"claimed": run.claimed, "left": left})
                )
    _check_times(result, wrote, findings)
    if result.controls.messages:
        findings.add(result.controls.finding(result.name, result.queue.name_at(result.controls.first)))


def _damage(result: LogResult, i: int, wrote: int, last_part: bool) -> Finding | None:
    """Return the finding of DIRTY run `i`; None if it was reported with its record.

    The finding of a damaged BLANK includes the zeros after it.
    """
    run, own = result.tiling[i], _codes_of(result)
    length = run.stop - run.start
    if run.cause is Fault.PHYSICAL_OFFSET:
        return None
    if run.count == 0 and length <= BLANK_SIZE and run.stop < wrote:
        after = result.tiling[i + 1]
        file = result.queue.find(run.start)
        if after.kind is Kind.ZERO and file is not None and after.stop == file.stop:
            return result.finding(own.no_blank, run.start, after.stop - run.start, {"damaged": True})
    unknown = unknown_records(result.queue, run) if run.cause is Fault.MAGIC and not result.body_offset else None
    if unknown is not None:
        magic, records = unknown
        return result.finding(codes.CL_UNKNOWN_MAGIC, run.start, length, {"magic": f"{magic:08X}", "records": records})
    if run.count:
        return None
    facts: dict[str, Fact] = {"cause": run.cause.name.lower()}
    if run.start >= wrote and last_part:
        return result.finding(own.dirty_tail, run.start, length, facts)
    if (file := result.queue.find(run.start)) is not None:
        facts |= lost_pages(file, run.start, run.stop)
    return result.finding(code_of(run.cause, result.body_offset), run.start, length, facts)


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


def _check_times(result: LogResult, wrote: int, findings: Findings) -> None:
    """Report records at the end that are older than those before: of a truncated log, or after a clock change."""
    if result.stale_from is not None:
        facts: dict[str, Fact] = {"records_from": result.stale_from}
        facts |= {"youngest": result.back_max, "end_of_log": result.max_time}
        file = result.queue.name_at(result.stale_from)
        length = result.tiling.wrote() - wrote
        findings.add(Finding(_codes_of(result).stale_tail, result.name, file, wrote, length, facts))
    elif result.back_from is not None and not result.body_offset:
        facts = {"youngest": result.back_max, "before": result.max_time}
        findings.add(result.finding(codes.CL_TIME_BACK, result.back_from, wrote - result.back_from, facts))


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
        findings.add(result.finding(_codes_of(result).false_blank, run.start, run.stop - run.start, facts))


def _lost_facts(pointing: Pointing, start: int) -> dict[str, Fact]:
    """Return how many messages consume queues name in a run of the log, and of which topics."""
    lost = pointing.lost.get(start)
    return {"messages": lost.total(), "topics": topics_text(lost)} if lost else {}


def unknown_records(queue: MappedFileQueue, run: Run) -> tuple[int, int] | None:
    """Return (magic, number of records) if the bytes of a run are a chain of records with one unknown magic.

    This is a newer or encrypted format, and not damage.
    """
    at, magic, count = run.start, 0, 0
    while at + 8 <= run.stop and count < 1000:
        head = queue.pread(8, at)
        size, found = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:8], "big")
        if len(head) < 8 or size < MIN_SIZE or at + size > run.stop or not found or (count and found != magic):
            break
        at, magic, count = at + size, found, count + 1
    return (magic, count) if count >= _MIN_UNKNOWN else None


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
