"""Where a sparse file has data. Holes read as zeros, and cost no time where nobody reads them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator


def next_data(fd: int, at: int, stop: int) -> tuple[int, int]:
    """The first stretch of data in [at, stop); (stop, stop) when only a hole is left.

    Where the file system cannot tell, all of it counts as data.
    Units: bytes, positions in the file, half-open. Errors: none.
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
    """All stretches of data in [start, stop), as `next_data` finds them."""
    low, high = next_data(fd, start, stop)
    while low < stop:
        yield low, high
        low, high = next_data(fd, high, stop)


def data_end(fd: int, stop: int) -> int:
    """Where the last stretch of data below `stop` ends; 0 without data. Units: bytes, position in the file."""
    return max((high for _, high in data_extents(fd, 0, stop)), default=0)
