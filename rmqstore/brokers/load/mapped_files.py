"""MappedFileQueue#load of each version: which files of a directory a broker takes, and which it trips over.

Source: MappedFileQueue#load, #doLoad (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqstore.brokers.rules.versions import BrokerRules, LengthMismatch
from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import DirEntry, list_directory, offset_to_file_name

_LONG = re.compile(r"[+-]?[0-9]{1,40}\Z")
WRONG_LENGTH_TEXT = "length not matched message store config value, please check it manually"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What a start fails on: where, why (`{}` is replaced by the path), and the text to search for in the broker's log.

    The reason is private, since it is a template: `reason_text` fills it in.
    """

    path: Path
    _reason: str
    log_line: str

    def reason_text(self, root: Path | None = None) -> str:
        """The reason with the path as reports show it: below the root, or in full without one."""
        below = root is not None and self.path.is_relative_to(root)
        return self._reason.replace("{}", self.path.relative_to(root).as_posix() if root and below else str(self.path))


@dataclass(slots=True)
class SimulatedFile:
    """A mapped file in the simulated broker's memory: `wrote` is its write position, bytes in the file.

    `added` are spans written by the simulated start itself: they hide the bytes on disk.
    """

    path: Path
    start: int
    wrote: int
    first_created: bool = False
    added: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Span:
    """Units written by the simulated start at [at, stop) of a file, of which only the outline is kept.

    `first` is the commitlog address of the first unit, `last` and `last_size` those of the last one; the addresses
    between them rise. Enough to answer every comparison that a broker makes, in constant memory; only where a queue
    may be cut between them all are needed: `kept` has them then, as in the file.
    """

    at: int
    stop: int
    first: int
    last: int
    last_size: int
    kept: bytearray | None = None

    def cut(self, stop: int, last: int, last_size: int) -> None:
        """End at `stop`, where the last unit is this one."""
        if self.kept is not None:
            del self.kept[stop - self.at :]
        self.stop, self.last, self.last_size = stop, last, last_size


@dataclass(slots=True)
class Loaded:
    """The files that a broker would map, or what stops it; `deleted` are 0-byte files that it removes meanwhile."""

    files: list[SimulatedFile]
    obstacle: Obstacle | None = None
    deleted: list[Path] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)


def load_directories(directories: Iterable[Path], file_size: int, rules: BrokerRules) -> Loaded:
    """MappedFileQueue#doLoad over one directory, or over all of a multi-path queue."""
    entries: list[DirEntry] = []
    for directory in directories:
        entries.extend(list_directory(directory))
    entries.sort(key=lambda e: java_order(e.path.name))
    out = Loaded([])
    for i, entry in enumerate(entries):
        if entry.directory and rules.skips_directories:
            continue
        length = -1 if entry.directory else entry.length
        if length == 0 and i == len(entries) - 1 and rules.deletes_empty_last:
            out.deleted.append(entry.path)
            continue
        if length != file_size:
            if rules.length_mismatch is LengthMismatch.IGNORE_REST:
                out.ignored = [e.path for e in entries[i:]]
                return out
            out.obstacle = Obstacle(entry.path, _misfit(entry, file_size), WRONG_LENGTH_TEXT)
            return out
        start = java_long(entry.path.name)
        if start is None:
            text = f'java.lang.NumberFormatException: For input string: "{entry.path.name}"'
            out.obstacle = Obstacle(entry.path, "stray file {} (its name is not an offset)", text)
            return out
        if entry.special or entry.unreadable:
            out.obstacle = Obstacle(entry.path, "{} cannot be opened", f"load file {entry.path} error")
            return out
        out.files.append(SimulatedFile(entry.path, start, file_size))
    return out


def strictly(rules: BrokerRules) -> BrokerRules:
    """DLedger's own loading: no directories, no 0-byte files, in no version (MmapFileList#doLoad)."""
    return replace(rules, length_mismatch=LengthMismatch.FAIL, skips_directories=False, deletes_empty_last=False)


def _misfit(entry: DirEntry, file_size: int) -> str:
    if entry.directory:
        return "stray directory {}"
    if java_long(entry.path.name) is None:
        return "stray file {}"
    return f"{{}} has {entry.length} bytes instead of {file_size}"


def java_long(name: str) -> int | None:
    """Long.parseLong, None where it throws."""
    if _LONG.match(name) is None:
        return None
    value = int(name)
    return value if -(1 << 63) <= value < 1 << 63 else None


def java_order(name: str) -> bytes:
    """Key that sorts as String#compareTo does: by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


class SimulatedFiles:
    """The list of mapped files of one queue and what a start does to it; nothing is written anywhere."""

    def __init__(self, directory: Path, file_size: int, files: list[SimulatedFile] | None = None) -> None:
        self.directory = directory
        self.file_size = file_size
        self.files = files or []
        self.deleted: list[Path] = []
        self.created: list[Path] = []

    def last(self) -> SimulatedFile | None:
        return self.files[-1] if self.files else None

    def max_offset(self) -> int:
        """End of what counts as written, global offset.

        Source: MappedFileQueue#getMaxOffset
        """
        return self.files[-1].start + self.files[-1].wrote if self.files else 0

    def min_offset(self) -> int:
        """Start of the first file, -1 without one (CommitLog#getMinOffset)."""
        return self.files[0].start if self.files else -1

    def truncate_dirty_files(self, offset: int) -> None:
        """MappedFileQueue#truncateDirtyFiles: files behind are deleted, the one that holds it is cut in memory only."""
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
        """What both kinds of consume queues do: count valid units from the third file from the end on, cut behind them.

        `valid_bytes` counts those at the front of a file; a file that is valid throughout leads to the next one.
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
        """Files that are deleted from the front."""
        for file in files:
            self.files.remove(file)
            self._delete(file)

    def _delete(self, file: SimulatedFile) -> None:
        if file.path in self.created:
            self.created.remove(file.path)
        else:
            self.deleted.append(file.path)

    def last_for_append(self, start_offset: int) -> SimulatedFile:
        """MappedFileQueue#getLastMappedFile(startOffset): makes a file when none exists or the last is full."""
        last = self.last()
        if last is not None and last.wrote < self.file_size:
            return last
        start = start_offset - start_offset % self.file_size if last is None else last.start + self.file_size
        path = self.directory / offset_to_file_name(max(0, start))
        file = SimulatedFile(path, start, 0, first_created=last is None)
        self.created.append(path)
        self.files.append(file)
        return file

    def read(self, file: SimulatedFile, size: int, at: int) -> bytes:
        """Bytes of the file on disk; zeros where it would be new."""
        if file.path in self.deleted:
            return bytes(size)
        return read_at(file.path, size, at)
