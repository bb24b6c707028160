"""The files of a snapshot, so that everything that reads a store reads a snapshot in the same way.

The log and the other files are as in the store; a file of the log is read from the pieces that the repository has of
it. What follows from the log is not in a snapshot: see `derived.py`.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from rmqstore.append.scratch import ScratchFolder
from rmqstore.backup.manifest import DLEDGER, LogCopy, LogFile, Manifest, OtherFile, config_key
from rmqstore.backup.repository import StoreFolder
from rmqstore.errors import CouldNotCheck
from rmqstore.files import pace
from rmqstore.files.files import DirEntry, Files, OpenFile
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, offset_to_file_name
from rmqstore.texts import Text


class StoredFile(OpenFile):
    """The bytes of a file that a snapshot has: parts of objects, as (key without the store's name, length).

    A part with the key "" is zeros. `length` in bytes may be larger than the parts: the rest is zeros.
    Errors: CouldNotCheck if an object is missing or too short.
    """

    def __init__(self, folder: StoreFolder, parts: Sequence[tuple[str, int]], length: int = 0) -> None:
        self._folder = folder
        self._parts = parts
        self._starts = [0, *accumulate(size for _, size in parts)]
        self._length = max(length, self._starts[-1])

    @classmethod
    def of_log(cls, folder: StoreFolder, file: LogFile, length: int = 0) -> StoredFile:
        """Open a file of a log."""
        return cls(folder, [(piece.object, piece.length) for piece in file.pieces], length)

    @property
    def length(self) -> int:
        return self._length

    def read_into(self, buffer: memoryview, at: int) -> int:
        size = min(len(buffer), self._length - at)
        if size <= 0:
            return 0
        key, within = "", at - self._starts[-1]
        if within < 0:
            number = bisect_right(self._starts, at) - 1
            (key, length), within = self._parts[number], at - self._starts[number]
            size = min(size, length - within)
        if not key:
            buffer[:size] = bytes(size)
            return size
        key = self._folder.key(key)
        count = self._folder.storage.read_into(key, buffer[:size], within)
        if count <= 0:
            raise CouldNotCheck(
                Text("{address}/{key} is missing or too short", address=self._folder.storage.address, key=key),
                Text("`rmqstore snapshots --check` shows which snapshots need it"),
            )
        return pace.took(count)

    def next_data(self, at: int, stop: int) -> tuple[int, int]:
        number = bisect_right(self._starts, at) - 1
        while number < len(self._parts) and not self._parts[number][0]:
            number += 1
        low = max(at, self._starts[number])
        return (stop, stop) if number == len(self._parts) or low >= stop else (low, min(stop, self._starts[number + 1]))

    def close(self) -> None:
        """Do nothing: no object stays open."""


class SnapshotFiles(Files):
    """The files of one snapshot, below a directory that does not exist: `root`."""

    def __init__(self, folder: StoreFolder, manifest: Manifest, root: Path) -> None:
        self.folder = folder
        self.manifest = manifest
        self.root = root

    @property
    def written_by(self) -> tuple[str, str] | None:
        return self.manifest.layout.written_by

    @cached_property
    def _entries(self) -> dict[Path, tuple[DirEntry, LogFile | OtherFile | None]]:
        """Every file and directory by its path."""
        mtime = self.manifest.time * 1_000_000
        found: dict[Path, tuple[DirEntry, LogFile | OtherFile | None]] = {}
        for log in self.manifest.logs:
            found[self.directory_of(log)] = (DirEntry(self.directory_of(log), 0, mtime, True), None)
            for file in log.own:
                path = self.path_of(log, file.start)
                found[path] = (DirEntry(path, log.file_size, file.mtime_ns, False), file)
        for other in self.manifest.others:
            path = self.root / other.path
            found[path] = (DirEntry(path, other.size, other.mtime_ns, False), other)
        for path in list(found):
            for parent in path.parents:
                if parent == self.root or not parent.is_relative_to(self.root):
                    break
                found.setdefault(parent, (DirEntry(parent, 0, mtime, True), None))
        found[self.root] = (DirEntry(self.root, 0, mtime, True), None)
        return found

    @cached_property
    def _children(self) -> dict[Path, list[DirEntry]]:
        found: dict[Path, list[DirEntry]] = {}
        for path, (entry, _) in self._entries.items():
            if path != self.root:
                found.setdefault(path.parent, []).append(entry)
        return {path: sorted(entries, key=lambda e: e.path.name) for path, entries in found.items()}

    def directory_of(self, log: LogCopy) -> Path:
        """Return the directory of a log."""
        return self.root / log_directory(log, self.manifest.layout.self_id)

    def path_of(self, log: LogCopy, start: int) -> Path:
        """Return the path of a file of a log."""
        return self.directory_of(log) / offset_to_file_name(start)

    def queue(self, log: LogCopy) -> MappedFileQueue:
        """Return a log as a queue of files."""
        size = log.file_size
        files = [
            MappedFile(self.path_of(log, file.start), file.start, size, size, file.mtime_ns, self) for file in log.own
        ]
        return MappedFileQueue(log.name, [self.directory_of(log)], size, files)

    def list(self, directory: Path) -> list[DirEntry]:
        return self._children.get(directory, [])

    def stat(self, path: Path) -> DirEntry | None:
        found = self._entries.get(path)
        return found[0] if found is not None else None

    def open(self, path: Path) -> OpenFile:
        found = self._entries.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        entry, source = found
        if isinstance(source, LogFile):
            return StoredFile.of_log(self.folder, source, entry.length)
        if isinstance(source, OtherFile):
            return StoredFile(self.folder, [(config_key(digest), length) for digest, length in source.chunks])
        raise IsADirectoryError(errno.EINVAL, Text("not a regular file"), str(path))

    @contextmanager
    def local(self, directory: Path) -> Iterator[Path]:
        scratch = ScratchFolder()
        for entry in self.list(directory):
            if not entry.directory:
                with self.open(entry.path) as file:
                    scratch.copy(file, scratch.path / entry.path.name)
        yield scratch.path


def log_directory(log: LogCopy, self_id: str) -> str:
    """Return the directory of a log, relative to the root of its store."""
    return f"dledger-{self_id}/data" if log.name == DLEDGER else "commitlog"
