"""Collects the steps, losses, notes and decisions of all planners of one store into a plan.

Fingerprints are hashes of ranges, files and directories on disk, which a plan expects to find unchanged. `sha256:`
hashes all bytes of a range; `runs:` hashes bytes and counts zeros, so that holes cost nothing.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.documents.content import Content, Json, Literal, RunningFingerprint, Zeros, fingerprint
from rmqstore.documents.plan import Loss, Plan
from rmqstore.documents.steps import (
    Create,
    Delete,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Span,
    Step,
    Truncate,
)
from rmqstore.errors import NotReadable, Refused
from rmqstore.files.beneath import AS_NAMED, EntryReader, read_range, read_runs, refuse_deep
from rmqstore.files.disk import real_path
from rmqstore.files.files import LOCAL
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import Store
from rmqstore.scan.units import last_nonzero_in
from rmqstore.texts import Text, many
from rmqstore.texts import first_few as first_few


def fingerprint_range(path: Path, at: int, length: int, like: str = "sha256:", entries: EntryReader = AS_NAMED) -> str:
    """Hash `[at, at + length)` of a file: the `expect` of an Overwrite or a Truncate."""
    read = read_runs if like.startswith("runs:") else read_range
    return fingerprint(read(path, at, length, entries), like)


def fingerprint_entry(path: Path, like: str = "sha256:", entries: EntryReader = AS_NAMED, *, level: int = 0) -> str:
    """Hash what a Discard moves: a file's bytes, a link's target, or all names and hashes below a directory.

    Errors: FileNotFoundError; Refused for devices, pipes and sockets, and for directories that are too deep.
    """
    status = entries.status(path)
    if stat.S_ISREG(status.st_mode):
        return fingerprint_range(path, 0, status.st_size, like, entries)
    running = RunningFingerprint(like)
    if stat.S_ISLNK(status.st_mode):
        running.update(b"link\0" + os.fsencode(entries.target(path)))
    elif stat.S_ISDIR(status.st_mode):
        refuse_deep(path, level)
        running.update(b"directory\0")
        for name in sorted(entries.list(path)):
            kind = kind_of(entries.status(path / name))
            row = f"{kind}\0{name}\0{fingerprint_entry(path / name, like, entries, level=level + 1)}\0"
            running.update(os.fsencode(row))
    else:
        raise Refused(Text("{path} is a special file", path=path), Text("move it away by hand"))
    return running.text


def kind_of(status: os.stat_result) -> str:
    """Return a word for messages: file, directory, link, or special file."""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return Text("link") if stat.S_ISLNK(status.st_mode) else Text("special file")


WRONG_PLACES = "wrong_places"
"""Name of the fact of a plan with the places that headers of records have which it corrects."""
DAMAGED = "damaged"
"""Name of the fact of a plan that lists messages that stay in the log with damaged properties."""


@dataclass(slots=True)
class PlanBuilder:
    """The steps and facts of a plan so far. Reads the store, writes nothing.

    `ends`: the maximum offsets that queues (`TOPIC/ID`) will have if the plan changes them. `gaps`: the ranges of queue
    offsets without a message in rebuilt queues. `strays` counts the ranges of queue offsets in their records that are
    impossible, and get no unit, per problem code. `unread` are queues with messages in the log that consumers do not
    get, because another one has their queue offset, or because it is impossible. `unproved` counts the findings per
    problem code that stay because nothing proves the right bytes. `gone` and `made` are the paths, as in the plan, that
    steps move away and create. `linked` counts files to be deleted that have another name. `root` is the store's
    absolute path, with its links.
    """

    store: Store
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    lost_bytes: int = 0
    more: dict[str, Json] = field(default_factory=dict)
    facts: dict[str, Json] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    strays: Counter[str] = field(default_factory=Counter)
    unread: set[str] = field(default_factory=set)
    unproved: Counter[str] = field(default_factory=Counter)
    gone: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    linked: int = 0
    root: Path = field(init=False)
    _left: set[str] = field(default_factory=set)  # current names of discarded files

    def __post_init__(self) -> None:
        self.root = absolute_path(self.store.root)

    def path(self, path: Path) -> str:
        """Return a file's path as in a plan: relative to the root, or absolute in another data path.

        For a file that the plan renames, this is the new path.
        """
        return self.name(self.store.moved.get(path, path))

    def name(self, path: Path) -> str:
        """Return a path as in a plan, regardless of renames."""
        absolute = absolute_path(path)
        try:
            return absolute.relative_to(self.root).as_posix()
        except ValueError:
            return absolute.as_posix()

    def _expect(self, path: Path, work: Callable[[], str]) -> str:
        """Return the fingerprint that `work` makes; of nothing if the store has the file only through other steps."""
        planned = not LOCAL.has_entry(path) and self.store.files.has_entry(path)
        return fingerprint(b"") if planned else readable(path, work)

    def locate(self, path: str) -> Path:
        """Return the file that a path of the plan names."""
        return self.root / path

    def is_gone(self, path: Path) -> bool:
        """Return whether a step moves away this path, or a directory above it."""
        return bool(self.gone) and any(self.path(p) in self.gone for p in (path, *path.parents))

    def add(self, step: Step) -> None:
        """Add a step. Errors: Refused if a pipe or a device is where a new file belongs."""
        if isinstance(step, Create) and step.path not in self.gone:
            self._refuse_special(self.locate(step.path), step.path, Text("a file"))
        self.steps.append(step)
        if isinstance(step, Discard | RemoveEmptyDirectory | Delete):
            self.gone.add(step.path)
        elif isinstance(step, Create | MakeDirectory):
            self.made.add(step.path)

    def overwrite(self, path: Path, at: int, content: Content | bytes, why: str) -> None:
        """Replace bytes of a file; `at` is a position in it."""
        content = Literal(content) if isinstance(content, bytes) else content
        if content.size:
            expect = self._expect(path, lambda: fingerprint_range(path, at, content.size))
            self.add(Overwrite(self.path(path), at, content, expect, why))

    def zero(self, path: Path, at: int, length: int, why: str) -> None:
        """Replace bytes by zeros."""
        self.overwrite(path, at, Zeros(length), why)

    def zero_from(self, file: MappedFile, at: int, why: str, unit: int = 1) -> None:
        """Zero a file from position `at` to its last data; `unit` is the size of its units, bytes."""
        last = last_nonzero_in(file, unit)
        if last is not None and last >= at:
            self.zero(file.path, at, last + unit - at, why)

    def cut(
        self, files: Iterable[MappedFile], end: int, why: str, unit: int = 1, *, keep: MappedFile | None = None
    ) -> None:
        """Zero files from a global offset on, and discard those that begin there or after it, except the one to `keep`.

        `unit` is the size of their units, bytes. Files that a step moves away are left out.
        """
        for file in files:
            if file.stop <= end or self.path(file.path) in self.gone:
                continue
            if file.start >= end and file is not keep:
                self.discard(file.path, why)
            else:
                self.zero_from(file, end - file.start, why, unit)

    def extend(self, path: Path, length: int, size: int, content: Content, why: str) -> None:
        """Append `content` to a file of `length` bytes, then zeros up to `size`.

        An earlier stage may have planned to append only zeros: this replaces its step.
        """
        name = self.path(path)
        self.steps = [s for s in self.steps if not (isinstance(s, Extend) and s.path == name)]
        self.add(Extend(name, length, size, content, why))

    def resize(self, path: Path, length: int, size: int, why: str) -> None:
        """Truncate a file from `length` to `size` bytes, or extend it with zeros."""
        name = self.path(path)
        if length > size:
            expect = self._expect(path, lambda: fingerprint_range(path, size, length - size, _hash_for(path)))
            self.add(Truncate(name, length, size, expect, why))
        elif length < size:
            self.extend(path, length, size, Zeros(0), why)

    def discard(self, path: Path, why: str) -> None:
        """Move a file, link or directory into quarantine, unless a step already does."""
        now, name, moved = self.name(path), self.path(path), self.store.moved
        if name in self.gone or now in self._left:
            return
        # a planner of directories may have corrected the length of a file that another one then moves away
        self.steps = [s for s in self.steps if not (isinstance(s, Overwrite | Extend | Truncate) and s.path == name)]
        expect = self._expect(path, lambda: fingerprint_entry(path, _hash_for(path)))
        length = path.lstat().st_size if LOCAL.has_entry(path) and not path.is_dir() else 0
        if path in moved:  # drop its rename
            self.steps = [s for s in self.steps if not (isinstance(s, SetAside) and s.path == now)]
            self.steps = [s for s in self.steps if not (isinstance(s, Rename) and s.source == now)]
        self.steps.append(Discard(now, expect, why, length))
        self._left.add(now)
        if path in moved or path not in moved.values():  # otherwise a rename gives this name to another file
            self.gone.add(name)

    def delete(self, path: Path, why: str) -> None:
        """Delete a regular file for ever. Errors: Refused for a link, whose file this would leave."""
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise _link_refusal(path)
        expect = readable(path, lambda: fingerprint_entry(path, _hash_for(path)))
        self.add(Delete(self.name(path), expect, why, status.st_size))
        self.linked += status.st_nlink > 1

    def create(self, path: Path, size: int, content: Content, why: str, like: Path | None = None) -> None:
        """Create a file, and the missing directories above it."""
        self.make_directory(path.parent)
        beside = self.name(like) if like is not None and self.path(like) not in self.gone else None
        self.add(Create(self.name(path), size, content, beside, why))

    def replace(self, path: Path, data: bytes, why: str, *, old: str, like: Path | None = None) -> None:
        """Create a small file; if there is one already, discard it for the reason `old`.

        Owner, mode and times come from `like`, by default from the file that is replaced: it is still there when the
        new one is staged.
        """
        has_entry = self.store.files.has_entry
        model = like if like is not None and has_entry(like) else path
        beside = self.name(model) if has_entry(model) else None
        if has_entry(path):
            self.discard(path, old)
        self.make_directory(path.parent)
        self.add(Create(self.name(path), len(data), Literal(data), beside, why))

    def make_directory(self, path: Path, why: str = "") -> None:
        """Create a directory and those above it if they are missing; a file in its place goes into quarantine."""
        name = self.path(path)
        if name in self.made or (name not in self.gone and self.store.files.is_directory(path)) or path == self.root:
            return
        self.make_directory(path.parent, why)
        if name not in self.gone and self.store.files.has_entry(path):
            self._clear(path, name)
        self.add(MakeDirectory(name, why=why))

    def _clear(self, path: Path, name: str) -> None:
        """Discard a file that is where a directory belongs. Errors: Refused for anything but a regular file."""
        entry = self.store.files.examined(path)
        if entry is not None and entry.link is not None:
            raise Refused(
                Text("{name} is a link that does not point to a directory", name=name),
                Text("mount its disk, or move the link away"),
            )
        self._refuse_special(path, name, Text("a directory"))
        self.discard(path, Text("a directory belongs there"))

    def _refuse_special(self, path: Path, name: str, wanted: str) -> None:
        """Ensure that an entry in place of `wanted` can be quarantined. Errors: Refused for pipes, sockets, devices."""
        entry = self.store.files.examined(path)
        if entry is not None and entry.special and not entry.dangling:
            raise Refused(
                Text("{name} is a pipe, a socket or a device, but should be {wanted}", name=name, wanted=wanted),
                Text("move it away by hand"),
            )

    @property
    def lost_messages(self) -> int:
        """The number of messages that the repair loses, as far as `lose` counted them."""
        return self.lost.total()

    def lose(self, queues: Mapping[str, int], size: int = 0) -> None:
        """Count messages per queue, and their bytes, that the repair loses."""
        self.lost.update(queues)
        self.lost_bytes += size

    def list_damaged(self, rows: Sequence[Mapping[str, Json]]) -> None:
        """Add messages that stay in the log with damaged properties to the facts, each only once."""
        if rows:
            listed = self.facts.setdefault(DAMAGED, [])
            assert isinstance(listed, list)
            known = {row["offset"] for row in listed if isinstance(row, dict)}
            listed.extend(dict(row) for row in rows if row["offset"] not in known)

    def plan(self, roots: Collection[Path] = ()) -> Plan:
        """Build the plan from everything collected so far."""
        return Plan(
            store=self.root.as_posix(),
            steps=tuple(self.steps),
            loss=Loss(self.lost_messages, self.lost_bytes, dict(self.lost), self.more),
            notes=tuple(dict.fromkeys(self.notes)),
            decisions=tuple(dict.fromkeys(self.decisions)),
            spans=tuple(self.spans),
            roots=tuple(sorted({r for r in map(self.path, roots) if r.startswith("/")})),
            facts=self.facts,
        )


def _hash_for(path: Path) -> str:
    """Return the prefix of the hash to use for a file: the one that counts zeros if the file is sparse."""
    status = path.lstat()
    sparse = stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < status.st_size
    return "runs:" if sparse else "sha256:"


def readable(path: Path, work: Callable[[], str]) -> str:
    """Return the result of `work`. Errors: NotReadable without permission to read the file; Refused for a link."""
    try:
        return work()
    except PermissionError as error:
        raise NotReadable(Text("no permission to read {path}", path=path)) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _link_refusal(path) from error


def _link_refusal(path: Path) -> Refused:
    """Return why nothing is planned for a file that is a link, and the command that replaces all links beside it."""
    links = sum(entry.is_symlink() and entry.is_file() for entry in path.parent.iterdir())
    if links <= 1:
        places = f"{shlex.quote(str(real_path(path)))} {shlex.quote(str(path))}"
        return Refused(
            Text(
                "{path} is a symbolic link, and a repair never writes through a link: nothing is planned "
                "before it is replaced",
                path=path,
            ),
            Text("replace the link with the file: cp -a --sparse=auto --remove-destination {places}", places=places),
        )
    return Refused(
        Text(
            "{path} and {files} in its directory are symbolic links, and a repair never writes through a "
            "link: nothing is planned before they are replaced",
            path=path,
            files=many(links - 1, "other file"),
        ),
        f"replace the links with the files: cd {shlex.quote(str(path.parent))} && find ./ -maxdepth 1 -type l -exec "
        'sh -c \'cp -a --sparse=auto --remove-destination "$(readlink -f "$0")" "$0"\' {} \';\'',
    )


def absolute_path(path: Path) -> Path:
    """Return a path absolute and without `..`, but with its links: a plan uses the paths of the configuration."""
    return Path(os.path.normpath(path.absolute()))


_NOTES = 20


def first_notes(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and append how many more there are."""
    more = len(notes) - _NOTES
    return [*notes[:_NOTES], *([Text("… and {more:,} more like these", more=more)] if more > 0 else [])]
