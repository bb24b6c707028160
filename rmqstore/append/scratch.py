"""Temporary files, in TMPDIR: what may not fit in memory, and copies for programs that need a real directory.

`Scratch` keeps the contents of the steps of a plan.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.append.disk import write_all
from rmqstore.files.files import OpenFile

_BLOCK = 1 << 20


class Scratch:
    """An unnamed temporary file, in TMPDIR, for data of a plan that may not fit in memory. Errors: OSError."""

    def __init__(self) -> None:
        import tempfile

        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as the plan
        self.size = 0

    def append(self, data: bytes | memoryview) -> int:
        """Append data; return its position."""
        at = self.size
        write_all(self._file.fileno(), data, at)
        self.size += len(data)
        return at

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)


class ScratchFolder:
    """A temporary directory, in TMPDIR: files as a repair will leave them, and links to all others. Errors: OSError."""

    def __init__(self) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="rmqstore-")
        self.path = Path(self._folder.name)

    def make_directory(self, name: str) -> Path:
        path = self.path / name
        path.mkdir()
        return path

    def link(self, path: Path, target: Path) -> None:
        path.symlink_to(target)

    def copy(self, source: OpenFile, path: Path) -> None:
        """Create a file with the content of another one; its holes stay holes."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, source.length)
            for low, high in source.data_extents(0, source.length):
                for at in range(low, high, _BLOCK):
                    write_all(descriptor, source.read(min(_BLOCK, high - at), at), at)
        finally:
            os.close(descriptor)


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
            for start in range(0, length, _BLOCK):
                yield self.scratch.read(min(_BLOCK, length - start), where + start)
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
