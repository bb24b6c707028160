"""Simulates IndexService#load: which index files it deletes after a crash, and which file stops it.

Source: IndexService#load, IndexFile (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.brokers.load.mapped_files import Obstacle, java_long
from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.texts import Text


@dataclass(slots=True)
class IndexLoad:
    """The index files that the load deletes, and the file that it cannot open."""

    deleted: list[Path] = field(default_factory=list)
    obstacle: Obstacle | None = None


def load_index(store: Store, clean: bool, index_time: int) -> IndexLoad:
    """Load every index file in the order of names; `index_time` is the checkpoint's indexMsgTimestamp, in ms."""
    out = IndexLoad()
    for entry in store.index_entries:
        if java_long(entry.path.name) is None:
            continue  # the broker catches the NumberFormatException and skips the file
        if entry.directory or entry.special or entry.unreadable:
            text = f"load file {entry.path} error"
            out.obstacle = Obstacle(entry.path, Text("index file {path} cannot be opened", path=entry.path), text)
            return out
        raw = store.files.read_at(entry.path, index.HEADER.size, 0).ljust(index.HEADER.size, b"\0")
        if not clean and int(index.HEADER.array(raw)[0]["end_timestamp"]) > index_time:
            out.deleted.append(entry.path)
    return out
