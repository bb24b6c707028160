"""The topics and queues that a store has."""

from __future__ import annotations

import contextlib

from rmqstore.files.config import configured_types
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName


def topics(store: Store) -> frozenset[str]:
    """Return every topic that has a consume queue (files or RocksDB) or is in topics.json."""
    out = topics_of_queues(store) | (configured_types(store.files, store.root) or {}).keys()
    if store.rocksdb_consume_queue or store.light_in_rocksdb:
        from rmqstore.files.rocksdb.database import CannotRead
        from rmqstore.files.rocksdb.queues import RocksDBQueues

        with contextlib.suppress(CannotRead):
            out |= {topic for topic, _ in RocksDBQueues(store).names() if store.reads_rows(topic)}
    return out


def queue_names(store: Store) -> frozenset[QueueName]:
    """Return topic and id of every consume queue (files, BatchCQ files or RocksDB). Errors: CannotRead."""
    names = store.names_in_files()
    if store.rocksdb_consume_queue:
        from rmqstore.files.rocksdb.queues import RocksDBQueues

        names.update(RocksDBQueues(store).names())
    return frozenset(names)


def topics_of_queues(store: Store) -> frozenset[str]:
    """Return every topic that has consume queue files."""
    return frozenset(topic for topic, _ in store.names_in_files())
