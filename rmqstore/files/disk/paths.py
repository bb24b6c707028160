"""Handle untrusted paths: circular links, and entries that are not regular files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rmqstore.files.disk.reading import open_regular


def real_path(path: Path) -> Path:
    """Return the absolute path with links resolved; a link that cannot be resolved, such as a circular one, stays.

    Path.resolve() raises RuntimeError for a circular link (Python 3.11, 3.12).
    """
    return Path(os.path.realpath(path))


def read_small(path: Path, limit: int) -> bytes:
    """Read a whole regular file of at most `limit` bytes; never a device or a pipe, which may block or have no end.

    Errors: OSError, with EFBIG for a longer file and EINVAL for anything but a regular file.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"its {size:,} bytes exceed the limit of {limit:,} bytes", str(path))
        parts = []
        at = 0
        while at <= limit and (part := os.pread(descriptor, min(1 << 20, limit + 1 - at), at)):
            parts.append(part)
            at += len(part)
        if at > limit:
            raise OSError(errno.EFBIG, f"it has grown beyond the limit of {limit:,} bytes", str(path))
        return b"".join(parts)
    finally:
        os.close(descriptor)
