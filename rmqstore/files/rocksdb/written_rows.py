"""Which queues a broker has in RocksDB.

`WrittenRows` says which ones it writes to a RocksDB beside its queue files (double write): all of them, or with
selective double write only the messages of topics with the attribute message.type=LITE. With
combineCQUseRocksdbForLmq, light queues (`%LMQ%…`) are in the RocksDB only. All other rows must equal the files.

A lite queue, `%LMQ%$PARENT$CHILD`, is deleted when it was not written for some time: its rows and its ends go, and its
messages stay in the log. The next message of that name has queue offset 0 again (`was_deleted`).

Source: CombineConsumeQueueStore#putMessagePositionInfoWrapper, #shouldDoubleWriteForTopic,
RocksDBConsumeQueueStore#dispatchLMQ, AbstractLiteLifecycleManager#deleteLmq (RocketMQ 5.5.1)
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.files.config import lite_topics
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import Store
from rmqstore.files.store_queues import DOUBLE_WRITE, SELECTIVE, has_database
from rmqstore.formats.properties import is_lite, is_lmq
from rmqstore.texts import Text

BEFORE_READING = Text(
    "before a broker reads it (storeType=defaultRocksDB, combineCQPreferCQType=defaultRocksDB), "
    "run `rmqstore rebuild STORE cq` with the extra rocksdb, which makes it from the log"
)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The rule of one store. `topics`: only messages of these topics are written to the RocksDB; None: of all topics.

    `light`: light queues are only in the RocksDB.
    """

    topics: frozenset[str] | None = None
    light: bool = False

    def equals_files(self, topic: str) -> bool:
        """Return whether the RocksDB must have the same units of a topic's queues as the files."""
        if is_lmq(topic):
            return not self.light and self.topics is None
        return self.topics is None or topic in self.topics

    def has(self, topic: str) -> bool:
        """Return whether the RocksDB must have the units of a topic's queues."""
        return self.equals_files(topic) or (self.light and is_lmq(topic))


def written_rows(store: Store) -> WrittenRows:
    """Return the rule of a store, by broker.conf, or else by topics.json and the queues in the RocksDB."""
    return WrittenRows(_selected(store), store.light_in_rocksdb) if store.rocksdb_beside else WrittenRows()


def _selected(store: Store) -> frozenset[str] | None:
    config = store.config
    if "storeType" in config.given or DOUBLE_WRITE in config.given:
        return lite_topics(store.files, store.root) if config.bool(SELECTIVE) else None
    lite = lite_topics(store.files, store.root)
    if not lite:
        return None
    try:
        found = {topic for topic, _ in RocksDBQueues(store).bounds() if not is_lmq(topic)}
    except CannotRead:
        return None
    return lite if found and found <= lite else None


def was_deleted(topic: str, last_at: int, dispatched: int | None) -> bool:
    """Return whether a queue that is not in a sound RocksDB was deleted on purpose.

    `last_at`: offset of its last message in the log. `dispatched`: end of the last message that was written to the
    RocksDB.
    """
    return is_lite(topic) and dispatched is not None and last_at < dispatched


def beside_words(store: Store) -> str:
    """Return the words that name the RocksDB beside queue files, which may not exist yet."""
    name = store.rocksdb_directory.name
    if not has_database(store.files, store.rocksdb_directory):
        return Text(
            "{name}/: a broker will create a RocksDB of the same queues beside the files (rocksdbCQDoubleWriteEnable)",
            name=name,
        )
    return Text("{name}/: a RocksDB of the same queues exists beside the files (rocksdbCQDoubleWriteEnable)", name=name)
