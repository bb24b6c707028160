"""Make a bundle: select the files of a store, convert each of them, and write archive and manifest.

Sparse files are stored as such (GNU sparse format 1.0 in PAX headers), which Python's tarfile can only read.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from rmqstore.errors import UsageError
from rmqstore.files.files import DirEntry, FileRights, Files
from rmqstore.files.index import index_sizes
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, file_name_to_offset
from rmqstore.files.own_store import own_store
from rmqstore.files.store import BROKER_NAMES, QueueKind, Store
from rmqstore.files.store_queues import has_database
from rmqstore.files.topics import topics, topics_of_queues
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.files.walk import OwnFiles, walk
from rmqstore.formats import checkpoint, consumequeue, index
from rmqstore.formats.message import HEAD, PHYSICAL_OFFSET_AT
from rmqstore.texts import Text
from rmqstore.views.bundle.logs import Piece, byte_noise, log_pieces
from rmqstore.views.bundle.names import JSON_WORDS, Pseudonyms, json_text
from rmqstore.views.bundle.units import IndexHashes, ext_pieces, index_pieces, timer_pieces, unit_pieces
from rmqstore.views.dump.messages import Job, Log, logs_of, read_records
from rmqstore.views.dump.selection import Selection

_PAGE = 4096
_BLOCK = 4 << 20
_GAP = 64 << 10  # shorter gaps of zeros do not divide an extent
Extent = tuple[int, int]


def extents_of(files: Files, path: Path) -> list[Extent]:
    """Return the extents [start, stop) of a file with bytes other than zeros, in whole pages. Errors: OSError."""
    out: list[Extent] = []
    with files.open(path) as file:
        length = file.length
        for start, stop in file.data_extents(0, length):
            for at in range(start // _PAGE * _PAGE, stop, _BLOCK):
                data = np.frombuffer(file.read(min(_BLOCK, stop - at), at), dtype=np.uint8)
                pages = np.add.reduceat(data != 0, np.arange(0, len(data), _PAGE)) if len(data) else data
                for page in np.flatnonzero(pages).tolist():
                    low = at + page * _PAGE
                    _add(out, low, min(low + _PAGE, length))
    return out


def _add(extents: list[Extent], start: int, stop: int) -> None:
    if extents and start - extents[-1][1] < _GAP:
        extents[-1] = (extents[-1][0], stop)
    else:
        extents.append((start, stop))


class Archive:
    """A compressed tar archive, written sequentially."""

    def __init__(self, target: BinaryIO) -> None:
        # noise cannot be compressed, and everything else compresses well at any level
        self._gzip = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=target, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)

    def close(self) -> None:
        self._tar.close()
        self._gzip.close()

    def directory(self, name: str, like: DirEntry, rights: FileRights | None) -> None:
        info = _info(name, like, rights)
        info.type = tarfile.DIRTYPE
        self._tar.addfile(info)

    def text(self, name: str, data: bytes) -> None:
        """Add a small file that is not from the store."""
        import io

        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))

    def file(
        self, name: str, like: DirEntry, rights: FileRights | None, extents: list[Extent], pieces: Iterable[Piece]
    ) -> None:
        """Add a file with length and time of `like`. `pieces`: its bytes in order; the rest is zeros."""
        info = _info(name, like, rights)
        if extents == [(0, like.length)] or not like.length:
            info.size = like.length
            self._tar.addfile(info, _IteratorFile(_cut(pieces, extents)))  # type: ignore[arg-type]  # it has read()
            return
        listed = extents if extents and extents[-1][1] == like.length else [*extents, (like.length, like.length)]
        numbers = [len(listed), *(n for start, stop in listed for n in (start, stop - start))]
        table = "".join(f"{n}\n" for n in numbers).encode()
        table += bytes(-len(table) % 512)
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": name,
            "GNU.sparse.realsize": str(like.length),
        }
        info.name = f"GNUSparseFile.0/{name}"
        info.size = len(table) + sum(stop - start for start, stop in extents)
        self._tar.addfile(info, _IteratorFile(chain([table], _cut(pieces, extents))))  # type: ignore[arg-type]


def _info(name: str, like: DirEntry, rights: FileRights | None) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime = like.mtime_ns / 1e9
    info.mode, info.uid, info.gid = rights or FileRights(0o755 if like.directory else 0o644, 0, 0)
    return info


def _cut(pieces: Iterable[Piece], extents: list[Extent]) -> Iterator[bytes]:
    """Yield the bytes of some extents from pieces in order, with zeros between pieces."""
    todo = iter(extents)
    start, stop = next(todo, (0, 0))
    for at, data in pieces:
        end = at + len(data)
        while start < stop and start < end:
            if start < at:
                low = min(stop, at)
                yield bytes(low - start)
                start = low
            else:
                high = min(stop, end)
                yield data[start - at : high - at]
                start = high
            if start == stop:
                start, stop = next(todo, (0, 0))
    while start < stop:
        yield bytes(stop - start)
        start, stop = next(todo, (0, 0))


class _IteratorFile:
    """A file object that reads the bytes of an iterator."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._left = memoryview(b"")  # slices of bytes would be copies

    def read(self, size: int) -> bytes:
        out = []
        while size > 0:
            if not self._left:
                part = next(self._parts, None)
                if part is None:
                    break
                self._left = memoryview(part)
            out.append(self._left[:size])
            self._left = self._left[size:]
            size -= len(out[-1])
        return b"".join(out)


SCHEMA = "rmqstore.bundle/1"
MANIFEST = "manifest.json"
STORE = "store"
"""Directory of the store in the archive."""
_TREES = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "compactionLog", "compactionCq")
_PLAIN_NAMES = re.compile(
    r"\.rmqstore|compactionLog|compactionCq|position-checkpoint|dledger-n?[0-9]+|data|currterm|snapshot|timermetrics"
    r"|transactionMetrics|[a-zA-Z]+\.json|[0-9]+|topics|consumerOffset|consumerOffsets|subscriptionGroup|subscriptionGroups"
    r"|delayOffset|consumerFilter|consumerOrderInfo|metadata|rdb|users|acls"
)
_ENDINGS = ("json", "bak", "txt", "tmp", "log", "")
_NUMBERS_ONLY = frozenset({"timercheck", "timerwheel", "lock", "abort"})
_SETTINGS = re.compile(r"-?[0-9]+|true|false|([0-9]+[smhd] ?)+|[A-Za-z]+FLUSH|[A-Z_]+")
_NAMING = re.compile("name|addr|ip|path|dir|cluster|group|peer|self|user|pass|key|secret|region|url|id$", re.IGNORECASE)
_NODE_ID = re.compile("[A-Za-z][0-9]{1,9}")
_SMALL_TEXT = 64 << 20


@dataclass(frozen=True, slots=True)
class Scope:
    """The content of a bundle: the whole store, the log files `around` an offset, or the files of a `topic`."""

    around: int | None = None
    topic: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `scope` of the manifest, without the topic's name."""
        kind = "around" if self.around is not None else "topic" if self.topic is not None else "whole"
        return {"kind": kind, "offset": self.around}


@dataclass(slots=True)
class Bundle:
    """The result: number of files and bytes per part of the store, and files that were left out, by reason."""

    scope: Scope
    kind: str = ""
    parts: dict[str, list[int]] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest."""
        return {
            "schema": SCHEMA,
            "store_kind": self.kind,
            "scope": self.scope.to_json(),
            "parts": [{"part": name, "files": n, "bytes": size} for name, (n, size) in self.parts.items()],
            "left_out": [
                {"why": why, "files": len(names), "names": names[:_NAMED]} for why, names in self.left_out.items()
            ],
            "replaced": self.replaced,
            "kept": KEPT,
        }


_NAMED = 20
_JOURNALS = Text("journals of repairs hold original bytes")
_ROCKSDB = Text("RocksDB: its keys and values cannot be replaced")
_OUT_OF_SCOPE = Text("outside of the selected part")
KEPT = [
    Text("lengths, offsets, queue ids, queue offsets, times, sizes and flags"),
    Text("words of RocketMQ itself: system topics, names of its properties and settings"),
    Text("numbers in config/, ports, offsets in message ids"),
    Text("damage, and the results of checksums"),
]
"""What a bundle reveals about the original store."""


@dataclass(frozen=True, slots=True)
class _Item:
    pieces: Callable[[], Iterator[Piece]]
    first: bool = False
    extents: list[Extent] | None = None


def make_bundle(
    store: Store, scope: Scope, target: BinaryIO, progress: Callable[[int], None] = lambda _: None
) -> Bundle:
    """Write a bundle to an open file. `progress` is called with the bytes of each file.

    Memory grows with the largest index file, not with the store.
    Errors: UsageError for an offset or topic that is not in the store; OSError for a file that cannot be read.
    """
    return _Builder(own_store(store), scope).write(target, progress)


class _Builder:
    def __init__(self, store: Store, scope: Scope) -> None:
        self.store, self.scope = store, scope
        self.root, self.files = store.path, store.files
        self.topics = topics(store) if store.part is None else topics_of_queues(store)
        self.names = Pseudonyms(self.topics, JSON_WORDS)
        self.bundle = Bundle(scope, store.kind.value)
        self._links = [entry.path for entry in store.followed]
        self.logs = logs_of(store)
        dledger = store.dledger
        self._index_of_dledger = frozenset(f.path for f in dledger.index.files) if dledger is not None else frozenset()
        self.span = self._span()

    # --- scope --------------------------------------------------------------------------------------------------------

    def _span(self) -> tuple[str, int, int] | None:
        """Return the log and the offsets [start, stop) of the files around the wanted offset; None for other scopes."""
        if self.scope.around is not None:
            for log in self.logs:
                if log.queue.start <= self.scope.around < log.queue.stop:
                    at = self.scope.around // log.queue.file_size * log.queue.file_size
                    return log.name, at - log.queue.file_size, at + 2 * log.queue.file_size
            raise UsageError(
                Text("no log has the offset {around:,}", around=self.scope.around),
                Text("see `rmqstore info` for its range"),
            )
        if self.scope.topic is not None and self.scope.topic not in self.topics:
            raise UsageError(
                Text("no topic {topic!r} in this store", topic=self.scope.topic),
                Text("see `rmqstore info`, or use --whole"),
            )
        return None

    def _topic_files(self) -> dict[str, tuple[int, int]]:
        """Return the offsets [start, stop) of the topic's messages in each log."""
        if self.scope.topic is None:
            return {}
        out = {}
        for log in self.logs:
            selection = Selection(topics=frozenset({self.scope.topic}))
            first = _some_offset(self.store, log, replace(selection, limit=1))
            last = _some_offset(self.store, log, replace(selection, limit=1, reverse=True))
            out[log.name] = (first or 0, (last or 0) + 1) if first is not None else (0, 0)
        return out

    def _wants(self, log: Log, file: MappedFile, of_topic: dict[str, tuple[int, int]]) -> bool:
        if self.span is not None:
            name, start, stop = self.span
        elif log.name in of_topic:
            name, (start, stop) = log.name, of_topic[log.name]
        else:
            return True
        return log.name == name and start < file.stop and file.start < stop

    # --- files --------------------------------------------------------------------------------------------------------

    def _items(self) -> Iterator[tuple[Path, _Item | None, str]]:
        """Yield (path, item, "") for every file of the store, or (path, None, reason) for those left out."""
        known = self._known()
        of_topic = self._topic_files()
        wanted = {f.path for log in self.logs for f in log.queue.files if self._wants(log, f, of_topic)}
        log_files = {f.path for log in self.logs for f in log.queue.files}
        whole = self.scope == Scope()
        own = self.store.root / "consumequeue" / (self.scope.topic or "")
        elsewhere = sorted(path for path in log_files if not path.is_relative_to(self.root))
        for path in (*_files_below(self.files, self.root, self._links, self._leave_out), *elsewhere):
            if path in log_files:
                yield path, known[path] if path in wanted else None, _OUT_OF_SCOPE
            elif whole or (self.scope.topic is not None and own in path.parents):
                yield path, known.get(path) or self._other(path), ""
            else:
                yield path, None, _OUT_OF_SCOPE

    def _known(self) -> dict[Path, _Item]:
        """Return the items of log, queue, index and timer log files."""
        out: dict[Path, _Item] = {}
        for log in self.logs:
            for file in log.queue.files:
                out[file.path] = _Item(partial(log_pieces, file, log.body_offset, self.names), True)
            for odd in log.queue.odd:
                if odd.path not in out and self.files.is_file(odd.path):
                    file = _placed(self.files, odd.path, log)
                    pieces = partial(log_pieces, file, log.body_offset, self.names, check_offset=False)
                    out[odd.path] = _Item(pieces, True)
        for one in self.store.consume_queues(*QueueKind):
            for path in _paths_of(self.files, one.queue):
                out[path] = self._queue_item(one.kind, path)
        sizes = index_sizes(self.store)
        hashes = IndexHashes((_placed_queue(self.files, log) for log in self.logs), self.names)
        for entry in self.store.index_files if sizes is not None else ():
            if sizes is not None and entry.length >= index.unit_at(1, sizes[0]):
                pieces = partial(index_pieces, self.files, entry.path, sizes[0], hashes)
                out[entry.path] = _Item(pieces, extents=[(0, entry.length)])
        for file in self.store.timer_log.files if self.store.timer_log is not None else ():
            out[file.path] = _Item(partial(timer_pieces, self.files, file.path, self.topics, self.names))
        return out

    def _queue_item(self, kind: QueueKind, path: Path) -> _Item:
        if kind is QueueKind.COMPACTION_LOG:
            length = self._entry(path).length
            file = MappedFile(path, file_name_to_offset(path.name) or 0, length, length, files=self.files)
            return _Item(partial(log_pieces, file, 0, self.names, check_offset=False), True)
        if kind is QueueKind.EXT:
            return _Item(partial(ext_pieces, self.files, path, self.names))
        layout = consumequeue.UNIT if kind is QueueKind.SIMPLE else consumequeue.BATCH_UNIT
        return _Item(partial(unit_pieces, self.files, path, layout, self.names))

    def _other(self, path: Path) -> _Item:
        size, files = self._entry(path).length, self.files
        if path.name.removesuffix(".bak") in _NUMBERS_ONLY or path in self._index_of_dledger:
            return _Item(partial(_same, files, path))
        if path == self.store.root / "checkpoint":
            return _Item(partial(_checkpoint, files, path, size))
        if size <= _SMALL_TEXT and _is_text(files.read_at(path, min(size, 1 << 16), 0)):
            return _Item(lambda: iter([(0, json_text(files.read_at(path, size, 0), self.names))]))
        return _Item(partial(_noise, files, path))

    def _entry(self, path: Path) -> DirEntry:
        """Examine a file. Errors: OSError if it is gone."""
        entry = self.files.stat(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return entry

    def _leave_out(self, path: Path, why: str) -> None:
        self.bundle.left_out.setdefault(why, []).append(self._name(path))

    # --- the archive --------------------------------------------------------------------------------------------------

    def write(self, target: BinaryIO, progress: Callable[[int], None]) -> Bundle:
        items = sorted(self._items(), key=lambda item: not (item[1] is not None and item[1].first))
        archive = Archive(target)
        below = walk(self.files, self.root) if self.files.is_directory(self.root) else ()
        for entry in (e for e in below if e.directory and e.link is None):
            if self._is_kept_directory(entry.path):
                archive.directory(self._name(entry.path), entry, self.files.rights(entry.path))
        for path, item, reason in items:
            if item is None:
                self._leave_out(path, reason)
                continue
            entry = self._entry(path)
            extents = extents_of(self.files, path) if item.extents is None else item.extents
            archive.file(self._name(path), entry, self.files.rights(path), extents, item.pieces())
            part = self.store.part or self._name(path).split("/")[1]
            counts = self.bundle.parts.setdefault(part, [0, 0])
            counts[0] += 1
            counts[1] += entry.length
            progress(entry.length)
        self.bundle.replaced = self.names.counts
        settings = self._settings()
        if settings:
            archive.text("broker.conf", settings)
        archive.text(MANIFEST, orjson.dumps(self.bundle.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
        archive.close()
        return self.bundle

    def _is_kept_directory(self, path: Path) -> bool:
        below = path.relative_to(self.root).parts
        return below[0] != ".rmqstore" and (self.scope == Scope() or len(below) == 1)

    def _name(self, path: Path) -> str:
        if not path.is_relative_to(self.root):  # a log directory configured in broker.conf
            log = next(log for log in self.logs if any(f.path == path for f in log.queue.files))
            folder = f"{self.store.dledger.directory.name}/data" if log.body_offset and self.store.dledger else log.name
            return f"{STORE}/{folder}/{path.name}"
        parent = "" if self.store.part is None else self.root.name
        names = [STORE if self.store.part is None else self._component(parent, self.root.parent.name)]
        for name in path.relative_to(self.root).parts:
            names.append(self._component(name, parent))
            parent = name
        return "/".join(names)

    def _component(self, name: str, parent: str) -> str:
        """Return a file name with pseudonyms in place of topics and of words that brokers do not use."""
        if parent in _TREES and not name.isdigit():
            return os.fsdecode(self.names.topic(os.fsencode(name)))
        if _is_plain(name):
            return name
        return ".".join(
            p if p in _ENDINGS or _is_plain(p) else os.fsdecode(self.names.word(os.fsencode(p)))
            for p in name.split(".")
        )

    def _settings(self) -> bytes:
        """Return numbers and switches of broker.conf, without names and paths; DLedger nodes without hosts."""
        given = self.store.config.given
        kept = {k: v for k, v in given.items() if _SETTINGS.fullmatch(v.strip()) and not _NAMING.search(k)}
        if _NODE_ID.fullmatch(own := given.get("dLegerSelfId", "")):
            kept["dLegerSelfId"] = own
        nodes = [peer.partition("-")[0] for peer in given.get("dLegerPeers", "").split(";")]
        if all(map(_NODE_ID.fullmatch, nodes)):
            kept["dLegerPeers"] = ";".join(f"{node}-127.0.0.1:{40911 + i}" for i, node in enumerate(nodes))
        return "".join(f"{key}={value}\n" for key, value in sorted(kept.items())).encode()


def _some_offset(store: Store, log: Log, selection: Selection) -> int | None:
    found = next(read_records(store, log.name, Job(selection)), None)
    return found[0].offset if found else None


def _placed(files: Files, path: Path, log: Log) -> MappedFile:
    """Return a misnamed file of a log, with the start offset that its first record indicates."""
    entry = files.examined(path)
    length = entry.length if entry is not None else 0
    raw = files.read_at(path, log.body_offset + HEAD.size, 0)
    at = log.body_offset + PHYSICAL_OFFSET_AT
    start = max(0, int.from_bytes(raw[at : at + 8], "big", signed=True) - log.body_offset) if len(raw) > at + 8 else 0
    return MappedFile(path, start, length, max(length, 1), files=files)


def _paths_of(files: Files, queue: MappedFileQueue) -> list[Path]:
    """Return the files of a queue, also those with wrong names or lengths."""
    return [*(file.path for file in queue.files), *(odd.path for odd in queue.odd if files.is_file(odd.path))]


def _placed_queue(files: Files, log: Log) -> MappedFileQueue:
    """Return a log whose files start at the offsets that their first records indicate."""
    size = log.queue.file_size
    found: dict[int, MappedFile] = {}
    for path in _paths_of(files, log.queue):
        file = _placed(files, path, log)
        start = file_name_to_offset(path.name) if file.start % size else file.start
        if start is not None and (start not in found or file_name_to_offset(path.name) == start):
            found[start] = MappedFile(path, start, file.length, size, files=files)
    return MappedFileQueue(log.name, log.queue.directories, size, [found[start] for start in sorted(found)])


def _files_below(
    files: Files, root: Path, links: Sequence[Path], leave_out: Callable[[Path, str], None]
) -> Iterator[Path]:
    """Yield all regular files, following links at the top to a part; call `leave_out` for everything else."""
    if files.is_file(root):
        yield root
        return
    for top in (root, *links):
        if top != root:
            leave_out(top, Text("a link, replaced by its target directory"))
        for entry in walk(files, top, lambda below: _is_entered(files, below.path)):
            if entry.path in links:
                continue
            if not entry.directory and not entry.regular:
                leave_out(entry.path, _left_words(files, entry))
            elif not entry.directory:
                yield entry.path
            elif entry.path.name == JOURNAL_FOLDER:
                leave_out(entry.path, _JOURNALS)
            elif has_database(files, entry.path):
                leave_out(entry.path, _ROCKSDB)


def _is_entered(files: Files, directory: Path) -> bool:
    return directory.name != JOURNAL_FOLDER and not has_database(files, directory)


def _left_words(files: Files, entry: DirEntry) -> str:
    if entry.link is not None and isinstance(files, OwnFiles):
        return files.leads(entry).words
    return Text("not a regular file")


def _is_plain(name: str) -> bool:
    """Return whether a file has this name in every store, so that the name tells nothing about this one."""
    return name in BROKER_NAMES or _PLAIN_NAMES.fullmatch(name) is not None


def _is_text(data: bytes) -> bool:
    """Return whether bytes are text: at most 2 % control characters."""
    return bool(data) and sum(b < 9 or 13 < b < 32 for b in data) * 50 < len(data)


def _same(files: Files, path: Path) -> Iterator[Piece]:
    """Yield a file unchanged, as it contains only numbers."""
    at = 0
    with files.open(path) as file:
        while block := file.read(1 << 20, at):
            yield at, block
            at += len(block)


def _noise(files: Files, path: Path) -> Iterator[Piece]:
    return ((at, byte_noise(block)) for at, block in _same(files, path))


def _checkpoint(files: Files, path: Path, length: int) -> Iterator[Piece]:
    """Yield the checkpoint: its times, and noise in place of what follows."""
    raw = files.read_at(path, length, 0)
    size = checkpoint.STORE_CHECKPOINT.size
    yield 0, raw[:size] + byte_noise(raw[size:])
