"""Paths, errors of a disk, and early write-back.

Paths are not trusted: their links may be circular. An OSError of a write becomes an error of this project. Early
write-back lets the kernel write dirty pages while the command still works, so that the fsync at the end waits less.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from rmqstore.errors import CouldNotCheck, NoSpace, NotReadable, OutputExists, RmqStoreError, about
from rmqstore.texts import Text


class StorePath(type(Path())):  # type: ignore[misc]  # the class of this system's paths
    """A path, or an address of object storage, which is written with both of its slashes."""

    __slots__ = ()

    def __str__(self) -> str:
        text = super().__str__()
        return f"s3://{text[4:]}" if text.startswith("s3:/") else text


RECEIVING = "receiving"
"""Directory of a store in a repository, or the beginning of its name: a store of what `receive` has received."""
REPOSITORY = "rmqstore-repository.json"
"""The name of the file that makes a directory a repository of backups."""


def is_snapshot_address(path: Path) -> bool:
    """Return whether a path names a store in a repository (`REPO::NAME`, or the only one in REPO)."""
    text = str(path)
    if text.startswith("s3:/") or "::" in text:
        return not os.path.lexists(path)
    return os.path.lexists(path / REPOSITORY)


def address_in_repository(path: Path) -> str:
    """Return the address `REPO::NAME` if a path is a store's folder in a repository, or in it; else "".

    What `receive` has received there is a store by itself.
    """
    path, below = path.absolute(), ""
    for folder, above in zip((path, *path.parents), path.parents, strict=False):
        if os.path.lexists(above / REPOSITORY) and os.path.lexists(folder / "snapshots"):
            return "" if below.startswith(RECEIVING) else f"{above}::{folder.name}"
        below = folder.name
    return ""


def real_path(path: Path) -> Path:
    """Return the absolute path with links resolved; a link that cannot be resolved, such as a circular one, stays.

    Path.resolve() raises RuntimeError for a circular link (Python 3.11, 3.12).
    """
    return Path(os.path.realpath(path))


def existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    while not path.exists() and path.parent != path:
        path = path.parent
    return path


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space left, quota exceeded, or file too large (RLIMIT_FSIZE, or the file system's limit)."""


def is_full(error: OSError) -> bool:
    """Return whether a write failed because of a full disk, a quota or a limit on file sizes."""
    return error.errno in _FULL


def read_only(path: Path) -> tuple[Text, Text]:
    """Return message and advice for a path on a file system that is mounted read-only; the path may not exist."""
    mount = next((place for place in (path.absolute(), *path.absolute().parents) if place.is_mount()), Path("/"))
    return (
        Text("{path}: the file system {mount} is mounted read-only", path=path, mount=mount),
        Text("remount it (mount -o remount,rw {mount}), or write elsewhere", mount=shlex.quote(str(mount))),
    )


def explain(error: OSError, path: Path) -> RmqStoreError:
    """Return the error of this project, with advice, for an OSError on `path`."""
    message = about(path, error)
    if is_full(error):
        return NoSpace(
            message, Text("free space (or raise the quota or the file size limit), then run the command again")
        )
    if isinstance(error, FileExistsError):
        return OutputExists(Text("{path} already exists", path=path))
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError) or error.errno == errno.EROFS:
        return NotReadable(message)
    return CouldNotCheck(message, Text("the disk or the operating system reported an error; see dmesg"))


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise an OSError of the block, which is about `path`, as the error of this project."""
    try:
        yield
    except OSError as error:
        raise explain(error, path) from error


def sync_directory(directory: Path) -> None:
    """fsync a directory, so that new, renamed and deleted entries are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_WRITE = 2  # SYNC_FILE_RANGE_WRITE, linux/fs.h


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the function of the C library; None if it has none."""
    import ctypes

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def start_writing(descriptor: int, at: int = 0, size: int = 0) -> None:
    """Start to write the dirty pages of a range to disk; `size` 0: to the file's end. Errors are left to the fsync."""
    function = _sync_file_range()
    if function is not None:
        function(descriptor, at, size, _WRITE)


def named_options(directories: Iterable[Path]) -> str:
    """Return the options that name directories outside of a store."""
    return "".join(f" --root {shlex.quote(str(directory))}" for directory in directories)
