"""Let the kernel write dirty pages to disk early, so that the fsync at the end waits less."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_WRITE = 2  # SYNC_FILE_RANGE_WRITE, linux/fs.h


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
