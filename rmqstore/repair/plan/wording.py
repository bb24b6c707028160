"""Shortens long lists for the notes of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from rmqstore.texts import Text, joined

_NAMED = 8
_NOTES = 20


def first_few(names: Sequence[str]) -> str:
    """Join the first names with commas, and append how many more there are."""
    more = len(names) - _NAMED
    return (
        Text("{names} and {more:,} more", names=joined(names[:_NAMED]), more=more)
        if more > 0
        else joined(names[:_NAMED])
    )


def first_notes(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and append how many more there are."""
    more = len(notes) - _NOTES
    return [*notes[:_NOTES], *([Text("… and {more:,} more like these", more=more)] if more > 0 else [])]
