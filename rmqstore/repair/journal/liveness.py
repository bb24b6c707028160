"""Is somebody using this store? The broker's lock, open and mapped files of other processes, and files that move.

The broker takes `lock` only after load and recovery, so a free lock proves little; and no lock proves anything on a
network file system. Closing *any* descriptor of `lock` drops the lock of the whole process: here it is opened once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.errors import StoreIsLive
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.steps import JOURNAL_FOLDER

LOCK_NAME = "lock"
_FLOCK = "hhqqi4x" if sys.maxsize > 2**32 else "hhlli"

Snapshot = Mapping[str, tuple[int, int, int, int]]
"""Path -> (device, inode, size, mtime ns) of every regular file."""


def lock_holder(store: Path) -> int | None:
    """Process that holds the broker's lock, asked without taking it; None when nobody does.

    Source: DefaultMessageStore#start, `lockFile.getChannel().tryLock(0, 1, false)`, RocketMQ 5.4.0
    """
    try:
        descriptor = os.open(store / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if sys.platform != "linux":
            return None
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return None if answer[0] == fcntl.F_UNLCK else int(answer[4])
    except OSError:
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_lock(store: Path, disk: Disk, *, remove: bool) -> Iterator[None]:
    """Hold the store's lock as the broker would; a `lock` file that was not there is removed again.

    `remove`: also remove one that is there (it was left by an apply that was killed).
    Errors: StoreIsLive when another process holds it.
    """
    path = store / LOCK_NAME
    descriptor = -1
    try:
        try:
            descriptor = disk.open_existing(path)
        except FileNotFoundError:
            descriptor = disk.open_new(path)
            remove = True
            # Should this process be killed, the file left behind must not keep out a broker that is not root.
            owner = store.stat()
            with contextlib.suppress(PermissionError):
                disk.set_owner(path, owner.st_uid, owner.st_gid)
            disk.set_mode(path, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            remove = False
            raise StoreIsLive(f"{store}: its lock is held by process {_refuser(descriptor)}") from error
        yield
    except BaseException:
        if remove:
            with contextlib.suppress(OSError):
                disk.unlink(path)
        raise
    else:
        if remove:
            disk.unlink(path)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _refuser(descriptor: int) -> str:
    """Who holds the lock that was just refused; for the message."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        return str(struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[4])
    except OSError:
        return "unknown"


def snapshot(places: Sequence[Path]) -> dict[str, tuple[int, int, int, int]]:
    """Identity, size and mtime of every regular file below the places; journals and the lock are left out."""
    seen: dict[str, tuple[int, int, int, int]] = {}
    todo = [str(place) for place in places]
    lock = str(places[0] / LOCK_NAME) if places else ""
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.name == JOURNAL_FOLDER or entry.path == lock:
                        continue
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            todo.append(entry.path)
                        elif stat.S_ISREG(status.st_mode):
                            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
                            seen[entry.path] = identity
        except OSError:
            continue
    return seen


def refuse_moving(before: Snapshot, after: Snapshot) -> None:
    """Errors: StoreIsLive when a file appeared, vanished, or changed its size or mtime between two snapshots."""
    if before != after:
        moved = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        raise StoreIsLive(f"{moved[0]} changed while it was looked at ({len(moved)} in all)")


@dataclass(frozen=True, slots=True)
class User:
    """A process that has a file of the store open or mapped."""

    pid: int
    command: str
    path: str


def find_user(places: Sequence[Path], files: Snapshot, proc: Path = Path("/proc")) -> User | None:
    """Another process that has a file of the store open or mapped, if one can be seen.

    Files are compared by device and inode (a container calls them by other names), and by path (some file systems
    show another device in `maps`). Processes that may not be looked into are passed over.
    """
    inodes = {(row[0], row[1]): path for path, row in files.items()}
    prefixes = tuple(f"{place}/" for place in places)
    own = os.getpid()
    try:
        pids = sorted(int(name.name) for name in proc.iterdir() if name.name.isdigit())
    except OSError:
        return None
    for pid in pids:
        if pid == own:
            continue
        path = _open_file(proc / str(pid), inodes) or _mapped_file(proc / str(pid), inodes, prefixes)
        if path is not None:
            return User(pid, _command(proc / str(pid)), path)
    return None


def _open_file(process: Path, inodes: Mapping[tuple[int, int], str]) -> str | None:
    try:
        with os.scandir(process / "fd") as descriptors:
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    status = descriptor.stat()
                    found = inodes.get((status.st_dev, status.st_ino))
                    if found is not None:
                        return found
    except OSError:
        pass  # gone, or not ours to look into
    return None


def _mapped_file(process: Path, inodes: Mapping[tuple[int, int], str], prefixes: tuple[str, ...]) -> str | None:
    try:
        with (process / "maps").open("rb") as lines:
            for line in lines:
                fields = line.split(maxsplit=5)
                if len(fields) < 6 or fields[4] == b"0":
                    continue
                name = os.fsdecode(fields[5].rstrip(b"\n"))
                if name.startswith(prefixes) and f"/{JOURNAL_FOLDER}/" not in name:
                    return name
                major, _, minor = fields[3].partition(b":")
                found = inodes.get((os.makedev(int(major, 16), int(minor, 16)), int(fields[4])))
                if found is not None:
                    return found
    except (OSError, ValueError):
        pass
    return None


def _command(process: Path) -> str:
    try:
        return os.fsdecode((process / "comm").read_bytes()).strip()
    except OSError:
        return "?"


def refuse_live(store: Path, places: Sequence[Path], files: Snapshot) -> None:
    """Errors: StoreIsLive when another process holds the lock, or has a file of the store open or mapped."""
    user = find_user(places, files)
    if user is not None:
        raise StoreIsLive(f"{store}: process {user.pid} ({user.command}) has {user.path} open")


def refuse_locked(store: Path) -> None:
    """Errors: StoreIsLive when another process holds the lock. Not for use while this process holds it itself."""
    holder = lock_holder(store)
    if holder is not None:
        raise StoreIsLive(f"{store}: its lock is held by process {holder}")
