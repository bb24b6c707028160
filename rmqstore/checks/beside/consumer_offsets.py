"""The progress of consumer groups, from the broker's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.files.config import OFFSETS, Committed, committed_offsets, directory_of, loaded_config
from rmqstore.files.store import Store
from rmqstore.texts import Text


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group in a queue: `offset` is the queue offset that it consumes next."""

    group: str
    offset: int

    def has_consumed(self, queue_offset: int) -> bool:
        """Return whether the group is past a message; it may also have skipped it."""
        return self.offset > queue_offset


@dataclass(slots=True)
class ConsumerOffsets:
    """Progress of all groups: topic -> queue id -> group -> offset. `unreadable`: why it is unknown, or "".

    A broker reads one of consumerOffset.json, lmqConsumerOffset.json and RocksDB. If a store has several, the last in
    this order counts, because settings usually change in this order.
    """

    queues: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    unreadable: str = ""

    @classmethod
    def read(cls, store: Store) -> ConsumerOffsets:
        """Read the offsets of a store. Errors: none; see `unreadable`."""
        out = cls()
        if store.part is not None:
            out.unreadable = Text("a part of a store has no configuration")
            return out
        known = False
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            offsets = loaded_config(store.files, store.root, name, committed_offsets)
            known |= offsets is not None
            out._add(offsets or [])
        if (directory := directory_of(store, OFFSETS)) is not None:
            out._add_rocksdb(store, directory)
        elif not known:
            out.unreadable = Text("there is no readable consumerOffset.json")
        return out

    def of(self, topic: str, queue_id: int) -> list[QueueProgress]:
        """Return the groups of a queue by name; groups of the topic without an offset in this queue are at 0."""
        queues = self.queues.get(topic, {})
        own = queues.get(queue_id, {})
        names = sorted({group for groups in queues.values() for group in groups})
        return [QueueProgress(group, own.get(group, 0)) for group in names]

    def rows(self) -> Iterator[Committed]:
        """Yield all offsets."""
        for topic, queues in self.queues.items():
            for queue_id, groups in queues.items():
                for group, offset in groups.items():
                    yield Committed(topic, group, queue_id, offset)

    def _add(self, offsets: list[Committed]) -> None:
        for one in offsets:
            self.queues.setdefault(one.topic, {}).setdefault(one.queue_id, {})[one.group] = one.offset

    def _add_rocksdb(self, store: Store, directory: str) -> None:
        from rmqstore.files.rocksdb.database import CannotRead
        from rmqstore.files.rocksdb.rows import stored_table

        try:
            table = stored_table(store, directory, OFFSETS)
        except CannotRead as error:
            self.unreadable = Text("config/{directory} cannot be read: {error}", directory=directory, error=error)
            return
        offsets = committed_offsets(table.as_json)
        self._add(offsets or [])
        if table.broken or offsets is None:
            self.unreadable = Text("config/{directory} has values that no broker reads", directory=directory)
