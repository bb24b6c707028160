"""Finds configuration files that stop a broker's start, and the topics that topics.json makes BatchCQ.

Source: ConfigManager#load, #loadBak; ScheduleMessageService#load; TimerMetrics; BrokerController#initializeMetadata,
#recoverAndInitService (RocketMQ 4.3.0 to 5.4.0; confirmed with whole brokers of 4.9.7, 5.1.4 and 5.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rmqstore.brokers.load.mapped_files import Obstacle
from rmqstore.brokers.rules.versions import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import BATCH_CQ, config_bytes, config_object, configured_types
from rmqstore.files.store import Store
from rmqstore.texts import Text

_METADATA = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json")
_METADATA_5 = ("topicQueueMapping.json", "consumerOrderInfo.json")
_LEVEL = re.compile(r"[+-]?[0-9]+[smhd]\Z")


def batch_topics(store: Store) -> frozenset[str]:
    """Return the topics that a starting broker treats as BatchCQ: only topics.json or its .bak decides."""
    types = configured_types(store.files, store.root) or {}
    return frozenset(topic for topic, kind in types.items() if kind == BATCH_CQ)


def unreadable_metadata(store: Store, rules: BrokerRules) -> Obstacle | None:
    """Return the first unparsable file (its .bak too) of those read before the store: initialize() returns false."""
    return _unreadable(store, (*_METADATA, *(_METADATA_5 if rules.more_metadata else ())), rules)


def unreadable_after_load(store: Store, rules: BrokerRules, config: BrokerConfig) -> Obstacle | None:
    """Return the first of delayOffset.json, timermetrics and messageDelayLevel that cannot be parsed.

    The broker reads these once the store is loaded.
    """
    timer = rules.timer_wheel and config.bool("timerWheelEnable")
    obstacle = _unreadable(store, ("delayOffset.json", *(("timermetrics",) if timer else ())), rules)
    if obstacle is not None:
        return obstacle
    levels = config.text("messageDelayLevel").split(" ")
    if any(_LEVEL.match(level) is None for level in levels):
        text = f"parse message delay level failed. messageDelayLevel = {config.text('messageDelayLevel')}"
        return Obstacle(store.root, Text("messageDelayLevel cannot be parsed"), text)
    return None


def _unreadable(store: Store, names: Iterable[str], rules: BrokerRules) -> Obstacle | None:
    reader, files = rules.config_reader, store.files
    for name in names:
        path = store.root / "config" / name
        if config_object(files, path, reader) is not None:
            continue
        backup = path.with_name(name + ".bak")
        if not config_bytes(files, backup) or config_object(files, backup, reader) is not None:
            continue
        return Obstacle(
            path,
            Text("neither {path} nor its .bak can be parsed", path=path),
            f"load {path} failed, and try to load backup file",
        )
    return None
