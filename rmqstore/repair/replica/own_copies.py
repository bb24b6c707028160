"""Uses copies of log files in the store's own log directories as replicas, before a repair moves them away.

Such a copy has a name that is not its offset, the name of a file in another directory, or is in a subdirectory. It is
proved like any other replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.append.scratch import ScratchFolder
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.documents.plan import Plan
from rmqstore.errors import RmqStoreError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import OddKind
from rmqstore.files.store import Store, open_store
from rmqstore.repair.beside.directory import plan_misplaced
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import RecoverOptions, sizes_decisions
from rmqstore.repair.recover import plan_recovery
from rmqstore.repair.store_guard import data_roots
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.repair.replica.replica import Replica
    from rmqstore.repair.replica.sources import HealOptions

_MOST = 32  # copies that are compared with the log


def plan_with_copies(
    store: Store,
    verified: Verified,
    options: RecoverOptions | None = None,
    how: VerifyOptions | None = None,
    *,
    replicas: Sequence[Replica] = (),
    heal_options: HealOptions | None = None,
) -> Plan:
    """Plan the repair of a store that was just examined, with bytes of replicas and of copies of its own log files.

    If other log files have wrong names, nothing can be taken from a copy: such a plan only renames these files.
    Arguments and errors: as `plan_with_replicas` and `plan_recovery`.
    """
    options = options or RecoverOptions()
    folder = ScratchFolder()
    copies = _able(store, verified, folder) if options.wants_log else []
    if not replicas and not copies:
        return plan_recovery(store, verified, options)
    from rmqstore.repair.replica.heal import Healing, plan_healing, plan_with_replicas
    from rmqstore.repair.replica.sources import HealOptions

    heal_options = heal_options or HealOptions()
    if replicas:
        return plan_with_replicas(store, verified, [*replicas, *copies], heal_options, options, how)
    if verified.misplaced is not None and verified.misplaced.store.is_rearranged:
        return _renames(verified.misplaced.store, verified, [copy.name for copy in copies])
    work = Healing(store, verified, copies, heal_options)
    sources = work.sources()
    if not sources.taken:
        return plan_recovery(store, verified, options)
    return plan_healing(work, sources, options, how)


def names_of_copies(store: Store, verified: Verified) -> list[str]:
    """Return the copies, by their paths in the store, that have bytes for damaged places of the log."""
    return [copy.name for copy in _able(store, verified, ScratchFolder())]


def _renames(store: Store, verified: Verified, names: Sequence[str]) -> Plan:
    draft = PlanBuilder(store)
    draft.decisions.extend(sizes_decisions(store, verified.report.findings.listed))
    if not draft.decisions:
        plan_misplaced(draft, verified)
    draft.notes.insert(
        0, Text("run recover again after this plan: it can restore messages from {names}", names=joined(names, " and "))
    )
    return draft.plan(data_roots(store))


def _able(store: Store, verified: Verified, folder: ScratchFolder) -> list[Replica]:
    """Return the copies that are proved, and have good bytes for damaged places."""
    if verified.report.clean or verified.report.live or store.part is not None or store.overlap is not None:
        return []
    found = islice(_copies(store, verified, folder), _MOST)
    return [copy for copy in found if verified.logs.results and _restores(store, verified, copy)]


def _restores(store: Store, verified: Verified, copy: Replica) -> bool:
    from rmqstore.repair.replica.heal import Healing
    from rmqstore.repair.replica.replica import refuse_same
    from rmqstore.repair.replica.sources import HealOptions

    try:
        refuse_same(store, copy)
        return any(taken.good for taken in Healing(store, verified, [copy], HealOptions()).sources().taken)
    except RmqStoreError:
        return False


def _copies(store: Store, verified: Verified, folder: ScratchFolder) -> Iterator[Replica]:
    """Yield each copy as a store of its own: links to the files under their right names."""
    from rmqstore.repair.replica.replica import Replica

    names, numbers = PlanBuilder(store), count()
    for queue, body_offset in store.logs:
        misplaced = verified.misplaced.copies if verified.misplaced is not None else ()
        files = [(c.claim.file.path, c.right_name) for c in misplaced if c.log == queue.name]
        files += [(odd.path, odd.path.name) for odd in queue.odd if odd.kind is OddKind.DUPLICATE]
        folders = [(odd.path, "") for odd in queue.odd if odd.kind is OddKind.DIRECTORY]
        for path, name in (*files, *folders):
            root = folder.make_directory(str(next(numbers)))
            home = _home(store, body_offset, root, folder)
            if name:
                folder.make_directory(str(home.relative_to(folder.path)))
            folder.link(home / name, path.absolute())
            config = BrokerConfig({"mappedFileSizeCommitLog": str(queue.file_size)})
            yield Replica(names.name(path), open_store(root, config), own=True)


def _home(store: Store, body_offset: int, root: Path, folder: ScratchFolder) -> Path:
    """Return the directory of a log in a new store, which gets DLedger's other files: they show what was committed."""
    if not body_offset or store.dledger is None:
        return root / "commitlog"
    own = store.dledger.directory
    group = folder.make_directory(f"{root.name}/{own.name}")
    for name in ("index", "checkpoint"):
        folder.link(group / name, (own / name).absolute())
    return group / "data"
