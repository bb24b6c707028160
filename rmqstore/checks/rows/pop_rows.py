"""RDB-POP-BEYOND: rows of kvStore/ that name messages which their queue does not have.

A row is a message that a POP consumer has received and not acknowledged. Source: PopConsumerService#revive (RocketMQ
5.5.1)
"""

from __future__ import annotations

from collections import Counter

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, QueueRange, Report
from rmqstore.files.rocksdb.database import CannotRead, is_readable, missing_extra
from rmqstore.files.rocksdb.rows import pop_rows
from rmqstore.files.store import Store
from rmqstore.formats.pop import KV_DIRECTORY
from rmqstore.formats.text import many
from rmqstore.texts import Text


def check_pop_rows(store: Store, report: Report, queue_range: QueueRange | None) -> int:
    """Compare the rows of kvStore/ with the ends of their queues; `queue_range` None: do not compare.

    Return the number of rows: messages that POP consumers received, and did not acknowledge. Rows before a queue's
    minimum are no problem: their messages have expired, and the broker drops them.
    Errors: none; see `unchecked` of the report.
    """
    if not is_readable():
        report.unchecked.append(
            Text(
                "{kv_directory}/: messages that POP consumers received are not checked: that {missing_extra}",
                kv_directory=KV_DIRECTORY,
                missing_extra=missing_extra(),
            )
        )
        return 0
    beyond: Counter[tuple[str, int]] = Counter()
    other = count = 0
    try:
        for _, _, row in pop_rows(store):
            count += 1
            if row is None:
                other += 1
            elif queue_range is not None:
                bounds = queue_range(row.topic, row.queue_id)
                if bounds is not None and row.queue_offset >= bounds[1]:
                    beyond[row.topic, row.queue_id] += 1
    except CannotRead as e:
        report.unchecked.append(
            Text("{kv_directory}/: this RocksDB cannot be read: {e}", kv_directory=KV_DIRECTORY, e=e)
        )
        return count
    if other:
        report.unchecked.append(
            Text("{kv_directory}/: {rows} cannot be read", kv_directory=KV_DIRECTORY, rows=many(other, "row"))
        )
    for (topic, queue_id), rows in sorted(beyond.items()) if not report.live else ():
        facts: dict[str, Fact] = {"topic": topic, "queue_id": queue_id, "rows": rows}
        report.findings.add(Finding(codes.RDB_POP_BEYOND, f"{topic}/{queue_id}", KV_DIRECTORY, facts=facts))
    return count
