"""Shortens long lists for the notes of a plan."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 8
_NOTES = 20


def first_few(names: Sequence[str]) -> str:
    """Join the first names with commas, and append how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def first_notes(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and append how many more there are."""
    more = len(notes) - _NOTES
    return [*notes[:_NOTES], *([f"… and {more:,} more like these"] if more > 0 else [])]
