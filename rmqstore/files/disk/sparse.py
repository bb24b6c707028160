"""Find the data extents of a sparse file, so that its holes, which read as zeros, need not be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator


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
