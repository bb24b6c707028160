"""Who uses a store: the broker's lock, and processes that have mapped its files. Asked, never taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rmqstore.files.mapped_file_queue import open_regular


class LockState(NamedTuple):
    """The broker's lock: whether the file is there and which process holds it (None: nobody, or not to be told)."""

    exists: bool
    held: bool
    pid: int | None = None


def lock_state(path: Path) -> LockState:
    """Who holds the POSIX record lock on byte 0 of a lock file.

    Errors: none; what cannot be asked (no permission, a system without the call) is "not held".
    Source: DefaultMessageStore#start, FileChannel#tryLock(0, 1, false) (RocketMQ 4.9.7, 5.1.4, 5.4.0)
    """
    import fcntl
    import struct

    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return LockState(False, False)
    except OSError:
        return LockState(True, False)
    try:
        # 64-bit struct flock of Linux; elsewhere the answer is "not held", and /proc or mtimes have to do
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, ask))
    except (OSError, struct.error):
        return LockState(True, False)
    finally:
        os.close(fd)
    if kind == fcntl.F_UNLCK:
        return LockState(True, False)
    return LockState(True, True, pid or None)


def user_of(root: Path, proc: Path = Path("/proc")) -> int | None:
    """A process other than this one that has mapped a file below `root`, as a broker maps its files; else None.

    Errors: none; processes of others that may not be looked at are passed over.
    """
    prefix = os.fsencode(os.path.realpath(root)) + b"/"
    me = os.getpid()
    try:
        processes = [p for p in proc.iterdir() if p.name.isdigit() and int(p.name) != me]
    except OSError:
        return None
    for process in processes:
        try:
            if prefix in (process / "maps").read_bytes():
                return int(process.name)
        except OSError:
            continue
    return None
