"""A store that is changed is locked, and no other process uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmqstore.errors import StoreIsLive
from rmqstore.files.lock import LOCK_NAME, refuse_locked, take_lock
from rmqstore.files.users import Snapshot, find_users, snapshot
from rmqstore.repair.journal.disk import Disk
from rmqstore.texts import Text, first_few

OPTION = "--broker-is-stopped"


@contextlib.contextmanager
def hold_lock(store: Path, disk: Disk, *, remove: bool) -> Iterator[None]:
    """Hold the store's lock as a broker does, and remove the `lock` file afterwards if it was created here.

    `remove`: remove it even if it existed, because a killed apply left it.
    Errors: StoreIsLive if a process holds the lock, even this one.
    """
    disk.allow(store)
    path = store / LOCK_NAME
    made = False

    def open_file(path: Path) -> int:
        nonlocal made
        try:
            return disk.open_existing(path)
        except FileNotFoundError:
            descriptor = disk.open_new(path)
            made = True
            # If this process is killed, a broker that does not run as root must be able to open the file left behind.
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
    """Refuse a store in which a file appeared, vanished, or changed size or mtime. Errors: StoreIsLive."""
    if before != after:
        moved = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        raise StoreIsLive(Text("{moved} changed during the check ({count} in all)", moved=moved[0], count=len(moved)))


def refuse_live(store: Path, places: Sequence[Path], files: Snapshot, *, stopped: bool = False) -> None:
    """Refuse a store of which another process has a file open for writing, or mapped.

    Processes of other users, whose open files are hidden, count as well, unless the operator asserts that the broker
    is `stopped`. Errors: StoreIsLive.
    """
    users = find_users(places, files)
    if users.seen:
        raise StoreIsLive(f"{store}: {users.seen[0]}")
    if users.hidden and not stopped:
        raise StoreIsLive(
            Text(
                "{store}: cannot tell whether these processes of other users write to it: {named}",
                store=store,
                named=first_few([str(one) for one in users.hidden], 3),
            ),
            Text("run as root; or make sure that the broker is stopped, and add {option}", option=OPTION),
        )


def refuse_in_use(store: Path, places: Sequence[Path], *, stopped: bool = False) -> None:
    """Refuse a store that is locked or in use. Errors: StoreIsLive."""
    refuse_locked(store)
    refuse_live(store, places, snapshot(places), stopped=stopped)
