"""The broker's configuration: the JSON files of config/, the databases that replace them, and what they say of topics.

JSON files are loaded as a broker loads them, with the fallback to .bak. The databases, if RocksDB holds topics,
subscription groups and consumer offsets, are:

    config/topics/, subscriptionGroups/, consumerOffsets/   version 1: one database per table
    config/metadata/                                        version 1 with useSingleRocksDBForAllConfigs
    config/rdb/                                             version 2 (configManagerVersion=v2)

A topic uses a BatchCQ if its attribute `queue.type` says so: a broker decides by topics.json alone, and refuses to
start if a directory contradicts it (`configured_types`). rmqstore also takes a directory in batchconsumequeue/ as proof
(`batch_topics`).

Source: ConfigManager#load, #loadBak; ConsumerOffsetManager#decode, LmqConsumerOffsetManager#decode,
DelayOffsetSerializeWrapper, TopicConfigManager#decode, SubscriptionGroupManager#decode (RocketMQ 4.9.7 to 5.4.0; the
classes of 4.9.7, 5.1.4 and 5.4.0 were given files with values of wrong types); BrokerController#initializeMetadata,
RocksDBTopicConfigManager, ConfigStorage (5.5.1); QueueTypeUtils#getCQType, DefaultMessageStore#asyncPutMessage (5.4.0)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmqstore.files.files import Files
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.configuration import (
    ConfigJsonError,
    JsonReader,
    JsonValue,
    object_of,
    parse_config_object,
    parse_config_text,
)
from rmqstore.formats.text import many
from rmqstore.texts import Text

T = TypeVar("T")

TIER_METADATA = "tieredStoreMetadata.json"
LARGEST = 256 << 20
"""Length in bytes of the largest file that is read."""


class Committed(NamedTuple):
    """A committed offset: the queue offset that a consumer group reads next."""

    topic: str
    group: str
    queue_id: int
    offset: int


def config_bytes(files: Files, path: Path) -> bytes:
    """Read a file of config/; empty if it is unreadable or longer than `LARGEST`."""
    entry = files.examined(path)
    if entry is None or entry.length > LARGEST:
        return b""
    raw = files.read_at(path, LARGEST + 1, 0)
    return raw if len(raw) <= LARGEST else b""


def config_object(files: Files, path: Path) -> dict[str, JsonValue] | None:
    """Parse a JSON file of config/ that some broker reads; None if every broker would fall back to its .bak."""
    raw = config_bytes(files, path)
    try:
        table = parse_config_object(raw) if raw else None
    except ConfigJsonError:
        return None
    return None if table is None or wrong_type(path.name, table) else table


def readers_of(files: Files, path: Path) -> frozenset[JsonReader]:
    """Return the readers of the brokers that can parse a JSON file of config/."""
    try:
        text = parse_config_text(config_bytes(files, path))
        rejected = wrong_type(path.name, object_of(text.value))
    except ConfigJsonError:
        return frozenset()
    return frozenset() if rejected else frozenset(reader for reader in JsonReader if text.rejected_by(reader) is None)


def wrong_type(name: str, table: Mapping[str, JsonValue]) -> str:
    """Return the first value in a file of config/, or in its .bak, whose type a broker rejects; empty: there is none.

    A broker's JSON parser throws there, and the broker takes the .bak, as if the text were not JSON.
    """
    check = _CHECKS.get(name.removesuffix(".bak"))
    try:
        if check is not None:
            check(table)
    except _WrongType as error:
        return error.words
    return ""


def null_table(name: str, table: Mapping[str, JsonValue]) -> str:
    """Return the table in a file of config/, or its .bak, that is null and that a broker accepts; empty: none.

    The broker starts, and every request that needs the table ends with a NullPointerException: no group can query or
    commit an offset.
    """
    for section in _TAKEN_AS_NULL.get(name.removesuffix(".bak"), ()):
        if section in table and table[section] is None:
            return Text("{section} is null", section=section)
    return ""


def loaded_config(files: Files, root: Path, name: str, read: Callable[[dict[str, JsonValue]], T | None]) -> T | None:
    """Return what `read` gives for a file of config/ or, if that is None, for its .bak; None if both give None."""
    for path in (root / "config" / name, root / "config" / f"{name}.bak"):
        table = config_object(files, path)
        value = None if table is None else read(table)
        if value is not None:
            return value
    return None


def committed_offsets(table: Mapping[str, JsonValue]) -> list[Committed] | None:
    """List the offsets in consumerOffset.json or lmqConsumerOffset.json; None if a broker rejects one of the values.

    Light message queues have only queue 0.
    """
    try:
        return _committed(table)
    except _WrongType:
        return None


def delay_offsets(table: Mapping[str, JsonValue]) -> dict[int, int] | None:
    """Map each queue id of SCHEDULE_TOPIC_XXXX to the queue offset delivered next, from delayOffset.json.

    None if a value makes a broker reject the file.
    """
    try:
        return _delays(table)
    except _WrongType:
        return None


class TierQueue(NamedTuple):
    """What tiered storage has of a queue: the queue offsets from `min` on, before `max`."""

    topic: str
    queue_id: int
    min: int
    max: int


def tier_queues(table: Mapping[str, JsonValue]) -> list[TierQueue]:
    """List the queues in tieredStoreMetadata.json that have messages in the tier.

    Source: DefaultMetadataStore#decode, FlatMessageFile#flushMetadata (RocketMQ 5.4.0)
    """
    found = []
    topics = table.get("queueMetadataTable")
    for topic, queues in topics.items() if isinstance(topics, dict) else ():
        for queue_id, queue in queues.items() if isinstance(queues, dict) else ():
            low, high = (queue.get("minOffset"), queue.get("maxOffset")) if isinstance(queue, dict) else (None, None)
            if isinstance(low, int) and isinstance(high, int) and low < high and _INTEGER.fullmatch(queue_id):
                found.append(TierQueue(topic, int(queue_id), low, high))
    return found


def tier_words(files: Files, root: Path) -> str:
    """Say that messages which a store no longer has may be in tiered storage; "" for a store without one."""
    queues = loaded_config(files, root, TIER_METADATA, lambda table: tier_queues(table) or None)
    if queues is None:
        return ""
    return Text(
        "tiered storage has messages of {queues} (config/{name}): older ones that are not "
        "here may be there, which rmqstore does not read",
        queues=many(len(queues), "queue"),
        name=TIER_METADATA,
    )


class _WrongType(ValueError):
    """A broker's JSON parser throws at this value; `words` say which."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LONGEST = 20  # digits and sign of 64 bits
_INTEGERS = ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag", "retryQueueNums", "retryMaxTimes", "brokerId")
_BOOLEANS = ("order", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable")


def _committed(table: Mapping[str, JsonValue]) -> list[Committed]:
    rows: list[tuple[str, str, JsonValue]] = [
        (name, queue_id, offset)
        for name, offsets in _section(table, "offsetTable").items()
        for queue_id, offset in _object(offsets, name).items()
    ]
    rows += [(name, "0", offset) for name, offset in _section(table, "lmqOffsetTable").items()]
    return [
        Committed(
            name.partition("@")[0],
            name.partition("@")[2],
            _integer(queue_id, 32, Text("queue id of {name}", name=name)),
            _integer(offset, 64, Text("offset of {name}", name=name)),
        )
        for name, queue_id, offset in rows
    ]


def _delays(table: Mapping[str, JsonValue]) -> dict[int, int]:
    levels = _section(table, "offsetTable", nullable=False).items()
    return {
        _integer(level, 32, Text("delay level")) - 1: _integer(offset, 64, Text("offset of {level}", level=level))
        for level, offset in levels
    }


def _entries(table: Mapping[str, JsonValue], section: str, *, nullable: bool = False, versioned: bool = False) -> None:
    """A table of objects, of which the broker reads some fields as numbers."""
    if versioned and table.get("dataVersion", {}) is None:
        raise _WrongType(Text("dataVersion is null"))
    for name, entry in _section(table, section, nullable=nullable).items():
        fields = _object(entry, name)
        if "groupFilterData" in fields:
            _object(fields["groupFilterData"], Text("groupFilterData of {name}", name=name))
        for key in _INTEGERS:
            if fields.get(key) is not None:
                _integer(fields[key], 64 if key == "brokerId" else 32, Text("{key} of {name}", key=key, name=name))
        for key in _BOOLEANS:
            if not isinstance(fields.get(key), bool | int | None) and fields[key] not in ("true", "false"):
                raise _WrongType(Text("{key} of {name} is not a boolean", key=key, name=name))
        if fields.get("attributes") is not None:
            _object(fields["attributes"], Text("attributes of {name}", name=name))


def _mappings(table: Mapping[str, JsonValue]) -> None:
    if "topicQueueMappingInfoMap" not in table:
        raise _WrongType(Text("topicQueueMappingInfoMap is missing"))
    _entries(table, "topicQueueMappingInfoMap", versioned=True)


def _modes(table: Mapping[str, JsonValue]) -> None:
    for name, groups in _section(table, "messageRequestModeMap").items():
        _object(groups, name)


def _orders(table: Mapping[str, JsonValue]) -> None:
    for name, queues in _section(table, "table").items():
        for queue_id, entry in _object(queues, name).items():
            _integer(queue_id, 32, Text("queue id of {name}", name=name))
            _object(entry, f"{name}/{queue_id}")


_CHECKS: Mapping[str, Callable[[Mapping[str, JsonValue]], object]] = {
    "consumerOffset.json": _committed,
    "lmqConsumerOffset.json": _committed,
    "delayOffset.json": _delays,
    "topics.json": lambda table: _entries(table, "topicConfigTable", versioned=True),
    "subscriptionGroup.json": lambda table: _entries(table, "subscriptionGroupTable"),
    "topicQueueMapping.json": _mappings,
    "consumerFilter.json": lambda table: _entries(table, "filterDataByTopic", nullable=True),
    "consumerOrderInfo.json": _orders,
    "messageRequestMode.json": _modes,
    "timermetrics": lambda table: _entries(table, "timingCount", versioned=True),
}
_TAKEN_AS_NULL: Mapping[str, tuple[str, ...]] = {
    "consumerOffset.json": ("offsetTable",),
    "lmqConsumerOffset.json": ("offsetTable", "lmqOffsetTable"),
    "consumerOrderInfo.json": ("table",),
    "messageRequestMode.json": ("messageRequestModeMap",),
}


def _section(table: Mapping[str, JsonValue], name: str, *, nullable: bool = True) -> dict[str, JsonValue]:
    value = table.get(name)
    if name in table and value is None and not nullable:
        raise _WrongType(Text("{name} is null", name=name))
    return {} if value is None else _object(value, name)


def _object(value: JsonValue, name: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise _WrongType(Text("{name} is not an object", name=name))
    return value


def _integer(value: JsonValue, bits: int, what: str) -> int:
    """Convert like fastjson, which also accepts a quoted number, truncates a fraction and takes true as 1."""
    if isinstance(value, str):
        number = int(value) if len(value) <= _LONGEST and _INTEGER.fullmatch(value) else None
    else:
        number = int(value) if isinstance(value, int | float) else None
    if number is None:
        raise _WrongType(Text("{what} is not a number", what=what))
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise _WrongType(Text("{what} does not fit into {bits} bits", what=what, bits=bits))
    return number


def integer_or(value: JsonValue, default: int) -> int:
    """Return a number of 32 bits as a broker reads it; the default for null, a missing value, or what it rejects."""
    try:
        return default if value is None else _integer(value, 32, "")
    except _WrongType:
        return default


TOPICS, GROUPS, OFFSETS = "topics", "subscriptionGroups", "consumerOffsets"
TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", OFFSETS: "offsetTable"}
"""Table → its name in the corresponding JSON file."""
METADATA, V2 = "metadata", "rdb"
CONFIG_DATABASES = (*TABLES, METADATA, V2)
"""Names of the databases in config/, in the order in which brokers took to them."""
WITHOUT_POSITIONS = frozenset({"users", "acls"})
"""Databases in config/ that contain no position in a log or queue (LocalAuthenticationMetadataProvider)."""


@dataclass(slots=True)
class StoredTable:
    """A table in the form of its JSON file. `broken`: the number of rows that are not in the format of the table."""

    directory: str
    """Name of the database in config/."""
    table: str
    rows: dict[str, JsonValue] = field(default_factory=dict)
    broken: int = 0

    @property
    def as_json(self) -> dict[str, JsonValue]:
        return {TABLES[self.table]: self.rows}


def tables_in(directory: str) -> tuple[str, ...]:
    """Return the tables in a database in config/; empty for a database of another kind."""
    if directory in (METADATA, V2):
        return tuple(TABLES)
    return (directory,) if directory in TABLES else ()


def directory_of(store: Store, table: str) -> str | None:
    """Return the database in config/ that a broker reads a table from; None if it is in no RocksDB.

    If a store has several, broker.conf decides; without it, the newest form: settings usually change in this order.
    """
    found = [name for name in CONFIG_DATABASES if name in store.rocksdb_config and table in tables_in(name)]
    given = store.config.given
    wanted = found
    if "configManagerVersion" in given:
        is_v2 = given["configManagerVersion"].strip() == "v2"
        wanted = [name for name in wanted if (name == V2) == is_v2]
    if "useSingleRocksDBForAllConfigs" in given:
        single = store.config.bool("useSingleRocksDBForAllConfigs")
        wanted = [name for name in wanted if name == V2 or (name == METADATA) == single]
    usable = wanted or found
    return usable[-1] if usable else None


BATCH_CQ, SIMPLE_CQ = "BatchCQ", "SimpleCQ"


def configured_types(files: Files, root: Path) -> dict[str, str] | None:
    """Return `queue.type` of every topic that a broker loads from `root`; None without a usable topics.json or .bak."""
    topics = _topics(files, root)
    return None if topics is None else _types(topics)


def _topics(files: Files, root: Path) -> dict[str, JsonValue] | None:
    """Return the table of topics that a broker loads from `root`; None without a usable topics.json or .bak."""
    return loaded_config(files, root, "topics.json", lambda table: _topics_in(table) or {})


def _topics_in(table: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    topics = table.get("topicConfigTable")
    return topics if isinstance(topics, dict) else None


def types_of(table: Mapping[str, JsonValue] | None) -> dict[str, str] | None:
    """Return `queue.type` of every topic in the parsed topics.json; None if it has no table of topics."""
    topics = _topics_in(table) if table is not None else None
    return None if topics is None else _types(topics)


def _types(topics: Mapping[str, JsonValue]) -> dict[str, str]:
    kinds = {topic: _attribute(config, "queue.type") for topic, config in topics.items()}
    return {topic: kind if isinstance(kind, str) else SIMPLE_CQ for topic, kind in kinds.items()}


def _attribute(config: JsonValue, name: str) -> JsonValue:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return attributes.get(name) if isinstance(attributes, dict) else None


def queue_numbers(files: Files, root: Path) -> dict[str, int] | None:
    """Return the number of queues of every topic that a broker loads from `root`; None without a usable topics.json.

    Source: TopicConfig#writeQueueNums, #readQueueNums (RocketMQ 5.4.0)
    """
    topics, keys = _topics(files, root), ("writeQueueNums", "readQueueNums")
    if topics is None:
        return None
    return {
        topic: max((n for key in keys if isinstance(n := config.get(key), int)), default=0)
        for topic, config in topics.items()
        if isinstance(config, dict)
    }


def lite_topics(files: Files, root: Path) -> frozenset[str]:
    """Return the topics with lite queues that a broker loads from `root` (attribute message.type=LITE, 5.5.0).

    Source: TopicConfig#getTopicMessageType (RocketMQ 5.5.1)
    """
    topics = _topics(files, root) or {}
    return frozenset(topic for topic, config in topics.items() if _attribute(config, "message.type") == "LITE")


def topics_with_attributes(files: Files, root: Path) -> int:
    """Return the number of topics with attributes other than `queue.type`, such as a message type or a clean-up policy.

    A broker before 5.0.0 ignores them, and leaves them out when it writes topics.json.
    Source: TopicConfig#attributes (RocketMQ 5.1.4), which 4.9.7 does not have
    """
    configs = (_topics(files, root) or {}).values()
    attributes = (config.get("attributes") for config in configs if isinstance(config, dict))
    return sum(isinstance(one, dict) and bool(one.keys() - {"queue.type"}) for one in attributes)


def only_in_backup(files: Files, root: Path) -> bool:
    """Return whether a broker loads topics.json.bak from `root`, which may lack topics that were created later."""
    paths = (root / "config" / name for name in ("topics.json", "topics.json.bak"))
    now, before = (types_of(config_object(files, path)) for path in paths)
    return not now and before is not None


def batch_topics(store: Store, types: Mapping[str, str] | None) -> frozenset[str]:
    """Return the topics that use a BatchCQ, by configuration or directory; `types` is `queue.type` by topic."""
    configured = {topic for topic, kind in (types or {}).items() if kind == BATCH_CQ}
    return frozenset(configured | {topic for topic, _, _ in store.queue_directories(QueueKind.BATCH)})


def topics_of_known_kind(store: Store, types: Mapping[str, str] | None) -> frozenset[str]:
    """Return the topics whose queue type is known from configuration or directories."""
    simple = {topic for topic, _, _ in store.queue_directories(QueueKind.SIMPLE)}
    return batch_topics(store, types) | frozenset(types or {}) | simple
