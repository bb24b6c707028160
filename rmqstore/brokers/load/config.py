"""The configuration files that decide whether and how a broker starts.

Source: ConfigManager#load, #loadBak; ScheduleMessageService#load; BrokerController#initialize (RocketMQ 4.3.0 to
5.4.0). By source: these run in the broker, not in its store, except for delayOffset.json up to 4.9.8.
"""

from __future__ import annotations

import re
from pathlib import Path

from rmqstore.brokers.load.mapped_files import Obstacle
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.topic_types import BATCH_CQ, configured_types, read_config_bytes, read_config_object

_NAMES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json")
_LEVEL = re.compile(r"[+-]?[0-9]+[smhd]\Z")


def batch_topics(root: Path) -> frozenset[str]:
    """Topics that a broker takes for BatchCQ when it starts: topics.json or its .bak says so, nothing else."""
    types = configured_types(root) or {}
    return frozenset(topic for topic, kind in types.items() if kind == BATCH_CQ)


def unreadable_config(root: Path, config: BrokerConfig) -> Obstacle | None:
    """The first file that cannot be read together with its .bak: initialize then returns false."""
    for name in _NAMES:
        path = root / "config" / name
        if read_config_object(path) is not None:
            continue
        backup = path.with_name(name + ".bak")
        if not backup.exists() or not read_config_bytes(backup) or read_config_object(backup) is not None:
            continue
        return Obstacle(
            path, "neither {} nor its .bak can be parsed", f"load {path} failed, and try to load backup file"
        )
    levels = config.text("messageDelayLevel").split(" ")
    if any(_LEVEL.match(level) is None for level in levels):
        text = f"parse message delay level failed. messageDelayLevel = {config.text('messageDelayLevel')}"
        return Obstacle(root, "messageDelayLevel cannot be parsed", text)
    return None
