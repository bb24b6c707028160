"""Check that a store was not changed, by its names, bytes, modes and times before and after."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or directory of a store, without its access time, which reading may change."""

    kind: str
    mode: int
    owner: tuple[int, int]
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    content: str


def snapshot(store: Path, *, without: tuple[str, ...] = ()) -> dict[str, Entry]:
    """Return all entries of a store by relative path, except the top-level names in `without`."""
    top = os.fspath(store)
    entries = {".": _entry(top)}
    for folder, folders, files in os.walk(top):
        below = "" if folder == top else f"{folder[len(top) + 1 :]}/"
        if not below:
            folders[:] = [name for name in folders if name not in without]
        for name in folders + files:
            if below or name not in without:
                entries[below + name] = _entry(f"{folder}/{name}")
    return entries


def content_only(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return what undo must restore: names, bytes, modes, owners, and the times of files.

    Inodes and change times, which no program can restore, and times and sizes of directories are left out.
    """
    return {
        name: replace(entry, ctime_ns=0, inode=0)
        if entry.kind != "directory"
        else replace(entry, ctime_ns=0, inode=0, mtime_ns=0, size=0)
        for name, entry in entries.items()
    }


def content(store: Path, *, without: tuple[str, ...] = ()) -> dict[str, Entry]:
    """Return what undo must restore of a store: `content_only` of everything except journals and `without`."""
    return content_only(snapshot(store, without=(".rmqstore", *without)))


def tree(root: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes | None]:
    """Return all paths below `root` with their bytes (None for a directory), without journals and `without`."""
    paths = ((path, path.relative_to(root)) for path in sorted(root.rglob("*")))
    return {
        str(name): path.read_bytes() if path.is_file() else None
        for path, name in paths
        if name.parts[0] not in (".rmqstore", *without)
    }


def file_bytes(root: Path, *parts: str) -> dict[str, bytes]:
    """Return the bytes of all files below `root`, or of these parts of it, by path."""
    names = (root / part for part in parts or ("",))
    paths = (path for folder in names for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@contextlib.contextmanager
def assert_untouched(store: Path) -> Iterator[None]:
    """Fail if the block changes a byte, name, mode or time (except access times) of `store` or of anything below it."""
    before = snapshot(store)
    yield
    after = snapshot(store)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert not changed, f"changed by a command that only reads: {changed}"


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    return Entry(
        kind=_kind(status.st_mode),
        mode=stat.S_IMODE(status.st_mode),
        owner=(status.st_uid, status.st_gid),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        content=_digest(path, status),
    )


def _kind(mode: int) -> str:
    for kind, matches in (("file", stat.S_ISREG), ("directory", stat.S_ISDIR), ("link", stat.S_ISLNK)):
        if matches(mode):
            return kind
    return "other"


def _digest(path: str, status: os.stat_result) -> str:
    """Return the digest of a file's bytes; skip holes, because a DLedger index file has 160 MB of them."""
    if stat.S_ISLNK(status.st_mode):
        return str(Path(path).readlink())
    if not stat.S_ISREG(status.st_mode):
        return ""
    digest = hashlib.sha256()
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at, size = 0, status.st_size
        while at < size:
            try:
                data = os.lseek(file, at, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                break
            at = data // _CHUNK * _CHUNK  # whole chunks, so that a hole has the same digest as written zeros
            chunk = os.pread(file, min(_CHUNK, size - at), at)
            if not chunk:
                break
            if chunk != (_ZEROS if len(chunk) == _CHUNK else bytes(len(chunk))):
                digest.update(at.to_bytes(8, "big") + chunk)
            at += len(chunk)
    finally:
        os.close(file)
    return digest.hexdigest()
