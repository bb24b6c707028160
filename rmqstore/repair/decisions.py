"""Decisions that the operator must take before a plan is applied: reasons to stop, for the whole store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.queue_parts import KEPT
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding
from rmqstore.files.store import Store
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.scan.tiling import Kind

_MOST_DAMAGE = 10  # percent of the log
_FEW = 4  # messages of a queue


def sizes_decisions(store: Store, findings: Iterable[Finding]) -> Iterator[str]:
    """Yield why nothing may be repaired before the operator has corrected paths, file sizes or foreign files."""
    for finding in findings:
        if finding.code == codes.DIR_MISSING_PATH:
            yield f"{finding.facts.get('path')} is configured but missing: is a disk not mounted?"
        elif finding.code == codes.DIR_FILE_SIZE:
            key, actual = finding.facts.get("key"), finding.facts.get("actual")
            yield f"{finding.queue}: the file size differs from broker.conf: set {key}={actual}"
        elif finding.code == codes.DIR_DUPLICATE_FILE:
            path, other = finding.facts.get("path"), finding.facts.get("other")
            yield f"{path} and {other} start at the same offset: keep one of them"
        elif finding.code == codes.DL_OVERLAP:
            yield (
                f"the commitlog and DLedger both have messages from {finding.offset:,} on: add -c broker.conf "
                "(enableDLegerCommitLog=false) if the broker now runs without DLedger"
            )
        elif finding.code == codes.CL_FOREIGN_FILE:
            yield f"{finding.queue}/{finding.file} belongs to another log: put the right file there, or move it away"
        elif finding.code == codes.DIR_OPEN_JOURNAL and finding.facts.get("state") == "missing":
            yield (
                f"the journal {finding.facts.get('journal')} of an earlier repair is missing: mount its disk, or "
                "remove the reference with `rmqstore journals STORE --prune --missing --apply`"
            )
        elif finding.code == codes.DIR_OPEN_JOURNAL:
            yield f"the repair {finding.facts.get('journal')} was not finished: undo or resume it first"
    if store.commitlog is not None and store.commitlog.files and store.commitlog.size_from == "default":
        yield f"the commitlog file size cannot be inferred from the files; {store.commitlog.file_size} is assumed"


def damage_decisions(results: Iterable[LogResult], counts: Mapping[str, int], options: RecoverOptions) -> Iterator[str]:
    """Yield signs of unusual damage: the store, the disk or the format may be the wrong one."""
    if counts.get(codes.CL_UNKNOWN_MAGIC):
        yield "the log has records with an unknown magic: a newer or encrypted format?"
    if counts.get(codes.CQ_FOREIGN):
        yield "hardly any consume queue unit points to a message: does this log belong to these queues?"
    # with --accept-fillers, the operator has decided on missing files
    kinds = (Kind.DIRTY, Kind.ZERO) if options.accept_fillers else (Kind.DIRTY, Kind.ZERO, Kind.HOLE)
    for result in results:
        bad = sum(r.stop - r.start for r in result.tiling if r.start < result.wrote and r.kind in kinds)
        whole = max(1, result.wrote - result.tiling.start)
        if bad * 100 > whole * _MOST_DAMAGE:
            yield f"{bad * 100 // whole} % of {result.queue.name} is damaged ({bad:,} of {whole:,} bytes)"
        if not result.messages and any(r.kind is Kind.DIRTY for r in result.tiling):
            yield f"{result.queue.name} has no good record"


def packed_decisions(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield compressed files beside the log files: they may hold what the log lacks."""
    for finding in findings:
        if name := finding.facts.get("compressed_file"):
            path = finding.facts["path"]
            yield f"{path} may be {name}, compressed: decompress it there, and run this command again"


def path_decisions(store: Store, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield empty data directories if log files are missing: their disks may not be mounted."""
    if store.commitlog is None or not (counts.get(codes.CL_MISSING_FILE) or counts.get(codes.CQ_BEYOND_LOG)):
        return
    if len(store.commitlog_directories) == 1:
        return
    used = {file.path.parent for file in store.commitlog.files}
    for directory in store.commitlog_directories:
        if directory not in used:
            yield f"{directory} is configured and empty, and files of the log are missing: is a disk not mounted?"


def offset_decisions(results: Iterable[LogResult]) -> Iterator[str]:
    """Yield logs without the queue offsets of their messages.

    Source: CommitLog#asyncPutMessage assigns no queue offset with duplicationEnable, 5.1.4
    """
    for result in results:
        parts = [part for part in result.queues.values() if part.messages >= _FEW]
        alike = [part for part in parts if len(part.restarts) >= min(KEPT, part.messages // 2 + 1)]
        if alike:
            messages = sum(part.messages for part in alike)
            queues = "1 queue" if len(alike) == 1 else f"{len(alike):,} queues"
            yield (
                f"the {messages:,} messages of {queues} all have queue offset 0, as written with "
                "duplicationEnable=true: consumers get one message of such a queue, even after this repair; "
                "`rmqstore export` returns all of them"
            )
