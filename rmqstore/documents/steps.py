"""The steps of a plan, and the rules for valid steps and combinations.

Paths are POSIX paths relative to the store; files in other data paths have absolute paths below one of the plan's
roots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, TypeAlias, TypeVar

from rmqstore.documents.content import MAX_FILE_SIZE, Content, Zeros, is_fingerprint
from rmqstore.errors import BrokenPlan
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.texts import Text

_NOTHING = Zeros(0)


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace bytes of a file without changing its size; `expect` is the hash of the old bytes."""

    do: ClassVar[str] = "overwrite"
    path: str
    at: int
    content: Content
    expect: str
    why: str = ""

    @property
    def length(self) -> int:
        return self.content.size


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut off the end of a file; `expect` is the hash of the bytes cut off."""

    do: ClassVar[str] = "truncate"
    path: str
    from_size: int
    to_size: int
    expect: str
    why: str = ""

    @property
    def at(self) -> int:
        return self.to_size

    @property
    def length(self) -> int:
        return self.from_size - self.to_size


@dataclass(frozen=True, slots=True)
class Extend:
    """Append `content` to a file, then zeros up to `to_size`."""

    do: ClassVar[str] = "extend"
    path: str
    from_size: int
    to_size: int
    content: Content = _NOTHING
    why: str = ""

    @property
    def at(self) -> int:
        return self.from_size

    @property
    def length(self) -> int:
        return self.to_size - self.from_size


@dataclass(frozen=True, slots=True)
class Create:
    """Create a file of `size` bytes: `content`, then zeros. Owner, mode and times come from the file `like`."""

    do: ClassVar[str] = "create"
    path: str
    size: int
    content: Content
    like: str | None = None
    why: str = ""

    @property
    def length(self) -> int:
        return self.size


@dataclass(frozen=True, slots=True)
class Discard:
    """Move a file, a link, or a directory with everything in it into quarantine.

    `expect` is the result of `plan_builder.fingerprint_entry`.
    """

    do: ClassVar[str] = "discard"
    path: str
    expect: str
    why: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Create a directory; owner and mode come from the directory `like`, or from its parent."""

    do: ClassVar[str] = "make-directory"
    path: str
    like: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RemoveEmptyDirectory:
    """Move an empty directory into quarantine."""

    do: ClassVar[str] = "remove-empty-directory"
    path: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Rename a file, in its own directory, to a name that is not an offset, until a Rename gives it the right one.

    A broker that is started in between does not see a gap and act on it: the name makes it stop with a
    NumberFormatException before it recovers anything.
    """

    do: ClassVar[str] = "set-aside"
    path: str
    expect: str
    why: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a file that was set aside the name `path`; `source` is its old name, in the same directory."""

    do: ClassVar[str] = "rename"
    path: str
    source: str
    why: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a file for ever: nothing of it is kept, so that this frees space on a full disk, and cannot be undone.

    A plan with such steps has no others. They are executed in the order of the plan.
    """

    do: ClassVar[str] = "delete"
    path: str
    expect: str
    why: str = ""
    length: int = 0


InPlace: TypeAlias = Overwrite | Truncate | Extend
WithContent: TypeAlias = Overwrite | Create | Extend
MoveIn: TypeAlias = Create | MakeDirectory | Rename
MoveOut: TypeAlias = Discard | RemoveEmptyDirectory | SetAside
Step: TypeAlias = InPlace | MoveIn | MoveOut | Delete
S = TypeVar("S", bound=Step)

PHASES: tuple[type[Step], ...] = (
    *(Discard, RemoveEmptyDirectory, SetAside, Rename),
    *(MakeDirectory, Create, Overwrite, Truncate, Extend),
    Delete,
)
"""The order in which kinds of steps are executed."""


JSON_FIELDS: Mapping[type[Step], Mapping[str, str]] = {
    Overwrite: {"at": "at", "length": "length", "expect": "expect"},
    Truncate: {"from": "from_size", "to": "to_size", "expect": "expect"},
    Extend: {"from": "from_size", "to": "to_size"},
    Create: {"size": "size", "like": "like"},
    Discard: {"expect": "expect", "length": "length"},
    SetAside: {"expect": "expect", "length": "length"},
    Delete: {"expect": "expect", "length": "length"},
    Rename: {"source": "source", "length": "length"},
    MakeDirectory: {"like": "like"},
    RemoveEmptyDirectory: {},
}
"""The keys of a step in JSON in addition to do, path, content and why, with the attributes."""


@dataclass(frozen=True, slots=True)
class Span:
    """Damaged bytes to be saved as `lost+found/NAME` before a repair covers them."""

    path: str
    at: int
    length: int
    name: str
    why: str = ""


def check_path(path: str, store: str, roots: Iterable[str]) -> None:
    """Refuse a path outside the store and the roots, or one that no step may touch. Errors: BrokenPlan."""
    pure = PurePosixPath(path)
    inside: tuple[str, ...] | None = None
    if pure.is_absolute():
        if PurePosixPath(store) == pure or PurePosixPath(store) in pure.parents:
            raise BrokenPlan(Text("plan: {path!r} is inside the store, so its path must be relative to it", path=path))
        for root in roots:
            if PurePosixPath(root) in pure.parents:
                inside = pure.relative_to(root).parts
    else:
        inside = pure.parts
    if not inside or ".." in pure.parts or "\0" in path or str(pure) != path:
        raise BrokenPlan(Text("plan: path {path!r} leaves the store", path=path))
    if any(0xD800 <= ord(char) < 0xDC80 or 0xDCFF < ord(char) < 0xE000 for char in path):
        raise BrokenPlan(Text("plan: path {path!r} is not a file name", path=path))
    if JOURNAL_FOLDER in inside or inside == ("lock",):
        raise BrokenPlan(Text("plan: no step may touch {path!r}", path=path))


def check_step(step: Step) -> None:
    """Refuse invalid sizes, positions and hashes. Errors: BrokenPlan."""
    sizes: list[int] = []
    if isinstance(step, Overwrite):
        sizes = [step.at, step.length, step.at + step.length]
        if step.length == 0:
            raise BrokenPlan(Text("plan: the overwrite of {path} at {at} is empty", path=step.path, at=step.at))
    elif isinstance(step, Truncate):
        sizes = [step.to_size]  # before the repair, a damaged file may have any length
        if step.to_size >= step.from_size:
            raise BrokenPlan(Text("plan: the truncate of {path} does not shorten it", path=step.path))
    elif isinstance(step, Extend):
        sizes = [step.from_size, step.to_size]
        if step.to_size <= step.from_size or step.content.size > step.length:
            raise BrokenPlan(
                Text("plan: the extend of {path} does not lengthen it, or is shorter than its content", path=step.path)
            )
    elif isinstance(step, Create):
        sizes = [step.size]
        if step.content.size > step.size:
            raise BrokenPlan(Text("plan: the content of {path} is larger than its size", path=step.path))
    if any(not 0 <= size <= MAX_FILE_SIZE for size in sizes):
        raise BrokenPlan(Text("plan: a size or position of {path} is out of range", path=step.path))
    if isinstance(step, Rename) and PurePosixPath(step.path).parent != PurePosixPath(step.source).parent:
        raise BrokenPlan(
            Text("plan: {source} would leave its directory for {path}", source=step.source, path=step.path)
        )
    if isinstance(step, Overwrite | Truncate | Discard | SetAside | Delete) and not is_fingerprint(step.expect):
        raise BrokenPlan(
            Text("plan: {path}: expect must be sha256:, blake2b: or runs: followed by 64 hex digits", path=step.path)
        )


def check_together(steps: Sequence[Step]) -> None:
    """Refuse steps that conflict: every `expect` refers to the bytes before the first step. Errors: BrokenPlan."""
    deleted = _by_path(step for step in steps if isinstance(step, Delete))
    if deleted and len(deleted) != len(steps):
        raise BrokenPlan(Text("plan: it deletes files for ever, and has other steps, too"))
    _check_renames(steps)
    out = _by_path(step for step in steps if isinstance(step, MoveOut))
    made = _by_path(step for step in steps if isinstance(step, MoveIn))
    resized = _by_path(step for step in steps if isinstance(step, Truncate | Extend))
    limits = {path: min(step.from_size, step.to_size) for path, step in resized.items()}
    ranges: dict[str, list[tuple[int, int]]] = {path: [] for path in limits}
    for step in steps:
        if isinstance(step, Overwrite):
            ranges.setdefault(step.path, []).append((step.at, step.at + step.length))
    for path in ranges:
        if (path in out or path in made) and not isinstance(made.get(path), Rename):
            raise BrokenPlan(Text("plan: {path} is changed and also created or discarded", path=path))
        end = 0
        for start, stop in sorted(ranges[path]):
            if start < end or stop > limits.get(path, stop):
                raise BrokenPlan(Text("plan: steps on {path} overlap at byte {start}", path=path, start=start))
            end = stop
    _check_parents(steps, out, made)


def _by_path(steps: Iterable[S]) -> dict[str, S]:
    """Return steps of one kind by their paths. Errors: BrokenPlan if two have the same path."""
    found: dict[str, S] = {}
    for step in steps:
        if found.setdefault(step.path, step) is not step:
            raise BrokenPlan(Text("plan: {path} has two steps of the same kind", path=step.path))
    return found


def _check_parents(steps: Sequence[Step], out: Mapping[str, MoveOut], made: Mapping[str, MoveIn]) -> None:
    """Refuse steps below a file, and below a directory that is removed and not made again."""
    for step in steps:
        for parent in map(str, PurePosixPath(step.path).parents):
            above = out.get(parent)
            emptied = isinstance(above, RemoveEmptyDirectory) and isinstance(step, Discard | RemoveEmptyDirectory)
            if isinstance(made.get(parent), Create | Rename) and not emptied:
                raise BrokenPlan(Text("plan: {path} lies below the file {parent}", path=step.path, parent=parent))
            if above is None:
                continue
            remade = isinstance(made.get(parent), MakeDirectory) and isinstance(step, Create | MakeDirectory)
            if not emptied and not remade:
                raise BrokenPlan(
                    Text("plan: {path} lies below {parent}, which is removed", path=step.path, parent=parent)
                )


def _check_renames(steps: Sequence[Step]) -> None:
    """Refuse renames unless every file that is set aside, and no other, gets exactly one new name."""
    aside = sorted(step.path for step in steps if isinstance(step, SetAside))
    renamed = sorted(step.source for step in steps if isinstance(step, Rename))
    if aside != renamed or len(set(aside)) != len(aside):
        wrong = min({*aside} ^ {*renamed}, default=aside[0] if aside else "")
        raise BrokenPlan(Text("plan: {wrong} must be set aside once, and renamed once", wrong=wrong))


def check_span(span: Span) -> None:
    """Refuse a span whose name is not a plain file name, or whose range is invalid. Errors: BrokenPlan."""
    if not span.name or span.name.startswith(".") or "/" in span.name or "\0" in span.name or len(span.name) > 200:
        raise BrokenPlan(Text("plan: {span!r} is not a valid name for a saved span", span=span.name))
    if span.at < 0 or not 0 < span.length <= MAX_FILE_SIZE:
        raise BrokenPlan(Text("plan: span {span} is out of range", span=span.name))
