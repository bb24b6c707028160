"""How far POP, transactions and the timer know a queue: they refer to messages by their queue offsets.

A check point of POP, a row of kvStore/ and an operation message name messages that a broker has had.

Source: PopReviveService, PopConsumerRocksdbStore, TransactionalMessageServiceImpl#fillOpRemoveMap, TimerCheckpoint,
TimerSysTopicScanService (5.1.4 to 5.5.1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.rows import places_of
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.rocksdb.rows import MessageRows, pop_rows
from rmqstore.files.store import Store
from rmqstore.formats import pop, timer
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import Message
from rmqstore.formats.properties import HALF_TOPIC, OP_HALF_TOPIC, TAGS, TIMER_TOPIC, parse_properties
from rmqstore.formats.rocksdbstore import SCAN_OFFSET, TIMER_FAMILY

_NEWEST = 20_000  # messages of a queue


def reached_by_services(store: Store, logs: Logs) -> dict[QueueName, int]:
    """Return for queues the least queue offset after all that they name. It reads the messages of their own queues."""
    found: Counter[QueueName] = Counter()
    for read in (_timer, _rows, _check_points, _half_messages):
        try:
            for name, stop in read(store, logs):
                found[name] = max(found[name], stop)
        except CannotRead:
            continue  # the check of the part says so
    return dict(found)


def _timer(store: Store, _: Logs) -> Iterator[tuple[QueueName, int]]:
    raw = store.files.read_at(store.root / "config" / "timercheck", timer.TIMERCHECK.size, 0)
    yield (TIMER_TOPIC, 0), timer.parse_timercheck(raw)["last_timer_queue_offset"]
    rows = MessageRows.of(store)
    if rows is not None:
        yield (TIMER_TOPIC, 0), rows.position(TIMER_FAMILY, SCAN_OFFSET) or 0


def _rows(store: Store, _: Logs) -> Iterator[tuple[QueueName, int]]:
    """Yield what kvStore/ has, and consume queues in RocksDB beside those in files."""
    for _key, _value, row in pop_rows(store):
        if row is not None:
            yield (row.topic, row.queue_id), row.queue_offset + 1
    if store.rocksdb_beside:
        for name, bounds in RocksDBQueues(store).bounds().items():
            if "max" in bounds:
                yield name, bounds["max"].queue_offset + 1


def _check_points(store: Store, logs: Logs) -> Iterator[tuple[QueueName, int]]:
    """Yield what the check points in the revive log have, and in the timer on their way there."""
    for name in logs.queues:
        if name[0].startswith(pop.REVIVE_TOPIC) or name[0] == TIMER_TOPIC:
            for message in _newest(store, logs, name):
                is_point = parse_properties(message.properties).get(TAGS) == pop.CHECK_POINT_TAG
                point = pop.parse_check_point(bytes(message.body)) if is_point else None
                if point is not None:
                    yield (point.key.topic, point.key.queue_id), max(point.offsets, default=-1) + 1


def _half_messages(store: Store, logs: Logs) -> Iterator[tuple[QueueName, int]]:
    """Yield what operation messages end: their bodies are queue offsets of half messages, separated by commas."""
    for topic, queue_id in logs.queues:
        if topic == OP_HALF_TOPIC:
            for message in _newest(store, logs, (topic, queue_id)):
                words = bytes(message.body).split(b",")
                ended = [int(word) for word in words if word.isdigit() and len(word) < len(str(1 << 63))]
                yield (HALF_TOPIC, queue_id), max(ended, default=-1) + 1


def _newest(store: Store, logs: Logs, name: QueueName) -> Iterator[Message]:
    """Yield the newest messages of a queue. Errors: CannotRead."""
    newest = np.zeros(0, dtype=np.int64)
    for offsets, _ in places_of(store, logs, *name):
        newest = np.concatenate((newest, offsets))[-_NEWEST:]
    for offset in newest.tolist():
        message = logs.record(offset, MAX_RECORD)
        if message is not None and message.topic_text == name[0]:
            yield message
