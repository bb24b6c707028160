"""The healed store: the store with the bytes of replicas in its log.

Nothing is copied: it is read through steps. The rest of the recovery is planned for this store, so that one examination
covers everything. `merged` makes one plan for the real files of that plan and of the replicas' bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rmqstore.documents.content import CHUNK, Content, Parts, Zeros
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import Create, Discard, Extend, Overwrite, Step, Truncate
from rmqstore.documents.steps import Span as SavedSpan
from rmqstore.errors import PlanStale
from rmqstore.files.files import Files, OpenFile
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.files.store import Store, open_store
from rmqstore.repair.overlay import Overlay
from rmqstore.repair.plan.plan_builder import PlanBuilder, fingerprint_entry, fingerprint_range, readable
from rmqstore.repair.repaired_log import Span, within, without
from rmqstore.repair.replica.replica import log_of
from rmqstore.repair.replica.sources import Taken
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text

_LEAST_READ, _MOST_READ = 1 << 14, 1 << 22  # bytes


@dataclass(slots=True)
class HealedFile:
    """One file of a log, with bytes of a replica.

    `path` is its path in the store, `length` its current length in bytes, None if it is missing, `size` its length with
    the replicas' bytes. `like` is a file of the same log.
    """

    path: Path
    start: int
    length: int | None
    size: int
    like: Path | None
    taken: list[Taken] = field(default_factory=list)


@dataclass(slots=True)
class HealedStore:
    """The healed store, its files with bytes of replicas, and the steps that write these."""

    store: Store
    files: list[HealedFile]
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class FileContent:
    """Bytes of a file as the content of a step. Errors: OSError; PlanStale if the file has become shorter."""

    files: Files
    path: Path
    at: int
    size: int

    def pieces(self) -> Iterator[bytes | int]:
        at, stop = self.at, self.at + self.size
        with self._open() as file:
            for low, high in file.data_extents(at, stop):
                if low > at:
                    yield low - at
                for start in range(low, high, CHUNK):
                    yield file.read(min(CHUNK, high - start), start)
                at = high
        if at < stop:
            yield stop - at

    def read(self, size: int, at: int) -> bytes:
        with self._open() as file:
            return file.read(max(0, min(size, self.size - at)), self.at + at)

    def _open(self) -> OpenFile:
        file = self.files.open(self.path)
        if file.length < self.at + self.size:
            file.close()
            raise PlanStale(Text("{path} is shorter than when the plan was made", path=self.path))
        return file


def build(store: Store, taken: Sequence[Taken]) -> HealedStore:
    """Return a store with the replicas' bytes in its log."""
    pieces: dict[Path, list[Taken]] = {}
    for piece in taken:
        pieces.setdefault(_path_of(piece), []).append(piece)
    files = [_healed_file(path, found) for path, found in pieces.items()]
    names = PlanBuilder(store)
    steps = [step for file in files for step in _steps(file, names)]
    return HealedStore(open_store(store.path, store.config, Overlay(store.files, steps, names.root)), files, steps)


def _path_of(piece: Taken) -> Path:
    """Return the path of the file that taken bytes belong to, also if it is missing."""
    queue = piece.place.log.queue
    file = queue.find(piece.start)
    if file is not None:
        return file.path
    directory = queue.files[0].path.parent if queue.files else queue.directories[0]
    return directory / offset_to_file_name(piece.start // queue.file_size * queue.file_size)


def _healed_file(path: Path, taken: list[Taken]) -> HealedFile:
    """Return a file; if it is missing or gets bytes after its end, it gets the length of its log's other files."""
    queue = taken[0].place.log.queue
    file = queue.find(taken[0].start)
    start = taken[0].start // queue.file_size * queue.file_size
    length = file.length if file is not None else None
    last = max(piece.stop for piece in taken) - start
    size = length if length is not None and last <= length else queue.file_size
    like = queue.files[0].path if queue.files else None
    return HealedFile(path, start, length, size, like, sorted(taken, key=lambda piece: piece.start))


def _steps(file: HealedFile, names: PlanBuilder) -> Iterator[Step]:
    """Yield the steps that write the replicas' bytes. `merged` makes those of the plan, which expect bytes."""
    name, length = names.name(file.path), file.length
    if length is None:
        yield Create(name, file.size, _between(file, 0, file.size), names.name(file.like) if file.like else None)
        return
    for piece in file.taken:
        low, high = piece.start - file.start, min(piece.stop - file.start, length)
        if low < high:
            yield Overwrite(name, low, _between(file, low, high), "")
    if file.size > length:
        yield Extend(name, length, file.size, _between(file, length, file.size))


def _between(file: HealedFile, low: int, high: int) -> Content:
    """Return the replicas' bytes between two positions of a file, and zeros before and between them."""
    parts: list[Content] = []
    at = low
    for piece in file.taken:
        start, stop = max(piece.start - file.start, at), min(piece.stop - file.start, high)
        if start < stop:
            parts += [Zeros(start - at), *_bytes_of(piece, file.start + start, file.start + stop)]
            at = stop
    return Parts(tuple(part for part in parts if part.size))


def _bytes_of(piece: Taken, start: int, stop: int) -> Iterable[Content]:
    """Yield the bytes [start, stop) of a replica's log (global offsets), file by file."""
    for source in piece.replica.queue.files:
        low, high = max(start, source.start), min(stop, source.start + source.length, source.stop)
        if low < high:
            path = source.files.real_path(source.path) if source.files.on_this_machine else source.path
            yield FileContent(source.files, path, low - source.start, high - low)


def messages_in(healed: HealedStore, piece: Taken) -> int:
    """Count the records in taken bytes."""
    queue = log_of(healed.store, piece.place.log.body_offset)
    file = queue.find(piece.start) if queue is not None else None
    if file is None or not piece.good:
        return 0
    start, stop = piece.start - file.start, piece.stop - file.start
    options = ScanOptions(crc=False, chunk=min(max(stop - start, _LEAST_READ), _MOST_READ))
    runs = scan_file(file, start=start, stop=stop, body_offset=piece.place.log.body_offset, exact=True, options=options)
    return sum(run.count for run in runs if run.kind is Kind.RECORDS)


def merged(plan: Plan, healed: HealedStore, names: PlanBuilder, why: str) -> Plan:
    """Return the plan of a healed store as a plan for the store itself; `why` is the reason of the restoring steps.

    Errors: NotReadable without permission to read a log file.
    """
    by_name = {names.name(file.path): file for file in healed.files}
    gone = {s.path for s in plan.steps if isinstance(s, Discard)}
    steps: list[Step] = [_with_model(s, by_name, names) for s in plan.steps if s.path not in by_name]
    for step in plan.steps:
        file = by_name.get(step.path)
        if isinstance(step, Discard) and file is not None and file.length is not None:  # not only from the replicas
            expect = readable(file.path, partial(fingerprint_entry, file.path))
            steps.append(replace(step, expect=expect, length=file.length))
    final = Overlay(healed.store.files, [s for s in plan.steps if s.path in by_name], names.root)
    for name, file in by_name.items():
        if name not in gone:
            own = [s for s in plan.steps if s.path == name]
            steps += _merged_steps(name, file, own, final, names, why)
    spans = [s for span in plan.spans if (s := _saved(span, by_name.get(span.path))) is not None]
    return replace(plan, steps=tuple(steps), spans=tuple(spans))


def _with_model(step: Step, by_name: Mapping[str, HealedFile], names: PlanBuilder) -> Step:
    """Return a step whose new file has its owner and mode from a file that exists now."""
    file = by_name.get(step.like or "") if isinstance(step, Create) else None
    if file is None or file.length is not None or not isinstance(step, Create):
        return step
    return replace(step, like=names.name(file.like) if file.like is not None else None)


def _saved(span: SavedSpan, file: HealedFile | None) -> SavedSpan | None:
    """Limit a span to the bytes that the store's file has; None if there are none to save."""
    if file is None:
        return span
    length = min(span.length, (file.length or 0) - span.at)
    return replace(span, length=length) if length > 0 else None


def _merged_steps(
    name: str, file: HealedFile, own: Sequence[Step], final: Files, names: PlanBuilder, why: str
) -> Iterator[Step]:
    """Yield the steps of one file, so that every byte is written only once. `final`: the files after the plan."""
    written = [(span, step.why) for step in own if (span := _written_by(step))[0] < span[1]]
    taken = [(t.start - file.start, t.stop - file.start) for t in file.taken]
    rows = [(span, why) for span in without(taken, sorted(span for span, _ in written))] + written
    with final.open(file.path) as planned:
        size = planned.length
    if file.length is None:
        like = names.name(file.like) if file.like is not None else None
        yield Create(name, size, FileContent(final, file.path, 0, size), like, why)
        return
    for span, reason in sorted(rows):
        for start, stop in within([span], 0, min(size, file.length)):
            expect = readable(file.path, partial(fingerprint_range, file.path, start, stop - start))
            yield Overwrite(name, start, FileContent(final, file.path, start, stop - start), expect, reason)
    if size > file.length:
        rest = size - file.length
        yield Extend(name, file.length, size, FileContent(final, file.path, file.length, rest), why)
    elif size < file.length:
        rest = file.length - size
        expect = readable(file.path, partial(fingerprint_range, file.path, size, rest))
        yield Truncate(name, file.length, size, expect, own[-1].why if own else why)


def _written_by(step: Step) -> Span:
    """Return the range of positions that a step writes."""
    if isinstance(step, Overwrite | Extend):
        return step.at, step.at + step.content.size
    if isinstance(step, Truncate):
        return 0, 0
    raise TypeError(step)
