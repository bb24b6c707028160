"""Counts in words."""

from __future__ import annotations


def many(count: int, word: str, plural: str = "") -> str:
    """Return for example `1 message`, `1,225 messages` or `7 entries`; `plural` is `word` + "s" by default."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"
