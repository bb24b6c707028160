"""The width of text on a terminal."""

from __future__ import annotations

import unicodedata


def columns(text: str) -> int:
    """Return the columns that a text needs on a terminal; wide characters need two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
