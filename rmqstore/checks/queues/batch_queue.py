"""Batch consume queues (BatchCQ): units of 46 bytes, one per message or inner batch, with queue offsets inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import BATCH_UNIT_SIZE, QueueName
from rmqstore.scan.dispatch import BatchRow
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text


def batches_of(logs: Logs) -> dict[QueueName, list[BatchRow]]:
    """Return the messages and inner batches of every batch queue, in the order of the log."""
    batches: dict[QueueName, list[BatchRow]] = {}
    for result in logs.results:
        for name, rows in result.batches.items():
            batches.setdefault(name, []).extend(rows)
    return batches


def check_batch_queues(store: Store, logs: Logs, findings: Findings) -> dict[str, QueueState]:
    """Check all batch consume queues against the batches in the log, and return their states."""
    batches = batches_of(logs)
    states: dict[str, QueueState] = {}
    seen: set[QueueName] = set()
    for files in store.consume_queues(QueueKind.BATCH):
        name = (files.topic, files.queue_id)
        seen.add(name)
        states[files.label] = _queue(files, batches.get(name, []), logs, findings)
        if not files.queue.files and logs.empties_queues:
            logs.witnesses.cut.add(name)
    for name, rows in sorted(batches.items()):
        if name not in seen:
            label = f"{name[0]}/{name[1]}"
            facts: dict[str, Fact] = {"messages": len(rows), "first_offset": rows[0].offset}
            findings.add(Finding(codes.BCQ_MISSING_UNIT, label, "", 0, len(rows) * BATCH_UNIT_SIZE, facts))
            states[label] = QueueState(0, 0, max(r.base + r.count for r in rows))
    return states


def _queue(files: ConsumeQueueFiles, rows: list[BatchRow], logs: Logs, findings: Findings) -> QueueState:
    label, queue = files.label, files.queue
    by_offset = {row.offset: row for row in rows}
    bases = {row.base for row in rows}
    matched: set[int] = set()
    low, high, before = -1, 0, -1
    ended = False

    def add(code: str, at: int, facts: dict[str, Fact]) -> None:
        findings.add(Finding(code, label, queue.name_at(at), at, BATCH_UNIT_SIZE, facts))

    for at, unit in _units(files):
        offset, size, base, count = (int(unit[n]) for n in ("commitlog_offset", "size", "base_offset", "batch_size"))
        facts: dict[str, Fact] = {"commitlog_offset": offset, "base_offset": base, "count": count}
        if not consumequeue.is_batch_unit(offset, size, base, count):
            ended = True
            if any(unit.tobytes()):
                add(codes.BCQ_DANGLING_UNIT, at, facts | {"reason": Text("no valid unit")})
            continue
        if ended:
            add(codes.BCQ_GHOST_UNITS, at, facts)
            continue
        name = files.topic, files.queue_id
        if offset < logs.min_offset:
            high = max(high, base + count)
            logs.witnesses.add_batch(name, base, count, offset, size)
            continue
        row = by_offset.get(offset)
        if row is None:
            logs.witnesses.add_batch(name, base, count, offset, size)
            if logs.damaged(offset) or (logs.hidden(offset, size) and base not in bases):
                logs.lose(offset, files.topic)
            else:
                add(codes.BCQ_DANGLING_UNIT, at, facts | {"reason": Text("no batch of this queue starts there")})
            continue
        matched.add(offset)
        found = (size, int(unit["tags_code"]), int(unit["store_timestamp"]), base, count)
        wanted = (row.size, row.tags_code, row.store_timestamp, row.base, row.count)
        if found != wanted:
            names = ("size", "tags_code", "store_timestamp", "base_offset", "count")
            wrong = [n for n, x, y in zip(names, found, wanted, strict=True) if x != y]
            add(codes.BCQ_WRONG_UNIT, at, facts | {"wrong": " ".join(wrong)})
        elif row.queue_offset not in (-1, base):
            _report_header(files, row, logs, findings)
        elif base < before:
            add(codes.BCQ_ORDER, at, facts | {"before": before})
        before = base + count
        low = base if low < 0 else min(low, base)
        high = max(high, base + count)
    report_missing(label, [r for r in rows if r.offset not in matched], BATCH_UNIT_SIZE, logs, findings)
    expected = max((r.base + r.count for r in rows), default=high)
    return QueueState(max(low, 0), high, expected)


def report_missing(label: str, missing: list[BatchRow], unit: int, logs: Logs, findings: Findings) -> None:
    """Report messages and inner batches without a unit (of `unit` bytes), unless they may still be waiting for it."""
    if missing and not logs.lag_is_normal:
        facts: dict[str, Fact] = {"messages": len(missing), "first_offset": missing[0].offset}
        facts["base_offset"] = missing[0].base
        findings.add(Finding(codes.BCQ_MISSING_UNIT, label, "", 0, len(missing) * unit, facts))


def _report_header(files: ConsumeQueueFiles, row: BatchRow, logs: Logs, findings: Findings) -> None:
    """Report that QUEUEOFFSET, from which clients number the batch, differs from INNER_BASE and the unit."""
    log = next(r for r in logs.results if r.queue.find(row.offset) is not None)
    facts: dict[str, Fact] = {"topic": files.topic, "queue_id": files.queue_id}
    facts |= {"expected": row.base, "got": row.queue_offset}
    findings.add(log.finding(codes.CL_QUEUE_OFFSET, row.offset - log.body_offset, 0, facts))


def _units(files: ConsumeQueueFiles) -> Iterator[tuple[int, np.void]]:
    """Yield (position in bytes, unit) of all units, but only the first of consecutive zero units."""
    for chunk in unit_chunks(files.queue, consumequeue.BATCH_UNIT):
        used = chunk.units["size"] != 0
        used |= chunk.units["commitlog_offset"] != 0
        used |= chunk.units["base_offset"] != 0
        zero = ~used
        edge = zero & np.concatenate(([True], used[:-1]))
        for i in np.flatnonzero(used | edge).tolist():
            yield chunk.start + i * BATCH_UNIT_SIZE, chunk.units[i]
