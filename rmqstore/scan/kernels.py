"""The inner loops of the scan, on one cache-sized chunk each: in C where it was built (`native`), else by NumPy.

A chunk is a bytearray of which the first `have` bytes count. Positions are indexes into it.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from functools import cache
from itertools import repeat

import numpy as np
import numpy.typing as npt

from rmqstore.formats.message import crc32
from rmqstore.scan import native
from rmqstore.scan.arrays import I64 as I64
from rmqstore.scan.arrays import U8 as U8
from rmqstore.scan.arrays import Bool as Bool

_size = struct.Struct(">I").unpack_from


def walk(view: memoryview, at: int, have: int, size_at: int, least: int, limit: int) -> I64:
    """Borders of records chained by their size fields: record i is [borders[i], borders[i + 1]).

    Every record given has all its bytes before `have`, and at least `least` of them. Nothing but sizes is looked at:
    `framed` decides afterwards, for all at once, where the chain left the records.
    Shape: (n + 1,), `at` alone where no record begins there.
    """
    p = at + size_at
    out = [p]
    append = out.append
    view = view[:have]
    size = _size
    limit = min(limit, (have - at) // least + 1)  # zeros chain to themselves
    try:
        for _ in repeat(None, limit):
            p += size(view, p)[0]
            append(p)
    except struct.error:  # the next size field is not wholly here
        pass
    return sound_borders(np.frombuffer(struct.pack(f"{len(out)}q", *out), dtype=np.int64) - size_at, have, least)


def sound_borders(borders: I64, have: int, least: int) -> I64:
    """The borders up to the first record that is too short, or not wholly before `have`."""
    if borders[-1] > have:  # sizes are not negative, so that only the last can be behind it
        borders = borders[:-1]
    short = borders[1:] - borders[:-1] < least  # looked for here and not in the loop: it costs a sixth of it
    return borders[: int(np.argmax(short)) + 1] if short.any() else borders


def u32(buf: U8) -> npt.NDArray[np.uint32]:
    """The chunk as a big-endian 32-bit number at every byte position (a view)."""
    return np.ndarray((max(0, len(buf) - 3),), dtype=">u4", buffer=buf, strides=(1,))


def u64(buf: U8) -> npt.NDArray[np.uint64]:
    """The chunk as a big-endian 64-bit number at every byte position (a view)."""
    return np.ndarray((max(0, len(buf) - 7),), dtype=">u8", buffer=buf, strides=(1,))


def i16(buf: U8) -> npt.NDArray[np.int16]:
    """The chunk as a signed big-endian 16-bit number at every byte position (a view)."""
    return np.ndarray((max(0, len(buf) - 1),), dtype=">i2", buffer=buf, strides=(1,))


def i32(buf: U8) -> npt.NDArray[np.int32]:
    """As `u32`, signed."""
    return np.ndarray((max(0, len(buf) - 3),), dtype=">i4", buffer=buf, strides=(1,))


def i64(buf: U8) -> I64:
    """As `u64`, signed."""
    return np.ndarray((max(0, len(buf) - 7),), dtype=">i8", buffer=buf, strides=(1,))


def consecutive(numbers: npt.NDArray[np.integer]) -> list[tuple[int, int]]:
    """Positions [start, stop) of the stretches in which every number is one more than the number before it."""
    if not len(numbers):
        return []
    edges = (np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()
    return list(zip([0, *edges], [*edges, len(numbers)], strict=True))


def grouped(numbers: npt.NDArray[np.integer]) -> list[I64]:
    """The positions of each different number, in order; the groups by number."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []


def body_crcs(raw: bytearray, starts: I64, stops: I64) -> I64:
    """CRC-32 without the top bit of every range; 0 for empty ones.

    Shape: (n,)
    """
    loops = native.load()
    if loops is not None and loops.has_crcs:
        return loops.body_crcs(raw, starts, stops)
    crc = crc32
    view = memoryview(raw)
    found = [crc(view[a:b]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    # packing is the fastest way from a list to an array
    return (np.frombuffer(struct.pack(f"{len(found)}I", *found), dtype=np.uint32) & 0x7FFFFFFF).astype(np.int64)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_KEPT = 32 << 20


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what arrays of a chunk's size leave behind, once per process.

    By default it gives such pieces back to the system and asks for them again, with every page zeroed again: a
    tenth of a scan's time. Systems without mallopt go on as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_MMAP_THRESHOLD, _KEPT)
