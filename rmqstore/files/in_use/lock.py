"""The broker's lock: who holds it, and the one way to take it.

A broker holds a POSIX record lock on byte 0 of `lock` while it runs. POSIX drops every lock that a process has on a
file as soon as the process closes *any* descriptor of that file. So a process that holds the lock of a store must not
open that file a second time, not even to ask. `_held` registers the locks of this process by device and inode: readers
ask it before they open anything, and a second writer in the same process meets it and is refused.

Source: DefaultMessageStore#start, `lockFile.getChannel().tryLock(0, 1, false)` (RocketMQ 4.9.7, 5.1.4, 5.4.0)
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqstore.errors import StoreIsLive
from rmqstore.files.disk.reading import open_regular

LOCK_NAME = "lock"
_FLOCK = "hhqqi4x"
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""
_TRIES = 10

_Inode = tuple[int, int]
_guard = threading.RLock()
_held: dict[_Inode, HeldLock] = {}


class LockState(NamedTuple):
    """The broker's lock: whether the file exists, whether somebody holds it, and which process (None: unknown)."""

    exists: bool
    held: bool
    pid: int | None = None

    @property
    def own(self) -> bool:
        """Whether this process holds it."""
        return self.held and self.pid == os.getpid()


class HeldLock:
    """A lock that this process holds until `release`. Made by `take_lock` only."""

    def __init__(self, path: Path, descriptor: int, inode: _Inode) -> None:
        self.path = path
        self.descriptor = descriptor
        """Open for reading and writing; for `pwrite` of the file's content, never to be closed by the caller."""
        self._inode = inode

    def release(self) -> None:
        """Give the lock back; a second call does nothing. The file stays."""
        with _guard:
            if self.descriptor >= 0:
                _held.pop(self._inode, None)
                os.close(self.descriptor)
                self.descriptor = -1


def take_lock(path: Path, open_file: Callable[[Path], int]) -> HeldLock:
    """Take the lock of byte 0 as a broker does, without waiting.

    `open_file` opens the file for reading and writing and may create it. It is called only when this process does not
    hold the lock already.
    Errors: StoreIsLive when a broker, another process or this process holds it; OSError of `open_file` and `lockf`.
    """
    import fcntl

    with _guard:
        for _ in range(_TRIES):
            _refuse_own(path)
            descriptor = open_file(path)
            try:
                status = os.fstat(descriptor)
                inode = (status.st_dev, status.st_ino)
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EAGAIN):
                        raise
                    raise held_by(path.parent, _ask(descriptor)) from error
                if _inode_of(path) == inode:
                    _held[inode] = taken = HeldLock(path, descriptor, inode)
                    return taken
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # removed by its last holder after we opened it: nobody else would see this lock
        raise StoreIsLive(f"{path} is replaced again and again: another process is about to take it")


def lock_state(path: Path) -> LockState:
    """Who holds the lock, asked with F_GETLK and never taken.

    Errors: none; what cannot be asked (no permission, another system than Linux) is "not held".
    """
    with _guard:
        inode = _inode_of(path)
        if inode is None:
            return LockState(False, False)
        if inode in _held:
            return LockState(True, True, os.getpid())
        try:
            descriptor = open_regular(path)
        except FileNotFoundError:
            return LockState(False, False)
        except OSError:
            return LockState(True, False)
        try:
            return _ask(descriptor)
        finally:
            os.close(descriptor)


def refuse_locked(store: Path) -> None:
    """Errors: StoreIsLive when any process, this one included, holds the lock of the store directory."""
    state = lock_state(store / LOCK_NAME)
    if state.held:
        raise held_by(store, state)


def held_by(store: Path, state: LockState) -> StoreIsLive:
    """The error that names the process that holds a store's lock."""
    if state.own:
        return StoreIsLive(
            f"{store}: this process ({os.getpid()}) holds its lock already", "close the store that is open for writing"
        )
    holder = named(state.pid)
    if holder.endswith("(rmqstore)"):
        return StoreIsLive(f"{store}: its lock is held by process {holder}", "wait until it has ended, then try again")
    return StoreIsLive(f"{store}: its lock is held by process {holder}")


def named(pid: int | None, proc: Path = Path("/proc")) -> str:
    """A process as messages name it: its id and, where the system tells it, its command."""
    if pid is None:
        return "unknown"
    try:
        command = os.fsdecode((proc / str(pid) / "comm").read_bytes()).strip()
    except OSError:
        return str(pid)
    return f"{pid} ({command})"


def _ask(descriptor: int) -> LockState:
    import fcntl
    import struct

    if not sys.platform.startswith("linux"):
        return LockState(True, False)
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except (OSError, struct.error):
        return LockState(True, False)
    # An open file description lock, and a holder in another PID namespace, have no process id.
    return LockState(True, False) if kind == fcntl.F_UNLCK else LockState(True, True, pid if pid > 0 else None)


def _refuse_own(path: Path) -> None:
    if _inode_of(path) in _held:
        raise held_by(path.parent, LockState(True, True, os.getpid()))


def _inode_of(path: Path) -> _Inode | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _forget() -> None:
    """A forked child has the descriptors and none of the locks."""
    global _guard  # another thread of the parent may have been inside
    _guard = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
