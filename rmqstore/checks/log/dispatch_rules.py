"""Which consume queue units a broker writes for a record: special topics, light queues, batches.

Both the pass of `verify` and the rebuild of queues use them.
Source: DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue#dispatch, ConsumeQueue#putMessagePositionInfo,
MultiDispatchUtils (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rmqstore.formats import properties
from rmqstore.formats.services import is_service_topic, missing_in_text
from rmqstore.formats.text.javatext import java_text
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64
from rmqstore.scan.queues import QueueTable

_SCHEDULE = properties.SCHEDULE_TOPIC.encode()


class QueueNames:
    """The names of the queues of a table, and the queues that are dispatched in a special way.

    `names[i]` is (topic, queue id) of queue i; `schedule`, `batch`, `unsound`, `fillers` and `services` are numbers of
    queues; a service of the broker reads those of `services`.
    `is_sound(topic, queue_id)`: whether the queue can have units; `batch_topics` have a BatchCQ.
    """

    def __init__(self, table: QueueTable, batch_topics: frozenset[str], is_sound: Callable[[bytes, int], bool]) -> None:
        self.names: list[tuple[str, int]] = []
        self.schedule: set[int] = set()
        self.batch: set[int] = set()
        self.unsound: set[int] = set()
        self.services: set[int] = set()
        self._table = table
        self._batch_topics = batch_topics
        self._is_sound = is_sound

    def learn(self) -> None:
        """Add the queues that are new in the table since the last call."""
        for i in range(len(self.names), len(self._table)):
            topic, queue_id = self._table.topics[i], self._table.queue_ids[i]
            name = java_text(topic)
            self.names.append((name, queue_id))
            if topic == _SCHEDULE:
                self.schedule.add(i)
            if is_service_topic(name):
                self.services.add(i)
            if name in self._batch_topics:
                self.batch.add(i)
            if not self._is_sound(topic, queue_id):
                self.unsound.add(i)


def record_properties(columns: Columns, i: int) -> Mapping[str, str]:
    """Return the parsed properties of record i."""
    return properties.parse_properties(columns.properties(i))


def add_service_faults(columns: Columns, number: I64, queues: QueueNames, faults: dict[int, list[str]]) -> None:
    """Add to `faults`, by record, the properties that a service of the broker needs and does not find.

    `number`: each record's queue.
    """
    if not queues.services:
        return
    rows = np.flatnonzero(np.isin(number, list(queues.services)))
    start, stop = columns.properties_at[rows], (columns.properties_at + columns.properties_length)[rows]
    for i, a, b in zip(rows.tolist(), start.tolist(), stop.tolist(), strict=True):
        missing = missing_in_text(queues.names[int(number[i])][0], columns.raw, a, b)
        if missing:
            faults.setdefault(i, []).append(f"no valid {', '.join(missing)}")


def put_deliver_times(
    columns: Columns, number: I64, schedule: set[int], tags: I64, levels: properties.DelayLevels
) -> None:
    """Replace the tags codes of records of the schedule topic (`schedule`: its queue numbers) by delivery times."""
    for i in np.flatnonzero(np.isin(number, list(schedule))).tolist():
        time = int(columns.store_timestamp[i])
        found = record_properties(columns, i)
        code = properties.dispatch_tags_code(properties.SCHEDULE_TOPIC, found, time, levels)
        tags[i] = code if code is not None else tags[i]


def light_queues(topic: str, queue_id: int, found: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """Yield (queue name, queue id, queue offset) of every further queue that gets a message (LMQ)."""
    if properties.dispatches_to_lmq(topic):
        for queue, offset in properties.lmq_queues(found):
            yield queue, 0 if properties.is_lmq(queue) else queue_id, offset


def batch_extent(found: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return (base queue offset, number of messages) for a unit of a BatchCQ topic; 1 message if no inner batch."""
    inner = properties.inner_batch(found)
    return inner if inner is not None else (queue_offset, 1)
