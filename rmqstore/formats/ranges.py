"""Sets of whole numbers as sorted half-open intervals: queue offsets of messages, offsets of bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranges:
    """A set of whole numbers. `parts`: intervals [start, stop), sorted, not empty; two of them do not touch.

    `len` counts its numbers, `in` looks for one, and iteration yields them in order. A set costs as much as it has
    intervals, however many numbers these have.
    """

    parts: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(intervals: Iterable[tuple[int, int]]) -> Ranges:
        """Return the set of the numbers in half-open intervals, which may overlap or be empty, in any order."""
        out: list[tuple[int, int]] = []
        for start, stop in sorted(one for one in intervals if one[0] < one[1]):
            if out and start <= out[-1][1]:
                out[-1] = (out[-1][0], max(out[-1][1], stop))
            else:
                out.append((start, stop))
        return Ranges(tuple(out))

    @staticmethod
    def span(start: int, stop: int) -> Ranges:
        """Return the set of the numbers from `start` up to, and without, `stop`."""
        return Ranges(((start, stop),)) if start < stop else Ranges()

    @staticmethod
    def points(numbers: Iterable[int]) -> Ranges:
        """Return the set of single numbers, in any order."""
        return Ranges.of((number, number + 1) for number in numbers)

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __iter__(self) -> Iterator[int]:
        for start, stop in self.parts:
            yield from range(start, stop)

    def __contains__(self, number: int) -> bool:
        i = bisect_right(self.parts, number, key=lambda part: part[0]) - 1
        return i >= 0 and number < self.parts[i][1]

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.of((*self.parts, *other.parts)) if self and other else self or other

    def __and__(self, other: Ranges) -> Ranges:
        out: list[tuple[int, int]] = []
        i = j = 0
        while i < len(self.parts) and j < len(other.parts):
            one, two = self.parts[i], other.parts[j]
            start, stop = max(one[0], two[0]), min(one[1], two[1])
            if start < stop:
                out.append((start, stop))
            if one[1] <= two[1]:
                i += 1
            else:
                j += 1
        return Ranges(tuple(out))

    def __sub__(self, other: Ranges) -> Ranges:
        out: list[tuple[int, int]] = []
        j = 0
        for start, stop in self.parts:
            while j < len(other.parts) and other.parts[j][1] <= start:
                j += 1
            k, at = j, start
            while k < len(other.parts) and other.parts[k][0] < stop:
                if at < other.parts[k][0]:
                    out.append((at, other.parts[k][0]))
                at = max(at, other.parts[k][1])
                k += 1
            if at < stop:
                out.append((at, stop))
        return Ranges(tuple(out))

    def clip(self, start: int, stop: int) -> Ranges:
        """Return the numbers of the set within [start, stop)."""
        return self & Ranges.span(start, stop)

    def without_last(self, count: int) -> Ranges:
        """Return the set without its `count` highest numbers; empty if it has no more."""
        parts = list(self.parts)
        while parts and count > 0:
            start, stop = parts.pop()
            if stop - start > count:
                parts.append((start, stop - count))
            count -= stop - start
        return Ranges(tuple(parts))

    @property
    def start(self) -> int:
        """The lowest number. Errors: IndexError for an empty set."""
        return self.parts[0][0]

    @property
    def stop(self) -> int:
        """The highest number plus one. Errors: IndexError for an empty set."""
        return self.parts[-1][1]
