"""Disk usage of a store per part and, for consume queues, per topic. Reads only listings and a few units."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqstore.files.files import DirEntry, Files
from rmqstore.files.log_ends import queue_bounds
from rmqstore.files.store import UNIT_SIZES, QueueKind, Store
from rmqstore.texts import Text

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
                {
                    "topic": name,
                    "queues": s.queues,
                    "files": s.files,
                    "bytes": s.bytes,
                    "allocated": s.allocated,
                    "used": s.used,
                    "empty_share": round(s.empty_share, 4),
                }
                for name, s in self.topics.items()
            ],
        }


def disk_usage(store: Store) -> DiskUsage:
    """Measure a store, including log directories outside of its root."""
    out = DiskUsage()
    _walk(out, store.root if store.part is None else store.path, store)
    inside = store.files.real_path(store.root)
    for directory in _log_directories(store) if store.part is None else ():
        if not store.files.real_path(directory).is_relative_to(inside):
            _walk(out, directory, store, "log")
    _topics(out, store)
    out.parts = dict(sorted(out.parts.items(), key=lambda kv: -kv[1].allocated))
    out.topics = dict(sorted(out.topics.items(), key=lambda kv: -kv[1].allocated))
    return out


def _log_directories(store: Store) -> list[Path]:
    return list(dict.fromkeys(directory for log, _ in store.logs for directory in log.directories))


def _walk(out: DiskUsage, top: Path, store: Store, part: str = "") -> None:
    own = store.files.examined(top)
    if own is not None and not own.directory:
        out.parts.setdefault(part or store.part or "other", Space()).add(store.files, own)
        return
    folders = [top]
    while folders:
        for entry in _listed(store, folders.pop()):
            if entry.directory:
                folders += [entry.path] if entry.link is None else []
            else:
                names = entry.path.relative_to(top).parts
                out.parts.setdefault(part or _part_of(names, store), Space()).add(store.files, entry)


def _listed(store: Store, folder: Path) -> list[DirEntry]:
    """List a directory; empty if it cannot be listed, which has its own finding."""
    try:
        return store.files.list(folder)
    except OSError:
        return []


def _part_of(names: tuple[str, ...], store: Store) -> str:
    if store.part is not None:
        return store.part
    if names[0].startswith("dledger-") and len(names) > 1:
        return {"data": "log", "index": Text("DLedger index")}.get(names[1], "other")
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
            space.used += bounds.units * UNIT_SIZES[kind]
