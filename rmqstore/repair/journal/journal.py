"""apply, undo, resume: the only way in which an existing file of a store is changed.

Everything new is staged first. Then batch after batch: before-images appended and fsynced, the steps, fsync of what
they touched, a done mark. At any instant the state on disk can be told from the journal: go back or go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.errors import (
    CouldNotCheck,
    HalfApplied,
    NoSpace,
    NotAStore,
    NotReadable,
    Refused,
    RmqStoreError,
    StoreIsLive,
)
from rmqstore.files.disk.disk_errors import is_full
from rmqstore.files.disk.paths import real_path
from rmqstore.repair.journal import liveness
from rmqstore.repair.journal.batches import Work, probe_all, run_batch, undo_batch, undo_times
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.journal.folder import (
    UNFINISHED,
    JournalFolder,
    JournalInfo,
    Progress,
    State,
    list_folders,
    new_folder,
    open_folder,
)
from rmqstore.repair.journal.plan_paths import PlanPaths
from rmqstore.repair.journal.preflight import check_plan, check_space
from rmqstore.repair.journal.staging import stage
from rmqstore.repair.plan.plan import Plan

_NOTHING_TO_UNDO = (State.UNDONE, State.PREPARING, State.PRUNING)


@dataclass(frozen=True, slots=True)
class Applied:
    """What apply or resume did. `journal` is None when the plan was empty."""

    journal: Path | None
    steps: int


@dataclass(frozen=True, slots=True)
class Undone:
    """What undo did: how many steps it took back."""

    store: Path
    restored: int


def list_journals(store: Path) -> list[JournalInfo]:
    """All journals of a store, oldest first. Reads only."""
    return [folder.info() for folder in list_folders(real_path(store), Disk())]


def last_journal(store: Path) -> JournalInfo:
    """The newest journal of a store that `undo` would take back.

    Errors: NotAStore if there is none.
    """
    for info in reversed(list_journals(store)):
        if info.state not in _NOTHING_TO_UNDO:
            return info
    raise NotAStore(f"{store} has no repair to undo", "`rmqstore journals` lists the journals of a store")


def read_journal(path: Path) -> JournalFolder:
    """A journal, to read it: `load_plan` gives what it did, LOST_FOUND and QUARANTINE are folders in it.

    Errors: NotAStore, Refused as `open_folder`.
    """
    return open_folder(path, Disk())


def find_unfinished(store: Path) -> list[JournalInfo]:
    """Journals whose apply or undo stopped in the middle (there is one at most), or that are missing. Reads only."""
    return [info for info in list_journals(store) if info.unfinished]


def apply(
    plan: Plan,
    *,
    journal_dir: Path | str | None = None,
    force_digest: str | None = None,
    disk: Disk | None = None,
    progress: Progress | None = None,
    stopped: bool = False,
) -> Applied:
    """Carry out a plan. The way back, `undo`, is on disk before the first change.

    `journal_dir`: directory for the journal outside of the store. `force_digest`: needed when the plan has brakes.
    `stopped`: the operator says that the broker is stopped, so processes that cannot be looked into do not matter.
    Errors: before the first change Refused, StoreIsLive, PlanStale, NoSpace, NotReadable; later HalfApplied. Ctrl-C
    in the middle takes back what was done.
    """
    disk = disk or Disk()
    _refuse_braked(plan, force_digest)
    ground = PlanPaths.of(plan)
    if plan.empty:
        return Applied(None, 0)
    for info in find_unfinished(ground.store):
        raise Refused(
            f"the journal {info.path} is {info.state.value}: finish it first",
            f"run `rmqstore undo {info.path}` or `rmqstore resume {info.path}`",
        )
    liveness.refuse_locked(ground.store)
    places = ground.places(step.path for step in plan.steps)
    seen = liveness.snapshot(places)
    liveness.refuse_live(ground.store, places, seen, stopped=stopped)
    folder, outside = new_folder(ground, plan, None if journal_dir is None else Path(journal_dir), disk)
    try:
        check_space(plan, ground, folder)
        folder.make(outside)
        with liveness.hold_lock(ground.store, disk, remove=False):
            _drop_unbegun(ground.store, folder)
            check_plan(plan, ground)
            stage(plan, ground, folder)
            own = folder.load_plan()
            now = liveness.snapshot(places)
            liveness.refuse_moving(seen, now)
            liveness.refuse_live(ground.store, places, now, stopped=stopped)
            _go_on(Work.of(own, ground, folder), progress)
        folder.save(state=State.DONE)
    except BaseException as error:
        if folder.record.state is State.PREPARING:
            with contextlib.suppress(OSError, RmqStoreError):
                folder.discard()
                disk.set_times(ground.store, folder.record.store_atime_ns, folder.record.store_mtime_ns)
            if isinstance(error, OSError):
                raise _nothing_written(folder, error) from error
        elif isinstance(error, OSError):
            raise _half_applied(folder, "apply", error) from error
        raise
    return Applied(folder.path, len(plan.steps))


def resume(
    journal: Path | str, *, disk: Disk | None = None, progress: Progress | None = None, stopped: bool = False
) -> Applied:
    """Go on with an apply that stopped in the middle.

    Errors: ChangedSince when something else changed what is touched; Refused when an undo was begun, or when
    nothing had been changed yet (the journal is removed then); StoreIsLive; HalfApplied.
    """
    folder = open_folder(Path(journal), disk or Disk())
    state = folder.record.state
    if state is State.DONE:
        return Applied(folder.path, 0)
    _refuse_pruned(folder)
    if state in (State.UNDOING, State.UNDONE):
        raise Refused(
            f"{folder.path} was undone, completely or in part", f"run `rmqstore undo {folder.path}`, then repair again"
        )
    if state is State.PREPARING:
        _discard_unbegun(folder)
        raise Refused(f"{folder.path} had changed nothing yet; it is removed", "run the repair again")
    plan = folder.load_plan()
    ground = PlanPaths.of(plan, folder.store)
    try:
        with _held(plan, ground, folder, stopped):
            work = _open_work(plan, ground, folder)
            probe_all(work, for_undo=False)
            left = sum(map(len, work.batches[folder.record.batches_done :]))
            _go_on(work, progress)
        folder.save(state=State.DONE)
    except OSError as error:
        raise _half_applied(folder, "apply", error) from error
    return Applied(folder.path, left)


def undo(journal: Path | str, *, disk: Disk | None = None, stopped: bool = False) -> Undone:
    """Take back an apply, whole or half done: bytes, names, owners, modes and times are as before.

    A journal that is undone already is left alone. Errors: ChangedSince when anything touched has changed since;
    Refused when a later journal must be undone first; StoreIsLive; HalfApplied when it stops in the middle (it can be
    run again).
    """
    folder = open_folder(Path(journal), disk or Disk())
    _refuse_pruned(folder)
    if folder.record.state is State.UNDONE:
        with contextlib.suppress(OSError):
            folder.drop_staged()
        return Undone(folder.store, 0)
    if folder.record.state is State.PREPARING:
        _discard_unbegun(folder)
        return Undone(folder.store, 0)
    later = [
        other.path
        for other in list_folders(folder.store, folder.disk)
        if other.name > folder.name and other.record.state not in _NOTHING_TO_UNDO
    ]
    if later:
        raise Refused(f"{later[-1]} is newer than {folder.path}", f"run `rmqstore undo {later[-1]}` first")
    plan = folder.load_plan()
    ground = PlanPaths.of(plan, folder.store)
    try:
        with _held(plan, ground, folder, stopped):
            restored = _take_back(_open_work(plan, ground, folder))
        folder.save(state=State.UNDONE)
    except OSError as error:
        raise _half_applied(folder, "undo", error) from error
    record = folder.record
    with contextlib.suppress(OSError):  # making and removing `lock` has moved the store's own mtime
        folder.disk.set_times(ground.store, record.store_atime_ns, record.store_mtime_ns)
        folder.drop_staged()
    return Undone(folder.store, restored)


def prune(journal: Path | str, *, disk: Disk | None = None) -> None:
    """Remove a journal for good, with its quarantine and its lost+found; what it did can never be undone again.

    After kill -9 in the middle the journal is marked, and can be pruned again.
    Errors: Refused for an unfinished journal, and for one that an older one needs for its undo; StoreIsLive.
    """
    folder = open_folder(Path(journal), disk or Disk())
    state = folder.record.state
    if state in UNFINISHED:
        raise Refused(f"{folder.path} is unfinished ({state})", "run `rmqstore undo` or `rmqstore resume` on it first")
    older = [
        other.path
        for other in list_folders(folder.store, folder.disk)
        if other.name < folder.name and other.record.state not in _NOTHING_TO_UNDO
    ]
    if older and state is State.DONE:
        raise Refused(f"{older[0]} is older than {folder.path}, and needs it for its undo", "prune the older one first")
    status = folder.store.stat()
    liveness.refuse_locked(folder.store)
    with liveness.hold_lock(folder.store, folder.disk, remove=False):
        if state is not State.PREPARING:
            folder.save(state=State.PRUNING)
        folder.discard(quarantine_too=state is not State.PREPARING)
    folder.disk.set_times(folder.store, status.st_atime_ns, status.st_mtime_ns)


def _refuse_pruned(folder: JournalFolder) -> None:
    if folder.record.state is State.PRUNING:
        raise Refused(
            f"{folder.path} was being removed: nothing can be undone with it", "run `rmqstore journals --prune`"
        )


def _go_on(work: Work, progress: Progress | None) -> None:
    """Run the batches that are not done; the first save of the state is the point of no silent return."""
    folder, batches = work.folder, len(work.batches)
    try:
        if folder.record.state is State.PREPARING:
            folder.save(state=State.APPLYING, batches=batches)
        for number in range(folder.record.batches_done, batches):
            run_batch(work, number)
            folder.save(batches_done=number + 1)
            if progress is not None:
                progress(number + 1, batches)
    except (OSError, RmqStoreError) as error:
        if folder.record.state is State.PREPARING:
            raise
        raise _half_applied(folder, "apply", error) from error
    except KeyboardInterrupt:
        if folder.record.state is not State.PREPARING:
            _take_back(work)
            folder.save(state=State.UNDONE)
        raise


def _take_back(work: Work) -> int:
    folder = work.folder
    work.log.refresh()
    batches = probe_all(work, for_undo=True)
    try:
        # Batch after batch, as apply: once a file has its old name again, later steps must not look for it there.
        folder.save(state=State.UNDOING, batches_done=batches - 1)
        for number in reversed(range(batches)):
            undo_batch(work, number)
            folder.save(batches_done=number - 1)
        undo_times(work)
    except (OSError, RmqStoreError, KeyboardInterrupt) as error:
        raise _half_applied(folder, "undo", error) from error
    return sum(len(batch.metas) for batch in work.log.batches[:batches])


@contextlib.contextmanager
def _held(plan: Plan, ground: PlanPaths, folder: JournalFolder, stopped: bool) -> Iterator[None]:
    """The store is not in use, and its lock is held, for resume and undo."""
    liveness.refuse_in_use(ground.store, ground.places(step.path for step in plan.steps), stopped=stopped)
    with liveness.hold_lock(ground.store, folder.disk, remove=not folder.record.lock_was_there):
        yield


def _open_work(plan: Plan, ground: PlanPaths, folder: JournalFolder) -> Work:
    work = Work.of(plan, ground, folder)
    if len(work.log.batches) < folder.record.batches_done:
        raise CouldNotCheck(
            f"{work.log.path} is damaged behind byte {work.log.stop}: nothing was changed",
            "restore the journal from a copy",
        )
    return work


def _refuse_braked(plan: Plan, force_digest: str | None) -> None:
    if force_digest is None and not plan.brakes:
        return
    digest = plan.digest
    if force_digest is None:
        raise Refused(f"this plan needs a decision: {'; '.join(plan.brakes)}", f"read it, then add --force {digest}")
    if force_digest != digest:
        raise Refused(f"--force {force_digest} names another plan; this one is {digest}")


def _drop_unbegun(store: Path, own: JournalFolder) -> None:
    """Remove what killed applies left that had changed nothing yet; the lock is held, so none of them runs."""
    for folder in list_folders(store, own.disk):
        if folder.record.state is State.PREPARING and folder.name != own.name:
            folder.discard()


def _discard_unbegun(folder: JournalFolder) -> None:
    record = folder.record
    liveness.refuse_locked(folder.store)
    with liveness.hold_lock(folder.store, folder.disk, remove=not record.lock_was_there):
        folder.discard()
    if record.store_mtime_ns:
        folder.disk.set_times(folder.store, record.store_atime_ns, record.store_mtime_ns)


def _nothing_written(folder: JournalFolder, error: OSError) -> RmqStoreError:
    if isinstance(error, FileNotFoundError) and not folder.path.exists():
        return StoreIsLive(
            f"{folder.store}: another rmqstore began to change it at the same time",
            "wait until it has ended, then try again",
        )
    if is_full(error):
        return NoSpace(f"no space for the journal: {error}")
    if isinstance(error, PermissionError):
        return NotReadable(f"the journal could not be prepared, nothing was changed: {error}")
    return Refused(
        f"the journal could not be prepared, nothing was changed: {error}", "correct this, then run the command again"
    )


def _half_applied(folder: JournalFolder, what: str, error: BaseException) -> HalfApplied:
    back, on = f"`rmqstore undo {folder.path}`", f"`rmqstore resume {folder.path}`"
    advice = f"run {back} to go back" + (f", or {on} to go on" if what == "apply" else "; it goes on where it stopped")
    return HalfApplied(
        f"{what} stopped half-way, its journal {folder.path} is intact: {error or 'interrupted'}", advice
    )
