"""The files of a store beside its log: configuration, epochs, timers and whatever cannot be derived from the log.

They are stored in chunks by content, so that a file that changes in a few places adds only these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rmqstore.backup.manifest import OtherFile, config_key
from rmqstore.backup.repository import StoreFolder
from rmqstore.errors import CouldNotCheck, OutputExists
from rmqstore.files.files import DirEntry
from rmqstore.files.lock import LOCK_NAME
from rmqstore.files.rocksdb.links import database_files
from rmqstore.files.store import Store
from rmqstore.files.store_queues import SEPARATE, SHARED, has_database
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.texts import Text

CHUNK = 1 << 20
_DERIVED = frozenset(
    {SHARED, SEPARATE, "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "abort", LOCK_NAME}
    | {JOURNAL_FOLDER, "lost+found"}
)
"""Entries of the root that are rebuilt from the log, or belong to a running process."""
_LATER = ("topics", "subscriptionGroup", "topicQueueMapping", "metadata", "rdb", "epochFileCheckpoint")
"""Beginnings of the names of what is read after the end of the log: no message may lack its topic."""
_TRIES = 5


class OtherFiles:
    """Copies the other files of a store; a file that has not changed since `before` is not read."""

    def __init__(self, store: Store, folder: StoreFolder, before: Iterable[OtherFile]) -> None:
        self.store = store
        self.folder = folder
        self.before: Mapping[str, OtherFile] = {other.path: other for other in before}
        self.known = {digest for other in self.before.values() for digest, _ in other.chunks}
        self.new_bytes = 0
        self.found: list[OtherFile] = []

    def copy_before_log(self) -> None:
        """Copy what refers to the log: nothing in it may be later than the log's end, which is read afterwards."""
        self._copy(later=False)

    def copy_after_log(self) -> None:
        """Copy what messages of the log refer to."""
        self._copy(later=True)

    def _copy(self, *, later: bool) -> None:
        logs = {*self.store.commitlog_directories}
        if self.store.dledger is not None:
            logs |= {*self.store.dledger.data.directories, *self.store.dledger.index.directories}
        for entry in self.store.files.list(self.store.root):
            if entry.path.name in _DERIVED or entry.special or entry.unreadable or entry.path in logs:
                continue
            if entry.path.name == "commitlog":  # not the log itself, where storePathCommitLog names other directories
                continue
            self._entry(entry, later, logs)

    def _entry(self, entry: DirEntry, later: bool, logs: set[Path]) -> None:
        if entry.path in logs or entry.special or entry.unreadable:
            return
        if entry.directory:
            if has_database(self.store.files, entry.path):
                if entry.path.name.startswith(_LATER) is later:
                    self.found += self._database(entry.path)
                return
            for below in self.store.files.list(entry.path):
                self._entry(below, later, logs)
        elif entry.path.name.startswith(_LATER) is later:
            copied = self._file(entry.path, entry.length, entry.mtime_ns)
            self.found += [copied] if copied is not None else []

    def _database(self, directory: Path) -> list[OtherFile]:
        """Copy a RocksDB: again, if files appeared or disappeared meanwhile.

        Tables never change, and the ends of a manifest and of a write-ahead log may be missing: RocksDB reads both up
        to their last complete record. Errors: CouldNotCheck if files keep changing.
        """
        for _ in range(_TRIES):
            listed = database_files(self.store.files, directory)
            names = [name for name, _, _ in listed]
            copied = [self._file(directory / name, length, mtime) for name, length, mtime in listed]
            if None not in copied and names == [name for name, _, _ in database_files(self.store.files, directory)]:
                return [one for one in copied if one is not None]
        raise CouldNotCheck(
            Text("{directory}: its files change faster than they are read", directory=directory),
            Text("run the command again"),
        )

    def _file(self, path: Path, length: int, mtime_ns: int) -> OtherFile | None:
        """Copy one file; None if it disappeared."""
        relative = path.relative_to(self.store.root).as_posix()
        old = self.before.get(relative)
        if old is not None and (old.size, old.mtime_ns) == (length, mtime_ns) and mtime_ns:
            return old
        for _ in range(_TRIES):  # a broker replaces a configuration file by deleting and renaming
            try:
                chunks = tuple(self._chunks(path))
            except FileNotFoundError:
                continue
            return OtherFile(relative, mtime_ns, chunks)
        return None

    def _chunks(self, path: Path) -> Iterator[tuple[str, int]]:
        with self.store.files.open(path) as file:
            at = 0
            while data := file.read(CHUNK, at):
                at += len(data)
                yield self._store(data), len(data)

    def _store(self, data: bytes) -> str:
        if data[:1] == b"\0" and not data.lstrip(b"\0"):
            return ""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.known:
            key = self.folder.key(config_key(digest))
            if self.folder.storage.size(key) is None:
                with suppress(OutputExists):
                    self.folder.storage.create(key, data)
                self.new_bytes += len(data)
            self.known.add(digest)
        return digest
