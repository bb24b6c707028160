"""A copy of a store by links, in the folder of a journal, for a command that works like a broker.

What the command writes there, `append` writes into files of its own: a link is replaced before the first write. The
difference between copy and store is then a plan, which the journal applies like any other. Until that begins, the store
is unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqstore.append.disk import is_unfinished_copy
from rmqstore.documents.content import Literal, Zeros
from rmqstore.documents.journal import MAKING
from rmqstore.documents.paths import PlanPaths, status_of
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create, Discard, MakeDirectory, Overwrite, Step
from rmqstore.errors import Refused
from rmqstore.files.beneath import AS_NAMED, read_runs, refuse_deep
from rmqstore.files.disk import real_path
from rmqstore.files.lock import LOCK_NAME
from rmqstore.files.reading import next_data
from rmqstore.files.users import JOURNAL_FOLDER, Snapshot
from rmqstore.files.walk import entries_on_disk
from rmqstore.repair.journal.folder import JournalFolder, Made
from rmqstore.repair.plan.plan_builder import fingerprint_entry, fingerprint_range
from rmqstore.texts import Text

_WRITTEN = ("commitlog", "consumequeue", "batchconsumequeue", "index", "config")
"""The directories of a store that an append writes to, besides those of DLedger."""
_COPIED = ("abort", "checkpoint")
_BLOCK = 1 << 16
_SMALL = 4096


def fingerprint_of(files: Snapshot) -> str:
    """Hash identity, size and mtime of all files of a store: equal if nothing has changed it."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def plan_to_start(store: Path, directories: Iterable[Path]) -> Plan:
    """Return a plan that is never applied, with one step in each place where a copy may have files of its own.

    `directories`: those of the log. The first step is in the store itself; others are below a link at its top, or in
    another data path.
    """
    inside = [real_path(store), store.absolute()]
    outside = [path.absolute() for path in directories if not any(place in path.absolute().parents for place in inside)]
    linked = [entry.name for entry in sorted(store.iterdir()) if _is_written(entry.name) and entry.is_symlink()]
    names = ["new", *(f"{name}/new" for name in linked), *(f"{path.as_posix()}/new" for path in outside)]
    steps = tuple(Create(name, 0, Zeros(0)) for name in names)
    return Plan(store.absolute().as_posix(), steps, roots=tuple(path.as_posix() for path in outside))


def _is_written(name: str) -> bool:
    return name in _WRITTEN or name.startswith("dledger-")


@dataclass(frozen=True, slots=True)
class _Tree:
    """A directory with a copy: `name` as in a plan, `own` on disk, `copy` its copy."""

    name: str
    own: Path
    copy: Path

    def path(self, name: str) -> str:
        return f"{self.name}/{name}" if self.name else name


class LinkedCopy:
    """The copy in a journal's folder; `begin` is the result of `plan_to_start`. Errors: OSError."""

    def __init__(self, folder: JournalFolder, begin: Plan, paths: PlanPaths) -> None:
        self._folder = folder
        self._trees = []
        for number, step in enumerate(begin.steps):
            name = step.path.rpartition("/")[0]
            copy = folder.home(number) / MAKING / f"{number}"
            self._trees.append(_Tree(name, paths.locate(step.path).parent, copy))

    @property
    def root(self) -> Path:
        """The root of the copy."""
        return self._trees[0].copy

    def directories(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        """Return the copies of directories of the log."""
        copies = []
        for path in paths:
            real = real_path(path)
            tree = next(tree for tree in reversed(self._trees) if tree.own == real or tree.own in real.parents)
            copies.append(tree.copy / real.relative_to(tree.own))
        return tuple(copies)

    def make(self) -> None:
        """Make it, in place of what an interrupted run has left; everything is durable on return."""
        disk = self._folder.disk
        self._folder.drop_making()
        folders: list[Path] = []
        top = {tree.name: tree.copy for tree in self._trees}
        for tree in self._trees:
            missing = [place for place in (tree.copy, *tree.copy.parents) if not place.exists()]
            for place in reversed(missing):
                disk.make_directory(place)
                folders += [place, place.parent]
            if tree.name:
                self._link_all(tree.own, tree.copy, folders, 0)
        store = self._trees[0]
        for entry in sorted(os.scandir(store.own), key=lambda entry: entry.name):
            copy = store.copy / entry.name
            if entry.name in (JOURNAL_FOLDER, LOCK_NAME):
                continue
            if entry.name in top:
                disk.make_link(copy, top[entry.name])
            elif entry.name in _COPIED and entry.is_file(follow_symlinks=False):
                self._copy(Path(entry.path), copy)
            elif _is_written(entry.name) and entry.is_dir(follow_symlinks=False):
                disk.make_directory(copy)
                folders.append(copy)
                self._link_all(Path(entry.path), copy, folders, 0)
            else:
                disk.make_link(copy, Path(entry.path))
        disk.fsync_all((), list(dict.fromkeys(folders)))

    def _link_all(self, own: Path, copy: Path, folders: list[Path], level: int) -> None:
        refuse_deep(own, level)
        disk = self._folder.disk
        for entry in os.scandir(own):
            if entry.name == JOURNAL_FOLDER:
                continue
            if entry.is_dir(follow_symlinks=False):
                disk.make_directory(copy / entry.name)
                folders.append(copy / entry.name)
                self._link_all(Path(entry.path), copy / entry.name, folders, level + 1)
            else:
                disk.make_link(copy / entry.name, Path(entry.path))

    def _copy(self, own: Path, copy: Path) -> None:
        disk = self._folder.disk
        descriptor = disk.open_new(copy)
        try:
            disk.write_at(descriptor, own.read_bytes(), 0)
            disk.fsync(descriptor)
        finally:
            os.close(descriptor)

    def drop_unfinished(self) -> None:
        """Delete what a killed run has left of a file that it was copying."""
        for tree in self._trees:
            for entry, _ in entries_on_disk(tree.copy):
                if is_unfinished_copy(Path(entry.path)):
                    self._folder.disk.unlink(Path(entry.path))

    def steps(self, why: str) -> Iterator[Step]:
        """Yield the steps that make the store equal to its copy.

        Errors: Refused if files with data would go, except those that a new index or configuration replaces.
        """
        for tree in self._trees:
            yield from self._steps(tree, why, 0)

    def _steps(self, tree: _Tree, why: str, level: int) -> Iterator[Step]:
        refuse_deep(tree.copy, level)
        top = tree.name == ""
        new = {entry.name: entry for entry in os.scandir(tree.copy)}
        old = {entry.name: entry for entry in os.scandir(tree.own)} if tree.own.is_dir() else {}
        like = next((tree.path(name) for name in sorted(old) if old[name].is_file(follow_symlinks=False)), None)
        for name in sorted(new.keys() | old.keys()):
            if name == JOURNAL_FOLDER or (top and name == LOCK_NAME):
                continue
            made, own, path = tree.copy / name, tree.own / name, tree.path(name)
            if name not in new:
                yield self._discarded(path, own, why)
            elif new[name].is_symlink() and _leads_to(made, own, self._trees):
                continue
            elif new[name].is_dir(follow_symlinks=False):
                if name not in old:
                    yield MakeDirectory(path, None, why)
                yield from self._steps(_Tree(path, own, made), why, level + 1)
            else:
                yield from _changed(path, made, own, like, why)

    def _discarded(self, path: str, own: Path, why: str) -> Discard:
        top = path.partition("/")[0]
        status = own.lstat()
        if top not in ("index", "config", "abort") and not _is_blank(own, status):
            raise Refused(
                Text("{path} would not be part of the store any more", path=path), Text("run `rmqstore verify` first")
            )
        sparse = stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < status.st_size
        expect = fingerprint_entry(own, "runs:" if sparse else "sha256:")
        return Discard(path, expect, why, status.st_size)


def _leads_to(link: Path, own: Path, trees: Sequence[_Tree]) -> bool:
    target = link.readlink()
    return target == own or any(target == tree.copy for tree in trees)


def _is_blank(path: Path, status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    return all(isinstance(piece, int) or not any(piece) for piece in read_runs(path, 0, status.st_size))


def _changed(path: str, made: Path, own: Path, like: str | None, why: str) -> Iterator[Step]:
    """Yield the steps that give a file the bytes of its copy, or create it."""
    whole = not made.is_symlink()
    made = real_path(made)  # a hard link to a link has the content of another file
    size, before = made.stat().st_size, status_of(own)
    if before is not None and stat.S_ISREG(before.st_mode) and before.st_size == size:
        for at, stop in differences(own, made, size):
            content = Made(made, stop - at, at)
            small = Literal(content.read(stop - at, 0)) if stop - at <= _SMALL else content
            yield Overwrite(path, at, small, fingerprint_range(own, at, stop - at), why)
        return
    if before is not None:
        yield Discard(path, fingerprint_entry(own), why, before.st_size)
        like = path
    yield Create(path, size, Made(made, size, whole=whole), like, why)


def differences(one: Path, other: Path, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges in which two files of this size differ; those that almost meet are joined."""
    begin = end = at = 0
    with AS_NAMED.opened(one) as a, AS_NAMED.opened(other) as b:
        while (at := min(next_data(a, at, size)[0], next_data(b, at, size)[0])) < size:
            length = min(_BLOCK - at % _BLOCK, size - at)
            first, second = (np.frombuffer(os.pread(fd, length, at).ljust(length, b"\0"), np.uint8) for fd in (a, b))
            different = np.flatnonzero(first != second)
            if len(different):
                low, high = at + int(different[0]), at + int(different[-1]) + 1
                if end and low - end < _SMALL:
                    end = high
                else:
                    if end:
                        yield begin, end
                    begin, end = low, high
            at += length
    if end:
        yield begin, end
