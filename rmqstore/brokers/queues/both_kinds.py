"""Compares queues in files with the same queues in RocksDB, as a broker that writes both does when it starts.

Source: CombineConsumeQueueStore#start, #verifyAndInitOffsetForAllStore (RocketMQ 5.3.4 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.brokers.queues.dispatch import Queues
from rmqstore.brokers.rules.forecast import QueueKey
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.rocksdb.queues import Bound
from rmqstore.files.store_queues import ASSIGNING, PREFERRED, chooses_rocksdb
from rmqstore.formats.properties import is_lmq

Rows = Mapping[QueueKey, Bound]
"""The last row of each queue."""


def queue_that_differs(
    queues: Queues, rows: Rows, config: BrokerConfig, *, begin: int, end: int, light_in_rocksdb: bool
) -> QueueKey | None:
    """Return the first queue whose ends differ, if the broker then does not start; None if it starts.

    Only a broker that reads one kind and assigns offsets with the other refuses: queues of the other kind that are
    empty get the end of the first. Messages at `begin` and after it were dispatched again, to both kinds. `end`: of
    the log; recovery cuts the rows after it, except those of a queue that has no row before it (an error of
    RocksDBConsumeQueueOffsetTable#correctMaxCqOffset, confirmed with 5.5.1).
    """
    reads, assigns = (chooses_rocksdb(config, key) for key in (PREFERRED, ASSIGNING))
    if reads == assigns:
        return None
    for key in sorted(queues.table):
        queue, last = queues.table[key], rows.get(key)
        if light_in_rocksdb and is_lmq(key[0]):
            continue
        if last is None:
            continue
        ends = (queue.ends[1], last.queue_offset + 1)
        if last.commitlog_offset >= end and ends[0] > 0:  # cut to the same message
            continue
        if begin <= max(queue.max_physic_offset, last.commitlog_offset) < end:
            continue
        if ends[0] != ends[1] and ends[0 if assigns else 1] > 0:
            return key
    return None
