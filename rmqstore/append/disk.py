"""Create, write, flush and replace files, with errors that say what to do.

Nothing is mapped: on a full disk, a write to a mapping of a sparse file kills the process with SIGBUS, while pwrite
fails with ENOSPC. So a file has the positions of RocketMQ's transient store pool: wrote (in our buffer), committed
(written to the operating system, which for the log happens before a put returns) and flushed (on disk).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from rmqstore.files.disk import explain as explain
from rmqstore.files.disk import explained as explained
from rmqstore.files.disk import start_writing
from rmqstore.files.disk import sync_directory as sync_directory
from rmqstore.files.private import FILE_MODE, make_missing
from rmqstore.files.reading import data_extents

T = TypeVar("T")
SYNCS = 16  # number of files that are flushed at the same time
_SUBMITTED = 1024
_ANONYMOUS: int = getattr(os, "O_TMPFILE", 0)


def sync_directories(directories: Iterable[Path]) -> None:
    """fsync many directories at the same time: the file system commits them together. Errors: NotReadable, NoSpace."""

    def sync(directory: Path) -> None:
        with explained(directory):
            sync_directory(directory)

    at_the_same_time(sync, list(directories))


def at_the_same_time(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Do something that waits for the disk for each item, in threads; raise the first error when all have ended."""
    if len(items) < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(len(items), SYNCS), thread_name_prefix="sync") as pool:
        for first in range(0, len(items), _SUBMITTED):
            for done in [pool.submit(work, item) for item in items[first : first + _SUBMITTED]]:
                done.result()


def make_directories(directory: Path, unsynced: set[Path] | None = None) -> None:
    """Create a directory of a store and its missing parents, each like the one that it is in, and fsync their parents.

    With `unsynced`, the caller fsyncs these. Errors: NotReadable, NoSpace.
    """

    def made(path: Path) -> None:
        take_rights(path, path.parent.stat(), 0o777)
        _sync_or_note(path.parent, unsynced)

    make_missing(directory, made)


def take_rights(entry: Path | int, like: os.stat_result, mask: int) -> None:
    """Give a new file or directory of a store the mode of its directory, of which `mask` is taken.

    Run by root, also its owner: the broker of another user has to open it. Errors: OSError.
    """
    if os.geteuid() == 0 and (like.st_uid, like.st_gid) != (0, 0):
        os.chown(entry, like.st_uid, like.st_gid)
    os.chmod(entry, stat.S_IMODE(like.st_mode) & mask)  # noqa: PTH101  # the entry may be a descriptor


def _sync_or_note(directory: Path, unsynced: set[Path] | None) -> None:
    if unsynced is None:
        sync_directory(directory)
    else:
        unsynced.add(directory)


def create_file(path: Path, size: int, content: bytes = b"", unsynced: set[Path] | None = None) -> int:
    """Create a sparse file of full size that begins with `content`, and return its descriptor for reading and writing.

    If the file system supports it, a link makes the complete file appear at once, so that a broker never finds an empty
    file, or a consume queue file of zeros, whose first unit it would accept. Its mode is that of the directory,
    which is fsynced, or added to `unsynced` for the caller to do so. A failure leaves no file behind.
    Errors: OutputExists, NoSpace, NotReadable.
    """
    make_directories(path.parent, unsynced)
    descriptor = -1
    try:
        descriptor, named = _open_new(path)
        try:
            take_rights(descriptor, path.parent.stat(), 0o666)
            os.ftruncate(descriptor, size)
            write_all(descriptor, content, 0)
            if not named:
                _give_name(descriptor, path)
            _sync_or_note(path.parent, unsynced)
        except OSError:
            if named:
                path.unlink(missing_ok=True)
            raise
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise explain(error, path) from error
    return descriptor


def open_or_create(path: Path) -> int:
    """Open a file of a store for reading and writing; a new one takes the rights of its directory.

    Errors: OSError; ELOOP for a link.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileExistsError:
            try:
                return os.open(path, flags)
            except FileNotFoundError:
                continue  # removed in between
        take_rights(descriptor, path.parent.stat(), 0o666)
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


_COPYING = ".copying"


def replace_link(path: Path) -> None:
    """Replace a link by a copy of its file, in which holes stay holes; nothing happens to a file that is no link.

    Errors: NotReadable, NoSpace.
    """
    if not path.is_symlink():
        return
    copy = path.with_name(path.name + _COPYING)
    with explained(path):
        copy.unlink(missing_ok=True)
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            try:
                size = os.fstat(source).st_size
                os.ftruncate(target, size)
                for low, high in data_extents(source, 0, size):
                    for at in range(low, high, _BLOCK):
                        write_all(target, read_all(source, min(_BLOCK, high - at), at), at)
                os.fsync(target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        copy.rename(path)
        sync_directory(path.parent)


def is_unfinished_copy(path: Path) -> bool:
    """Return whether a killed `replace_link` left this file."""
    return path.name.endswith(_COPYING)


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
    """Replace a small file of a store atomically: write a temporary file, fsync and rename it.

    It keeps owner and mode; a new one takes those of its directory.
    `backup` keeps the old file as `.bak`, like DLedger's IOUtils#string2File.
    Errors: NoSpace, NotReadable.
    """
    make_directories(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)  # what an interrupted run left; or a link, or a second name of another file
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            if path.is_file() and not path.is_symlink():
                take_rights(descriptor, path.stat(), 0o777)
            else:
                take_rights(descriptor, path.parent.stat(), 0o666)
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


_BLOCK = 4 << 20
_ALIGNED = 1 << 12  # of positions, lengths and memory of direct writes: at least the block size of the device
_SMALL = 1 << 18  # bytes up to which a file is written through the page cache
_DROP = 64 << 20  # bytes after which written pages leave the page cache
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_ZEROS = bytes(_BLOCK)


class SequentialFile:
    """Writes to a descriptor of an empty file, which it does not close. Zeros at the end of a block become holes.

    Direct writes, where the file system can, leave the page cache to the brokers of the machine, and take a tenth of
    the CPU time of copying into it.
    Errors of all methods: OSError.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._view = memoryview(mmap.mmap(-1, _BLOCK))  # begins with a page
        self._filled = 0
        self._at = self._dropped = 0
        self._direct = _set_direct(descriptor, on=True)

    @property
    def size(self) -> int:
        """The number of bytes that were given."""
        return self._at + self._filled

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        rest = memoryview(data)
        while len(rest):
            count = min(len(rest), _BLOCK - self._filled)
            self._view[self._filled : self._filled + count] = rest[:count]
            self._filled += count
            rest = rest[count:]
            if self._filled == _BLOCK:
                self._flush()

    def skip(self, count: int) -> None:
        """Append zeros, without touching them: whole blocks of them become holes."""
        head = min(count, -self._filled % _BLOCK)
        self.write(_ZEROS[:head])
        whole = (count - head) // _BLOCK * _BLOCK
        self._at += whole
        self.write(_ZEROS[: count - head - whole])

    def finish(self, size: int) -> None:
        """Give the file its size, at least that of all bytes, and fsync it."""
        if self._direct and not self._at and self._filled <= _SMALL:
            self._direct = _set_direct(self._descriptor, on=False)
        self._flush()
        os.ftruncate(self._descriptor, max(size, self._at))
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Free the memory, as soon as no exception refers to it."""
        self._view = memoryview(b"")

    def _flush(self) -> None:
        size = self._filled
        end = size
        if size and not self._view[size - 1]:
            end = 0 if self._view[:size] == _ZEROS[:size] else len(bytes(self._view[:size]).rstrip(b"\0"))
        if end:
            self._put(end)
        self._at += size
        self._filled = 0

    def _put(self, size: int) -> None:
        if self._direct:
            whole = -(-size // _ALIGNED) * _ALIGNED
            self._view[size:whole] = bytes(whole - size)
            try:
                write_all(self._descriptor, self._view[:whole], self._at)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._direct = _set_direct(self._descriptor, on=False)  # it needs another alignment
            else:
                return
        write_all(self._descriptor, self._view[:size], self._at)
        start_writing(self._descriptor, self._at, size)
        if self._at - self._dropped >= _DROP:
            os.posix_fadvise(self._descriptor, 0, self._dropped, os.POSIX_FADV_DONTNEED)
            self._dropped = self._at


def _set_direct(descriptor: int, *, on: bool) -> bool:
    """Switch direct writes on or off; return whether they are on."""
    if not _DIRECT:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
    except OSError:
        return False
    return on


def take_file(source: Path, path: Path, mtime_ns: int) -> None:
    """Move a complete file of a temporary place on the same disk into the new store. Errors: NotReadable, NoSpace."""
    with explained(path):
        source.rename(path)
        os.utime(path, ns=(mtime_ns, mtime_ns))
        sync_directory(path.parent)


def write_new_file(path: Path, size: int, content: Iterable[bytes | memoryview | int], mtime_ns: int = 0) -> None:
    """Create a file of `size` bytes that begins with `content`, and fsync it; zeros at the end of 4 MiB become holes.

    A number in `content` stands for so many zeros.

    Errors: OutputExists, NoSpace, NotReadable, and those of `content`.
    """
    descriptor = create_file(path, size)
    try:
        with closing(SequentialFile(descriptor)) as file:
            zeros = 0
            for data in content:
                if isinstance(data, int):
                    zeros += data
                    continue
                file.skip(zeros)
                file.write(data)
                zeros = 0
            file.finish(size)
        if mtime_ns:
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    except OSError as error:
        raise explain(error, path) from error
    finally:
        os.close(descriptor)
