"""Let the kernel write dirty pages to disk early, so that the fsync at the end waits less."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WRITE = 2  # SYNC_FILE_RANGE_WRITE, linux/fs.h
_STEP = 8 << 20  # bytes


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the function of the C library; None if it has none."""
    import ctypes

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def start_writing(descriptor: int, at: int = 0, size: int = 0) -> None:
    """Start to write the dirty pages of a range to disk; `size` 0: to the file's end. Errors are left to the fsync."""
    function = _sync_file_range()
    if function is not None:
        function(descriptor, at, size, _WRITE)


class EarlyFile(io.FileIO):
    """A new file whose pages the kernel begins to write every few megabytes."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "wb")
        self._waiting = 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as FileIO does, and start to write what has been waiting."""
        count = super().write(data)
        self._waiting += count
        if self._waiting >= _STEP:
            start_writing(self.fileno())
            self._waiting = 0
        return count
