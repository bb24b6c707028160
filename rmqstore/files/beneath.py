"""Entries of directories, read without following links: as they are named, or beneath allowed directories."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path

from rmqstore.errors import Refused
from rmqstore.files import pace
from rmqstore.files.reading import descend, next_data, open_below
from rmqstore.texts import Text, many

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LIST = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_search = partial(open_below, flags=_SEARCH)
_CHUNK = 1 << 20  # bytes


class EntryReader:
    """How to read entries of directories; links in the last place of a path are not followed. Errors: OSError."""

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        """Open a file for reading; yield its descriptor. Errors: OSError, also for a link."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def status(self, path: Path) -> os.stat_result:
        """Return lstat of an entry."""
        return path.lstat()

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory, in any order."""
        return [entry.name for entry in path.iterdir()]

    def target(self, path: Path) -> str:
        """Return where a link leads."""
        return str(path.readlink())


AS_NAMED = EntryReader()


class Beneath(EntryReader):
    """Entries beneath the directories that were allowed.

    Each call opens the directories from an allowed one down to the file, one after the other, and follows no link. So a
    link that was put there, even between two calls, leads nowhere: the call fails.
    Errors: OSError; Refused for a path that is not beneath an allowed directory.
    """

    @cached_property
    def _allowed(self) -> dict[Path, int]:
        """The allowed directories with their descriptors. They are disjoint: a step may move one inside another."""
        return {}

    def allow(self, directory: Path) -> None:
        """Allow everything beneath a directory that the user named. `directory`: a real path, see `real_path`."""
        if any(known == directory or known in directory.parents for known in self._allowed):
            return
        descriptor = os.open(directory, _SEARCH)
        for inner in [known for known in self._allowed if directory in known.parents]:
            os.close(self._allowed.pop(inner))
        self._allowed[directory] = descriptor

    def __del__(self) -> None:
        for descriptor in self._allowed.values():
            os.close(descriptor)

    @contextlib.contextmanager
    def above(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield the open directory of an entry, and the entry's name in it."""
        names: list[str] = []
        place = path
        while (base := self._allowed.get(place)) is None:
            names.append(place.name)
            if place == place.parent or place.name == "..":
                raise Refused(
                    Text("{path} is outside the directories that may be changed", path=path),
                    Text("name its directory with --root"),
                )
            place = place.parent
        folder = descend(base, reversed(names[1:]), _search)
        try:
            yield folder, names[0] if names else "."
        finally:
            if folder != base:
                os.close(folder)

    def open_regular(self, path: Path, flags: int = _READ) -> int:
        """Open a regular file and return its descriptor. Errors: OSError, also for anything else."""
        with self.above(path) as (folder, name):
            descriptor = os.open(name, flags, dir_fd=folder)
        try:
            refuse_special(descriptor, path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        descriptor = self.open_regular(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def status(self, path: Path) -> os.stat_result:
        with self.above(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def list(self, path: Path) -> list[str]:
        with self.listed(path) as descriptor:
            return os.listdir(descriptor)  # noqa: PTH208  # Path cannot list a descriptor

    def target(self, path: Path) -> str:
        with self.above(path) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def listed(self, path: Path) -> Iterator[int]:
        """Open a directory; yield its descriptor."""
        with self.above(path) as (folder, name):
            descriptor = os.open(name, _LIST, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


MOST_LEVELS = 100
"""Levels of directories below one that is moved or copied as a whole; brokers make three."""


def refuse_deep(path: Path, level: int) -> None:
    """Errors: Refused for a directory `level` levels below the one that is moved or copied, if that is too deep."""
    if level > MOST_LEVELS:
        raise Refused(
            Text(
                "{path} has more than {levels} of directories",
                path=path.parents[level - 1],
                levels=many(MOST_LEVELS, "level"),
            ),
            Text("move it away by hand"),
        )


def refuse_special(descriptor: int, path: Path) -> None:
    """Errors: OSError for anything but a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, Text("not a regular file"), str(path))


def read_range(path: Path, at: int, length: int, entries: EntryReader = AS_NAMED) -> Iterator[bytes]:
    """Yield the bytes `[at, at + length)` of a file, at most 1 MiB at a time; short if the file ends."""
    with entries.opened(path) as descriptor:
        while length > 0:
            chunk = os.pread(descriptor, min(_CHUNK, length), at)
            if not chunk:
                return
            at += pace.took(len(chunk))
            length -= len(chunk)
            yield chunk


def read_runs(path: Path, at: int, length: int, entries: EntryReader = AS_NAMED) -> Iterator[bytes | int]:
    """Yield the same bytes as `read_range`, but a hole of the file as its length."""
    with entries.opened(path) as descriptor:
        stop = min(at + length, os.fstat(descriptor).st_size)
        while at < stop:
            start, end = next_data(descriptor, at, stop)
            if start > at:
                yield start - at
            at = start
            while at < end:
                chunk = os.pread(descriptor, min(_CHUNK, end - at), at)
                if not chunk:
                    return
                at += pace.took(len(chunk))
                yield chunk
