"""seed: make a new replica from a live master, in one step.

The master's store is copied into a temporary repository beside the new store, from which the new store is built.
Complete files of the log are moved and not copied again, so that the disk needs room for one copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqstore.append.disk import remove_tree
from rmqstore.backup.backup import BackupOptions, back_up
from rmqstore.backup.repository import Repository
from rmqstore.backup.restore import CONTROLLER, MEMBER, SLAVE, RestoredStore, RestoreOptions, restore
from rmqstore.backup.storage.local import LocalStorage
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.texts import Text

ROLES = (SLAVE, CONTROLLER, MEMBER)
_NAME = "seed"


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """What the new replica will be, and how it is made: bytes per second to read (0: no limit), processes.

    `self_id`: dLegerSelfId of the new member of a DLedger group.
    """

    role: str
    self_id: str = ""
    max_rate: int = 0
    broker: str = ""
    jobs: int | None = None
    progress: Callable[[int], None] | None = None


def seed(store: Store, target: Path, options: SeedOptions) -> RestoredStore:
    """Build a replica of a store, which may be in use, at `target`.

    Errors: those of `back_up` and `restore`; UsageError for a new member without an id of its own.
    """
    if store.dledger is not None and options.role == MEMBER and options.self_id in ("", store.dledger.self_id):
        raise UsageError(
            Text("a new member of a DLedger group needs its own id"),
            Text("give its dLegerSelfId with --id, such as n2"),
        )
    home = target.absolute().with_name(f".{target.name}.seeding")
    remove_tree(home)
    try:
        folder = Repository.open_or_create(LocalStorage(home)).of(_NAME)
        made = back_up(store, folder, BackupOptions(options.max_rate, progress=options.progress))
        how = RestoreOptions(
            role=options.role, self_id=options.self_id, broker=options.broker, jobs=options.jobs, take=True
        )
        return restore(folder, made.manifest, target, how)
    finally:
        remove_tree(home)
