"""Which single flipped bit explains a wrong CRC-32.

CRC-32 is linear: the xor of two CRCs of equally long data depends only on their difference. So the syndrome (stored xor
computed CRC) names the flipped bit, if it is one: stepping the syndrome back, byte by byte from the end of the data,
meets the contribution of that bit. The time is linear in the data's length, and the data itself is not read.
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


def _table() -> tuple[int, ...]:
    out = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        out.append(value)
    return tuple(out)


_TABLE = _table()
_BY_TOP_BYTE = {word >> 24: (index, word) for index, word in enumerate(_TABLE)}
_LAST_BYTE = {_TABLE[1 << bit]: bit for bit in range(8)}
"""What a flipped bit in the last byte changes in the CRC."""


def flipped_bits(length: int, stored: int, computed: int) -> list[FlippedBit]:
    """All single bits of `length` bytes whose flip turns one CRC into the other. Both CRCs have 31 bits.

    Units: `length` in bytes. An empty list: no single bit explains the difference, or `stored` has more bits and so is
    damaged itself.
    """
    if not 0 <= stored < 1 << STORED_BITS:
        return []
    syndrome = stored ^ computed
    return [*_explain(length, syndrome), *_explain(length, syndrome | 1 << STORED_BITS)]


def odds_of_false_match(length: int) -> float:
    """The probability that damage other than a flipped bit looks like one, in data of this many bytes."""
    return min(1.0, 8 * length / (1 << STORED_BITS))


def _explain(length: int, syndrome: int) -> Iterator[FlippedBit]:
    """Step the syndrome back over the data. Source: the table-driven CRC, `crc = crc >> 8 ^ table[crc & 0xff]`."""
    by_top_byte, last_byte = _BY_TOP_BYTE, _LAST_BYTE
    for at in range(length - 1, -1, -1):
        if syndrome in last_byte:
            yield FlippedBit(at, last_byte[syndrome])
        index, word = by_top_byte[syndrome >> 24]
        syndrome = (syndrome ^ word) << 8 | index
