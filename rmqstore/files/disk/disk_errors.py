"""Translate an OSError of a write into an error of this project."""

from __future__ import annotations

import errno
from pathlib import Path

from rmqstore.errors import CouldNotCheck, NoSpace, NotReadable, OutputExists, RmqStoreError
from rmqstore.texts import Text

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space left, quota exceeded, or file too large (RLIMIT_FSIZE, or the file system's limit)."""


def is_full(error: OSError) -> bool:
    """Return whether a write failed because of a full disk, a quota or a limit on file sizes."""
    return error.errno in _FULL


def explain(error: OSError, path: Path) -> RmqStoreError:
    """Return the error of this project, with advice, for an OSError on `path`."""
    message = f"{path}: {error.strerror or error}"
    if is_full(error):
        return NoSpace(
            message, Text("free space (or raise the quota or the file size limit), then run the command again")
        )
    if isinstance(error, FileExistsError):
        return OutputExists(Text("{path} already exists", path=path))
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError) or error.errno == errno.EROFS:
        return NotReadable(message)
    return CouldNotCheck(message, Text("the disk or the operating system reported an error; see dmesg"))
