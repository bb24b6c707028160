"""Removes journals: their repairs can no longer be undone."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from rmqstore.documents.journal import UNFINISHED, Journal, State
from rmqstore.errors import Refused
from rmqstore.files.lock import refuse_locked
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.journal.folder import JournalFolder, list_folders, open_folder
from rmqstore.repair.journal.lock import hold_lock
from rmqstore.texts import Text


def prune(journal: Path | str, *, disk: Disk | None = None, roots: Collection[Path | str] = ()) -> None:
    """Delete a journal with its quarantine and its lost+found; its repair can no longer be undone.

    An interrupted prune leaves the journal marked as PRUNING; it can be pruned again.
    Errors: Refused for an unfinished journal, and for one that an older journal needs for its undo; StoreIsLive.
    """
    folder = open_folder(Path(journal), disk, [Path(root) for root in roots])
    folder.refuse_untrusted()
    state = folder.state
    if state in UNFINISHED:
        raise Refused(
            Text("{path} is unfinished ({state})", path=folder.path, state=state),
            Text("run `rmqstore undo` or `rmqstore resume` on it first"),
        )
    older = [
        other.path for other in list_folders(folder.store, folder.disk) if other.name < folder.name and other.to_undo
    ]
    if older and state is State.DONE:
        raise Refused(
            Text("undoing the older repair {older} needs {path}", older=older[0], path=folder.path),
            Text("prune the older one first"),
        )
    with _locked_as_it_was(folder):
        if state is not State.PREPARING:
            folder.save(state=State.PRUNING)
        folder.discard(quarantine_too=state is not State.PREPARING)


def prune_missing(journal: Journal) -> None:
    """Delete what a store has of a missing journal: its pointer and its quarantine. Nothing else is touched.

    Errors: Refused for a journal that is not missing; StoreIsLive.
    """
    if journal.state is not State.MISSING:
        raise Refused(Text("{path} is not missing", path=journal.path), Text("leave --missing out"))
    disk = Disk()
    disk.allow(journal.store)
    folder = JournalFolder.of(journal, disk)
    with _locked_as_it_was(folder):
        folder.discard_pointer()


@contextlib.contextmanager
def _locked_as_it_was(folder: JournalFolder) -> Iterator[None]:
    """Hold the lock of a journal's store, and then restore the times of its directory. Errors: StoreIsLive."""
    status = folder.store.stat()
    refuse_locked(folder.store)
    with hold_lock(folder.store, folder.disk, remove=False):
        yield
    folder.disk.set_times(folder.store, status.st_atime_ns, status.st_mtime_ns)
