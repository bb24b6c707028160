"""Who consumes a store: the progress of consumer groups, as the broker's configuration says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.files.config_files import Committed, committed_offsets, loaded_config
from rmqstore.files.rocksdb.config import config_table
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store

_ROCKSDB = "consumerOffsets"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in a queue: `offset` is the queue offset that it consumes next."""

    group: str
    offset: int

    def has_consumed(self, queue_offset: int) -> bool:
        """Whether the group is past a message. A group that skipped it counts as well: offsets do not tell."""
        return self.offset > queue_offset


@dataclass(slots=True)
class ConsumerOffsets:
    """Progress of all groups: topic -> queue id -> group -> offset. `unreadable` says why it is not known, or is "".

    A broker reads one of consumerOffset.json, lmqConsumerOffset.json and RocksDB. Where a store has several, the later
    in this order counts: that is the way that settings change.
    """

    queues: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    unreadable: str = ""

    @classmethod
    def read(cls, store: Store) -> ConsumerOffsets:
        """Errors: none; see `unreadable`."""
        out = cls()
        if store.part is not None:
            out.unreadable = "a part of a store has no configuration"
            return out
        known = False
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            offsets = loaded_config(store.root, name, committed_offsets)
            known |= offsets is not None
            out._take(offsets or [])
        if _ROCKSDB in store.rocksdb_config:
            out._take_rocksdb(store)
        elif not known:
            out.unreadable = "there is no readable consumerOffset.json"
        return out

    def of(self, topic: str, queue_id: int) -> list[Progress]:
        """The groups of a queue, by name. Groups of the topic that have no offset in this queue count as at 0."""
        queues = self.queues.get(topic, {})
        own = queues.get(queue_id, {})
        names = sorted({group for groups in queues.values() for group in groups})
        return [Progress(group, own.get(group, 0)) for group in names]

    def rows(self) -> Iterator[Committed]:
        """All offsets, as they were read."""
        for topic, queues in self.queues.items():
            for queue_id, groups in queues.items():
                for group, offset in groups.items():
                    yield Committed(topic, group, queue_id, offset)

    def _take(self, offsets: list[Committed]) -> None:
        for one in offsets:
            self.queues.setdefault(one.topic, {}).setdefault(one.queue_id, {})[one.group] = one.offset

    def _take_rocksdb(self, store: Store) -> None:
        try:
            table, broken = config_table(store.root, _ROCKSDB)
        except CannotRead as error:
            self.unreadable = f"config/{_ROCKSDB} cannot be read: {error}"
            return
        offsets = committed_offsets(table)
        self._take(offsets or [])
        if broken or offsets is None:
            self.unreadable = f"config/{_ROCKSDB} has values that no broker reads"
