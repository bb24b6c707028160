"""delayOffset.json: offsets of delay levels that skip messages, or that are missing, so that messages are repeated.

Source: ScheduleMessageService#start, ConfigManager#persist (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property

import numpy as np

from rmqstore.checks.beside.config import ConfigFacts, beyond_end
from rmqstore.checks.beside.missing_config import broker_has_run
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueRange
from rmqstore.files.config_files import delay_offsets
from rmqstore.files.mapped_file_queue import MappedFileQueue, list_directory
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import Store, StoreKind
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
    findings: Findings,
    *,
    live: bool = False,
) -> None:
    """Compare delay offsets with the messages of their levels.

    `queues`: the names of all queues ("TOPIC/ID"). `times`: of the log's last message, and the latest (ms). No message
    that is due after the latest time has been delivered, because it would be in the log. The offsets must have been
    read before the queues, as for `check_offsets`.
    """
    levels = _Levels(store)
    offsets = delay_offsets(facts.tables.get(_FILE, {})) or {}
    for queue_id, offset in offsets.items():
        if beyond := beyond_end(queue_range, SCHEDULE_TOPIC, queue_id, offset):
            if skipped := levels.due(queue_id, times[1] + 1, 1 << 62):
                beyond["messages"] = skipped
            findings.add(Finding(codes.CFG_DELAY_BEYOND, f"{SCHEDULE_TOPIC}/{queue_id}", _FILE, facts=beyond))
    names = {entry.path.name for entry in list_directory(store.root / "config")}
    if not live and not names & {_FILE, f"{_FILE}.bak"} and broker_has_run(store, queues):
        late = _SAVED if names else _LATE
        _check_delivered(levels, queue_range, queues, times[0] - late, findings)


def _check_delivered(
    levels: _Levels, queue_range: QueueRange, queues: Iterable[str], until: int, findings: Findings
) -> None:
    """Report levels with messages that a broker delivered before `until` (ms), and will deliver again."""
    for topic, _, number in (name.rpartition("/") for name in queues):
        known = queue_range(topic, int(number)) if topic == SCHEDULE_TOPIC else None
        if known is None:
            continue
        if again := levels.due(int(number), 1, until):
            about: dict[str, Fact] = {"topic": topic, "queue_id": int(number), "max": known[1]}
            about["delivered_again"] = again
            findings.add(Finding(codes.CFG_NO_DELAYS, f"{topic}/{number}", _FILE, facts=about))


class _Levels:
    """The queues of SCHEDULE_TOPIC_XXXX, in files or in a RocksDB."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _rows(self) -> RocksDBQueues | None:
        """The queues in RocksDB; None if they are in files, or cannot be read."""
        if self._store.kind is StoreKind.ROCKSDB:
            with suppress(CannotRead):
                return RocksDBQueues(self._store)
        return None

    def queue(self, queue_id: int) -> MappedFileQueue:
        if self._rows is not None:
            return self._rows.queue(SCHEDULE_TOPIC, queue_id)
        return self._store.consume_queue(SCHEDULE_TOPIC, queue_id).queue

    def due(self, queue_id: int, since: int, until: int) -> int:
        """Count the messages of a level that are due in [since, until) (ms)."""
        count = 0
        for chunk in unit_chunks(self.queue(queue_id), consumequeue.UNIT):
            due = chunk.units["tags_code"]
            count += int(np.count_nonzero((chunk.units["size"] > 0) & (since <= due) & (due < until)))
        return count
