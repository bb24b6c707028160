"""TAGS that a consume queue unit contradicts: no checksum covers them, so the unit's tags code is the witness. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.formats import properties
from rmqstore.formats.message import Message
from rmqstore.repair.salvage_spans import carries_crc

_SEARCHED = 1024  # bytes of a property text that are searched for one flipped bit
_INT = 1 << 31


def one_bit_apart(a: int, b: int) -> bool:
    """Whether two stored 64-bit numbers differ in one bit."""
    return ((a ^ b) & 0xFFFF_FFFF_FFFF_FFFF).bit_count() == 1


def proved_tags(raw: bytes, message: Message, code: int) -> bytes | None:
    """The record with the one bit of its property text flipped back that makes its TAGS those of a unit's tags code.

    A code is 32 bits and some thousand bits are tried: that a wrong unit meets one of them is out of the question. None
    without exactly one answer, where a record CRC covers the text, and for codes that are no hash of a text.
    """
    text = message.properties
    if not -_INT <= code < _INT or code == 0 or carries_crc(message) or len(text) > _SEARCHED:
        return None
    found: set[bytes] = set()
    for at in _places(text):
        for bit in range(8):
            candidate = text[:at] + bytes([text[at] ^ (1 << bit)]) + text[at + 1 :]
            tags = properties.parse_properties(candidate).get(properties.TAGS)
            if tags and properties.tags_code(tags) == code and not properties.property_faults(candidate):
                found.add(candidate)
    return raw[: len(raw) - len(text)] + found.pop() if len(found) == 1 else None


def _places(text: bytes) -> Iterable[int]:
    """Where the flipped bit can be: in the TAGS with their separators; anywhere where there are none."""
    at = 0
    for part in text.split(b"\x02"):
        if part.startswith(properties.TAGS.encode() + b"\x01"):
            return range(max(0, at - 1), min(len(text), at + len(part) + 1))
        at += len(part) + 1
    return range(len(text))
