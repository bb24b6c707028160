"""apply, undo and resume: the only functions that change existing files of a store.

All new content is staged first. Then, for each batch: append and fsync the before-images, execute the steps, fsync the
files that they touched, mark the batch as done. At any instant, the journal shows which steps are on disk, so that the
repair can be undone or resumed.

Refuses a store that another process uses, and holds its lock while it is changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.documents.journal import PLAN, Journal, State, missing_journal
from rmqstore.documents.journal import find_unfinished as find_unfinished
from rmqstore.documents.journal import last_journal as last_journal
from rmqstore.documents.journal import list_journals as list_journals
from rmqstore.documents.paths import PlanPaths
from rmqstore.documents.plan import Plan
from rmqstore.errors import (
    CouldNotCheck,
    HalfApplied,
    NoSpace,
    NotReadable,
    Refused,
    RmqStoreError,
    StoreIsLive,
)
from rmqstore.files.disk import existing, is_full, read_only, real_path
from rmqstore.files.lock import refuse_locked
from rmqstore.files.users import Snapshot, snapshot
from rmqstore.repair.journal.batches import ApplyWork, probe_all, run_batch, undo_batch, undo_times
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.journal.folder import JournalFolder, Progress, list_folders, new_folder, open_folder
from rmqstore.repair.journal.lock import hold_lock, refuse_in_use, refuse_live, refuse_moving
from rmqstore.repair.journal.staging import check_plan, check_space, stage
from rmqstore.texts import Text, first_few, joined, many


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of apply or resume; `journal` is None if the plan was empty. `roots`: directories that undo needs.

    `for_ever`: files were deleted, which no undo restores.
    """

    journal: Path | None
    steps: int
    roots: tuple[Path, ...] = ()
    for_ever: bool = False


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of undo; `restored` is the number of steps that were undone.

    If it ended a deletion half-way: the paths of the files that are `gone` for ever, and of those that are `kept`.
    """

    store: Path
    restored: int
    gone: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def apply(
    plan: Plan,
    *,
    journal_dir: Path | str | None = None,
    force_digest: str | None = None,
    disk: Disk | None = None,
    progress: Progress | None = None,
    stopped: bool = False,
    roots: Collection[Path | str] = (),
) -> Applied:
    """Execute a plan; everything that `undo` needs is on disk before the first change.

    `roots`: directories outside of the store to which links at its top may lead, beside the data paths of the plan.
    `journal_dir`: directory outside the store for the journal. `force_digest`: the plan's digest, required if the plan
    needs decisions or deletes files for ever. `stopped`: the operator asserts that the broker is stopped, so that
    processes of other users, which cannot be inspected, are ignored.
    Errors: before the first change Refused, StoreIsLive, PlanStale, NoSpace, NotReadable; later HalfApplied. Ctrl-C
    undoes the steps that were executed; files that are deleted for ever stay deleted, and it is HalfApplied.
    """
    disk = disk or Disk()
    _refuse_undecided(plan, force_digest)
    paths = PlanPaths.of(plan, disk, named=[*map(Path, plan.roots), *map(Path, roots)])
    if plan.empty:
        return Applied(None, 0)
    _refuse_unfinished(paths)
    refuse_locked(paths.store)
    places = paths.places(step.path for step in plan.steps)
    seen = snapshot(places)
    refuse_live(paths.store, places, seen, stopped=stopped)
    folder = new_folder(paths, plan, None if journal_dir is None else Path(journal_dir), disk)
    with _ending(folder, for_ever=plan.deletes):
        check_space(plan, paths, folder)
        folder.make(point=not plan.deletes)
        with hold_lock(paths.store, disk, remove=False):
            _discard_other_unstarted(paths.store, folder)
            check_plan(plan, paths)
            stage(plan, paths, folder)
            own = folder.load_plan()
            now = snapshot(places)
            refuse_moving(seen, now)
            refuse_live(paths.store, places, now, stopped=stopped)
            _run_batches(ApplyWork.of(own, paths, folder), progress)
        folder.save(state=State.DONE)
    return Applied(folder.path, len(plan.steps), folder.named, plan.deletes)


def refusal_of(folder: Journal) -> RmqStoreError:
    """Return why a store with this unfinished journal is not changed."""
    if folder.state is State.MISSING:
        return missing_journal(folder.path, folder.store)
    if folder.being_made:
        return folder.refusal() or _import_unfinished(folder)
    return folder.refusal() or Refused(
        Text("the journal {path} is {state}: finish it first", path=folder.path, state=folder.state.value),
        Text("run `{undo}` or `{resume}`", undo=folder.command("undo"), resume=folder.command("resume")),
    )


def _import_unfinished(folder: Journal) -> Refused:
    return Refused(
        Text("{path} is an import that has not changed the store yet", path=folder.path),
        Text("run the same `rmqstore import` again to continue, or `{undo}` to give up", undo=folder.command("undo")),
    )


def _refuse_unfinished(paths: PlanPaths, own: Journal | None = None) -> None:
    """Refuse a store with an unfinished journal, other than `own`. Errors: Refused."""
    for open_one in list_journals(paths.store, paths.named, paths.disk):
        if open_one.unfinished or (open_one.being_made and (own is None or open_one.path != own.path)):
            raise refusal_of(open_one)


def find_made(store: Path, disk: Disk, named: Collection[Path] = ()) -> JournalFolder | None:
    """Return the newest journal of a store that is not undone, or whose plan an interrupted command was making.

    Errors: Refused for one that somebody else can have forged.
    """
    for folder in reversed(list_folders(real_path(store), disk, named)):
        if folder.to_undo:
            folder.refuse_untrusted()
            return folder
    return None


def apply_made(
    begin: Plan,
    make: Callable[[JournalFolder, PlanPaths, Snapshot], Plan],
    *,
    going_on: JournalFolder | None = None,
    disk: Disk | None = None,
    progress: Progress | None = None,
    stopped: bool = False,
    roots: Collection[Path | str] = (),
) -> Applied:
    """Apply a plan that `make` makes in the journal's folder while the lock of the store is held.

    `begin`: see `linked_copy.plan_to_start`. After an interruption, `going_on` is the journal with what was made: if
    its `making_mark` is there, `make` continues.
    Errors: as `apply`, and those of `make`; HalfApplied also for an interruption of `make` that it can continue.
    """
    disk = disk or (going_on.disk if going_on is not None else Disk())
    paths = PlanPaths.of(begin, disk, named=[*map(Path, begin.roots), *map(Path, roots)])
    _refuse_unfinished(paths, going_on)
    refuse_locked(paths.store)
    places = paths.places(step.path for step in begin.steps)
    seen = snapshot(places)
    refuse_live(paths.store, places, seen, stopped=stopped)
    folder = going_on or new_folder(paths, begin, None, disk)
    folder.disk = disk
    for home in folder.homes():
        disk.allow(existing(home.parent.parent))
    with _ending(folder):
        if going_on is None:
            folder.make()
        with hold_lock(paths.store, disk, remove=not folder.record.lock_was_there):
            _discard_other_unstarted(paths.store, folder)
            if not folder.record.staged:
                plan = make(folder, paths, seen)
                check_plan(plan, paths)
                folder.take_plan(plan, paths)
                check_space(plan, paths, folder)
                stage(plan, paths, folder)
                folder.save(staged=True)
            folder.drop_making()
            own = folder.load_plan()
            now = snapshot(places)
            refuse_moving(seen, now)
            refuse_live(paths.store, places, now, stopped=stopped)
            _run_batches(ApplyWork.of(own, paths, folder), progress)
        folder.save(state=State.DONE)
    return Applied(folder.path, len(own.steps), folder.named)


@contextlib.contextmanager
def _ending(folder: JournalFolder, *, for_ever: bool = False) -> Iterator[None]:
    """Say what an error in the block leaves; remove a journal that has changed nothing and cannot be continued."""
    try:
        yield
    except BaseException as error:
        if folder.state is State.PREPARING:
            goes_on = isinstance(error, OSError | NoSpace | NotReadable | CouldNotCheck | KeyboardInterrupt)
            if goes_on and folder.being_made:
                raise _unmade(folder, error) from error
            with contextlib.suppress(OSError, RmqStoreError):
                folder.discard()
                folder.disk.set_times(folder.store, folder.record.store_atime_ns, folder.record.store_mtime_ns)
            if isinstance(error, OSError):
                raise _nothing_written(folder, error) from error
        elif isinstance(error, OSError) or (folder.unfinished and isinstance(error, KeyboardInterrupt)):
            raise _half_applied(folder, "apply", error, for_ever=for_ever) from error
        raise


def _unmade(folder: JournalFolder, error: BaseException) -> HalfApplied:
    said = error.message if isinstance(error, RmqStoreError) else str(error)
    return HalfApplied(
        Text("stopped before the store was changed: {error}", error=said or "interrupted"),
        Text(
            "run the same command again to continue, or `{undo}` to give up",
            undo=folder.command("undo"),
        ),
    )


def resume(
    journal: Path | str,
    *,
    disk: Disk | None = None,
    progress: Progress | None = None,
    stopped: bool = False,
    roots: Collection[Path | str] = (),
) -> Applied:
    """Finish an interrupted apply.

    `roots`: the directories outside of the store that it may change; what the journal says about them is not believed.
    Errors: Refused for other directories, for a journal that somebody else may have written, after an undo has begun,
    or if nothing had been changed yet (this removes the journal); ChangedSince if something else has changed what the
    plan touches; StoreIsLive; HalfApplied.
    """
    folder = open_folder(Path(journal), disk, [Path(root) for root in roots])
    folder.refuse_untrusted()
    state = folder.state
    if state is State.DONE:
        return Applied(folder.path, 0, folder.named, folder.load_plan().deletes)
    _refuse_pruned(folder)
    if state in (State.UNDOING, State.UNDONE):
        raise Refused(
            Text("{path} was undone, completely or in part", path=folder.path),
            Text("run `rmqstore undo {path}`, then repair again", path=shlex.quote(str(folder.path))),
        )
    if folder.being_made:
        raise _import_unfinished(folder)
    if state is State.PREPARING:
        _discard_unstarted(folder)
        raise Refused(
            Text("{path}: no change had been made; the unfinished journal was deleted", path=folder.path),
            Text("run the repair again"),
        )
    plan = folder.load_plan()
    paths = folder.paths_of(plan, folder.disk, "resume")
    try:
        with _locked_store(plan, paths, folder, stopped):
            work = _open_work(plan, paths, folder)
            probe_all(work, for_undo=False)
            left = sum(map(len, work.batches[folder.record.batches_done :]))
            _run_batches(work, progress)
        folder.save(state=State.DONE)
    except OSError as error:
        raise _half_applied(folder, "apply", error, for_ever=plan.deletes) from error
    return Applied(folder.path, left, folder.named, plan.deletes)


def undo(
    journal: Path | str, *, disk: Disk | None = None, stopped: bool = False, roots: Collection[Path | str] = ()
) -> Undone:
    """Undo a complete or interrupted apply: restore bytes, names, owners, modes and times.

    Does nothing for a journal that is already undone. `roots`: as for `resume`.
    A deletion cannot be undone. If it is unfinished, undo ends it: what is left of its files stays.
    Errors: Refused for other directories, for a journal that somebody else may have written, and if a later journal
    must be undone first; ChangedSince if anything that the plan touched has changed since; StoreIsLive; HalfApplied if
    undo itself is interrupted (it can be run again).
    """
    folder = open_folder(Path(journal), disk, [Path(root) for root in roots])
    folder.refuse_untrusted()
    _refuse_pruned(folder)
    if folder.state is State.UNDONE:
        with contextlib.suppress(OSError):
            folder.drop_staged()
        return Undone(folder.store, 0)
    if folder.state is State.PREPARING:
        _discard_unstarted(folder)
        return Undone(folder.store, 0)
    plan = folder.load_plan()
    if plan.deletes:
        return _end_deletion(plan, folder, stopped)
    _refuse_undone_later(folder)
    paths = folder.paths_of(plan, folder.disk, "undo")
    try:
        with _locked_store(plan, paths, folder, stopped):
            restored = _undo_batches(_open_work(plan, paths, folder))
        folder.save(state=State.UNDONE)
    except OSError as error:
        raise _half_applied(folder, "undo", error) from error
    record = folder.record
    with contextlib.suppress(OSError):  # creating and removing `lock` has changed the store directory's mtime
        folder.disk.set_times(paths.store, record.store_atime_ns, record.store_mtime_ns)
        folder.drop_staged()
    return Undone(folder.store, restored)


def _refuse_undone_later(folder: JournalFolder) -> None:
    """Refuse to undo a repair before those that came after it. Errors: Refused."""
    later = [other for other in list_folders(folder.store, folder.disk) if other.name > folder.name and other.to_undo]
    for other in later:
        if other.deleted:
            raise Refused(
                Text("{later} has deleted files for ever after {path}", later=other.path, path=folder.path),
                Text("what came before a deletion cannot be undone: the log would have a gap"),
            )
    if later:
        raise Refused(
            Text("{later} is newer than {path}", later=later[-1].path, path=folder.path),
            Text("run `rmqstore undo {later}` first", later=shlex.quote(str(later[-1].path))),
        )


def _end_deletion(plan: Plan, folder: JournalFolder, stopped: bool) -> Undone:
    """End a deletion: keep the files that are left of it.

    Errors: Refused, with the names of the files, if it is complete; StoreIsLive; HalfApplied.
    """
    if folder.state is State.DONE:
        raise _gone_for_ever(folder, plan)
    paths = folder.paths_of(plan, folder.disk, "undo")
    try:
        with _locked_store(plan, paths, folder, stopped):
            there = [paths.status(paths.locate(step.path)) is not None for step in plan.steps]
            kept = tuple(number for number, is_there in enumerate(there) if is_there)
            if len(kept) == len(plan.steps):
                folder.save(state=State.UNDONE)
            else:
                folder.point_if_there_is_room()
                folder.save(state=State.DONE, kept=kept)
    except OSError as error:
        raise _half_applied(folder, "undo", error) from error
    gone = tuple(step.path for step, is_there in zip(plan.steps, there, strict=True) if not is_there)
    return Undone(folder.store, 0, gone, tuple(plan.steps[number].path for number in kept))


def _gone_for_ever(folder: JournalFolder, plan: Plan) -> Refused:
    gone = folder.deleted_of(plan)
    return Refused(
        Text(
            "{path} deleted {files} for ever, which cannot be undone: {names}",
            path=folder.path,
            files=many(len(gone), "file"),
            names=first_few(gone, _NAMED),
        ),
        Text("a backup or a replica may still have their messages; {path} has the whole list", path=folder.path / PLAN),
    )


_NAMED = 20
"""Files that an error names."""


def _refuse_pruned(folder: JournalFolder) -> None:
    if folder.state is State.PRUNING:
        raise Refused(
            Text("{path} was being removed and can no longer be undone", path=folder.path),
            Text("run `rmqstore journals --prune`"),
        )


def _run_batches(work: ApplyWork, progress: Progress | None) -> None:
    """Run the batches that are not done. Once the state APPLYING is saved, any error means HalfApplied."""
    folder, batches = work.folder, len(work.batches)
    try:
        if folder.state is State.PREPARING:
            folder.save(state=State.APPLYING, batches=batches)
        for number in range(folder.record.batches_done, batches):
            run_batch(work, number)
            folder.save(batches_done=number + 1)
            folder.point_if_there_is_room()
            if progress is not None:
                progress(number + 1, batches)
        if not folder.point_if_there_is_room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.in_store))
    except (OSError, RmqStoreError) as error:
        if folder.state is State.PREPARING:
            raise
        raise _half_applied(folder, "apply", error, for_ever=work.plan.deletes) from error
    except KeyboardInterrupt as error:
        if work.plan.deletes and folder.state is not State.PREPARING:
            raise _half_applied(folder, "apply", error, for_ever=True) from error
        if folder.state is not State.PREPARING:
            _undo_batches(work)
            folder.save(state=State.UNDONE)
        raise


def _undo_batches(work: ApplyWork) -> int:
    """Undo all batches that have begun; return the number of their steps."""
    folder = work.folder
    work.log.refresh()
    batches = probe_all(work, for_undo=True)
    try:
        # Save after every batch: once a file has its old name back, an interrupted undo must not probe it again.
        folder.save(state=State.UNDOING, batches_done=batches - 1)
        for number in reversed(range(batches)):
            undo_batch(work, number)
            folder.save(batches_done=number - 1)
        undo_times(work)
    except (OSError, RmqStoreError, KeyboardInterrupt) as error:
        raise _half_applied(folder, "undo", error) from error
    return sum(len(batch.metas) for batch in work.log.batches[:batches])


@contextlib.contextmanager
def _locked_store(plan: Plan, paths: PlanPaths, folder: JournalFolder, stopped: bool) -> Iterator[None]:
    """Ensure that the store is not in use, and hold its lock, for resume and undo."""
    refuse_in_use(paths.store, paths.places(step.path for step in plan.steps), stopped=stopped)
    with hold_lock(paths.store, folder.disk, remove=not folder.record.lock_was_there):
        yield


def _open_work(plan: Plan, paths: PlanPaths, folder: JournalFolder) -> ApplyWork:
    work = ApplyWork.of(plan, paths, folder)
    if len(work.log.batches) < folder.record.batches_done:
        raise CouldNotCheck(
            Text("{path} is damaged after byte {stop}: nothing was changed", path=work.log.path, stop=work.log.stop),
            Text("restore the journal from a backup"),
        )
    return work


def _refuse_undecided(plan: Plan, force_digest: str | None) -> None:
    if force_digest is None and not plan.decisions and not plan.deletes:
        return
    digest = plan.digest
    if force_digest is None:
        decisions = plan.decisions or [Text("it deletes files for ever")]
        raise Refused(
            Text("this plan needs a decision: {decisions}", decisions=joined(decisions, "; ")),
            Text("to accept it, add --force {digest}", digest=digest),
        )
    if force_digest != digest:
        raise Refused(
            Text(
                "--force {force_digest} names another plan; the digest of this one is {digest}",
                force_digest=force_digest,
                digest=digest,
            )
        )


def _discard_other_unstarted(store: Path, own: JournalFolder) -> None:
    """Remove the journals of killed applies that had changed nothing; the lock is held, so none of them goes on.

    An apply that was refused because of our lock removes its own at the same time.
    """
    for folder in list_folders(store, own.disk):
        if folder.state is State.PREPARING and folder.name != own.name:
            try:
                folder.discard()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise


def _discard_unstarted(folder: JournalFolder) -> None:
    record = folder.record
    refuse_locked(folder.store)
    with hold_lock(folder.store, folder.disk, remove=not record.lock_was_there):
        folder.discard()
    if record.store_mtime_ns:
        folder.disk.set_times(folder.store, record.store_atime_ns, record.store_mtime_ns)


def _nothing_written(folder: JournalFolder, error: OSError) -> RmqStoreError:
    if isinstance(error, FileNotFoundError) and not folder.path.exists():
        return StoreIsLive(
            Text("{store}: another rmqstore process has started to change it", store=folder.store),
            Text("wait until it has finished, then try again"),
        )
    if is_full(error):
        return NoSpace(Text("no space for the journal: {error}", error=error))
    if error.errno == errno.EROFS:
        place = Path(os.fsdecode(error.filename)) if error.filename else folder.store
        return Refused(*read_only(place))
    if isinstance(error, PermissionError):
        return NotReadable(Text("the journal could not be prepared, nothing was changed: {error}", error=error))
    return Refused(
        Text("the journal could not be prepared, nothing was changed: {error}", error=error),
        Text("fix this, then run the command again"),
    )


def _half_applied(folder: JournalFolder, what: str, error: BaseException, *, for_ever: bool = False) -> HalfApplied:
    undo = folder.command("undo")
    if for_ever:
        advice = Text(
            "run `{resume}` to delete the rest, or `{undo}` to keep it: what is gone stays gone",
            resume=folder.command("resume"),
            undo=undo,
        )
    elif what == "apply":
        again = folder.command("resume")
        advice = Text("run `{undo}` to restore the store, or `{resume}` to finish", undo=undo, resume=again)
    else:
        advice = Text("run `{undo}` again: it continues where it stopped", undo=undo)
    return HalfApplied(
        Text(
            "{what} stopped half-way, its journal {path} is intact: {error}",
            what=what,
            path=folder.path,
            error=error or "interrupted",
        ),
        advice,
    )
