"""`--since-last`: reuse the results of the last run for unchanged log files, and write those of this run.

Only the results of sound parts are kept; every run reads damaged, unusual or incomplete parts again. A kept part is
used again if all of this is true:

* its file has the same path, inode, length, modification and change time as when it was read, and had been unchanged
  for `SETTLED` seconds then: writes to a mapped page change the times only when the system writes the page back;
* the version of rmqstore and the options that affect the checks are the same;
* the units of consume queues, the index entries and the units of the DLedger index that it was compared with have not
  changed; they are read again and compared by digest;
* it was read at most `OLDEST` seconds ago: bytes can also change on the disk itself.

The state file has a line with store and version, a line for each kept part, and a digest of all.

It is text, and nothing in it is executed. Its content is not trusted: the type of every value is checked.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Union, get_args, get_origin, get_type_hints

import orjson

from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.log_contents import LogContents
from rmqstore.checks.log.log_pass import LogPart, PassOptions, watched_reads
from rmqstore.checks.log.stored_units import BesideSplit
from rmqstore.checks.problems.report import Findings, Reused
from rmqstore.errors import UsageError
from rmqstore.files.disk import real_path
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.workers import Mapper, map_ordered
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.log.commitlog import IndexCheck
    from rmqstore.files.store import Store


SETTLED = 120
"""Seconds for which a file must have been unchanged when it was read."""
_WHOLE = (Kind.RECORDS, Kind.BLANK)


class Identity(NamedTuple):
    """Properties of a file that change with its content. Times in ns."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(file: MappedFile) -> Identity | None:
        """Return the present identity of a file; None if it is unknown, or without the file."""
        found = file.files.identity(file.path)
        return None if found is None else Identity(found.inode, found.length, found.mtime_ns, found.ctime_ns)

    def is_settled(self, now: float) -> bool:
        """Return whether the file had been unchanged for `SETTLED` at a time (s since the epoch)."""
        return now - max(self.mtime_ns, self.ctime_ns) / 1e9 >= SETTLED


@dataclass(slots=True)
class KeptPart(LogContents):
    """The fields of a sound `LogPart`, under the same names, and what they depend on.

    `read_at`: epoch ms. `runs`: (kind, start, stop, count, claimed).
    """

    identity: tuple[int, int, int, int]
    options: str
    read_at: int
    index_begin: int | None
    beside: BesideSplit
    begin: int | None
    end: int | None
    runs: list[tuple[int, int, int, int, int]]
    parsed: set[int]
    newer: int
    units_complete: bool

    def part(self) -> LogPart:
        """Return the original part."""
        values = {name: getattr(self, name) for name in _SAME_IN_BOTH}
        runs = [Run(Kind(kind), start, stop, count, claimed=claimed) for kind, start, stop, count, claimed in self.runs]
        return LogPart(**values, runs=runs, beside=self.beside)

    def is_enough(self, split: Split, options: PassOptions) -> bool:
        """Return whether a pass with these options reads the whole file, and expects no more index entries for it."""
        begin = options.index.start if options.index is not None else None
        expected = begin is None or (self.index_begin is not None and begin >= self.index_begin)
        return expected and split.file.stop <= options.stop_before

    def fits(self, split: Split) -> bool:
        """Return whether the runs are a tiling of the split; the state file is not trusted."""
        at = self.begin
        for kind, start, stop, count, _ in self.runs:
            if kind not in _WHOLE or start != at or stop <= start or count < 0:
                return False
            at = stop
        low, high = split.file.start + split.start, split.file.start + split.file.file_size
        return at == self.end and (self.begin is None or low <= self.begin <= high) and (at is None or at <= high)


_SAME_IN_BOTH = [f.name for f in fields(KeptPart) if f.name in {g.name for g in fields(LogPart)} - {"runs", "beside"}]


def kept_part(part: LogPart, identity: Identity, options: PassOptions, read_at: int) -> KeptPart | None:
    """Return what to keep of a part; None if anything in it is damaged, unusual or incomplete."""
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
    return KeptPart((*identity,), options_key(options), read_at, begin, part.beside, runs=runs, **values)


def options_key(options: PassOptions) -> str:
    """Return a digest of all options that affect the result of a file."""
    known = None if options.known_topics is None else sorted(options.known_topics)
    relevant = (
        options.given,
        (options.scan.crc, options.scan.check_offset),
        (options.crosscheck, options.forecast, options.index is not None),
        (sorted(options.batch_topics), known),
        None if options.levels is None else (options.levels.delays, options.levels.earlier),
    )
    return hashlib.blake2b(repr(relevant).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


SCHEMA = "rmqstore.last-run/1"
_HEAD_LIMIT = 1 << 16
_PART_LIMIT = 256 << 20  # bytes of an unpacked part, to limit memory if the file is damaged
_ADVICE = Text("name another file, or remove this one")


# --- values ----------------------------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """Convert data classes, lists, tuples, dicts, sets and numbers to values that JSON has.

    Errors: UnicodeEncodeError for names that are not valid text.
    """
    if isinstance(value, str):
        value.encode("utf-8")
        return value
    if is_dataclass(value):
        return [encoded(getattr(value, f.name)) for f in fields(value)]
    if isinstance(value, dict):
        return [[encoded(k), encoded(v)] for k, v in value.items()]
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, list | tuple | array):
        return [encoded(one) for one in value]
    return int(value) if isinstance(value, IntEnum) else value


def decoded(hint: Any, data: Any) -> Any:
    """Convert the result of `encoded` back to a type. Errors: ValueError if the data does not have that type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if any(type(data) is one for one in inner):
            return data
        raise ValueError(Text("{data!r} is not {hint}", data=data, hint=hint))
    if hint in (int, str, bool, float):
        if type(data) is not hint:
            raise ValueError(Text("{data!r} is not {hint}", data=data, hint=hint))
        return data
    if not isinstance(data, list):
        raise ValueError(Text("{data!r} is not a list", data=data))
    if is_dataclass(hint):
        return _decoded_class(hint, data)
    if origin is tuple and inner[-1:] != (...,):
        return tuple(decoded(one, value) for one, value in zip(inner, data, strict=True))
    if origin is Sequence:
        return [decoded(inner[0], one) for one in data] if data else ()
    if origin in (list, set):
        return origin(decoded(inner[0], one) for one in data)
    if origin in (dict, Counter):
        pairs = [decoded(tuple[inner if origin is dict else (*inner, int)], one) for one in data]  # type: ignore[misc]
        return origin(dict(pairs))
    raise ValueError(Text("{hint} cannot be read", hint=hint))


def _decoded_class(hint: Any, data: list[Any]) -> Any:
    hints = _hints(hint)
    return hint(**{name: decoded(hints[name], value) for name, value in zip(hints, data, strict=True)})


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return field -> type of a data class, in order."""
    found = get_type_hints(cls)
    return {f.name: found[f.name] for f in fields(cls)}


def packed(part: KeptPart) -> bytes:
    """Return the text of a part in the state file."""
    return base64.b64encode(zlib.compress(orjson.dumps(encoded(part)), 3))


def unpacked(line: bytes) -> KeptPart:
    """Parse the text of a part. Errors: ValueError."""
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(base64.b64decode(line, validate=True), _PART_LIMIT)
    except zlib.error as e:
        raise ValueError(str(e)) from None
    part: KeptPart = decoded(KeptPart, orjson.loads(text))
    return part


# --- the file --------------------------------------------------------------------------------------------------------


class OldState:
    """The state file of the last run; parts are read on demand. `why_not`: why it is not used, or ""."""

    def __init__(self, path: Path, store: Path, version: str) -> None:
        """`version` of rmqstore. Errors: UsageError for a file that is not a state file, or is of another store."""
        self.version = version
        self.why_not = ""
        self._file: BinaryIO | None = None
        self._lines: dict[bytes, tuple[int, int]] = {}
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(Text("{path} is not a file", path=path), _ADVICE)
            file = path.open("rb")
        except FileNotFoundError:
            return
        if not found.st_size:
            file.close()
            return
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            self.why_not = Text("others can write to {path}", path=path)
        try:
            written_by = self._head(path, file, store)
            if written_by != version:
                self.why_not = self.why_not or Text(
                    "{path} is of rmqstore {written_by}", path=path, written_by=written_by
                )
            if not self.why_not and not self._read(file):
                self.why_not = Text("{path} is damaged", path=path)
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
            raise UsageError(Text("{path} is not a file that --since-last wrote", path=path), _ADVICE)
        if of != store_name(store):
            raise UsageError(Text("{path} is of another store: {of}", path=path, of=of), _ADVICE)
        return version

    def _read(self, file: BinaryIO) -> bool:
        """Find the place of each part; return False if the digest does not match."""
        digest = hashlib.blake2b(digest_size=32)
        file.seek(0)
        digest.update(file.readline(_HEAD_LIMIT))
        at, last = file.tell(), b""
        for line in iter(partial(file.readline, _PART_LIMIT), b""):  # a file without line ends has no end in memory
            if last:
                digest.update(last)
                place, _, rest = last.partition(b"\t")
                self._lines[place] = (at - len(rest), len(rest) - 1)
            at, last = at + len(line), line
        return last == digest.hexdigest().encode() + b"\n"

    def line(self, place: bytes) -> bytes:
        """Return the packed part of a place; empty without one."""
        at, size = self._lines.get(place, (0, 0))
        return os.pread(self._file.fileno(), size, at) if self._file is not None and size else b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def store_name(store: Path) -> str:
    return os.fsencode(real_path(store)).decode("utf-8", "backslashreplace")


OLDEST = 30 * 86_400
"""Seconds after which a kept part is read again."""


class LastRun:
    """Reuses the kept parts of the last run, and passes the state file of this run to `write`, line by line.

    Call `begin` before each verification of the store, and `end` after the last one.
    """

    digests = True

    def __init__(self, store: Path, old: OldState, write: Callable[[bytes], object]) -> None:
        self._store, self._old, self._write = store, old, write
        self._digest = hashlib.blake2b(digest_size=32)
        self._written: set[bytes] = set()
        self._used: dict[Path, tuple[int, int]] = {}
        head = {"schema": SCHEMA, "rmqstore": old.version, "store": store_name(store)}
        self._line(orjson.dumps(head) + b"\n")

    def begin(self) -> None:
        """Start a verification."""
        self._used.clear()

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Check the index files: they are read in every run."""
        return check(findings)

    def end(self) -> None:
        """Write the last line."""
        self._write(self._digest.hexdigest().encode() + b"\n")
        self._old.close()

    @property
    def reused(self) -> Reused | None:
        """The files that this verification has not read; None if it has read all."""
        if not self._used:
            return None
        sizes, times = zip(*self._used.values(), strict=True)
        return Reused(sorted(str(path) for path in self._used), sum(sizes), min(times))

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that reuses known parts, and reads the others with `inner` or `jobs` processes."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            # a known part is unpacked here and again in _recall: kept, the parts would grow with the store
            # known parts do not include units
            known = [not options.keep_units and self._is_known(split, options) for split in splits]
            fresh = [split for split, same in zip(splits, known, strict=True) if not same]
            started = time.time()
            before = {split.file.path: Identity.of(split.file) for split in fresh}
            parts = map_ordered(function, fresh, jobs) if inner is None else inner(function, fresh)
            for split, same in zip(splits, known, strict=True):
                if same:
                    yield split, self._recall(split)
                    continue
                _, part = next(parts)
                identity = before[split.file.path]
                if identity is not None and identity == Identity.of(split.file):
                    self._keep(split, part, identity, options, started)
                yield split, part

        return mapped

    def _place(self, split: Split) -> bytes:
        path, file = os.path.relpath(split.file.path, self._store), split.file
        where = (file.start, file.file_size, split.start, split.stop, split.body_offset)
        return orjson.dumps([os.fsencode(path).hex(), *where])

    def _is_known(self, split: Split, options: PassOptions) -> bool:
        """Return whether the last run's part of a split can be used again."""
        line = self._old.line(self._place(split))
        identity = Identity.of(split.file)
        if not line or identity is None:
            return False
        try:
            part = unpacked(line)
        except ValueError:
            return False
        age = time.time() - part.read_at / 1000
        if part.identity != identity or part.options != options_key(options) or not 0 <= age <= OLDEST:
            return False
        if not part.is_enough(split, options):
            return False
        beside = watched_reads(split.body_offset, options)
        return part.fits(split) and beside.digests(part.beside) == part.beside.digests

    def _recall(self, split: Split) -> LogPart:
        place = self._place(split)
        line = self._old.line(place)
        part = unpacked(line)
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
                line = packed(kept) if kept is not None else b""
            except UnicodeEncodeError:
                line = b""
        if line or place in self._written:  # an empty line replaces the part of an earlier verification
            self._put(place, line)

    def _put(self, place: bytes, line: bytes) -> None:
        self._written.add(place)
        self._line(place + b"\t" + line + b"\n")

    def _line(self, line: bytes) -> None:
        self._digest.update(line)
        self._write(line)
