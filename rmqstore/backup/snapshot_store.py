"""A snapshot as a store: what shows `REPO::NAME@SNAPSHOT` to `files.sources`."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqstore.backup.derived import DerivedFiles
from rmqstore.backup.repository import Address, Repository, find_snapshot, folder_of, storage_of
from rmqstore.backup.snapshot_files import SnapshotFiles
from rmqstore.errors import NotAStore
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.disk import StorePath
from rmqstore.files.files import Files
from rmqstore.files.store import Store, open_store
from rmqstore.formats.times import parse_time
from rmqstore.texts import Text


def files_of(
    path: Path, config: BrokerConfig, parts: frozenset[str], time_of: Callable[[str], int] = parse_time
) -> tuple[Files, BrokerConfig]:
    """Return what a snapshot is read through, and its settings. `parts` are derived from its log when they are read.

    Errors: as `folder_of` and `find_snapshot`; NotAStore for a snapshot without a log.
    """
    path = StorePath(path)
    address = Address.parse(str(path))
    folder = folder_of(address)
    manifest = find_snapshot(folder, address.snapshot, time_of)
    if not any(log.own for log in manifest.logs):
        raise NotAStore(
            Text("{manifest}@{snapshot} has no log", manifest=manifest.name, snapshot=manifest.snapshot),
            Text("use another snapshot"),
        )
    files = SnapshotFiles(folder, manifest, path)
    settings = BrokerConfig({**manifest.layout.settings, **_without_paths(config)}, config.source)
    if not parts:
        return files, settings
    return DerivedFiles(files, settings, parts), settings


def names_of(pattern: str) -> list[str]:
    """Return the addresses of the stores in a repository whose names match: `REPO::*`, `REPO::broker-*@TIME`.

    Errors: as `Repository.open`; UsageError for a pattern outside of the name.
    """
    address = Address.parse(pattern)
    names = Repository.open(storage_of(address.repository)).names()
    end = f"@{address.snapshot}" if address.snapshot else ""
    return [f"{address.repository}::{name}{end}" for name in fnmatch.filter(names, address.name)]


def with_earlier_bytes(store: Store) -> Iterator[tuple[str, Store]]:
    """Yield the store of a snapshot, and then the log with the bytes that it contradicts; each with a name."""
    yield str(store.path), store
    files = store.files
    if isinstance(files, SnapshotFiles):
        for number, manifest in enumerate(files.manifest.earlier(), 1):
            name = Text("{address} (earlier bytes {number})", address=store.path, number=number)
            yield name, open_store(store.path, store.config, SnapshotFiles(files.folder, manifest, files.root))


def _without_paths(config: BrokerConfig) -> dict[str, str]:
    """Return the given settings but those that name directories of the broker's machine."""
    return {key: value for key, value in config.given.items() if "storepath" not in key.lower()}
