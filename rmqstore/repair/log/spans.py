"""Operations on half-open ranges of global offsets. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Sort ranges, and merge those that touch or overlap."""
    out: list[Span] = []
    for start, stop in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


def within(spans: Iterable[Span], low: int, high: int) -> list[Span]:
    """Return the parts of the ranges that are in [low, high)."""
    cut = [(max(start, low), min(stop, high)) for start, stop in spans]
    return [(start, stop) for start, stop in cut if start < stop]


def without(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Return the ranges without the bytes of `holes`, which are sorted and disjoint."""
    holes = list(holes)
    out: list[Span] = []
    for start, stop in spans:
        for low, high in holes:
            if high <= start or low >= stop:
                continue
            if start < low:
                out.append((start, low))
            start = max(start, high)
        if start < stop:
            out.append((start, stop))
    return out


def overlapping(spans: Sequence[Span], low: int, high: int) -> Sequence[Span]:
    """Return those of the sorted, disjoint ranges that share a byte with [low, high)."""
    first = bisect_right(spans, low, key=lambda span: span[1])
    return spans[first : bisect_left(spans, high, key=lambda span: span[0])]


def meets(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a range shares a byte with any of the others, which are sorted and disjoint."""
    return bool(overlapping(others, *span))
