"""Is somebody using this store? Asked before the first write; and the lock that is held while it is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmqstore.errors import StoreIsLive
from rmqstore.files.in_use.lock import LOCK_NAME, refuse_locked, take_lock
from rmqstore.files.in_use.users import Snapshot, find_users, snapshot
from rmqstore.repair.journal.disk import Disk

__all__ = ["hold_lock", "refuse_in_use", "refuse_live", "refuse_locked", "refuse_moving", "snapshot"]

OPTION = "--broker-is-stopped"
_NAMED = 3


@contextlib.contextmanager
def hold_lock(store: Path, disk: Disk, *, remove: bool) -> Iterator[None]:
    """Hold the store's lock as the broker would; a `lock` file that was not there is removed again.

    `remove`: also remove one that is there (it was left by an apply that was killed).
    Errors: StoreIsLive when a process holds it, this one included.
    """
    path = store / LOCK_NAME
    made = False

    def open_file(path: Path) -> int:
        nonlocal made
        try:
            return disk.open_existing(path)
        except FileNotFoundError:
            descriptor = disk.open_new(path)
            made = True
            # Should this process be killed, the file left behind must not keep out a broker that is not root.
            owner = store.stat()
            with contextlib.suppress(PermissionError):
                disk.set_owner(path, owner.st_uid, owner.st_gid)
            disk.set_mode(path, 0o644)
            return descriptor

    try:
        held = take_lock(path, open_file)
    except StoreIsLive:
        raise
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                disk.unlink(path)
        raise
    try:
        try:
            yield
        except BaseException:
            if remove or made:
                with contextlib.suppress(OSError):
                    disk.unlink(path)
            raise
        if remove or made:
            disk.unlink(path)
    finally:
        held.release()


def refuse_moving(before: Snapshot, after: Snapshot) -> None:
    """Errors: StoreIsLive when a file appeared, vanished, or changed its size or mtime between two snapshots."""
    if before != after:
        moved = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        raise StoreIsLive(f"{moved[0]} changed during the check ({len(moved)} in all)")


def refuse_live(store: Path, places: Sequence[Path], files: Snapshot, *, stopped: bool = False) -> None:
    """Errors: StoreIsLive when another process writes to a file of the store or has one mapped.

    Also when processes of other users, whose files this one may not see, could do so; unless the operator says that
    the broker is `stopped`.
    """
    users = find_users(places, files)
    if users.seen:
        raise StoreIsLive(f"{store}: {users.seen[0]}")
    if users.hidden and not stopped:
        named = ", ".join(map(str, users.hidden[:_NAMED]))
        more = len(users.hidden) - _NAMED
        raise StoreIsLive(
            f"{store}: cannot tell whether these processes of other users write to it: {named}"
            + (f" and {more} more" if more > 0 else ""),
            f"run as root; or make sure that the broker is stopped, and add {OPTION}",
        )


def refuse_in_use(store: Path, places: Sequence[Path], *, stopped: bool = False) -> None:
    """What an apply asks before it reads anything. Errors: StoreIsLive."""
    refuse_locked(store)
    refuse_live(store, places, snapshot(places), stopped=stopped)
