"""How far consumers and delay levels have read each queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.files.config import delay_offsets, loaded_config
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.properties import SCHEDULE_TOPIC

_OWN_GROUPS = frozenset({"CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP"})


class ConsumerProgress:
    """Consumer offsets and delay offsets of a store; `unreadable` is the reason if they cannot be read."""

    def __init__(self, store: Store) -> None:
        self._offsets = ConsumerOffsets.read(store)
        self.unreadable = self._offsets.unreadable
        self._delays = loaded_config(store.files, store.root, "delayOffset.json", delay_offsets) or {}

    def names(self) -> Iterator[QueueName]:
        """Yield topic and queue id of every queue from which a group or a delay level has consumed."""
        yield from ((row.topic, row.queue_id) for row in self._offsets.rows())
        yield from ((SCHEDULE_TOPIC, queue_id) for queue_id in self._delays)

    def groups(self, places: Iterable[tuple[str, int, int]], count: int = 1) -> tuple[str, ...]:
        """Return the groups that have not consumed `count` messages yet, from any of these queue offsets on."""
        groups = {
            one.group
            for topic, queue_id, offset in places
            for one in self._offsets.of(topic, queue_id)
            if one.offset < offset + count
        }
        return tuple(sorted(groups - _OWN_GROUPS))

    def furthest(self, topic: str, queue_id: int) -> int:
        """Return the largest consumer offset of any group or delay level, as a queue offset; 0 if no group is known."""
        delayed = self._delays.get(queue_id, 0) if topic == SCHEDULE_TOPIC else 0
        return max((one.offset for one in self._offsets.of(topic, queue_id)), default=0) or delayed
