"""A repository in a directory of this machine, or of a network file system."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqstore.append.disk import FILE_MODE, SequentialFile, make_directories, sync_directory
from rmqstore.backup.storage.storage import ObjectWriter, Storage, StoredObject, check_key
from rmqstore.errors import OutputExists, Refused
from rmqstore.files.disk import explain
from rmqstore.texts import Text

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

    def _path(self, key: str) -> Path:
        return self.directory / check_key(key)

    def path_of(self, key: str) -> Path:
        """Return the file of an object."""
        return self._path(key)

    def create(self, key: str, data: bytes) -> None:
        with self.writer(key) as writer:
            writer.write(data)
            writer.finish()

    def replace(self, key: str, data: bytes) -> None:
        with LocalWriter(self._path(key), replaces=True) as writer:
            writer.write(data)
            writer.finish()

    def writer(self, key: str) -> LocalWriter:
        return LocalWriter(self._path(key))

    def size(self, key: str) -> int | None:
        path = self._path(key)
        try:
            status = path.lstat()  # a link leads out of the repository, and is no object
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explain(error, path) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read_into(self, key: str, buffer: memoryview, at: int) -> int:
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return os.preadv(descriptor, [buffer], at)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise explain(error, path) from error

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        top = self._path(prefix)
        todo = [top]
        while todo:
            folder = todo.pop()
            try:
                entries = list(os.scandir(folder))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise explain(error, folder) from error
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(PART):
                        key = Path(entry.path).relative_to(self.directory).as_posix()
                        yield StoredObject(key, entry.stat(follow_symlinks=False).st_size)

    def folders(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.directory) if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, self.directory) from error

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, path) from error

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        path = self._path(key)
        make_directories(path.parent)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except OSError as error:
            raise explain(error, path) from error
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
        for folder, _, names in os.walk(self._path(prefix)):
            for name in names:
                if name.endswith(PART):
                    Path(folder, name).unlink(missing_ok=True)


class LocalWriter(ObjectWriter):
    """Writes one file; runs of zeros become holes."""

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self._path = path
        self._replaces = replaces
        self._temporary = path.with_name(path.name + PART)
        make_directories(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self._temporary, flags, FILE_MODE)
        except OSError as error:
            raise explain(error, path) from error
        self._file = SequentialFile(self._descriptor)

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise explain(error, self._path) from error

    def finish(self) -> None:
        try:
            self._file.finish(self._file.size)
            self._close()
            if self._replaces:
                self._temporary.rename(self._path)
            else:
                self._give_name()
            sync_directory(self._path.parent)
        except FileExistsError as error:
            self.abandon()
            raise OutputExists(Text("{path} already exists", path=self._path)) from error
        except OSError as error:
            raise explain(error, self._path) from error

    def _give_name(self) -> None:
        """Name the file unless the name is taken. Errors: OSError."""
        try:
            os.link(self._temporary, self._path)
            self._temporary.unlink()
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
                raise
            if os.path.lexists(self._path):  # a file system without hard links
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            self._temporary.rename(self._path)

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._file.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def abandon(self) -> None:
        self._close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
