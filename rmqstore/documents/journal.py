"""Journals of repairs as documents: where their folders are, how far they got, and what may be believed of them.

STORE/.rmqstore/TIME/state        how far apply or undo is; replaced atomically
                     plan.json    the plan; large contents are in new/
                     undo.log     before-images
                     new/N        the file that step N creates or the bytes it writes, complete before the first change
                     quarantine/  files and directories that were moved away
                     lost+found/  damaged spans that the repair covered
                     journal      only with --journal DIR: the path of the folder with everything else but new/ and
                                  quarantine/; on a full disk, only after the first file of it was deleted

Each other data path of the store, which may be on another file system, has such a folder for its own files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rmqstore.documents.content import Content, Json, content_from_json
from rmqstore.documents.paths import PlanPaths, is_within, status_of
from rmqstore.documents.plan import Plan, plan_from_json
from rmqstore.documents.steps import Delete
from rmqstore.errors import CouldNotCheck, NotAStore, Refused, RmqStoreError, UsageError
from rmqstore.files.beneath import AS_NAMED, Beneath, EntryReader, read_range
from rmqstore.files.disk import existing, named_options, real_path
from rmqstore.files.files import LOCAL, ForwardedFiles, LocalFile, OpenFile
from rmqstore.files.journals import POINTER, name_each_other, pointer_of
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.files.walk import entries_on_disk
from rmqstore.texts import Text

SCHEMA = "rmqstore.journal/1"
NEW, QUARANTINE, LOST_FOUND, MAKING = "new", "quarantine", "lost+found", "making"
STATE, PLAN, UNDO_LOG = "state", "plan.json", "undo.log"
MAX_PLAN = 1 << 30
"""Bytes of a plan, which contains the bytes that it will write."""
_MAX_STATE = 1 << 26
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


_NOTHING_TO_UNDO = (State.UNDONE, State.PREPARING, State.PRUNING)
UNFINISHED = (State.APPLYING, State.UNDOING, State.MISSING)


@dataclass(frozen=True, slots=True)
class JournalState:
    """The content of the state file.

    `homes` are the folders with a new/ and a quarantine/, `home_of` the index of the home of a step if it is not 0;
    see `Journal.home`. `staged`: a plan that was made in this folder is complete. `times_kept`
    is False if the times of changed files could not be restored. `unpointed`: the store, whose disk is full, has no
    pointer to this journal yet. `kept`: steps that will never be executed, because undo ended a deletion half-way.
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
    unpointed: bool = False
    kept: tuple[int, ...] = ()


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


class JournalFiles(ForwardedFiles):
    """Files of a journal, opened without following a link, also one that was set after they were listed."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(LOCAL)
        self._disk = journal.disk

    def open(self, path: Path) -> OpenFile:
        return LocalFile(path, self._disk.open_regular(path))


@dataclass(slots=True)
class Journal:
    """One journal on disk; `record` is the content of its state file."""

    path: Path
    store: Path
    record: JournalState
    disk: Beneath
    named: tuple[Path, ...] = ()
    """Directories outside of the store that the user gave."""

    def command(self, verb: str) -> str:
        """Return the command that undoes or resumes, with the same directories."""
        outside = [one for one in self.named if not is_within(one, [self.store])]
        if self.record.unpointed:
            outside.append(self.store)
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
    def making_mark(self) -> Path:
        """The file that identifies a command which makes its plan here; without it, nothing there is worth keeping."""
        return self.path / MAKING / "mark.json"

    @property
    def being_made(self) -> bool:
        """Whether `import --into` was interrupted while it made its plan here: run again, it continues."""
        return self.state is State.PREPARING and (self.record.staged or self.making_mark.is_file())

    @property
    def to_undo(self) -> bool:
        """Whether undo has something to take back: changes of the store, or what an unfinished import made."""
        return self.state not in _NOTHING_TO_UNDO or self.being_made

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
        own = pointer_of(self.in_store)
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
        if not is_within(base, [self.store]):
            self._refuse_of_original(home)
        beside = any(base == one.parent or is_within(base, [one]) for one in self.named)
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

    @property
    def own_homes(self) -> list[Path]:
        """The homes in the store, and those beside directories that the user named: nothing else is read."""
        found = []
        for home in self.homes():
            with contextlib.suppress(Refused, OSError):
                self._refuse_home(home)
                found.append(home)
        return found

    def regular(self, folder: Path) -> list[Path]:
        """Return the regular files in a folder of the journal, sorted by name; links are not followed."""
        try:
            paths = [folder / name for name in sorted(self.disk.list(folder))]
            return [path for path in paths if stat.S_ISREG(self.disk.status(path).st_mode)]
        except (Refused, OSError):
            return []

    def files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield every file in the folders of the journal with its status; links are not followed."""
        for folder in dict.fromkeys([*self.own_homes, self.in_store, self.path]):
            status = status_of(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                yield from (
                    (Path(entry.path), known)
                    for entry, known in entries_on_disk(folder)
                    if not stat.S_ISDIR(known.st_mode)
                )

    def refusal(self) -> RmqStoreError | None:
        """Return why undo and resume would refuse this journal at once; None if they would not."""
        try:
            self.refuse_untrusted()
            if self.state in (State.APPLYING, State.DONE, State.UNDOING):
                self.paths_of(self.load_plan(), Beneath(), "undo")
        except RmqStoreError as error:
            return error
        return None

    def paths_of(self, plan: Plan, disk: Beneath, verb: str) -> PlanPaths:
        """Return the paths of its plan. Errors: as `PlanPaths.of`; Refused for those of another store."""
        paths = PlanPaths.of(plan, disk, self.store, named=self.named, again=self.command(verb))
        for directory in paths.needed:
            self._refuse_of_original(directory)
        return paths

    def _refuse_of_original(self, directory: Path) -> None:
        """Refuse a directory outside of the store if the store is a copy, and its original is still there.

        The paths in the journal are those of the original. Errors: Refused.
        """
        original = real_path(Path(self.record.store))
        if original != self.store and (original / JOURNAL_FOLDER / self.name).exists():
            raise Refused(
                Text(
                    "{store} is a copy of {original}, to which {directory} belongs",
                    store=self.store,
                    original=original,
                    directory=directory,
                ),
                Text("name the journal in {original}", original=original),
            )

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
            plan = plan_from_json(text, read_content=content)
            if self.record.unpointed and not plan.deletes:
                raise UsageError(Text("only a journal of deletions may have no pointer"))
        except (OSError, UsageError) as error:
            raise CouldNotCheck(Text("{path} is damaged: {error}", path=self.path / PLAN, error=error)) from error
        return plan

    def deleted_of(self, plan: Plan) -> list[str]:
        """Return the paths of the files that this journal, whose plan it is, has deleted for ever.

        An unfinished deletion has none: it may still end with all files in place.
        """
        if self.state is not State.DONE:
            return []
        rows = enumerate(plan.steps)
        return [step.path for number, step in rows if isinstance(step, Delete) and number not in self.record.kept]

    @property
    def deleted(self) -> list[str]:
        """The paths of the files that it has deleted for ever; none if its plan cannot be read."""
        try:
            return self.deleted_of(self.load_plan()) if self.state is State.DONE else []
        except CouldNotCheck:
            return []


def open_journal(path: Path, disk: Beneath | None = None, named: Collection[Path] = ()) -> Journal:
    """Open the journal at a path, or the one that the folder at this path points to; `disk` changes it.

    `named`: directories outside of the store that the user gave.
    Errors: NotAStore if there is none; Refused if it is missing (also if `path` is its store), or if it and its store
    do not name each other.
    """
    disk = disk or Beneath()
    for link in (path, path.parent):
        if link.is_symlink() and JOURNAL_FOLDER in (path.name, path.parent.name):
            raise Refused(Text("{folder} must be a directory", folder=link), Text("move it away"))
    place = real_path(path)
    pointer = pointer_of(place)
    if pointer is not None:
        if not pointer.is_dir() or not _belongs(pointer, place):
            raise missing_journal(pointer, place.parent.parent)
        place = pointer
    record = _read_record(place)
    if record is None and place.parent.name == JOURNAL_FOLDER and place.is_dir() and _is_unstarted(place):
        record = JournalState(State.PREPARING, str(place.parent.parent))
    if record is None:
        without_effect = (State.PREPARING, State.UNDONE)
        known = [one for one in list_journals(place, disk=disk) if one.state not in without_effect]
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
        return Journal(place, place.parent.parent, record, disk, own)
    store = real_path(Path(record.store))
    back = pointer_of(store / JOURNAL_FOLDER / place.name)
    if record.state is not State.PREPARING and back != place:
        unnamed = record.unpointed and back is None  # whoever wrote the journal may have named any store in it
        if not (unnamed and store in own):
            advice = Text("name the store's own folder below .rmqstore")
            if unnamed:
                advice = Text("add{options}, if it is a journal of that store", options=named_options([store]))
            raise Refused(Text("{store} has no pointer to the journal {place}", store=store, place=place), advice)
    disk.allow(place.parent)
    if store.is_dir():
        disk.allow(store)
    return Journal(place, store, record, disk, own)


def _belongs(place: Path, entry: Path) -> bool:
    """Return whether the journal to which an entry of a store points names that store, and has the entry's name."""
    record = _read_record(place)
    return record is not None and name_each_other(place, record.store, entry)


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


def list_journals(store: Path, named: Collection[Path] = (), disk: Beneath | None = None) -> list[Journal]:
    """Return all journals of a store, oldest first, also unstarted and missing ones. `named`: as `open_journal`."""
    folders = []
    disk = disk or Beneath()
    own = tuple(real_path(one) for one in named)
    store = real_path(store)
    for entry in entries_of(store / JOURNAL_FOLDER):
        disk.allow(store)
        place = pointer if (pointer := pointer_of(entry)) is not None else entry
        record = _read_record(place) if pointer is None or _belongs(place, entry) else None
        if record is None and pointer is not None and _read_record(pointer) is not None:
            place = entry  # what it points to is not this journal, so nothing may be done to it
        if record is None:
            unstarted = place == entry and _is_unstarted(place)
            record = JournalState(State.PREPARING if unstarted else State.MISSING, str(store))
        elif pointer is not None:
            disk.allow(place.parent)
        folders.append(Journal(place, store, record, disk, own))
    return folders


def last_journal(store: Path) -> Journal:
    """Return the newest journal of a store that can be undone.

    Errors: NotAStore if there is none; Refused if it is missing.
    """
    for folder in reversed(list_journals(store)):
        if folder.state is State.MISSING:
            raise missing_journal(folder.path, folder.store)
        if folder.to_undo:
            return folder
    raise NotAStore(
        Text("{store} has no repair to undo", store=store), Text("`rmqstore journals` lists the journals of a store")
    )


def find_unfinished(store: Path, named: Collection[Path] = ()) -> list[Journal]:
    """Return the journal whose apply or undo is unfinished (at most one), and journals that are missing. Reads only.

    `named`: as for `list_journals`.
    """
    return [folder for folder in list_journals(store, named) if folder.unfinished]


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


def entries_of(folder: Path) -> list[Path]:
    if folder.is_symlink():
        return []
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return []


def _read_record(folder: Path) -> JournalState | None:
    try:
        row = json.loads(LOCAL.read_small(folder / STATE, _MAX_STATE))
        if not isinstance(row, dict) or row.pop("schema", None) != SCHEMA:
            return None
        row["state"] = State(row["state"])
        row["homes"] = tuple(str(home) for home in row["homes"])
        row["kept"] = tuple(row.get("kept", ()))
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
    sound = sound and all(type(number) is int and 0 <= number < record.steps for number in record.kept)
    sound = sound and isinstance(record.store, str) and "\0" not in record.store
    return record if sound and len(record.homes) > 0 else None
