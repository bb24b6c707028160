"""backup: add a snapshot of a store to a repository.

The parts are read in an order in which nothing refers to what comes later: consumer offsets, delay offsets and timers,
then the log up to its present end, then topics and groups. Small files are stored in chunks by content, so that a file
that changes in a few places adds only these.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rmqstore.backup.keeping import KeepRule
from rmqstore.backup.log_copy import CopyOptions, LogCopier
from rmqstore.backup.manifest import (
    CHUNK,
    DERIVED,
    MOST_OF_ONE,
    BranchStart,
    LeftLink,
    LogCopy,
    Manifest,
    OtherFile,
    config_key,
    layout_of,
)
from rmqstore.backup.repository import Forgotten, StoreFolder, now
from rmqstore.checks.misplaced_files import find_misplaced
from rmqstore.checks.problems import codes
from rmqstore.errors import CouldNotCheck, NotAStore, OutputExists, UsageError
from rmqstore.files.files import DirEntry
from rmqstore.files.own_store import own_store
from rmqstore.files.rocksdb.links import database_files
from rmqstore.files.store import Store, open_store, while_files_expire
from rmqstore.files.store_queues import has_database
from rmqstore.files.walk import Leads, OwnFiles, walk
from rmqstore.texts import Text

_LATER = ("topics", "subscriptionGroup", "topicQueueMapping", "metadata", "rdb", "epochFileCheckpoint")
"""Beginnings of the names of what is read after the end of the log: no message may lack its topic."""
_TRIES = 5
_HOLE_ROWS = 1024


def left_out(store: Store, entry: DirEntry) -> LeftLink | None:
    """Return why a link is not copied; None for one that leads to a file of the store, or nowhere."""
    files = store.files
    if entry.link is None or entry.dangling or not isinstance(files, OwnFiles):
        return None
    leads = files.leads(entry)
    if leads is Leads.INSIDE and not entry.directory:
        return None
    return LeftLink(store.relative(entry.path), entry.link, leads.value)


class OtherFiles:
    """Copies the other files of a store; a file that has not changed since `before` is not read."""

    def __init__(self, store: Store, folder: StoreFolder, before: Iterable[OtherFile]) -> None:
        self.store = store
        self.folder = folder
        self.before: Mapping[str, OtherFile] = {other.path: other for other in before}
        self.known = {digest for other in self.before.values() for digest, _ in other.chunks}
        self.new_bytes = 0
        self.found: list[OtherFile] = []
        self.left_out: list[LeftLink] = []

    def copy(self, *, later: bool) -> None:
        """Copy what refers to the log, before its end is read; with `later`, after it, what its messages refer to."""
        followed = self.store.followed
        seen = {self.store.files.real_path(path) for path in self._logs()}  # each directory once, under a part's name
        for top in (*(entry.path for entry in followed), self.store.root):
            if top != self.store.root and not self._enters(top, seen):
                continue
            for entry in walk(self.store.files, top, lambda below: self._enters(below.path, seen)):
                if self._is_wanted(entry):
                    self._entry(entry, later)

    def _logs(self) -> Iterator[Path]:
        """Yield the directories of the logs, and those that hold none although they have the name."""
        yield from (self.store.root / "commitlog", *self.store.commitlog_directories)
        if self.store.dledger is not None:
            yield from (*self.store.dledger.data.directories, *self.store.dledger.index.directories)

    def _enters(self, directory: Path, seen: set[Path]) -> bool:
        """Whether a directory is walked: it was not before, and is neither derived, nor a log, nor a RocksDB."""
        real = self.store.files.real_path(directory)
        if self._is_derived(directory) or real in seen or has_database(self.store.files, directory):
            return False
        seen.add(real)
        return True

    def _is_derived(self, path: Path) -> bool:
        return path.relative_to(self.store.root).parts[0] in DERIVED

    def _is_wanted(self, entry: DirEntry) -> bool:
        return not self._is_derived(entry.path) and entry.path not in self._logs()

    def _entry(self, entry: DirEntry, later: bool) -> None:
        if entry.link is not None and entry.path not in {one.path for one in self.store.followed}:
            left = left_out(self.store, entry)
            if left is not None:
                self.left_out += [left] if later else []
                return
        if later and entry.directory and has_database(self.store.files, entry.path):
            links = (left_out(self.store, below) for below in self.store.files.list(entry.path))
            self.left_out += [left for left in links if left is not None]
        if entry.special or entry.unreadable or entry.path.name.startswith(_LATER) is not later:
            return
        if not entry.directory:
            copied = self._file(entry.path, entry.length, entry.mtime_ns)
            self.found += [copied] if copied is not None else []
        elif has_database(self.store.files, entry.path):
            self.found += self._database(entry.path)

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
                return [one for one in (*copied, self._options(directory)) if one is not None]
        raise CouldNotCheck(
            Text("{directory}: its files change faster than they are read", directory=directory),
            Text("run the command again"),
        )

    def _options(self, directory: Path) -> OtherFile | None:
        """Copy the newest options of a RocksDB, which name the version that opened it last; None without them."""
        entries = [e for e in self.store.files.list(directory) if e.regular and e.path.name.startswith("OPTIONS-")]
        newest = max(entries, key=lambda entry: entry.path.name, default=None)
        return None if newest is None else self._file(newest.path, newest.length, newest.mtime_ns)

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
            while at < (length := file.length):
                if length > MOST_OF_ONE:
                    raise CouldNotCheck(
                        Text("{path} has {length:,} bytes: no snapshot has such a file", path=path, length=length),
                        Text("move it out of the store"),
                    )
                data_at, _ = file.next_data(at, length)
                hole = length - at if data_at >= length else (data_at - at) // CHUNK * CHUNK
                if hole:  # in at most so many rows, however long the file is
                    chunk = "", min(hole, max(CHUNK, length // _HOLE_ROWS // CHUNK * CHUNK))
                elif data := file.read(CHUNK, at):
                    chunk = self._store(data), len(data)
                else:
                    return
                yield chunk
                at += chunk[1]

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


Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """How to make a snapshot: what to keep, whether to compare everything."""

    keep: KeepRule = KeepRule()  # noqa: RUF009  # immutable
    full: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Backup:
    """A snapshot that was made, and what was forgotten afterwards."""

    manifest: Manifest
    forgotten: Forgotten

    @property
    def exit_code(self) -> int:
        return int(self.manifest.damaged or bool(self.manifest.branches or self.manifest.unread or self.manifest.lacks))


def back_up(store: Store, folder: StoreFolder, options: BackupOptions | None = None) -> Backup:
    """Add a snapshot of a store, which may be in use, to the folder of its name.

    Errors: NotAStore for a part of a store, and without a log; Refused if another backup writes to the folder; NoSpace,
    NotReadable and CouldNotCheck of the repository; OSError of the store.
    """
    options = options or BackupOptions()
    if store.part is not None:
        raise UsageError(Text("{path} is a part of a store", path=store.path), Text("name the storePathRootDir"))
    if not store.logs:
        raise NotAStore(
            Text("{path} has no log", path=store.path), Text("name the storePathRootDir, and broker.conf with -c")
        )
    store = own_store(store)
    with folder.locked():
        before = folder.latest()
        started = now()
        snapshot = folder.next_name(started)
        attempts = [folder.is_unfinished]

        def run(look: Store) -> Manifest:
            attempts.append(True)
            return _BackupRun(look, folder, before, snapshot, options).run(started)

        made = while_files_expire(store, run)
        folder.save(made)
        forgotten = Forgotten((), 0, 0)
        if sum(attempts) > 1 or folder.has_enough_to_forget(options.keep, made):  # an attempt has left objects
            forgotten = folder.forget(options.keep, started)
    return Backup(made, forgotten)


class _BackupRun:
    """One pass over a store."""

    def __init__(
        self, store: Store, folder: StoreFolder, before: Manifest | None, snapshot: str, options: BackupOptions
    ) -> None:
        self.store = store
        self.folder = folder
        self.before = before
        self.snapshot = snapshot
        self.options = options
        self.unfinished = folder.unfinished()
        self.done: list[LogCopy] = []

    def run(self, started: int) -> Manifest:
        """Copy everything that the repository lacks; return the manifest, which is not written yet."""
        live = self.store.is_live()
        if self.unfinished is None:
            blank = Manifest(self.folder.name, self.snapshot, started, layout_of(self.store), (), ())
            self.folder.save_unfinished(blank)  # until the end: a later run knows that this one was interrupted
        others = OtherFiles(self.store, self.folder, self.before.others if self.before is not None else ())
        others.copy(later=False)
        if live:
            again = open_store(self.store.path, self.store.config, self.store.files)  # what it lists now
            again.expiring, self.store = self.store.expiring, again
        misplaced = find_misplaced(self.store)
        self.store = misplaced.store
        layout = layout_of(self.store)
        blank = Manifest(self.folder.name, self.snapshot, started, layout, (), ())
        counts = Counter(file.finding().code for file in misplaced.files if not file.only_digits)
        branches: list[BranchStart] = []
        new_bytes = unread = 0
        logs = self.store.logs
        for queue, body_offset in logs:
            options = CopyOptions(
                self.snapshot,
                since=self.before.snapshot if self.before is not None else "",
                live=live,
                followed=queue is not logs[-1][0],
                full=self.options.full,
                progress=self.options.progress,
                saved=lambda log: self.folder.save_unfinished(replace(blank, logs=(*self.done, log))),
            )
            copied = LogCopier(
                self.store, queue, body_offset, self.folder, self._known(queue.name, started), options
            ).copy()
            self.done.append(copied.log)
            counts.update(copied.counts)
            branches += copied.branches
            new_bytes += copied.new_bytes
            unread += copied.unread
        others.copy(later=True)
        if self.store.hole_before_dledger is not None:
            counts[codes.DL_MISSING_FILE] += 1
        return replace(
            blank,
            logs=tuple(self.done),
            others=tuple(sorted(others.found, key=lambda other: other.path)),
            counts=dict(sorted(counts.items())),
            branches=tuple(branches),
            new_bytes=new_bytes + others.new_bytes,
            unread=unread,
            left_out=tuple(sorted([*others.left_out, *self._links_of_logs()], key=lambda left: left.path)),
        )

    def _links_of_logs(self) -> Iterator[LeftLink]:
        """Yield the log files that are links out of the store: the log is copied without them."""
        for queue, _ in self.store.logs:
            for odd in queue.odd:
                entry = self.store.files.examined(odd.path)
                left = left_out(self.store, entry) if entry is not None else None
                if left is not None:
                    yield left

    def _known(self, name: str, started: int) -> LogCopy | None:
        """Return what the repository has of a log: of the last snapshot, and of an interrupted run after it."""
        known = self.before.log(name) if self.before is not None else None
        more = self.unfinished.log(name) if self.unfinished is not None else None
        oldest = self.options.keep.oldest(self.folder.snapshots(), started) if known is not None else None
        if known is not None and oldest is not None:
            files = tuple(f for f in known.files if f.start + known.file_size > known.begin or f.last_time >= oldest)
            known = replace(known, files=files)
        if more is not None:
            there = self._there(more)
            if known is None or known.file_size != more.file_size:
                return there
            merged = {file.start: file for file in (*known.files, *there.files)}
            end = max(known.end, there.end)
            return replace(known, end=end, files=tuple(merged[start] for start in sorted(merged)))
        return known

    def _there(self, log: LogCopy) -> LogCopy:
        """Return the files of an interrupted run whose objects are there."""

        def complete(key: str, size: int) -> bool:
            return self.folder.storage.size(self.folder.key(key)) == size

        files = tuple(f for f in log.files if all(complete(piece.object, piece.size) for piece in f.pieces))
        return replace(log, files=files, end=max((f.start + log.file_size for f in files), default=log.begin))
