"""Views of a chunk as numbers, and helpers for masks and positions.

A chunk is a bytearray of which the first `have` bytes are valid. Positions are indexes into it.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import numpy as np
import numpy.typing as npt

from rmqstore.formats.ranges import Ranges
from rmqstore.scan.native import I64 as I64
from rmqstore.scan.native import U8 as U8
from rmqstore.scan.native import Bool as Bool


def u32(buf: U8) -> npt.NDArray[np.uint32]:
    """View the chunk as an unsigned big-endian 32-bit number at every byte position."""
    return np.ndarray((max(0, len(buf) - 3),), dtype=">u4", buffer=buf, strides=(1,))


def u64(buf: U8) -> npt.NDArray[np.uint64]:
    """View the chunk as an unsigned big-endian 64-bit number at every byte position."""
    return np.ndarray((max(0, len(buf) - 7),), dtype=">u8", buffer=buf, strides=(1,))


def i16(buf: U8) -> npt.NDArray[np.int16]:
    """View the chunk as a signed big-endian 16-bit number at every byte position."""
    return np.ndarray((max(0, len(buf) - 1),), dtype=">i2", buffer=buf, strides=(1,))


def i32(buf: U8) -> npt.NDArray[np.int32]:
    """View the chunk as a signed big-endian 32-bit number at every byte position."""
    return np.ndarray((max(0, len(buf) - 3),), dtype=">i4", buffer=buf, strides=(1,))


def i64(buf: U8) -> I64:
    """View the chunk as a signed big-endian 64-bit number at every byte position."""
    return np.ndarray((max(0, len(buf) - 7),), dtype=">i8", buffer=buf, strides=(1,))


def consecutive(numbers: npt.NDArray[np.integer]) -> list[tuple[int, int]]:
    """Positions [start, stop) of the stretches in which every number is one more than the number before it."""
    if not len(numbers):
        return []
    edges = (np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()
    return list(zip([0, *edges], [*edges, len(numbers)], strict=True))


def leading(mask: Bool) -> int:
    """Return the number of true values before the first false one."""
    return len(mask) if mask.all() else int(np.argmin(mask))


def false_runs(mask: Bool) -> list[tuple[int, int]]:
    """Return the runs [start, stop) of false values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([1], mask.astype(np.int8), [1])))).tolist()
    return list(zip(edges[0::2], edges[1::2], strict=True))


def grouped(numbers: npt.NDArray[np.integer]) -> list[I64]:
    """The positions of each different number, in order; the groups by number."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_THRESHOLD = 32 << 20


@cache
def keep_freed_memory() -> None:
    """Make malloc keep the memory of freed chunk-sized arrays, once per process; does nothing without mallopt.

    By default malloc returns such memory to the kernel and gets it back with every page zeroed, which costs a tenth of
    a scan's time.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_TRIM_THRESHOLD, _THRESHOLD)
    mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


def within(ranges: Ranges, points: I64) -> Bool:
    """Return which points a set has."""
    if not ranges:
        return np.zeros(len(points), dtype=np.bool_)
    starts = np.array([start for start, _ in ranges.parts], dtype=np.int64)
    stops = np.array([stop for _, stop in ranges.parts], dtype=np.int64)
    at = np.searchsorted(starts, points, side="right") - 1
    return (at >= 0) & (points < stops[np.maximum(at, 0)])
