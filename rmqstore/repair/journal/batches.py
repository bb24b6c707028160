"""Batches of steps: run, probe and undo them, and `undo.log`, the log of what they replace.

The log has the bytes and metadata that each batch replaces, durable before the batch begins. A frame is a header and a
payload. A batch is the META and before-image frames of its steps, closed by a READY frame. Bytes after the last READY
are a batch that a crash interrupted before any of its steps had begun.

Files that are deleted for ever have only metadata in the log. They go one after the other, each durably, so that a
crash leaves the store as the clean-up of a killed broker leaves it. A file that is already gone counts as deleted.

A probe tells by the bytes on disk whether an in-place step is done, not done, or half done.

Renamed files are found at any stage of the renames, and checked to be unchanged. The new names may form a cycle, so all
files are set aside first, then each gets its name. Meanwhile their directory holds a name that is not an offset, so
that no broker starts.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import stat
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum, IntEnum
from functools import partial
from pathlib import Path

from rmqstore.documents.content import CHUNK, ContentReader, RunningFingerprint, Zeros, chunks, fingerprint
from rmqstore.documents.journal import UNDO_LOG, Staged, State
from rmqstore.documents.paths import PlanPaths, status_of
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import (
    Create,
    Delete,
    Extend,
    InPlace,
    MakeDirectory,
    MoveIn,
    MoveOut,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Step,
    Truncate,
    WithContent,
)
from rmqstore.errors import ChangedSince, CouldNotCheck, PlanStale
from rmqstore.files.beneath import AS_NAMED, EntryReader, read_range, read_runs
from rmqstore.files.disk import existing
from rmqstore.repair.journal.disk import OPEN_FILES, Disk
from rmqstore.repair.journal.folder import JournalFolder
from rmqstore.repair.journal.staging import check_links, check_step_on_disk, refuse_changed
from rmqstore.repair.plan.plan_builder import fingerprint_entry, fingerprint_range
from rmqstore.texts import Text, first_few

_MAGIC = b"RMQU"
_HEADER = struct.Struct("<4sBIQI")  # magic, kind, step, at, length
_CRC = struct.Struct("<I")  # over header and payload; written between them
_OVERHEAD = _HEADER.size + _CRC.size


class FrameKind(IntEnum):
    """The kind of a frame's payload."""

    META = 1
    """A Meta as JSON."""
    BYTES = 2
    """The old `length` bytes at `at`."""
    ZEROS = 3
    """The old `length` bytes at `at` are zeros; no payload."""
    READY = 4
    """The batch is complete; `step` is the batch's number."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The times of a step's file before the step, those of its directory, and the hash of the new bytes."""

    step: int
    after: str | None = None
    atime_ns: int = 0
    mtime_ns: int = 0
    folder_atime_ns: int = 0
    folder_mtime_ns: int = 0


_LIMIT = 1 << 62
"""Times of files are 64-bit numbers, ns."""
_META = tuple(one.name for one in fields(Meta))


@dataclass(frozen=True, slots=True)
class Image:
    """A before-image; `log_at` is the position of its payload in undo.log, -1 for zeros."""

    at: int
    length: int
    log_at: int


@dataclass(slots=True)
class Batch:
    """One complete batch of the log; `stop` is the position after its READY frame."""

    metas: dict[int, Meta] = field(default_factory=dict)
    images: dict[int, list[Image]] = field(default_factory=dict)
    stop: int = 0


class UndoLogWriter:
    """Appends frames from position `at` on; `ready` closes a batch and makes it durable."""

    def __init__(self, disk: Disk, descriptor: int, at: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._at = at

    def meta(self, meta: Meta) -> None:
        self._append(FrameKind.META, meta.step, 0, json.dumps(asdict(meta)).encode())

    def image(self, step: int, at: int, data: bytes) -> None:
        if data.count(0) == len(data):
            self._append(FrameKind.ZEROS, step, at, b"", len(data))
        else:
            self._append(FrameKind.BYTES, step, at, data)

    def ready(self, batch: int) -> None:
        self._append(FrameKind.READY, batch, 0, b"")
        self._disk.fsync(self._descriptor)

    def _append(self, kind: FrameKind, step: int, at: int, payload: bytes, length: int | None = None) -> None:
        header = _HEADER.pack(_MAGIC, kind, step, at, len(payload) if length is None else length)
        frame = header + _CRC.pack(zlib.crc32(payload, zlib.crc32(header))) + payload
        self._disk.write_at(self._descriptor, frame, self._at)
        self._at += len(frame)


class UndoLog:
    """The complete batches of the log, in order; before-images are read on demand."""

    def __init__(self, path: Path, entries: EntryReader) -> None:
        self.path = path
        self._entries = entries
        self.batches: list[Batch] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the batches that were added since the last call. Errors: CouldNotCheck."""
        try:
            with self._entries.opened(self.path) as descriptor:
                self._read(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CouldNotCheck(Text("{path} is damaged: {error}", path=self.path, error=error)) from error

    @property
    def stop(self) -> int:
        """Position of the next batch, bytes."""
        return self.batches[-1].stop if self.batches else 0

    def _read(self, descriptor: int) -> None:
        at = self.stop
        batch = Batch()
        while True:
            head = os.pread(descriptor, _OVERHEAD, at)
            if len(head) < _OVERHEAD:
                return
            magic, kind, step, position, length = _HEADER.unpack_from(head)
            has_payload = kind in (FrameKind.META, FrameKind.BYTES)
            if magic != _MAGIC or length > CHUNK:
                return
            payload = os.pread(descriptor, length, at + _OVERHEAD) if has_payload else b""
            crc = zlib.crc32(payload, zlib.crc32(head[: _HEADER.size]))
            if crc != _CRC.unpack_from(head, _HEADER.size)[0] or (has_payload and len(payload) != length):
                return
            if kind == FrameKind.META:
                meta = _parsed_meta(payload)
                if meta is None:
                    return
                batch.metas[step] = meta
            elif kind in (FrameKind.BYTES, FrameKind.ZEROS):
                log_at = at + _OVERHEAD if kind == FrameKind.BYTES else -1
                batch.images.setdefault(step, []).append(Image(position, length, log_at))
            at += _OVERHEAD + len(payload)
            if kind == FrameKind.READY:
                if step != len(self.batches):
                    return
                batch.stop = at
                self.batches.append(batch)
                batch = Batch()

    def before(self, images: Iterable[Image]) -> Iterator[tuple[int, bytes]]:
        """Yield before-images as `(at, bytes)`, one frame (at most 1 MiB) at a time. Errors: OSError."""
        with self._entries.opened(self.path) as descriptor:
            for image in images:
                if image.log_at < 0:
                    yield image.at, bytes(image.length)
                else:
                    yield image.at, os.pread(descriptor, image.length, image.log_at)


def _parsed_meta(payload: bytes) -> Meta | None:
    try:
        row = json.loads(payload)
        known = [name for name in _META if name in row]  # journals of earlier versions have more
        meta = Meta(**{name: row[name] for name in known})
    except (ValueError, TypeError, RecursionError):
        return None
    times = (meta.atime_ns, meta.mtime_ns, meta.folder_atime_ns, meta.folder_mtime_ns)
    sound = all(type(time) is int and -_LIMIT < time < _LIMIT for time in times)
    return meta if sound and (meta.after is None or isinstance(meta.after, str)) else None


class Status(Enum):
    """The state of a step on disk."""

    BEFORE = "before"
    AFTER = "after"
    MIXED = "mixed"
    """Every byte is either the old or the new one: the step was interrupted."""
    TOUCHED = "touched"
    """As after the step, but the time of the file is another: it was written to elsewhere, or copied."""
    FOREIGN = "foreign"
    """Something other than this journal has changed it."""


BeforeImages = Callable[[], Iterator[tuple[int, bytes]]]
"""Yields the old bytes that a step replaces, as (position, bytes)."""


def probe_in_place(
    step: InPlace, path: Path, after: str | None, before: BeforeImages, *, torn: bool, entries: EntryReader = AS_NAMED
) -> Status:
    """Determine the state of an in-place step; only with `torn` may it be half done (MIXED).

    `after`: the fingerprint of its new bytes.
    """
    status = status_of(path, entries)
    if status is None or not stat.S_ISREG(status.st_mode):
        return Status.FOREIGN
    size = status.st_size
    if isinstance(step, Overwrite):
        if size < step.at + step.length:
            return Status.FOREIGN
        found = fingerprint_range(path, step.at, step.length, entries=entries)
        if found == after:
            return Status.AFTER
        if found == fingerprint(data for _, data in before()):
            return Status.BEFORE
        return Status.MIXED if torn and _is_mixture(step, path, step.length, before, entries) else Status.FOREIGN
    if size == step.to_size:
        if not isinstance(step, Extend):
            return Status.AFTER
        if fingerprint_range(path, step.at, step.length, entries=entries) == after:
            return Status.AFTER
    elif size == step.from_size and (
        isinstance(step, Extend) or fingerprint_range(path, step.at, step.length, step.expect, entries) == step.expect
    ):
        return Status.BEFORE
    low, high = sorted((step.from_size, step.to_size))
    mixed = torn and low <= size <= high and _is_mixture(step, path, size - low, before, entries)
    return Status.MIXED if mixed else Status.FOREIGN


def _is_mixture(step: InPlace, path: Path, length: int, before: BeforeImages, entries: EntryReader) -> bool:
    """Return whether each of the first `length` bytes of the range is the old or the new one (0 beyond an end)."""
    import numpy as np

    after = ContentReader(step.content) if isinstance(step, Overwrite | Extend) else None
    old = _OldBytes(before())
    at, stop = step.at, step.at + length
    for piece in read_runs(path, at, length, entries):
        if isinstance(piece, int) and after is None:  # undoing a truncate extends the file with a hole first
            at += piece
            continue
        for chunk in (piece,) if isinstance(piece, bytes) else chunks(Zeros(piece)):
            new = after.take(len(chunk)) if after is not None else b""
            data, was, will = (
                np.frombuffer(part.ljust(len(chunk), b"\0"), np.uint8)
                for part in (chunk, old.take(at, len(chunk)), new)
            )
            if not bool(((data == was) | (data == will)).all()):
                return False
            at += len(chunk)
    return at == stop


class _OldBytes:
    """Reads before-images in the order of their positions; zeros where there is none."""

    def __init__(self, frames: Iterator[tuple[int, bytes]]) -> None:
        self._frames = frames
        self._at, self._data = 0, b""

    def take(self, at: int, size: int) -> bytes:
        """Return the old bytes of [at, at + size). Positions must not decrease from call to call."""
        out = bytearray(size)
        while True:
            low, high = max(at, self._at), min(at + size, self._at + len(self._data))
            if low < high:
                out[low - at : high - at] = self._data[low - self._at : high - self._at]
            if self._at + len(self._data) >= at + size:
                break
            frame = next(self._frames, None)
            if frame is None:
                break
            self._at, self._data = frame
        return bytes(out)


@dataclass(frozen=True, slots=True)
class Move:
    """The rename of one file: its old name, the fingerprint of its bytes, and the batch of its Rename step.

    `changed`: later steps of the plan change its bytes.
    """

    source: str
    expect: str
    batch: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Moves:
    """All renames of a plan, by new name and by old name."""

    by_path: Mapping[str, Move]
    by_source: Mapping[str, Move]

    @staticmethod
    def of(plan: Plan, batches: Sequence[Sequence[int]]) -> Moves:
        """Collect the renames of a plan whose steps are executed in these batches."""
        steps = plan.steps
        expects = {step.path: step.expect for step in steps if isinstance(step, SetAside)}
        changed = {step.path for step in steps if isinstance(step, InPlace)}
        found = {
            step.path: Move(step.source, expects[step.source], batch, step.path in changed)
            for batch, numbers in enumerate(batches)
            for number in numbers
            if isinstance(step := steps[number], Rename)
        }
        return Moves(found, {move.source: move for move in found.values()})

    def place(self, path: str, begun: int, paths: PlanPaths, folder: JournalFolder) -> Path:
        """Return where the file that has or gets this name is after `begun` batches."""
        move = self.by_path.get(path)
        if move is None:
            return paths.locate(path)
        source = paths.locate(move.source)
        aside = folder.aside(source)
        if paths.status(aside) is not None:
            return aside
        return paths.locate(path) if move.batch < begun else source


BATCH_STEPS = 256
BATCH_BYTES = 64 << 20
"""Limit for the before-images of a batch, bytes; a single step may exceed it."""


def cut_batches(plan: Plan) -> list[list[int]]:
    """Divide the numbers of a plan's steps into batches; the same plan always gives the same batches.

    A batch has only one kind of step: the removal of a file is durable before another file takes its path.
    """
    batches: list[list[int]] = []
    kind: type[Step] | None = None
    size = 0
    for number in plan.ordered():
        step = plan.steps[number]
        cost = step.length if isinstance(step, Overwrite | Truncate) else 0
        if type(step) is not kind or len(batches[-1]) >= BATCH_STEPS or size + cost > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(number)
        kind, size = type(step), size + cost
    return batches


@dataclass(frozen=True, slots=True)
class ApplyWork:
    """A plan, its paths on this machine, its journal and its batches: the input of every function here.

    `made`: the paths that the plan creates or gives to renamed files, with the numbers of the steps.
    """

    plan: Plan
    paths: PlanPaths
    folder: JournalFolder
    log: UndoLog
    batches: list[list[int]]
    made: Mapping[str, int]
    moves: Moves

    @staticmethod
    def of(plan: Plan, paths: PlanPaths, folder: JournalFolder) -> ApplyWork:
        log = UndoLog(folder.path / UNDO_LOG, folder.disk)
        batches = cut_batches(plan)
        made = {step.path: number for number, step in enumerate(plan.steps) if isinstance(step, MoveIn)}
        return ApplyWork(plan, paths, folder, log, batches, made, Moves.of(plan, batches))

    def status(self, path: Path) -> os.stat_result | None:
        """Return lstat of a path, or None if nothing is there."""
        return status_of(path, self.folder.disk)

    def mtime(self, meta: Meta) -> int:
        """Return the mtime of a changed file after the plan (ns)."""
        return self.plan.mtime_ns or meta.mtime_ns

    def waiting(self, number: int) -> Path:
        """Where the file that a step moves is while it is not at the step's path: staged, aside or in quarantine."""
        step = self.plan.steps[number]
        assert not isinstance(step, Delete)
        if isinstance(step, SetAside | Rename):
            return self.folder.aside(self.paths.locate(step.source if isinstance(step, Rename) else step.path))
        if isinstance(step, MoveIn):
            return self.folder.staged(number)
        return self.folder.quarantined(number, step.path)


@dataclass(slots=True)
class _OpenFiles:
    """The files that a batch changes; `finish` restores their times and makes them durable.

    At most `OPEN_FILES` of them are open: before another one is opened, those are finished and closed. A batch with a
    descriptor for each of its steps would need more than many hosts allow.
    """

    disk: Disk
    opened: dict[Path, tuple[int, Meta]] = field(default_factory=dict)
    folders: dict[Path, None] = field(default_factory=dict)
    above: set[Path] = field(default_factory=set)
    times_kept: bool = True
    mtime_ns: int | None = None

    def descriptor(self, path: Path, meta: Meta) -> int:
        if path not in self.opened:
            if len(self.opened) >= OPEN_FILES:
                self._finish_files()
            descriptor = self.disk.open_existing(path)
            self.opened[path] = (descriptor, meta)
            check_links(path, os.fstat(descriptor))
        return self.opened[path][0]

    def move(self, source: Path, target: Path) -> None:
        self.disk.rename(source, target)
        if source in self.folders or source in self.above:
            for folder in [known for known in self.folders if known == source or source in known.parents]:
                del self.folders[folder]  # it has moved: earlier changes in it are fsynced under its new path
                self._changed(target / folder.relative_to(source))
        self._changed(source.parent)
        self._changed(target.parent)

    def _changed(self, folder: Path) -> None:
        if folder not in self.folders:
            self.folders[folder] = None
            self.above.update(folder.parents)

    def delete(self, path: Path) -> None:
        """Delete a file, durably; one that is gone already may not be durably gone."""
        with contextlib.suppress(FileNotFoundError):
            self.disk.unlink(path)
        self.disk.fsync_directory(path.parent)

    def moved(self, source: Path, target: Path) -> None:
        """Note a move of an earlier run, perhaps not durable; a moved directory may have been emptied before."""
        self._changed(source.parent)
        self._changed(target.parent)
        status = status_of(target, self.disk)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._changed(target)

    def finish(self) -> None:
        self._finish_files()
        # a parent that an earlier run moved is listed under its new path, see `moved`
        found = {folder: status_of(folder, self.disk) for folder in self.folders}
        folders = [folder for folder, status in found.items() if status is not None and stat.S_ISDIR(status.st_mode)]
        self.disk.fsync_all((), folders)

    def _finish_files(self) -> None:
        for path, (_, meta) in self.opened.items():
            try:
                self.disk.set_times(path, meta.atime_ns, self.mtime_ns or meta.mtime_ns)
            except PermissionError:
                self.times_kept = False  # only the owner may set times; this user may only write
        self.disk.fsync_all([descriptor for descriptor, _ in self.opened.values()])
        self.close()

    def close(self) -> None:
        while self.opened:
            os.close(self.opened.popitem()[1][0])


def run_batch(work: ApplyWork, number: int) -> None:
    """Log one batch, execute its steps and make them durable; continue a batch that is already logged (resume).

    Errors: OSError, PlanStale, ChangedSince.
    """
    torn = number < len(work.log.batches)
    if not torn:
        _log_batch(work, number)
        work.log.refresh()
    known = work.log.batches[number]
    files = _OpenFiles(work.folder.disk, mtime_ns=work.plan.mtime_ns)
    try:
        for step_number in work.batches[number]:
            if torn and _probe(work, known, step_number, number + 1, torn=True) is Status.AFTER:
                # Done, but perhaps not durable: include it in the fsyncs below.
                _include_done(files, work, step_number, known.metas[step_number])
            else:
                _execute(files, work, step_number, known.metas[step_number])
        files.finish()
    finally:
        files.close()
    if not files.times_kept and work.folder.record.times_kept:
        work.folder.save(times_kept=False)


def _log_batch(work: ApplyWork, number: int) -> None:
    """Append the metadata and before-images of a batch to undo.log, and make them durable.

    Errors: OSError; PlanStale if bytes are not those that the plan expects.
    """
    folder, stop = work.folder, work.log.stop
    descriptor = folder.disk.open_existing(folder.path / UNDO_LOG)
    try:
        if os.fstat(descriptor).st_size > stop:
            folder.disk.truncate(descriptor, stop)
        writer = UndoLogWriter(folder.disk, descriptor, stop)
        for step_number in work.batches[number]:
            step = work.plan.steps[step_number]
            path = work.paths.locate(step.path)
            writer.meta(_meta(step_number, step, path, work))
            if isinstance(step, Overwrite | Truncate):
                running = RunningFingerprint(step.expect)
                at = step.at
                # undo extends a truncated file with zeros, so holes need no before-image
                pieces = read_runs if isinstance(step, Truncate) else read_range
                for piece in pieces(path, step.at, step.length, folder.disk):
                    running.update(piece)
                    if isinstance(piece, int):
                        at += piece
                        continue
                    writer.image(step_number, at, piece)
                    at += len(piece)
                refuse_changed(step, running.text)
        writer.ready(number)
    finally:
        os.close(descriptor)


def _meta(number: int, step: Step, path: Path, work: ApplyWork) -> Meta:
    parent = existing(path.parent).stat()
    times = {"folder_atime_ns": parent.st_atime_ns, "folder_mtime_ns": parent.st_mtime_ns}
    if isinstance(step, Create | MakeDirectory) or (isinstance(step, Delete) and work.status(path) is None):
        return Meta(number, _after(step), **times)
    status = work.folder.disk.status(work.waiting(number) if isinstance(step, Rename) else path)
    return Meta(number, _after(step), atime_ns=status.st_atime_ns, mtime_ns=status.st_mtime_ns, **times)


def _after(step: Step) -> str | None:
    """Return the fingerprint of the bytes that a step writes, None for steps that write none."""
    if isinstance(step, WithContent):
        size = step.length
        if isinstance(step.content, Staged) and step.content.size == size:
            return step.content.hash
        return fingerprint(itertools.chain(step.content.pieces(), [size - step.content.size]))
    return None


def _execute(files: _OpenFiles, work: ApplyWork, number: int, meta: Meta) -> None:
    """Execute one step; `files.finish` makes it durable. Errors: OSError, ChangedSince."""
    step = work.plan.steps[number]
    path = work.paths.locate(step.path)
    if isinstance(step, MoveIn):
        if work.status(path) is not None:
            raise ChangedSince(Text("{path} has appeared", path=step.path))
        files.move(work.waiting(number), path)
    elif isinstance(step, MoveOut):
        if isinstance(step, SetAside) and work.status(work.waiting(number)) is not None:
            raise ChangedSince(Text("{waiting} has appeared", waiting=work.waiting(number)))
        files.move(path, work.waiting(number))
    elif isinstance(step, Delete):
        files.delete(path)
    else:
        descriptor = files.descriptor(path, meta)
        if isinstance(step, Truncate):
            files.disk.truncate(descriptor, step.to_size)
            return
        at = step.at
        for chunk in chunks(step.content):
            files.disk.write_at(descriptor, chunk, at)
            at += len(chunk)
        if isinstance(step, Extend):
            files.disk.truncate(descriptor, step.to_size)


def _include_done(files: _OpenFiles, work: ApplyWork, number: int, meta: Meta) -> None:
    """Add the files of a step that is already done to those that `files.finish` makes durable."""
    step = work.plan.steps[number]
    path = work.paths.locate(step.path)
    if isinstance(step, InPlace):
        files.descriptor(path, meta)
    elif isinstance(step, MoveIn):
        files.moved(work.waiting(number), path)
    elif isinstance(step, Delete):
        files.delete(path)
    else:
        files.moved(path, work.waiting(number))


def _probe(work: ApplyWork, batch: Batch, number: int, begun: int, *, torn: bool) -> Status:
    """Determine the state of one step on disk after `begun` batches have begun; `torn`: it may be half done."""
    step, meta = work.plan.steps[number], batch.metas[number]
    if isinstance(step, Delete):
        return _probe_deleted(work, step)
    path, waiting = work.paths.locate(step.path), work.waiting(number)
    if isinstance(step, InPlace):
        before = partial(work.log.before, batch.images.get(number, []))
        status = probe_in_place(step, path, meta.after, before, torn=torn, entries=work.folder.disk)
        now = work.status(path)
        if status is Status.AFTER and now is not None and work.folder.touched_since(now, work.mtime(meta)):
            return Status.TOUCHED  # the bytes of the step are unchanged, but something has written to the file
        return status
    if isinstance(step, MoveIn):
        return Status.BEFORE if work.status(waiting) is not None else _probe_moved_in(work, step, path, meta)
    moved = work.status(waiting) is not None
    entry = waiting if moved else path
    now = work.status(entry)
    if now is None:
        return Status.FOREIGN
    if isinstance(step, RemoveEmptyDirectory):
        same = stat.S_ISDIR(now.st_mode)
    else:
        same = fingerprint_entry(entry, step.expect, work.folder.disk) == step.expect
    if not same or (moved and _is_taken(work, step, begun)):
        return Status.FOREIGN
    return Status.AFTER if moved else Status.BEFORE


def _probe_deleted(work: ApplyWork, step: Delete) -> Status:
    path = work.paths.locate(step.path)
    status = work.status(path)
    if status is None:
        return Status.AFTER
    same = stat.S_ISREG(status.st_mode) and fingerprint_entry(path, step.expect, work.folder.disk) == step.expect
    return Status.BEFORE if same else Status.FOREIGN


def _probe_moved_in(work: ApplyWork, step: MoveIn, path: Path, meta: Meta) -> Status:
    """Return AFTER if the entry at a path is the one that the step moved there, else FOREIGN."""
    now = work.status(path)
    if now is None:
        return Status.FOREIGN
    if isinstance(step, MakeDirectory):
        same = stat.S_ISDIR(now.st_mode)
    elif not stat.S_ISREG(now.st_mode):
        same = False
    elif isinstance(step, Create):
        same = (
            now.st_size == step.size and fingerprint_range(path, 0, step.size, "runs:", work.folder.disk) == meta.after
        )
    elif (move := work.moves.by_path[step.path]).changed:  # the probes of the steps that change it compare its bytes
        return Status.TOUCHED if work.folder.touched_since(now, work.mtime(meta)) else Status.AFTER
    else:
        same = fingerprint_entry(path, move.expect, work.folder.disk) == move.expect
    return Status.AFTER if same else Status.FOREIGN


def _is_taken(work: ApplyWork, step: MoveOut, begun: int) -> bool:
    """Return whether the path of a file that was moved away holds something that the plan did not put there."""
    if work.status(work.paths.locate(step.path)) is None:
        return False
    newcomer, move = work.made.get(step.path), work.moves.by_path.get(step.path)
    not_yet = move is not None and move.batch >= begun  # the file that gets this name has not even been set aside
    return newcomer is None or not_yet or work.status(work.waiting(newcomer)) is not None


def probe_all(work: ApplyWork, *, for_undo: bool) -> int:
    """Check that everything a journal touched is unchanged since; return the number of batches that have begun.

    For resume, the targets of the remaining steps must also be as the plan expects. Reads only.
    Errors: ChangedSince, naming the changed paths.
    """
    record, log, batches = work.folder.record, work.log, work.batches
    begun = min(len(batches), record.batches_done + 1, len(log.batches))
    changed: list[str] = []
    written = False
    for number in range(begun):
        torn = work.folder.state is State.UNDOING or number >= record.batches_done
        batch = log.batches[number]
        if sorted(batch.metas) != sorted(batches[number]) or not _images_fit(work.plan, batch):
            raise CouldNotCheck(
                Text("{path} does not match plan.json beside it", path=log.path),
                Text("restore the journal from a backup"),
            )
        for step_number in batches[number]:
            step = work.plan.steps[step_number]
            if isinstance(step, SetAside) and work.moves.by_source[step.path].batch < begun:
                # the file may have its new name already; its Rename step is probed instead
                status = Status.FOREIGN if _is_taken(work, step, begun) else Status.AFTER
            else:
                status = _probe(work, batch, step_number, begun, torn=torn)
            if status is Status.TOUCHED:
                changed.append(step.path)
            elif status is Status.FOREIGN or (status is Status.BEFORE and not torn and not for_undo):
                changed.append(step.path)
                written = True
            elif for_undo and isinstance(step, MakeDirectory) and status is Status.AFTER:
                listed = work.folder.disk.list(work.paths.locate(step.path))
                entries = (f"{step.path}/{name}" for name in listed)
                new = [entry for entry in entries if entry not in work.made]
                changed += new
                written |= bool(new)
    if not for_undo:
        changed += _stale_targets(work, begun)
    if changed:
        names = first_few(changed, 5)
        raise ChangedSince(
            Text("changed since the repair: {names}", names=names), _instead(work, written=written, for_undo=for_undo)
        )
    return begun


def _instead(work: ApplyWork, *, written: bool, for_undo: bool) -> str:
    """Return what to do about a repair whose files have changed since; `written`: not only in their times."""
    store = shlex.quote(str(work.paths.store))
    if not for_undo:
        return Text(
            "something (a broker?) wrote to the store since: `rmqstore undo` may still undo the repair, and `rmqstore "
            "verify {store}` shows what the store needs now",
            store=store,
        )
    if not written:
        return Text(
            "the bytes that the repair wrote are still there, but these files have other times. If this is a copy of "
            "the store, undo the original, or copy it with its times (cp -a). Otherwise something (a broker?) wrote to "
            "the files, and undo would destroy that; `rmqstore verify {store}` shows what the store needs now",
            store=store,
        )
    return Text(
        "something (a broker?) wrote to the store after the repair, and undo would destroy that. `rmqstore verify "
        "{store}` shows what the store needs now; what the repair replaced is kept in {journal}",
        store=store,
        journal=work.folder.path,
    )


def _images_fit(plan: Plan, batch: Batch) -> bool:
    """Return whether the before-images of a batch are bytes that its steps replace."""
    for number, images in batch.images.items():
        step = plan.steps[number] if number in batch.metas else None
        if not isinstance(step, Overwrite | Truncate):
            return False
        if any(image.at < step.at or image.at + image.length > step.at + step.length for image in images):
            return False
    return True


def _stale_targets(work: ApplyWork, begun: int) -> Iterator[str]:
    """Yield why a target of the batches after the first `begun` is not as the plan expects."""
    leaving = {step.path for step in work.plan.steps if isinstance(step, MoveOut)}
    for number in itertools.chain.from_iterable(work.batches[begun:]):
        step = work.plan.steps[number]
        if isinstance(step, Create | MakeDirectory):
            step = replace(step, like=None)  # staged with its metadata; `like` may be discarded by now
        now = work.moves.place(step.path, begun, work.paths, work.folder)
        if isinstance(step, Delete) and work.status(now) is None:
            continue
        try:
            check_step_on_disk(step, work.paths, leaving, work.made, now)
        except PlanStale as error:
            yield error.message


def undo_batch(work: ApplyWork, number: int) -> None:
    """Undo the steps of one batch in reverse order, and make that durable. Errors: OSError."""
    batch, folder = work.log.batches[number], work.folder
    files = _OpenFiles(folder.disk)
    try:
        for step_number in reversed(work.batches[number]):
            step = work.plan.steps[step_number]
            path = work.paths.locate(step.path)
            assert not isinstance(step, Delete)
            if isinstance(step, MoveIn | MoveOut):
                waiting = work.waiting(step_number)
                source, target = (path, waiting) if isinstance(step, MoveIn) else (waiting, path)
                undone = (work.status(waiting) is not None) == isinstance(step, MoveIn)
                (files.moved if undone else files.move)(source, target)
            else:
                descriptor = files.descriptor(path, batch.metas[step_number])
                if isinstance(step, Truncate | Extend):
                    files.disk.truncate(descriptor, step.from_size)
                for at, data in work.log.before(batch.images.get(step_number, [])):
                    files.disk.write_at(descriptor, data, at)
        files.finish()
    finally:
        files.close()


def undo_times(work: ApplyWork) -> None:
    """Restore the times that directories had before the first batch."""
    times: dict[Path, Meta] = {}
    for batch in work.log.batches:
        for number, meta in batch.metas.items():
            times.setdefault(work.paths.locate(work.plan.steps[number].path).parent, meta)
    for place, meta in times.items():
        status = work.status(place)
        if status is not None and stat.S_ISDIR(status.st_mode):
            with contextlib.suppress(PermissionError):
                work.folder.disk.set_times(place, meta.folder_atime_ns, meta.folder_mtime_ns)
