"""Find the processes that have files of a store mapped or open for writing; a process that only reads is not a user.

The lock alone is not enough: a broker takes it only after load and recovery, and locks prove nothing on a network file
system. But a broker always has its log mapped and other files open for writing. Files are compared by device and inode,
because their paths differ in containers and bind mounts, and by path, because some file systems show another device
in `maps`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.files.lock import LOCK_NAME
from rmqstore.files.walk import entries_on_disk
from rmqstore.texts import Text

JOURNAL_FOLDER = ".rmqstore"
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
_BROKER_LIKE = ("java", "jsvc", "rocketmq", "rmqstore")
_WRITE = 2

Snapshot = Mapping[str, tuple[int, int, int, int]]
"""Path → (device, inode, size in bytes, mtime in ns) of every regular file."""


@dataclass(frozen=True, slots=True)
class User:
    """A process that has a file of the store open for writing, or mapped."""

    pid: int
    command: str
    path: str
    mapped: bool

    def __str__(self) -> str:
        mapped, writes = (
            Text("process {pid} ({command}) has {path} mapped"),
            Text("process {pid} ({command}) has {path} open for writing"),
        )
        return (mapped if self.mapped else writes).format(pid=self.pid, command=self.command, path=self.path)


@dataclass(frozen=True, slots=True)
class Hidden:
    """A process of another user that may write to the store, and whose open files we have no permission to see."""

    pid: int
    command: str
    uid: int

    def __str__(self) -> str:
        return Text("process {pid} ({command}, user {uid})", pid=self.pid, command=self.command, uid=self.uid)


@dataclass(frozen=True, slots=True)
class Users:
    """The other processes that use a store (`seen`), and those that might but cannot be inspected (`hidden`)."""

    seen: tuple[User, ...] = ()
    hidden: tuple[Hidden, ...] = ()


def snapshot(directories: Sequence[Path]) -> dict[str, tuple[int, int, int, int]]:
    """Record identity, size and mtime of every regular file below `directories`, except journals and the lock."""
    found: dict[str, tuple[int, int, int, int]] = {}
    lock = str(directories[0] / LOCK_NAME) if directories else ""
    for directory in directories:
        for entry, status in entries_on_disk(directory, lambda e: e.name == JOURNAL_FOLDER or e.path == lock):
            if stat.S_ISREG(status.st_mode):
                found[entry.path] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def find_users(directories: Sequence[Path], files: Snapshot, proc: Path = Path("/proc")) -> Users:
    """Find every other process that has one of the files mapped or open for writing, sorted by process id.

    Processes of another container may be missing from /proc; only the lock and changing files give them away.
    Errors: none; without /proc the result is empty.
    """
    inodes = {(row[0], row[1]): path for path, row in files.items()}
    prefixes = tuple(f"{directory}/" for directory in directories)
    own = os.getpid()
    seen: list[User] = []
    hidden: list[Hidden] = []
    others: set[bytes] = set()
    try:
        pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    except OSError:
        return Users()
    for pid in pids:
        if pid == own:
            continue
        process = proc / str(pid)
        try:
            path = _written(process, inodes)
            mapped = path is None
            path = path if path is not None else _mapped(process, inodes, prefixes, others)
        except PermissionError:
            unseen = _unseen(process, pid, directories)
            hidden += [unseen] if unseen is not None else []
            continue
        except (OSError, ValueError):
            continue  # the process has ended
        if path is not None:
            seen.append(User(pid, command_of(process), path, mapped))
    return Users(tuple(seen), tuple(hidden))


def command_of(process: Path) -> str:
    """Return the short name of a process from its /proc directory."""
    try:
        return os.fsdecode((process / "comm").read_bytes()).strip()
    except OSError:
        return "?"


def _written(process: Path, inodes: Mapping[tuple[int, int], str]) -> str | None:
    """Return a file of the store that a process has open for writing; None if there is none. Errors: OSError."""
    with os.scandir(process / "fd") as descriptors:
        for descriptor in descriptors:
            try:
                status = descriptor.stat()
                found = inodes.get((status.st_dev, status.st_ino))
                if found is not None and _may_write(process / "fdinfo" / descriptor.name):
                    return found
            except FileNotFoundError:
                continue  # closed in the meantime
    return None


def _may_write(info: Path) -> bool:
    for line in info.read_bytes().splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return True


def _mapped(
    process: Path, inodes: Mapping[tuple[int, int], str], prefixes: tuple[str, ...], others: set[bytes]
) -> str | None:
    """Return a file of the store that a process has mapped; None if there is none. Errors: OSError, ValueError.

    `others` collects the files that do not belong to the store: most processes map the same libraries.
    """
    lines = (process / "maps").read_bytes().split(b"\n")  # a name may have \r
    files = {line.split(maxsplit=3)[3] for line in lines if line} - others  # device, inode, path
    for file in sorted(files):
        fields = file.split(maxsplit=2)
        if len(fields) < 3 or fields[1] == b"0":
            continue
        name = os.fsdecode(fields[2])
        if name.startswith(prefixes) and f"/{JOURNAL_FOLDER}/" not in name:
            return name
        major, _, minor = fields[0].partition(b":")
        found = inodes.get((os.makedev(int(major, 16), int(minor, 16)), int(fields[1])))
        if found is not None:
            return found
    others |= files
    return None


def _unseen(process: Path, pid: int, directories: Sequence[Path]) -> Hidden | None:
    """Describe a process that we have no permission to inspect; None if it is unlikely to write to the store.

    That excludes kernel threads, processes of users without write permission, and root's processes whose command line
    names neither a JVM, RocketMQ nor the store: root may write anywhere, and every machine runs daemons of root.
    """
    try:
        uid = process.stat().st_uid
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        if int(fields[6]) & _KERNEL_THREAD or fields[0] in (b"Z", b"X"):
            return None
        command_line = os.fsdecode((process / "cmdline").read_bytes()).replace("\0", " ")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError):
        return Hidden(pid, command_of(process), -1)
    if uid == 0:
        text = f"{command_of(process)} {command_line}".lower()
        words = (*_BROKER_LIKE, *(str(directory).lower() for directory in directories))
        return Hidden(pid, command_of(process), uid) if any(word in text for word in words) else None
    groups = _groups(process)
    may_write = any(_writable_by(directory, uid, groups) for directory in directories)
    return Hidden(pid, command_of(process), uid) if may_write else None


def _groups(process: Path) -> frozenset[int]:
    """Return the group ids of a process, which are visible to every user."""
    with contextlib.suppress(OSError, ValueError):
        rows = (process / "status").read_bytes().splitlines()
        return frozenset(int(n) for row in rows if row.startswith((b"Gid:", b"Groups:")) for n in row.split()[1:])
    return frozenset()


def _writable_by(directory: Path, uid: int, groups: frozenset[int]) -> bool:
    """Return whether a user may write to a directory or to one of its entries."""
    try:
        rows = [directory.stat(), *(entry.stat(follow_symlinks=False) for entry in os.scandir(directory))]
    except OSError:
        return True
    for row in rows:
        shift = 6 if row.st_uid == uid else 3 if row.st_gid in groups else 0
        if not stat.S_ISLNK(row.st_mode) and row.st_mode >> shift & _WRITE:
            return True
    return False
