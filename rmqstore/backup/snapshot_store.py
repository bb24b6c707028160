"""A snapshot as a store: open what a user names as STORE, a directory or a snapshot in a repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.errors import NotAStore
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.disk import StorePath, is_snapshot_address
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.store import Store, open_store, while_files_expire
from rmqstore.formats.times import parse_time
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.verified import Verified, VerifyOptions
    from rmqstore.scan.workers import Mapper

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


def files_of(
    path: Path, config: BrokerConfig, parts: frozenset[str], time_of: Callable[[str], int] = parse_time
) -> tuple[Files, BrokerConfig]:
    """Return what a store or a snapshot is read through, and its settings.

    Errors: as `folder_of` and `find_snapshot`; NotAStore for a snapshot without a log.
    """
    if not is_snapshot_address(path):
        return LOCAL, config
    from rmqstore.backup.repository import Address, find_snapshot, folder_of
    from rmqstore.backup.snapshot_files import SnapshotFiles

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
    from rmqstore.backup.derived import DerivedFiles

    return DerivedFiles(files, settings, parts), settings


def with_earlier_bytes(store: Store) -> Iterator[tuple[str, Store]]:
    """Yield the store of a snapshot, and then the log with the bytes that it contradicts; each with a name."""
    from rmqstore.backup.snapshot_files import SnapshotFiles

    yield str(store.path), store
    files = store.files
    if isinstance(files, SnapshotFiles):
        for number, manifest in enumerate(files.manifest.earlier(), 1):
            name = Text("{address} (earlier bytes {number})", address=store.path, number=number)
            yield name, open_store(store.path, store.config, SnapshotFiles(files.folder, manifest, files.root))


def examine_named(store: Store, options: VerifyOptions, mapper: Mapper | None = None) -> tuple[Store, Verified]:
    """Examine a store, whose files may expire meanwhile, or a snapshot. Return also the store as it was listed last.

    `mapper` replaces the `jobs` processes. Errors: as `checks.verify.examine`.
    """
    from rmqstore.checks.verify import examine_lasting

    how = _after_one_pass(store, options, mapper)
    return while_files_expire(store, lambda look: examine_lasting(look, how, mapper))


def _after_one_pass(store: Store, options: VerifyOptions, mapper: Mapper | None) -> VerifyOptions:
    """Return options with which a store is verified; of a snapshot, the log is read here, and not again."""
    partly = options.max_duration is not None or options.since is not None or options.until is not None
    if not store.files.derives or partly or options.start_at or options.last_run is not None:
        return options
    from rmqstore.backup.derived import DerivedFiles

    return store.files.read_first(options, mapper) if isinstance(store.files, DerivedFiles) else options


def _without_paths(config: BrokerConfig) -> dict[str, str]:
    """Return the given settings but those that name directories of the broker's machine."""
    return {key: value for key, value in config.given.items() if "storepath" not in key.lower()}
