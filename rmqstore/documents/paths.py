"""The paths of a plan: which files they name, and which directories outside of its store the user must have named."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create, MakeDirectory, Rename
from rmqstore.errors import NotAStore, Refused
from rmqstore.files.beneath import AS_NAMED, Beneath, EntryReader
from rmqstore.files.disk import existing, named_options, real_path
from rmqstore.files.users import JOURNAL_FOLDER
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
        if not is_within(directory, [store]):
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


def is_within(path: Path, directories: Iterable[Path]) -> bool:
    """Return whether a path is one of the directories, or in one."""
    return any(path == directory or directory in path.parents for directory in directories)


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
    disk: Beneath
    mounts: tuple[str, ...] = field(default=(), repr=False)

    @staticmethod
    def of(
        plan: Plan, disk: Beneath, store: Path | None = None, *, named: Collection[Path], again: str | None = None
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
        _refuse_unnamed([one for one in needed if not is_within(one.directory, own)], place, again)
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
            if not is_within(target, (self.store, *self.named)):
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
        places += [target for target in links if not is_within(self.store, [target])]
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
