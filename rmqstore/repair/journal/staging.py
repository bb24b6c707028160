"""Writes all new content of a plan to the journal's folders and fsyncs it, before the store is changed.

Creating a file is then a single rename, lazy content need not be produced again after a crash, and a failing source or
a full disk is noticed while nothing has changed yet.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.journal.folder import LOST_FOUND, NEW, QUARANTINE, UNDO_LOG, JournalFolder, Staged
from rmqstore.repair.journal.plan_paths import PlanPaths, existing
from rmqstore.repair.journal.preflight import is_staged
from rmqstore.repair.plan.content import RunningFingerprint, chunks
from rmqstore.repair.plan.fingerprints import read_range
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.steps import Create, Extend, MakeDirectory, Overwrite

_GROUP = 128
"""Number of new files that are made durable together."""


def stage(plan: Plan, paths: PlanPaths, folder: JournalFolder) -> None:
    """Write all contents, saved spans and plan.json; everything is durable on return.

    Errors: OSError, and whatever lazy content raises; the store is unchanged then.
    """
    disk = folder.disk
    staged: dict[int, Staged] = {}
    written = _Written(disk)
    try:
        for number, step in enumerate(plan.steps):
            target = folder.staged(number)
            if isinstance(step, Create):
                like = _like(step, paths)
                staged[number] = Staged(target, step.size, written.add(target, chunks(step.content), step.size, like))
            elif isinstance(step, Overwrite | Extend) and is_staged(step):
                target, size = folder.path / NEW / f"{number:06}", step.content.size
                staged[number] = Staged(target, size, written.add(target, chunks(step.content), size, None))
            elif isinstance(step, MakeDirectory):
                disk.make_directory(target)
                _copy_metadata(disk, target, _like(step, paths), times=False)
        _save_spans(plan, paths, folder, written)
        written.finish()
    finally:
        written.close()
    if plan.spans:
        disk.fsync_directory(folder.path / LOST_FOUND)
    folder.save_plan(plan, staged)
    folder.write(folder.path / UNDO_LOG, b"")
    for home in folder.homes():
        for place in (home / NEW, home / QUARANTINE, home, home.parent, home.parent.parent):
            disk.fsync_directory(place)
    disk.fsync_directory(folder.path)


def _save_spans(plan: Plan, paths: PlanPaths, folder: JournalFolder, written: _Written) -> None:
    if plan.spans:
        saved = folder.path / LOST_FOUND
        folder.disk.make_directory(saved)
        origins = plan.origins
        for span in plan.spans:
            pieces = read_range(paths.locate(origins.get(span.path, span.path)), span.at, span.length)
            written.add(saved / span.name, pieces, span.length, None)


class _Written:
    """New files, which are made durable in groups; `finish` makes the last ones durable."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._open: list[int] = []

    def add(self, path: Path, pieces: Iterable[bytes], size: int, like: os.stat_result | None) -> str:
        """Write a new file: the content, then a hole up to `size`; return the fingerprint of its bytes."""
        # A created file is mostly a hole: use the hash that counts zeros instead of reading them.
        running = RunningFingerprint("runs:" if like is not None else "sha256:")
        at, disk = 0, self.disk
        descriptor = disk.open_new(path)
        self._open.append(descriptor)
        for piece in pieces:
            running.update(piece)
            if piece.count(0) != len(piece):
                disk.write_at(descriptor, piece, at)
            at += len(piece)
        disk.truncate(descriptor, size)
        running.update(size - at)
        if like is not None:
            _copy_metadata(disk, path, like, times=True)
        if len(self._open) >= _GROUP:
            self.finish()
        return running.text

    def finish(self) -> None:
        self.disk.fsync_all(self._open)
        self.close()

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())


def _like(step: Create | MakeDirectory, paths: PlanPaths) -> os.stat_result:
    if step.like is not None:
        return paths.locate(step.like).lstat()
    # The nearest directory that exists now: the plan itself creates the others.
    return existing(paths.locate(str(PurePosixPath(step.path))).parent).stat()


def _copy_metadata(disk: Disk, path: Path, like: os.stat_result, *, times: bool) -> None:
    """Copy owner, mode and times of the neighbour `like`; without root, the file keeps this user as its owner."""
    status = path.lstat()
    if (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):
            disk.set_owner(path, like.st_uid, like.st_gid)
    mode = stat.S_IMODE(like.st_mode)
    if stat.S_ISREG(status.st_mode):
        mode &= 0o666
    disk.set_mode(path, mode)
    if times and stat.S_ISREG(like.st_mode):
        disk.set_times(path, like.st_atime_ns, like.st_mtime_ns)
