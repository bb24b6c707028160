"""Which single flipped bit, or single wrong byte, explains a wrong CRC-32.

CRC-32 is linear: the xor of two CRCs of equally long data depends only on their difference. So the syndrome (stored xor
computed CRC) names the wrong byte, if it is one: stepping the syndrome back, byte by byte from the end of the data,
meets the contribution of that byte. The time is linear in the data's length, and the data itself is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_POLYNOMIAL = 0xEDB88320
STORED_BITS = 31
"""RocketMQ stores CRCs without the top bit (UtilAll#crc32)."""


class FlippedBit(NamedTuple):
    """Byte position in the data, and the bit in that byte (0 is the lowest)."""

    at: int
    bit: int


class WrongByte(NamedTuple):
    """Byte position in the data, and the bits of that byte that are wrong."""

    at: int
    mask: int


def _table() -> tuple[int, ...]:
    out = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        out.append(value)
    return tuple(out)


_TABLE = _table()
_BY_TOP_BYTE = {word >> 24: (index, word) for index, word in enumerate(_TABLE)}
_LAST_BYTE = {word: mask for mask, word in enumerate(_TABLE) if mask}
"""What a wrong last byte changes in the CRC, and the bits of it that are wrong."""
BITS, BYTES = 8, 255
"""How many candidates each byte of the data has: its flipped bits, or all its other values."""


def flip(raw: bytes, at: int, bit: int) -> bytes:
    """The bytes with one bit flipped."""
    return flip_bits(raw, at, 1 << bit)


def flip_bits(raw: bytes, at: int, mask: int) -> bytes:
    """The bytes with some bits of one byte flipped."""
    return raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]


def flipped_bits(length: int, stored: int, computed: int) -> list[FlippedBit]:
    """All single bits of `length` bytes whose flip turns one CRC into the other. Both CRCs have 31 bits.

    Units: `length` in bytes. An empty list: no single bit explains the difference, or `stored` has more bits and so is
    damaged itself.
    """
    found = wrong_bytes(length, stored, computed)
    return [FlippedBit(at, mask.bit_length() - 1) for at, mask in found if mask.bit_count() == 1]


def wrong_bytes(length: int, stored: int, computed: int) -> list[WrongByte]:
    """All single bytes of `length` bytes that, with other values, turn one CRC into the other. See `flipped_bits`."""
    if not 0 <= stored < 1 << STORED_BITS:
        return []
    syndrome = stored ^ computed
    return [*_explain(length, syndrome), *_explain(length, syndrome | 1 << STORED_BITS)]


def odds_of_false_match(length: int, candidates: int = BITS) -> float:
    """The probability that other damage looks like one of the candidates (`BITS`, `BYTES`), in this many bytes."""
    return min(1.0, candidates * length / (1 << STORED_BITS))


def _explain(length: int, syndrome: int) -> Iterator[WrongByte]:
    """Step the syndrome back over the data. Source: the table-driven CRC, `crc = crc >> 8 ^ table[crc & 0xff]`."""
    by_top_byte, last_byte = _BY_TOP_BYTE, _LAST_BYTE
    for at in range(length - 1, -1, -1):
        if syndrome in last_byte:
            yield WrongByte(at, last_byte[syndrome])
        index, word = by_top_byte[syndrome >> 24]
        syndrome = (syndrome ^ word) << 8 | index
