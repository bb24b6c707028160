"""Batch queues in a RocksDB: one row for each message or inner batch, at its first queue offset.

A broker with its queues in RocksDB has no BatchCQ. It writes one row for an inner batch, as for any other message, and
none for the other queue offsets of the batch.

Source: RocksDBConsumeQueueStore#getConsumeQueue, RocksDBConsumeQueueTable#buildAndPutCQByteBuffer (RocketMQ 5.4.0; and
rows written by a real broker)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rmqstore.checks.log.logs import Logs, Name
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.checks.queues.batch_queue import batches_of, report_missing
from rmqstore.files.rocksdb.queues import Bound, RocksDBQueue, RocksDBQueues
from rmqstore.formats.consumequeue import UNIT_SIZE
from rmqstore.scan.dispatch import BatchRow
from rmqstore.texts import Text


def check_batch_rows(
    queues: RocksDBQueues,
    names: set[Name],
    bounds: Mapping[Name, Mapping[str, Bound]] | None,
    logs: Logs,
    findings: Findings,
) -> Iterator[tuple[Name, RocksDBQueue, QueueState]]:
    """Check the rows of batch queues, and yield each queue with its unreadable ranges and its state.

    `names`: the batch queues that have rows or an end; `bounds`: their ends, None if unreadable.
    """
    batches = batches_of(logs)
    for name in sorted(names | batches.keys()):
        rows = queues.queue(*name)
        last = None if bounds is None else bounds.get(name, {}).get("max")
        if bounds is not None:
            rows.end_at(last.queue_offset + 1 if last is not None else 0)
        yield name, rows, _judge(name, rows, batches.get(name, []), logs, findings)


def _judge(name: Name, rows: RocksDBQueue, batches: list[BatchRow], logs: Logs, findings: Findings) -> QueueState:
    label = f"{name[0]}/{name[1]}"
    by_base = {row.base: row for row in batches}
    met: set[int] = set()
    low = -1
    for number, units, _ in rows.runs(rows.first, rows.behind):
        offsets, sizes = units["commitlog_offset"].astype(np.int64), units["size"].astype(np.int64)
        for base, offset, size in zip(
            range(number, number + len(units)), offsets.tolist(), sizes.tolist(), strict=True
        ):
            if offset < logs.min_offset:
                continue
            row = by_base.get(base)
            if row is not None and (row.offset, row.size) == (offset, size):
                met.add(base)
                low = base if low < 0 else low
            elif row is None and (logs.damaged(offset) or logs.hidden(offset, size)):
                logs.lose(offset, name[0])
            else:
                facts: dict[str, Fact] = {"commitlog_offset": offset, "base_offset": base}
                facts["reason"] = Text("no batch of this queue starts there")
                findings.add(Finding(codes.BCQ_DANGLING_UNIT, label, "", base * UNIT_SIZE, UNIT_SIZE, facts))
    missing = [row for row in batches if row.base not in met and not rows.unreadable_in(row.base, row.base + 1)]
    report_missing(label, missing, UNIT_SIZE, logs, findings)
    expected = max((row.base + row.count for row in batches), default=rows.behind)
    return QueueState(max(low, 0), rows.behind, expected)
