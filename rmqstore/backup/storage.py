"""Storage: the few operations that a repository needs of the place where its objects are, and a directory as storage.

An object has a key, a relative POSIX path such as `broker-a/log/commitlog/00000000000000000000`. It appears complete or
not at all, and is never changed afterwards, except by `replace`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rmqstore.append.disk import SequentialFile
from rmqstore.errors import CouldNotCheck, OutputExists, Refused, UsageError
from rmqstore.files.disk import explain, explained
from rmqstore.files.private import create_anew, create_private, private_directory_beneath
from rmqstore.files.reading import open_beneath, open_directory_beneath
from rmqstore.texts import Text

_PART = re.compile(r"[A-Za-z0-9_%~+=@,-][A-Za-z0-9._%~+=@,-]{0,199}")
_LEVELS = 8  # of folders; a repository has four
MAX_SMALL = 64 << 20
"""Greatest size of an object that is read as a whole: manifests. Bytes."""


class StoredObject(NamedTuple):
    """The key of an object and its size in bytes."""

    key: str
    size: int


class ObjectWriter(ABC):
    """Writes one object from its beginning to its end. Leaving the block without `finish` leaves no object."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append bytes. Errors: NoSpace, NotReadable, CouldNotCheck."""

    @abstractmethod
    def finish(self) -> None:
        """Make the object appear; it is on disk then. Errors: as `write`; OutputExists."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written."""

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abandon()


class Storage(ABC):
    """A place for objects. Can be pickled, so that other processes read the same objects.

    Errors of all methods: NotReadable, NoSpace, CouldNotCheck.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """The address that the user gave, without credentials."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is anything at the address."""

    @property
    def open_to_others(self) -> bool:
        """Whether other users of this machine can read objects: 1.0.0rc1 gave them the modes of the umask."""
        return False

    @abstractmethod
    def create(self, key: str, data: bytes) -> None:
        """Make a new object. Errors: OutputExists if there is one."""

    @abstractmethod
    def replace(self, key: str, data: bytes) -> None:
        """Make an object, or replace it atomically."""

    @abstractmethod
    def writer(self, key: str) -> ObjectWriter:
        """Return a writer of a new large object."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""

    @abstractmethod
    def read_into(self, key: str, buffer: memoryview, at: int) -> int:
        """Read bytes at a position of an object into a buffer; return their number, 0 at its end."""

    @abstractmethod
    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose keys begin with a folder, in no particular order."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of the folders at the top, sorted."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; it may be missing."""

    @abstractmethod
    def locked(self, key: str) -> AbstractContextManager[None]:
        """Hold a lock, of which only one process at a time can be the holder. Errors: Refused if another is."""

    def check_lock(self, key: str) -> None:  # noqa: B027  # a lock of the operating system is not lost
        """Make sure that this process still holds a lock. Errors: Refused if another has taken it."""

    @abstractmethod
    def clean(self, prefix: str) -> None:
        """Remove what interrupted writers left in a folder; call it only with the lock of its writers."""

    def read(self, key: str, limit: int = MAX_SMALL) -> bytes | None:
        """Return a whole object; None if it is missing. Errors: CouldNotCheck if it has more than `limit` bytes."""
        size = self.size(key)
        if size is None:
            return None
        if size > limit:
            longer = Text("{address}/{key} has {size:,} bytes: no version of rmqstore wrote it")
            raise CouldNotCheck(longer.format(address=self.address, key=key, size=size), Text("remove it"))
        return self.read_range(key, 0, size)

    def read_range(self, key: str, at: int, size: int) -> bytes:
        """Return up to `size` bytes at a position of an object; short at its end."""
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size and (count := self.read_into(key, view[have:], at + have)) > 0:
            have += count
        return bytes(view[:have])


def check_key(key: str) -> str:
    """Return a key. Errors: UsageError for one that could leave the repository."""
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise UsageError(Text("{key!r} is not the name of an object", key=key), Text("the repository is damaged"))
    return key


def refuse_link(directory: Path, relative: Path) -> Path:
    """Return a path in the directory of a repository. Errors: CouldNotCheck if it leads through a link."""
    link = _link_before(directory, relative)
    if link is not None:
        raise CouldNotCheck(
            Text("{link} is a link", link=link),
            Text("a repository has none: nothing is read or written through it; remove it"),
        )
    return directory / relative


def _link_before(directory: Path, relative: Path) -> Path | None:
    """Return a link below a directory that a path leads through; None without one."""
    path = directory / relative
    return next((one for one in [path, *path.parents][: len(relative.parts)] if one.is_symlink()), None)


def is_object(key: str) -> bool:
    """Return whether an object with this key can be one that a repository has, and not one of another program."""
    return all(map(is_name, key.split("/"))) and not key.endswith(PART)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and is_name(entry.name)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a store in a repository."""
    return _PART.fullmatch(text) is not None


PART = ".part"
"""Suffix of a file that is being written."""


class LocalStorage(Storage):
    """Objects as files below a directory. A file is written under another name, fsynced, and then linked or renamed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    @property
    def address(self) -> str:
        return str(self.directory)

    def exists(self) -> bool:
        try:
            return any(entry.name != "lost+found" for entry in os.scandir(self.directory))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise explain(error, self.directory) from error

    @property
    def open_to_others(self) -> bool:
        with explained(self.directory):
            inside = any(
                entry.stat(follow_symlinks=False).st_mode & 0o077
                for entry in os.scandir(self.directory)
                if entry.name != "lost+found" and not entry.is_symlink()
            )
            return inside and self.directory.stat().st_mode & 0o077 != 0

    def path_of(self, key: str) -> Path:
        """Return the file of an object. Errors: CouldNotCheck for a key that leads through a link."""
        return refuse_link(self.directory, Path(check_key(key)))

    def create(self, key: str, data: bytes) -> None:
        with self.writer(key) as writer:
            writer.write(data)
            writer.finish()

    def replace(self, key: str, data: bytes) -> None:
        with self._writer(key, replaces=True) as writer:
            writer.write(data)
            writer.finish()

    def writer(self, key: str) -> LocalWriter:
        return self._writer(key, replaces=False)

    def _writer(self, key: str, *, replaces: bool) -> LocalWriter:
        path = self.path_of(key)
        return LocalWriter(path, self._folder_of(key, path), replaces=replaces)

    def _folder_of(self, key: str, path: Path) -> int:
        """Create and open the directory of an object; a link that takes its place meanwhile is not followed."""
        with explained(path):
            return private_directory_beneath(self.directory, Path(key).parent)

    def size(self, key: str) -> int | None:
        if _link_before(self.directory, Path(check_key(key))) is not None:
            return None  # it leads out of the repository, and is not an object
        path = self.path_of(key)
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explain(error, path) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read_into(self, key: str, buffer: memoryview, at: int) -> int:
        path = self.path_of(key)
        with explained(path):
            descriptor = open_beneath(self.directory, Path(key))
            try:
                return os.preadv(descriptor, [buffer], at)
            finally:
                os.close(descriptor)

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        for folder, _, entries in self._folders_below(prefix):
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False) and is_object(key := f"{folder}/{entry.name}"):
                        yield StoredObject(key, entry.stat(follow_symlinks=False).st_size)

    def _folders_below(self, prefix: str) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
        """Yield the key, a descriptor and the entries of a folder, and of those below it that can have objects.

        A link is not entered, also if it takes the place of a folder meanwhile.
        """
        self.path_of(prefix)
        todo = [prefix]
        while todo:
            key = todo.pop()
            try:
                folder = open_directory_beneath(self.directory, Path(key))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    continue
                raise explain(error, self.directory / key) from error
            try:
                entries = list(os.scandir(folder))
                todo += [f"{key}/{entry.name}" for entry in entries if _is_folder(entry) and key.count("/") < _LEVELS]
                yield key, folder, entries
            finally:
                os.close(folder)

    def folders(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.directory) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, self.directory) from error

    def delete(self, key: str) -> None:
        path = self.path_of(key)
        with explained(path), suppress(FileNotFoundError):
            folder = open_directory_beneath(self.directory, Path(key).parent)
            try:
                os.unlink(path.name, dir_fd=folder)
            finally:
                os.close(folder)

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        path = self.path_of(key)
        folder = self._folder_of(key, path)
        try:
            with explained(path):
                descriptor = create_private(path.name, directory=folder)
        finally:
            os.close(folder)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise explain(error, path) from error
                raise Refused(
                    Text("another process is writing to {parent}", parent=path.parent),
                    Text("wait until that backup has ended, or stop it"),
                ) from error
            yield
        finally:
            os.close(descriptor)

    def clean(self, prefix: str) -> None:
        for _, folder, entries in self._folders_below(prefix):
            for entry in entries:
                if entry.name.endswith(PART) and not entry.is_dir(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        os.unlink(entry.name, dir_fd=folder)


class LocalWriter(ObjectWriter):
    """Writes one file in the directory with the descriptor `folder`, which it closes; runs of zeros become holes."""

    def __init__(self, path: Path, folder: int, *, replaces: bool = False) -> None:
        self._path = path
        self._folder = folder
        self._replaces = replaces
        self._temporary = path.name + PART
        try:
            with explained(path):
                self._descriptor = create_anew(self._temporary, folder)
        except BaseException:
            os.close(folder)
            raise
        self._file = SequentialFile(self._descriptor)

    def write(self, data: bytes) -> None:
        with explained(self._path):
            self._file.write(data)

    def finish(self) -> None:
        try:
            self._file.finish(self._file.size)
            if self._replaces:
                self._rename()
            else:
                self._give_name()
            os.fsync(self._folder)
            self._close()
        except FileExistsError as error:
            self.abandon()
            raise OutputExists(Text("{path} already exists", path=self._path)) from error
        except OSError as error:
            raise explain(error, self._path) from error

    def _give_name(self) -> None:
        """Name the file unless the name is taken. Errors: OSError."""
        try:
            os.link(self._temporary, self._path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.unlink(self._temporary, dir_fd=self._folder)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
                raise
            if os.path.lexists(self._path):  # a file system without hard links
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            self._rename()

    def _rename(self) -> None:
        os.rename(self._temporary, self._path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._file.close()
            os.close(self._descriptor)
            os.close(self._folder)
            self._descriptor = self._folder = -1

    def abandon(self) -> None:
        if self._folder >= 0:
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
        self._close()
