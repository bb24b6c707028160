"""Files that this program makes outside of stores: outputs, lists, bodies, pages, plans, repositories, new stores.

They hold what messages and configurations hold, so only their owner may read them, whatever the umask: files have the
mode 0600, directories 0700. An output appears when it is complete. Until then it is beside its place, under a name of
its own, and locked: what an interrupted run left has no lock any more, and the next run removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rmqstore.files.disk import explained, real_path, sync_directory
from rmqstore.files.reading import open_below, open_directory_beneath

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
READABLE, READABLE_DIRECTORY = 0o644, 0o755
"""Modes of what other users' programs read: metrics, the lock of a store, and examples."""
Removed = Callable[[Path], None]
"""Is called with the path of what an interrupted run left, after its removal."""
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def create_private(path: Path | str, flags: int = 0, mode: int = FILE_MODE, directory: int | None = None) -> int:
    """Open a file for reading and writing, create it if needed, give it `mode`, and return its descriptor.

    `flags`: more flags of open(2); `directory`: descriptor of the directory in which `path` is a name. The mode of
    another user's file stays. Errors: OSError.
    """
    descriptor = os.open(path, _OPEN | flags, mode & FILE_MODE, dir_fd=directory)
    status = os.fstat(descriptor)
    if stat.S_IMODE(status.st_mode) != mode and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        os.fchmod(descriptor, mode)
    return descriptor


def create_anew(name: str, directory: int) -> int:
    """Create a private file in an open directory, instead of what has this name there, and return its descriptor.

    That may be what an interrupted run left, a link, or a second name of another file, which would be written to.
    Errors: OSError.
    """
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    return create_private(name, os.O_EXCL, directory=directory)


def make_missing(directory: Path, made: Callable[[Path], None]) -> None:
    """Create a directory and its missing parents, 0700, and call `made` with each; those that exist stay as they are.

    Errors: NotReadable, NoSpace.
    """
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        with explained(path):
            try:
                path.mkdir(DIRECTORY_MODE)
            except FileExistsError:
                if not path.is_dir():
                    raise
                continue  # another process was faster
            made(path)


def make_private_directories(directory: Path, *, durable: bool = True) -> None:
    """Create a directory and its missing parents, and fsync the parent of each; those that exist keep their mode.

    `durable`: False not to fsync, for outputs that are made again after a crash. Errors: NotReadable, NoSpace.
    """

    def made(path: Path) -> None:
        path.chmod(DIRECTORY_MODE)
        if durable:
            sync_directory(path.parent)

    make_missing(directory, made)


def private_directory_beneath(place: Path, relative: Path) -> int:
    """Create a directory below another one as needed, following no link between them, and return its descriptor.

    Errors: OSError; ELOOP or ENOTDIR for a link; NotReadable, NoSpace.
    """
    make_private_directories(place)

    def enter(name: str, folder: int) -> int:
        made = True
        try:
            os.mkdir(name, DIRECTORY_MODE, dir_fd=folder)
        except FileExistsError:
            made = False
        below = open_below(name, folder)
        if made:
            os.fsync(folder)
            os.fchmod(below, DIRECTORY_MODE)
        return below

    return open_directory_beneath(place, relative, enter)


class PrivateFile:
    """A new file beside its place, `path`, which it takes at the end. Links in `path` are followed first.

    `mode`: None for that of the user's own file that is replaced, else 0600. Errors: OSError.
    """

    def __init__(self, path: Path, *, mode: int | None = None, removed: Removed | None = None) -> None:
        self.target = real_path(path)
        self.part = self.target.with_name(f".{self.target.name}.{os.getpid()}.part")
        _remove_left(self.target, removed)
        self.descriptor = create_private(self.part, os.O_EXCL, _own_mode(self.target) if mode is None else mode)
        _lock(self.descriptor)

    def finish(self) -> None:
        """Give the file its name when everything is on disk."""
        os.fsync(self.descriptor)
        self.part.replace(self.target)
        self.close()

    def close(self) -> None:
        """Remove the file, unless it is finished."""
        if self.descriptor >= 0:
            with suppress(OSError):
                self.part.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> PrivateFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own_mode(path: Path) -> int:
    """Return the mode of a file that is to be replaced, if this user has set it; otherwise 0600."""
    try:
        status = path.lstat()
    except OSError:
        return FILE_MODE
    own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return status.st_mode & 0o777 if own else FILE_MODE


def _lock(descriptor: int) -> bool:
    """Lock a file that this process writes; return whether no other one does. Not every file system has locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_left(target: Path, removed: Removed | None) -> None:
    """Remove what interrupted runs left of a file: this user's parts that no process has locked."""
    form = re.compile(rf"\.{re.escape(target.name)}\.\d+\.part")
    try:
        names = [entry.name for entry in os.scandir(target.parent) if form.fullmatch(entry.name)]
    except OSError:
        return
    for name in names:
        path = target.with_name(name)
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and _lock(descriptor):
                    path.unlink()
                    if removed is not None:
                        removed(path)
            finally:
                os.close(descriptor)
