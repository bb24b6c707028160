"""Which light message queues get a message, by the rules of each version."""

from __future__ import annotations

import pytest

from rmqstore.brokers.rules import rules_for
from rmqstore.formats.services import batch_extent, light_queues

FOUND = {"INNER_MULTI_DISPATCH": "%LMQ%a,b,c/d", "INNER_MULTI_QUEUE_OFFSET": "7,8,9"}


@pytest.mark.parametrize(
    ("version", "own_topics_with_light_queues"),
    [
        ("4.9.7", {"%RETRY%g", "rmq_sys_wheel_timer", "rmq_sys_TRACE", "SCHEDULE_TOPIC_XXXX"}),
        ("5.1.1", {"rmq_sys_wheel_timer", "rmq_sys_TRACE", "SCHEDULE_TOPIC_XXXX"}),
        ("5.1.4", {"rmq_sys_TRACE"}),
        ("5.2.0", set()),
        ("5.5.1", set()),
    ],
)
def test_versions_exclude_different_topics(version: str, own_topics_with_light_queues: set[str]) -> None:
    """ConsumeQueue#checkMultiDispatchQueue, MultiDispatchUtils#isNeedHandleMultiDispatch of these versions."""
    topics = {"%RETRY%g", "rmq_sys_wheel_timer", "rmq_sys_TRACE", "SCHEDULE_TOPIC_XXXX"}
    rules = rules_for(version).fan_out
    assert {topic for topic in topics if list(light_queues(topic, 1, FOUND, rules))} == own_topics_with_light_queues
    assert list(light_queues("T", 1, FOUND, rules))


def test_queue_ids_and_names() -> None:
    old = rules_for("4.9.7").fan_out
    assert list(light_queues("T", 3, FOUND)) == [("%LMQ%a", 0, 7), ("b", 3, 8)]
    assert list(light_queues("T", 3, FOUND, old)) == [("%LMQ%a", 0, 7), ("b", 3, 8), ("c/d", 3, 9)]
    assert list(light_queues("T", 3, FOUND, lmq=False)) == [("%LMQ%a", 3, 7), ("b", 3, 8)]


def test_dispatch_ends_at_a_queue_offset_that_is_not_a_number() -> None:
    found = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,%LMQ%c", "INNER_MULTI_QUEUE_OFFSET": "7, 8,9"}
    assert list(light_queues("T", 0, found)) == [("%LMQ%a", 0, 7)]


def test_batch_extent() -> None:
    assert batch_extent({"INNER_BASE": "5", "INNER_NUM": "3"}, 9) == (5, 3)
    assert batch_extent({"INNER_BASE": "x", "INNER_NUM": "3"}, 9) == (9, 1)
