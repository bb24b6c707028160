"""TM-COMPACTION: compactionLog and compactionCq of every compacted queue, compared with each other."""

from __future__ import annotations

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, Report
from rmqstore.files.mapped_file_queue import MappedFile, OddKind
from rmqstore.files.store import Store
from rmqstore.formats.compaction import SPARSE_END
from rmqstore.scan.compaction import OPTIONS, UNIT, CompactedQueue, compacted_queues, written_units
from rmqstore.scan.compaction import kept as kept
from rmqstore.scan.kernels import I64
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind

_CODE = codes.TM_COMPACTION
_WORK = ("compacting", "replicating")


def check(store: Store, report: Report) -> None:
    """Check every compacted queue of a store; not of a live one, where files are being replaced."""
    check_compaction(store, report.findings, live=report.live)


def check_compaction(store: Store, findings: Findings, *, live: bool = False) -> int:
    """Check every compacted queue unless the store is live, and return their number.

    Source: TopicPartitionLog#sanityCheck of CompactionLog, SparseConsumeQueue#recover, RocketMQ 5.4.0
    """
    queues = compacted_queues(store)
    for queue in queues if not live else ():
        _queue(queue, findings)
    return len(queues)


def _queue(queue: CompactedQueue, findings: Findings) -> None:
    label, log, units = queue.label, queue.log, queue.units
    for part, one in (("compactionLog", log), ("compactionCq", units)):
        for odd in one.odd if one else ():
            if odd.kind is OddKind.DIRECTORY and odd.path.name in _WORK:
                continue
            facts: dict[str, Fact] = {"reason": odd.kind.value, "in": part}
            findings.add(Finding(_CODE, label, odd.path.name, 0, odd.length, facts))
    log_files = {f.name: f for f in log.files} if log else {}
    unit_files = {f.name: f for f in units.files} if units else {}
    for name in sorted(log_files.keys() ^ unit_files.keys()):
        missing = "compactionCq" if name in log_files else "compactionLog"
        findings.add(Finding(_CODE, label, name, int(name), 0, {"reason": "missing", "in": missing}))
    for name in sorted(log_files):
        records = _records(label, log_files[name], findings)
        if name in unit_files:
            _units(label, unit_files[name], records, findings)


def _records(label: str, file: MappedFile, findings: Findings) -> tuple[I64, I64]:
    """Return (offset, size) of the good records, and report damage. Zeros end a file: its BLANK is never written."""
    starts: list[I64] = []
    sizes: list[I64] = []
    try:
        for run in scan_file(file, options=OPTIONS):
            if run.kind is Kind.RECORDS and run.columns is not None:
                starts.append(run.columns.offset)
                sizes.append(run.columns.size)
            elif run.kind is Kind.DIRTY:
                facts: dict[str, Fact] = {"reason": "record", "in": "compactionLog", "fault": run.cause.name}
                findings.add(Finding(_CODE, label, file.name, run.start, run.stop - run.start, facts))
    except OSError as e:
        facts = {"reason": "unreadable", "in": "compactionLog", "error": e.strerror or ""}
        findings.add(Finding(_CODE, label, file.name, file.start, file.length, facts))
    none = [np.empty(0, dtype=np.int64)]
    return np.concatenate(starts or none), np.concatenate(sizes or none)


def _units(label: str, file: MappedFile, records: tuple[I64, I64], findings: Findings) -> None:
    """Check the units up to the end marker: each points to a record of its size, and base offsets increase."""
    starts, sizes = records
    base = -1
    wrong, first, what = 0, -1, ""
    for chunk in written_units(file):
        n = len(chunk.units)
        offset, size, bases = (chunk.units[f].astype(np.int64) for f in ("log_offset", "size", "queue_offset"))
        where = np.minimum(np.searchsorted(starts, offset), max(0, len(starts) - 1))
        good = (starts[where] == offset) & (sizes[where] == size) if len(starts) else np.zeros(n, np.bool_)
        order = np.concatenate(([base], bases[: max(0, n - 1)]))[:n] < bases
        bad = np.flatnonzero(~(good & order))
        if len(bad):
            if first < 0:
                first = chunk.start + int(bad[0]) * UNIT.size
                what = "order" if good[bad[0]] else "unit"
            wrong += len(bad)
        base = int(bases[-1]) if n else base
        if any(chunk.end) and chunk.end != SPARSE_END and first < 0:
            wrong, first, what = wrong + 1, chunk.start + n * UNIT.size, "unit"
    if wrong:
        facts: dict[str, Fact] = {"reason": what, "in": "compactionCq", "count": wrong}
        findings.add(Finding(_CODE, label, file.name, first, UNIT.size, facts))
