"""MappedFileQueue for reading: files named by their start offset, as one address space.

Despite the name nothing is mapped: all reads use pread, because a process that touches a mapping beyond the end of a
truncated file is killed by SIGBUS. `message_at` reads a single message.
Source: MappedFileQueue, DefaultMappedFile, UtilAll#offset2FileName (RocketMQ 5.4.0)
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from rmqstore.files.files import LOCAL, Files, OpenFile
from rmqstore.files.files import DirEntry as DirEntry
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import MIN_SIZE, Message, parse_message

NAME_DIGITS = 20
PAGE = 4096
_MISSING = 16  # distances up to this many files are taken for missing files
MAX_OFFSET = (1 << 63) - 1


def offset_to_file_name(offset: int) -> str:
    """Return the name of the file that starts at a global offset: decimal, zero-padded to 20 digits."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_name_to_offset(name: str) -> int | None:
    """Return the global offset in a file name; None if Long.parseLong would throw."""
    if not name.isascii() or not name.isdigit() or len(name) > 40:
        return None
    offset = int(name)
    return offset if offset <= MAX_OFFSET else None


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file of a queue.

    `start` is the global offset in its name, `length` its actual length in bytes, `file_size` the length that all
    files of the queue should have. The next file starts at `start + file_size`. It is read through `files`.
    """

    path: Path
    start: int
    length: int
    file_size: int
    mtime_ns: int = 0
    files: Files = field(default=LOCAL, repr=False, compare=False)

    @property
    def stop(self) -> int:
        return self.start + self.file_size

    @property
    def name(self) -> str:
        return self.path.name

    def open(self) -> OpenFile:
        """Open the file for reading. Errors: OSError."""
        return self.files.open(self.path)

    def read_at(self, size: int, at: int) -> bytes:
        """Read up to `size` bytes at a position in the file; empty if the file is missing or unreadable."""
        return self.files.read_at(self.path, size, at)


class OddKind(StrEnum):
    """The reason why a directory entry is not a sound file of the queue."""

    DIRECTORY = "directory"
    NOT_AN_OFFSET = "not-an-offset"
    EMPTY = "empty"
    WRONG_LENGTH = "wrong-length"
    DUPLICATE = "duplicate"
    MISALIGNED = "misaligned"
    MISNAMED = "misnamed"
    SPECIAL = "special"
    UNREADABLE = "unreadable"


class OddEntry(NamedTuple):
    """A directory entry that may cause trouble for a broker; `last` if its name sorts last in the queue."""

    path: Path
    kind: OddKind
    length: int
    last: bool = False


Place = Callable[[Files, Path], int | None]
"""Returns the global offset of a file's start according to its first record; None if the file does not show it."""


def infer_file_size(
    entries: Iterable[DirEntry], default: int, unit: int = 1, place: Callable[[Path], int | None] | None = None
) -> tuple[int, str]:
    """Infer the file size of a queue (bytes), and return it with its source: "files", "names" or "default".

    File lengths and the distances between names vote, so that one truncated or renamed file does not matter. If there
    is no majority, a second vote uses the start offsets that `place` reads from the files. If that fails too, the
    smallest distance between names counts, or the length of the longest file if only some files can be missing between
    them. A single file's length counts if it is a multiple of `unit`.
    """
    named = {
        e.path: (start, e.length)
        for e in entries
        if not e.directory and (start := file_name_to_offset(e.path.name)) is not None
    }
    if not named:
        return default, "default"
    files = list(named.values())
    if place is not None and len(files) == 1:  # a log file whose length is not a multiple of the page is truncated
        unit = PAGE
    size = _vote(files, unit)
    if size is None and place is not None:
        files = [(start if (read := place(path)) is None else read, length) for path, (start, length) in named.items()]
        size = _vote(files, unit)
    if size is not None:
        return size, "files"
    shortest = min(length for _, length in files)
    starts = sorted({start for start, _ in files})
    step = min((b - a for a, b in itertools.pairwise(starts)), default=0)
    if any(start % step for start in starts) if step else starts[0] % default:
        step = functools.reduce(gcd, starts)
    longest = max(length for _, length in files)
    divides = longest > 0 and not any(start % longest for start in starts)
    if divides and longest % (unit if unit > 1 else PAGE) == 0 and longest < step <= _MISSING * longest:
        return longest, "files"
    # a step smaller than the shortest file would make files overlap: a name is wrong
    return (step, "names") if step >= max(shortest, unit, 2) else (default, "default")


def _vote(files: Sequence[tuple[int, int]], unit: int) -> int | None:
    """Return the size with the most votes from lengths and distances between names; None without a clear winner.

    The winner needs two votes (one for a single file), and most start offsets must be multiples of it. Half of them
    are enough if files of that size would overlap, because then a name must be wrong. If no distance has the size, most
    files must have it as their length: files that were copied without the zeros at their ends have many.
    """
    starts = sorted({start for start, _ in files})
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    votes = Counter(length for start, length in files if length > 0 and length % unit == 0)
    votes.update(gap for gap in gaps if gap % unit == 0)
    for size, times in sorted(votes.items(), key=lambda kv: (kv[1], kv[0]), reverse=True):
        fits = sum(start % size == 0 for start, _ in files)
        overlap = any(gap < size for gap in gaps)
        least = min(2, len(files)) if size in gaps else len(files) // 2 + 1
        if times >= least and fits and fits * 2 > len(files) - overlap:
            return size
    return None


def _misnamed(files: Sequence[MappedFile]) -> list[MappedFile]:
    """Return the files without a name of 20 digits, if a broker does not sort them, and the next file, by offset.

    A broker sorts files as texts: 65536 comes after 00000000000000131072.
    """
    names = [f.name for f in files]
    if all(len(name) == NAME_DIGITS for name in names):
        return []
    names.append(offset_to_file_name(files[-1].stop))
    return [f for f in files if len(f.name) != NAME_DIGITS] if names != sorted(names) else []


class MappedFileQueue:
    """Files named by their start offset, as one address space, which may have holes.

    `files` are sorted by start and do not overlap. `odd` lists all other directory entries; a file of the wrong length,
    or with a name that a broker sorts wrongly, is in both. A read that extends past a file or into a hole returns fewer
    bytes and never raises.
    """

    def __init__(
        self,
        name: str,
        directories: Sequence[Path],
        file_size: int,
        files: Sequence[MappedFile],
        odd: Sequence[OddEntry] = (),
        size_from: str = "files",
    ) -> None:
        self.name = name
        self.directories = tuple(directories)
        self.file_size = file_size
        self.files = tuple(files)
        self.odd = tuple(odd)
        self.size_from = size_from
        self._starts = [f.start for f in self.files]

    @classmethod
    def open(
        cls,
        name: str,
        directories: Sequence[Path],
        *,
        file_size: int | None = None,
        default: int,
        unit: int = 1,
        place: Place | None = None,
        files: Files = LOCAL,
    ) -> MappedFileQueue:
        """List the directories (several for multi-path) and sort their entries into files and odd entries.

        `file_size` is the configured size in bytes; without it, `infer_file_size` determines the size.
        Errors: OSError if a directory cannot be listed.
        """
        everything = sorted((e for d in directories for e in files.list(d)), key=lambda e: e.path.name)
        start_of = partial(place, files) if place is not None else None
        size, how = (file_size, "config") if file_size else infer_file_size(everything, default, unit, start_of)
        found: dict[int, MappedFile] = {}
        odd: list[OddEntry] = []
        last_name = everything[-1].path.name if everything else ""
        for e in everything:
            last = e.path.name == last_name
            start = file_name_to_offset(e.path.name)
            if e.directory:
                odd.append(OddEntry(e.path, OddKind.DIRECTORY, 0, last))
            elif e.special:
                odd.append(OddEntry(e.path, OddKind.SPECIAL, 0, last))
            elif e.unreadable:
                odd.append(OddEntry(e.path, OddKind.UNREADABLE, 0, last))
            elif start is None:
                odd.append(OddEntry(e.path, OddKind.NOT_AN_OFFSET, e.length, last))
            elif e.length == 0:
                odd.append(OddEntry(e.path, OddKind.EMPTY, 0, last))
            elif start in found:
                odd.append(OddEntry(e.path, OddKind.DUPLICATE, e.length, last))
            elif start % size:
                odd.append(OddEntry(e.path, OddKind.MISALIGNED, e.length, last))
            else:
                if e.length != size:
                    odd.append(OddEntry(e.path, OddKind.WRONG_LENGTH, e.length, last))
                found[start] = MappedFile(e.path, start, e.length, size, e.mtime_ns, files)
        in_order = [found[s] for s in sorted(found)]
        odd += [OddEntry(f.path, OddKind.MISNAMED, f.length, f.name == last_name) for f in _misnamed(in_order)]
        return cls(name, directories, size, in_order, odd, how)

    @classmethod
    def of_file(
        cls,
        name: str,
        path: Path,
        *,
        file_size: int | None = None,
        default: int,
        unit: int = 1,
        place: Place | None = None,
        files: Files = LOCAL,
    ) -> MappedFileQueue:
        """Make a queue of a single file, which starts at the offset in its name, or at 0 if the name is not an offset.

        The file size is the configured one, else it is inferred from the other queue files in the directory; without
        those it is the file's length.
        """
        neighbours = files.list(path.parent)
        own = next((e for e in neighbours if e.path.name == path.name), None)
        length = own.length if own else 0
        start = file_name_to_offset(path.name)
        if file_size:
            size, how = file_size, "config"
        elif start is not None and sum(1 for e in neighbours if file_name_to_offset(e.path.name) is not None) > 1:
            start_of = partial(place, files) if place is not None else None
            size, how = infer_file_size(neighbours, default, unit, start_of)
        else:
            size, how = max(length, unit), "files"
        found = [MappedFile(path, start or 0, length, size, own.mtime_ns if own else 0, files)] if length else []
        odd = [] if length == size else [OddEntry(path, OddKind.WRONG_LENGTH if length else OddKind.EMPTY, length)]
        return cls(name, [path.parent], size, found, odd, how)

    def without_oldest(self, count: int) -> MappedFileQueue:
        """Return this queue without its `count` oldest files; the last file that begins with data always stays.

        A broker creates up to two files ahead of the one that it writes.
        """
        expired = {f.path for f in self.files[: min(count, self._last_with_data())]} if count > 0 else set()
        if not expired:
            return self
        files = [f for f in self.files if f.path not in expired]
        odd = [o for o in self.odd if o.path not in expired]
        return MappedFileQueue(self.name, self.directories, self.file_size, files, odd, self.size_from)

    def cut_at(self, end: int) -> MappedFileQueue:
        """Return this queue as if its files ended at a global offset; files after it stay, as they have no data."""
        files = [replace(f, length=min(f.length, end - f.start)) if f.start < end < f.stop else f for f in self.files]
        return MappedFileQueue(self.name, self.directories, self.file_size, files, list(self.odd), self.size_from)

    def _last_with_data(self) -> int:
        """Return the index of the last file that does not begin with zeros, else of the last file; 0 without files."""
        last = len(self.files) - 1
        return next((i for i in range(last, -1, -1) if any(self.files[i].read_at(8, 0))), max(last, 0))

    @property
    def start(self) -> int:
        """The global offset of the first file; 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def begin(self) -> int:
        """The global offset of the first file, counting empty files: they did not expire, their content was lost.

        Only empty files directly before the first file of `files` count; others may be stray.
        """
        at = self.start
        empty = {file_name_to_offset(o.path.name) for o in self.odd if o.kind is OddKind.EMPTY}
        while self.files and at - self.file_size in empty:
            at -= self.file_size
        return at

    @property
    def stop(self) -> int:
        """The global offset after the last file; 0 without files."""
        return self.files[-1].stop if self.files else 0

    def __len__(self) -> int:
        return len(self.files)

    @property
    def bytes_on_disk(self) -> int:
        """The sum of the files' lengths, in bytes."""
        return sum(f.length for f in self.files)

    def holes(self) -> list[tuple[int, int]]:
        """List the address ranges of missing files between existing ones, half-open."""
        return [(a.stop, b.start) for a, b in itertools.pairwise(self.files) if a.stop < b.start]

    def find(self, offset: int) -> MappedFile | None:
        """Return the file whose address range contains a global offset; None if there is none.

        Source: MappedFileQueue#findMappedFileByOffset
        """
        i = bisect_right(self._starts, offset) - 1
        if i < 0 or offset >= self.files[i].stop:
            return None
        return self.files[i]

    def name_at(self, offset: int) -> str:
        """Return the name of the file whose address range contains a global offset; "" if there is none."""
        file = self.find(offset)
        return file.name if file is not None else ""

    def unit(self, layout: Layout, number: int) -> dict[str, Any] | None:
        """Read a unit by its number, counted over all files; None if its bytes are missing."""
        raw = self.pread(layout.size, number * layout.size) if number >= 0 else b""
        return layout.unpack(raw) if len(raw) == layout.size else None

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Any, Any]] | None:
        """Return None: only a queue in a RocksDB has rows, which it yields in runs."""
        return None

    def pread(self, size: int, offset: int) -> bytes:
        """Read at a global offset, across files; the result is short if a file ends early or is missing."""
        parts = []
        while size > 0:
            file = self.find(offset)
            if file is None:
                break
            count = min(size, file.stop - offset)
            part = file.read_at(count, offset - file.start)
            parts.append(part)
            if len(part) < count:
                break
            size -= count
            offset += count
        return b"".join(parts)


MAX_RECORD = 64 << 20
"""Size in bytes of the largest record that is read into memory; brokers limit messages to maxMessageSize (4 MiB)."""


def message_at(log: MappedFileQueue, offset: int, most: int = MAX_RECORD) -> Message | None:
    """Read the record at a global offset, which in DLedger data is the offset after the entry header.

    Only its framing is checked; `check_message` checks PHYSICALOFFSET and the CRC. None if there is no valid record, if
    it is longer than `most` bytes, or if the files do not contain all of it.
    """
    file = log.find(offset)
    if file is None:
        return None
    head = log.pread(4, offset)
    size = int.from_bytes(head, "big", signed=True)
    if len(head) < 4 or not MIN_SIZE <= size <= min(most, MAX_RECORD, file.stop - offset):
        return None
    return parse_message(log.pread(size, offset))[0]
