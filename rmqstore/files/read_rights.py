"""What a broker's configuration lets consumers read: topics with their permission and queues, and groups.

A broker answers each pull in this order: `subscription group no permission` (consumeEnable of the group), `topic …
not exist`, `the topic … pulling message is forbidden` (perm), `queueId … is illegal` (readQueueNums). POP does the
same, and pops only from queues before readQueueNums. Light queues have no entry in topics.json.

Source: PullMessageProcessor#processRequest, PopMessageProcessor#processRequest, PermName#isReadable, TopicConfig,
SubscriptionGroupConfig (RocketMQ 4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rmqstore.files.config import GROUPS, TABLES, TOPICS, V2, directory_of, integer_or, loaded_config
from rmqstore.files.store import Store
from rmqstore.formats.configuration import JsonValue
from rmqstore.formats.properties import is_dlq_topic, is_lmq, is_retry_topic, is_system_topic

_READ = 4  # PermName.PERM_READ
_DEFAULT_PERM, _DEFAULT_QUEUES = 6, 16  # of TopicConfig
_FILES = {TOPICS: "topics.json", GROUPS: "subscriptionGroup.json"}


class Refusal(StrEnum):
    """Why a broker gives no consumer the messages of a queue."""

    NO_TOPIC = "topic-unknown"
    NO_PERMISSION = "topic-not-readable"
    NO_QUEUE = "queue-not-readable"


@dataclass(frozen=True, slots=True)
class TopicRights:
    """`perm` and `readQueueNums` of a topic."""

    perm: int
    read_queues: int


@dataclass(frozen=True, slots=True)
class ReadRights:
    """What consumers may read. `topics`: None if the table of topics is unknown, or is another broker's (of a slave).

    `disabled`: the groups with consumeEnable=false. `all_topics`: other topics do not exist; version 2 of the
    configuration in RocksDB does not store topics that a producer made, and a running broker knows them.
    """

    topics: Mapping[str, TopicRights] | None = None
    disabled: frozenset[str] = frozenset()
    all_topics: bool = True

    @classmethod
    def read(cls, store: Store) -> ReadRights:
        """Read the tables that a broker would load. Errors: none; a table that cannot be read is unknown."""
        if store.part is not None or store.config.role == "slave":
            return cls()
        topics, groups = config_rows(store, TOPICS), config_rows(store, GROUPS)
        rights = None
        if topics is not None:
            rights = {name: _rights(config) for name, config in topics.items() if isinstance(config, dict)}
        disabled = (name for name, group in (groups or {}).items() if isinstance(group, dict) and _is_disabled(group))
        return cls(rights, frozenset(disabled), directory_of(store, TOPICS) != V2)

    def refusal(self, topic: str, queue_id: int) -> Refusal | None:
        """Return why no consumer gets messages of a queue; None if it may, or if no client reads such a topic.

        The topic of a group's retries is created again as soon as the group connects; dead letters are read by tools.
        """
        if self.topics is None or is_system_topic(topic) or is_lmq(topic) or is_dlq_topic(topic):
            return None
        rights = self.topics.get(topic)
        if rights is None:
            return Refusal.NO_TOPIC if self.all_topics and not is_retry_topic(topic) else None
        if not rights.perm & _READ:
            return Refusal.NO_PERMISSION
        return Refusal.NO_QUEUE if queue_id >= rights.read_queues else None


def _rights(config: Mapping[str, JsonValue]) -> TopicRights:
    perm = integer_or(config.get("perm"), _DEFAULT_PERM)
    return TopicRights(perm, integer_or(config.get("readQueueNums"), _DEFAULT_QUEUES))


def _is_disabled(group: Mapping[str, JsonValue]) -> bool:
    return group.get("consumeEnable") in (False, "false")  # 0 == False


def config_rows(store: Store, table: str) -> Mapping[str, JsonValue] | None:
    """Return a table as the broker loads it; None if it is missing or cannot be read."""
    directory = directory_of(store, table)
    if directory is None:
        return loaded_config(store.files, store.root, _FILES[table], lambda found: _section(found, table))
    from rmqstore.files.rocksdb.database import CannotRead
    from rmqstore.files.rocksdb.rows import stored_table

    try:
        return stored_table(store, directory, table).rows
    except CannotRead:
        return None


def _section(found: Mapping[str, JsonValue], table: str) -> dict[str, JsonValue] | None:
    rows = found.get(TABLES[table])
    return rows if isinstance(rows, dict) else None
