"""Maps the paths of a plan to files on this machine: links, file systems, and places for journal folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rmqstore.errors import NotAStore, Refused
from rmqstore.files.disk import real_path
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.repair.plan.plan import Plan
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


def existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    while not path.exists() and path.parent != path:
        path = path.parent
    return path


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
