"""CFG-MAPPING: logical queues of static topics, compared with the queues that have their messages.

A queue that ends before the place where its logical queue continues, for example after a repair or a restore, gives new
messages logical offsets that an earlier queue had already given: consumers skip them, or read others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Report
from rmqstore.files.config import config_object
from rmqstore.files.store import Store
from rmqstore.formats.static_topics import LogicalQueue, logical_queues

FILE = "topicQueueMapping.json"


def check(store: Store, report: Report) -> None:
    """Compare every item with its neighbours, and those of this broker with its queues.

    Source: TopicQueueMappingUtils#checkLogicQueueMappingItemOffset, LogicQueueMappingItem (RocketMQ 5.5.1)
    """
    table = config_object(store.files, store.root / "config" / FILE)
    comparable = bool(report.queues) and not report.live and store.config.role != "slave"  # a slave lags behind
    for queue in logical_queues(table or {}):
        for facts in [*_within(queue), *(_against_queues(queue, report) if comparable else ())][:1]:
            about: dict[str, Fact] = {"topic": queue.topic, "logical_queue": queue.global_id, **facts}
            report.findings.add(Finding(codes.CFG_MAPPING, f"{queue.topic}/{queue.global_id}", FILE, facts=about))


def _within(queue: LogicalQueue) -> Iterator[dict[str, Fact]]:
    if not queue.items:
        yield {"reason": "value"}
    for one in queue.items:
        if one.start < 0 or 0 <= one.end < one.start:
            yield {"reason": "range", "generation": one.generation, "start": one.start, "stop": one.end}
    for one, two in pairwise(queue.items):
        decided = two.logic_offset >= 0 and one.logic_offset >= 0
        length = one.end - one.start if one.end >= 0 else 0
        if two.generation <= one.generation or (decided and two.logic_offset < one.logic_offset + length):
            yield {"reason": "order", "generation": two.generation, "logic_offset": two.logic_offset}


def _against_queues(queue: LogicalQueue, report: Report) -> Iterator[dict[str, Fact]]:
    for one in queue.items:
        state = report.queues.get(f"{queue.topic}/{one.queue_id}")
        end = max(state.max, state.expected_max) if state is not None else 0
        needed = one.end if one.end >= 0 else one.start
        if one.broker == queue.broker and end < needed:
            yield {"reason": "queue-ends", "queue_id": one.queue_id, "max": end, "mapped": needed}
