"""What a whole log says beyond its records: damage, zeros, holes, tails, and queue offsets that do not go on.

`commitlog.py` has put the parts of the pass together; here its result is judged.
"""

from __future__ import annotations

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import Gap
from rmqstore.checks.log.record_findings import code_of
from rmqstore.checks.log.unowned_units import Pointing
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE, Fault
from rmqstore.scan.resync import ENTRY_SIZE
from rmqstore.scan.tiling import Kind, Run


def check_log(result: LogResult, findings: Findings, *, last_part: bool = True, followed: bool = False) -> None:
    """Findings that need the whole log. `last_part`: this log's end is the store's end (not a legacy part).

    `followed`: DLedger goes on behind it, whose first start closed this log's last file with a BLANK.
    """
    queue, tiling, lead = result.queue, result.tiling, result.lead
    name = "dledger" if lead else "commitlog"
    prefix = "DL" if lead else "CL"
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
                findings.add(Finding(f"{prefix}-NO-BLANK", name, file.name, run.start, length, {"damaged": True}))
                continue
        if run.kind is Kind.DIRTY and run.cause is Fault.MAGIC and not lead:
            strange = unknown_records(queue, run)
            if strange is not None:
                facts = {"magic": f"{strange[0]:08X}", "records": strange[1]}
                length = run.stop - run.start
                findings.add(Finding("CL-UNKNOWN-MAGIC", name, result.file_of(run.start), run.start, length, facts))
                continue
        if run.kind is Kind.DIRTY and run.count == 0:
            tail = run.start >= wrote and last_part
            code = f"{prefix}-DIRTY-TAIL" if tail else code_of(run.cause, lead)
            facts = {"cause": run.cause.name.lower()}
            findings.add(Finding(code, name, result.file_of(run.start), run.start, run.stop - run.start, facts))
        elif run.kind is Kind.ZERO and (run.start < wrote or followed):
            file = queue.find(run.start)
            at_end = file is not None and run.stop == file.stop
            code = f"{prefix}-NO-BLANK" if at_end else ("DL-HEADER" if lead else "CL-ZERO-HOLE")
            findings.add(Finding(code, name, result.file_of(run.start), run.start, run.stop - run.start))
        elif run.kind is Kind.BLANK and not lead and run.claimed not in (run.stop - run.start, _left(queue, run)):
            left = _left(queue, run)
            facts = {"claimed": run.claimed, "left": left}
            findings.add(Finding("CL-BLANK-SIZE", name, result.file_of(run.start), run.start, left, facts))
    _older(result, findings)


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
        lost = pointing.lost.get(run.start)
        if lost:
            most = [f"{topic} {count:,}" for topic, count in lost.most_common(_TOPICS)]
            facts |= {"messages": lost.total(), "topics": ", ".join(most) + (", …" if len(lost) > _TOPICS else "")}
        findings.add(Finding("CL-MISSING-FILE", "commitlog", "", run.start, run.stop - run.start, facts))


def _older(result: LogResult, findings: Findings) -> None:
    """Records that are older than what stands before them: of a truncated log, or of a clock that went back."""
    name, prefix = ("dledger", "DL") if result.lead else ("commitlog", "CL")
    wrote = result.wrote
    if result.stale_from is not None:
        stop = result.tiling.wrote()
        facts: dict[str, Fact] = {"records_from": result.stale_from}
        facts |= {"youngest": result.back_max, "end_of_log": result.max_time}
        code = f"{prefix}-STALE-TAIL"
        findings.add(Finding(code, name, result.file_of(result.stale_from), wrote, stop - wrote, facts))
    elif result.back_from is not None and not result.lead:
        facts = {"youngest": result.back_max, "before": result.max_time}
        at = result.back_from
        findings.add(Finding("CL-TIME-BACK", name, result.file_of(at), at, wrote - at, facts))


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


def check_queue_offsets(result: LogResult, findings: Findings, logs: Logs) -> None:
    """Gaps, repeats, outliers and restarts of queue offsets that neither damage nor a misfiled record explains."""
    misfiled = logs.misfiled
    # what is said of another broker's file explains these, too
    stale = min((at for at in (result.stale_from, logs.foreign_from) if at is not None), default=None)
    name = "dledger" if result.lead else "commitlog"

    head = ENTRY_SIZE if result.lead else 0
    for (topic, queue_id), part in sorted(result.queues.items()):

        def fact(gap: Gap, topic: str = topic, queue_id: int = queue_id) -> dict[str, Fact]:
            return {"topic": topic, "queue_id": queue_id, "expected": gap.expected, "got": gap.got}

        for gap in part.outliers:
            if (stale is None or gap.at < stale) and gap.at not in misfiled.offsets:
                findings.add(Finding("CL-QUEUE-OFFSET", name, result.file_of(gap.at), gap.at - head, 0, fact(gap)))
        for gap in part.gaps:
            explained = result.bad_between(gap.before, gap.at) or (
                gap.got - gap.expected == 1 and (topic, queue_id, gap.expected) in misfiled.units
            )
            if (stale is None or gap.at < stale) and not explained:
                findings.add(Finding("CL-QUEUE-OFFSET-GAP", name, result.file_of(gap.at), gap.at - head, 0, fact(gap)))
        facts: dict[str, Fact]
        restarts = [at for at in part.restarts if stale is None or at < stale]
        for at in restarts if len(restarts) <= _RESTARTS else restarts[-1:]:
            facts = {"topic": topic, "queue_id": queue_id}
            if len(restarts) > _RESTARTS:
                facts["times"] = len(restarts)
            findings.add(Finding("CL-QUEUE-RESTARTED", name, result.file_of(at), at - head, 0, facts))
        kept = 0
        for at, index in part.repeats:
            if stale is None or at < stale:
                facts = {"topic": topic, "queue_id": queue_id, "queue_offset": index}
                findings.add(Finding("CL-QUEUE-OFFSET-REPEAT", name, result.file_of(at), at - head, 0, facts))
            kept += 1
        if logs.foreign_from is None:
            findings.count("CL-QUEUE-OFFSET-REPEAT", part.repeat_count - kept)
