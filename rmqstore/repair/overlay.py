"""The files of a store as they will be after the steps of a plan.

What reads a store reads an overlay in the same way, so that a plan can be examined before it is applied. Nothing is
copied.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.documents.content import Content, Equivalent, Parts, Zeros
from rmqstore.documents.steps import (
    PHASES,
    Create,
    Delete,
    Discard,
    Extend,
    MakeDirectory,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Step,
    Truncate,
)
from rmqstore.files.files import DirEntry, Files, OpenFile
from rmqstore.repair.plan.plan_builder import absolute_path
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.append.scratch import ScratchFolder


class _Segment(NamedTuple):
    """The bytes [start, stop) of a planned file: a part of `content`, or of the original file; None: zeros.

    `at` is the position of the first byte in the content.
    """

    start: int
    stop: int
    content: Content | None = None
    at: int = 0
    original: bool = False


@dataclass(slots=True)
class _File:
    """A file that steps create, rename or change. `origin`: the file that has its original bytes.

    `kept`: how many bytes of the original remain; `written`: the ranges [start, stop) that steps write, in any order.
    """

    origin: Path | None
    length: int
    mtime_ns: int
    kept: int = 0
    resized: bool = False
    written: list[tuple[int, int, Content]] = field(default_factory=list)

    def segments(self) -> list[_Segment]:
        """Return the file as adjacent segments, from its first byte to its last."""
        out: list[_Segment] = []
        at = 0
        for start, stop, content in sorted(self.written, key=lambda one: one[:2]):
            out += self._untouched(at, start)
            out += _segments_of(content, start)
            at = stop
        return [*out, *self._untouched(at, self.length)]

    def _untouched(self, start: int, stop: int) -> list[_Segment]:
        middle = min(max(start, self.kept), stop)
        found = (_Segment(start, middle, original=True), _Segment(middle, stop))
        return [one for one in found if one.start < one.stop]


def _segments_of(content: Content, start: int) -> Iterator[_Segment]:
    if isinstance(content, Equivalent):
        yield from _segments_of(content.content, start)
    elif isinstance(content, Parts):
        for part in content.parts:
            yield from _segments_of(part, start)
            start += part.size
    elif content.size:
        yield _Segment(start, start + content.size, None if isinstance(content, Zeros) else content)


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory that a step creates."""

    mtime_ns: int


class Overlay(Files):
    """The files of `files` as they will be after `steps`. `root`: the plan's store; paths of steps are below it.

    The steps are those of a valid plan; the contents that they write are read on demand.
    """

    def __init__(self, files: Files, steps: Iterable[Step], root: Path) -> None:
        self._files = files
        self._root = root
        self._now = time.time_ns()
        self._nodes: dict[str, _File | _Directory | None] = {}
        """Paths that the plan changes; None: nothing is there any more."""
        self._children: dict[str, list[str]] = {}
        self._folders: dict[str, tuple[str, bool]] = {}
        in_order = sorted(steps, key=lambda step: PHASES.index(type(step)))
        aside = {step.path: self._present(step.path) for step in in_order if isinstance(step, SetAside)}
        for step in in_order:
            self._take(step, aside)
        for place, node in self._nodes.items():
            folder, _, name = place.rpartition("/")
            if node is not None:
                self._children.setdefault(folder, []).append(name)
        self._above = frozenset(str(above) for place in self._nodes for above in Path(place).parents)
        self._folders.clear()

    @property
    def written_by(self) -> tuple[str, str] | None:
        return self._files.written_by

    # --- the steps ------------------------------------------------------------------------------------------------

    def _take(self, step: Step, aside: dict[str, _File]) -> None:
        place = str(absolute_path(self._root / step.path))
        if isinstance(step, Discard | RemoveEmptyDirectory | SetAside | Delete):
            self._nodes[place] = None
        elif isinstance(step, Rename):
            self._nodes[place] = aside[step.source]
        elif isinstance(step, MakeDirectory):
            self._nodes[place] = _Directory(self._now)
        elif isinstance(step, Create):
            file = _File(None, step.size, self._time_of(step.like))
            file.written.append((0, step.content.size, step.content))
            self._nodes[place] = file
        else:
            file = self._changed(place, step.path)
            file.resized |= isinstance(step, Truncate | Extend)
            if isinstance(step, Truncate):
                file.kept = file.length = step.to_size
            else:
                if isinstance(step, Extend):
                    file.length = step.to_size
                file.written.append((step.at, step.at + step.content.size, step.content))

    def _changed(self, place: str, path: str) -> _File:
        """Return the node of a file that is changed in place; a journal restores its times."""
        node = self._nodes.get(place)
        if not isinstance(node, _File):
            node = self._nodes[place] = self._present(path)
        return node

    def _present(self, path: str) -> _File:
        place = self._root / path
        entry = self._files.stat(place)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place))
        return _File(place, entry.length, entry.mtime_ns, kept=entry.length)

    def _time_of(self, like: str | None) -> int:
        """Return the modification time of a new file, which comes from its neighbour `like`."""
        entry = self._files.stat(self._root / like) if like is not None else None
        return self._now if entry is None or entry.directory or entry.special else entry.mtime_ns

    # --- Files ----------------------------------------------------------------------------------------------------

    def real_path(self, path: Path) -> Path:
        return self._files.real_path(path)

    def list(self, directory: Path) -> list[DirEntry]:
        place, replaced = self._find(directory)
        found: list[DirEntry] = []
        if not replaced:
            there = self._files.list(directory)
            found = [one for one in there if f"{place}/{one.path.name}" not in self._nodes]
        for name in self._children.get(place, ()):
            node = self._nodes[f"{place}/{name}"]
            if node is not None:
                found.append(_entry(directory / name, node))
        return sorted(found, key=lambda entry: entry.path.name)

    def stat(self, path: Path) -> DirEntry | None:
        place, replaced = self._find(path)
        node = self._nodes.get(place)
        if node is not None:
            return _entry(path, node)
        return None if replaced else self._files.stat(path)

    def open(self, path: Path) -> OpenFile:
        place, replaced = self._find(path)
        node = self._nodes.get(place)
        if isinstance(node, _File):
            return _PlannedFile(self._files, node)
        if node is not None:
            raise OSError(errno.EINVAL, Text("not a regular file"), str(path))
        if replaced:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._files.open(path)

    @contextlib.contextmanager
    def local(self, directory: Path) -> Iterator[Path]:
        """Give the directory itself if no step changes it, else a temporary one.

        It has links to the files that stay as they are, and copies of the others.
        """
        if not self.changes(directory):
            with self._files.local(directory) as place:
                yield place
            return
        from rmqstore.append.scratch import ScratchFolder

        folder = ScratchFolder()
        with self._files.local(directory) as own:
            self._fill(folder, folder.path, directory, own)
            yield folder.path

    @property
    def on_this_machine(self) -> bool:
        return self._files.on_this_machine

    def may_read(self, path: Path) -> bool:
        return self._find(path)[1] or self._files.may_read(path)

    def _fill(self, folder: ScratchFolder, target: Path, directory: Path, own: Path) -> None:
        for entry in self.list(directory):
            into = target / entry.path.name
            if entry.directory and self.changes(entry.path):
                self._fill(folder, folder.make_directory(str(into)), entry.path, own / entry.path.name)
            elif self._find(entry.path)[0] not in self._nodes:
                folder.link(into, (own / entry.path.name).absolute())
            elif not entry.directory:
                with self.open(entry.path) as source:
                    folder.copy(source, into)

    # --- what changes ---------------------------------------------------------------------------------------------

    def changes(self, path: Path) -> bool:
        """Whether any step changes this file, or anything in this directory or above it."""
        place, replaced = self._find(path)
        return replaced or place in self._above

    def keeps(self, path: Path, start: int, stop: int) -> bool:
        """Whether the bytes [start, stop) of a file, and its end if it is among them, stay as they are."""
        place, replaced = self._find(path)
        node = self._nodes.get(place)
        if not isinstance(node, _File):
            return not replaced
        if node.origin is None or self._find(node.origin)[0] != place:
            return False
        if stop > min(node.kept, node.length) and node.resized:
            return False
        return not any(low < stop and start < high for low, high, _ in node.written)

    def _find(self, path: Path) -> tuple[str, bool]:
        """Return a path as in `_nodes`, and whether a step removes, creates or changes it or a directory above it."""
        folder, _, name = str(path).rpartition("/")
        if name in ("", ".", ".."):
            place = absolute_path(path)
            return str(place), any(str(one) in self._nodes for one in (place, *place.parents))
        known = self._folders.get(folder)
        if known is None:
            above = absolute_path(path.parent)
            replaced = any(str(one) in self._nodes for one in (above, *above.parents))
            known = self._folders[folder] = (str(above).rstrip("/"), replaced)
        found = f"{known[0]}/{name}"
        return found, known[1] or found in self._nodes


def _entry(path: Path, node: _File | _Directory) -> DirEntry:
    if isinstance(node, _Directory):
        return DirEntry(path, 0, node.mtime_ns, True)
    return DirEntry(path, node.length, node.mtime_ns, False)


class _PlannedFile(OpenFile):
    """A file that a plan creates, renames or changes, open for reading."""

    def __init__(self, files: Files, file: _File) -> None:
        self._segments = file.segments()
        self._starts = [one.start for one in self._segments]
        self._length = file.length
        self._original = files.open(file.origin) if file.origin is not None else None

    @property
    def length(self) -> int:
        return self._length

    def read_into(self, buffer: memoryview, at: int) -> int:
        done = 0
        for segment, low, high in self._parts(at, at + len(buffer)):
            count = high - low
            if segment.original:
                read = self._read_original(buffer[done : done + count], low)
            elif segment.content is None:
                buffer[done : done + count] = bytes(count)
                read = count
            else:
                data = segment.content.read(count, segment.at + low - segment.start)
                buffer[done : done + len(data)] = data
                read = len(data)
            done += read
            if read < count:  # the store has changed meanwhile
                break
        return done

    def _read_original(self, buffer: memoryview, at: int) -> int:
        done = 0
        while self._original is not None and done < len(buffer):
            count = self._original.read_into(buffer[done:], at + done)
            if count == 0:
                break
            done += count
        return done

    def next_data(self, at: int, stop: int) -> tuple[int, int]:
        for segment, low, high in self._parts(at, stop):
            if segment.content is not None:
                return low, high
            if segment.original and self._original is not None:
                found = self._original.next_data(low, high)
                if found[0] < high:
                    return found
        return stop, stop

    def will_read(self, at: int, stop: int) -> None:
        for segment, low, high in self._parts(at, stop):
            if segment.original and self._original is not None:
                self._original.will_read(low, high)

    def drop_cache(self, stop: int) -> None:
        if self._original is not None:
            self._original.drop_cache(stop)

    def _parts(self, at: int, stop: int) -> Iterator[tuple[_Segment, int, int]]:
        """Yield the segments with bytes in [at, stop), and the ranges of these bytes."""
        first = max(0, bisect_right(self._starts, at) - 1)
        for segment in itertools.islice(self._segments, first, None):
            low, high = max(at, segment.start), min(stop, segment.stop)
            if low >= high:
                break
            yield segment, low, high

    def close(self) -> None:
        if self._original is not None:
            self._original.close()
