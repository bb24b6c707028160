"""Snapshots of what arrives, by the backup of the spool, which goes on meanwhile.

A snapshot is due, offsets are asked for, the log arrives up to where the master then was, topics and groups are asked
for, and the backup runs in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rmqstore.backup.backup import Backup, BackupOptions, back_up
from rmqstore.backup.keeping import KeepRule, name_at
from rmqstore.backup.repository import StoreFolder, now
from rmqstore.errors import CouldNotCheck, RmqStoreError, about
from rmqstore.receiving.receive import Follower, OffsetsAt
from rmqstore.receiving.spool import Spool, set_aside


@dataclass(slots=True)
class _SnapshotRun:
    """A backup in its thread: what came of it."""

    thread: threading.Thread
    made: Backup | None = None
    failed: RmqStoreError | None = None


class Snapshots:
    """Makes a snapshot every `every` seconds, and the first one as soon as the log is there; call `step` often."""

    def __init__(self, follower: Follower, folder: StoreFolder, every: float, keep: KeepRule) -> None:
        self._follower = follower
        self._folder = folder
        self._every = every
        self._options = BackupOptions(keep)
        self._due = 0.0
        self._mark: OffsetsAt | None = None
        self._running: _SnapshotRun | None = None

    def step(self) -> Backup | None:
        """Do what is to be done now; return a snapshot that has just been made.

        Errors: ConnectionLost of the master; those of `back_up`.
        """
        if self._running is not None:
            return self._finished(self._running)
        follower, moment = self._follower, time.monotonic()
        if not follower.progress.connected or follower.spool.is_empty:
            return None
        if self._mark is None and moment >= self._due:
            self._mark = follower.mark()
        if self._mark is not None and follower.has_reached(self._mark):
            mark, self._mark = self._mark, None
            follower.complete(mark)
            self._due = moment + self._every
            self._running = self._start()
        return None

    def _start(self) -> _SnapshotRun:
        store = self._follower.spool.store()

        def work() -> None:
            try:
                run.made = back_up(store, self._folder, self._options)
            except RmqStoreError as error:
                run.failed = error
            except OSError as error:
                run.failed = CouldNotCheck(about(error.filename or self._folder.storage.address, error))

        run = _SnapshotRun(threading.Thread(target=work, name="snapshot", daemon=True))
        run.thread.start()
        return run

    def _finished(self, run: _SnapshotRun) -> Backup | None:
        if run.thread.is_alive():
            return None
        self._running = None
        if run.failed is not None:
            raise run.failed
        if run.made is not None and self._follower.master is not None:
            self._follower.spool.drop_before(min(self._follower.master.begin, run.made.manifest.end))
        return run.made


def keep_and_set_aside(place: Path, folder: StoreFolder, keep: KeepRule) -> Path:
    """Make a snapshot of what has been received from another history, and rename it; return the new path.

    Errors: as `back_up`; those of the spool.
    """
    with Spool(place) as spool:
        if not spool.is_empty:
            back_up(spool.store(), folder, BackupOptions(keep))
    return set_aside(place, name_at(now()))
