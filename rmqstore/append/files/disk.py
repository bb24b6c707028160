"""System calls of the writing side: files made at full size, whole writes, fsync, and errors that say what to do.

Nothing is mapped: a write into a mapping of a sparse file on a full disk kills the process with SIGBUS, while pwrite
says ENOSPC. So the positions of a file are those of RocketMQ's transient store pool: wrote (in the buffer), committed
(given to the system, which for the log happens before a put returns), flushed (on the disk).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rmqstore.files.disk.disk_errors import explain as explain

FILE_MODE = 0o644
_ANONYMOUS: int = getattr(os, "O_TMPFILE", 0)


def sync_directory(directory: Path) -> None:
    """Bring the entries of a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Make a directory and what is missing above it, each brought to the disk by its parent.

    Errors: NotReadable, NoSpace.
    """
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for one in reversed(missing):
        try:
            one.mkdir(exist_ok=True)
            sync_directory(one.parent)
        except OSError as error:
            raise explain(error, one) from error


def create_file(path: Path, size: int, content: bytes = b"") -> int:
    """A new sparse file of full size that begins with `content`, open for reading and writing; directory fsynced.

    Where the system can do it the file appears whole, by a link: a broker never meets an empty one, nor a consume
    queue file of zeros (whose first unit it would take for real). A failure leaves no file behind.
    Errors: OutputExists, NoSpace, NotReadable.
    """
    make_directories(path.parent)
    descriptor = -1
    try:
        descriptor, named = _open_new(path)
        try:
            os.ftruncate(descriptor, size)
            write_all(descriptor, content, 0)
            if not named:
                _give_name(descriptor, path)
            sync_directory(path.parent)
        except OSError:
            if named:
                path.unlink(missing_ok=True)
            raise
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise explain(error, path) from error
    return descriptor


def _open_new(path: Path) -> tuple[int, bool]:
    """A new file without a name in the directory of `path`; with its name where unnamed files are not supported."""
    if _ANONYMOUS and Path("/proc/self/fd").is_dir():
        try:
            return os.open(path.parent, os.O_RDWR | _ANONYMOUS | os.O_CLOEXEC, FILE_MODE), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
                raise
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), True


def _give_name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # with a descriptor Python calls linkat, which follows the link in /proc; without it would not
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
    """pwrite until everything is written.

    Errors: OSError.
    """
    view = memoryview(data)
    while len(view):
        done = os.pwrite(descriptor, view, at)
        if done <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[done:]
        at += done


def read_all(descriptor: int, size: int, at: int) -> bytes:
    """pread until `size` bytes, or the end of the file."""
    parts = []
    while size > 0:
        part = os.pread(descriptor, size, at)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def replace_file(path: Path, data: bytes, *, backup: bool = False) -> None:
    """Write a small file so that it is always the old one or the new one: beside it, fsync, rename.

    `backup` keeps the old one as `.bak`, as DLedger's IOUtils#string2File does.
    Errors: NoSpace, NotReadable.
    """
    make_directories(path.parent)
    building = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(building, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if backup and path.exists():
            old = path.with_name(path.name + ".bak")
            old.unlink(missing_ok=True)
            os.link(path, old)
        building.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        building.unlink(missing_ok=True)
        raise explain(error, path) from error
