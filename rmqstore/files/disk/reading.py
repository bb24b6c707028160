"""Read regular files only, without ever blocking on a FIFO or a device that took a file's place."""

from __future__ import annotations

import errno
import os
import stat
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
