"""MappedFile and MappedFileQueue, for reading: files named by their offset as one address space.

Source: MappedFileQueue, DefaultMappedFile, UtilAll#offset2FileName (RocketMQ 5.4.0). Nothing is mapped: reads are
pread, since a mapping of a file that is cut kills the process.
"""

from __future__ import annotations

import functools
import itertools
import os
import stat
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from rmqstore.files.disk.reading import read_at
from rmqstore.formats.layout import Layout

NAME_DIGITS = 20
PAGE = 4096
MAX_OFFSET = (1 << 63) - 1


def offset_to_file_name(offset: int) -> str:
    """Name of the file that starts at a global offset: decimal, zero-padded to 20 digits."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_name_to_offset(name: str) -> int | None:
    """Offset that a file name says, or None: Long.parseLong would throw."""
    if not name.isascii() or not name.isdigit() or len(name) > 40:
        return None
    offset = int(name)
    return offset if offset <= MAX_OFFSET else None


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file of a queue.

    `start` is its global offset (from the name), `length` the bytes that it really has, `file_size` what the queue's
    files should have; `mtime_ns` its modification time. `start + file_size` is where the next file begins.
    """

    path: Path
    start: int
    length: int
    file_size: int
    mtime_ns: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.file_size

    @property
    def name(self) -> str:
        return self.path.name


class OddKind(StrEnum):
    """Why an entry of a queue's directory is not one of its sound files."""

    DIRECTORY = "directory"
    NOT_AN_OFFSET = "not-an-offset"
    EMPTY = "empty"
    WRONG_LENGTH = "wrong-length"
    DUPLICATE = "duplicate"
    MISALIGNED = "misaligned"
    SPECIAL = "special"
    UNREADABLE = "unreadable"


class OddEntry(NamedTuple):
    """An entry that a broker may stumble over; `last` when no name sorts behind it in its directory."""

    path: Path
    kind: OddKind
    length: int
    last: bool = False


class DirEntry(NamedTuple):
    """What one `lstat`/`stat` of a directory entry said."""

    path: Path
    length: int
    mtime_ns: int
    directory: bool
    special: bool = False
    unreadable: bool = False


def list_directory(directory: Path) -> list[DirEntry]:
    """Entries sorted by name, as the broker sorts them; a missing directory has none.

    Errors: OSError when the directory cannot be listed; entries that vanish meanwhile are left out.
    """
    out: list[DirEntry] = []
    try:
        entries = sorted(os.scandir(directory), key=lambda e: e.name)
    except (FileNotFoundError, NotADirectoryError):
        return out
    for entry in entries:
        path = Path(entry.path)
        try:
            st = entry.stat()
        except FileNotFoundError:
            try:
                entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # expired while we looked
            out.append(DirEntry(path, 0, 0, False, special=True))  # a dangling link
            continue
        except OSError:
            out.append(DirEntry(path, 0, 0, False, unreadable=True))
            continue
        directory_ = stat.S_ISDIR(st.st_mode)
        special = not directory_ and not stat.S_ISREG(st.st_mode)
        out.append(DirEntry(path, 0 if directory_ else st.st_size, st.st_mtime_ns, directory_, special))
    return out


Place = Callable[[Path], int | None]
"""Reads from a file at which global offset it begins, by its first record; None where that cannot be told."""


def infer_file_size(
    entries: Iterable[DirEntry], default: int, unit: int = 1, place: Place | None = None
) -> tuple[int, str]:
    """File size of a queue from its files, and how it was found: "files", "names" or "default".

    Lengths and the distances of the names vote: one file that was cut or renamed does not change the answer. Where
    they do not agree, `place` says where files really begin. Without two voices for one size, the distances of the
    names count; with a single file its own length, when that is a whole number of units.
    Units: bytes.
    """
    named = {
        e.path: (start, e.length)
        for e in entries
        if not e.directory and (start := file_name_to_offset(e.path.name)) is not None
    }
    if not named:
        return default, "default"
    files = list(named.values())
    if place is not None and len(files) == 1:  # a log file whose length is not a whole number of pages was cut
        unit = PAGE
    size = _vote(files, unit)
    if size is None and place is not None:
        files = [(start if (told := place(path)) is None else told, n) for path, (start, n) in named.items()]
        size = _vote(files, unit)
    if size is not None:
        return size, "files"
    shortest = min(length for _, length in files)
    starts = sorted({start for start, _ in files})
    step = min((b - a for a, b in itertools.pairwise(starts)), default=0)
    if any(start % step for start in starts) if step else starts[0] % default:
        step = functools.reduce(gcd, starts)
    # files do not overlap: a smaller step comes from a wrong name
    return (step, "names") if step >= max(shortest, unit, 2) else (default, "default")


def _vote(files: Sequence[tuple[int, int]], unit: int) -> int | None:
    """The size that most lengths and distances of names state; None where fewer than two do, or most starts do not fit.

    A single file states its own length. Half of the starts are enough where a file would reach over the next name.
    """
    starts = sorted({start for start, _ in files})
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    votes = Counter(length for start, length in files if length > 0 and length % unit == 0)
    votes.update(gap for gap in gaps if gap % unit == 0)
    for size, times in sorted(votes.items(), key=lambda kv: (kv[1], kv[0]), reverse=True):
        fits = sum(start % size == 0 for start, _ in files)
        overlap = any(gap < size for gap in gaps)
        if times >= min(2, len(files)) and fits and fits * 2 > len(files) - overlap:
            return size
    return None


class MappedFileQueue:
    """Files named by offset as one address space, with its holes and with what does not belong.

    `files` are sorted by start and do not overlap; a file of the wrong length is among them (its bytes count) and in
    `odd` as well. Reading outside of files gives short results, never an exception for bytes that are not there.
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
    ) -> MappedFileQueue:
        """List the directories (several: multi-path) and sort what is there.

        `file_size` is the configured one; without it the size is inferred (see `infer_file_size`).
        Units: bytes.
        Errors: OSError when a directory cannot be listed.
        """
        listed = [list_directory(d) for d in directories]
        everything = [e for entries in listed for e in entries]
        size, how = (file_size, "config") if file_size else infer_file_size(everything, default, unit, place)
        files: dict[int, MappedFile] = {}
        odd: list[OddEntry] = []
        names = sorted(e.path.name for e in everything)
        last_name = names[-1] if names else ""
        for e in sorted(everything, key=lambda e: e.path.name):
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
            elif start in files:
                odd.append(OddEntry(e.path, OddKind.DUPLICATE, e.length, last))
            elif start % size:
                odd.append(OddEntry(e.path, OddKind.MISALIGNED, e.length, last))
            else:
                if e.length != size:
                    odd.append(OddEntry(e.path, OddKind.WRONG_LENGTH, e.length, last))
                files[start] = MappedFile(e.path, start, e.length, size, e.mtime_ns)
        return cls(name, directories, size, [files[s] for s in sorted(files)], odd, how)

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
    ) -> MappedFileQueue:
        """A queue of one file; its start is in its name, or 0 when the name is not an offset.

        The size comes from the config, from the neighbours in its directory when the file is one of several, else
        it is what the file has.
        """
        neighbours = list_directory(path.parent)
        own = next((e for e in neighbours if e.path.name == path.name), None)
        length = own.length if own else 0
        start = file_name_to_offset(path.name)
        if file_size:
            size, how = file_size, "config"
        elif start is not None and sum(1 for e in neighbours if file_name_to_offset(e.path.name) is not None) > 1:
            size, how = infer_file_size(neighbours, default, unit, place)
        else:
            size, how = max(length, unit), "files"
        files = [MappedFile(path, start or 0, length, size, own.mtime_ns if own else 0)] if length else []
        odd = [] if length == size else [OddEntry(path, OddKind.WRONG_LENGTH if length else OddKind.EMPTY, length)]
        return cls(name, [path.parent], size, files, odd, how)

    def listed_in(self, instead: Mapping[Path, Path]) -> MappedFileQueue:
        """This queue with other directories in place of some of its own, and the files that these hold.

        Errors: OSError when a directory cannot be listed.
        """
        directories = [instead.get(d, d) for d in self.directories]
        found = MappedFileQueue.open(self.name, directories, file_size=self.file_size, default=self.file_size)
        found.size_from = self.size_from
        return found

    def without_oldest(self, count: int) -> MappedFileQueue:
        """This queue as it is when its `count` oldest files have expired; the last one always stays."""
        gone = {f.path for f in self.files[: min(count, len(self.files) - 1)]} if count > 0 and self.files else set()
        if not gone:
            return self
        files = [f for f in self.files if f.path not in gone]
        odd = [o for o in self.odd if o.path not in gone]
        return MappedFileQueue(self.name, self.directories, self.file_size, files, odd, self.size_from)

    @property
    def start(self) -> int:
        """Global offset of the first file, 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def begin(self) -> int:
        """Global offset of the first file, even if it is empty: it did not expire, but its content is lost.

        Only empty files directly before the others count; any other one may be a stray file.
        """
        at = self.start
        empty = {file_name_to_offset(o.path.name) for o in self.odd if o.kind is OddKind.EMPTY}
        while self.files and at - self.file_size in empty:
            at -= self.file_size
        return at

    @property
    def stop(self) -> int:
        """Global offset behind the last file, 0 without files."""
        return self.files[-1].stop if self.files else 0

    def __len__(self) -> int:
        return len(self.files)

    @property
    def bytes_on_disk(self) -> int:
        """Sum of the files' lengths, bytes."""
        return sum(f.length for f in self.files)

    def holes(self) -> list[tuple[int, int]]:
        """Address ranges between files that no file holds (missing files), half-open."""
        return [(a.stop, b.start) for a, b in itertools.pairwise(self.files) if a.stop < b.start]

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds a global offset.

        Source: MappedFileQueue#findMappedFileByOffset
        """
        i = bisect_right(self._starts, offset) - 1
        if i < 0 or offset >= self.files[i].stop:
            return None
        return self.files[i]

    def unit(self, layout: Layout, number: int) -> dict[str, Any] | None:
        """One unit by its number over all files, as its fields; None where no file holds all of it."""
        raw = self.pread(layout.size, number * layout.size) if number >= 0 else b""
        return layout.unpack(raw) if len(raw) == layout.size else None

    def pread(self, size: int, offset: int) -> bytes:
        """Bytes at a global offset, over file borders; short where a file ends or is missing."""
        out = []
        while size > 0:
            file = self.find(offset)
            if file is None:
                break
            want = min(size, file.stop - offset)
            got = read_at(file.path, want, offset - file.start)
            out.append(got)
            if len(got) < want:
                break
            size -= want
            offset += want
        return b"".join(out)
