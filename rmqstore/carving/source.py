"""The bytes from which stores are carved: a block device, an image of any size, or a directory of fragments.

Nothing is ever written to a source. Holes of a sparse image are not read. Sectors that a disk cannot read count as
zeros, and are counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.errors import CouldNotCheck, NotReadable, about
from rmqstore.files.files import LocalFile, LocalFiles, OpenFile
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.walk import entries_on_disk
from rmqstore.texts import Text

SECTOR = 512
"""Bytes: every file system begins blocks, and so files, at a multiple of it."""
_PAGE = 4096
_APART = 1 << 20
"""Fragments begin at multiples of it, with a gap between them."""


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A file of the source, or all of a device. `start`: position of its first byte in the source."""

    path: Path
    start: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.length


class RawSource:
    """What is carved. Positions are bytes; those of several fragments are numbered through, with gaps between them."""

    def __init__(self, path: Path, segments: list[SourceSegment]) -> None:
        self.path = path
        self.segments = segments
        self.files = _SourceFiles()
        self._starts = [segment.start for segment in segments]
        self._open: tuple[SourceSegment, OpenFile] | None = None

    @classmethod
    def open(cls, path: Path) -> RawSource:
        """Open a device, a file, or all files below a directory. Errors: NotReadable."""
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                return cls(path, list(_fragments(path)))
            if stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode):
                with contextlib.closing(_SourceFile(path)) as file:
                    return cls(path, [SourceSegment(path, 0, file.length)])
        except OSError as error:
            raise NotReadable(about(path, error), Text("check the path, and read devices as root")) from error
        raise NotReadable(
            Text("{path} is neither a block device nor a file nor a directory", path=path),
            Text("name the device of the file system that held the store, or better an image of it"),
        )

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.length for segment in self.segments)

    @property
    def identity(self) -> str:
        """What tells this source from another one when an interrupted carving goes on."""
        return repr([(str(segment.path.absolute()), segment.start, segment.length) for segment in self.segments])

    @property
    def unreadable(self) -> int:
        """The bytes that could not be read so far."""
        return self.files.unreadable

    def mapped(self, segment: SourceSegment) -> MappedFile:
        """Return a segment as a file of a log, whose global offsets are positions in the source."""
        return MappedFile(segment.path, segment.start, segment.length, segment.length, files=self.files)

    def segment_at(self, at: int) -> SourceSegment | None:
        """Return the segment with a position; None in a gap."""
        i = bisect_right(self._starts, at) - 1
        return self.segments[i] if i >= 0 and at < self.segments[i].stop else None

    def read(self, size: int, at: int) -> bytes:
        """Read bytes within one segment; short at its end, empty outside of all. Errors: OSError."""
        segment = self.segment_at(at)
        if segment is None or size <= 0:
            return b""
        if self._open is None or self._open[0] != segment:
            self.close()
            self._open = (segment, self.files.open(segment.path))
        return self._open[1].read(min(size, segment.stop - at), at - segment.start)

    def close(self) -> None:
        """Close what `read` has opened."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _fragments(directory: Path) -> Iterator[SourceSegment]:
    """Yield the regular files below a directory, in the order of their numbers.

    Errors: CouldNotCheck for a directory that cannot be listed: nothing is left out unnoticed.
    """

    def refuse(error: OSError) -> None:
        raise CouldNotCheck(
            about(error.filename or directory, error),
            Text("read it as root; move what has too long a path up, or away"),
        ) from error

    found = []
    for entry, status in entries_on_disk(directory, unlisted=refuse):
        if stat.S_ISREG(status.st_mode) and status.st_size:
            path = Path(entry.path)
            found.append((_numbers_in(path), path, status.st_size))
    start = 0
    for _, path, length in sorted(found):
        yield SourceSegment(path, start, length)
        start = -(-(start + length + _PAGE) // _APART) * _APART


def _numbers_in(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts f2 before f10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


class _SourceFiles(LocalFiles):
    """Opens block devices too, and counts what the disk cannot read."""

    def __init__(self) -> None:
        self.unreadable = 0

    def open(self, path: Path) -> OpenFile:
        return _SourceFile(path, self)


class _SourceFile(LocalFile):
    """A file or a block device, open for reading. Sectors that cannot be read are zeros."""

    __slots__ = ("_files", "_length")

    def __init__(self, path: Path, files: _SourceFiles | None = None) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        super().__init__(path, descriptor)
        self._files = files
        self._length = os.lseek(descriptor, 0, os.SEEK_END)

    @property
    def length(self) -> int:
        """The size; fstat says 0 for a device."""
        return self._length

    def read_into(self, buffer: memoryview, at: int) -> int:
        try:
            return os.preadv(self._descriptor, [buffer], at)
        except OSError:
            return self._read_around(buffer, at)

    def read(self, size: int, at: int) -> bytes:
        return OpenFile.read(self, size, at)

    def _read_around(self, buffer: memoryview, at: int) -> int:
        """Read page by page what cannot be read at once."""
        size = min(len(buffer), self._length - at)
        for start in range(0, size, _PAGE):
            part = buffer[start : min(start + _PAGE, size)]
            try:
                count = os.preadv(self._descriptor, [part], at + start)
            except OSError:
                count = 0
            if count < len(part):
                part[count:] = bytes(len(part) - count)
                if self._files is not None:
                    self._files.unreadable += len(part) - count
        return max(0, size)
