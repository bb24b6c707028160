"""Which topics have a BatchCQ: by their attributes in topics.json, by their directories, by their messages.

A broker goes by the attribute `queue.type` alone, and refuses to start where a directory contradicts it
(`configured_types`). What a store's messages should have units in is known better: a directory proves it, and so does
a record of an inner batch, which a broker accepts for no other topic (`batch_topics`).
Source: QueueTypeUtils#getCQType, ConfigManager#load, DefaultMessageStore#asyncPutMessage (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.files.disk.reading import read_at
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object

BATCH_CQ, SIMPLE_CQ = "BatchCQ", "SimpleCQ"
_MOST = 64 << 20


def configured_types(root: Path) -> dict[str, str] | None:
    """`queue.type` of every topic that a start from `root` loads; None where neither topics.json nor its .bak is."""
    for name in ("topics.json", "topics.json.bak"):
        table = read_config_object(root / "config" / name)
        if table is not None:
            return types_of(table) or {}
    return None


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


def read_config_object(path: Path) -> dict[str, JsonValue] | None:
    """A JSON file of config/ as a broker loads it; None where it would take the .bak."""
    raw = read_config_bytes(path)
    if not raw:
        return None
    try:
        return parse_config_object(raw)
    except ConfigJsonError:
        return None


def read_config_bytes(path: Path) -> bytes:
    """The bytes of a file of config/; empty where it cannot be read, or is longer than any broker's."""
    try:
        return b"" if path.stat().st_size > _MOST else read_at(path, _MOST, 0)
    except OSError:
        return b""


def batch_topics(store: Store, types: Mapping[str, str] | None) -> frozenset[str]:
    """Topics whose messages belong into a BatchCQ; `types` is `queue.type` by topic, None where nothing says it."""
    said = {topic for topic, kind in (types or {}).items() if kind == BATCH_CQ}
    return frozenset(said | {topic for topic, _, _ in store.queue_directories(QueueKind.BATCH)})


def topics_of_known_kind(store: Store, types: Mapping[str, str] | None) -> frozenset[str]:
    """Topics whose kind of queue is known without their messages."""
    simple = {topic for topic, _, _ in store.queue_directories(QueueKind.SIMPLE)}
    return batch_topics(store, types) | frozenset(types or {}) | simple
