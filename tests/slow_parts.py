"""The option `--slow-part K/N`: divide the slow tests into N parts of about the same size, and run only part K."""

from __future__ import annotations

import re
import zlib


def parse_part(text: str) -> tuple[int, int]:
    """Parse `K/N`. Errors: ValueError unless 1 <= K <= N."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"{text!r} is not K/N with K from 1 to N")
    return int(match[1]), int(match[2])


def belongs(test: str, part: tuple[int, int]) -> bool:
    """Return whether a test belongs to a part, by its node id, so that new tests do not move others between parts."""
    number, count = part
    return zlib.crc32(test.encode()) % count == number - 1
