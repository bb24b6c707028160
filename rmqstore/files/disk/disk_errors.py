"""What an error of the disk or of the system means, for everything that writes."""

from __future__ import annotations

import errno
from pathlib import Path

from rmqstore.errors import CouldNotCheck, NoSpace, NotReadable, OutputExists, RmqStoreError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, or a file that may not become so large (RLIMIT_FSIZE, the file system's limit)."""


def is_full(error: OSError) -> bool:
    """Whether a write failed for want of space or quota, or because the file may not become larger."""
    return error.errno in _FULL


def explain(error: OSError, path: Path) -> RmqStoreError:
    """The error of this project for an error of the system."""
    what = f"{path}: {error.strerror or error}"
    if is_full(error):
        return NoSpace(what, "free space (or raise the quota or the limit of file sizes), then run it again")
    if isinstance(error, FileExistsError):
        return OutputExists(f"{path} already exists")
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError):
        return NotReadable(what)
    return CouldNotCheck(what, "the disk or the system gave an error; see dmesg")
