"""Read regular and sparse files; `LocalFiles` is made of this.

Only regular files are read, without ever blocking on a FIFO or a device that took a file's place. Of a sparse file only
the data extents are read; its holes are zeros.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rmqstore.texts import Text


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return the descriptor; a FIFO or a device in its place does not block.

    Errors: OSError from open, for anything but a regular file, and for a name that is impossible on this system: a
    damaged topic may contain NUL, or characters that the locale cannot encode.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:
        raise OSError(errno.ENOENT, Text("not a valid file name"), str(path)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, Text("not a regular file"), str(path))
    return fd


def open_beneath(place: Path, relative: Path) -> int:
    """Open a regular file below a directory for reading without following any link, and return the descriptor.

    Whoever replaces a directory or the file by a link meanwhile gains nothing. `place` may be reached through links.
    Errors: as `open_regular`; ELOOP or ENOTDIR for a link.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        folder = open_directory_beneath(place, relative.parent)
        try:
            fd = os.open(relative.name, flags, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:  # with the whole path: of a file that expired, the caller looks again
        raise OSError(error.errno, error.strerror, str(place / relative)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, Text("not a regular file"), str(place / relative))
    return fd


def open_below(name: str, folder: int, flags: int = os.O_RDONLY) -> int:
    """Open a directory in an open one, unless it is a link, and return the descriptor. Errors: OSError."""
    return os.open(name, flags | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def descend(top: int, names: Iterable[str], enter: Callable[[str, int], int] = open_below) -> int:
    """Return the descriptor of a directory below an open one; `enter` opens each level, by its name in the one above.

    This is the one way down that follows no link. `top` stays open, and is returned without names. Errors: OSError.
    """
    folder = top
    try:
        for name in names:
            below = enter(name, folder)
            if folder != top:
                os.close(folder)
            folder = below
    except BaseException:
        if folder != top:
            os.close(folder)
        raise
    return folder


def open_directory_beneath(place: Path, relative: Path, enter: Callable[[str, int], int] = open_below) -> int:
    """Open a directory below another one without following any link, and return the descriptor; `enter`: see `descend`.

    Errors: OSError.
    """
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = descend(top, relative.parts, enter)
        return os.dup(folder) if folder == top else folder
    finally:
        os.close(top)


def next_data(fd: int, at: int, stop: int) -> tuple[int, int]:
    """Return the first data extent in [at, stop), half-open; (stop, stop) if only a hole is left.

    If the file system does not report holes, the whole range counts as data.
    Units: bytes, as positions in the file. Errors: none.
    """
    if at >= stop:
        return stop, stop
    try:
        low = os.lseek(fd, at, os.SEEK_DATA)
        if low >= stop:
            return stop, stop
        return low, min(max(os.lseek(fd, low, os.SEEK_HOLE), low + 1), stop)
    except OSError as error:
        return (stop, stop) if error.errno == errno.ENXIO else (at, stop)


def data_extents(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield all data extents in [start, stop) as half-open ranges."""
    low, high = next_data(fd, start, stop)
    while low < stop:
        yield low, high
        low, high = next_data(fd, high, stop)
