"""All system calls with which `repair` changes a disk; no other module of it writes.

Tests replace `Disk` by one that fails, tears a write or kills the process at a chosen call. `Scratch` keeps the content
of a step in a temporary file, because it may not fit in memory.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rmqstore.append.disk import write_all
from rmqstore.documents.content import CHUNK
from rmqstore.files.beneath import Beneath
from rmqstore.files.files import OpenFile

OPEN_FILES = 64
"""Number of changed files that are open at the same time, and then made durable together."""
_FEW, _TOGETHER = 64, 32
"""From `_FEW` files on, `_TOGETHER` of them are made durable at the same time."""
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Disk(Beneath):
    """The real disk, beneath the directories that were allowed. Errors: as `Beneath`."""

    def open_new(self, path: Path) -> int:
        with self.above(path) as (folder, name):
            return os.open(name, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)

    def open_existing(self, path: Path) -> int:
        return self.open_regular(path, _OPEN)

    def write_at(self, descriptor: int, data: bytes, at: int) -> None:
        write_all(descriptor, data, at)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        with self.listed(path) as descriptor:
            os.fsync(descriptor)

    def fsync_all(self, descriptors: Sequence[int], folders: Sequence[Path] = ()) -> None:
        """Make many files and directories durable; the file system joins calls that come at the same time."""
        calls = [partial(self.fsync, descriptor) for descriptor in descriptors]
        calls += [partial(self.fsync_directory, folder) for folder in folders]
        if len(calls) < _FEW:
            for call in calls:
                call()
            return
        with ThreadPoolExecutor(_TOGETHER) as pool:
            for done in [pool.submit(call) for call in calls]:
                done.result()

    def rename(self, source: Path, target: Path) -> None:
        with self.above(source) as (old_folder, old), self.above(target) as (new_folder, new):
            os.rename(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        with self.above(source) as (old_folder, old), self.above(target) as (new_folder, new):
            os.link(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder, follow_symlinks=False)

    def make_link(self, path: Path, target: Path) -> None:
        """Create a symbolic link."""
        with self.above(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def unlink(self, path: Path) -> None:
        with self.above(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def make_directory(self, path: Path) -> None:
        with self.above(path) as (folder, name):
            os.mkdir(name, 0o700, dir_fd=folder)

    def remove_directory(self, path: Path) -> None:
        with self.above(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def set_times(self, path: Path, atime_ns: int, mtime_ns: int) -> None:
        with self.above(path) as (folder, name):
            os.utime(name, ns=(atime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)

    def set_owner(self, path: Path, uid: int, gid: int) -> None:
        with self.above(path) as (folder, name):
            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)

    def set_mode(self, path: Path, mode: int) -> None:
        with self.above(path) as (folder, name):  # fchmodat cannot refuse a link on every kernel
            descriptor = os.open(name, _READ, dir_fd=folder)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


class Scratch:
    """An unnamed temporary file, in TMPDIR, for data of a plan that may not fit in memory. Errors: OSError."""

    def __init__(self) -> None:
        import tempfile

        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as the plan
        self.size = 0

    def append(self, data: bytes | memoryview) -> int:
        """Append data; return its position."""
        at = self.size
        write_all(self._file.fileno(), data, at)
        self.size += len(data)
        return at

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)


class ScratchFolder:
    """A temporary directory, in TMPDIR: files as a repair will leave them, and links to all others. Errors: OSError."""

    def __init__(self) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="rmqstore-")
        self.path = Path(self._folder.name)

    def make_directory(self, name: str) -> Path:
        path = self.path / name
        path.mkdir()
        return path

    def link(self, path: Path, target: Path) -> None:
        path.symlink_to(target)

    def copy(self, source: OpenFile, path: Path) -> None:
        """Create a file with the content of another one; its holes stay holes."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, source.length)
            for low, high in source.data_extents(0, source.length):
                for at in range(low, high, CHUNK):
                    write_all(descriptor, source.read(min(CHUNK, high - at), at), at)
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class ScratchContent:
    """A content made of pieces of a scratch file, with zeros between them.

    `parts`: (position in the content, length, position in the scratch file), in order and without overlap.
    """

    scratch: Scratch
    size: int = 0
    parts: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, at: int, data: bytes | memoryview) -> None:
        """Write data at a position of the content, replacing earlier data there."""
        where = self.scratch.append(data)
        length = len(data)
        if self.parts and at < self.parts[-1][0] + self.parts[-1][1]:
            self.parts = sorted([*self._without(at, at + length), (at, length, where)])
        elif self.parts and self.parts[-1][0] + self.parts[-1][1] == at and sum(self.parts[-1][1:]) == where:
            last = self.parts[-1]
            self.parts[-1] = (last[0], last[1] + length, last[2])
        else:
            self.parts.append((at, length, where))
        self.size = max(self.size, at + length)

    def _without(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts outside [low, high)."""
        for place, length, where in self.parts:
            if place < low:
                yield place, min(length, low - place), where
            if place + length > high:
                skip = max(0, high - place)
                yield place + skip, length - skip, where + skip

    def pieces(self) -> Iterator[bytes | int]:
        at = 0
        for place, length, where in self.parts:
            if place > at:
                yield place - at
            for start in range(0, length, CHUNK):
                yield self.scratch.read(min(CHUNK, length - start), where + start)
            at = place + length
        if at < self.size:
            yield self.size - at

    def read(self, size: int, at: int) -> bytes:
        stop = max(at, min(at + size, self.size))
        out = bytearray(stop - at)
        first = max(0, bisect_right(self.parts, at, key=lambda part: part[0]) - 1)
        for number in range(first, len(self.parts)):
            place, length, where = self.parts[number]
            if place >= stop:
                break
            low, high = max(place, at), min(place + length, stop)
            if low < high:
                out[low - at : high - at] = self.scratch.read(high - low, where + low - place)
        return bytes(out)
