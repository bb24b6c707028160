"""Delay levels: offsets in delayOffset.json that skip or repeat messages, and levels that the broker does not have.

Source: ScheduleMessageService#start, ConfigManager#persist (RocketMQ 4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import numpy as np

from rmqstore.checks.beside.config import ConfigFacts, beyond_end
from rmqstore.checks.beside.missing_config import broker_has_run
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange
from rmqstore.files.config import delay_offsets
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.scan.units import unit_chunks

_FILE = "delayOffset.json"
_LATE = 1_000  # ms; a running broker delivers when a message is due
_SAVED = 20_000  # ms; it saves delayOffset.json every 10 s, but topics.json at once


def check_delay_offsets(
    store: Store,
    facts: ConfigFacts,
    queue_range: QueueRange,
    queues: Iterable[str],
    times: tuple[int, int],
    logs: Logs,
    findings: Findings,
) -> None:
    """Compare delay offsets with the messages of their levels.

    `queues`: the names of all queues ("TOPIC/ID"). `times`: of the log's last message, and the latest (ms). No message
    that is due after the latest time has been delivered, because it would be in the log. The offsets must have been
    read before the queues, as for `check_offsets`.
    """
    offsets = delay_offsets(facts.tables.get(_FILE, {})) or {}
    for queue_id, offset in offsets.items():
        if beyond := beyond_end(queue_range, SCHEDULE_TOPIC, queue_id, offset):
            if skipped := _due(store, queue_id, times[1] + 1, 1 << 62):
                beyond["messages"] = skipped
            findings.add(Finding(codes.CFG_DELAY_BEYOND, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=beyond))
    if "messageDelayLevel" in store.config.given:
        _check_levels(len(delay_levels(store).delays), offsets, queue_range, queues, findings)
    names = {entry.path.name for entry in store.files.list(store.root / "config")}
    if not logs.grows and not names & {_FILE, f"{_FILE}.bak"} and broker_has_run(store, queues):
        late = _SAVED if names else _LATE
        _check_delivered(store, queue_range, queues, times[0] - late, logs, findings)


def _level_ranges(queue_range: QueueRange, queues: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield queue id, minimum and maximum queue offset of the delay levels among the named queues."""
    for topic, _, number in (name.rpartition("/") for name in queues):
        known = queue_range(topic, int(number)) if topic == SCHEDULE_TOPIC else None
        if known is not None:
            yield int(number), *known


def _check_levels(
    count: int, offsets: Mapping[int, int], queue_range: QueueRange, queues: Iterable[str], findings: Findings
) -> None:
    """Report messages that wait in levels after the last of the broker's `count` levels."""
    for queue_id, begin, end in _level_ranges(queue_range, queues):
        waiting = end - max(begin, offsets.get(queue_id, 0))
        if queue_id >= count and waiting > 0:
            about: dict[str, Fact] = {"level": queue_id + 1, "levels": count, "messages": waiting}
            findings.add(Finding(codes.CFG_NO_LEVEL, f"{SCHEDULE_TOPIC}/{queue_id}", "broker.conf", facts=about))


def _check_delivered(
    store: Store, queue_range: QueueRange, queues: Iterable[str], until: int, logs: Logs, findings: Findings
) -> None:
    """Report levels with messages that a broker delivered before `until` (ms), and will deliver again."""
    for queue_id, _, end in _level_ranges(queue_range, queues):
        about: dict[str, Fact] = {"topic": SCHEDULE_TOPIC, "queue_id": queue_id, "max": end}
        if again := _due(store, queue_id, 1, until):
            about["delivered_again"] = again
        else:
            again, all_known = _due_in_log(store, queue_id, until, logs)
            about |= {"delivered_again": again} | ({} if all_known else {"at_least": True})
        if again:
            findings.add(Finding(codes.CFG_NO_DELAYS, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=about))


def _due(store: Store, queue_id: int, since: int, until: int) -> int:
    """Count the messages of a level that are due in [since, until) (ms); 0 if its rows cannot be read."""
    from rmqstore.files.rocksdb.database import CannotRead
    from rmqstore.files.rocksdb.queues import simple_queue

    count = 0
    with suppress(CannotRead):
        for chunk in unit_chunks(simple_queue(store, SCHEDULE_TOPIC, queue_id), consumequeue.UNIT):
            due = chunk.units["tags_code"]
            count += int(np.count_nonzero((chunk.units["size"] > 0) & (since <= due) & (due < until)))
    return count


def _due_in_log(store: Store, queue_id: int, until: int, logs: Logs) -> tuple[int, bool]:
    """Return how many messages of a level without a unit are due before `until` (ms), and whether there are no more.

    A broker that rebuilds their units delivers them. Only the first and the last message of each range are read.
    """
    part = logs.queues.get((SCHEDULE_TOPIC, queue_id))
    count, all_known = 0, True
    for missing in part.missing if part is not None else ():
        first, last = (logs.record(at, MAX_RECORD) for at in (missing.first_at, missing.last_at))
        if last is not None and delay_levels(store).deliver_time(queue_id + 1, last.store_timestamp) < until:
            count += missing.count
        elif first is not None and delay_levels(store).deliver_time(queue_id + 1, first.store_timestamp) < until:
            count, all_known = count + 1, False
    return count, all_known
