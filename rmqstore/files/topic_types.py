"""Which topics have a BatchCQ: by their attributes in topics.json, by their directories, by their messages.

A broker goes by the attribute `queue.type` alone, and refuses to start where a directory contradicts it
(`configured_types`). What a store's messages should have units in is known better: a directory proves it, and so does
a record of an inner batch, which a broker accepts for no other topic (`batch_topics`).
Source: QueueTypeUtils#getCQType, ConfigManager#load, DefaultMessageStore#asyncPutMessage (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.files.config_files import loaded_config
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.configjson import JsonValue

BATCH_CQ, SIMPLE_CQ = "BatchCQ", "SimpleCQ"


def configured_types(root: Path) -> dict[str, str] | None:
    """`queue.type` of every topic that a start from `root` loads; None where neither topics.json nor its .bak is."""
    return loaded_config(root, "topics.json", lambda table: types_of(table) or {})


def types_of(table: Mapping[str, JsonValue] | None) -> dict[str, str] | None:
    """`queue.type` of every topic in the content of topics.json; None where it has no table of topics."""
    topics = table.get("topicConfigTable") if table is not None else None
    if not isinstance(topics, dict):
        return None
    return {topic: _type_of(config) for topic, config in topics.items()}


def _type_of(config: JsonValue) -> str:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    kind = attributes.get("queue.type") if isinstance(attributes, dict) else None
    return kind if isinstance(kind, str) else SIMPLE_CQ


def batch_topics(store: Store, types: Mapping[str, str] | None) -> frozenset[str]:
    """Topics whose messages belong into a BatchCQ; `types` is `queue.type` by topic, None where nothing says it."""
    said = {topic for topic, kind in (types or {}).items() if kind == BATCH_CQ}
    return frozenset(said | {topic for topic, _, _ in store.queue_directories(QueueKind.BATCH)})


def topics_of_known_kind(store: Store, types: Mapping[str, str] | None) -> frozenset[str]:
    """Topics whose kind of queue is known without their messages."""
    simple = {topic for topic, _, _ in store.queue_directories(QueueKind.SIMPLE)}
    return batch_topics(store, types) | frozenset(types or {}) | simple
