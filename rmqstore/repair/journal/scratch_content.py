"""The content of a step, kept in a temporary file because it may not fit in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.repair.journal.disk import Scratch
from rmqstore.repair.plan.content import CHUNK


@dataclass(slots=True)
class ScratchContent:
    """A content made of pieces of a scratch file, with zeros between them.

    `parts`: (position in the content, length, position in the scratch file), in order and without overlap.
    """

    scratch: Scratch
    size: int = 0
    parts: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, at: int, data: bytes | memoryview) -> None:
        """Write data at a position of the content, replacing earlier data there."""
        where = self.scratch.append(data)
        length = len(data)
        if self.parts and at < self.parts[-1][0] + self.parts[-1][1]:
            self.parts = sorted([*self._without(at, at + length), (at, length, where)])
        elif self.parts and self.parts[-1][0] + self.parts[-1][1] == at and sum(self.parts[-1][1:]) == where:
            last = self.parts[-1]
            self.parts[-1] = (last[0], last[1] + length, last[2])
        else:
            self.parts.append((at, length, where))
        self.size = max(self.size, at + length)

    def _without(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts outside [low, high)."""
        for place, length, where in self.parts:
            if place < low:
                yield place, min(length, low - place), where
            if place + length > high:
                skip = max(0, high - place)
                yield place + skip, length - skip, where + skip

    def pieces(self) -> Iterator[bytes | int]:
        at = 0
        for place, length, where in self.parts:
            if place > at:
                yield place - at
            for start in range(0, length, CHUNK):
                yield self.scratch.read(min(CHUNK, length - start), where + start)
            at = place + length
        if at < self.size:
            yield self.size - at

    def read(self, size: int, at: int) -> bytes:
        stop = max(at, min(at + size, self.size))
        out = bytearray(stop - at)
        first = max(0, bisect_right(self.parts, at, key=lambda part: part[0]) - 1)
        for number in range(first, len(self.parts)):
            place, length, where = self.parts[number]
            if place >= stop:
                break
            low, high = max(place, at), min(place + length, stop)
            if low < high:
                out[low - at : high - at] = self.scratch.read(high - low, where + low - place)
        return bytes(out)
