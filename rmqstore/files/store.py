"""Store: a store directory or a part of one, with access to its logs, queues, index and other files.

Opening a store only lists directories. What a store may be besides an orderly directory is here, too:

* A commitlog that goes on beside DLedger's entries. A broker that is started without enableDLegerCommitLog after it ran
  with it appends to its old commitlog again, whose next file has the name of DLedger's first one. The entries stay
  where they are, and no setting reads both (`overlap_at`).
* Files with wrong names: the first record of a log file says where the file starts (`place_of_log_file`).
* A running broker that deletes the oldest files of its log: the work is repeated without them, as if they had expired
  before (`while_files_expire`).
* Entries that nobody knows. A new version of RocketMQ, or a plugin, may keep positions in the log in a directory of its
  own, as 5.5 does in consumequeue_rocksdb/. A store with such a directory is never clean, and nothing that its
  positions depend on may be changed (`unknown_entries`).

Source: StorePathConfigHelper, DefaultMessageStore#load, MultiPathMappedFileQueue (RocketMQ 5.4.0); DLedgerCommitLog
#recover (dividedCommitlogOffset), CommitLog#asyncPutMessage (4.9.7 to 5.4.0); RocksDBConsumeQueueStore,
TieredMessageStore, ReplicasManager (names of entries, 4.3 to 5.5.1)
"""

from __future__ import annotations

import copy
import errno
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqstore.errors import NotAStore, NotReadable, StoreIsLive, about
from rmqstore.files.broker_config import (
    COMMITLOG_FILE_SIZE,
    DLEDGER_INDEX_FILE_SIZE,
    LOG_PATH,
    READ_ONLY_PATHS,
    TIMER_LOG_FILE_SIZE,
    BrokerConfig,
)
from rmqstore.files.disk import address_in_repository, is_snapshot_address
from rmqstore.files.files import LOCAL, Files, RememberedFiles
from rmqstore.files.lock import LOCK_NAME, LockState, lock_state
from rmqstore.files.mapped_file_queue import DirEntry, MappedFileQueue, Place, message_at
from rmqstore.files.recognise import (
    is_of_client,
    is_of_compaction,
    is_root,
    kind_of_directory,
    kind_of_file,
    not_messages,
    store_below,
)
from rmqstore.files.store_queues import (
    ConsumeQueueFiles,
    QueueKind,
    StoreQueues,
    has_database,
    is_database_file,
)
from rmqstore.files.walk import Leads, OwnFiles
from rmqstore.formats.dledger import ENTRY, MAGIC, SNAPSHOTS
from rmqstore.formats.index import NAME_DIGITS as INDEX_NAME_DIGITS
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import HEAD, MAGIC_V1, MAGIC_V2
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.users import Users

__all__ = [
    "ConsumeQueueFiles",
    "DLedgerFiles",
    "QueueKind",
    "Store",
    "StoreKind",
    "open_store",
    "recognised",
]


def overlap_at(commitlog: MappedFileQueue, entries: MappedFileQueue) -> int | None:
    """Return the first global offset that both logs have; None if one continues after the other.

    Both prove it: the commitlog has a file that begins with a message of this address, and DLedger an entry. A file
    under the name of another one proves nothing.
    """
    if not entries.files or not commitlog.files or commitlog.files[-1].start < entries.start:
        return None
    for file in commitlog.files:
        theirs = entries.find(file.start) if file.start >= entries.start else None
        if theirs is None:
            continue
        head = entries.pread(ENTRY.size, theirs.start)
        message = message_at(commitlog, file.start)
        if message is None or message.physical_offset != file.start or len(head) < ENTRY.size:
            continue
        entry = ENTRY.parse(head)
        if entry["magic"] == MAGIC and entry["pos"] == theirs.start:
            return file.start
    return None


def _place(files: Files, path: Path, *, layout: Layout, field: str, magics: tuple[int, ...]) -> int | None:
    """Return the own position (bytes) of the record or entry at the start of a file; None if there is none."""
    raw = files.read_at(path, layout.size, 0)
    if len(raw) < layout.size:
        return None
    head = layout.parse(raw)
    start = int(head[field])
    return start if head["magic"] in magics and start >= 0 else None


_RECORD_PLACE = partial(_place, layout=HEAD, field="physical_offset", magics=(MAGIC_V1, MAGIC_V2))
_ENTRY_PLACE = partial(_place, layout=ENTRY, field="pos", magics=(MAGIC,))


class _LogFormat(NamedTuple):
    """The setting with the file size of a log, its default, and what a file's first record says about its place."""

    key: str
    default: int
    place: Place | None = None


_LOGS = {
    "commitlog": _LogFormat("mappedFileSizeCommitLog", COMMITLOG_FILE_SIZE, _RECORD_PLACE),
    "dledger": _LogFormat("mappedFileSizeCommitLog", COMMITLOG_FILE_SIZE, _ENTRY_PLACE),
    "timerlog": _LogFormat("mappedFileSizeTimerLog", TIMER_LOG_FILE_SIZE),
}

MESSAGE_ROWS = "rocksdbstore"
EPOCHS, IDENTITY = "epochFileCheckpoint", "brokerIdentity"
CONTROLLER_FILES = frozenset({EPOCHS, f"{EPOCHS}.bak", IDENTITY, f"{IDENTITY}-temp"})
_ROW_FILES = (".sst", ".ldb", ".blob", ".log")


class StoreKind(StrEnum):
    """The kind of a store; `PART` is a single queue, another directory of a store, or a single file."""

    PLAIN = "plain"
    DLEDGER = "dledger"
    MIXED = "mixed"
    ROCKSDB = "rocksdb"
    PART = "part"


@dataclass(frozen=True, slots=True)
class DLedgerFiles:
    """The DLedger part of a store: the directory `dledger-<self_id>` with its data and index files."""

    directory: Path
    self_id: str
    data: MappedFileQueue
    index: MappedFileQueue
    files: Files = LOCAL

    @property
    def newer(self) -> bool:
        """Whether DLedger 0.4 or newer wrote it: it has snapshots, which no RocketMQ release makes."""
        return any(e.directory and e.path.name == SNAPSHOTS for e in self.files.list(self.directory))


class Store(StoreQueues):
    """A store directory, or a part of one.

    `path` is the path given by the user, and `root` the same path in its role as storePathRootDir.

    The other attributes describe a changed view of the store. `moved` maps the path that a file will have to the path
    that it has on disk now, and `left_out` are files that will be gone (see `rearranged`). `expiring` is the number of
    oldest log files to ignore, because a running broker deletes them during a read. `written_by`: the oldest and the
    newest version that can have written the store of which this is a copy; None: unknown, or no copy.
    """

    def __init__(self, path: Path, config: BrokerConfig, files: Files = LOCAL) -> None:
        super().__init__(path, config, files)
        self.moved: Mapping[Path, Path] = {}
        self.left_out: frozenset[Path] = frozenset()
        self.expiring = 0
        self.written_by = files.written_by

    # --- logs -----------------------------------------------------------------------------------------------------

    @cached_property
    def top(self) -> dict[str, DirEntry]:
        """The directory entries of the root by name, listed once."""
        if self.part is not None:
            return {}
        return {e.path.name: e for e in self.files.list(self.root)}

    @cached_property
    def commitlog_directories(self) -> list[Path]:
        """The commitlog directories: the configured paths, including read-only ones, else root/commitlog.

        A directory with several names is one. A broker that has a storePathCommitLog without a path opens none.
        """
        configured = self.config.paths(LOG_PATH)
        if not configured and not (self.config.complete and LOG_PATH in self.config.given):
            return [self.root / "commitlog"]
        found: dict[Path, Path] = {}
        for path in map(self._located, configured + self._read_only_paths()):
            found.setdefault(self.files.real_path(path), path)
        return list(found.values())

    def _read_only_paths(self) -> list[Path]:
        """Return the read-only paths, which a broker uses only if storePathCommitLog has several (CommitLog#<init>)."""
        return self.config.paths(READ_ONLY_PATHS) if self.config.has_several_paths(LOG_PATH) else []

    def _located(self, path: Path) -> Path:
        return path if path.is_absolute() else self.root / path

    @cached_property
    def missing_paths(self) -> list[Path]:
        """Configured commitlog or DLedger directories that do not exist."""
        paths = self.config.paths(LOG_PATH) + self._read_only_paths()
        paths += self.config.paths("storePathDLedgerCommitLog")
        return [p for p in map(self._located, paths) if not self.files.is_directory(p)]

    @cached_property
    def commitlog(self) -> MappedFileQueue | None:
        """The plain commitlog, which is the legacy part of a mixed store; None if it has no directory."""
        if self.part is not None:
            return self._log("commitlog") if self.part == "commitlog" else None
        dirs = [d for d in self.commitlog_directories if self.files.is_directory(d)]
        return self._log("commitlog", dirs).without_oldest(self.expiring) if dirs else None

    def _log(self, name: str, directories: Sequence[Path] = ()) -> MappedFileQueue:
        """Open a log in its directories; without them, the one that is this part of a store."""
        key, default, place = _LOGS[name]
        if not directories:
            return self._part_queue(name, default, key=key, place=place)
        size = self.config.given_int(key)
        return MappedFileQueue.open(name, directories, file_size=size, default=default, place=place, files=self.files)

    @cached_property
    def dledger(self) -> DLedgerFiles | None:
        """The DLedger part: the directory of the configured self id, else the first `dledger-*`; None without one."""
        if self.part == "dledger-group":
            return self.dledger_at(self.path)
        if self.part == "dledger":
            group, no_index = self.path.parent, MappedFileQueue("dledger-index", [], DLEDGER_INDEX_FILE_SIZE, [])
            return DLedgerFiles(group, group.name.removeprefix("dledger-"), self._log("dledger"), no_index, self.files)
        if self.part is not None:
            return None
        self_id = self.config.given.get("dLegerSelfId", "").strip()
        names = sorted(n for n, e in self.top.items() if n.startswith("dledger-") and e.directory)
        name = f"dledger-{self_id}" if self_id and f"dledger-{self_id}" in names else (names[0] if names else "")
        if not name:
            return None
        found = self.dledger_at(self.root / name)
        legacy = self.commitlog
        if self._has_no_dledger and legacy is not None and overlap_at(legacy, found.data) is not None:
            return None
        if legacy is not None and legacy.files:  # no DLedger file expires while the legacy commitlog has files
            return found
        return replace(found, data=found.data.without_oldest(self.expiring))

    def dledger_at(self, directory: Path) -> DLedgerFiles:
        """Return the DLedger files of a `dledger-<id>` directory."""
        configured = self.config.paths("storePathDLedgerCommitLog")
        data = self._log("dledger", [self._located(p) for p in configured] or [directory / "data"])
        index = MappedFileQueue.open(
            "dledger-index",
            [directory / "index"],
            file_size=DLEDGER_INDEX_FILE_SIZE,  # RocketMQ has no setting for it
            default=DLEDGER_INDEX_FILE_SIZE,
            files=self.files,
        )
        return DLedgerFiles(directory, directory.name.removeprefix("dledger-"), data, index, self.files)

    @cached_property
    def other_dledger(self) -> list[str]:
        """Names of all other `dledger-*` directories, which are not read."""
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

    @property
    def hole_before_dledger(self) -> tuple[int, int] | None:
        """The addresses between the commitlog and DLedger that no file holds, half-open; None if there are none.

        DLedger deletes no file while legacy files exist, so its entries must begin where the legacy log ends.
        """
        legacy, data = self.commitlog, self.dledger.data if self.dledger is not None else None
        if legacy is None or data is None or not legacy.files or not data.files or legacy.stop >= data.begin:
            return None
        return legacy.stop, data.begin

    def relist_logs(self) -> None:
        """Discard the cached listings of the logs, so that the next access lists them again."""
        for name in ("commitlog", "dledger", "overlap"):
            self.__dict__.pop(name, None)

    def relist_index(self) -> None:
        """Discard the cached listing of the index, so that the next access lists it again."""
        self.__dict__.pop("index_entries", None)

    def configured(self, config: BrokerConfig) -> Store:
        """Return the same store as a broker with other settings sees it."""
        other = Store(self.path, config, self.files)
        other.part, other.moved, other.left_out = self.part, self.moved, self.left_out
        other.expiring, other.written_by = self.expiring, self.written_by
        return other

    def rearranged(
        self, logs: Mapping[str, MappedFileQueue], moved: Mapping[Path, Path], left_out: Iterable[Path]
    ) -> Store:
        """Return this store as it will be after log files are renamed or removed.

        `logs` are the future logs by name, `moved` maps future to current paths, and `left_out` are the removed files.
        """
        other = copy.copy(self)
        other.moved = dict(moved)
        other.left_out = frozenset(left_out)
        other.__dict__["commitlog"] = logs.get("commitlog", self.commitlog)
        if self.dledger is not None:
            other.__dict__["dledger"] = replace(self.dledger, data=logs.get("dledger", self.dledger.data))
        return other

    def remembering(self) -> Store:
        """Return this store with files that are listed and read once; for a store that nothing changes meanwhile."""
        other = copy.copy(self)
        other.files = RememberedFiles(self.files)
        return other

    @property
    def is_rearranged(self) -> bool:
        """Whether this is a future view of the store, made by `rearranged`."""
        return bool(self.moved or self.left_out)

    @property
    def kind(self) -> StoreKind:
        """The kind of this store."""
        if self.part is not None:
            return StoreKind.PART
        if self.rocksdb_consume_queue:
            return StoreKind.ROCKSDB
        if self.dledger is not None and (self.dledger.data.files or self.commitlog is None):
            return StoreKind.MIXED if self.commitlog is not None and self.commitlog.files else StoreKind.DLEDGER
        return StoreKind.PLAIN

    @property
    def controller_files(self) -> list[str]:
        """Names of the files that only a broker in controller mode writes: its epochs and its identity."""
        return sorted(CONTROLLER_FILES & self.top.keys())

    @cached_property
    def rocksdb_config(self) -> list[str]:
        """Names of the RocksDB directories in config/ (config v1 or v2)."""
        config = self.root / "config"
        return sorted(e.path.name for e in self.files.list(config) if e.directory and has_database(self.files, e.path))

    @cached_property
    def may_have_message_rows(self) -> bool:
        """Whether rocksdbstore/ may have rows of timed messages, half messages or the index, by its files.

        A broker that never writes any leaves an empty write-ahead log and no table.
        """
        if self.part is not None:
            return False
        try:
            return any(e.length and e.path.suffix in _ROW_FILES for e in self.files.list(self.root / MESSAGE_ROWS))
        except OSError:
            return True

    @property
    def has_rocksdb(self) -> bool:
        """Whether the store has any RocksDB: consume queues (also beside queue files), configuration, or the part."""
        if self.part is not None:
            return self.files.is_file(self.path / "CURRENT")
        return self.rocksdb_consume_queue or self.rocksdb_beside or bool(self.rocksdb_config)

    @property
    def has_pop_rows(self) -> bool:
        """Whether the store has a database of messages that POP consumers have received (kvStore/)."""
        return self.part is None and "kvStore" in self.top and has_database(self.files, self.root / "kvStore")

    @property
    def logs(self) -> list[tuple[MappedFileQueue, int]]:
        """The logs that have files, with the bytes before each message: the commitlog (0), DLedger's data (48)."""
        logs = ((self.commitlog, 0), (self.dledger.data if self.dledger is not None else None, ENTRY.size))
        return [(queue, body_offset) for queue, body_offset in logs if queue is not None and queue.files]

    @property
    def log_start(self) -> int:
        """The first log offset of the store (bytes); 0 without a log."""
        return next((queue.start for queue, _ in self.logs), 0)

    @property
    def log_bytes(self) -> int:
        """The bytes that a pass over the log reads: size on disk of the commitlog and of DLedger's data."""
        return sum(queue.bytes_on_disk for queue, _ in self.logs)

    # --- index, timer log and single files ------------------------------------------------------------------------

    @cached_property
    def index_entries(self) -> list[DirEntry]:
        """All directory entries of index/, sorted by name."""
        if self.part == "index":
            if self.files.is_directory(self.path):
                return self.files.list(self.path)
            return [e for e in self.files.list(self.path.parent) if e.path.name == self.path.name]
        return [] if self.part is not None else self.files.list(self.root / "index")

    @property
    def index_files(self) -> list[DirEntry]:
        """The files that can be opened as index files, by name and kind (IndexService#load)."""
        return [e for e in self._numeric_index_entries() if _can_be_index_file(e)]

    @property
    def index_strays(self) -> list[DirEntry]:
        """Entries of index/ with numeric names that cannot be opened: the load of 5.0 and newer fails at them."""
        return [e for e in self._numeric_index_entries() if not _can_be_index_file(e)]

    def _numeric_index_entries(self) -> list[DirEntry]:
        return [e for e in self.index_entries if e.path.name.isascii() and e.path.name.isdigit()]

    @cached_property
    def timer_log(self) -> MappedFileQueue | None:
        """The timer log; None without timerlog/."""
        if self.part is not None:
            return self._log("timerlog") if self.part == "timerlog" else None
        directory = self.root / "timerlog"
        return self._log("timerlog", [directory]) if self.files.is_directory(directory) else None

    @property
    def abort(self) -> bool:
        """Whether `abort` exists: the last shutdown was not clean, or a broker is running."""
        return "abort" in self.top

    @property
    def checkpoint(self) -> DirEntry | None:
        """The directory entry of the store checkpoint; None without one."""
        return self.top.get("checkpoint")

    def lock_state(self) -> LockState:
        """Query the broker's lock without taking it (F_GETLK on a read-only descriptor)."""
        if not self.files.on_this_machine:
            return LockState(self.files.exists(self.root / LOCK_NAME), False)
        return lock_state(self.root / LOCK_NAME)

    @cached_property
    def linked_parts(self) -> list[DirEntry]:
        """The links at the top that a broker follows to the directory of a part, sorted by name."""
        own = self.files.real_path(self.root)
        links = (e for name, e in sorted(self.top.items()) if e.link is not None and e.directory and _is_part(name))
        return [entry for entry in links if not own.is_relative_to(self.files.real_path(entry.path))]

    @cached_property
    def followed(self) -> list[DirEntry]:
        """The links of parts that stay in the store, or lead to a directory that the user named.

        A link proves nothing: whoever may write to the store can set one. What hands bytes to others, or changes them,
        follows no other link.
        """
        named = [self.root, *self.config.roots, *self._configured_logs]
        places = [self.files.real_path(path) for path in named]
        real = {entry.path: self.files.real_path(entry.path) for entry in self.linked_parts}
        return [e for e in self.linked_parts if any(real[e.path].is_relative_to(place) for place in places)]

    @property
    def not_followed(self) -> list[DirEntry]:
        """The links of parts that lead out of the store, to a directory that the user did not name."""
        return [entry for entry in self.linked_parts if entry not in self.followed]

    def own_files(self) -> OwnFiles:
        """Return the files of this store, of this machine, without what its other links lead to."""
        places = [self.root, *(entry.path for entry in self.followed), *self._configured_logs]
        return OwnFiles(self.files, places if self.part is None else [self.path.parent, self.path])

    @property
    def _configured_logs(self) -> list[Path]:
        """The directories of logs that broker.conf names, and not the store."""
        paths = [*self.config.paths(LOG_PATH), *self._read_only_paths()]
        return [self._located(path) for path in (*paths, *self.config.paths("storePathDLedgerCommitLog"))]

    @property
    def places(self) -> list[Path]:
        """Real paths of all directories with files of this store: the root, links that are followed, other logs."""
        found = [self.root, *(entry.path for entry in self.followed), *self._configured_logs]
        places: list[Path] = []
        for path in found:
            real = self.files.real_path(path)
            if self.files.exists(path) and not any(real.is_relative_to(known) for known in places):
                places.append(real)
        return places

    def users(self) -> Users:
        """Find the processes that have files of this store mapped or open for writing."""
        from rmqstore.files.users import Users, find_users, snapshot

        if not self.files.on_this_machine:
            return Users()
        places = list(dict.fromkeys([*self.places, *(self.files.real_path(e.path) for e in self.linked_parts)]))
        return find_users(places, snapshot(places))

    def is_live(self) -> bool:
        """Return whether a process holds the store's lock, or has one of its files mapped or open for writing.

        The lock alone proves little: a broker takes it only after load and recovery.
        """
        return self.lock_state().held or bool(self.users().seen)

    @property
    def journal_directory(self) -> Path:
        """The directory for the journals of repairs."""
        return self.root / ".rmqstore"

    def relative(self, path: Path) -> str:
        """Format a path for reports: relative to the root if it is below it."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


S = TypeVar("S", bound=Store)
_MAY_BE_OTHERS = (None, "dledger", "dledger-group", "dledger-index")
_PACKED = (".bz2", ".gz", ".lz4", ".tar", ".tgz", ".xz", ".zip", ".zst")


def _can_be_index_file(entry: DirEntry) -> bool:
    return not entry.directory and not entry.special and len(entry.path.name) >= INDEX_NAME_DIGITS


def open_store(path: Path | str, config: BrokerConfig | None = None, files: Files = LOCAL) -> Store:
    """Open a store, or a part of one, and determine which it is.

    `path` takes precedence over storePathRootDir of `config`. All files are read through `files`.
    Errors: NotReadable (missing, no permission), NotAStore (neither a RocketMQ store nor a part of one).
    """
    return recognised(Store(path if isinstance(path, Path) else Path(path), config or BrokerConfig(), files=files))


def recognised(store: S) -> S:
    """Set `part` of a store by examining its path, and return the store. Errors: as `open_store`."""
    path, config, files = store.path, store.config, store.files
    if files.on_this_machine and (address := str(path) if is_snapshot_address(path) else address_in_repository(path)):
        raise NotAStore(
            Text("{path} belongs to a repository of backups", path=path),
            Text(
                "read it as {address}; `rmqstore restore {address} DIR` makes a store of it",
                address=shlex.quote(address),
            ),
        )
    try:
        entry = files.stat(path)
    except OSError as e:
        raise NotReadable(about(path, e)) from None
    if entry is None or entry.dangling:
        raise NotReadable(Text("{path}: no such file or directory", path=path))
    if entry.unreadable:
        raise NotReadable(about(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP))))
    if entry.special:
        raise NotAStore(Text("{path} is neither a directory nor a file", path=path))
    try:
        if not entry.directory:
            store.part = kind_of_file(files, path)
        elif not is_root(files, path, config):
            store.part = kind_of_directory(files, path)
    except PermissionError as e:
        raise NotReadable(Text("{filename}: permission denied", filename=e.filename)) from None
    other = not_messages(files, path) if store.part in _MAY_BE_OTHERS else ""
    if other:
        foreign = Text("{path} is not a broker's store: the DLedger log in it contains {other}, not messages")
        raise NotAStore(
            foreign.format(path=path, other=other),
            Text("name the storePathRootDir of a broker; nothing here is verified or repaired"),
        )
    if store.part is not None and is_of_compaction(files, path):
        whole = Text("{path} is a part of compaction/, whose logs and queues are only read with their store")
        raise NotAStore(whole.format(path=path), Text("name the store: `rmqstore verify STORE` checks them"))
    if store.part is not None and not entry.directory and is_of_client(path):
        of_client = Text("{path} is the progress of a broadcasting client (LocalFileOffsetStore): no broker reads it")
        raise NotAStore(of_client.format(path=path), Text("name the storePathRootDir of a broker"))
    if store.part == "":
        found = store_below(files, path, config)
        advice = (Text("did you mean {found}?", found=found),) if found is not None else ()
        if not entry.directory and path.suffix in _PACKED:
            advice = (Text("unpack it first"),)
        raise NotAStore(Text("{path} is neither a RocketMQ store nor a part of one", path=path), *advice)
    return store


T = TypeVar("T")
_TRIES = 12


def paths_that_miss(store: Store) -> list[tuple[Path, bool]]:
    """Return configured log paths that should exist but do not, and whether each is a DLedger path."""
    out = []
    dledger = store.config.bool("enableDLegerCommitLog")
    dledger |= store.dledger is not None and bool(store.dledger.data.files)
    dledger_paths = set(store.config.paths("storePathDLedgerCommitLog"))
    log_paths = store.config.paths(LOG_PATH)
    for path in store.missing_paths:
        given = [p for p in dledger_paths if p == path or store.root / p == path]
        if given and not store.config.bool("enableDLegerCommitLog"):
            continue
        # a pure DLedger store has no commitlog directory, and a store that never ran does not have one yet
        if not given and len(log_paths) == 1 and (dledger or not store.top):
            continue
        out.append((path, bool(given)))
    return out


def while_files_expire(store: Store, work: Callable[[Store], T]) -> T:
    """Return the result of the work. Errors: those of the work; StoreIsLive if files expire faster than it ends."""
    expiring = store.expiring
    for _ in range(_TRIES):
        try:
            return work(store)
        except FileNotFoundError as error:
            if store.part is not None or not _expired(error, store) or not store.is_live():
                raise
        expiring = 2 * expiring + 1
        store = open_store(store.path, store.config, store.files)
        store.expiring = expiring
    raise StoreIsLive(Text("{path}: files of its log expire faster than they are read", path=store.path))


def _expired(error: FileNotFoundError, store: Store) -> bool:
    """Return whether the missing file belongs to the store."""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return False
    path = Path(os.fsdecode(error.filename)).absolute()
    roots = (store.path.absolute(), *store.places)
    real = store.files.real_path(path)
    return any(path.is_relative_to(root) or real.is_relative_to(root) for root in roots)


BROKER_NAMES = frozenset(
    {
        *("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "consumequeue_rocksdb", "index"),
        *("config", "checkpoint", "abort", "lock", "compaction", "rocksdbstore", "kvStore", "tiered_index_file"),
        *("timerlog", "timerwheel", "timercheck", "epochFileCheckpoint", "brokerIdentity", "brokerIdentity-temp"),
    }
)
_BROKER_NAME = re.compile(r"dledger-.+|timerwheel\.\d+|(epochFileCheckpoint|brokerIdentity)(-temp)?\.(bak|tmp)")
_OPERATOR_NAME = re.compile(
    r"lost\+found|\.DS_Store|\._.*|\.nfs.*|\.snapshot|\.Trash.*|\.directory|Thumbs\.db|desktop\.ini|\.keep|\.gitkeep"
    r"|logs?|rocketmqlogs|.*\.(log|txt|md|conf|properties|yml|yaml|xml|sh|pid|out|swp|swo|hprof|html|json|ndjson|csv)"
    r"|.*\.(tar|gz|tgz|zip|bz2|xz|zst|lz4)|.*~|#.*#|\.#.*|hs_err.*|nohup\.out|core(\.\d+)?",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"(?P<of>.+?)[ ._~-]+\(?(bak|back.*|old|orig.*|sav.*|copy|tmp|broken|corrupt.*|bad|damaged|\d+).*", re.I
)
_DEPTH, _MOST = 3, 2000
_OFFSET_NAME = re.compile(r"\d{17}|\d{20}")


class UnknownEntry(NamedTuple):
    """An entry that no broker creates. `holds`: why it may hold positions in the log; "" if it cannot."""

    entry: DirEntry
    holds: str

    @property
    def name(self) -> str:
        return self.entry.path.name

    @property
    def words(self) -> str:
        """What the reports say about it."""
        if self.holds:
            return Text("{name}: unknown, {holds}: it may hold positions in the log", name=self.name, holds=self.holds)
        return Text("{name} is not a broker file", name=self.name)


def unknown_entries(store: Store) -> list[UnknownEntry]:
    """Return the entries at the top of a whole store that neither brokers nor operators are known to create."""
    own = {path.absolute() for path in store.commitlog_directories}
    if store.dledger is not None:
        own |= {path.absolute() for path in store.dledger.data.directories}
    found, guarded = [], store.own_files()
    for name, entry in store.top.items():
        known = name == store.journal_directory.name or _is_known(name)
        if not known and not any(path.is_relative_to(entry.path.absolute()) for path in own):
            back = entry.link is not None and guarded.leads(entry) is Leads.AROUND  # to the store itself
            found.append(UnknownEntry(entry, "" if back else _holds(store.files, entry)))
    return found


def _is_part(name: str) -> bool:
    return name in BROKER_NAMES or _BROKER_NAME.fullmatch(name) is not None


def _is_known(name: str) -> bool:
    if _is_part(name) or _OPERATOR_NAME.fullmatch(name):
        return True
    copy = _COPY.fullmatch(name)
    return copy is not None and (copy["of"] in BROKER_NAMES or _BROKER_NAME.fullmatch(copy["of"]) is not None)


def _holds(files: Files, entry: DirEntry) -> str:
    if not entry.directory:
        return Text("its name is an offset") if _OFFSET_NAME.fullmatch(entry.path.name) else ""
    left = _MOST
    folders = [(entry.path, _DEPTH)]
    while folders:
        folder, depth = folders.pop()
        try:
            entries = files.list(folder)
        except OSError:
            return Text("it cannot be read")
        names = [e.path.name for e in entries]
        if "CURRENT" in names or any(name.startswith("MANIFEST-") and is_database_file(name) for name in names):
            return Text("it contains a RocksDB")
        if any(_OFFSET_NAME.fullmatch(e.path.name) and not e.directory for e in entries):
            return Text("it contains files named by offset")
        left -= len(entries)
        below = [e.path for e in entries if e.directory and e.link is None]
        if left < 0 or (below and depth == 0):
            return Text("it is too large to be looked through")
        folders += [(path, depth - 1) for path in below]
    return ""
