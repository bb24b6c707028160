"""Contents of a salvage's steps: runs of zeros, splits, and the ranges that change."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.repair.plan.content import ContentReader, Literal, Parts, Zeros

Piece = Literal | Zeros
_SHORT = 1 << 12


def sparse(record: bytes) -> list[Piece]:
    """Return the bytes of a record as pieces, with a long run of zeros as `Zeros`."""
    low = record.find(bytes(_SHORT)) if len(record) >= _SHORT << 4 else -1
    if low < 0:
        return [Literal(record)]
    high = len(record) - len(record[low:].lstrip(b"\0"))
    return [Literal(record[:low]), Zeros(high - low), Literal(record[high:])]


def joined(parts: Iterable[Piece]) -> Parts:
    """Join pieces into one content; adjacent bytes and short runs of zeros become one piece."""
    out: list[Piece] = []
    for part in parts:
        if isinstance(part, Zeros) and part.size < _SHORT:
            part = Literal(bytes(part.size))
        if isinstance(part, Literal) and out and isinstance(out[-1], Literal):
            part = Literal(out.pop().data + part.data)  # type: ignore[union-attr]
        if part.size:
            out.append(part)
    return Parts(tuple(out))


def split(content: Parts, at: int) -> tuple[Literal, Parts]:
    """Split a content into its first `at` bytes and the rest."""
    first = Literal(ContentReader(content).take(at))
    rest: list[Piece] = []
    for part in content.parts:
        skip, at = min(at, part.size), max(0, at - part.size)
        rest.append(Literal(part.data[skip:]) if isinstance(part, Literal) else Zeros(part.size - skip))
    return first, joined(rest)


def differences(old: bytes, new: bytes) -> list[tuple[int, int]]:
    """Return the ranges in which two byte strings of equal length differ; near ranges are merged.

    Errors: ValueError for different lengths.
    """
    out: list[tuple[int, int]] = []
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            if out and i - out[-1][1] < 16:
                out[-1] = (out[-1][0], i + 1)
            else:
                out.append((i, i + 1))
    return out
