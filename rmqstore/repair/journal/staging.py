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
from rmqstore.repair.plan.content import Content, Fingerprint, chunks
from rmqstore.repair.plan.fingerprints import read_range
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.steps import Create, Extend, MakeDirectory, Overwrite


def stage(plan: Plan, paths: PlanPaths, folder: JournalFolder) -> None:
    """Write all contents, saved spans and plan.json; everything is durable on return.

    Errors: OSError, and whatever lazy content raises; the store is unchanged then.
    """
    disk = folder.disk
    staged: dict[int, Staged] = {}
    for number, step in enumerate(plan.steps):
        target = folder.staged(number)
        if isinstance(step, Create):
            staged[number] = _write_content(disk, target, step.content, step.size, _like(step, paths))
        elif isinstance(step, Overwrite | Extend) and is_staged(step):
            target = folder.path / NEW / f"{number:06}"
            staged[number] = _write_content(disk, target, step.content, step.content.size, None)
        elif isinstance(step, MakeDirectory):
            disk.make_directory(target)
            _copy_metadata(disk, target, _like(step, paths), times=False)
    if plan.spans:
        saved = folder.path / LOST_FOUND
        disk.make_directory(saved)
        origins = plan.origins
        for span in plan.spans:
            pieces = read_range(paths.locate(origins.get(span.path, span.path)), span.at, span.length)
            _write_chunks(disk, saved / span.name, pieces, span.length, None)
        disk.fsync_directory(saved)
    folder.save_plan(plan, staged)
    folder.write(folder.path / UNDO_LOG, b"")
    for home in folder.homes():
        for place in (home / NEW, home / QUARANTINE, home, home.parent, home.parent.parent):
            disk.fsync_directory(place)
    disk.fsync_directory(folder.path)


def _write_content(disk: Disk, path: Path, content: Content, size: int, like: os.stat_result | None) -> Staged:
    """Write a new file: the content, then a hole up to `size`."""
    return Staged(path, size, _write_chunks(disk, path, chunks(content), size, like))


def _write_chunks(disk: Disk, path: Path, pieces: Iterable[bytes], size: int, like: os.stat_result | None) -> str:
    # A created file is mostly a hole: use the hash that counts zeros instead of reading them.
    running = Fingerprint("runs:" if like is not None else "sha256:")
    at = 0
    descriptor = disk.open_new(path)
    try:
        for piece in pieces:
            running.update(piece)
            if piece.count(0) != len(piece):
                disk.write_at(descriptor, piece, at)
            at += len(piece)
        disk.truncate(descriptor, size)
        running.update(size - at)
        if like is not None:
            _copy_metadata(disk, path, like, times=True)
        disk.fsync(descriptor)
    finally:
        os.close(descriptor)
    return running.text


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
