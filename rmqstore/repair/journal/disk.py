"""All system calls with which `repair` changes a disk; no other module of it writes.

Tests replace `Disk` by one that fails, tears a write or kills the process at a chosen call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

_COPIED = 1 << 20  # bytes at a time
_FEW, _TOGETHER = 64, 32
"""From `_FEW` files on, `_TOGETHER` of them are made durable at the same time."""
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Disk:
    """The real disk. A symbolic link as the last part of a path is never followed. Errors: OSError."""

    def open_new(self, path: Path) -> int:
        return os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)

    def open_existing(self, path: Path) -> int:
        return os.open(path, _OPEN)

    def write_at(self, descriptor: int, data: bytes, at: int) -> None:
        _write_all(descriptor, data, at)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

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
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def set_times(self, path: Path, atime_ns: int, mtime_ns: int) -> None:
        os.utime(path, ns=(atime_ns, mtime_ns), follow_symlinks=False)

    def set_owner(self, path: Path, uid: int, gid: int) -> None:
        os.chown(path, uid, gid, follow_symlinks=False)

    def set_mode(self, path: Path, mode: int) -> None:
        path.chmod(mode)


class Scratch:
    """An unnamed temporary file, in TMPDIR, for data of a plan that may not fit in memory. Errors: OSError."""

    def __init__(self) -> None:
        import tempfile

        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as the plan
        self.size = 0

    def append(self, data: bytes | memoryview) -> int:
        """Append data; return its position."""
        at = self.size
        _write_all(self._file.fileno(), data, at)
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

    def create(self, path: Path, size: int) -> None:
        """Create a file of zeros."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def write_at(self, path: Path, data: bytes, at: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _write_all(descriptor, data, at)
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view = view[written:]
        at += written
