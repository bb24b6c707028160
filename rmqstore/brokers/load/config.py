"""The configuration files that decide whether and how a broker starts.

Source: ConfigManager#load, #loadBak; ScheduleMessageService#load; TimerMetrics; BrokerController#initializeMetadata,
#recoverAndInitService (RocketMQ 4.3.0 to 5.4.0; whole brokers of 4.9.7, 5.1.4 and 5.4.0 ended so).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rmqstore.brokers.load.mapped_files import Obstacle
from rmqstore.brokers.rules.versions import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import read_at
from rmqstore.formats.configjson import ConfigJsonError, JsonValue, parse_config_object

_METADATA = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json")
_METADATA_5 = ("topicQueueMapping.json", "consumerOrderInfo.json")
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


def _is_batch(config: JsonValue) -> bool:
    if not isinstance(config, dict):
        return False
    attributes = config.get("attributes")
    return isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ"


def unreadable_metadata(root: Path, rules: BrokerRules) -> Obstacle | None:
    """The first file of those read before the store that cannot be parsed, nor its .bak: initialize returns false."""
    return _unreadable(root, (*_METADATA, *(_METADATA_5 if rules.more_metadata else ())))


def unreadable_behind_store(root: Path, rules: BrokerRules, config: BrokerConfig) -> Obstacle | None:
    """The same of what is read when the store is loaded: delayOffset.json, timermetrics; also messageDelayLevel."""
    timer = rules.timer_wheel and config.bool("timerWheelEnable")
    obstacle = _unreadable(root, ("delayOffset.json", *(("timermetrics",) if timer else ())))
    if obstacle is not None:
        return obstacle
    levels = config.text("messageDelayLevel").split(" ")
    if any(_LEVEL.match(level) is None for level in levels):
        text = f"parse message delay level failed. messageDelayLevel = {config.text('messageDelayLevel')}"
        return Obstacle(root, "messageDelayLevel cannot be parsed", text)
    return None


def _unreadable(root: Path, names: Iterable[str]) -> Obstacle | None:
    for name in names:
        path = root / "config" / name
        if _loads(path):
            continue
        backup = path.with_name(name + ".bak")
        if not backup.exists() or not _read(backup) or _object(backup) is not None:
            continue
        return Obstacle(
            path, "neither {} nor its .bak can be parsed", f"load {path} failed, and try to load backup file"
        )
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
