"""Create, write, flush and replace files, with errors that say what to do.

Nothing is mapped: on a full disk, a write to a mapping of a sparse file kills the process with SIGBUS, while pwrite
fails with ENOSPC. So a file has the positions of RocketMQ's transient store pool: wrote (in our buffer), committed
(written to the operating system, which for the log happens before a put returns) and flushed (on disk).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rmqstore.files.disk import explain as explain

FILE_MODE = 0o644
_ANONYMOUS: int = getattr(os, "O_TMPFILE", 0)


def sync_directory(directory: Path) -> None:
    """fsync a directory, so that new, renamed and deleted entries are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, and fsync the parent of each.

    Errors: NotReadable, NoSpace.
    """
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        try:
            path.mkdir(exist_ok=True)
            sync_directory(path.parent)
        except OSError as error:
            raise explain(error, path) from error


def create_file(path: Path, size: int, content: bytes = b"") -> int:
    """Create a sparse file of full size that begins with `content`, and return its descriptor for reading and writing.

    If the file system supports it, a link makes the complete file appear at once, so that a broker never finds an empty
    file, or a consume queue file of zeros, whose first unit it would accept. The directory is fsynced. A failure leaves
    no file behind.
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
    """Create an unnamed file in the directory of `path`, or a named one if that is not supported.

    Returns the descriptor, and whether the file has a name.
    """
    if _ANONYMOUS and Path("/proc/self/fd").is_dir():
        try:
            return os.open(path.parent, os.O_RDWR | _ANONYMOUS | os.O_CLOEXEC, FILE_MODE), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
                raise
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), True


def _give_name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # with dir_fd, Python calls linkat, which can follow the link in /proc, unlike link
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
    """Write all of `data` at position `at`.

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
    """Read `size` bytes at position `at`; fewer only at the end of the file.

    Errors: OSError.
    """
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
    """Replace a small file atomically: write a temporary file, fsync and rename it.

    `backup` keeps the old file as `.bak`, like DLedger's IOUtils#string2File.
    Errors: NoSpace, NotReadable.
    """
    make_directories(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if backup and path.exists():
            old = path.with_name(path.name + ".bak")
            old.unlink(missing_ok=True)
            os.link(path, old)
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain(error, path) from error
