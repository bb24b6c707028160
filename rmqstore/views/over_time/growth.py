"""How fast a store grows, by topic, and whether the disk has room at this rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqstore.brokers.clean_up import HOUR, FileSystem, RetentionRules
from rmqstore.files.store import Store
from rmqstore.repair.expire import Outlook, disk_of, outlook
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Workers
from rmqstore.views.dump.messages import Skipped
from rmqstore.views.dump.selection import Selection
from rmqstore.views.over_time.timeline import timed, unit_for
from rmqstore.views.usage import TIMES, usage

_STEPS = 96


@dataclass(frozen=True, slots=True)
class TopicGrowth:
    """Messages and bytes of a topic per hour; `trend`: bytes as a multiple of those before, None without any."""

    topic: str
    messages: float
    bytes: float
    trend: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the row of `du --growth --json`."""
        return {
            "topic": self.topic,
            "messages_per_hour": round(self.messages, 3),
            "bytes_per_hour": round(self.bytes, 3),
            "trend": None if self.trend is None else round(self.trend, 3),
        }


@dataclass(frozen=True, slots=True)
class StoreGrowth:
    """The growth of a store: the forecast, and the topics, the fastest first."""

    outlook: Outlook
    topics: list[TopicGrowth]

    @property
    def messages(self) -> float:
        """Messages per hour."""
        return sum(one.messages for one in self.topics)

    def to_json(self) -> dict[str, Any]:
        """Return the value of `growth` in `du --growth --json`."""
        return {
            **outlook_json(self.outlook),
            "messages_per_hour": round(self.messages, 3),
            "topics": [one.to_json() for one in self.topics],
        }


def outlook_json(found: Outlook) -> dict[str, Any]:
    """Return a forecast as JSON."""
    rate, filling, disk = found.rate, found.filling, found.disk
    return {
        "since": rate.since,
        "until": rate.until,
        "log_bytes_per_hour": round(rate.per_hour, 3),
        "trend": None if not rate.before else round(rate.per_hour / rate.before, 3),
        "on_disk_for_each_byte": round(found.growth.on_disk, 4),
        "disk": {"used": disk.used, "total": disk.total},
        "forecast": {
            "enough": filling.enough,
            "until": filling.until,
            "peak": round(filling.peak, 4),
            "peak_at": filling.peak_at,
            "first_deleted_at": filling.first_deleted,
            "early_at": filling.early,
            "least_age": filling.least_age,
            "refuses_at": filling.refuses,
            "full_at": filling.full,
        },
    }


def store_growth(
    store: Store,
    rules: RetentionRules,
    workers: Workers,
    options: ScanOptions,
    damage: Skipped,
    *,
    now: int | None = None,
    ask: Callable[[Path], FileSystem] = disk_of,
) -> StoreGrowth | None:
    """Measure the growth in the last day of the log, and forecast; None without messages of two times.

    `now` (ms): when the forecast begins. Fills in `damage`. Errors: OSError.
    """
    now = time.time_ns() // 1_000_000 if now is None else now
    found = outlook(store, rules, now, ask)
    if found is None:
        return None
    since, until = found.rate.since, found.rate.until
    first = since - (until - since)
    unit = unit_for((first, until), _STEPS)
    selection = Selection(since=first // TIMES[unit] * TIMES[unit], until=until + 1)
    counted = usage(store, (f"topic,{unit}",), selection, workers=workers, options=options, damage=damage)
    return StoreGrowth(found, _topics(counted.rows(f"topic,{unit}"), unit, since, until))


def _topics(rows: list[dict[str, Any]], unit: str, since: int, until: int) -> list[TopicGrowth]:
    """Return the growth in the units of time from the one of `since` on, compared with those before."""
    sums: dict[str, list[int]] = {}
    border = since // TIMES[unit] * TIMES[unit]
    begin = border
    for row, (at, messages) in zip(rows, timed(rows, unit, "messages"), strict=True):
        own = sums.setdefault(str(row["topic"]), [0, 0, 0])
        if at < border:
            begin = min(begin, at)
            own[2] += row["bytes"]
        else:
            own[0] += messages
            own[1] += row["bytes"]
    hours = max(1, until - border) / HOUR
    earlier = max(1, border - begin) / HOUR
    out = [
        TopicGrowth(topic, messages / hours, size / hours, size / hours / (before / earlier) if before else None)
        for topic, (messages, size, before) in sums.items()
        if messages or before
    ]
    return sorted(out, key=lambda one: (-one.bytes, one.topic))
