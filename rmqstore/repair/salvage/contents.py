"""Contents of the steps of a salvage: long runs of zeros as such, splits, and the ranges that really change."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.repair.plan.content import Content, Literal, Parts, Zeros

Piece = Literal | Zeros
_SHORT = 1 << 12


def sparse(record: bytes) -> list[Piece]:
    """The bytes of a record, a long run of zeros in it as such."""
    low = record.find(bytes(_SHORT)) if len(record) >= _SHORT << 4 else -1
    if low < 0:
        return [Literal(record)]
    high = len(record) - len(record[low:].lstrip(b"\0"))
    return [Literal(record[:low]), Zeros(high - low), Literal(record[high:])]


def merged(parts: Iterable[Piece]) -> Parts:
    """One content; neighbouring bytes, and short zeros, become one piece."""
    out: list[Piece] = []
    held: list[bytes] = []
    for part in parts:
        if isinstance(part, Literal):
            held.append(part.data)
        elif part.size < _SHORT:
            held.append(bytes(part.size))
        else:
            if any(held):
                out.append(Literal(b"".join(held)))
            held = []
            out.append(part)
    if any(held):
        out.append(Literal(b"".join(held)))
    return Parts(tuple(out))


def split(content: Parts, at: int) -> tuple[Content, Content]:
    """A content as two: its first `at` bytes, and the rest."""
    first: list[Piece] = []
    rest: list[Piece] = []
    for part in content.parts:
        take = min(at, part.size)
        at -= take
        if isinstance(part, Literal):
            first.append(Literal(part.data[:take]))
            rest.append(Literal(part.data[take:]))
        else:
            first.append(Zeros(take))
            rest.append(Zeros(part.size - take))
    return merged(first), merged(rest)


def written_out(content: Parts) -> bytes:
    """All bytes of a content that is known to be small."""
    return b"".join(p.data if isinstance(p, Literal) else bytes(p.size) for p in content.parts)


def differences(old: bytes, new: bytes) -> list[tuple[int, int]]:
    """Ranges in which two texts of one length differ; ranges close to each other are one.

    Errors: ValueError for texts of different lengths.
    """
    out: list[tuple[int, int]] = []
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            if out and i - out[-1][1] < 16:
                out[-1] = (out[-1][0], i + 1)
            else:
                out.append((i, i + 1))
    return out
