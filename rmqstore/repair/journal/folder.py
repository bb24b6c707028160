"""Where a journal and the files of its plan are: the folders of a journal, its state file, and the paths of the plan.

STORE/.rmqstore/TIME/state        how far apply or undo is; replaced atomically
                     plan.json    the plan; large contents are in new/
                     undo.log     before-images
                     new/N        the file that step N creates or the bytes it writes, complete before the first change
                     quarantine/  files and directories that were moved away
                     making/      only while `import --into` makes its plan: what it has appended
                     lost+found/  damaged spans that the repair covered
                     journal      only with --journal DIR: the path of the folder with everything else but new/ and
                                  quarantine/

Each other data path of the store, which may be on another file system, has such a folder for its own files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from rmqstore.errors import CouldNotCheck, NotAStore, Refused, RmqStoreError, UsageError
from rmqstore.files.disk import existing, real_path
from rmqstore.files.files import LOCAL
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.content import Content, Json, content_from_json, content_to_json
from rmqstore.repair.plan.plan import Plan, plan_from_json
from rmqstore.repair.plan.plan_builder import AS_NAMED, EntryReader, read_range, read_runs
from rmqstore.repair.plan.steps import Create, InPlace, MakeDirectory, Rename, SetAside
from rmqstore.texts import Text


@dataclass(frozen=True, slots=True)
class Outside:
    """A directory outside of a store that a plan changes. `way`: what leads there, a data path or a link."""

    directory: Path
    way: Path
    link: bool


def outside_of(plan: Plan, store: Path) -> list[Outside]:
    """Return the directories outside of a store that the steps of a plan change or read. `store`: its real path."""
    found: dict[Path, Outside] = {}
    for path in {*_paths_of(plan)}:
        pure = PurePosixPath(path)
        way = _root_of(pure, plan.roots) if pure.is_absolute() else store / pure.parts[0]
        link = not pure.is_absolute()
        if link and (len(pure.parts) == 1 or not way.is_symlink()):
            continue  # a link in the last place is never followed
        directory = real_path(way)
        if not _is_within(directory, [store]):
            found.setdefault(directory, Outside(directory, way, link))
    return sorted(found.values(), key=lambda one: one.directory)


def _paths_of(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        yield step.path
        if isinstance(step, Create | MakeDirectory) and step.like is not None:
            yield step.like
        if isinstance(step, Rename):
            yield step.source
    yield from (span.path for span in plan.spans)


def _root_of(path: PurePosixPath, roots: Iterable[str]) -> Path:
    return Path(next(root for root in roots if PurePosixPath(root) in path.parents))


def _is_within(path: Path, directories: Iterable[Path]) -> bool:
    return any(path == directory or directory in path.parents for directory in directories)


def named_options(directories: Iterable[Path]) -> str:
    """Return the options that name directories outside of a store."""
    return "".join(f" --root {shlex.quote(str(directory))}" for directory in directories)


@dataclass(frozen=True, slots=True)
class PlanPaths:
    """A store, the further directories that its plan may change (`named`), and the mount points of this machine.

    `needed`: the directories outside of the store that the plan does change. `roots`: the data paths of the plan with
    their real paths. All files are read and changed through `disk`.
    """

    store: Path
    roots: Mapping[str, Path]
    named: tuple[Path, ...]
    needed: tuple[Path, ...]
    disk: Disk
    mounts: tuple[str, ...] = field(default=(), repr=False)

    @staticmethod
    def of(
        plan: Plan, disk: Disk, store: Path | None = None, *, named: Collection[Path], again: str | None = None
    ) -> PlanPaths:
        """Build the paths of a plan; `store` is the store's current path if it is not the one in the plan.

        `named`: directories outside of the store that the user gave; nothing else outside of it is changed. `again`:
        the command that the refusal repeats with the missing ones.
        Errors: NotAStore; Refused for a missing data path, and for a directory that is not `named`.
        """
        place = real_path(store or Path(plan.store))
        if not place.is_dir():
            raise NotAStore(Text("{place} is not a directory", place=place))
        own = tuple(real_path(one) for one in named)
        needed = outside_of(plan, place)
        _refuse_unnamed([one for one in needed if not _is_within(one.directory, own)], place, again)
        for root in plan.roots:
            if not Path(root).is_dir():
                raise Refused(
                    Text("the data path {root} is missing", root=root), Text("mount it, or correct broker.conf")
                )
        folder = place / JOURNAL_FOLDER
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise Refused(Text("{folder} must be a directory", folder=folder), Text("move it away"))
        for directory in (place, *(one.directory for one in needed)):
            disk.allow(directory)
        roots = {root: real_path(Path(root)) for root in plan.roots}
        return PlanPaths(place, roots, own, tuple(one.directory for one in needed), disk, _mount_points())

    def status(self, path: Path) -> os.stat_result | None:
        """Return lstat of a path, or None if nothing is there."""
        return status_of(path, self.disk)

    def locate(self, path: str) -> Path:
        """Return the file that a path of the plan names.

        Links at the top of the store and roots that are links are followed, if they lead to a directory of the user.
        Errors: Refused for any other link.
        """
        base, rest = self._base(path)
        at = base
        for name in rest[:-1]:
            at /= name
            if at.is_symlink():
                raise Refused(
                    Text("{at} is a link: only links at the top of a store are followed", at=at),
                    Text("replace the link"),
                )
        found = base.joinpath(*rest)
        if JOURNAL_FOLDER in found.parts[len(self.store.parts) :] and self.store in found.parents:
            raise Refused(Text("{path} leads into the journals", path=path), Text("replace the link"))
        return found

    def _base(self, path: str) -> tuple[Path, tuple[str, ...]]:
        pure = PurePosixPath(path)
        if pure.is_absolute():
            root = next(root for root in self.roots if PurePosixPath(root) in pure.parents)
            return self.roots[root], pure.relative_to(PurePosixPath(root)).parts
        top = self.store / pure.parts[0]
        if len(pure.parts) > 1 and top.is_symlink():
            target = real_path(top)
            if not _is_within(target, (self.store, *self.named)):
                raise Refused(
                    Text("{link} is a link that leads out of the store, to {target}", link=top, target=target),
                    Text("add{options}, if that directory belongs to this broker", options=named_options([target])),
                )
            return target, pure.parts[1:]
        return self.store, pure.parts

    def beside(self, path: str, journal: Path | None) -> Path:
        """Return a directory for `.rmqstore` from and to which files at this path can be renamed.

        It is on the same file system, and no broker lists it. An external `journal` is used if it is on that file
        system. Errors: Refused if the data path is the top of its file system.
        """
        folder = existing(self.locate(path).parent)
        if journal is not None and self.same_file_system(folder, existing(journal)):
            return journal
        if self.same_file_system(folder, self.store):
            return self.store
        pure = PurePosixPath(path)
        base = existing(self._base(path)[0])
        if not pure.is_absolute() and base == self.store:
            base = existing(self.store / pure.parts[0])
        if base.parent != base and self.same_file_system(folder, base.parent):
            return base.parent
        raise Refused(
            Text("{base} is the top of its file system, which leaves no place for the quarantine beside it", base=base),
            Text("move the data into a directory of that file system, and point the broker's path there"),
        )

    def same_file_system(self, one: Path, other: Path) -> bool:
        """Return whether files can be renamed between two directories: same device, same mount."""
        return one.stat().st_dev == other.stat().st_dev and self._mount(one) == self._mount(other)

    def _mount(self, path: Path) -> str:
        text = f"{real_path(path)}/"
        return max((mount for mount in self.mounts if text.startswith(f"{mount.rstrip('/')}/")), key=len, default="")

    def places(self, paths: Iterable[str]) -> list[Path]:
        """Return all directories that a broker may have open: the store, targets of links at its top, the roots."""
        places = [self.store]
        try:
            tops = sorted(self.store.iterdir())
        except OSError:
            tops = []
        # whoever leads to the store itself or above it would make this the whole disk
        links = (real_path(top) for top in tops if top.is_symlink() and top.is_dir())
        places += [target for target in links if not _is_within(self.store, [target])]
        places += self.roots.values()
        places += [base for base in {self._base(path)[0] for path in paths} if base.is_dir()]
        return list(dict.fromkeys(places))


def _mount_points() -> tuple[str, ...]:
    try:
        rows = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ()
    fields = (row.split(" ") for row in rows)
    return tuple(row[4].replace("\\040", " ").replace("\\011", "\t") for row in fields if len(row) > 4)


def _refuse_unnamed(unnamed: Sequence[Outside], store: Path, again: str | None) -> None:
    """Refuse to change directories that only a plan or a link names. Errors: Refused."""
    if not unnamed:
        return
    first = unnamed[0]
    words = (
        Text("{link} is a link that leads out of the store, to {target}", link=first.way, target=first.directory)
        if first.link
        else Text("the plan changes files in {root}, outside of the store {store}", root=first.way, store=store)
    )
    options = named_options(one.directory for one in unnamed)
    raise Refused(
        words,
        Text("if that directory belongs to this broker: `{command}`", command=f"{again}{options}")
        if again is not None
        else Text("add{options}, if that directory belongs to this broker", options=options),
    )


def status_of(path: Path, entries: EntryReader = AS_NAMED) -> os.stat_result | None:
    """Return lstat of a path, or None if nothing is there."""
    try:
        return entries.status(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


SCHEMA = "rmqstore.journal/1"
NEW, QUARANTINE, LOST_FOUND, MAKING = "new", "quarantine", "lost+found", "making"
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z(-2)*")
STATE, PLAN, UNDO_LOG, POINTER = "state", "plan.json", "undo.log", "journal"
MAX_PLAN = 1 << 30
"""Bytes of a plan, which contains the bytes that it will write."""
_MAX_STATE, _MAX_POINTER = 1 << 26, 1 << 14
_LIMIT = 1 << 62


class State(StrEnum):
    """The state of a journal."""

    PREPARING = "preparing"
    """Nothing in the store has been changed yet."""
    APPLYING = "applying"
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"
    PRUNING = "pruning"
    """It is being deleted, and cannot undo anything."""
    MISSING = "missing"
    """The store refers to it, but it is not at that path, or its state file is damaged."""


UNFINISHED = (State.APPLYING, State.UNDOING, State.MISSING)


@dataclass(frozen=True, slots=True)
class JournalState:
    """The content of the state file.

    `homes` are the folders with a new/ and a quarantine/, `home_of` the index of the home of a step if it is not 0;
    see `JournalFolder.home`. `staged`: a plan that was made in this folder is complete. `times_kept`
    is False if the times of changed files could not be restored.
    """

    state: State
    store: str
    steps: int = 0
    batches: int = 0
    batches_done: int = 0
    lock_was_there: bool = True
    times_kept: bool = True
    store_atime_ns: int = 0
    store_mtime_ns: int = 0
    homes: tuple[str, ...] = ("",)
    home_of: Mapping[str, int] = field(default_factory=dict)
    staged: bool = False


@dataclass(frozen=True, slots=True)
class Staged:
    """Content that is complete in a journal's `new/`; `hash` is the fingerprint of its bytes."""

    path: Path
    size: int
    hash: str
    entries: EntryReader = AS_NAMED

    def pieces(self) -> Iterator[bytes | int]:
        yield from read_range(self.path, 0, self.size, self.entries)

    def read(self, size: int, at: int) -> bytes:
        return b"".join(read_range(self.path, at, min(size, self.size - at), self.entries))


@dataclass(frozen=True, slots=True)
class Made:
    """Bytes of a file that a journal has made in its folder; a whole file (`whole`) becomes a new one of the store."""

    path: Path
    size: int
    at: int = 0
    whole: bool = False

    def pieces(self) -> Iterator[bytes | int]:
        yield from read_runs(self.path, self.at, self.size)

    def read(self, size: int, at: int) -> bytes:
        return b"".join(read_range(self.path, self.at + at, min(size, self.size - at)))


@dataclass(slots=True)
class JournalFolder:
    """One journal on disk; `record` is the content of its state file."""

    path: Path
    store: Path
    record: JournalState
    disk: Disk
    named: tuple[Path, ...] = ()
    """Directories outside of the store that the user gave."""

    def command(self, verb: str) -> str:
        """Return the command that undoes or resumes, with the same directories."""
        outside = [one for one in self.named if not _is_within(one, [self.store])]
        return f"rmqstore {verb} {shlex.quote(str(self.path))}{named_options(outside)}"

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def in_store(self) -> Path:
        """The folder of this journal in the store; it has a pointer to `path` if that is outside the store."""
        return self.store / JOURNAL_FOLDER / self.name

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def batches_done(self) -> int:
        return max(0, self.record.batches_done)  # an undo counts down to -1

    def to_json(self) -> dict[str, Json]:
        return {
            "journal": str(self.path),
            "state": self.state.value,
            "steps": self.record.steps,
            "batches": self.record.batches,
            "batches_done": self.batches_done,
            "refused": None if (refusal := self.refusal()) is None else refusal.message,
        }

    def home(self, step: int) -> Path:
        """Return the folder with new/ and quarantine/ for a step, on the same file system as the step's path."""
        homes = self.record.homes
        return self._home(homes[self.record.home_of.get(str(step), 0)])

    def homes(self) -> list[Path]:
        return [self._home(home) for home in self.record.homes]

    def _home(self, home: str) -> Path:
        # "" is the journal itself, a relative path is below the store: both stay right if the store is moved.
        return self.store / home if home else self.path

    def _folders(self) -> list[Path]:
        """Return all folders of the journal: its homes, the folder with its pointer, and last its own."""
        others = dict.fromkeys([*self.homes(), self.in_store])
        others.pop(self.path, None)
        return [*others, self.path]

    def staged(self, step: int) -> Path:
        return self.home(step) / NEW / f"{step:06}"

    def quarantined(self, step: int, path: str) -> Path:
        base = path.rpartition("/")[2]
        name = f"{step:06}-{base}" if len(base.encode(errors="surrogateescape")) < 200 else f"{step:06}"
        return self.home(step) / QUARANTINE / name

    def aside(self, path: Path) -> Path:
        """Return the path for a file that is set aside: in its directory, with a name that only this journal uses."""
        return path.with_name(f"{JOURNAL_FOLDER}-{self.name}-{path.name}")

    def touched_since(self, status: os.stat_result, mtime_ns: int) -> bool:
        """Return whether a file was written to after the repair: a complete apply has restored its mtime."""
        return self.state is State.DONE and self.record.times_kept and status.st_mtime_ns != mtime_ns

    def refuse_untrusted(self) -> None:
        """Refuse a journal that somebody else can have forged, or whose folders are in directories of nobody's choice.

        Errors: Refused.
        """
        owners = {os.geteuid(), 0, self.store.stat().st_uid}
        for path in self._own_entries():
            status = status_of(path)
            if status is None:
                continue
            if stat.S_ISLNK(status.st_mode):
                raise Refused(Text("{path} is a link: a journal has none", path=path), Text("remove it"))
            if status.st_uid not in owners:
                raise Refused(
                    Text(
                        "{path} belongs to user {uid}, who is neither you nor root nor the owner of the store: the "
                        "journal may be forged",
                        path=path,
                        uid=status.st_uid,
                    ),
                    Text("if you trust that user, run this as that user"),
                )
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise Refused(
                    Text("others may write {path}: the journal may be forged", path=path),
                    Text("if you trust them: chmod go-w {path}", path=shlex.quote(str(path))),
                )
        own = _pointer(self.in_store)
        if self.in_store != self.path and (own not in (None, self.path) or _is_journal(self.in_store)):
            raise Refused(
                Text("{entry} is not the pointer to {path}", entry=self.in_store, path=self.path),
                Text("leave both as they are: one of them is forged"),
            )
        for home in self.homes():
            self._refuse_home(home)

    def _own_entries(self) -> Iterator[Path]:
        """Yield the entries of which a journal consists: what it moved keeps the mode of the store."""
        for folder in dict.fromkeys([self.in_store, *self.homes(), self.path]):
            if folder.parent.name == JOURNAL_FOLDER:
                yield folder.parent
            yield folder
            yield from (folder / name for name in (STATE, PLAN, UNDO_LOG, POINTER, NEW, QUARANTINE, LOST_FOUND))

    def _refuse_home(self, home: Path) -> None:
        """Refuse a folder beside a directory that the user did not name, and one that is a journal. Errors: Refused."""
        if home in (self.path, self.in_store):
            return
        base = home.parent.parent
        beside = any(base == one.parent or _is_within(base, [one]) for one in self.named)
        if real_path(base) != base or not beside:
            raise Refused(
                Text("the journal {path} has files in {home}, outside of the store", path=self.path, home=home),
                Text("add{options}, if that directory belongs to this broker", options=named_options([base])),
            )
        if _is_journal(home):
            raise Refused(
                Text("{home} is a journal itself, not a part of {path}", home=home, path=self.path),
                Text("leave both as they are: one of them is forged"),
            )
        self.disk.allow(existing(base))

    def refusal(self) -> RmqStoreError | None:
        """Return why undo and resume would refuse this journal at once; None if they would not."""
        try:
            self.refuse_untrusted()
            if self.state in (State.APPLYING, State.DONE, State.UNDOING):
                PlanPaths.of(self.load_plan(), Disk(), self.store, named=self.named, again=self.command("undo"))
        except RmqStoreError as error:
            return error
        return None

    def save(self, **changes: object) -> None:
        """Replace the state file atomically and durably."""
        record = replace(self.record, **changes)  # type: ignore[arg-type]
        text = json.dumps({"schema": SCHEMA, **asdict(record)})
        self.write(self.path / f"{STATE}.new", text.encode())
        self.disk.rename(self.path / f"{STATE}.new", self.path / STATE)
        self.disk.fsync_directory(self.path)
        self.record = record

    def write(self, path: Path, data: bytes) -> None:
        """Write or replace a small file of the journal, and fsync it."""
        with contextlib.suppress(FileNotFoundError):
            self.disk.unlink(path)
        descriptor = self.disk.open_new(path)
        try:
            self.disk.write_at(descriptor, data, 0)
            self.disk.fsync(descriptor)
        finally:
            os.close(descriptor)

    def save_plan(self, plan: Plan, staged: Mapping[int, Staged]) -> None:
        """Write plan.json, with small contents inline and references to staged ones."""

        def content(number: int, inline: Content) -> Json:
            if number in staged:
                return {"staged": {"size": staged[number].size, "hash": staged[number].hash, "step": number}}
            return content_to_json(inline)

        self.write(self.path / PLAN, json.dumps(plan.to_json(content)).encode())

    def load_plan(self) -> Plan:
        """Read the plan of this journal, with its staged contents. Errors: CouldNotCheck if it is damaged."""

        def content(value: object) -> Content:
            if isinstance(value, dict) and isinstance(value.get("staged"), dict):
                row = value["staged"]
                step, size, digest = row.get("step"), row.get("size"), row.get("hash")
                if type(step) is int and type(size) is int and isinstance(digest, str) and step >= 0 <= size:
                    return Staged(self.path / NEW / f"{step:06}", size, digest, self.disk)
            return content_from_json(value)

        try:
            text = LOCAL.read_small(self.path / PLAN, MAX_PLAN)
            return plan_from_json(text, read_content=content)
        except (OSError, UsageError) as error:
            raise CouldNotCheck(Text("{path} is damaged: {error}", path=self.path / PLAN, error=error)) from error

    def make(self) -> None:
        """Create the folders, the first state file, and for a journal outside the store the pointer to it."""
        missing = [folder for folder in self.path.parents if not folder.exists()]
        for folder in reversed(missing):
            self._make_folder(folder)
            self.disk.fsync_directory(folder.parent)
        self.disk.make_directory(self.path)
        self.save()
        for home in self.homes():
            if home != self.path:
                self._make_folder(home.parent)
                self._make_folder(home)
            self.disk.make_directory(home / NEW)
            self.disk.make_directory(home / QUARANTINE)
        if self.in_store != self.path:
            self._make_folder(self.in_store.parent)
            self._make_folder(self.in_store)
            self.write(self.in_store / POINTER, str(self.path).encode(errors="surrogateescape"))
            self.disk.fsync_directory(self.in_store)

    def _make_folder(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            self.disk.make_directory(path)

    def discard(self, *, quarantine_too: bool = False) -> None:
        """Delete a journal that has changed nothing, or that is being pruned.

        Errors: OSError; Refused if its quarantine is not empty, unless `quarantine_too`.
        """
        folders = self._folders()
        for quarantine in () if quarantine_too else [folder / QUARANTINE for folder in folders]:
            if (
                (status := status_of(quarantine, self.disk)) is not None
                and stat.S_ISDIR(status.st_mode)
                and (self.disk.list(quarantine))
            ):
                raise Refused(
                    Text("{quarantine} is not empty", quarantine=quarantine),
                    Text("inspect it, and move its files back to their places"),
                )
        self.drop_making()
        for folder in folders:  # the journal itself is deleted last: its state file names the other folders
            status = status_of(folder, self.disk)
            if status is not None and stat.S_ISDIR(status.st_mode):
                self._remove_tree(folder)
            with contextlib.suppress(OSError):
                self.disk.remove_directory(folder.parent)  # .rmqstore, if it is empty now

    def _remove_tree(self, folder: Path) -> None:
        for name in sorted(self.disk.list(folder), key=lambda name: (name == STATE, name)):
            if stat.S_ISDIR(self.disk.status(folder / name).st_mode):
                self._remove_tree(folder / name)
            else:
                self.disk.unlink(folder / name)
        self.disk.remove_directory(folder)

    def discard_pointer(self) -> None:
        """Delete only what the store has of a journal: its pointer and its quarantine. Errors: OSError."""
        folder = self.store / JOURNAL_FOLDER
        for entry in _entries(folder):
            if self.path in (entry, _pointer(entry)):
                self._remove_tree(entry)
        with contextlib.suppress(OSError):
            self.disk.remove_directory(folder)

    @property
    def making(self) -> Path:
        """The folder in which a command makes its plan."""
        return self.path / MAKING

    @property
    def making_mark(self) -> Path:
        """The file in `making` with what identifies the command; without it, nothing there is worth keeping."""
        return self.making / "mark.json"

    def mark_making(self, data: bytes) -> None:
        """Write the mark, atomically and durably."""
        new = self.making_mark.with_suffix(".new")
        self.write(new, data)
        self.disk.rename(new, self.making_mark)
        self.disk.fsync_directory(self.making)

    def take_plan(self, plan: Plan, paths: PlanPaths) -> None:
        """Note the plan that was made in this folder, and remove the remains of an interrupted staging."""
        homes, home_of = _homes(paths, plan, self.name, None, self.record.homes)
        self.save(homes=homes, home_of=home_of, steps=len(plan.steps))
        for home in self.homes():
            for folder in (home.parent, home, home / NEW, home / QUARANTINE):
                self._make_folder(folder)
        self.drop_staged()

    def drop_making(self) -> None:
        """Delete what a command made its plan from; its mark goes first, because the rest is incomplete then."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.disk.unlink(self.making_mark)
        for home in self.homes():
            if status_of(home / MAKING, self.disk) is not None:
                self._remove_tree(home / MAKING)

    def files(self) -> Iterator[Path]:
        """Yield every file in all folders of the journal; links are not followed."""
        for home in self._folders():
            for folder, _, names in os.walk(home):
                yield from (Path(folder) / name for name in names)

    def drop_staged(self) -> None:
        """Delete the contents of new/, which nothing needs after an undo."""
        for home in self.homes():
            if status_of(home / NEW, self.disk) is None:
                continue
            for name in self.disk.list(home / NEW):
                if stat.S_ISDIR(self.disk.status(home / NEW / name).st_mode):
                    self.disk.remove_directory(home / NEW / name)
                else:
                    self.disk.unlink(home / NEW / name)


def new_folder(paths: PlanPaths, plan: Plan, journal_dir: Path | None, disk: Disk) -> JournalFolder:
    """Return a journal that is not on disk yet. Reads only. Errors: UsageError for an unusable `journal_dir`."""
    name = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f".{time.time_ns() // 1000 % 1_000_000:06}Z"
    taken = [entry.name for entry in _entries(paths.store / JOURNAL_FOLDER)]
    outside: Path | None = None
    if journal_dir is not None:
        outside = real_path(journal_dir)
        if not existing(outside).is_dir():
            raise UsageError(
                Text(
                    "--journal {journal_dir}: {place} is not a directory",
                    journal_dir=journal_dir,
                    place=existing(outside),
                ),
                Text("name a directory"),
            )
        if paths.store == outside or paths.store in outside.parents:
            raise UsageError(
                Text("--journal {journal_dir} is inside the store", journal_dir=journal_dir),
                Text("leave --journal out, or choose another"),
            )
        # only journals matter for the order of names
        taken += [entry.name for entry in _entries(outside) if _NAME.fullmatch(entry.name)]
    latest = max(taken, default="")
    if name <= latest:
        name = f"{latest}-2"  # the clock went back: keep names in chronological order
    path = (outside or paths.store / JOURNAL_FOLDER) / name
    homes, home_of = _homes(paths, plan, name, outside)
    times = paths.store.stat()
    record = JournalState(
        State.PREPARING,
        str(paths.store),
        steps=len(plan.steps),
        lock_was_there=(paths.store / "lock").exists(),
        store_atime_ns=times.st_atime_ns,
        store_mtime_ns=times.st_mtime_ns,
        homes=homes,
        home_of=home_of,
    )
    if outside is not None:
        disk.allow(existing(outside))
    for home in homes:
        if home.startswith("/"):
            disk.allow(existing(Path(home).parent.parent))
    return JournalFolder(path, paths.store, record, disk, paths.needed)


def _homes(
    paths: PlanPaths, plan: Plan, name: str, outside: Path | None, known: Sequence[str] = ("",)
) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """Return the homes of a new journal, and the index of each step's home if it is not 0; see `JournalState`."""
    homes = list(known)
    home_of: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        if isinstance(step, InPlace | SetAside | Rename):  # these move no file to or from a journal folder
            continue
        base = paths.beside(step.path, outside)
        if base == paths.store:
            home = f"{JOURNAL_FOLDER}/{name}" if outside is not None else ""
        else:
            home = "" if base == outside else str(base / JOURNAL_FOLDER / name)
        if home not in homes:
            homes.append(home)
        if homes.index(home):
            home_of[str(number)] = homes.index(home)
    return tuple(homes), home_of


def open_folder(path: Path, disk: Disk | None = None, named: Collection[Path] = ()) -> JournalFolder:
    """Open the journal at a path, or the one that the folder at this path points to; `disk` changes it.

    `named`: directories outside of the store that the user gave.
    Errors: NotAStore if there is none; Refused if it is missing (also if `path` is its store), or if it and its store
    do not name each other.
    """
    disk = disk or Disk()
    for link in (path, path.parent):
        if link.is_symlink() and JOURNAL_FOLDER in (path.name, path.parent.name):
            raise Refused(Text("{folder} must be a directory", folder=link), Text("move it away"))
    place = real_path(path)
    pointer = _pointer(place)
    if pointer is not None:
        if not pointer.is_dir() or not _belongs(pointer, place):
            raise missing_journal(pointer, place.parent.parent)
        place = pointer
    record = _read_record(place)
    if record is None and place.parent.name == JOURNAL_FOLDER and place.is_dir() and _is_unstarted(place):
        record = JournalState(State.PREPARING, str(place.parent.parent))
    if record is None:
        without_effect = (State.PREPARING, State.UNDONE)
        known = [one for one in list_folders(place, disk) if one.state not in without_effect]
        if known and known[-1].state is State.MISSING:
            raise missing_journal(known[-1].path, place)
        if not place.exists():
            raise NotAStore(
                Text("{path} does not exist", path=path),
                Text(
                    "mount the disk of this journal; if it is gone for good, its repair cannot be undone, and "
                    "`rmqstore journals STORE` says how to forget it"
                ),
            )
        advice = Text("name a folder below STORE/.rmqstore; `rmqstore journals STORE` lists them")
        if known:
            advice = Text("the last one of this store: {path}", path=path / JOURNAL_FOLDER / known[-1].name)
        raise NotAStore(Text("{path} is not an rmqstore journal", path=path), advice)
    own = tuple(real_path(one) for one in named)
    if place.parent.name == JOURNAL_FOLDER:
        disk.allow(place.parent.parent)
        return JournalFolder(place, place.parent.parent, record, disk, own)
    store = real_path(Path(record.store))
    if record.state is not State.PREPARING and _pointer(store / JOURNAL_FOLDER / place.name) != place:
        raise Refused(
            Text("{store} has no pointer to the journal {place}", store=store, place=place),
            Text("name the store's own folder below .rmqstore"),
        )
    disk.allow(place.parent)
    if store.is_dir():
        disk.allow(store)
    return JournalFolder(place, store, record, disk, own)


def _belongs(place: Path, entry: Path) -> bool:
    """Return whether the journal to which an entry of a store points names that store, and has the entry's name."""
    record = _read_record(place)
    if record is None or place.name != entry.name or place.parent.name == JOURNAL_FOLDER:
        return False
    return real_path(Path(record.store)) == real_path(entry.parent.parent)


def missing_journal(journal: Path, store: Path) -> Refused:
    """Return the error for a journal that a store refers to, but that is not there or has no readable state file."""
    prune = f"rmqstore journals {shlex.quote(str(store))} --prune --missing --apply"
    kept = store / JOURNAL_FOLDER / journal.name / QUARANTINE
    return Refused(
        Text(
            "the journal {journal} is missing or damaged, or belongs to another store: without it, its repair can be "
            "neither undone nor resumed",
            journal=journal,
        ),
        Text(
            "mount the disk that it is on; if it is gone for good, save the files that the repair moved to {kept}, "
            "then: `{prune}`",
            kept=kept,
            prune=prune,
        )
        if kept.is_dir() and any(kept.iterdir())
        else Text("mount the disk that it is on; if it is gone for good: `{prune}`", prune=prune),
    )


def list_folders(store: Path, disk: Disk, named: Collection[Path] = ()) -> list[JournalFolder]:
    """Return all journals of a store, oldest first, including unstarted and missing ones. `named`: as `open_folder`."""
    folders = []
    own = tuple(real_path(one) for one in named)
    store = real_path(store)
    for entry in _entries(store / JOURNAL_FOLDER):
        disk.allow(store)
        place = pointer if (pointer := _pointer(entry)) is not None else entry
        record = _read_record(place) if pointer is None or _belongs(place, entry) else None
        if record is None and pointer is not None and _read_record(pointer) is not None:
            place = entry  # what it points to is not this journal, so nothing may be done to it
        if record is None:
            unstarted = place == entry and _is_unstarted(place)
            record = JournalState(State.PREPARING if unstarted else State.MISSING, str(store))
        elif pointer is not None:
            disk.allow(place.parent)
        folders.append(JournalFolder(place, store, record, disk, own))
    return folders


def _is_journal(folder: Path) -> bool:
    return any(status_of(folder / name) is not None for name in (STATE, PLAN, UNDO_LOG))


def _is_unstarted(folder: Path) -> bool:
    """Return whether a folder without a state file is a leftover of a killed `make` or `discard`."""
    if any((folder / name).exists() for name in (STATE, PLAN, UNDO_LOG, POINTER)):
        return False
    try:
        return not any((folder / QUARANTINE).iterdir())
    except FileNotFoundError:  # there is none, or another process is deleting the folder
        return True


def _entries(folder: Path) -> list[Path]:
    if folder.is_symlink():
        return []
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return []


def _pointer(folder: Path) -> Path | None:
    try:
        text = os.fsdecode(LOCAL.read_small(folder / POINTER, _MAX_POINTER))
    except (OSError, ValueError):
        return None
    return real_path(Path(text)) if text.startswith("/") and "\0" not in text else None


def _read_record(folder: Path) -> JournalState | None:
    try:
        row = json.loads(LOCAL.read_small(folder / STATE, _MAX_STATE))
        if not isinstance(row, dict) or row.pop("schema", None) != SCHEMA:
            return None
        row["state"] = State(row["state"])
        row["homes"] = tuple(str(home) for home in row["homes"])
        record = JournalState(**row)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    sound = isinstance(record.home_of, dict) and all(
        type(index) is int and 0 <= index < len(record.homes) for index in record.home_of.values()
    )
    # Otherwise a forged state file could make undo move files to and from any directory.
    tail = f"{JOURNAL_FOLDER}/{folder.name}"
    sound = sound and all(
        home in ("", tail) or (home.startswith("/") and home.endswith(f"/{tail}") and "\0" not in home)
        for home in record.homes
    )
    numbers = (record.steps, record.batches, record.batches_done, record.store_atime_ns, record.store_mtime_ns)
    sound = sound and all(type(number) is int and -_LIMIT < number < _LIMIT for number in numbers)
    sound = sound and isinstance(record.store, str) and "\0" not in record.store
    return record if sound and len(record.homes) > 0 else None


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user can still write to a file system."""
    return shutil.disk_usage(folder).free


Progress = Callable[[int, int], None]
"""Called after every batch with (batches done, batches in all)."""
