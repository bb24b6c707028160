"""Reading a file that may have been replaced by anything: only regular files are opened, and nobody has to wait."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> int:
    """A read-only descriptor of a regular file; a FIFO or a device in its place cannot make the caller wait.

    Errors: OSError as open's, for anything but a regular file, and for a name that this system cannot say (a
    damaged topic's with NUL in it, or with letters that the locale lacks).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:
        raise OSError(errno.ENOENT, "no such name", str(path)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def read_at(path: Path, size: int, at: int) -> bytes:
    """Up to `size` bytes at a position of a file; empty when it cannot be read or has vanished."""
    try:
        fd = open_regular(path)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, at)
    except OSError:
        return b""
    finally:
        os.close(fd)
