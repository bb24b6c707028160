"""TM-COMPACTION: compactionLog and compactionCq of every compacted queue, compared with each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, OddKind
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.scan.kernels import I64, leading
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import file_chunks
from rmqstore.scan.window import ScanOptions

_CODE = codes.TM_COMPACTION
_WORK = ("compacting", "replicating")
_UNIT = consumequeue.BATCH_UNIT
_OPTIONS = ScanOptions(check_offset=False)  # compaction moves records


def check_compaction(store: Store, findings: Findings, *, live: bool = False) -> int:
    """Check every compacted queue, and return their number. A live store is not checked: files are being replaced.

    Source: TopicPartitionLog#sanityCheck of CompactionLog, SparseConsumeQueue#recover, RocketMQ 5.4.0
    """
    if store.part is not None or "compaction" not in store.top:
        return 0
    logs = {(q.topic, q.queue_id): q.queue for q in store.consume_queues(QueueKind.COMPACTION_LOG)}
    queues = {(q.topic, q.queue_id): q.queue for q in store.consume_queues(QueueKind.COMPACTION_CQ)}
    names = sorted(logs.keys() | queues.keys())
    if live:
        return len(names)
    for topic, queue_id in names:
        _queue(f"{topic}/{queue_id}", logs.get((topic, queue_id)), queues.get((topic, queue_id)), findings)
    return len(names)


def _queue(label: str, log: MappedFileQueue | None, queue: MappedFileQueue | None, findings: Findings) -> None:
    for part, one in (("compactionLog", log), ("compactionCq", queue)):
        for odd in one.odd if one else ():
            if odd.kind is OddKind.DIRECTORY and odd.path.name in _WORK:
                continue
            facts: dict[str, Fact] = {"reason": odd.kind.value, "in": part}
            findings.add(Finding(_CODE, label, odd.path.name, 0, odd.length, facts))
    log_files = {f.name: f for f in log.files} if log else {}
    queue_files = {f.name: f for f in queue.files} if queue else {}
    for name in sorted(log_files.keys() ^ queue_files.keys()):
        missing = "compactionCq" if name in log_files else "compactionLog"
        findings.add(Finding(_CODE, label, name, int(name), 0, {"reason": "missing", "in": missing}))
    for name in sorted(log_files):
        records = _records(label, log_files[name], findings)
        if name in queue_files:
            _units(label, queue_files[name], records, findings)


def _records(label: str, file: MappedFile, findings: Findings) -> tuple[I64, I64]:
    """Return (offset, size) of the good records, and report damage. Zeros end a file: its BLANK is never written."""
    starts: list[I64] = []
    sizes: list[I64] = []
    try:
        for run in scan_file(file, options=_OPTIONS):
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
    at = file.start
    base = -1
    wrong, first, what = 0, -1, ""
    for chunk in file_chunks(file, _UNIT):
        if chunk.start != at:
            break
        units: Any = chunk.units
        offset = units["commitlog_offset"].astype(np.int64)
        size = units["size"].astype(np.int64)
        bases = units["base_offset"].astype(np.int64)
        unit = consumequeue.is_batch_unit(offset, size, bases, units["batch_size"])
        n = leading(unit)
        where = np.minimum(np.searchsorted(starts, offset[:n]), max(0, len(starts) - 1))
        good = (starts[where] == offset[:n]) & (sizes[where] == size[:n]) if len(starts) else np.zeros(n, np.bool_)
        order = np.concatenate(([base], bases[: max(0, n - 1)]))[:n] < bases[:n]
        bad = np.flatnonzero(~(good & order))
        if len(bad):
            if first < 0:
                first = chunk.start + int(bad[0]) * _UNIT.size
                what = "order" if good[bad[0]] else "unit"
            wrong += len(bad)
        base = int(bases[n - 1]) if n else base
        at += n * _UNIT.size
        if n < len(unit):
            end = units[n].tobytes()
            if any(end) and end != consumequeue.SPARSE_END and first < 0:
                wrong, first, what = wrong + 1, at, "unit"
            break
    if wrong:
        facts: dict[str, Fact] = {"reason": what, "in": "compactionCq", "count": wrong}
        findings.add(Finding(_CODE, label, file.name, first, _UNIT.size, facts))
