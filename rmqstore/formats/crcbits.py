"""Find the single flipped bit, or the single wrong byte, that explains a CRC-32 mismatch.

CRC-32 is linear: for data of equal length, the xor of two CRCs depends only on the xor of the data. So the syndrome
(stored xor computed CRC) identifies a single wrong byte: run the CRC backwards from the end of the data, and the
syndrome becomes the contribution of that byte at its position. This takes linear time and does not read the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_POLYNOMIAL = 0xEDB88320
STORED_BITS = 31
"""RocketMQ stores CRCs without the top bit (UtilAll#crc32)."""


class FlippedBit(NamedTuple):
    """A flipped bit: its byte position in the data, and its number in that byte (0 is the lowest)."""

    at: int
    bit: int


class WrongByte(NamedTuple):
    """A wrong byte: its position in the data, and a mask of its wrong bits."""

    at: int
    mask: int


def _table() -> tuple[int, ...]:
    words = []
    for word in range(256):
        for _ in range(8):
            word = (word >> 1) ^ (_POLYNOMIAL if word & 1 else 0)
        words.append(word)
    return tuple(words)


_TABLE = _table()
_BY_TOP_BYTE = {word >> 24: (index, word) for index, word in enumerate(_TABLE)}
_LAST_BYTE = {word: mask for mask, word in enumerate(_TABLE) if mask}
"""CRC difference caused by a wrong last byte → mask of the wrong bits in that byte."""
BITS, BYTES = 8, 255
"""Candidates per byte of data: 8 flipped bits, or 255 other values."""


def flip(raw: bytes, at: int, bit: int) -> bytes:
    """Return the bytes with one bit flipped."""
    return flip_bits(raw, at, 1 << bit)


def flip_bits(raw: bytes, at: int, mask: int) -> bytes:
    """Return the bytes with the `mask` bits of one byte flipped."""
    return raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]


def flipped_bits(length: int, stored: int, computed: int) -> list[FlippedBit]:
    """List every single bit in `length` bytes whose flip turns one CRC into the other. Both CRCs have 31 bits.

    The list is empty if no single bit explains the difference, or if `stored` has more than 31 bits and so is damaged
    itself.
    """
    found = wrong_bytes(length, stored, computed)
    return [FlippedBit(at, mask.bit_length() - 1) for at, mask in found if mask.bit_count() == 1]


def wrong_bytes(length: int, stored: int, computed: int) -> list[WrongByte]:
    """List every single byte in `length` bytes that, changed, turns one CRC into the other. See `flipped_bits`."""
    if not 0 <= stored < 1 << STORED_BITS:
        return []
    syndrome = stored ^ computed
    return [*_explain(length, syndrome), *_explain(length, syndrome | 1 << STORED_BITS)]


def odds_of_false_match(length: int, candidates: int = BITS) -> float:
    """Return the probability that unrelated damage in `length` bytes matches a candidate (`BITS` or `BYTES`)."""
    return min(1.0, candidates * length / (1 << STORED_BITS))


def _explain(length: int, syndrome: int) -> Iterator[WrongByte]:
    """Run the table-driven CRC, `crc = crc >> 8 ^ table[crc & 0xff]`, backwards and yield each possible wrong byte."""
    by_top_byte, last_byte = _BY_TOP_BYTE, _LAST_BYTE
    for at in range(length - 1, -1, -1):
        if syndrome in last_byte:
            yield WrongByte(at, last_byte[syndrome])
        index, word = by_top_byte[syndrome >> 24]
        syndrome = (syndrome ^ word) << 8 | index
