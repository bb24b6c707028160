"""Directories that are built or removed as a whole."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from rmqstore.errors import OutputExists, Refused
from rmqstore.files.beneath import EntryReader
from rmqstore.files.disk import explain, explained, sync_directory
from rmqstore.files.private import (
    DIRECTORY_MODE,
    READABLE,
    READABLE_DIRECTORY,
    Removed,
    make_private_directories,
)
from rmqstore.texts import Text


class TreeCalls(Protocol):
    """The calls that remove a tree, by path. Errors: OSError."""

    def list(self, path: Path) -> list[str]: ...
    def status(self, path: Path) -> os.stat_result: ...
    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def remove_directory(self, path: Path) -> None: ...


class _Named(EntryReader):
    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()


def remove_tree(top: Path, entries: TreeCalls = _Named(), last: str = "") -> None:  # noqa: B008  # stateless
    """Remove a directory with all that is in it; its entry `last` at the end. Links are removed, not followed.

    A directory in another one is moved up before it is emptied, so that paths stay short however deep the tree is.
    Errors: OSError.
    """
    names = sorted(entries.list(top), key=lambda name: (name != last, name))
    taken = frozenset(names)
    fresh = (name for number in count() if (name := f"removed-{number}") not in taken)
    while names:
        path = top / names.pop()
        if not stat.S_ISDIR(entries.status(path).st_mode):
            entries.unlink(path)
            continue
        for inner in (path / name for name in entries.list(path)):
            if not stat.S_ISDIR(entries.status(inner).st_mode):
                entries.unlink(inner)
            elif entries.list(inner):
                names.append(next(fresh))
                entries.rename(inner, top / names[-1])
            else:
                entries.remove_directory(inner)
        entries.remove_directory(path)
    entries.remove_directory(top)


def remove_left(directory: Path) -> None:
    """Remove a directory of this program, if it is there. Errors: NotReadable."""
    try:
        remove_tree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, directory) from error


@contextmanager
def building(target: Path, removed: Removed | None = None) -> Iterator[Path]:
    """Make a directory beside `target` that is renamed to it at the end of the block, and removed after an error.

    What an interrupted run has left is removed first.
    Errors: OutputExists; Refused if another run builds it now; NotReadable, NoSpace.
    """
    target = target.absolute()
    if os.path.lexists(target):
        raise OutputExists(Text("{target} already exists", target=target))
    part = target.with_name(f".{target.name}.building")
    descriptor = -1
    try:
        left = os.path.lexists(part)
        make_private_directories(part)
        descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(descriptor, DIRECTORY_MODE)
        for entry in os.scandir(part):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                Path(entry.path).unlink()
        if left and removed is not None:
            removed(part)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Refused(
            Text("another process is building {target}", target=target), Text("wait until it has ended")
        ) from error
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise explain(error, part) from error
    try:
        yield part
        sync_directory(part)
        if os.path.lexists(target):
            raise OutputExists(Text("{target} was created in the meantime", target=target))
        part.rename(target)
        sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            remove_tree(part)
        raise
    finally:
        os.close(descriptor)


def write_readable(target: Path, files: Mapping[str, bytes], removed: Removed | None = None) -> None:
    """Make a directory with these files, by relative path, that every user can read.

    `removed`: as for `building`. Errors: those of `building`.
    """
    with building(target, removed) as part:
        for name, content in files.items():
            place = part / name
            with explained(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
                place.chmod(READABLE)
        for folder in (part, *(path for path in part.rglob("*") if path.is_dir())):
            folder.chmod(READABLE_DIRECTORY)
