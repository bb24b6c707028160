"""The store as it will be after a plan, and its examination. Reads only; nothing is copied.

`Overlay` shows the files of a store as they will be after the steps of a plan. What reads a store reads an overlay in
the same way, so that a plan can be examined before it is applied.

The sound parts of the first examination are kept, so that the second one reads only what the plan changes. A part is
used again under the same conditions as with `--since-last`, see `checks/since_last.py`, except that the plan tells
which bytes change. Parts are kept in a temporary file, because their size grows with the store.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.append.scratch import Scratch
from rmqstore.checks.account import by_queue, lost_by, place_of
from rmqstore.checks.examine import examine
from rmqstore.checks.log.log_pass import LogPart, PassOptions, watched_reads
from rmqstore.checks.log.stored_units import opened
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Findings
from rmqstore.checks.since_last import Identity, KeptPart, kept_part, options_key
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Content, Equivalent, Json, Parts, Zeros, objects
from rmqstore.documents.outcome import Outcome, measured
from rmqstore.documents.plan import Loss, Plan
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
from rmqstore.files.mapped_file_queue import MAX_RECORD, offset_to_file_name
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.repair.plan.plan_builder import WRONG_PLACES, absolute_path
from rmqstore.scan.split import Split
from rmqstore.scan.workers import Mapper, map_ordered
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.append.scratch import ScratchFolder
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.log.commitlog import IndexCheck
    from rmqstore.checks.log.stored_units import BesideSplit, WatchedReads


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


SPLIT = 32 << 20
"""Bytes of a part of the log: what a plan changes is read a second time in whole parts."""
_Place = tuple[Path, int, int, int, int]
_NO_IDENTITY = Identity(0, 0, 0, 0)


class FirstParts:
    """Keeps the sound parts of an examination while it is made. `options`: how each log was read, by `body_offset`."""

    reused = None
    digests = False

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._places: dict[_Place, tuple[int, int]] = {}
        self.options: dict[int, PassOptions] = {}
        self.catalog: IndexCatalog | None = None
        self.settings: Mapping[str, str] = {}
        self.index_findings = Findings()

    def begin(self) -> None:
        """Start an examination."""
        self._places.clear()

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Check the index files, and keep the result."""
        self.settings, self.index_findings = store.config.given, Findings(keep=findings.keep)
        self.catalog = check(self.index_findings)
        findings.merge(self.index_findings)
        return self.catalog

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that keeps the sound parts."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            parts = map_ordered(function, splits, jobs) if inner is None else inner(function, splits)
            for split, part in parts:
                self.options[split.body_offset] = options
                self._keep(split, part, options)
                yield split, part

        return mapped

    def _keep(self, split: Split, part: LogPart, options: PassOptions) -> None:
        kept = kept_part(part, _NO_IDENTITY, options, 0)
        if kept is not None:
            data = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
            self._places[_place(split)] = (self._scratch.append(data), len(data))

    def find(self, split: Split) -> KeptPart | None:
        """Return the part of a split; None if it was not sound, or not read."""
        place = self._places.get(_place(split))
        if place is None:
            return None
        found: KeptPart = pickle.loads(self._scratch.read(place[1], place[0]))
        return found


class PartsAfter:
    """Uses the parts of the first examination again where a plan changes nothing.

    What it changes is read in this process: contents of a plan cannot be sent to others.
    """

    reused = None
    digests = False

    def __init__(self, first: FirstParts, overlay: Overlay) -> None:
        self._first = first
        self._overlay = overlay

    def begin(self) -> None:
        """Start an examination."""

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Return the first result if the plan changes nothing that it depends on; else check the index files."""
        changed = any(self._overlay.changes(store.root / name) for name in ("index", "abort"))
        if self._first.catalog is None or changed or store.config.given != self._first.settings:
            return check(findings)
        findings.merge(self._first.index_findings)
        return self._first.catalog

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that reads only what is not known."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            key, beside = options_key(options), _Beside(self._first, self._overlay, options)
            for split in splits:
                known = self._first.find(split)
                same = known is not None and known.options == key and self._can_be_used(known, split, options)
                if known is not None and same and beside.is_same(known.beside, split.body_offset):
                    yield split, known.part()
                else:
                    yield split, function(split)

        return mapped

    def _can_be_used(self, known: KeptPart, split: Split, options: PassOptions) -> bool:
        """Return whether the log has the same bytes, and at least as many index entries are expected for them."""
        file = split.file
        if not known.is_enough(split, options):
            return False
        stop = max(split.stop, (known.end or 0) - file.start)
        if not self._overlay.keeps(file.path, split.start, stop):
            return False
        following = file.path.with_name(offset_to_file_name(file.stop))  # a BLANK is judged by the next file
        return split.stop < min(file.length, file.file_size) or not self._overlay.changes(following)


class _Beside:
    """Compares what the parts were compared with: before a plan, and after it. `after`: options of the examination."""

    def __init__(self, first: FirstParts, overlay: Overlay, after: PassOptions) -> None:
        self._first, self._overlay, self._after = first, overlay, after
        self._changed: dict[QueueName, bool] = {}
        self._readers: dict[int, tuple[WatchedReads, WatchedReads]] = {}

    def is_same(self, known: BesideSplit, body_offset: int) -> bool:
        """Return whether all that a part was compared with has the same content after the plan."""
        before = self._first.options[body_offset]
        stores = tuple(opened(one.store, one.given, one.run_id, one.files) for one in (before, self._after))
        groups = [store.dledger.index for store in stores if body_offset and store.dledger is not None]
        entries = any(self._overlay.changes(folder) for group in groups for folder in group.directories)
        index = self._overlay.changes(self._after.store / "index")
        changed = replace(
            known,
            units=[one for one in known.units if self._changes_queue(one[0], one[1], stores)],
            index=known.index if index else [],
            entries=known.entries if entries else [],
        )
        if entries and not known.entries:
            return False  # there was no index of the entries yet
        if not (changed.units or changed.index or changed.entries):
            return True
        if body_offset not in self._readers:
            self._readers[body_offset] = watched_reads(body_offset, before), watched_reads(body_offset, self._after)
        found = [reads.digests(changed) for reads in self._readers[body_offset]]
        return found[0] is not None and found[0] == found[1]

    def _changes_queue(self, topic: str, queue_id: int, stores: Sequence[Store]) -> bool:
        """Return whether the plan may change units of a queue."""
        key = topic, queue_id
        if key not in self._changed:
            if any(store.reads_rows(topic) for store in stores):
                places = [store.rocksdb_directory for store in stores]
            else:
                places = [store.root / QueueKind.SIMPLE.tree / topic / str(queue_id) for store in stores]
            sizes = {store.queue_file_size(QueueKind.SIMPLE) for store in stores}  # inferred from all files
            self._changed[key] = len(sizes) > 1 or any(map(self._overlay.changes, places))
        return self._changed[key]


def _place(split: Split) -> _Place:
    return split.file.path, split.file.start, split.start, split.stop, split.body_offset


def after(store: Store, plan: Plan) -> Store:
    """Return a store as it will be after a plan.

    Errors: as `open_store`.
    """
    overlay = Overlay(store.files, plan.steps, Path(plan.store))
    overlay.planned = {"facts": plan.facts}
    return open_store(store.path, store.config.changed(plan.settings), overlay)


def with_loss(plan: Plan, before: Verified, after: Verified) -> Plan:
    """Return a plan of `recover` with its loss, by the examinations of the store and of the store after it."""
    if "strategy" not in plan.facts:
        return plan
    fillers, wrong = (by_queue(_places(plan.facts.get(name))) for name in ("fillers", WRONG_PLACES))
    gives_up = bool(plan.loss.more.get("good_messages_given_up"))
    over = by_queue(_replaced_records(plan, before))
    lost = lost_by(before, after, fillers, wrong, over, only=bool(plan.facts.get("only")), gives_up=gives_up)
    queues = {f"{topic}/{queue_id}": count for (topic, queue_id), count in lost.queues.items()}
    more, notes = dict(plan.loss.more), plan.notes
    if lost.room:
        more["at_least"] = True
        notes = (*notes, Text("the loss is a lower bound: {why}", why=lost.room))
    return replace(plan, loss=Loss(lost.messages, plan.loss.bytes, queues, more), notes=notes)


def _places(rows: Json) -> Iterator[tuple[QueueName, int, int]]:
    for row in objects(rows):
        numbers = [row["queue_id"], row["queue_offset"], row.get("count", 1)]
        if all(isinstance(number, int) for number in numbers):
            queue_id, start, count = map(int, map(str, numbers))
            yield (str(row["topic"]), queue_id), start, start + count


def _replaced_records(plan: Plan, before: Verified) -> Iterator[tuple[QueueName, int, int]]:
    """Yield the places of the framed records that fillers replace: their properties cannot be recovered."""
    queues = before.account.queues if before.account is not None else {}
    for row in objects(plan.facts.get("fillers")):
        at = row.get("offset")
        for name, start, stop in _places([row]):
            known = queues.get(name)
            if known is None or start not in known.in_log or not isinstance(at, int) or before.logs.damaged(at):
                continue
            record = before.logs.record(at, MAX_RECORD)
            if record is not None and place_of(record) == (name, start, stop):
                yield name, start, stop


def measure(
    store: Store,
    plan: Plan,
    before: Verified,
    options: VerifyOptions | None = None,
    first: FirstParts | None = None,
) -> tuple[Plan, Outcome]:
    """Examine a store as it will be after a plan; return the plan with what was measured, and the outcome.

    `before`: the examination of the store as it is, made with the same options. Errors: as `examine_again`.
    """
    then = examine_again(after(store, plan), options or VerifyOptions(), first)
    outcome = Outcome.of(then.report)
    return measured(with_loss(plan, before, then), before.report, outcome), outcome


def examine_again(planned: Store, options: VerifyOptions, first: FirstParts | None = None) -> Verified:
    """Examine a store as it will be after a plan; parts that it does not change are taken from the `first` examination.

    Errors: as `examine`, and those of the contents of the plan.
    """
    parts = None
    if first is not None and isinstance(planned.files, Overlay):
        parts = PartsAfter(first, planned.files)
        options = replace(options, split_size=options.split_size or SPLIT)
    own = replace(options, jobs=1, last_run=parts, units=None, sink=None, progress=None)
    return examine(planned, own)
