"""Where a journal and the files of its plan are: the folders of a journal, its state file, and the paths of the plan.

STORE/.rmqstore/TIME/state        how far apply or undo is; replaced atomically
                     plan.json    the plan; large contents are in new/
                     undo.log     before-images
                     new/N        the file that step N creates or the bytes it writes, complete before the first change
                     quarantine/  files and directories that were moved away
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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from rmqstore.errors import CouldNotCheck, NotAStore, Refused, UsageError
from rmqstore.files.disk import existing, real_path
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.content import Content, Json, content_from_json, content_to_json
from rmqstore.repair.plan.plan import Plan, plan_from_json
from rmqstore.repair.plan.plan_builder import read_range
from rmqstore.repair.plan.steps import InPlace, Rename, SetAside
from rmqstore.texts import Text


@dataclass(frozen=True, slots=True)
class PlanPaths:
    """A store, its further data paths (`roots`), and the mount points of this machine."""

    store: Path
    roots: tuple[Path, ...]
    mounts: tuple[str, ...] = field(default=(), repr=False)

    @staticmethod
    def of(plan: Plan, store: Path | None = None) -> PlanPaths:
        """Build the paths of a plan; `store` is the store's current path if it is not the one in the plan.

        Errors: NotAStore, Refused for a missing data path.
        """
        place = real_path(store or Path(plan.store))
        if not place.is_dir():
            raise NotAStore(Text("{place} is not a directory", place=place))
        for root in plan.roots:
            if not Path(root).is_dir():
                raise Refused(
                    Text("the data path {root} is missing", root=root), Text("mount it, or correct broker.conf")
                )
        folder = place / JOURNAL_FOLDER
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise Refused(Text("{folder} must be a directory", folder=folder), Text("move it away"))
        return PlanPaths(place, tuple(Path(root) for root in plan.roots), _mount_points())

    def locate(self, path: str) -> Path:
        """Return the file that a path of the plan names.

        Links at the top of the store and roots that are links are followed.
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
        return base.joinpath(*rest)

    def _base(self, path: str) -> tuple[Path, tuple[str, ...]]:
        pure = PurePosixPath(path)
        if pure.is_absolute():
            root = next(root for root in self.roots if PurePosixPath(root) in pure.parents)
            return real_path(root), pure.relative_to(PurePosixPath(root)).parts
        top = self.store / pure.parts[0]
        if top.is_symlink():
            return real_path(top), pure.parts[1:]
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
        places += [real_path(top) for top in tops if top.is_symlink() and top.is_dir()]
        places += [real_path(root) for root in self.roots]
        places += [base for base in {self._base(path)[0] for path in paths} if base.is_dir()]
        return list(dict.fromkeys(places))


def _mount_points() -> tuple[str, ...]:
    try:
        rows = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ()
    fields = (row.split(" ") for row in rows)
    return tuple(row[4].replace("\\040", " ").replace("\\011", "\t") for row in fields if len(row) > 4)


def status_of(path: Path) -> os.stat_result | None:
    """Return lstat of a path, or None if nothing is there."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


SCHEMA = "rmqstore.journal/1"
NEW, QUARANTINE, LOST_FOUND = "new", "quarantine", "lost+found"
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z(-2)*")
STATE, PLAN, UNDO_LOG, POINTER = "state", "plan.json", "undo.log", "journal"


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
    see `JournalFolder.home`. `times_kept` is False if the times of changed files could not be restored.
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


@dataclass(frozen=True, slots=True)
class Staged:
    """Content that is complete in a journal's `new/`; `hash` is the fingerprint of its bytes."""

    path: Path
    size: int
    hash: str

    def pieces(self) -> Iterator[bytes | int]:
        yield from read_range(self.path, 0, self.size)

    def read(self, size: int, at: int) -> bytes:
        return b"".join(read_range(self.path, at, min(size, self.size - at)))


@dataclass(slots=True)
class JournalFolder:
    """One journal on disk; `record` is the content of its state file."""

    path: Path
    store: Path
    record: JournalState
    disk: Disk

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
                    return Staged(self.path / NEW / f"{step:06}", size, digest)
            return content_from_json(value)

        try:
            text = (self.path / PLAN).read_bytes()
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
            if quarantine.is_dir() and any(quarantine.iterdir()):
                raise Refused(
                    Text("{quarantine} is not empty", quarantine=quarantine),
                    Text("inspect it, and move its files back to their places"),
                )
        for folder in folders:  # the journal itself is deleted last: its state file names the other folders
            if folder.is_dir() and not folder.is_symlink():
                self._remove_tree(folder)
            with contextlib.suppress(OSError):
                self.disk.remove_directory(folder.parent)  # .rmqstore, if it is empty now

    def _remove_tree(self, folder: Path) -> None:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == STATE):
            if entry.is_dir() and not entry.is_symlink():
                self._remove_tree(entry)
            else:
                self.disk.unlink(entry)
        self.disk.remove_directory(folder)

    def discard_pointer(self) -> None:
        """Delete only what the store has of a journal: its pointer and its quarantine. Errors: OSError."""
        folder = self.store / JOURNAL_FOLDER
        for entry in _entries(folder):
            if (_pointer(entry) or entry) == self.path:
                self._remove_tree(entry)
        with contextlib.suppress(OSError):
            self.disk.remove_directory(folder)

    def files(self) -> Iterator[Path]:
        """Yield every file in all folders of the journal; links are not followed."""
        for home in self._folders():
            for folder, _, names in os.walk(home):
                yield from (Path(folder) / name for name in names)

    def drop_staged(self) -> None:
        """Delete the contents of new/, which nothing needs after an undo."""
        for home in self.homes():
            if (home / NEW).is_dir():
                for entry in (home / NEW).iterdir():
                    if entry.is_dir():
                        self.disk.remove_directory(entry)
                    else:
                        self.disk.unlink(entry)


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
    return JournalFolder(path, paths.store, record, disk)


def _homes(paths: PlanPaths, plan: Plan, name: str, outside: Path | None) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """Return the homes of a new journal, and the index of each step's home if it is not 0; see `JournalState`."""
    homes = [""]
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


def open_folder(path: Path, disk: Disk | None = None) -> JournalFolder:
    """Open the journal at a path, or the one that the folder at this path points to; `disk` changes it.

    Errors: NotAStore if there is none; Refused if it is missing (also if `path` is its store), or if its store has no
    pointer to it.
    """
    disk = disk or Disk()
    place = real_path(path)
    pointer = _pointer(place)
    if pointer is not None:
        if not pointer.is_dir():
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
    if place.parent.name == JOURNAL_FOLDER:
        return JournalFolder(place, place.parent.parent, record, disk)
    store = Path(record.store)
    if record.state is not State.PREPARING and _pointer(store / JOURNAL_FOLDER / place.name) != place:
        raise Refused(
            Text("{store} has no pointer to the journal {place}", store=store, place=place),
            Text("name the store's own folder below .rmqstore"),
        )
    return JournalFolder(place, store, record, disk)


def missing_journal(journal: Path, store: Path) -> Refused:
    """Return the error for a journal that a store refers to, but that is not there or has no readable state file."""
    prune = f"rmqstore journals {shlex.quote(str(store))} --prune --missing --apply"
    kept = store / JOURNAL_FOLDER / journal.name / QUARANTINE
    return Refused(
        Text(
            "the journal {journal} is missing or damaged: without it, its repair can be neither undone nor resumed",
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


def list_folders(store: Path, disk: Disk) -> list[JournalFolder]:
    """Return all journals of a store, oldest first, including unstarted and missing ones."""
    folders = []
    for entry in _entries(store / JOURNAL_FOLDER):
        place = _pointer(entry) or entry
        record = _read_record(place)
        if record is None:
            unstarted = place == entry and _is_unstarted(place)
            record = JournalState(State.PREPARING if unstarted else State.MISSING, str(store))
        folders.append(JournalFolder(place, store, record, disk))
    return folders


def _is_unstarted(folder: Path) -> bool:
    """Return whether a folder without a state file is a leftover of a killed `make` or `discard`."""
    if any((folder / name).exists() for name in (STATE, PLAN, UNDO_LOG, POINTER)):
        return False
    try:
        return not any((folder / QUARANTINE).iterdir())
    except FileNotFoundError:  # there is none, or another process is deleting the folder
        return True


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return []


def _pointer(folder: Path) -> Path | None:
    try:
        text = (folder / POINTER).read_text(errors="surrogateescape")
    except (OSError, ValueError):
        return None
    return Path(text) if text.startswith("/") and "\0" not in text else None


def _read_record(folder: Path) -> JournalState | None:
    try:
        row = json.loads((folder / STATE).read_bytes())
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
        home in ("", tail) or (home.startswith("/") and home.endswith(f"/{tail}")) for home in record.homes
    )
    return record if sound and type(record.batches_done) is int else None


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user can still write to a file system."""
    return shutil.disk_usage(folder).free


Progress = Callable[[int, int], None]
"""Called after every batch with (batches done, batches in all)."""
