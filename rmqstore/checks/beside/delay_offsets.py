"""delayOffset.json: offsets of delay levels that skip messages, or that are missing, so that messages are repeated.

Source: ScheduleMessageService#start, ConfigManager#persist (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

import os

import numpy as np

from rmqstore.checks.beside.config import ConfigFacts, beyond_end
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange
from rmqstore.files.config_files import delay_offsets
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.scan.units import unit_chunks

_FILE = "delayOffset.json"
_LATE = 20_000  # ms; a running broker delivers when a message is due, and saves delayOffset.json every 10 s


def check_delay_offsets(
    store: Store,
    facts: ConfigFacts,
    queue_range: QueueRange,
    times: tuple[int, int],
    findings: Findings,
    *,
    live: bool = False,
) -> None:
    """Compare delay offsets with the messages of their levels; `times`: of the log's last message, and the latest (ms).

    No message that is due after the latest time has been delivered, because it would be in the log. The offsets must
    have been read before the queues, as for `check_offsets`.
    """
    offsets = delay_offsets(facts.tables.get(_FILE, {}))
    if offsets is None:
        return
    for queue_id, offset in offsets.items():
        if beyond := beyond_end(queue_range, SCHEDULE_TOPIC, queue_id, offset):
            if skipped := _due(_level(store, queue_id), times[1] + 1, 1 << 62):
                beyond["messages"] = skipped
            findings.add(Finding(codes.CFG_DELAY_BEYOND, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=beyond))
    # a store with topics.json alone was imported: it never delivered anything
    files = (store.root / "config" / name for name in (_FILE, f"{_FILE}.bak"))
    if not live and set(facts.tables) - {"topics.json"} and not any(map(os.path.lexists, files)):
        _check_delivered(store, queue_range, times[0], findings)


def _check_delivered(store: Store, queue_range: QueueRange, last: int, findings: Findings) -> None:
    """Report levels with messages that a broker delivered, by the times, but will deliver again without the file."""
    for topic, queue_id, _ in store.queue_directories(QueueKind.SIMPLE):
        known = queue_range(topic, queue_id) if topic == SCHEDULE_TOPIC else None
        if known is None:
            continue
        if again := _due(_level(store, queue_id), 1, last - _LATE):
            about: dict[str, Fact] = {"topic": topic, "queue_id": queue_id, "max": known[1], "delivered_again": again}
            findings.add(Finding(codes.CFG_NO_DELAYS, f"{topic}/{queue_id}", _FILE, facts=about))


def _level(store: Store, queue_id: int) -> MappedFileQueue:
    return store.consume_queue(SCHEDULE_TOPIC, queue_id).queue


def _due(queue: MappedFileQueue, since: int, until: int) -> int:
    """Count the messages of a level that are due in [since, until) (ms)."""
    count = 0
    for chunk in unit_chunks(queue, consumequeue.UNIT):
        due = chunk.units["tags_code"]
        count += int(np.count_nonzero((chunk.units["size"] > 0) & (since <= due) & (due < until)))
    return count
