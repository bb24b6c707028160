"""All new bytes of a plan, complete and fsynced in the journal's folders before the store is touched.

A new file is then one rename, a lazily made content needs no second making after a crash, and a source that fails or a
disk that fills up does so while nothing is changed.
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
from rmqstore.repair.plan.content import Content, RunHash, chunks, new_fingerprint
from rmqstore.repair.plan.fingerprints import read_range
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.steps import Create, Extend, MakeDirectory, Overwrite


def stage(plan: Plan, ground: PlanPaths, folder: JournalFolder) -> None:
    """Write all contents, saved spans and plan.json; when it returns all of it is durable.

    Errors: OSError, and whatever a lazy content raises; the store is as it was.
    """
    disk = folder.disk
    staged: dict[int, Staged] = {}
    for number, step in enumerate(plan.steps):
        target = folder.staged(number)
        if isinstance(step, Create):
            staged[number] = write_content(disk, target, step.content, step.size, _like(step, ground))
        elif isinstance(step, Overwrite | Extend) and is_staged(step):
            target = folder.path / NEW / f"{number:06}"
            staged[number] = write_content(disk, target, step.content, step.content.size, None)
        elif isinstance(step, MakeDirectory):
            disk.make_directory(target)
            _dress(disk, target, _like(step, ground), times=False)
    if plan.spans:
        saved = folder.path / LOST_FOUND
        disk.make_directory(saved)
        origins = plan.origins
        for span in plan.spans:
            pieces = read_range(ground.locate(origins.get(span.path, span.path)), span.at, span.length)
            _write_chunks(disk, saved / span.name, pieces, span.length, None)
        disk.fsync_directory(saved)
    folder.save_plan(plan, staged)
    folder.write(folder.path / UNDO_LOG, b"")
    for home in folder.homes():
        for place in (home / NEW, home / QUARANTINE, home, home.parent, home.parent.parent):
            disk.fsync_directory(place)
    disk.fsync_directory(folder.path)


def write_content(disk: Disk, path: Path, content: Content, size: int, like: os.stat_result | None) -> Staged:
    """Write a new file: the content, then zeros (as a hole) up to `size`."""
    return Staged(path, size, _write_chunks(disk, path, chunks(content), size, like))


def _write_chunks(disk: Disk, path: Path, pieces: Iterable[bytes], size: int, like: os.stat_result | None) -> str:
    # A created file is mostly a hole: its hash counts zeros.
    running = new_fingerprint("runs:" if like is not None else "sha256:")
    at = 0
    descriptor = disk.open_new(path)
    try:
        for piece in pieces:
            running.update(piece)
            if piece.count(0) != len(piece):
                disk.write_at(descriptor, piece, at)
            at += len(piece)
        disk.truncate(descriptor, size)
        if isinstance(running, RunHash):
            running.update(size - at)
        if like is not None:
            _dress(disk, path, like, times=True)
        disk.fsync(descriptor)
    finally:
        os.close(descriptor)
    return f"{'runs' if isinstance(running, RunHash) else 'sha256'}:{running.hexdigest()}"


def _like(step: Create | MakeDirectory, ground: PlanPaths) -> os.stat_result:
    if step.like is not None:
        return ground.locate(step.like).lstat()
    # The nearest directory that is there now: further ones are made by the plan itself.
    return existing(ground.locate(str(PurePosixPath(step.path))).parent).stat()


def _dress(disk: Disk, path: Path, like: os.stat_result, *, times: bool) -> None:
    """Owner, mode and mtime of the neighbour. Only root can give files away: elsewhere they stay with the user."""
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
