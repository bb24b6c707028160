"""What a whole log says beyond its records: damage, zeros, holes, tails, and queue offsets that do not go on.

`commitlog.py` has put the parts of the pass together; here its result is judged.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.record_findings import code_of
from rmqstore.checks.log.unowned_units import Pointing
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE, Fault
from rmqstore.scan.resync import ENTRY_SIZE
from rmqstore.scan.tiling import Kind, Run


class _Codes(NamedTuple):
    """Problems that a commitlog and DLedger data have in common, each under its own code."""

    no_blank: str
    false_blank: str
    dirty_tail: str
    stale_tail: str


_COMMITLOG = _Codes(codes.CL_NO_BLANK, codes.CL_FALSE_BLANK, codes.CL_DIRTY_TAIL, codes.CL_STALE_TAIL)
_DLEDGER = _Codes(codes.DL_NO_BLANK, codes.DL_FALSE_BLANK, codes.DL_DIRTY_TAIL, codes.DL_STALE_TAIL)


def _codes_of(result: LogResult) -> _Codes:
    return _DLEDGER if result.lead else _COMMITLOG


def check_log(result: LogResult, findings: Findings, *, last_part: bool = True, followed: bool = False) -> None:
    """Findings that need the whole log. `last_part`: this log's end is the store's end (not a legacy part).

    `followed`: DLedger goes on behind it, whose first start closed this log's last file with a BLANK.
    """
    queue, tiling, lead = result.queue, result.tiling, result.lead
    name = "dledger" if lead else "commitlog"
    own = _codes_of(result)
    wrote = result.wrote

    folded = -1
    for i, run in enumerate(tiling):
        facts: dict[str, Fact] = {}
        if run.start == folded:
            continue  # said together with the bytes before it
        if run.kind is Kind.HOLE:
            continue  # see check_missing_files
        if result.stale_from is not None and run.start >= wrote:
            continue
        if run.kind is Kind.DIRTY and run.cause is Fault.PHYSICAL_OFFSET:
            continue  # said while its bytes were at hand
        if run.kind is Kind.DIRTY and run.count == 0 and run.stop - run.start <= BLANK_SIZE and run.stop < wrote:
            behind = tiling[i + 1]
            file = queue.find(run.start)
            if behind.kind is Kind.ZERO and file is not None and behind.stop == file.stop:  # a damaged BLANK
                folded = behind.start
                length = behind.stop - run.start
                findings.add(Finding(own.no_blank, name, file.name, run.start, length, {"damaged": True}))
                continue
        if run.kind is Kind.DIRTY and run.cause is Fault.MAGIC and not lead:
            strange = unknown_records(queue, run)
            if strange is not None:
                facts = {"magic": f"{strange[0]:08X}", "records": strange[1]}
                length = run.stop - run.start
                findings.add(Finding(codes.CL_UNKNOWN_MAGIC, name, result.file_of(run.start), run.start, length, facts))
                continue
        if run.kind is Kind.DIRTY and run.count == 0:
            tail = run.start >= wrote and last_part
            code = own.dirty_tail if tail else code_of(run.cause, lead)
            facts = {"cause": run.cause.name.lower()}
            findings.add(Finding(code, name, result.file_of(run.start), run.start, run.stop - run.start, facts))
        elif run.kind is Kind.ZERO and (run.start < wrote or followed):
            file = queue.find(run.start)
            at_end = file is not None and run.stop == file.stop
            code = own.no_blank if at_end else (codes.DL_HEADER if lead else codes.CL_ZERO_HOLE)
            findings.add(Finding(code, name, result.file_of(run.start), run.start, run.stop - run.start))
        elif run.kind is Kind.BLANK and not lead and run.claimed not in (run.stop - run.start, _left(queue, run)):
            left = _left(queue, run)
            facts = {"claimed": run.claimed, "left": left}
            findings.add(Finding(codes.CL_BLANK_SIZE, name, result.file_of(run.start), run.start, left, facts))
    _older(result, findings)
    if result.controls.messages:
        findings.add(result.controls.finding(name, result.file_of(result.controls.first)))


def _left(queue: MappedFileQueue, run: Run) -> int:
    """What a BLANK should say up to where its file should end: the file itself may have been cut within it."""
    file = queue.find(run.start)
    return (file.stop if file is not None else run.stop) - run.start


def check_missing_files(result: LogResult, findings: Findings, pointing: Pointing) -> None:
    """Files that are not there, with the messages that consume queues say were in them (of DLedger data the check of
    its files says it).
    """
    for run in result.tiling:
        if run.kind is not Kind.HOLE or result.lead or run.stop <= result.expired_to or result.queue.find(run.start):
            continue
        facts: dict[str, Fact] = {"from": run.start, "to": run.stop}
        facts |= _lost_facts(pointing, run.start)
        findings.add(Finding(codes.CL_MISSING_FILE, "commitlog", "", run.start, run.stop - run.start, facts))


def _older(result: LogResult, findings: Findings) -> None:
    """Records that are older than those before them: of a truncated log, or of a clock that went back."""
    name = "dledger" if result.lead else "commitlog"
    wrote = result.wrote
    if result.stale_from is not None:
        stop = result.tiling.wrote()
        facts: dict[str, Fact] = {"records_from": result.stale_from}
        facts |= {"youngest": result.back_max, "end_of_log": result.max_time}
        code, file = _codes_of(result).stale_tail, result.file_of(result.stale_from)
        findings.add(Finding(code, name, file, wrote, stop - wrote, facts))
    elif result.back_from is not None and not result.lead:
        facts = {"youngest": result.back_max, "before": result.max_time}
        at = result.back_from
        findings.add(Finding(codes.CL_TIME_BACK, name, result.file_of(at), at, wrote - at, facts))


def check_false_blanks(result: LogResult, findings: Findings, pointing: Pointing) -> None:
    """BLANKs where consume queues say that messages were: from here on they are damage of the log.

    Source: CommitLog.DefaultAppendMessageCallback#doAppend writes one only where the next message does not fit, 5.4.0
    """
    name, code = "dledger" if result.lead else "commitlog", _codes_of(result).false_blank
    for run in list(result.tiling) if pointing.lost else []:
        if run.kind is not Kind.BLANK or run.start not in pointing.lost:
            continue
        home = result.queue.find(run.start)
        if home is not None and run.start == home.start and run.stop < home.stop:
            continue  # DLedger 0.4 drops entries behind a snapshot so, and the queues still have their units
        result.disbelieve(run.start)
        facts = _lost_facts(pointing, run.start)
        file = result.file_of(run.start)
        findings.add(Finding(code, name, file, run.start, run.stop - run.start, facts))


def _lost_facts(pointing: Pointing, start: int) -> dict[str, Fact]:
    """How many messages consume queues name in a run of the log, and of which topics."""
    lost = pointing.lost.get(start)
    if not lost:
        return {}
    most = [f"{topic} {count:,}" for topic, count in lost.most_common(_TOPICS)]
    return {"messages": lost.total(), "topics": ", ".join(most) + (", …" if len(lost) > _TOPICS else "")}


_TOPICS = 5  # that are named
_RESTARTS = 8  # of a queue that are told one by one
_STRANGE_LEAST = 4  # records in a row that make an unknown format of what could be noise


def unknown_records(queue: MappedFileQueue, run: Run) -> tuple[int, int] | None:
    """(magic, records) when the bytes of a run chain by their size fields with one magic that is not known here.

    A newer or encrypted format: to be left alone, not taken for damage.
    """
    at, magic, count = run.start, 0, 0
    while at + 8 <= run.stop and count < 1000:
        head = queue.pread(8, at)
        size, found = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:8], "big")
        if len(head) < 8 or size < MIN_SIZE or at + size > run.stop or not found or (count and found != magic):
            break
        at, magic, count = at + size, found, count + 1
    return (magic, count) if count >= _STRANGE_LEAST else None


def check_queue_offsets(findings: Findings, logs: Logs) -> None:
    """Gaps, repeats, outliers and restarts of queue offsets that neither damage nor a misfiled record explains.

    A queue goes on from the legacy log to DLedger: queues are judged over all logs of the store.
    """
    for name, part in sorted(logs.queues.items()):
        _QueueOffsets(name, findings, logs).judge(part)


class _QueueOffsets:
    """What the queue offsets of one queue say."""

    def __init__(self, name: tuple[str, int], findings: Findings, logs: Logs) -> None:
        self.name = name
        self.findings = findings
        self.logs = logs

    def judge(self, part: QueuePart) -> None:
        """Add the findings of the queue; `part` joins what all logs say of it."""
        misfiled = self.logs.misfiled
        for gap in part.outliers:
            if gap.at not in misfiled.offsets:
                self._add(codes.CL_QUEUE_OFFSET, gap.at, {"expected": gap.expected, "got": gap.got})
        for gap in part.gaps:
            explained = self.logs.bad_between(gap.before, gap.at) or (
                gap.got - gap.expected == 1 and (*self.name, gap.expected) in misfiled.units
            )
            if not explained:
                self._add(codes.CL_QUEUE_OFFSET_GAP, gap.at, {"expected": gap.expected, "got": gap.got})
        restarts = [at for at in part.restarts if not self._left_out(at)]
        times: dict[str, Fact] = {"times": len(restarts)} if len(restarts) > _RESTARTS else {}
        for at in restarts[-1:] if times else restarts:
            self._add(codes.CL_QUEUE_RESTARTED, at, times)
        for at, index in part.repeats:
            self._add(codes.CL_QUEUE_OFFSET_REPEAT, at, {"queue_offset": index})
        if self.logs.foreign_from is None:
            self.findings.count(codes.CL_QUEUE_OFFSET_REPEAT, part.repeat_count - len(part.repeats))

    def _left_out(self, at: int) -> bool:
        """Whether a record is stale, or behind the start of another broker's file: that has its own finding."""
        stale = self.logs.result_at(at).stale_from
        return any(start is not None and at >= start for start in (stale, self.logs.foreign_from))

    def _add(self, code: str, at: int, facts: dict[str, Fact]) -> None:
        if self._left_out(at):
            return
        result = self.logs.result_at(at)
        name, head = ("dledger", ENTRY_SIZE) if result.lead else ("commitlog", 0)
        about: dict[str, Fact] = {"topic": self.name[0], "queue_id": self.name[1]}
        self.findings.add(Finding(code, name, result.file_of(at), at - head, 0, about | facts))
