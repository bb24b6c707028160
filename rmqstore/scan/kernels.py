"""The inner loops of the scan over one cache-sized chunk, in C if the library was built (`native`), else in NumPy.

A chunk is a bytearray of which the first `have` bytes are valid. Positions are indexes into it.

`hash_spans` computes String.hashCode of many byte strings of a chunk at once, eight bytes at a time.
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
from rmqstore.formats.ranges import Ranges
from rmqstore.scan import native
from rmqstore.scan.native import I64 as I64
from rmqstore.scan.native import U8 as U8
from rmqstore.scan.native import Bool as Bool

_size = struct.Struct(">I").unpack_from


def walk(view: memoryview, at: int, have: int, size_at: int, least: int, limit: int) -> I64:
    """Follow the size fields from record to record and return their borders: record i is [borders[i], borders[i + 1]).

    Every record lies before `have` and has at least `least` bytes. Only sizes are checked here; `framed` then checks
    all records at once and finds where the chain left the records.
    Shape: (n + 1,); only `at` if no record starts there.
    """
    p = at + size_at
    size_positions = [p]
    append = size_positions.append
    view = view[:have]
    size = _size
    limit = min(limit, (have - at) // least + 1)  # a size of zero would loop forever
    try:
        for _ in repeat(None, limit):
            p += size(view, p)[0]
            append(p)
    except struct.error:  # the next size field is not completely in the chunk
        pass
    packed = struct.pack(f"{len(size_positions)}q", *size_positions)
    return sound_borders(np.frombuffer(packed, dtype=np.int64) - size_at, have, least)


def sound_borders(borders: I64, have: int, least: int) -> I64:
    """Cut the borders before the first record that is too short or extends past `have`."""
    if borders[-1] > have:  # sizes are unsigned, so only the last border can exceed it
        borders = borders[:-1]
    short = borders[1:] - borders[:-1] < least  # checked here because it would make the loop a sixth slower
    return borders[: int(np.argmax(short)) + 1] if short.any() else borders


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


def body_crcs(raw: bytearray, starts: I64, stops: I64) -> I64:
    """Compute the CRC-32, with the top bit cleared, of every range; 0 for an empty one.

    Shape: (n,)
    """
    loops = native.load()
    if loops is not None and loops.has_crcs:
        return loops.body_crcs(raw, starts, stops)
    crc = crc32
    view = memoryview(raw)
    found = [crc(view[a:b]) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    # struct.pack is the fastest way to turn a list into an array
    return (np.frombuffer(struct.pack(f"{len(found)}I", *found), dtype=np.uint32) & 0x7FFFFFFF).astype(np.int64)


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


U64 = npt.NDArray[np.uint64]
_HIGH = np.uint64(0x8080_8080_8080_8080)
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF_00FF_00FF_00FF), np.uint64(0x0000_FFFF_0000_FFFF)
_LOW_HALF = np.uint64(0xFFFF_FFFF)
_POWERS = np.array([pow(31, k, 1 << 32) for k in range(9)], dtype=np.uint64)
_WORD = 8


def hash_spans(buf: U8, start: I64, length: I64) -> tuple[I64, Bool]:
    """Return the hash (unsigned, 32 bits) of every span, and which spans are ASCII: only their hashes are valid.

    Shape: (n,) each.
    Source: java.lang.String#hashCode
    """
    loops = native.load()
    if loops is not None:
        return loops.hashes(buf, start, length)
    n = len(start)
    codes, wide = np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)
    for at in range(0, int(length.max(initial=0)), _WORD):
        rows = np.flatnonzero(length > at)
        if len(rows) == n:
            count = np.minimum(length - at, _WORD)
            word = _ending(words_at(buf, start + at), count)
            codes = codes * _POWERS[count] + _hash_word(word) if at else _hash_word(word)
            wide |= word
        else:
            count = np.minimum(length[rows] - at, _WORD)
            word = _ending(words_at(buf, start[rows] + at), count)
            codes[rows] = codes[rows] * _POWERS[count] + _hash_word(word)
            wide[rows] |= word
        codes &= _LOW_HALF
    return codes.astype(np.int64), (wide & _HIGH) == 0


def words_at(buf: U8, at: I64) -> U64:
    """Return the eight bytes at each position as big-endian words; bytes after the buffer's end are zero."""
    view = u64(buf)
    last = len(view) - 1
    if last < 0:
        return words_at(np.concatenate((buf, np.zeros(_WORD, dtype=np.uint8))), at)
    past_last = at > last
    if not past_last.any():
        return view[at].astype(np.uint64)
    word = view[np.minimum(at, last)].astype(np.uint64)
    missing = np.minimum(at - last, _WORD - 1)
    return np.where(past_last, word << (missing * 8).astype(np.uint64), word)


def _ending(word: U64, count: I64) -> U64:
    """Move the first `count` (1 to 8) bytes of a word to its end; leading zeros do not change a hash."""
    return word >> ((_WORD - count) * 8).astype(np.uint64)


def _hash_word(word: U64) -> U64:
    """Return the hash of eight bytes: the sum of byte k times 31 ** (7 - k), in the low 32 bits."""
    pairs = ((word >> np.uint64(8)) & _EVEN_BYTES) * np.uint64(31) + (word & _EVEN_BYTES)
    fours = ((pairs >> np.uint64(16)) & _EVEN_PAIRS) * np.uint64(31**2) + (pairs & _EVEN_PAIRS)
    return (fours >> np.uint64(32)) * np.uint64(31**4) + (fours & _LOW_HALF)


def within(ranges: Ranges, points: I64) -> Bool:
    """Return which points a set has."""
    if not ranges:
        return np.zeros(len(points), dtype=np.bool_)
    starts = np.array([start for start, _ in ranges.parts], dtype=np.int64)
    stops = np.array([stop for _, stop in ranges.parts], dtype=np.int64)
    at = np.searchsorted(starts, points, side="right") - 1
    return (at >= 0) & (points < stops[np.maximum(at, 0)])
