"""The configuration files that decide whether and how a broker starts.

Source: ConfigManager#load, #loadBak; ScheduleMessageService#load; BrokerController#initialize (RocketMQ 4.3.0 to
5.4.0). By source: these run in the broker, not in its store, except for delayOffset.json up to 4.9.8.
"""

from __future__ import annotations

import re
from pathlib import Path

from rmqstore.brokers.load.mapped_files import Obstacle
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import read_at
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object

_NAMES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json")
_MOST = 64 << 20
_LEVEL = re.compile(r"[+-]?[0-9]+[smhd]\Z")


def batch_topics(root: Path) -> frozenset[str]:
    """Topics whose attribute queue.type is BatchCQ, from topics.json or its .bak."""
    for name in ("topics.json", "topics.json.bak"):
        table = _object(root / "config" / name)
        if table is None:
            continue
        topics = table.get("topicConfigTable")
        if not isinstance(topics, dict):
            return frozenset()
        return frozenset(topic for topic, config in topics.items() if _is_batch(config))
    return frozenset()


def topic_names(root: Path) -> frozenset[str] | None:
    """Topics of topics.json or its .bak; None where neither can be read."""
    for name in ("topics.json", "topics.json.bak"):
        table = (_object(root / "config" / name) or {}).get("topicConfigTable")
        if isinstance(table, dict):
            return frozenset(table)
    return None


def _is_batch(config: JsonValue) -> bool:
    if not isinstance(config, dict):
        return False
    attributes = config.get("attributes")
    return isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ"


def unreadable_config(root: Path, config: BrokerConfig) -> Obstacle | None:
    """The first file that cannot be read together with its .bak: initialize then returns false."""
    for name in _NAMES:
        path = root / "config" / name
        if _loads(path):
            continue
        backup = path.with_name(name + ".bak")
        if not backup.exists() or not _read(backup) or _object(backup) is not None:
            continue
        return Obstacle(
            path, "neither {} nor its .bak can be parsed", f"load {path} failed, and try to load backup file"
        )
    levels = config.text("messageDelayLevel").split(" ")
    if any(_LEVEL.match(level) is None for level in levels):
        text = f"parse message delay level failed. messageDelayLevel = {config.text('messageDelayLevel')}"
        return Obstacle(root, "messageDelayLevel cannot be parsed", text)
    return None


def _loads(path: Path) -> bool:
    return _object(path) is not None


def _read(path: Path) -> bytes:
    try:
        return b"" if path.stat().st_size > _MOST else read_at(path, _MOST, 0)
    except OSError:
        return b""


def _object(path: Path) -> dict[str, JsonValue] | None:
    raw = _read(path)
    if not raw:
        return None
    try:
        return parse_config_object(raw)
    except ConfigJsonError:
        return None
