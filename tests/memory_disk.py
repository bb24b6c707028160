"""A tmpfs for the copies of stores, if there is enough memory: a copy there takes a sixth of the CPU time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import IO

_DISK = Path("/dev/shm")
_PREFIX = "rmqstore-tests-"
_GIB = 1 << 30


class MemoryDisk:
    """A directory of this run on the tmpfs, locked until the run ends."""

    def __init__(self, home: Path, lock: IO[bytes]) -> None:
        self.home = home
        self._lock = lock

    def leave(self, *, keep: bool) -> None:
        """Remove the directory; with `keep`, leave that to the next run."""
        self._lock.close()
        if not keep:
            shutil.rmtree(self.home, ignore_errors=True)


def claim() -> MemoryDisk | None:
    """Create a directory; return None without a tmpfs, or with less memory than 2 GiB plus 1 GiB per core."""
    try:
        disk = os.statvfs(_DISK)
        memory = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
        free = min(disk.f_bavail * disk.f_frsize, int(memory[1]) * 1024 if memory else 0)
        if free < (2 + (os.cpu_count() or 1)) * _GIB:
            return None
        _sweep()
        home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_DISK))
        lock = (home / "lock").open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return None
    return MemoryDisk(home, lock)


def _sweep() -> None:
    """Remove the directories of runs that have ended."""
    for home in _DISK.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), (home / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(home, ignore_errors=True)
