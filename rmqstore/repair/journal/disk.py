"""All system calls with which `repair` changes a disk; no other module of it writes.

Tests replace `Disk` by one that fails, tears a write or kills the process at a chosen call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rmqstore.append.disk import write_all
from rmqstore.files.beneath import Beneath

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
