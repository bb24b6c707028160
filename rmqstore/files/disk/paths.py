"""Paths that anybody may have made: links that lead to themselves, and entries that are not regular files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rmqstore.files.disk.reading import open_regular


def real_path(path: Path) -> Path:
    """The absolute path without links; what cannot be followed, such as a link that leads to itself, stays as it is.

    Path.resolve() raises RuntimeError for such a link (Python 3.11, 3.12).
    """
    return Path(os.path.realpath(path))


def read_small(path: Path, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes: a device or a pipe would never end, or never begin.

    Errors: OSError, with EFBIG for a longer file and EINVAL for anything but a regular file.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"{size:,} bytes are more than the {limit:,} that it may have", str(path))
        parts = []
        at = 0
        while at <= limit and (part := os.pread(descriptor, min(1 << 20, limit + 1 - at), at)):
            parts.append(part)
            at += len(part)
        if at > limit:
            raise OSError(errno.EFBIG, f"it grows beyond the {limit:,} bytes that it may have", str(path))
        return b"".join(parts)
    finally:
        os.close(descriptor)
