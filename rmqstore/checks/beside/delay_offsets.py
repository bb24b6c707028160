"""delayOffset.json: offsets of delay levels that skip messages, or from which messages are delivered again.

Source: ScheduleMessageService#start, #persist, DeliverDelayedMessageTimerTask (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

import numpy as np

from rmqstore.checks.beside.config import ConfigFacts, beyond_end
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange
from rmqstore.files.config_files import delay_offsets
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.formats import consumequeue
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.scan.units import unit_chunks

_FILE = "delayOffset.json"
_LATE = 20_000  # ms; a running broker delivers when a message is due, and saves delayOffset.json every 10 s
_BACKLOG = 600_000  # ms; a busy broker delivers late


def check_delay_offsets(
    store: Store, facts: ConfigFacts, queue_range: QueueRange, latest: int, findings: Findings, *, live: bool = False
) -> None:
    """Compare delay offsets with the messages of their levels; `latest` is the latest store time of the log (ms).

    No message that is due after that time has been delivered, because it would be in the log. The offsets must have
    been read before the queues, as for `check_offsets`.
    """
    offsets = delay_offsets(facts.tables.get(_FILE, {}))
    if offsets is None:
        return
    for queue_id, offset in offsets.items():
        if beyond := beyond_end(queue_range, SCHEDULE_TOPIC, queue_id, offset):
            if skipped := _due(_level(store, queue_id), latest + 1, 1 << 62):
                beyond["messages"] = skipped
            findings.add(Finding(codes.CFG_DELAY_BEYOND, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=beyond))
    # a store with topics.json alone was imported: it never delivered anything
    if not live and any(name != "topics.json" for name in facts.tables) and store.kind is not StoreKind.ROCKSDB:
        _check_delivered(store, offsets, queue_range, latest, findings)


def _check_delivered(
    store: Store, offsets: dict[int, int], queue_range: QueueRange, latest: int, findings: Findings
) -> None:
    """Report levels with messages that a broker delivered, by the times, but will deliver again by their offset."""
    for topic, queue_id, _ in store.queue_directories(QueueKind.SIMPLE):
        known = queue_range(topic, queue_id) if topic == SCHEDULE_TOPIC else None
        if known is None:
            continue
        offset = offsets.get(queue_id, 0)
        late = latest - (_BACKLOG if offset > 0 else _LATE)
        again = _due(_level(store, queue_id), 1, late, first=max(known[0], offset), stop=known[1])
        if again:
            about: dict[str, Fact] = {"topic": topic, "queue_id": queue_id, "offset": offset, "max": known[1]}
            about["delivered_again"] = again
            findings.add(Finding(codes.CFG_DELAY_BEHIND, f"{topic}/{queue_id}", _FILE, facts=about))


def _level(store: Store, queue_id: int) -> MappedFileQueue:
    return store.consume_queue(SCHEDULE_TOPIC, queue_id).queue


def _due(queue: MappedFileQueue, since: int, until: int, *, first: int = 0, stop: int | None = None) -> int:
    """Count the messages of a level, from queue offset `first` to `stop`, that are due in [since, until) (ms)."""
    unit = consumequeue.UNIT
    end = None if stop is None else stop * unit.size
    count = 0
    for chunk in unit_chunks(queue, unit, start=first * unit.size, stop=end):
        due = chunk.units["tags_code"]
        count += int(np.count_nonzero((chunk.units["size"] > 0) & (since <= due) & (due < until)))
    return count
