"""Store: recognises a directory (plain, DLedger, mixed, RocksDB, a part, a single file) and lists what is in it.

Opening reads directory listings only; no file of the store is opened. Sources: StorePathConfigHelper,
DefaultMessageStore#load, DLedgerCommitLog, MultiPathMappedFileQueue (RocketMQ 5.4.0).
"""

from __future__ import annotations

import copy
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rmqstore.errors import NotAStore, NotReadable
from rmqstore.files.broker_config import (
    BATCH_FILE_SIZE,
    COMMITLOG_FILE_SIZE,
    CONSUME_QUEUE_FILE_SIZE,
    DLEDGER_INDEX_FILE_SIZE,
    EXT_FILE_SIZE,
    TIMER_LOG_FILE_SIZE,
    BrokerConfig,
)
from rmqstore.files.lock import LockState, lock_state, user_of
from rmqstore.files.mapped_file_queue import (
    DirEntry,
    MappedFileQueue,
    file_name_to_offset,
    infer_file_size,
    list_directory,
)
from rmqstore.files.recognise import is_root, kind_of_directory, kind_of_file, store_below
from rmqstore.formats import consumequeue
from rmqstore.formats.dledger import SNAPSHOTS

_ROCKSDB_NAMES = ("CURRENT", "IDENTITY")
_INDEX_NAME_DIGITS = 17


class StoreKind(StrEnum):
    """What kind of store a directory is; `PART` is one queue, one directory of a store, or one file."""

    PLAIN = "plain"
    DLEDGER = "dledger"
    MIXED = "mixed"
    ROCKSDB = "rocksdb"
    PART = "part"


class QueueKind(StrEnum):
    """Which unit a queue directory holds."""

    SIMPLE = "simple"
    BATCH = "batch"
    EXT = "ext"
    COMPACTION_CQ = "compaction-cq"
    COMPACTION_LOG = "compaction-log"


UNIT_SIZE = {
    QueueKind.SIMPLE: consumequeue.UNIT.size,
    QueueKind.BATCH: consumequeue.BATCH_UNIT.size,
    QueueKind.EXT: 1,
    QueueKind.COMPACTION_CQ: consumequeue.BATCH_UNIT.size,
    QueueKind.COMPACTION_LOG: 1,
}


class ConsumeQueueFiles(NamedTuple):
    """One queue of a topic: its kind and its files. `queue.file_size` is in bytes."""

    topic: str
    queue_id: int
    kind: QueueKind
    queue: MappedFileQueue

    @property
    def label(self) -> str:
        """`TOPIC/ID`, the name of the queue in reports."""
        return f"{self.topic}/{self.queue_id}"


class StrayEntry(NamedTuple):
    """An entry of consumequeue/, of a topic directory or of index/ that the broker did not make there."""

    path: Path
    directory: bool
    length: int


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

    @property
    def last_snapshot(self) -> int | None:
        """Index of the last entry in the newest snapshot; None where there is none."""
        names = [e.path.name for e in list_directory(self.directory / SNAPSHOTS) if e.directory]
        numbers = [n.removeprefix("snapshot_") for n in names if n.startswith("snapshot_")]
        return max((int(n) for n in numbers if n.isascii() and n.isdigit() and len(n) < 20), default=None)


class Store:
    """A store directory, or a part of one.

    `path` is what was asked for, `root` the storePathRootDir when it is a whole store (else the same as `path`).
    `links` are symbolic links at the top that were followed. `moved`: files that this store has under another name
    (then) than the disk (now), see `rearranged`.
    """

    def __init__(self, path: Path, config: BrokerConfig, *, follow_config_paths: bool = True) -> None:
        self.path = path
        self.root = path
        self.config = config
        self.part: str | None = None
        self.moved: Mapping[Path, Path] = {}
        self._follow = follow_config_paths
        self._queue_sizes: dict[QueueKind, int | None] = {}

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
            extra = [p for p in self.config.paths("readOnlyCommitLogStorePaths") if p not in configured]
            return [self._located(p) for p in configured + extra]
        return [self.root / "commitlog"]

    def _located(self, path: Path) -> Path:
        return path if path.is_absolute() else self.root / path

    @cached_property
    def missing_paths(self) -> list[Path]:
        """Configured commitlog or DLedger paths that are not there."""
        keys = ("storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathDLedgerCommitLog")
        if not self._follow:
            return []
        return [p for k in keys for p in map(self._located, self.config.paths(k)) if not p.is_dir()]

    @cached_property
    def commitlog(self) -> MappedFileQueue | None:
        """The plain commitlog (in a mixed store: its legacy part); None when there is no directory for it."""
        if self.part == "commitlog":
            return self._part_queue("commitlog", COMMITLOG_FILE_SIZE, key="mappedFileSizeCommitLog")
        if self.part is not None:
            return None
        dirs = [d for d in self.commitlog_directories if d.is_dir()]
        if not dirs:
            return None
        return MappedFileQueue.open(
            "commitlog",
            dirs,
            file_size=self.config.given_int("mappedFileSizeCommitLog"),
            default=COMMITLOG_FILE_SIZE,
        )

    @cached_property
    def dledger(self) -> DLedgerFiles | None:
        """The DLedger part: the configured self id's directory, else the first `dledger-*` there is."""
        if self.part == "dledger-group":
            return self.dledger_at(self.path)
        if self.part == "dledger":
            data = self._part_queue("dledger", COMMITLOG_FILE_SIZE, key="mappedFileSizeCommitLog")
            none = MappedFileQueue("dledger-index", [], DLEDGER_INDEX_FILE_SIZE, [])
            return DLedgerFiles(self.path.parent, self.path.parent.name.removeprefix("dledger-"), data, none)
        if self.part is not None:
            return None
        wanted = self.config.given.get("dLegerSelfId", "").strip()
        names = sorted(n for n, e in self.top.items() if n.startswith("dledger-") and e.directory)
        name = f"dledger-{wanted}" if wanted and f"dledger-{wanted}" in names else (names[0] if names else "")
        if not name:
            return None
        return self.dledger_at(self.root / name)

    def dledger_at(self, directory: Path) -> DLedgerFiles:
        """The DLedger files under a `dledger-<id>` directory."""
        configured = self.config.paths("storePathDLedgerCommitLog") if self._follow else []
        dirs = [self._located(p) for p in configured] or [directory / "data"]
        data = MappedFileQueue.open(
            "dledger",
            dirs,
            file_size=self.config.given_int("mappedFileSizeCommitLog"),
            default=COMMITLOG_FILE_SIZE,
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

    def rearranged(self, logs: Mapping[str, MappedFileQueue], moved: Mapping[Path, Path]) -> Store:
        """This store as it will be when files of its logs have other names; their bytes are read where they are now."""
        other = copy.copy(self)
        other.moved = dict(moved)
        other.__dict__["commitlog"] = logs.get("commitlog", self.commitlog)
        if self.dledger is not None:
            other.__dict__["dledger"] = replace(self.dledger, data=logs.get("dledger", self.dledger.data))
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
    def rocksdb_consume_queue(self) -> bool:
        """Whether consumequeue/ holds a RocksDB (storeType=defaultRocksDB or a combined store)."""
        directory = self.root / "consumequeue"
        return self.part is None and (
            all((directory / n).is_file() for n in _ROCKSDB_NAMES) or any(True for _ in directory.glob("MANIFEST-*"))
        )

    @cached_property
    def rocksdb_config(self) -> list[str]:
        """Names under config/ that are RocksDB directories (config v1 or v2)."""
        config = self.root / "config"
        return sorted(e.path.name for e in list_directory(config) if e.directory and (e.path / "CURRENT").is_file())

    @property
    def has_rocksdb(self) -> bool:
        """Whether anything here is a RocksDB: consume queues, a directory of config/, or the part itself."""
        if self.part is not None:
            return (self.path / "CURRENT").is_file()
        return self.rocksdb_consume_queue or bool(self.rocksdb_config)

    # --- consume queues -------------------------------------------------------------------------------------------

    def queue_directories(self, kind: QueueKind) -> Iterator[tuple[str, int, Path]]:
        """(topic, queue id, directory) of every queue directory of a kind, sorted; a name that is no id is left out."""
        if self.part is not None:
            yield from self._part_queue_directories(kind)
            return
        for topic in list_directory(self.root / _PARENT[kind]):
            if not topic.directory:
                continue
            ids = []
            for entry in list_directory(topic.path):
                queue_id = file_name_to_offset(entry.path.name)
                if entry.directory and queue_id is not None and queue_id <= 0x7FFFFFFF:
                    ids.append((queue_id, entry.path))
            for queue_id, path in sorted(ids):
                yield topic.path.name, queue_id, path

    def _part_queue_directories(self, kind: QueueKind) -> Iterator[tuple[str, int, Path]]:
        path = self.path.absolute()
        tree = {QueueKind.SIMPLE: "consumequeue", QueueKind.BATCH: "batchconsumequeue"}.get(kind)
        if tree is None:
            return
        inside = [p.name for p in path.parents]
        batch = "batchconsumequeue" in (path.name, *inside)
        if batch != (kind is QueueKind.BATCH):
            return
        if self.part in ("consumequeue-tree", "batchconsumequeue-tree"):
            topics = [e.path for e in list_directory(path) if e.directory]
        elif self.part == "topic":
            topics = [path]
        elif self.part == "consumequeue" or (self.part == "batchconsumequeue" and path.is_dir()):
            directory = path if path.is_dir() else path.parent
            queue_id = file_name_to_offset(directory.name)
            yield directory.parent.name, queue_id if queue_id is not None else -1, directory
            return
        else:
            return
        for topic in topics:
            for entry in list_directory(topic):
                queue_id = file_name_to_offset(entry.path.name)
                if entry.directory and queue_id is not None:
                    yield topic.name, queue_id, entry.path

    def _part_queue(self, name: str, default: int, unit: int = 1, key: str = "") -> MappedFileQueue:
        """The queue of files that a part is: a directory of them, or one file."""
        given = self.config.given_int(key) if key else None
        if self.path.is_dir():
            return MappedFileQueue.open(name, [self.path], file_size=given, default=default, unit=unit)
        return MappedFileQueue.of_file(name, self.path, file_size=given, default=default, unit=unit)

    def consume_queues(self, *kinds: QueueKind) -> Iterator[ConsumeQueueFiles]:
        """Every queue of the given kinds (default: simple and batch), listed one at a time."""
        for kind in kinds or (QueueKind.SIMPLE, QueueKind.BATCH):
            size = self.queue_file_size(kind)
            if self.part in ("consumequeue", "batchconsumequeue") and self.path.is_file():
                for topic, queue_id, _ in self.queue_directories(kind):
                    name = f"{_PARENT[kind]}/{topic}/{queue_id}"
                    one = self._part_queue(name, _QUEUE_DEFAULT[kind], UNIT_SIZE[kind])
                    yield ConsumeQueueFiles(topic, queue_id, kind, one)
                continue
            for topic, queue_id, path in self.queue_directories(kind):
                queue = MappedFileQueue.open(
                    f"{_PARENT[kind]}/{topic}/{queue_id}",
                    [path],
                    file_size=size,
                    default=_QUEUE_DEFAULT[kind],
                    unit=UNIT_SIZE[kind],
                )
                yield ConsumeQueueFiles(topic, queue_id, kind, queue)

    def consume_queue(self, topic: str, queue_id: int, kind: QueueKind = QueueKind.SIMPLE) -> ConsumeQueueFiles:
        """One queue, there or not."""
        path = self.root / _PARENT[kind] / topic / str(queue_id)
        queue = MappedFileQueue.open(
            f"{_PARENT[kind]}/{topic}/{queue_id}",
            [path],
            file_size=self.queue_file_size(kind),
            default=_QUEUE_DEFAULT[kind],
            unit=UNIT_SIZE[kind],
        )
        return ConsumeQueueFiles(topic, queue_id, kind, queue)

    def queue_file_size(self, kind: QueueKind) -> int | None:
        """File size of all queues of a kind: configured, else what most files of all queues have, else None.

        Units: bytes. A broker has one size for all queues, so one odd queue cannot mislead this.
        """
        if kind not in self._queue_sizes:
            self._queue_sizes[kind] = self._find_queue_file_size(kind)
        return self._queue_sizes[kind]

    def _find_queue_file_size(self, kind: QueueKind) -> int | None:
        key = {
            QueueKind.SIMPLE: "mappedFileSizeConsumeQueue",
            QueueKind.BATCH: "mapperFileSizeBatchConsumeQueue",
            QueueKind.EXT: "mappedFileSizeConsumeQueueExt",
        }.get(kind)
        unit = UNIT_SIZE[kind]
        if key is not None:
            given = self.config.given_int(key)
            if given:
                # the getter rounds up to whole units (MessageStoreConfig#getMappedFileSizeConsumeQueue)
                return -(-given // unit) * unit if kind is QueueKind.SIMPLE else given
        seen: list[DirEntry] = []
        for n, (_, _, path) in enumerate(self.queue_directories(kind)):
            seen.extend(list_directory(path))
            if n >= 512:
                break
        if not seen:
            return None
        size, how = infer_file_size(seen, _QUEUE_DEFAULT[kind], unit)
        return None if how == "default" else size

    @cached_property
    def strays(self) -> list[StrayEntry]:
        """Entries beside topic and queue directories that no broker makes."""
        out: list[StrayEntry] = []
        for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
            parent = self.root / _PARENT[kind]
            if self.part is not None or (kind is QueueKind.SIMPLE and self.rocksdb_consume_queue):
                continue
            for topic in list_directory(parent):
                if not topic.directory:
                    out.append(StrayEntry(topic.path, False, topic.length))
                    continue
                for entry in list_directory(topic.path):
                    number = file_name_to_offset(entry.path.name)
                    if not entry.directory or number is None:
                        out.append(StrayEntry(entry.path, entry.directory, entry.length))
        return out

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
        """Whether the last exit was not clean; `abort.bak` is no sign of it."""
        return "abort" in self.top

    @property
    def checkpoint(self) -> DirEntry | None:
        """The store checkpoint's entry."""
        return self.top.get("checkpoint")

    def lock_state(self) -> LockState:
        """Whether a broker holds the lock, asked with F_GETLK on a read-only descriptor; never tried to be taken."""
        return lock_state(self.root / "lock")

    def is_live(self) -> bool:
        """Whether a broker runs on this store: it holds the lock, or a process has a file of the store open or mapped.

        The lock alone proves little: a broker takes it only behind load and recovery.
        """
        return self.lock_state().held or user_of(self.root) is not None

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


_PARENT = {
    QueueKind.SIMPLE: "consumequeue",
    QueueKind.BATCH: "batchconsumequeue",
    QueueKind.EXT: "consumequeue_ext",
    QueueKind.COMPACTION_CQ: "compaction/compactionCq",
    QueueKind.COMPACTION_LOG: "compaction/compactionLog",
}
_QUEUE_DEFAULT = {
    QueueKind.SIMPLE: CONSUME_QUEUE_FILE_SIZE,
    QueueKind.BATCH: BATCH_FILE_SIZE,
    QueueKind.EXT: EXT_FILE_SIZE,
    QueueKind.COMPACTION_CQ: 10_485_746,
    QueueKind.COMPACTION_LOG: 104_857_600,
}


def open_store(path: Path | str, config: BrokerConfig | None = None) -> Store:
    """Recognise what a path is.

    With a config whose storePathRootDir differs the path given wins. Links at the top are followed.
    Errors: NotReadable (missing, no permission), NotAStore (nothing of RocketMQ's there).
    """
    path = Path(path)
    config = config or BrokerConfig()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise NotReadable(f"{path}: no such file or directory") from None
    except OSError as e:
        raise NotReadable(f"{path}: {e.strerror or e}") from None
    store = Store(path, config)
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
