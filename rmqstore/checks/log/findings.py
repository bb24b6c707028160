"""Findings that need a whole log: damage, zeros and tails.

`commitlog.py` joins the parts of the pass; this module judges the result. `queue_findings.py` has what the queues add.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.record_findings import code_of, lost_pages
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE, Fault
from rmqstore.scan.tiling import Kind, Run


class Codes(NamedTuple):
    """Codes of the problems that occur in both a commitlog and DLedger data."""

    no_blank: str
    false_blank: str
    dirty_tail: str
    stale_tail: str


_COMMITLOG = Codes(codes.CL_NO_BLANK, codes.CL_FALSE_BLANK, codes.CL_DIRTY_TAIL, codes.CL_STALE_TAIL)
_DLEDGER = Codes(codes.DL_NO_BLANK, codes.DL_FALSE_BLANK, codes.DL_DIRTY_TAIL, codes.DL_STALE_TAIL)
_MIN_UNKNOWN = 4  # fewer records in a row with an unknown magic may be noise


def codes_of(result: LogResult) -> Codes:
    """Return the codes for a commitlog, or for DLedger data."""
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
                result.finding(codes_of(result).no_blank if at_end else zeros, run.start, run.stop - run.start)
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
    run, own = result.tiling[i], codes_of(result)
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


def _check_times(result: LogResult, wrote: int, findings: Findings) -> None:
    """Report records at the end that are older than those before: of a truncated log, or after a clock change."""
    if result.stale_from is not None:
        facts: dict[str, Fact] = {"records_from": result.stale_from}
        facts |= {"youngest": result.back_max, "end_of_log": result.max_time}
        file = result.queue.name_at(result.stale_from)
        length = result.tiling.wrote() - wrote
        findings.add(Finding(codes_of(result).stale_tail, result.name, file, wrote, length, facts))
    elif result.back_from is not None and not result.body_offset:
        facts = {"youngest": result.back_max, "before": result.max_time}
        findings.add(result.finding(codes.CL_TIME_BACK, result.back_from, wrote - result.back_from, facts))


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
