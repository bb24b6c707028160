"""The one walk of the directories of a store, and where their links lead.

Nothing that a store contains is trusted to end: a link may lead out of the store, back to a directory that contains it,
or to a device. A walk never enters a directory through a link, so it ends, and meets every file once, under its own
name. Links at the top that have the name of a part (`commitlog -> /disk2/commitlog`) are followed, as a broker follows
them; `Store.followed` decides which, and each is the top of a walk of its own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from rmqstore.files.files import DirEntry, Files, ForwardedFiles, LocalFile, OpenFile
from rmqstore.files.reading import open_beneath
from rmqstore.texts import Text


class Leads(StrEnum):
    """Where a link leads."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    AROUND = "loop"
    NOWHERE = "nowhere"

    @property
    def words(self) -> str:
        """What the reports say about such a link."""
        return _WORDS[self]


_WORDS = {
    Leads.INSIDE: Text("it leads to another place of the store"),
    Leads.OUTSIDE: Text("it leads out of the store"),
    Leads.AROUND: Text("it leads in a circle"),
    Leads.NOWHERE: Text("it leads nowhere"),
}


def _all(_: DirEntry) -> bool:
    return True


def _ignored(_: OSError) -> None:
    """Ignore a directory that cannot be listed: it has its own finding."""


def walk(
    files: Files,
    top: Path,
    enter: Callable[[DirEntry], bool] = _all,
    unlisted: Callable[[OSError], None] = _ignored,
) -> Iterator[DirEntry]:
    """Yield every entry below a directory, each directory before what is in it, in the order of names.

    A directory is entered if it is no link and `enter` says so. `unlisted` is called for a directory that cannot be
    listed. `top` itself may be a link.
    """
    levels = [iter(_listed(files, top, unlisted))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
            continue
        yield entry
        if entry.directory and entry.link is None and enter(entry):
            levels.append(iter(_listed(files, entry.path, unlisted)))


def _listed(files: Files, directory: Path, unlisted: Callable[[OSError], None]) -> list[DirEntry]:
    try:
        return files.list(directory)
    except OSError as error:
        unlisted(error)
        return []


def entries_on_disk(
    top: str | os.PathLike[str],
    skip: Callable[[os.DirEntry[str]], bool] | None = None,
    unlisted: Callable[[OSError], None] = _ignored,
) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Yield every entry below a directory of this machine with its own status, also that of a link, in no order.

    As `walk`, for what needs owners and inodes. What disappears is left out. `unlisted` is called for a directory that
    cannot be listed: of another user, or with a path of more than 4,096 bytes.
    """
    todo = [os.fspath(top)]
    while todo:
        try:
            with os.scandir(todo.pop()) as listed:
                entries = list(listed)
        except FileNotFoundError:
            continue
        except OSError as error:
            unlisted(error)
            continue
        for entry in entries:
            if skip is not None and skip(entry):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                unlisted(error)
                continue
            if stat.S_ISDIR(status.st_mode):
                todo.append(entry.path)
            yield entry, status


_MOST = 4096  # real paths that are kept


class OwnFiles(ForwardedFiles):
    """The files of a store without what its links lead to outside of it: for all that hands their bytes to others.

    `places`: the directories that are the store's own. An entry that is a link to something else, or a link in a
    circle, is `special`, so that nothing reads it. A file is opened below its place without following a link, also
    when somebody replaces it meanwhile.
    """

    def __init__(self, files: Files, places: Sequence[Path]) -> None:
        super().__init__(files)
        self._tops = frozenset(places)
        self._places = [files.real_path(place) for place in places if files.is_directory(place)]
        self._real: dict[Path, Path] = {}

    def real_path(self, path: Path) -> Path:
        """As for all files, but the directory of a path is resolved once: a deep one takes as long as all above it.

        Whoever replaces it by a link meanwhile gains nothing: `open` follows none.
        """
        parent = self._real.get(path.parent)
        if parent is None or path.name == ".." or path.is_symlink():
            real = self._files.real_path(path)
        else:
            real = parent / path.name
        if len(self._real) >= _MOST:
            self._real.clear()
        self._real[path] = real
        return real

    def leads(self, entry: DirEntry) -> Leads:
        """Return where a link leads."""
        if entry.dangling:
            return Leads.NOWHERE
        real = self.real_path(entry.path)
        if entry.unreadable:
            return Leads.AROUND if real.is_symlink() else Leads.OUTSIDE
        around = self.real_path(entry.path.parent).is_relative_to(real)
        if around or any(place != real and place.is_relative_to(real) for place in self._places):
            return Leads.AROUND
        return Leads.INSIDE if self._place_of(real) is not None else Leads.OUTSIDE

    def _place_of(self, real: Path) -> Path | None:
        return next((place for place in self._places if real.is_relative_to(place)), None)

    def _guarded(self, entry: DirEntry) -> DirEntry:
        if entry.link is None or entry.special or entry.path in self._tops or self.leads(entry) is Leads.INSIDE:
            return entry
        return entry._replace(length=0, directory=False, special=True)

    def list(self, directory: Path) -> list[DirEntry]:
        real = self.real_path(directory)
        if self._place_of(real) is None:
            return []
        return [self._guarded(entry) for entry in self._files.list(directory)]

    def stat(self, path: Path) -> DirEntry | None:
        entry = self._files.stat(path)
        return None if entry is None else self._guarded(entry)

    def open(self, path: Path) -> OpenFile:
        real = self.real_path(path)
        place = self._place_of(real)
        if place is None:
            raise OSError(errno.EINVAL, Text("it leads out of the store"), str(path))
        try:
            return LocalFile(path, open_beneath(place, real.relative_to(place)))
        except ValueError as error:
            raise OSError(errno.ENOENT, Text("not a valid file name"), str(path)) from error
