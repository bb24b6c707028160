"""The stores of a Spark load or job, each with a label, and byte ranges of their files as partitions.

A piece owns the records that a scan of the whole file finds to start in it. To find the first one, a reader starts
farther back than the length of any message and scans from there. So it mistakes neither a record inside a body nor old
bytes after a BLANK for a record.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rmqstore.errors import NotAStore, NotReadable, RmqStoreError, UsageError, about
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.sources import FOR_READING, names_of, open_named
from rmqstore.files.store import Store
from rmqstore.scan.columns import NOTHING, Repaired
from rmqstore.scan.records import scan_file
from rmqstore.scan.resync import resync
from rmqstore.scan.tiling import Run
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.scan.workers import plan_splits
from rmqstore.texts import Text
from rmqstore.views.dump.messages import Log

_GLOB = frozenset("*?[")
OPENED = 8  # stores that are opened at the same time


@dataclass(frozen=True, slots=True)
class StoreRef:
    """A store or a snapshot to read. `label`: the value of the column `store` in its rows, by default its path."""

    path: Path
    label: str
    given: tuple[tuple[str, str], ...] = ()

    def open(self, parts: frozenset[str] = FOR_READING) -> Store:
        """Open the store, or the snapshot, of which `parts` are derived. Errors: as `open_named`."""
        return open_named(self.path, BrokerConfig(dict(self.given)), parts)


def store_refs(paths: Iterable[str | Path], config: Path | None = None) -> list[StoreRef]:
    """Return the stores of paths, patterns (`/data/*`, `REPO::*`), and files of paths, `@FILE`.

    The lines of such a file are `PATH` or `LABEL<tab>PATH`.

    Errors: UsageError without a store, and for two stores with the same label; NotReadable for a pattern without match.
    """
    given = _settings(config)
    out: dict[str, StoreRef] = {}
    for label, path in _expanded(str(p) for p in paths):
        path = absolute(path)
        if label in out and out[label].path != path:
            raise UsageError(
                Text("two stores have the label {label}", label=label), Text("give each store its own label")
            )
        out[label] = StoreRef(path, label, given)
    if not out:
        raise UsageError(Text("no store given"), Text("give at least one store directory"))
    return list(out.values())


def absolute(path: Path) -> Path:
    """Return a path as executors need it, whose directory is another one; an address of object storage stays."""
    return path if str(path).startswith("s3:/") else path.absolute()


def _settings(config: Path | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(BrokerConfig.read(config).given.items())) if config is not None else ()


def _expanded(paths: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for text in paths:
        if text.startswith("@"):
            yield from _listed(Path(text[1:]))
            continue
        text = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
        if _GLOB & set(text) and not os.path.lexists(text):
            for one in names_of(text):
                yield one, Path(one)
        else:
            yield text, Path(text)


def _listed(file: Path) -> Iterator[tuple[str, Path]]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise NotReadable(about(file, e)) from None
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            label, tab, path = text.partition("\t")
            yield (label.strip(), Path(path.strip())) if tab else (text, Path(text))


def refs_of_options(options: Mapping[str, str]) -> list[StoreRef]:
    """Return the stores of a Spark load: `load(path)`, `load([path, …])`, or the option `stores`, as `store_refs`.

    `stores` is JSON: an object {label: path}, or a list of paths.
    """
    config = Path(options["config"]) if options.get("config") else None
    if "stores" in options:
        named = json.loads(options["stores"])
        if isinstance(named, dict):
            given = _settings(config)
            return [StoreRef(absolute(Path(path)), str(label), given) for label, path in named.items()]
        return store_refs([str(p) for p in named], config)
    paths = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        paths = [options["path"], *paths]
    return store_refs(paths, config)


def open_each(
    refs: Iterable[StoreRef], parts: frozenset[str] = FOR_READING
) -> Iterator[tuple[StoreRef, Store | RmqStoreError | OSError]]:
    """Open the stores, some at the same time, and yield each in order: the store, or the error that it raised.

    To open a store means to list and stat its files, which on a shared file system waits for answers.
    """

    def attempt(ref: StoreRef) -> Store | RmqStoreError | OSError:
        try:
            return ref.open(parts)
        except (RmqStoreError, OSError) as error:
            return error

    waiting: deque[tuple[StoreRef, Future[Store | RmqStoreError | OSError]]] = deque()
    with ThreadPoolExecutor(OPENED, thread_name_prefix="open-store") as pool:
        for ref in refs:
            waiting.append((ref, pool.submit(attempt, ref)))
            if len(waiting) == 2 * OPENED:
                first, found = waiting.popleft()
                yield first, found.result()
        for first, found in waiting:
            yield first, found.result()


def opened(refs: Iterable[StoreRef], *, skip: bool) -> Iterator[tuple[StoreRef, Store]]:
    """Open the stores; with `skip`, skip paths that are not stores.

    Errors: NotReadable, NotAStore without `skip`.
    """
    for ref, found in open_each(refs):
        if isinstance(found, Store):
            yield ref, found
        elif not (skip and isinstance(found, NotAStore | NotReadable)):
            raise found


def unreadable_files(store: Store) -> list[str]:
    """Return a description of every log file that cannot be opened, whose messages are therefore not read."""
    out: list[str] = []
    for queue, _ in store.logs:
        for file in queue.files:
            try:
                file.open().close()
            except FileNotFoundError:
                continue  # deleted by a live broker
            except OSError as e:
                out.append(about(store.relative(file.path), e))
        out += [
            Text("{relative}: not readable", relative=store.relative(odd.path))
            for odd in queue.odd
            if odd.kind == "unreadable"
        ]
    return out


LOOK_BACK = 5 << 20  # more than the largest message that a broker accepts by default (4 MiB) with its properties
FILE_COST = 1 << 20  # the time to open a file, in bytes that could be read meanwhile
_NO_CRC = ScanOptions(crc=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, stop) of a file (positions in the file).

    `store`: label of the store. `queue`: name of the log, or `TOPIC/ID`. `body_offset`: bytes before every message.
    `exact`: a record is known to start at `start`. `repaired`: what journals tell about the log.
    """

    store: str
    queue: str
    body_offset: int
    file: MappedFile
    start: int
    stop: int
    exact: bool = False
    repaired: Repaired = NOTHING

    @property
    def cost(self) -> int:
        """The cost of reading it, in bytes."""
        return max(0, min(self.stop, self.file.length) - self.start) + FILE_COST


def log_pieces(store: str, log: Log, size: int, *, low: int | None = None, high: int | None = None) -> Iterator[Piece]:
    """Yield pieces of about `size` bytes of a log, except those without a record in [low, high) (global offsets)."""
    for split in plan_splits(log.queue, body_offset=log.body_offset, size=max(size, 4096)):
        file = split.file
        if low is not None and min(file.stop, file.start + split.stop + LOOK_BACK) <= low:
            continue  # no record that starts in it can extend to `low`
        if high is not None and file.start + split.start >= high:
            continue
        yield Piece(store, log.name, log.body_offset, file, split.start, split.stop, split.exact)


def packed(pieces: Iterable[Piece], size: int) -> list[tuple[Piece, ...]]:
    """Group adjacent pieces to about `size` bytes, so that thousands of small files become few tasks."""
    out: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    cost = 0
    for piece in pieces:
        if group and cost + piece.cost > size + FILE_COST:
            out.append(tuple(group))
            group, cost = [], 0
        group.append(piece)
        cost += piece.cost
    if group:
        out.append(tuple(group))
    return out


def first_border(piece: Piece) -> int | None:
    """Return the first run border of the whole file's scan in a piece: the position from which to read the piece.

    None if no run starts in it. Errors: OSError if the file cannot be opened.
    """
    if piece.exact or piece.start == 0:
        return piece.start
    file = piece.file
    at = max(0, piece.start - LOOK_BACK)
    if at:
        with closing(Window(file, _NO_CRC)) as window:
            found, _ = resync(window, at, file.start, window.end, piece.body_offset)
        if found is None:
            return None  # only damage follows, which the piece before reads
        at = found
    if at >= piece.start:
        return at if at < piece.stop else None
    for run in scan_file(file, start=at, stop=piece.start, body_offset=piece.body_offset, exact=True, options=_NO_CRC):
        at = run.stop - file.start
    return at if at < piece.stop else None


def runs_of(piece: Piece, options: ScanOptions) -> Iterator[Run]:
    """Yield the runs that a piece owns. Errors: OSError if the file cannot be opened."""
    start = first_border(piece)
    if start is not None:
        yield from scan_file(
            piece.file, start=start, stop=piece.stop, body_offset=piece.body_offset, exact=True, options=options
        )


def spread(items: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Divide costs into at most `parts` ranges of indexes [start, stop) with about the same sum."""
    out: list[tuple[int, int]] = []
    total, start, done = sum(items), 0, 0
    for i, cost in enumerate(items):
        done += cost
        if done * parts >= total * (len(out) + 1) or i == len(items) - 1:
            out.append((start, i + 1))
            start = i + 1
    return out
