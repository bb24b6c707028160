"""What a user names as STORE: a directory of this machine, or something that another package shows as one.

`SHOWN_BY` is the registry of those packages. Each has the functions `files_of`, `names_of` and `with_earlier_bytes`,
and is imported only for a path that it shows: a command that reads a directory does not depend on repositories of
snapshots.
"""

from __future__ import annotations

import glob
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqstore.errors import NotReadable
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.disk import StorePath, is_snapshot_address
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.store import Store, open_store
from rmqstore.formats.times import parse_time
from rmqstore.texts import Text

SHOWN_BY: tuple[tuple[Callable[[Path], bool], str], ...] = ((is_snapshot_address, "rmqstore.backup.snapshot_store"),)
"""Whether a path is of this kind, and the module that shows it as a store."""

FOR_READING = frozenset({"cq", "index", "checkpoint"})
"""The parts (see `repair.rebuild_parts`) that reading commands may ask for."""
FOR_VERIFY = frozenset({"cq", "checkpoint", "dledger-index"})
"""The parts that are verified. An index would be compared with the messages from which it was just derived."""
LOG_ONLY: frozenset[str] = frozenset()
"""Nothing is derived: the log and the files beside it."""


def open_named(
    path: Path, config: BrokerConfig, parts: frozenset[str] = FOR_READING, time_of: Callable[[str], int] = parse_time
) -> Store:
    """Open a store, or a snapshot: `REPO`, `REPO::NAME`, `REPO::NAME@SNAPSHOT`, `REPO::NAME@TIME`.

    `parts` of a snapshot are derived from its log when they are read; `time_of` parses TIME.
    Errors: as `open_store` and `files_of`.
    """
    path = StorePath(path)
    files, settings = files_of(path, config, parts, time_of)
    return open_store(path, settings, files)


def names_of(pattern: str) -> list[str]:
    """Return the paths that a pattern with `*`, `?` or `[` stands for, sorted.

    Errors: NotReadable if there is none; those of the package that shows it.
    """
    path = StorePath(pattern)
    named_by = (importlib.import_module(module).names_of for shows, module in SHOWN_BY if shows(path))
    found: list[str] = next(named_by, glob.glob)(pattern)
    if not found:
        raise NotReadable(Text("{pattern}: no match", pattern=pattern), Text("list what is there, and correct it"))
    return sorted(found)


def with_earlier_bytes(store: Store) -> Iterator[tuple[str, Store]]:
    """Yield a store, and then the log with other bytes that what shows it has of the log; each with a name."""
    shown_by = (importlib.import_module(module).with_earlier_bytes for shows, module in SHOWN_BY if shows(store.path))
    yield from next(shown_by, lambda own: [(str(own.path), own)])(store)


def files_of(
    path: Path, config: BrokerConfig, parts: frozenset[str], time_of: Callable[[str], int] = parse_time
) -> tuple[Files, BrokerConfig]:
    """Return what a store is read through, and its settings. Errors: those of the package that shows it."""
    for shows, module in SHOWN_BY:
        if shows(path):
            found: tuple[Files, BrokerConfig] = importlib.import_module(module).files_of(path, config, parts, time_of)
            return found
    return LOCAL, config
