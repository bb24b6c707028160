"""What the last run found in the files of a log, so that a file that did not change is not read again.

Only parts of the log in which everything is right are kept: whatever is damaged, odd or incomplete is read again in
every run. A kept part is used again when all of this holds:

* its file has the same path, inode, length, modification and change time as when it was read, and had been left alone
  for `SETTLED` seconds by then: until the system writes a mapped page back, writes to it do not change the times;
* the options that decide what is checked are the same, and so is the version of rmqstore;
* the units of consume queues, the index entries and the units of the DLedger index that it was compared with hold the
  same bytes; they are read again, and compared by digest;
* it was read at most `OLDEST` seconds ago: bytes can also change on the disk itself.

The state is text: a line that says whose it is, a line for each part, and a digest of all. Nothing in it is executed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, NamedTuple, Union, get_args, get_origin, get_type_hints

import orjson

from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.control_tally import ControlTally
from rmqstore.checks.log.entry_tally import EntryTally
from rmqstore.checks.log.log_pass import LogPart, PassOptions, watched_reads
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.problems.report import Reused
from rmqstore.checks.since_last.beside_split import BesideSplit
from rmqstore.errors import UsageError
from rmqstore.files.disk.paths import real_path
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.workers import Mapper, Split, map_ordered

SCHEMA = "rmqstore.last-run/1"
SETTLED = 120
OLDEST = 30 * 86_400
_WHOLE = (Kind.RECORDS, Kind.BLANK)
_HEAD_LIMIT = 1 << 16
_PART_LIMIT = 256 << 20  # bytes of a part: what a damaged state may make of memory
_ADVICE = "name another file, or remove this one"


class Identity(NamedTuple):
    """What changes when a file does. Times in ns."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(path: Path) -> Identity | None:
        """Of a file now; None when it is not there."""
        try:
            found = path.stat()
        except OSError:
            return None
        return Identity(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def is_settled(self, now: float) -> bool:
        """Whether the file had been left alone for a while at a time (s since the epoch)."""
        return now - max(self.mtime_ns, self.ctime_ns) / 1e9 >= SETTLED


@dataclass(slots=True)
class KeptPart:
    """What is kept of a `LogPart` in which everything is right, and what it depends on. Names are those of `LogPart`.

    `read_at`: epoch ms. `runs`: kind, start, stop, count, claimed.
    """

    identity: tuple[int, int, int, int]
    options: str
    read_at: int
    index_begin: int | None
    beside: BesideSplit
    begin: int | None
    end: int | None
    runs: list[tuple[int, int, int, int, int]]
    messages: int
    bytes: int
    min_time: int
    max_time: int
    first_time: int
    first_at: int
    last_time: int
    back_from: int | None
    back_max: int
    entries: EntryTally
    queues: dict[tuple[str, int], QueuePart]
    parsed: set[int]
    units_complete: bool
    fillers: list[int]
    controls: ControlTally

    def part(self) -> LogPart:
        """The part as the pass gave it."""
        own = {f.name for f in fields(LogPart)}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name in own and f.name != "runs"}
        runs = [Run(Kind(kind), start, stop, count, claimed=claimed) for kind, start, stop, count, claimed in self.runs]
        return LogPart(**values, runs=runs)

    def fits(self, split: Split) -> bool:
        """Whether the runs are a tiling of the split, whatever the state may say."""
        at = self.begin
        for kind, start, stop, count, _ in self.runs:
            if kind not in _WHOLE or start != at or stop <= start or count < 0:
                return False
            at = stop
        low, high = split.file.start + split.start, split.file.start + split.file.file_size
        return at == self.end and (self.begin is None or low <= self.begin <= high) and (at is None or at <= high)


_SAME_IN_BOTH = [f.name for f in fields(KeptPart) if f.name in {g.name for g in fields(LogPart)} - {"runs", "beside"}]


def kept_part(part: LogPart, identity: Identity, options: PassOptions, read_at: int) -> KeptPart | None:
    """What to keep of a part; None when anything in it is not as it should be."""
    catalog = options.index
    odd = (
        part.vanished or part.beside is None or part.inner or part.batches or part.findings.counts,
        any(run.kind not in _WHOLE for run in part.runs),
        part.index != IndexTally(),
        part.entries.wrong or part.entries.gaps or part.entries.internal,
        any(queue.shifted for queue in part.queues.values()),
        catalog is not None and part.end is not None and catalog.horizon < part.end,
    )
    if any(odd) or part.beside is None:
        return None
    runs = [(int(r.kind), r.start, r.stop, r.count, r.claimed) for r in part.runs]
    begin = catalog.start if catalog is not None else None
    values = {name: getattr(part, name) for name in _SAME_IN_BOTH}
    return KeptPart((*identity,), _options_key(options), read_at, begin, part.beside, runs=runs, **values)


def _options_key(options: PassOptions) -> str:
    """A digest of what decides what the pass finds in a file."""
    known = None if options.known_topics is None else sorted(options.known_topics)
    decides = (
        options.given,
        (options.scan.crc, options.scan.check_offset),
        (options.crosscheck, options.forecast, options.index is not None),
        (sorted(options.batch_topics), known),
        None if options.levels is None else (options.levels.delays, options.levels.earlier),
    )
    return hashlib.blake2b(repr(decides).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


# --- text ------------------------------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """A value of data classes, lists, tuples, dicts, sets and numbers as JSON can have it."""
    if is_dataclass(value):
        return [encoded(getattr(value, f.name)) for f in fields(value)]
    if isinstance(value, dict):
        return [[encoded(k), encoded(v)] for k, v in value.items()]
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [encoded(one) for one in value]
    return int(value) if isinstance(value, IntEnum) else value


def decoded(hint: Any, data: Any) -> Any:
    """The value of a type from what `encoded` gave. Errors: ValueError where the data is not of that type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if any(type(data) is one for one in inner):
            return data
        raise ValueError(f"{data!r} is not {hint}")
    if hint in (int, str, bool, float):
        if type(data) is not hint:
            raise ValueError(f"{data!r} is not {hint}")
        return data
    if not isinstance(data, list):
        raise ValueError(f"{data!r} is not a list")
    if is_dataclass(hint):
        return _decoded_class(hint, data)
    if origin is tuple and inner[-1:] != (...,):
        return tuple(decoded(one, value) for one, value in zip(inner, data, strict=True))
    if origin in (list, set):
        return origin(decoded(inner[0], one) for one in data)
    if origin in (dict, Counter):
        pairs = [decoded(tuple[inner if origin is dict else (*inner, int)], one) for one in data]  # type: ignore[misc]
        return origin(dict(pairs))
    raise ValueError(f"{hint} cannot be read")


def _decoded_class(hint: Any, data: list[Any]) -> Any:
    hints = _hints(hint)
    return hint(**{name: decoded(hints[name], value) for name, value in zip(hints, data, strict=True)})


_HINTS: dict[Any, dict[str, Any]] = {}


def _hints(cls: Any) -> dict[str, Any]:
    """Field -> type of a data class, in order."""
    if cls not in _HINTS:
        found = get_type_hints(cls)
        _HINTS[cls] = {f.name: found[f.name] for f in fields(cls)}
    return _HINTS[cls]


def _packed(part: KeptPart) -> bytes:
    return base64.b64encode(zlib.compress(orjson.dumps(encoded(part)), 3))


def _unpacked(line: bytes) -> KeptPart:
    """Errors: ValueError."""
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(base64.b64decode(line, validate=True), _PART_LIMIT)
    except zlib.error as e:
        raise ValueError(str(e)) from None
    part: KeptPart = decoded(KeptPart, orjson.loads(text))
    return part


# --- the file --------------------------------------------------------------------------------------------------------


class OldState:
    """The state that the last run left: the parts by place, read when they are asked for."""

    def __init__(self, path: Path, store: Path, version: str) -> None:
        """`version` of rmqstore. Errors: UsageError for a file that is not such a state, or is one of another store."""
        self.version = version
        self.why_not = ""  # why nothing of it is used
        self._file: BinaryIO | None = None
        self._lines: dict[bytes, tuple[int, int]] = {}
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{path} is not a file", _ADVICE)
            file = path.open("rb")
        except FileNotFoundError:
            return
        if not found.st_size:
            file.close()
            return
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            self.why_not = f"others can write to {path}"
        try:
            written_by = self._head(path, file, store)
            if written_by != version:
                self.why_not = self.why_not or f"{path} is of rmqstore {written_by}"
            if not self.why_not and not self._read(file):
                self.why_not = f"{path} is damaged"
            if not self.why_not:
                self._file = file
        finally:
            if self._file is None:
                self._lines.clear()
                file.close()

    @staticmethod
    def _head(path: Path, file: BinaryIO, store: Path) -> str:
        try:
            head = orjson.loads(file.readline(_HEAD_LIMIT))
            schema, of, version = head["schema"], head["store"], str(head["rmqstore"])
        except (ValueError, KeyError, TypeError):
            schema, of, version = "", "", ""
        if schema != SCHEMA:
            raise UsageError(f"{path} is not a file that --since-last wrote", _ADVICE)
        if of != _name(store):
            raise UsageError(f"{path} is of another store: {of}", _ADVICE)
        return version

    def _read(self, file: BinaryIO) -> bool:
        """Where each part is; False when the digest does not fit."""
        digest = hashlib.blake2b(digest_size=32)
        file.seek(0)
        digest.update(file.readline())
        at, last = file.tell(), b""
        for line in file:
            if last:
                digest.update(last)
                place, _, rest = last.partition(b"\t")
                self._lines[place] = (at - len(rest), len(rest) - 1)
            at, last = at + len(line), line
        return last == digest.hexdigest().encode() + b"\n"

    def line(self, place: bytes) -> bytes:
        """The packed part of a place; empty for none."""
        at, size = self._lines.get(place, (0, 0))
        return os.pread(self._file.fileno(), size, at) if self._file is not None and size else b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _name(store: Path) -> str:
    return os.fsencode(real_path(store)).decode("utf-8", "backslashreplace")


class LastRun:
    """Uses what the last run found, and writes what this one finds to `write`, line by line.

    Call `begin` before each look at the store, `end` when all is done. `reused`: what was not read again in this look.
    """

    def __init__(self, store: Path, old: OldState, write: Callable[[bytes], object]) -> None:
        self._store, self._old, self._write = store, old, write
        self._digest = hashlib.blake2b(digest_size=32)
        self._written: set[bytes] = set()
        self._used: dict[Path, tuple[int, int]] = {}
        head = {"schema": SCHEMA, "rmqstore": old.version, "store": _name(store)}
        self._line(orjson.dumps(head) + b"\n")

    def begin(self) -> None:
        """A look begins."""
        self._used.clear()

    def end(self) -> None:
        """Write the last line."""
        self._write(self._digest.hexdigest().encode() + b"\n")
        self._old.close()

    @property
    def reused(self) -> Reused | None:
        """What was not read in this look; None when everything was."""
        if not self._used:
            return None
        sizes, times = zip(*self._used.values(), strict=True)
        return Reused(sorted(str(path) for path in self._used), sum(sizes), min(times))

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Does the work of a pass: parts that are known, and for the others `inner`, or `jobs` processes."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            known = [self._is_known(split, options) for split in splits]
            fresh = [split for split, same in zip(splits, known, strict=True) if not same]
            started = time.time()
            before = {split.file.path: Identity.of(split.file.path) for split in fresh}
            parts = map_ordered(function, fresh, jobs) if inner is None else inner(function, fresh)
            for split, same in zip(splits, known, strict=True):
                if same:
                    yield split, self._recall(split)
                    continue
                _, part = next(parts)
                identity = before[split.file.path]
                if identity is not None and identity == Identity.of(split.file.path):
                    self._keep(split, part, identity, options, started)
                yield split, part

        return mapped

    def _place(self, split: Split) -> bytes:
        path = os.path.relpath(split.file.path, self._store)
        where = [os.fsencode(path).hex(), split.file.start, split.file.file_size, split.start, split.stop, split.lead]
        return orjson.dumps(where)

    def _is_known(self, split: Split, options: PassOptions) -> bool:
        """Whether the last run's part of a split can be used, with all that it was compared with."""
        line = self._old.line(self._place(split))
        identity = Identity.of(split.file.path)
        if not line or identity is None or split.file.stop > options.stop_before:
            return False
        try:
            part = _unpacked(line)
        except ValueError:
            return False
        age = time.time() - part.read_at / 1000
        if part.identity != identity or part.options != _options_key(options) or not 0 <= age <= OLDEST:
            return False
        begin = options.index.start if options.index is not None else None
        if begin is not None and (part.index_begin is None or begin < part.index_begin):
            return False  # more messages are owed index entries now
        return part.fits(split) and watched_reads(split.lead, options).finds_the_same(part.beside)

    def _recall(self, split: Split) -> LogPart:
        place = self._place(split)
        line = self._old.line(place)
        part = _unpacked(line)
        known, oldest = self._used.get(split.file.path, (0, part.read_at))
        size = max(0, min(split.file.length, split.stop) - split.start)
        self._used[split.file.path] = (known + size, min(oldest, part.read_at))
        self._put(place, line)
        return part.part()

    def _keep(self, split: Split, part: LogPart, identity: Identity, options: PassOptions, started: float) -> None:
        place, line = self._place(split), b""
        if identity.is_settled(started) and split.file.stop <= options.stop_before:
            kept = kept_part(part, identity, options, int(started * 1000))
            try:
                line = _packed(kept) if kept is not None else b""
            except TypeError:  # names that are no text
                line = b""
        if line or place in self._written:  # an earlier look may have kept what is odd now
            self._put(place, line)

    def _put(self, place: bytes, line: bytes) -> None:
        self._written.add(place)
        self._line(place + b"\t" + line + b"\n")

    def _line(self, line: bytes) -> None:
        self._digest.update(line)
        self._write(line)
