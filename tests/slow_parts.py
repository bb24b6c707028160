"""`--slow-part K/N`: the slow tests divided into N parts of about the same size, each test in exactly one of them."""

from __future__ import annotations

import re
import zlib


def parse_part(text: str) -> tuple[int, int]:
    """K and N. Errors: ValueError unless 1 <= K <= N."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"{text!r} is not K/N with K from 1 to N")
    return int(match[1]), int(match[2])


def belongs(test: str, part: tuple[int, int]) -> bool:
    """Whether a test, by its node id, belongs to a part. New tests do not move the others to another part."""
    number, count = part
    return zlib.crc32(test.encode()) % count == number - 1
