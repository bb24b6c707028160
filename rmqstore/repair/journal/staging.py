"""What happens before the first change of a store: checks, and all new content in the journal.

The checks: the bytes are what the plan expects, files are writable, and there is space.

All new content of a plan is written to the journal's folders and fsynced. Creating a file is then a single rename, lazy
content need not be produced again after a crash, and a failing source or a full disk is noticed while nothing has
changed yet.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath

from rmqstore.documents.content import Content, Literal, Parts, RunningFingerprint, Zeros, chunks
from rmqstore.documents.journal import LOST_FOUND, NEW, QUARANTINE, UNDO_LOG, Staged
from rmqstore.documents.paths import PlanPaths
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import (
    Create,
    Delete,
    Extend,
    InPlace,
    MakeDirectory,
    MoveIn,
    MoveOut,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Step,
    Truncate,
)
from rmqstore.errors import NoSpace, NotReadable, PlanStale, Refused
from rmqstore.files.beneath import read_range
from rmqstore.files.disk import existing
from rmqstore.files.reading import data_extents
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.repair.journal.disk import OPEN_FILES, Disk
from rmqstore.repair.journal.folder import JournalFolder, Made, free_bytes
from rmqstore.repair.plan.plan_builder import fingerprint_entry, fingerprint_range
from rmqstore.texts import Text, many

_SLACK = 1 << 20
"""Space for the state file, folders and frame headers, bytes."""
_PER_STEP = 4096


def check_plan(plan: Plan, paths: PlanPaths) -> None:
    """Check that everything on disk is as the plan expects.

    Errors: PlanStale, NotReadable (also: not writable), Refused.
    """
    locate = _locator(plan, paths)
    spelled: dict[Path, str] = {}
    for path in {step.path for step in plan.steps} | set(plan.origins.values()):
        place = paths.locate(path)
        if spelled.setdefault(place, path) != path:
            raise Refused(
                Text("{path} and {spelled} are the same file", path=path, spelled=spelled[place]), Text("name it once")
            )
    leaving = {step.path for step in plan.steps if isinstance(step, MoveOut)}
    coming = {step.path for step in plan.steps if isinstance(step, MoveIn)}
    for step in plan.steps:
        place = locate(step.path)
        check_step_on_disk(step, paths, leaving, coming, place)
        if isinstance(step, InPlace):
            status = paths.status(place)
            if status is not None:
                check_links(place, status)
    for span in plan.spans:
        status = paths.status(locate(span.path))
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_size < span.at + span.length:
            raise PlanStale(Text("{path} is shorter than the span {span} to be saved", path=span.path, span=span.name))


def _locator(plan: Plan, paths: PlanPaths) -> Callable[[str], Path]:
    """Return a function that finds the file of a path of the plan before any step: a rename gives it another name."""
    origins = plan.origins
    return lambda path: paths.locate(origins.get(path, path))


def check_step_on_disk(
    step: Step, paths: PlanPaths, leaving: Collection[str], coming: Collection[str], now: Path
) -> None:
    """Check that one step finds what it expects. `leaving`, `coming`: paths that the plan removes and creates.

    `now`: where the file of an in-place step is before a step renames it.
    Errors: PlanStale, NotReadable.
    """
    place = now if isinstance(step, InPlace) else paths.locate(step.path)
    status = paths.status(place)
    try:
        if isinstance(step, MoveIn):
            _check_move_in(step, paths, place, status, leaving, coming)
            return
        if status is None:
            raise PlanStale(Text("{path} no longer exists", path=step.path))
        if isinstance(step, MoveOut | Delete):
            _check_move_out(step, paths, place, status, leaving)
            return
        if not stat.S_ISREG(status.st_mode):
            raise PlanStale(Text("{path} is not a file", path=step.path))
        if not os.access(place, os.W_OK):
            raise NotReadable(Text("no permission to write {place}", place=place))
        size = status.st_size
        if isinstance(step, Overwrite):
            if size < step.at + step.length:
                raise PlanStale(Text("{path} ends at {size}, before the bytes to overwrite", path=step.path, size=size))
        elif size != step.from_size:
            raise PlanStale(
                Text("{path} has {size} bytes, not {from_size}", path=step.path, size=size, from_size=step.from_size)
            )
        if isinstance(step, Overwrite | Truncate):
            refuse_changed(step, fingerprint_range(place, step.at, step.length, step.expect, paths.disk))
    except PermissionError as error:
        raise NotReadable(Text("no permission to read {place}", place=place)) from error


def refuse_changed(step: Overwrite | Truncate, found: str) -> None:
    """Refuse to replace bytes with another fingerprint than the plan expects. Errors: PlanStale."""
    if found != step.expect:
        raise PlanStale(
            Text("{path}: {length} at {at} changed", path=step.path, length=many(step.length, "byte"), at=step.at)
        )


def check_links(place: Path, status: os.stat_result) -> None:
    """Refuse to write into a file that has another name: a backup, or another file of the store. Errors: Refused."""
    if status.st_nlink > 1:
        name = shlex.quote(str(place))
        raise Refused(
            Text(
                "{path} has another name (a hard link), perhaps in a backup, whose content would change too",
                path=place,
            ),
            Text("make it a file of its own: cp -p {name} {name}.own && mv {name}.own {name}", name=name),
        )


def _check_move_in(
    step: MoveIn,
    paths: PlanPaths,
    place: Path,
    status: os.stat_result | None,
    leaving: Collection[str],
    coming: Collection[str],
) -> None:
    if status is not None and step.path not in leaving:
        raise PlanStale(Text("{path} already exists", path=step.path))
    parent = str(PurePosixPath(step.path).parent)
    if parent not in coming:
        if not place.parent.is_dir():
            raise PlanStale(Text("the directory of {path} is missing", path=step.path))
        if not os.access(place.parent, os.W_OK | os.X_OK):
            raise NotReadable(Text("no permission to write {parent}", parent=place.parent))
    like = None if isinstance(step, Rename) else step.like
    if like is not None and paths.status(paths.locate(like)) is None:
        raise PlanStale(Text("{like}, the neighbour of {path}, no longer exists", like=like, path=step.path))


def _check_move_out(
    step: MoveOut | Delete, paths: PlanPaths, place: Path, status: os.stat_result, leaving: Collection[str]
) -> None:
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise NotReadable(Text("no permission to write {parent}", parent=place.parent))
    if isinstance(step, Delete | SetAside) and not stat.S_ISREG(status.st_mode):
        raise PlanStale(Text("{path} is not a file", path=step.path))
    if isinstance(step, RemoveEmptyDirectory):
        if not stat.S_ISDIR(status.st_mode):
            raise PlanStale(Text("{path} is not a directory", path=step.path))
        left = [name for name in paths.disk.list(place) if f"{step.path}/{name}" not in leaving]
        if left:
            raise PlanStale(Text("{path} is not empty: {left}", path=step.path, left=min(left)))
    elif fingerprint_entry(place, step.expect, paths.disk) != step.expect:
        raise PlanStale(Text("{path} has changed", path=step.path))


def journal_bytes(plan: Plan) -> int:
    """Return the space that a journal needs at most, without contents and what they replace."""
    return _SLACK + _PER_STEP * len(plan.steps)


def check_space(plan: Plan, paths: PlanPaths, folder: JournalFolder) -> None:
    """Check the space for the journal, staged files and bytes that steps add to files. Errors: NoSpace."""
    journal_at, locate = existing(folder.path), _locator(plan, paths)
    needs: dict[int, int] = defaultdict(int)
    places: dict[int, Path] = {}

    def need(place: Path, size: int) -> None:
        device = place.stat().st_dev
        places.setdefault(device, place)
        needs[device] += size

    need(journal_at, journal_bytes(plan) + sum(span.length for span in plan.spans))
    for number, step in enumerate(plan.steps):
        if isinstance(step, Overwrite):
            need(journal_at, step.length)
            place = locate(step.path)  # writing into a hole of it takes space too
            need(existing(place), step.length - _data_bytes(paths, place, step.at, step.length))
        elif isinstance(step, Truncate):
            need(journal_at, _data_bytes(paths, locate(step.path), step.at, step.length))
        if isinstance(step, Create):
            if not isinstance(step.content, Made) or not _can_link(step.content, folder.home(number)):
                need(existing(folder.home(number)), solid_bytes(step.content))
        elif isinstance(step, Overwrite | Extend) and is_staged(step):
            need(journal_at, solid_bytes(step.content))
        if isinstance(step, Extend):
            need(existing(paths.locate(step.path)), solid_bytes(step.content))
    refuse_too_full((places[device], size) for device, size in needs.items())


def _can_link(content: Made, home: Path) -> bool:
    return content.whole and content.path.stat().st_dev == existing(home).stat().st_dev


def refuse_too_full(needs: Iterable[tuple[Path, int]]) -> None:
    """Refuse what needs more bytes than a file system has: places, one of each, with bytes. Errors: NoSpace."""
    for place, size in needs:
        free = free_bytes(place)
        if free < size:
            raise NoSpace(
                Text(
                    "{places}: {size:,} bytes are needed, {free:,} are free",
                    places=place,
                    size=size,
                    free=free,
                )
            )


def _data_bytes(paths: PlanPaths, path: Path, at: int, length: int) -> int:
    """Count the bytes of a range that are not holes."""
    try:
        with paths.disk.opened(path) as descriptor:
            return sum(high - low for low, high in data_extents(descriptor, at, at + length))
    except OSError:  # check_plan reports it
        return 0


def is_staged(step: Step) -> bool:
    """Return whether a step's content goes to the journal's new/; small and all-zero contents stay in the plan."""
    if isinstance(step, Create):
        return True
    if not isinstance(step, Overwrite | Extend) or isinstance(step.content, Zeros):
        return False
    return not isinstance(step.content, Literal) or step.content.size > _PER_STEP


def solid_bytes(content: Content) -> int:
    """Count the bytes that a content takes on disk with its zeros as holes."""
    if isinstance(content, Literal | Zeros | Parts | Made):
        return sum(len(piece) for piece in content.pieces() if not isinstance(piece, int))
    return content.size


def stage(plan: Plan, paths: PlanPaths, folder: JournalFolder) -> None:
    """Write all contents, saved spans and plan.json; everything is durable on return.

    Errors: OSError, and whatever lazy content raises; the store is unchanged then.
    """
    disk = folder.disk
    staged: dict[int, Staged] = {}
    written = _NewFiles(disk)
    try:
        for number, step in enumerate(plan.steps):
            target = folder.staged(number)
            if isinstance(step, Create):
                like, times = _like(step, paths), plan.mtime_ns is None
                if isinstance(step.content, Made) and _can_link(step.content, target.parent):
                    digest = written.take(step.content, target, like)
                else:
                    digest = written.add(target, chunks(step.content), step.size, like, times=times)
                staged[number] = Staged(target, step.size, digest, disk)
            elif isinstance(step, Overwrite | Extend) and is_staged(step):
                target, size = folder.path / NEW / f"{number:06}", step.content.size
                staged[number] = Staged(target, size, written.add(target, chunks(step.content), size, None), disk)
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
        above = [home.parent.parent] if home.parent.name == JOURNAL_FOLDER else []
        for place in (home / NEW, home / QUARANTINE, home, home.parent, *above):
            disk.fsync_directory(place)
    disk.fsync_directory(folder.path)


def _save_spans(plan: Plan, paths: PlanPaths, folder: JournalFolder, written: _NewFiles) -> None:
    if plan.spans:
        saved = folder.path / LOST_FOUND
        folder.disk.make_directory(saved)
        locate = _locator(plan, paths)
        for span in plan.spans:
            pieces = read_range(locate(span.path), span.at, span.length, paths.disk)
            written.add(saved / span.name, pieces, span.length, None)


class _NewFiles:
    """New files, which are made durable in groups; `finish` makes the last ones durable."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._open: list[int] = []

    def add(
        self, path: Path, pieces: Iterable[bytes], size: int, like: os.stat_result | None, *, times: bool = True
    ) -> str:
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
            _copy_metadata(disk, path, like, times=times)
        if len(self._open) >= OPEN_FILES:
            self.finish()
        return running.text

    def take(self, content: Made, path: Path, like: os.stat_result) -> str:
        """Give a file that the journal has made its second name, and return the fingerprint of its bytes."""
        self.disk.link(content.path, path)
        self._open.append(self.disk.open_existing(path))
        _copy_metadata(self.disk, path, like, times=False)
        if len(self._open) >= OPEN_FILES:
            self.finish()
        return fingerprint_range(path, 0, content.size, "runs:", self.disk)

    def finish(self) -> None:
        self.disk.fsync_all(self._open)
        self.close()

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())


def _like(step: Create | MakeDirectory, paths: PlanPaths) -> os.stat_result:
    if step.like is not None:
        return paths.disk.status(paths.locate(step.like))
    # The nearest directory that exists now: the plan itself creates the others.
    return existing(paths.locate(str(PurePosixPath(step.path))).parent).stat()


def _copy_metadata(disk: Disk, path: Path, like: os.stat_result, *, times: bool) -> None:
    """Copy owner, mode and times of the neighbour `like`; without root, the file keeps this user as its owner."""
    status = disk.status(path)
    if (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):
            disk.set_owner(path, like.st_uid, like.st_gid)
    mode = stat.S_IMODE(like.st_mode)
    if stat.S_ISREG(status.st_mode):
        mode &= 0o666
    disk.set_mode(path, mode)
    if times and stat.S_ISREG(like.st_mode):
        disk.set_times(path, like.st_atime_ns, like.st_mtime_ns)
