"""topicQueueMapping.json: which queue of which broker has the messages of a static topic's logical queue.

A logical queue is a list of items. Each has the logical offsets from `logic_offset` on, which are the physical offsets
from `start` up to `end` of a queue. The last item is the one that is written to.
Source: TopicQueueMappingDetail, LogicQueueMappingItem#computeStaticQueueOffsetStrictly (RocketMQ 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqstore.formats.configuration import JsonValue

TABLE = "topicQueueMappingInfoMap"


@dataclass(frozen=True, slots=True)
class MappingItem:
    """A part of a logical queue. Units: queue offsets; `end` and `logic_offset` are negative while undecided."""

    generation: int
    broker: str
    queue_id: int
    logic_offset: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogicalQueue:
    """A logical queue that the broker `broker` hosts; no `items`: its value has another form than a broker's."""

    topic: str
    broker: str
    global_id: str
    items: tuple[MappingItem, ...]


def logical_queues(table: Mapping[str, JsonValue]) -> Iterator[LogicalQueue]:
    """Yield the logical queues of topicQueueMapping.json."""
    topics = table.get(TABLE)
    for topic, detail in topics.items() if isinstance(topics, dict) else ():
        if not isinstance(detail, dict):
            continue
        broker, hosted = detail.get("bname"), detail.get("hostedQueues")
        for global_id, items in hosted.items() if isinstance(hosted, dict) else ():
            read = [_item(one) for one in items] if isinstance(items, list) else []
            whole = tuple(one for one in read if one is not None)
            name = broker if isinstance(broker, str) else ""
            yield LogicalQueue(topic, name, global_id, whole if len(whole) == len(read) else ())


def _item(value: JsonValue) -> MappingItem | None:
    if not isinstance(value, dict) or not isinstance(value.get("bname"), str):
        return None
    numbers = [value.get(name) for name in ("gen", "queueId", "logicOffset", "startOffset", "endOffset")]
    whole = [one for one in numbers if type(one) is int]
    if len(whole) < len(numbers):
        return None
    generation, queue_id, logic_offset, start, end = whole
    return MappingItem(generation, str(value["bname"]), queue_id, logic_offset, start, end)
