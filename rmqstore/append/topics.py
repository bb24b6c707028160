"""config/topics.json of a store that gets new topics, because a broker serves only topics that are in it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from rmqstore.append.disk import replace_file
from rmqstore.errors import Refused
from rmqstore.files.config import config_object, readers_of
from rmqstore.files.files import LOCAL
from rmqstore.formats.configuration import JsonReader, JsonValue, build_config_json, topic_config
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.properties import is_lmq
from rmqstore.texts import Text


def read_topics(root: Path) -> dict[str, JsonValue] | None:
    """Return what a broker loads from topics.json or, without it, from its .bak; None if there is neither.

    Errors: Refused for a file that some broker cannot read: the topics in it would be lost.
    """
    for path in (root / "config" / "topics.json", root / "config" / "topics.json.bak"):
        if os.path.lexists(path):
            if len(readers_of(LOCAL, path)) < len(JsonReader):
                raise Refused(
                    Text("{path} cannot be read by every broker", path=path),
                    Text("repair it first: `rmqstore recover STORE`"),
                )
            return config_object(LOCAL, path) or {}
    return None


def add_topics(root: Path, queues: Collection[QueueName], batch_topics: frozenset[str]) -> None:
    """Add the missing topics of these queues (topic and id) to topics.json. Errors: Refused, NoSpace, NotReadable."""
    numbers: dict[str, int] = {}
    for topic, queue_id in queues:
        if not is_lmq(topic):
            numbers[topic] = max(numbers.get(topic, 0), queue_id + 1)
    table: Mapping[str, JsonValue] = {
        topic: topic_config(topic, count, batch=topic in batch_topics) for topic, count in numbers.items()
    }
    content = read_topics(root) or {}
    known = content.get("topicConfigTable") or {}
    assert isinstance(known, dict)  # otherwise a broker rejects the file, and `read_topics` refuses it
    if known and table.keys() <= known.keys():
        return
    version = content.setdefault("dataVersion", {"counter": 0, "stateVersion": 0, "timestamp": 0})
    counter = version.get("counter") if isinstance(version, dict) else None
    if isinstance(version, dict) and isinstance(counter, int):
        version["counter"] = counter + len(table.keys() - known.keys())
    content["topicConfigTable"] = {**table, **known}
    replace_file(root / "config" / "topics.json", build_config_json(content))
