"""Journals of repairs, written: making, saving and removing the folders that `documents.journal` describes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rmqstore.documents.content import Content, Json, content_to_json
from rmqstore.documents.journal import (
    MAKING,
    NEW,
    PLAN,
    QUARANTINE,
    SCHEMA,
    STATE,
    Journal,
    JournalState,
    Staged,
    State,
    entries_of,
    list_journals,
    open_journal,
)
from rmqstore.documents.paths import PlanPaths, status_of
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Delete, InPlace, Rename, SetAside
from rmqstore.errors import Refused, UsageError
from rmqstore.files.beneath import read_range, read_runs
from rmqstore.files.disk import existing, is_full, real_path
from rmqstore.files.journals import POINTER, pointer_of
from rmqstore.files.trees import remove_tree
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.repair.journal.disk import Disk
from rmqstore.texts import Text

_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z(-2)*")


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
class JournalFolder(Journal):
    """A journal that `disk` writes."""

    disk: Disk

    @staticmethod
    def of(journal: Journal, disk: Disk) -> JournalFolder:
        """Return a journal that was read through `disk`, to be written."""
        return JournalFolder(journal.path, journal.store, journal.record, disk, journal.named)

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

    def make(self, *, point: bool = True) -> None:
        """Create the folders, the first state file, and for a journal outside the store the pointer to it.

        `point`: whether the store needs the pointer at once.
        """
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
            try:
                self._point()
            except OSError as error:
                if point or not is_full(error):
                    raise
                self.save(unpointed=True)

    def _point(self) -> None:
        """Make the pointer in the store. Errors: OSError; what was made of it is removed then, if that is possible."""
        try:
            self._make_folder(self.in_store.parent)
            self._make_folder(self.in_store)
            new = self.in_store / f"{POINTER}.new"
            self.write(new, str(self.path).encode(errors="surrogateescape"))
            self.disk.rename(new, self.in_store / POINTER)
            self.disk.fsync_directory(self.in_store)
            self.disk.fsync_directory(self.in_store.parent)
            self.disk.fsync_directory(self.store)
        except OSError:
            with contextlib.suppress(OSError):
                if status_of(self.in_store, self.disk) is not None:
                    remove_tree(self.in_store, self.disk, last=STATE)
                self.disk.remove_directory(self.in_store.parent)
            raise

    def point_if_there_is_room(self) -> bool:
        """Make the pointer of a journal that is `unpointed`; return whether the store has it. Errors: OSError."""
        if not self.record.unpointed:
            return True
        try:
            self._point()
        except OSError as error:
            if is_full(error):
                return False
            raise
        self.save(unpointed=False)
        return True

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
                remove_tree(folder, self.disk, last=STATE)
            with contextlib.suppress(OSError):
                self.disk.remove_directory(folder.parent)  # .rmqstore, if it is empty now

    def discard_pointer(self) -> None:
        """Delete only what the store has of a journal: its pointer and its quarantine. Errors: OSError."""
        folder = self.store / JOURNAL_FOLDER
        for entry in entries_of(folder):
            if self.path in (entry, pointer_of(entry)):
                remove_tree(entry, self.disk, last=STATE)
        with contextlib.suppress(OSError):
            self.disk.remove_directory(folder)

    @property
    def making(self) -> Path:
        """The folder in which a command makes its plan."""
        return self.path / MAKING

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
                remove_tree(home / MAKING, self.disk, last=STATE)

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
    taken = [entry.name for entry in entries_of(paths.store / JOURNAL_FOLDER)]
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
        taken += [entry.name for entry in entries_of(outside) if _NAME.fullmatch(entry.name)]
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
        if isinstance(step, InPlace | SetAside | Rename | Delete):  # these move no file to or from a journal folder
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


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user can still write to a file system."""
    return shutil.disk_usage(folder).free


Progress = Callable[[int, int], None]
"""Called after every batch with (batches done, batches in all)."""


def open_folder(path: Path, disk: Disk | None = None, named: Collection[Path] = ()) -> JournalFolder:
    """Open a journal for writing. Errors: as `open_journal`."""
    disk = disk or Disk()
    return JournalFolder.of(open_journal(path, disk, named), disk)


def list_folders(store: Path, disk: Disk, named: Collection[Path] = ()) -> list[JournalFolder]:
    """Open all journals of a store for writing, as `list_journals`."""
    return [JournalFolder.of(journal, disk) for journal in list_journals(store, named, disk)]
