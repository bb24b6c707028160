"""Which consume queue units a record is owed, where its header and tags alone do not say it.

The one home of these rules for the log as it is (the pass of `verify`) and as a repair will leave it (`rebuild`).
Source: DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue#dispatch, ConsumeQueue#putMessagePositionInfo,
MultiDispatchUtils (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from rmqstore.formats import properties
from rmqstore.formats.message import CRC32_RESERVED_LEN, is_dispatched
from rmqstore.formats.text.javatext import java_text
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.queues import QueueTable

_SCHEDULE = properties.SCHEDULE_TOPIC.encode()


class QueueNames:
    """What is known of the queues of a table: their names, and which of them are not dispatched like the rest.

    `names[i]` is (topic, queue id) of queue i; `schedule`, `batch`, `unsound` and `fillers` are numbers of queues.
    `is_sound` says of a topic's bytes and a queue id whether units of it can be; `batch_topics` have a BatchCQ.
    """

    def __init__(self, table: QueueTable, batch_topics: frozenset[str], is_sound: Callable[[bytes, int], bool]) -> None:
        self.names: list[tuple[str, int]] = []
        self.schedule: set[int] = set()
        self.batch: set[int] = set()
        self.unsound: set[int] = set()
        self.fillers: set[int] = set()
        self._table = table
        self._batch_topics = batch_topics
        self._is_sound = is_sound

    def learn(self) -> None:
        """Take in the queues that the table has met since the last call."""
        for i in range(len(self.names), len(self._table)):
            topic, queue_id = self._table.topics[i], self._table.queue_ids[i]
            name = java_text(topic)
            self.names.append((name, queue_id))
            if topic == _SCHEDULE:
                self.schedule.add(i)
            if topic in properties.FILLER_TOPICS:
                self.fillers.add(i)
            if name in self._batch_topics:
                self.batch.add(i)
            if not self._is_sound(topic, queue_id):
                self.unsound.add(i)


def record_properties(columns: Columns, i: int) -> Mapping[str, str]:
    """Return the parsed properties of record i."""
    return properties.parse_properties(columns.properties(i))


def owed_units(columns: Columns) -> Bool:
    """Which records get units at all: prepared and rollback ones do not.

    Shape: (n,)
    """
    return is_dispatched(columns.sys_flag)


def filler_offsets(columns: Columns, number: I64, queues: QueueNames, marked: Iterable[int]) -> list[int]:
    """Offsets of records that a repair put in place of damaged ones.

    `number`: of each record's queue; `marked`: records with the mark. Those that no queue gets have a topic of their
    own, and not always room for the mark.
    """
    found = set(marked)
    if queues.fillers:
        unseen = np.isin(number, list(queues.fillers)) & ~owed_units(columns)
        unseen &= columns.properties_length <= CRC32_RESERVED_LEN  # a client's message has an id
        found.update(np.flatnonzero(unseen).tolist())
    return [int(columns.offset[i]) for i in sorted(found)]


def put_deliver_times(
    columns: Columns, number: I64, schedule: set[int], tags: I64, levels: properties.DelayLevels
) -> None:
    """Records of the schedule topic (`schedule`: its queue numbers) have their deliver time in place of tags codes."""
    for i in np.flatnonzero(np.isin(number, list(schedule))).tolist():
        time = int(columns.store_timestamp[i])
        found = record_properties(columns, i)
        code = properties.dispatch_tags_code(properties.SCHEDULE_TOPIC, found, time, levels)
        tags[i] = code if code is not None else tags[i]


def light_queues(topic: str, queue_id: int, found: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """(queue name, queue id, queue offset) of every further queue that a message is fanned out to (LMQ)."""
    if properties.dispatches_to_lmq(topic):
        for queue, offset in properties.lmq_queues(found):
            yield queue, 0 if properties.is_lmq(queue) else queue_id, offset


def batch_extent(found: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """(base queue offset, messages) of a unit of a BatchCQ topic; a message that is not an inner batch counts one."""
    inner = properties.inner_batch(found)
    return inner if inner is not None else (queue_offset, 1)
