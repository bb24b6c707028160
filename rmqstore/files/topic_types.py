"""Determine which topics use a BatchCQ.

A broker decides by the attribute `queue.type` in topics.json alone, and refuses to start if a directory contradicts it
(`configured_types`). rmqstore also takes a directory in batchconsumequeue/ as proof (`batch_topics`).
Source: QueueTypeUtils#getCQType, ConfigManager#load, DefaultMessageStore#asyncPutMessage (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.files.config_files import config_object, loaded_config
from rmqstore.files.disk.files import Files
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.configuration import JsonValue

BATCH_CQ, SIMPLE_CQ = "BatchCQ", "SimpleCQ"


def configured_types(files: Files, root: Path) -> dict[str, str] | None:
    """Return `queue.type` of every topic that a broker loads from `root`; None without a usable topics.json or .bak."""
    return loaded_config(files, root, "topics.json", lambda table: types_of(table) or {})


def types_of(table: Mapping[str, JsonValue] | None) -> dict[str, str] | None:
    """Return `queue.type` of every topic in the parsed topics.json; None if it has no table of topics."""
    topics = table.get("topicConfigTable") if table is not None else None
    if not isinstance(topics, dict):
        return None
    return {topic: _type_of(config) for topic, config in topics.items()}


def _type_of(config: JsonValue) -> str:
    kind = _attribute(config, "queue.type")
    return kind if isinstance(kind, str) else SIMPLE_CQ


def _attribute(config: JsonValue, name: str) -> JsonValue:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return attributes.get(name) if isinstance(attributes, dict) else None


def queue_numbers(files: Files, root: Path) -> dict[str, int] | None:
    """Return the number of queues of every topic that a broker loads from `root`; None without a usable topics.json.

    Source: TopicConfig#writeQueueNums, #readQueueNums (RocketMQ 5.4.0)
    """
    return loaded_config(files, root, "topics.json", _queue_numbers)


def _queue_numbers(table: Mapping[str, JsonValue]) -> dict[str, int]:
    topics = table.get("topicConfigTable")
    rows = topics.items() if isinstance(topics, dict) else ()
    keys = ("writeQueueNums", "readQueueNums")
    return {
        topic: max((n for key in keys if isinstance(n := config.get(key), int)), default=0)
        for topic, config in rows
        if isinstance(config, dict)
    }


def lite_topics(files: Files, root: Path) -> frozenset[str]:
    """Return the topics with lite queues that a broker loads from `root` (attribute message.type=LITE, 5.5.0).

    Source: TopicConfig#getTopicMessageType (RocketMQ 5.5.1)
    """
    found = loaded_config(files, root, "topics.json", _lite_topics)
    return found if found is not None else frozenset()


def _lite_topics(table: Mapping[str, JsonValue]) -> frozenset[str]:
    topics = table.get("topicConfigTable")
    rows = topics.items() if isinstance(topics, dict) else ()
    return frozenset(topic for topic, config in rows if _attribute(config, "message.type") == "LITE")


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
