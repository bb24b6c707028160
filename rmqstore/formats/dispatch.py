"""What dispatch makes of one message: its place in a BatchCQ topic, and the light message queues that get it too.

The versions differ in the light queues only; `FanOut` has their rules.
Source: ConsumeQueue#putMessagePositionInfoWrapper, #multiDispatchLmqQueue, MultiDispatchUtils,
CommitLog#checkMessageAndReturnSize (RocketMQ 4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqstore.formats import properties


@dataclass(frozen=True, slots=True)
class FanOut:
    """Which messages a broker version puts into light message queues too, if `enableMultiDispatch` is on.

    `topics` and the `prefixes` of topics are excluded. `skips_paths`: a queue whose name contains "/" gets no unit.
    """

    topics: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    skips_paths: bool = False

    def includes(self, topic: str) -> bool:
        """Return whether messages of a topic can have light queues."""
        return topic not in self.topics and not topic.startswith(self.prefixes)


NEWEST = FanOut(
    frozenset({properties.SCHEDULE_TOPIC}), (properties.RETRY_PREFIX, properties.SYSTEM_TOPIC_PREFIX), skips_paths=True
)
"""The rules of 5.2.0 and newer."""


def light_queues(
    topic: str, queue_id: int, found: Mapping[str, str], rules: FanOut = NEWEST, *, lmq: bool = True
) -> Iterator[tuple[str, int, int]]:
    """Yield (queue name, queue id, queue offset) of each light queue that gets a message with these properties.

    Stops at a queue offset that is not a number, at which a broker throws. `lmq`: enableLmq, with which light queues
    have the queue id 0.
    """
    if not rules.includes(topic):
        return
    for name, offset in properties.lmq_queues(found):
        if not (rules.skips_paths and "/" in name):
            yield name, 0 if lmq and properties.is_lmq(name) else queue_id, offset


def batch_extent(found: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return (base queue offset, number of messages) of a record in a BatchCQ topic; 1 message if no inner batch."""
    inner = properties.inner_batch(found)
    return inner if inner is not None else (queue_offset, 1)


def is_sound_topic(topic: bytes) -> bool:
    """Return whether topic bytes are text that a broker would have accepted."""
    if not topic:
        return False
    try:
        topic.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(c >= 0x20 for c in topic)
