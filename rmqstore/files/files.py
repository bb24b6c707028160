"""Files: the one way to read a store. LocalFiles reads a directory of this machine.

Everything that reads a store lists, examines and opens its files through a `Files`, and nothing else does: so what
reads a store can also read a planned store, and a snapshot of a backup.

`RememberedFiles` lists and reads each file once, for work that looks at the same few bytes again and again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from rmqstore.errors import NotReadable, about
from rmqstore.files import pace
from rmqstore.files.disk import real_path
from rmqstore.files.reading import next_data, open_regular
from rmqstore.texts import Text

_WILL_NEED: int | None = getattr(os, "POSIX_FADV_WILLNEED", None)  # not on every system
_READ_AHEAD = 1 << 20  # bytes per call; the kernel may ignore what exceeds a device's largest request
_BLOCK = 1 << 20
T = TypeVar("T")
_UNIT = 512  # of st_blocks, bytes, on every file system


class DirEntry(NamedTuple):
    """A file or directory with the results of stat; `special` for devices, pipes, sockets and dangling links.

    `unreadable`: it cannot be examined, without permission or because it is a circular link.
    `link` is the target that a symbolic link names, None for anything else. The other fields describe the target.
    """

    path: Path
    length: int
    mtime_ns: int
    directory: bool
    special: bool = False
    unreadable: bool = False
    link: str | None = None
    dangling: bool = False

    @property
    def regular(self) -> bool:
        """Whether it is a regular file that can be examined, or a link to one."""
        return not (self.directory or self.special or self.unreadable)


class FileIdentity(NamedTuple):
    """What tells a file from others and from its own earlier content. Times in ns."""

    device: int
    inode: int
    length: int
    mtime_ns: int
    ctime_ns: int


class FileRights(NamedTuple):
    """Permission bits, and the numbers of owner and group."""

    mode: int
    owner: int
    group: int


class OpenFile(ABC):
    """A regular file that is open for reading. Positions and sizes are bytes. A context manager."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The current length of the file. Errors: OSError."""

    @abstractmethod
    def read_into(self, buffer: memoryview, at: int) -> int:
        """Read bytes at a position into a buffer and return their number; 0 at the file's end. Errors: OSError."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def read(self, size: int, at: int) -> bytes:
        """Return up to `size` bytes at a position; short at the file's end. Errors: OSError."""
        size = max(0, min(size, self.length - at))
        buffer = bytearray(size)
        view = memoryview(buffer)
        have = 0
        while have < size and (count := self.read_into(view[have:], at + have)) > 0:
            have += count
        return bytes(view[:have])

    def next_data(self, at: int, stop: int) -> tuple[int, int]:
        """Return the first data extent in [at, stop), half-open; (stop, stop) if only a hole is left.

        If the holes of a file are unknown, the whole range counts as data.
        """
        return (at, stop) if at < stop else (stop, stop)

    def data_extents(self, at: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield all data extents in [at, stop) as half-open ranges."""
        low, high = self.next_data(at, stop)
        while low < stop:
            yield low, high
            low, high = self.next_data(high, stop)

    def data_end(self, stop: int) -> int:
        """Return the end of the last data extent below `stop`; 0 without data."""
        return max((high for _, high in self.data_extents(0, stop)), default=0)

    def will_read(self, at: int, stop: int) -> None:  # noqa: B027  # a hint, which may have no effect
        """Announce that [at, stop) is read next, so that it can be fetched meanwhile."""

    def drop_cache(self, stop: int) -> None:  # noqa: B027  # a hint
        """Drop the bytes before a position from the page cache, to spare the pages of a running broker."""

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _CanBeOpened(Protocol):
    def open(self) -> OpenFile: ...


class SmallReads:
    """A file opened for small reads; a read that fails returns no bytes."""

    def __init__(self, file: _CanBeOpened) -> None:
        self._file: OpenFile | None = None
        with contextlib.suppress(OSError):
            self._file = file.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def pread(self, size: int, at: int) -> bytes:
        """Read up to `size` bytes at position `at`."""
        if self._file is None or at < 0:
            return b""
        try:
            return self._file.read(size, at)
        except OSError:
            return b""


class Files(ABC):
    """The files of a store. Can be pickled, so that worker processes and Spark executors read in the same way."""

    planned: Mapping[str, Any] | None = None
    """The plan (JSON) whose result these files show: it alone knows its fillers without a mark."""

    @abstractmethod
    def list(self, directory: Path) -> list[DirEntry]:
        """List a directory sorted by name, as the broker does; empty for a missing directory.

        Entries that disappear meanwhile are skipped. Errors: OSError if the directory cannot be listed.
        """

    @abstractmethod
    def stat(self, path: Path) -> DirEntry | None:
        """Examine a file or directory, following links; None if there is no such entry.

        Errors: OSError without permission to examine what is in the directory.
        """

    @abstractmethod
    def open(self, path: Path) -> OpenFile:
        """Open a regular file. Errors: OSError, with EINVAL for anything but a regular file."""

    @abstractmethod
    def local(self, directory: Path) -> contextlib.AbstractContextManager[Path]:
        """Give a directory of this machine with the same content, for libraries that open files on their own.

        Errors: OSError.
        """

    @property
    def on_this_machine(self) -> bool:
        """Whether paths are those of this machine, whose processes may use the files, and whose users own them."""
        return False

    @property
    def written_by(self) -> tuple[str, str] | None:
        """The oldest and the newest version that can have written the store that was copied; None: unknown."""
        return None

    @property
    def derives(self) -> bool:
        """Whether queues and index are made from the log in the process that asks for them, as for a snapshot."""
        return False

    def real_path(self, path: Path) -> Path:
        """Return the absolute path, with links resolved as far as they lead somewhere."""
        return Path(os.path.normpath(path.absolute()))

    def identity(self, path: Path) -> FileIdentity | None:
        """Return what identifies a file and its present content; None if that is unknown, or without the file."""
        return None

    def rights(self, path: Path) -> FileRights | None:
        """Return the rights of a file or directory, of a link's target; None if they are unknown."""
        return None

    def allocated(self, path: Path) -> int | None:
        """Return the bytes that a file occupies on its disk, fewer for a sparse file; None if that is unknown."""
        return None

    def may_read(self, path: Path) -> bool:
        """Whether this user may read a file; True if that is unknown."""
        return True

    def is_directory(self, path: Path) -> bool:
        """Whether a path is a directory that can be examined."""
        entry = self.examined(path)
        return entry is not None and entry.directory

    def is_file(self, path: Path) -> bool:
        """Whether a path is a regular file that can be examined."""
        entry = self.examined(path)
        return entry is not None and entry.regular

    def exists(self, path: Path) -> bool:
        """Whether a path can be examined; False for a dangling or circular link."""
        entry = self.examined(path)
        return entry is not None and not (entry.dangling or entry.unreadable)

    def has_entry(self, path: Path) -> bool:
        """Whether there is an entry of this name, of any kind, also a link that leads nowhere."""
        return self.examined(path) is not None

    def examined(self, path: Path) -> DirEntry | None:
        """As `stat`, and None without permission."""
        try:
            return self.stat(path)
        except OSError:
            return None

    def once(self, key: Hashable, found: Callable[[], T]) -> T:
        """Return what `found` returns. Files that are remembered call it once for a `key`."""
        return found()

    def read_at(self, path: Path, size: int, at: int) -> bytes:
        """Read up to `size` bytes at position `at` of a file; empty if the file is missing or unreadable."""
        try:
            with self.open(path) as file:
                return file.read(min(size, max(file.length - at, 0)), at)
        except OSError:
            return b""

    def read_small(self, path: Path, limit: int) -> bytes:
        """Read a whole file of at most `limit` bytes.

        Errors: OSError, with EFBIG for a longer file and EINVAL for anything but a regular file.
        """
        with self.open(path) as file:
            size = file.length
            if size > limit:
                raise OSError(
                    errno.EFBIG,
                    Text("its {size:,} bytes exceed the limit of {limit:,} bytes", size=size, limit=limit),
                    str(path),
                )
            data = bytearray()
            while len(data) <= limit and (part := file.read(min(_BLOCK, limit + 1 - len(data)), len(data))):
                data += part
        if len(data) > limit:
            raise OSError(errno.EFBIG, Text("it has grown beyond the limit of {limit:,} bytes", limit=limit), str(path))
        return bytes(data)


class LocalFile(OpenFile):
    """A file of this machine."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path, descriptor: int = -1) -> None:
        self._descriptor = open_regular(path) if descriptor < 0 else descriptor

    @property
    def length(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_into(self, buffer: memoryview, at: int) -> int:
        return pace.took(os.preadv(self._descriptor, [buffer], at))

    def read(self, size: int, at: int) -> bytes:
        data = os.pread(self._descriptor, size, at)
        pace.took(len(data))
        return data

    def next_data(self, at: int, stop: int) -> tuple[int, int]:
        return next_data(self._descriptor, at, stop)

    def will_read(self, at: int, stop: int) -> None:
        if _WILL_NEED is None or self._is_cached(stop - 1):
            return
        for start in range(at, stop, _READ_AHEAD):
            os.posix_fadvise(self._descriptor, start, min(_READ_AHEAD, stop - start), _WILL_NEED)

    def _is_cached(self, at: int) -> bool:
        """Whether the byte at a position is in the page cache; False where the system cannot tell."""
        try:
            return os.preadv(self._descriptor, [bytearray(1)], at, os.RWF_NOWAIT) == 1
        except (OSError, AttributeError):
            return False

    def drop_cache(self, stop: int) -> None:
        os.posix_fadvise(self._descriptor, 0, stop, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._descriptor)


class LocalFiles(Files):
    """The files of this machine. Stateless: all instances are equal."""

    def list(self, directory: Path) -> list[DirEntry]:
        listed: list[DirEntry] = []
        try:
            entries = sorted(os.scandir(directory), key=attrgetter("name"))
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a damaged topic with a NUL in it
            return listed
        for entry in entries:
            path = directory / entry.name
            try:
                status = entry.stat()
            except FileNotFoundError:
                try:
                    entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted by the broker since the scan
                listed.append(_dangling(path))
                continue
            except OSError:
                link = _target(path) if entry.is_symlink() else None
                listed.append(DirEntry(path, 0, 0, False, unreadable=True, link=link))
                continue
            listed.append(_entry_of(path, status, link=entry.is_symlink()))
        return listed

    def stat(self, path: Path) -> DirEntry | None:
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        if not stat.S_ISLNK(status.st_mode):
            return _entry_of(path, status)
        try:
            return _entry_of(path, path.stat(), link=True)
        except (FileNotFoundError, NotADirectoryError):
            return _dangling(path)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return DirEntry(path, 0, 0, False, unreadable=True, link=_target(path))

    def open(self, path: Path) -> OpenFile:
        return LocalFile(path)

    @contextlib.contextmanager
    def local(self, directory: Path) -> Iterator[Path]:
        yield directory

    @property
    def on_this_machine(self) -> bool:
        return True

    def real_path(self, path: Path) -> Path:
        return real_path(path)

    def identity(self, path: Path) -> FileIdentity | None:
        with contextlib.suppress(OSError):
            status = path.stat()
            return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return None

    def rights(self, path: Path) -> FileRights | None:
        with contextlib.suppress(OSError):
            status = path.stat()
            return FileRights(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        return None

    def allocated(self, path: Path) -> int | None:
        with contextlib.suppress(OSError):
            return path.stat().st_blocks * _UNIT
        return None

    def may_read(self, path: Path) -> bool:
        return os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalFiles)

    def __hash__(self) -> int:
        return hash(LocalFiles)

    def __reduce__(self) -> tuple[Callable[[], LocalFiles], tuple[()]]:
        return LocalFiles, ()


def _entry_of(path: Path, status: os.stat_result, *, link: bool = False) -> DirEntry:
    directory = stat.S_ISDIR(status.st_mode)
    target = _target(path) if link else None
    if directory:
        return DirEntry(path, 0, status.st_mtime_ns, directory=True, link=target)
    special = not stat.S_ISREG(status.st_mode)
    return DirEntry(path, status.st_size, status.st_mtime_ns, False, special, link=target)


def _dangling(path: Path) -> DirEntry:
    return DirEntry(path, 0, 0, False, special=True, link=_target(path), dangling=True)


def _target(path: Path) -> str:
    """Return the target that a symbolic link names; empty if the link has changed meanwhile."""
    try:
        return str(path.readlink())
    except OSError:
        return ""


LOCAL = LocalFiles()
"""The files of this machine."""


def read_given(path: Path, limit: int) -> bytes:
    """Read a whole file of at most `limit` bytes that the user has named. Errors: NotReadable."""
    try:
        return LOCAL.read_small(path, limit)
    except OSError as error:
        raise NotReadable(about(path, error)) from error


_SHORT = 4096
_MOST = 4096


class ForwardedFiles(Files):
    """Files that are read through others; a subclass changes how some of them are seen."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def list(self, directory: Path) -> list[DirEntry]:
        return self._files.list(directory)

    def stat(self, path: Path) -> DirEntry | None:
        return self._files.stat(path)

    def open(self, path: Path) -> OpenFile:
        return self._files.open(path)

    def local(self, directory: Path) -> contextlib.AbstractContextManager[Path]:
        return self._files.local(directory)

    @property
    def on_this_machine(self) -> bool:
        return self._files.on_this_machine

    def real_path(self, path: Path) -> Path:
        return self._files.real_path(path)

    def identity(self, path: Path) -> FileIdentity | None:
        return self._files.identity(path)

    def rights(self, path: Path) -> FileRights | None:
        return self._files.rights(path)

    def allocated(self, path: Path) -> int | None:
        return self._files.allocated(path)

    def may_read(self, path: Path) -> bool:
        return self._files.may_read(path)


class RememberedFiles(ForwardedFiles):
    """The files of `files`; the first listed directories, examined paths and short reads are kept.

    So that the simulated starts of many versions, which read the same units and settings, cost little more than one.
    `_SHORT`: bytes of the longest read that is kept; `_MOST`: directories, paths and reads that are kept.
    """

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._listed: dict[Path, list[DirEntry]] = {}
        self._examined: dict[Path, DirEntry | None] = {}
        self._read: dict[tuple[Path, int, int], bytes] = {}
        self._once: dict[Hashable, Any] = {}

    def once(self, key: Hashable, found: Callable[[], T]) -> T:
        if key not in self._once:
            self._once[key] = found()
        known: T = self._once[key]
        return known

    def list(self, directory: Path) -> list[DirEntry]:
        known = self._listed.get(directory)
        if known is None:
            known = self._files.list(directory)
            if len(self._listed) < _MOST:
                self._listed[directory] = known
        return known.copy()

    def stat(self, path: Path) -> DirEntry | None:
        if path in self._examined:
            return self._examined[path]
        found = self._files.stat(path)
        if len(self._examined) < _MOST:
            self._examined[path] = found
        return found

    def read_at(self, path: Path, size: int, at: int) -> bytes:
        place = path, size, at
        known = self._read.get(place)
        if known is None:
            known = self._files.read_at(path, size, at)
            if len(known) <= _SHORT and len(self._read) < _MOST:
                self._read[place] = known
        return known
