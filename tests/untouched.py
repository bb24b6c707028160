"""Proof that nothing was changed: a store's names, bytes, modes and times before and after."""

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
    """One name below a store. Access times are left out: reading may move them."""

    kind: str
    mode: int
    owner: tuple[int, int]
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    content: str


def snapshot(store: Path, *, without: tuple[str, ...] = ()) -> dict[str, Entry]:
    """Everything at and below a store, by relative path; top-level names in `without` are left out."""
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
    """What undo must give back: names, bytes, modes, owners, and the times of files.

    Left out: inode and change time, which no program can restore, and the times and sizes of directories.
    """
    return {
        name: replace(entry, ctime_ns=0, inode=0)
        if entry.kind != "directory"
        else replace(entry, ctime_ns=0, inode=0, mtime_ns=0, size=0)
        for name, entry in entries.items()
    }


@contextlib.contextmanager
def assert_untouched(store: Path) -> Iterator[None]:
    """Fails when the block changes a byte, a name, a mode or a time (but access times) at or below `store`."""
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
    """Of a file's bytes; holes are passed over, as a 160 MB DLedger index is one big hole."""
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
            at = data // _CHUNK * _CHUNK  # whole chunks, so that a hole and written zeros have one digest
            chunk = os.pread(file, min(_CHUNK, size - at), at)
            if not chunk:
                break
            if chunk != (_ZEROS if len(chunk) == _CHUNK else bytes(len(chunk))):
                digest.update(at.to_bytes(8, "big") + chunk)
            at += len(chunk)
    finally:
        os.close(file)
    return digest.hexdigest()
