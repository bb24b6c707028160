"""Query and take the broker's lock on a store.

A broker holds a POSIX record lock on byte 0 of `lock` while it runs. POSIX releases all of a process's locks on a file
as soon as the process closes *any* descriptor of that file. So a process that holds the lock must not open the file
again, not even to query the lock. `_held` registers the locks of this process by device and inode: readers look there
before they open the file, and a second writer in this process is refused.

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
from rmqstore.files.reading import open_regular
from rmqstore.texts import Text

LOCK_NAME = "lock"
_FLOCK = "hhqqi4x"
"""Format of struct flock on 64-bit Linux: type, whence, start, length, pid."""
_TRIES = 10

_Inode = tuple[int, int]
_guard = threading.RLock()
_held: dict[_Inode, HeldLock] = {}


class LockState(NamedTuple):
    """The state of the broker's lock: whether its file exists, whether it is held, and by which pid (None: unknown)."""

    exists: bool
    held: bool
    pid: int | None = None

    @property
    def own(self) -> bool:
        """Whether this process holds it."""
        return self.held and self.pid == os.getpid()


class HeldLock:
    """A lock that this process holds until `release`; only `take_lock` creates one."""

    def __init__(self, path: Path, descriptor: int, inode: _Inode) -> None:
        self.path = path
        self.descriptor = descriptor
        """Open for reading and writing. The caller may `pwrite` to it but must not close it."""
        self._inode = inode

    def release(self) -> None:
        """Release the lock and leave the file; a second call does nothing."""
        with _guard:
            if self.descriptor >= 0:
                _held.pop(self._inode, None)
                os.close(self.descriptor)
                self.descriptor = -1


def take_lock(path: Path, open_file: Callable[[Path], int]) -> HeldLock:
    """Take the lock on byte 0 as a broker does, without waiting.

    `open_file` opens the file for reading and writing and may create it. It is called only if this process does not
    hold the lock yet.
    Errors: StoreIsLive if any process, including this one, holds the lock; OSError from `open_file` and `lockf`.
    """
    import fcntl

    with _guard:
        for _ in range(_TRIES):
            if _inode_of(path) in _held:
                raise held_by(path.parent, LockState(True, True, os.getpid()))
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
            os.close(descriptor)  # the last holder removed the file after we opened it: others would not see our lock
        raise StoreIsLive(Text("{path} keeps being replaced: another process is about to lock it", path=path))


def lock_state(path: Path) -> LockState:
    """Query the lock with F_GETLK, without taking it.

    Errors: none; a lock that cannot be queried (no permission, not Linux) counts as not held.
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
    """Refuse a store whose lock is held. Errors: StoreIsLive if any process, including this one, holds the lock."""
    state = lock_state(store / LOCK_NAME)
    if state.held:
        raise held_by(store, state)


def held_by(store: Path, state: LockState) -> StoreIsLive:
    """Return the error that names the process holding a store's lock."""
    if state.own:
        return StoreIsLive(
            Text("{store}: this process ({getpid}) holds its lock already", store=store, getpid=os.getpid()),
            Text("close the store that is open for writing"),
        )
    holder = named(state.pid)
    advice = (Text("wait until it ends, then try again"),) if holder.endswith("(rmqstore)") else ()
    return StoreIsLive(Text("{store}: its lock is held by process {holder}", store=store, holder=holder), *advice)


def named(pid: int | None) -> str:
    """Format a process for messages: its id and, if /proc has it, its command."""
    if pid is None:
        return "unknown"
    try:
        command = os.fsdecode(Path(f"/proc/{pid}/comm").read_bytes()).strip()
    except OSError:
        return str(pid)
    return f"{pid} ({command})"


def _ask(descriptor: int) -> LockState:
    import fcntl
    import struct

    if not sys.platform.startswith("linux"):
        return LockState(True, False)
    query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
    except (OSError, struct.error):
        return LockState(True, False)
    # no process id for an open file description lock, and for a holder in another PID namespace
    return LockState(True, False) if kind == fcntl.F_UNLCK else LockState(True, True, pid if pid > 0 else None)


def _inode_of(path: Path) -> _Inode | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _forget() -> None:
    """Empty the registry in a forked child, which inherits descriptors but no locks."""
    global _guard  # a thread of the parent may have held it during the fork
    _guard = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
