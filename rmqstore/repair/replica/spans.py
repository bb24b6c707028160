"""Ranges of global offsets, half-open: joined, cut, and taken out of each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same bytes, sorted, with ranges that touch or overlap as one."""
    out: list[Span] = []
    for start, stop in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


def within(spans: Iterable[Span], low: int, high: int) -> list[Span]:
    """The parts of the ranges that lie in [low, high)."""
    cut = [(max(start, low), min(stop, high)) for start, stop in spans]
    return [(start, stop) for start, stop in cut if start < stop]


def without(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """The ranges without the bytes of `holes`, which are sorted and apart."""
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


def meets(span: Span, others: Iterable[Span]) -> bool:
    """Whether a range shares a byte with any of the others."""
    return any(start < span[1] and span[0] < stop for start, stop in others)
