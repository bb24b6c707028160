"""Store: recognises a directory (plain, DLedger, mixed, RocksDB, a part, a single file) and lists what is in it.

Opening reads directory listings only; no file of the store is opened. Sources: StorePathConfigHelper,
DefaultMessageStore#load, DLedgerCommitLog, MultiPathMappedFileQueue (RocketMQ 5.4.0).
"""

from __future__ import annotations

import contextlib
import copy
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from rmqstore.errors import NotAStore, NotReadable
from rmqstore.files.broker_config import (
    COMMITLOG_FILE_SIZE,
    DLEDGER_INDEX_FILE_SIZE,
    TIMER_LOG_FILE_SIZE,
    BrokerConfig,
)
from rmqstore.files.in_use.lock import LOCK_NAME, LockState, lock_state
from rmqstore.files.in_use.users import Users, find_users, snapshot
from rmqstore.files.mapped_file_queue import (
    DirEntry,
    MappedFileQueue,
    list_directory,
)
from rmqstore.files.overlap import overlap_at
from rmqstore.files.places import place_of_entry_file, place_of_log_file
from rmqstore.files.queue_home import has_database
from rmqstore.files.recognise import is_root, kind_of_directory, kind_of_file, store_below
from rmqstore.files.store_queues import UNIT_SIZE, ConsumeQueueFiles, QueueKind, StoreQueues, StrayEntry
from rmqstore.formats.dledger import SNAPSHOTS

__all__ = [
    "UNIT_SIZE",
    "ConsumeQueueFiles",
    "DLedgerFiles",
    "QueueKind",
    "Store",
    "StoreKind",
    "StrayEntry",
    "open_store",
    "recognised",
]

_INDEX_NAME_DIGITS = 17


class StoreKind(StrEnum):
    """What kind of store a directory is; `PART` is one queue, one directory of a store, or one file."""

    PLAIN = "plain"
    DLEDGER = "dledger"
    MIXED = "mixed"
    ROCKSDB = "rocksdb"
    PART = "part"


@dataclass(frozen=True, slots=True)
class DLedgerFiles:
    """The DLedger part of a store: `dledger-<self_id>/` with its data and index queues."""

    directory: Path
    self_id: str
    data: MappedFileQueue
    index: MappedFileQueue

    @property
    def newer(self) -> bool:
        """Whether DLedger 0.4 or newer wrote it, with snapshots: a RocketMQ release never makes any."""
        return any(e.directory and e.path.name == SNAPSHOTS for e in list_directory(self.directory))


class Store(StoreQueues):
    """A store directory, or a part of one.

    `path` is what was asked for, `root` the storePathRootDir when it is a whole store (else the same as `path`).
    `links` are symbolic links at the top that were followed. `moved`: files that this store has under another name
    (then) than the disk (now), see `rearranged`. `standins`: directories that hold the files of a log as they will be
    -> the directories of the store that they stand for. `expiring`: so many of the oldest files of the log are taken as
    expired already, since a broker deletes them while they are read.
    """

    def __init__(self, path: Path, config: BrokerConfig, *, follow_config_paths: bool = True) -> None:
        super().__init__(path, config)
        self.moved: Mapping[Path, Path] = {}
        self.left_out: frozenset[Path] = frozenset()
        self.standins: Mapping[Path, Path] = {}
        self.expiring = 0
        self._follow = follow_config_paths

    # --- what is where --------------------------------------------------------------------------------------------

    @cached_property
    def top(self) -> dict[str, DirEntry]:
        """Entries of the root by name; the root's own listing, read once."""
        if self.part is not None:
            return {}
        return {e.path.name: e for e in list_directory(self.root)}

    @cached_property
    def commitlog_directories(self) -> list[Path]:
        """Where commitlog files are: the configured paths (multi-path and read-only ones too), else root/commitlog."""
        configured = [] if not self._follow else self.config.paths("storePathCommitLog")
        if configured:
            extra = [p for p in self._read_only_paths() if p not in configured]
            return [self._located(p) for p in configured + extra]
        return [self.root / "commitlog"]

    def _read_only_paths(self) -> list[Path]:
        """Beside several paths only: with one, a broker does not look at them (CommitLog#<init>)."""
        if "," not in self.config.text("storePathCommitLog"):
            return []
        return self.config.paths("readOnlyCommitLogStorePaths")

    def _located(self, path: Path) -> Path:
        return path if path.is_absolute() else self.root / path

    @cached_property
    def missing_paths(self) -> list[Path]:
        """Configured commitlog or DLedger paths that are not there."""
        if not self._follow:
            return []
        paths = self.config.paths("storePathCommitLog") + self._read_only_paths()
        paths += self.config.paths("storePathDLedgerCommitLog")
        return [p for p in map(self._located, paths) if not p.is_dir()]

    @cached_property
    def commitlog(self) -> MappedFileQueue | None:
        """The plain commitlog (in a mixed store: its legacy part); None without a directory for it."""
        if self.part == "commitlog":
            return self._part_queue(
                "commitlog", COMMITLOG_FILE_SIZE, key="mappedFileSizeCommitLog", place=place_of_log_file
            )
        if self.part is not None:
            return None
        dirs = [d for d in self.commitlog_directories if d.is_dir()]
        if not dirs:
            return None
        queue = MappedFileQueue.open(
            "commitlog",
            dirs,
            file_size=self.config.given_int("mappedFileSizeCommitLog"),
            default=COMMITLOG_FILE_SIZE,
            place=place_of_log_file,
        )
        return queue.without_oldest(self.expiring)

    @cached_property
    def dledger(self) -> DLedgerFiles | None:
        """The DLedger part: the configured self id's directory, else the first `dledger-*` there is."""
        if self.part == "dledger-group":
            return self.dledger_at(self.path)
        if self.part == "dledger":
            data = self._part_queue(
                "dledger", COMMITLOG_FILE_SIZE, key="mappedFileSizeCommitLog", place=place_of_entry_file
            )
            none = MappedFileQueue("dledger-index", [], DLEDGER_INDEX_FILE_SIZE, [])
            return DLedgerFiles(self.path.parent, self.path.parent.name.removeprefix("dledger-"), data, none)
        if self.part is not None:
            return None
        wanted = self.config.given.get("dLegerSelfId", "").strip()
        names = sorted(n for n, e in self.top.items() if n.startswith("dledger-") and e.directory)
        name = f"dledger-{wanted}" if wanted and f"dledger-{wanted}" in names else (names[0] if names else "")
        if not name:
            return None
        found = self.dledger_at(self.root / name)
        legacy = self.commitlog
        if self._has_no_dledger and legacy is not None and overlap_at(legacy, found.data) is not None:
            return None
        if legacy is not None and legacy.files:  # beside a legacy log no file of DLedger expires
            return found
        return replace(found, data=found.data.without_oldest(self.expiring))

    def dledger_at(self, directory: Path) -> DLedgerFiles:
        """The DLedger files under a `dledger-<id>` directory."""
        configured = self.config.paths("storePathDLedgerCommitLog") if self._follow else []
        dirs = [self._located(p) for p in configured] or [directory / "data"]
        data = MappedFileQueue.open(
            "dledger",
            dirs,
            file_size=self.config.given_int("mappedFileSizeCommitLog"),
            default=COMMITLOG_FILE_SIZE,
            place=place_of_entry_file,
        )
        index = MappedFileQueue.open(
            "dledger-index",
            [directory / "index"],
            file_size=DLEDGER_INDEX_FILE_SIZE,  # RocketMQ has no key for it
            default=DLEDGER_INDEX_FILE_SIZE,
        )
        return DLedgerFiles(directory, directory.name.removeprefix("dledger-"), data, index)

    @cached_property
    def other_dledger(self) -> list[str]:
        """Names of further `dledger-*` directories, which are not read."""
        chosen = self.dledger.directory.name if self.dledger else ""
        return sorted(n for n, e in self.top.items() if n.startswith("dledger-") and e.directory and n != chosen)

    @property
    def _has_no_dledger(self) -> bool:
        """Whether broker.conf says that the broker runs without DLedger."""
        return "enableDLegerCommitLog" in self.config.given and not self.config.bool("enableDLegerCommitLog")

    @property
    def left_by_dledger(self) -> list[str]:
        """Names of DLedger directories that this broker has left behind: it writes to its commitlog again."""
        return self.other_dledger if self.dledger is None and self._has_no_dledger else []

    @cached_property
    def overlap(self) -> int | None:
        """The first address that both the commitlog and DLedger have (global offset); None: no such address."""
        if self.commitlog is None or self.dledger is None:
            return None
        return overlap_at(self.commitlog, self.dledger.data)

    def relist_logs(self) -> None:
        """Forget the files of the logs: they are listed again when they are next asked for."""
        for name in ("commitlog", "dledger", "overlap"):
            self.__dict__.pop(name, None)

    def relist_index(self) -> None:
        """Forget the files of the index: they are listed again when they are next asked for."""
        self.__dict__.pop("index_entries", None)

    def rearranged(
        self, logs: Mapping[str, MappedFileQueue], moved: Mapping[Path, Path], left_out: Iterable[Path]
    ) -> Store:
        """This store as it will be when files of its logs have other names, or are gone.

        The bytes of files in `moved` are read where they are now.
        """
        other = copy.copy(self)
        other.moved = dict(moved)
        other.left_out = frozenset(left_out)
        other.__dict__["commitlog"] = logs.get("commitlog", self.commitlog)
        if self.dledger is not None:
            other.__dict__["dledger"] = replace(self.dledger, data=logs.get("dledger", self.dledger.data))
        return other

    @property
    def is_rearranged(self) -> bool:
        """Whether this is the store as it will be, and not as it is."""
        return bool(self.moved or self.left_out)

    def with_log_files_in(self, standins: Mapping[Path, Path]) -> Store:
        """This store with the files of its logs in other directories; `standins` maps these to the store's own."""
        other = copy.copy(self)
        other.standins = dict(standins)
        instead = {home: standin for standin, home in standins.items()}
        if self.commitlog is not None:
            other.__dict__["commitlog_directories"] = [instead.get(d, d) for d in self.commitlog_directories]
            other.__dict__["commitlog"] = self.commitlog.listed_in(instead)
        if self.dledger is not None:
            other.__dict__["dledger"] = replace(self.dledger, data=self.dledger.data.listed_in(instead))
        return other

    @property
    def kind(self) -> StoreKind:
        """Plain, DLedger, mixed, RocksDB or a part."""
        if self.part is not None:
            return StoreKind.PART
        if self.rocksdb_consume_queue:
            return StoreKind.ROCKSDB
        if self.dledger is not None and (self.dledger.data.files or self.commitlog is None):
            return StoreKind.MIXED if self.commitlog is not None and self.commitlog.files else StoreKind.DLEDGER
        return StoreKind.PLAIN

    @cached_property
    def rocksdb_config(self) -> list[str]:
        """Names under config/ that are RocksDB directories (config v1 or v2)."""
        config = self.root / "config"
        return sorted(e.path.name for e in list_directory(config) if e.directory and has_database(e.path))

    @property
    def has_rocksdb(self) -> bool:
        """Whether anything here is a RocksDB: consume queues, or beside them, a directory of config/, or the part."""
        if self.part is not None:
            return (self.path / "CURRENT").is_file()
        return self.rocksdb_consume_queue or self.rocksdb_beside or bool(self.rocksdb_config)

    @property
    def log_bytes(self) -> int:
        """What a pass over the log reads: bytes on disk of the commitlog and of DLedger's data."""
        logs = (self.commitlog, self.dledger.data if self.dledger else None)
        return sum(queue.bytes_on_disk for queue in logs if queue is not None)

    # --- the rest -------------------------------------------------------------------------------------------------

    @cached_property
    def index_entries(self) -> list[DirEntry]:
        """Everything in index/, sorted by name."""
        if self.part == "index":
            if self.path.is_dir():
                return list_directory(self.path)
            return [e for e in list_directory(self.path.parent) if e.path.name == self.path.name]
        return [] if self.part is not None else list_directory(self.root / "index")

    @property
    def index_files(self) -> list[DirEntry]:
        """Index files: numeric names (IndexService#load skips others)."""
        return [
            e
            for e in self.index_entries
            if not e.directory and e.path.name.isdigit() and len(e.path.name) >= _INDEX_NAME_DIGITS
        ]

    @cached_property
    def timer_log(self) -> MappedFileQueue | None:
        """timerlog/, when there is one."""
        if self.part == "timerlog":
            return self._part_queue("timerlog", TIMER_LOG_FILE_SIZE, key="mappedFileSizeTimerLog")
        directory = self.root / "timerlog"
        if self.part is not None or not directory.is_dir():
            return None
        return MappedFileQueue.open(
            "timerlog",
            [directory],
            file_size=self.config.given_int("mappedFileSizeTimerLog"),
            default=TIMER_LOG_FILE_SIZE,
            unit=1,
        )

    @property
    def abort(self) -> bool:
        """Whether the last exit was not clean; `abort.bak` is not a sign of it."""
        return "abort" in self.top

    @property
    def checkpoint(self) -> DirEntry | None:
        """The store checkpoint's entry."""
        return self.top.get("checkpoint")

    def lock_state(self) -> LockState:
        """Whether a broker holds the lock, asked with F_GETLK on a read-only descriptor; never tried to be taken."""
        return lock_state(self.root / LOCK_NAME)

    @property
    def places(self) -> list[Path]:
        """Real paths of all directories with files of this store: the root, what its links lead to, other log paths."""
        found = [self.root, *(e.path for e in self.top.values() if e.directory and e.path.is_symlink())]
        found += self.commitlog_directories
        found += self.dledger.data.directories if self.dledger is not None else ()
        places: list[Path] = []
        for path in found:
            with contextlib.suppress(OSError, RuntimeError):
                real = path.resolve(strict=True)
                places += [] if any(real.is_relative_to(known) for known in places) else [real]
        return places

    def users(self) -> Users:
        """Processes that write to files of this store or have them mapped."""
        places = self.places
        return find_users(places, snapshot(places))

    def is_live(self) -> bool:
        """Whether a broker runs on this store: a process holds the lock, writes to a file of it or has one mapped.

        The lock alone proves little: a broker takes it only after load and recovery.
        """
        return self.lock_state().held or bool(self.users().seen)

    @property
    def journal_directory(self) -> Path:
        """Where repairs of this store keep their journals."""
        return self.root / ".rmqstore"

    def relative(self, path: Path) -> str:
        """A path as reports show it: below the root where it is."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


S = TypeVar("S", bound=Store)


def open_store(path: Path | str, config: BrokerConfig | None = None) -> Store:
    """Recognise what a path is.

    With a config whose storePathRootDir differs the path given wins. Links at the top are followed.
    Errors: NotReadable (missing, no permission), NotAStore (nothing of RocketMQ's there).
    """
    return recognised(Store(Path(path), config or BrokerConfig()))


def recognised(store: S) -> S:
    """The same store, once its path has been looked at: a whole store, or which part of one.

    Errors: as `open_store`
    """
    path, config = store.path, store.config
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise NotReadable(f"{path}: no such file or directory") from None
    except OSError as e:
        raise NotReadable(f"{path}: {e.strerror or e}") from None
    try:
        if stat.S_ISREG(mode):
            store.part = kind_of_file(path)
        elif stat.S_ISDIR(mode):
            with os.scandir(path) as entries:
                next(entries, None)
            if not is_root(path, config):
                store.part = kind_of_directory(path)
        else:
            raise NotAStore(f"{path} is neither a directory nor a file")
    except PermissionError as e:
        raise NotReadable(f"{e.filename}: permission denied") from None
    if store.part == "":
        found = store_below(path, config)
        advice = (f"did you mean {found}?",) if found is not None else ()
        raise NotAStore(f"{path} holds nothing of a RocketMQ store", *advice)
    return store
