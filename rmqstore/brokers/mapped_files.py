"""Simulates MappedFileQueue#load of each version: which files a broker maps, and which stop it.

Source: MappedFileQueue#load, #doLoad (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.brokers.rules import BrokerRules, LengthMismatch
from rmqstore.files.files import LOCAL, Files, OpenFile
from rmqstore.files.mapped_file_queue import DirEntry, offset_to_file_name
from rmqstore.formats.javatext import parse_long
from rmqstore.texts import Text

WRONG_LENGTH_TEXT = "length not matched message store config value, please check it manually"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What a start fails on: path, reason, and the text to search for in the broker's log.

    The reason has the value `path`, which `reason_text` shortens.
    """

    path: Path
    _reason: Text
    log_line: str

    def reason_text(self, root: Path | None = None) -> str:
        """Return the reason with the path relative to `root`, or in full if it is not below it."""
        below = root is not None and self.path.is_relative_to(root)
        return self._reason.replaced(path=self.path.relative_to(root).as_posix() if root and below else str(self.path))


@dataclass(slots=True)
class SimulatedFile:
    """A mapped file in the simulated broker's memory; `wrote` is its write position (wrotePosition), in bytes.

    `added` are spans that the simulated start itself has written: they shadow the bytes on disk.
    """

    path: Path
    start: int
    wrote: int
    first_created: bool = False
    added: list[WrittenUnits] = field(default_factory=list)
    files: Files = LOCAL

    def open(self) -> OpenFile:
        """Open the file for reading. Errors: OSError."""
        return self.files.open(self.path)

    def read_at(self, size: int, at: int) -> bytes:
        """Read up to `size` bytes at a position in the file; empty if the file is missing or unreadable."""
        return self.files.read_at(self.path, size, at)


@dataclass(slots=True)
class WrittenUnits:
    """Units that the simulated start wrote at [at, stop) of a file; usually only their outline is kept.

    `first` is the commitlog address of the first unit, `last` and `last_size` describe the last one; the addresses
    rise in between. In constant memory, this answers every comparison that a broker makes. Only a queue that may be
    cut inside the span needs all units: then `kept` holds their bytes. `misplaced`: the records have the PHYSICALOFFSET
    of another place; a span has only such records or none, because a broker may cut the queue between them.
    """

    at: int
    stop: int
    first: int
    last: int
    last_size: int
    kept: bytearray | None = None
    misplaced: bool = False

    def cut(self, stop: int, last: int, last_size: int) -> None:
        """Shorten the span to end at `stop`; `last` and `last_size` describe its new last unit."""
        if self.kept is not None:
            del self.kept[stop - self.at :]
        self.stop, self.last, self.last_size = stop, last, last_size


@dataclass(slots=True)
class Loaded:
    """The files that a broker maps, the obstacle that stops it, and the 0-byte files that it deletes."""

    files: list[SimulatedFile]
    obstacle: Obstacle | None = None
    deleted: list[Path] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)


def load_directories(
    directories: Iterable[Path], file_size: int, rules: BrokerRules | None, files: Files = LOCAL
) -> Loaded:
    """Simulate MappedFileQueue#doLoad on one directory, or on all directories of a multi-path commitlog.

    `rules` None: those of DLedger, which accepts no directory and no 0-byte file (MmapFileList#doLoad).
    """
    entries: list[DirEntry] = []
    for directory in directories:
        entries.extend(files.list(directory))
    entries.sort(key=lambda e: e.path.name.encode("utf-16-be", "surrogatepass"))  # as String#compareTo
    out = Loaded([])
    for i, entry in enumerate(entries):
        if entry.directory and rules is not None and rules.skips_directories:
            continue
        length = -1 if entry.directory else entry.length
        if length == 0 and i == len(entries) - 1 and rules is not None and rules.deletes_empty_last:
            out.deleted.append(entry.path)
            continue
        if length != file_size or file_size <= 0:
            if rules is not None and rules.length_mismatch is LengthMismatch.IGNORE_REST:
                out.ignored = [e.path for e in entries[i:]]
                return out
            out.obstacle = Obstacle(entry.path, _misfit(entry, file_size), WRONG_LENGTH_TEXT)
            return out
        start = parse_long(entry.path.name)
        if start is None:
            text = f'java.lang.NumberFormatException: For input string: "{entry.path.name}"'
            out.obstacle = Obstacle(
                entry.path, Text("stray file {path} (its name is not an offset)", path=entry.path), text
            )
            return out
        if entry.special or entry.unreadable:
            out.obstacle = Obstacle(
                entry.path, Text("{path} cannot be opened", path=entry.path), f"load file {entry.path} error"
            )
            return out
        out.files.append(SimulatedFile(entry.path, start, file_size, files=files))
    return out


def _misfit(entry: DirEntry, file_size: int) -> Text:
    if entry.directory:
        return Text("stray directory {path}", path=entry.path)
    if parse_long(entry.path.name) is None:
        return Text("stray file {path}", path=entry.path)
    one, several = (
        Text("{path} has {length} byte instead of {size}"),
        Text("{path} has {length} bytes instead of {size}"),
    )
    return (one if entry.length == 1 else several).format(path=entry.path, length=entry.length, size=file_size)


def wrapped_long(value: int) -> int:
    """Return the Java long that a calculation gives, which overflows."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def java_divmod(value: int, by: int) -> tuple[int, int]:
    """Divide by a positive number as Java does: the quotient is rounded towards zero."""
    quotient, rest = divmod(abs(value), by)
    return (quotient, rest) if value >= 0 else (-quotient, -rest)


class SimulatedFiles:
    """The mapped files of one queue, changed in memory as a start would change them on disk."""

    __slots__ = ("created", "deleted", "directory", "file_size", "files")

    def __init__(self, directory: Path, file_size: int, files: list[SimulatedFile] | None = None) -> None:
        self.directory = directory
        self.file_size = file_size
        self.files = files or []
        self.deleted: list[Path] = []
        self.created: list[Path] = []

    def last(self) -> SimulatedFile | None:
        return self.files[-1] if self.files else None

    def max_offset(self) -> int:
        """Return the end of the written part, as a global offset (MappedFileQueue#getMaxOffset)."""
        return self.files[-1].start + self.files[-1].wrote if self.files else 0

    def min_offset(self) -> int:
        """Return the start of the first file, -1 without files (CommitLog#getMinOffset)."""
        return self.files[0].start if self.files else -1

    def truncate_dirty_files(self, offset: int) -> None:
        """Delete files after `offset`; cut the one that holds it, in memory only (#truncateDirtyFiles)."""
        kept = []
        for file in self.files:
            if file.start + self.file_size > offset:
                if offset >= file.start:
                    file.wrote = offset % self.file_size
                else:
                    self._delete(file)
                    continue
            kept.append(file)
        self.files = kept

    def recover(self, valid_bytes: Callable[[SimulatedFile], int]) -> None:
        """Count valid units, beginning with the third file from the end, and truncate the queue after them.

        `valid_bytes` counts the valid units at the front of a file, in bytes; if all are valid, the next file follows.
        Source: ConsumeQueue#recover, BatchConsumeQueue#recover (RocketMQ 4.3.0 to 5.4.0)
        """
        end = None
        for file in self.files[max(0, len(self.files) - 3) :]:
            valid = valid_bytes(file)
            end = file.start + valid
            if valid != self.file_size:
                break
        if end is not None:
            self.truncate_dirty_files(end)

    def delete_last(self) -> None:
        self._delete(self.files.pop())

    def destroy(self) -> None:
        for file in self.files:
            self._delete(file)
        self.files = []

    def forget(self, files: list[SimulatedFile]) -> None:
        """Delete `files` and drop them from the list."""
        for file in files:
            self.files.remove(file)
            self._delete(file)

    def _delete(self, file: SimulatedFile) -> None:
        if file.path in self.created:
            self.created.remove(file.path)
        else:
            self.deleted.append(file.path)

    def last_for_append(self, start_offset: int) -> SimulatedFile:
        """Return the last file, or a new one if none exists or the last is full (#getLastMappedFile(startOffset))."""
        last = self.last()
        if last is not None and last.wrote < self.file_size:
            return last
        start = (
            start_offset - java_divmod(start_offset, self.file_size)[1] if last is None else last.start + self.file_size
        )
        path = self.directory / offset_to_file_name(max(0, start))
        file = SimulatedFile(path, start, 0, first_created=last is None)
        self.created.append(path)
        self.files.append(file)
        return file

    def read(self, file: SimulatedFile, size: int, at: int) -> bytes:
        """Return bytes of the file on disk; zeros if the start has deleted it and would create it again."""
        if file.path in self.deleted:
            return bytes(size)
        return file.read_at(size, at)
