"""Compute String.hashCode of many byte strings of a chunk at once, eight bytes at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmqstore.scan import native
from rmqstore.scan.kernels import I64, U8, Bool, u64

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
