"""How much a store needs of the disk, and how fast it grows.

Usage is told per part and, for consume queues, per topic, from listings and a few units. Growth is told by topic, with
whether the disk has room at this rate.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rmqstore.brokers.clean_up import HOUR, RetentionRules
from rmqstore.brokers.outlook import Outlook, disk_of, outlook
from rmqstore.files.files import DirEntry, Files
from rmqstore.files.log_ends import queue_bounds
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.walk import walk
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Workers
from rmqstore.texts import Text
from rmqstore.views.dump.messages import Skipped
from rmqstore.views.dump.selection import Selection
from rmqstore.views.usage import TIMES, timed, unit_for, usage

_PARTS = {
    "commitlog": "log",
    "consumequeue": "queues",
    "batchconsumequeue": "queues",
    "consumequeue_ext": "queues",
    "consumequeue_rocksdb": "queues",
    "index": "index",
    "timerlog": "timer",
    "timerwheel": "timer",
    "compaction": "compaction",
    "config": "configuration",
    ".rmqstore": Text("journals of repairs"),
}


@dataclass(slots=True)
class Space:
    """Number of files, their lengths (`bytes`), and their disk usage (`allocated`; less for sparse files).

    `queues`: number of consume queues; `used`: bytes that hold units.
    """

    files: int = 0
    bytes: int = 0
    allocated: int = 0
    queues: int = 0
    used: int = 0

    def add(self, files: Files, entry: DirEntry) -> None:
        """Add a file. A link counts without the bytes of its target, which may be in the store, too."""
        self.files += 1
        if entry.link is not None:
            return
        self.bytes += entry.length
        allocated = files.allocated(entry.path)
        self.allocated += entry.length if allocated is None else allocated

    @property
    def empty_share(self) -> float:
        """The share of a topic's queue files that holds no unit."""
        return 1 - self.used / self.bytes if self.bytes else 0.0


@dataclass(slots=True)
class DiskUsage:
    """Usage by part of the store, and usage of consume queues by topic; the largest first."""

    parts: dict[str, Space] = field(default_factory=dict)
    topics: dict[str, Space] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the value of `files` in `du --files --json`."""
        return {
            "parts": [
                {"part": name, "files": s.files, "bytes": s.bytes, "allocated": s.allocated}
                for name, s in self.parts.items()
            ],
            "topics": [
                {"topic": name, **asdict(s), "empty_share": round(s.empty_share, 4)} for name, s in self.topics.items()
            ],
        }


def disk_usage(store: Store) -> DiskUsage:
    """Measure a store, including log directories outside of its root."""
    out = DiskUsage()
    _walk(out, store.root if store.part is None else store.path, store)
    seen = [store.files.real_path(store.root)]
    followed = {entry.path: _part_of((entry.path.name, ""), store) for entry in store.followed}
    logs = {directory: "log" for log, _ in store.logs for directory in log.directories}
    for directory, part in {**followed, **logs}.items() if store.part is None else ():
        real = store.files.real_path(directory)
        if not any(real.is_relative_to(place) for place in seen):
            seen.append(real)
            _walk(out, directory, store, part)
    _topics(out, store)
    out.parts = dict(sorted(out.parts.items(), key=lambda kv: -kv[1].allocated))
    out.topics = dict(sorted(out.topics.items(), key=lambda kv: -kv[1].allocated))
    return out


def _walk(out: DiskUsage, top: Path, store: Store, part: str = "") -> None:
    own = store.files.examined(top)
    if own is not None and not own.directory:
        out.parts.setdefault(part or store.part or "other", Space()).add(store.files, own)
        return
    for entry in walk(store.files, top):
        if not entry.directory:
            names = entry.path.relative_to(top).parts
            out.parts.setdefault(part or _part_of(names, store), Space()).add(store.files, entry)


def _part_of(names: tuple[str, ...], store: Store) -> str:
    if store.part is not None:
        return store.part
    if names[0].startswith("dledger-") and len(names) > 1:
        return {"data": "log", "index": Text("DLedger index")}.get(names[1], "other")
    if names[0] == "compaction" and len(names) > 2:
        return {"compactionLog": Text("compaction logs"), "compactionCq": Text("compaction queues")}.get(
            names[1], "compaction"
        )
    part = _PARTS.get(names[0])
    return part or ("RocksDB" if "rocksdb" in names[0].lower() else "other")


def _topics(out: DiskUsage, store: Store) -> None:
    start = store.log_start  # units of older messages have expired
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        if kind is QueueKind.SIMPLE and store.rocksdb_consume_queue:
            continue  # RocksDB files belong to all topics
        for one in store.consume_queues(kind):
            space = out.topics.setdefault(one.topic, Space())
            space.queues += 1
            for file in one.queue.files:
                entry = store.files.examined(file.path)
                if entry is not None:  # else it has been deleted
                    space.add(store.files, entry)
            bounds = queue_bounds(one.queue, start, batch=kind is QueueKind.BATCH)
            space.used += bounds.units * kind.unit


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
        "forecast": None
        if rate.is_guess
        else {
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
    store: Store, rules: RetentionRules, workers: Workers, options: ScanOptions, damage: Skipped
) -> StoreGrowth | None:
    """Measure the growth in the last day of the log, and forecast from now on; None without messages of two times.

    Fills in `damage`. Errors: OSError.
    """
    found = outlook(store, rules, time.time_ns() // 1_000_000, disk_of)
    if found is None:
        return None
    since, until = found.rate.since, found.rate.until
    first = since - (until - since)
    unit = unit_for((first, until), _STEPS)
    selection = Selection(since=first // TIMES[unit] * TIMES[unit], until=until + 1)
    counted = usage(store, (f"topic,{unit}",), selection, workers=workers, options=options, damage=damage)
    return StoreGrowth(found, _growth_by_topic(counted.rows(f"topic,{unit}"), unit, since, until))


def _growth_by_topic(rows: list[dict[str, Any]], unit: str, since: int, until: int) -> list[TopicGrowth]:
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
