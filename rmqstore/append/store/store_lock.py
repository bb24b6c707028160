"""Mark a store as open for writing: lock `lock`, and create `abort`, which a clean shutdown removes.

Source: DefaultMessageStore#start, #createTempFile, #shutdown (RocketMQ 5.4.0)
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rmqstore.append.files.disk import FILE_MODE, explain, make_directories, sync_directory, write_all
from rmqstore.files.lock import LOCK_NAME, take_lock

CONTENT = b"lock"


class StoreLock:
    """The broker's lock (a POSIX record lock on byte 0 of `lock`), held until `release`.

    Errors: StoreIsLive if another process, or another writer in this process, holds it; NotReadable, NoSpace.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / LOCK_NAME
        make_directories(root)
        try:
            self._held = take_lock(self.path, lambda p: os.open(p, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        except OSError as error:
            raise explain(error, self.path) from error
        try:
            write_all(self._held.descriptor, CONTENT, 0)
        except OSError as error:
            self._held.release()
            raise explain(error, self.path) from error

    def release(self) -> None:
        """Release the lock; like a broker, leave the file."""
        self._held.release()


def mark_running(root: Path) -> None:
    """Create `abort` with this process's id; it remains if the store is not closed cleanly.

    Errors: NoSpace, NotReadable. A new `abort` is then removed, because nothing was written that needs a recovery.
    """
    path = root / "abort"
    new = not path.exists()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(descriptor, str(os.getpid()).encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(root)
    except OSError as error:
        if new:
            path.unlink(missing_ok=True)
        raise explain(error, path) from error


def mark_clean(root: Path) -> None:
    """Remove `abort`, after everything is on disk."""
    with contextlib.suppress(FileNotFoundError):
        (root / "abort").unlink()
    sync_directory(root)
