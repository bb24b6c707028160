"""Copy a log into a repository: only what the repository does not have, verified in the same pass.

The repository has a part of the log already (`known`). Files that it has completely, and that have not changed since,
are not read. The last file is continued where the snapshot before ended, if its beginning and the bytes before that
place are the same. Where they are not, the first different byte is named, and both versions are kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqstore.backup.manifest import TAIL, BranchStart, LogCopy, LogFile, StoredPiece
from rmqstore.backup.repository import StoreFolder
from rmqstore.backup.snapshot_files import StoredFile
from rmqstore.checks.log.commitlog import LogResult, PassWork, reach_of, read_log_from
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.findings import check_log
from rmqstore.checks.log.log_pass import LogPart, PassOptions
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Severity
from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.files import DirEntry, Files, OpenFile
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue, offset_to_file_name
from rmqstore.files.store import Store
from rmqstore.scan.records import scan_file
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.window import ScanOptions

_SECTOR = 1 << 12
_WAITING = 4  # blocks that are not hashed and written yet


class PieceWriter:
    """Writes the bytes of a file from a position on. Leaving the block without `finish` leaves no object."""

    def __init__(self, folder: StoreFolder, key: str, start: int) -> None:
        self.key = key
        self.start = self.mark = start
        self._writer = folder.storage.writer(folder.key(key))
        self.unread = 0
        """Bytes that the disk could not read, for which the object has zeros."""
        self._digest = hashlib.sha256()
        self._pools = (ThreadPoolExecutor(1), ThreadPoolExecutor(1))
        self._waiting: deque[Future[None]] = deque()

    def take(self, at: int, data: memoryview, source: OpenFile) -> None:
        """Take bytes that were read at a position of the file; what was skipped before them is read from `source`."""
        if at > self.mark:
            self._read(source, at)
        fresh = data[self.mark - at :] if at + len(data) > self.mark else data[:0]
        if len(fresh):
            self._put(bytes(fresh))

    def finish(self, source: OpenFile, stop: int) -> StoredPiece | None:
        """Take the rest up to position `stop`, and make the object appear; None if there are no bytes.

        The object is shorter if the file ends earlier. Errors: those of the storage; OSError of the file.
        """
        self._read(source, stop)
        while self._waiting:
            self._waiting.popleft().result()
        size = self.mark - self.start
        if not size:
            return None
        self._writer.finish()
        return StoredPiece(self.key, size, self._digest.hexdigest(), size)

    def _read(self, source: OpenFile, stop: int) -> None:
        while self.mark < stop:
            data, unread = _read_what_can_be_read(source, min(_BLOCK, stop - self.mark), self.mark)
            self.unread += unread
            if not data:
                return
            self._put(data)

    def _put(self, data: bytes) -> None:
        self.mark += len(data)
        for pool, work in zip(self._pools, (self._digest.update, self._writer.write), strict=True):
            self._waiting.append(pool.submit(work, data))
        while len(self._waiting) > 2 * _WAITING:
            self._waiting.popleft().result()

    def __enter__(self) -> PieceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
        if kind is not None or self.mark == self.start:
            self._writer.abandon()


def _read_what_can_be_read(source: OpenFile, size: int, at: int) -> tuple[bytes, int]:
    """Read bytes of a file; blocks that the disk cannot read become zeros. Return also how many bytes these are."""
    try:
        return source.read(size, at), 0
    except OSError:
        parts, unread = [], 0
        for start in range(at, min(at + size, source.length), _SECTOR):
            length = min(_SECTOR, at + size - start)
            try:
                parts.append(source.read(length, start))
            except OSError:
                parts.append(bytes(min(length, source.length - start)))
                unread += len(parts[-1])
        return b"".join(parts), unread


class CopiedFile(OpenFile):
    """An open file that passes on what is read of it."""

    def __init__(self, file: OpenFile, writer: PieceWriter) -> None:
        self._file = file
        self._writer = writer

    @property
    def length(self) -> int:
        return self._file.length

    def read_into(self, buffer: memoryview, at: int) -> int:
        count = self._file.read_into(buffer, at)
        self._writer.take(at, buffer[:count], self._file)
        return count

    def read(self, size: int, at: int) -> bytes:
        return self._file.read(size, at)

    def next_data(self, at: int, stop: int) -> tuple[int, int]:
        return self._file.next_data(at, stop)

    def will_read(self, at: int, stop: int) -> None:
        self._file.will_read(at, stop)

    def drop_cache(self, stop: int) -> None:
        self._file.drop_cache(min(stop, self._writer.mark))

    def close(self) -> None:
        self._file.close()


class CopiedFiles(Files):
    """The files of a store, of which one is copied by whoever reads it from its beginning to its end."""

    def __init__(self, files: Files, writer: PieceWriter) -> None:
        self._files = files
        self._writer = writer

    def list(self, directory: Path) -> list[DirEntry]:
        return self._files.list(directory)

    def stat(self, path: Path) -> DirEntry | None:
        return self._files.stat(path)

    def open(self, path: Path) -> OpenFile:
        return CopiedFile(self._files.open(path), self._writer)

    def read_at(self, path: Path, size: int, at: int) -> bytes:
        return self._files.read_at(path, size, at)

    def local(self, directory: Path) -> AbstractContextManager[Path]:
        return self._files.local(directory)


_HEAD, _TAIL = 1 << 12, 1 << 16  # bytes of a file that are compared before it is continued
_BLOCK = 4 << 20
_SAVE_AFTER = 256 << 20  # bytes of new objects, after which an interrupted backup need not start again
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How to copy. `live`: a broker writes to the store.

    `snapshot`, `since`: names of the new snapshot and of the one before. `followed`: DLedger continues after this log,
    which is complete. `full`: read every file again, and compare it with the repository. `saved` gets the files that
    are complete so far, every few hundred MiB.
    """

    snapshot: str
    since: str = ""
    live: bool = False
    followed: bool = False
    full: bool = False
    progress: Progress | None = None
    saved: Callable[[LogCopy], None] | None = None


@dataclass(slots=True)
class CopiedLog:
    """A log in the repository, the counts of its problems by code, and what it added."""

    log: LogCopy
    counts: Counter[str] = field(default_factory=Counter)
    branches: list[BranchStart] = field(default_factory=list)
    new_bytes: int = 0
    unread: int = 0


class LogCopier:
    """Copies one log of a store."""

    def __init__(
        self,
        store: Store,
        queue: MappedFileQueue,
        body_offset: int,
        folder: StoreFolder,
        known: LogCopy | None,
        options: CopyOptions,
    ) -> None:
        self.store = store
        self.queue = queue
        self.body_offset = body_offset
        self.folder = folder
        self.options = options
        self.files: dict[int, LogFile] = {}
        self.position: dict[int, int] = {}
        """Start of a file → the position from which on it has to be read."""
        self.ctime_ns: dict[int, int] = {}
        """Start of a file → when its content or its rights changed last, before it was read; 0 if that is unknown."""
        self.before: dict[int, LogFile] = {}
        """Files whose bytes in the repository differ from the store's."""
        self.copied = CopiedLog(LogCopy(queue.name, queue.file_size, body_offset, queue.start, queue.start, ()))
        self.wrote = queue.start
        self._unsaved = 0
        if known is not None and (known.file_size, known.body_offset) == (queue.file_size, body_offset):
            self.known = {file.start: file.cut(known.end - file.start) for file in known.files}
            self.known_end = known.end
        else:
            self.known = {}
            self.known_end = queue.start
            if known is not None and known.files:
                self._diverge(queue.start, damage=False)

    def copy(self) -> CopiedLog:
        """Copy the log up to its present end.

        Errors: those of the storage; FileNotFoundError if all files have expired; OSError of a file.
        """
        for file in self.queue.files:
            self._continue(file)
        end = self.queue.stop if self.options.followed else self._end()
        last = self.queue.find(max(end - 1, self.queue.start))
        if last is None:
            return self.copied
        self.wrote = end
        for group in self._groups(last):
            self._read(group, last, end)
        self._finish()
        return self.copied

    # --- what the repository has ----------------------------------------------------------------------------------

    def _continue(self, file: MappedFile) -> None:
        """Decide from where on a file has to be read."""
        identity = file.files.identity(file.path)
        ctime_ns = self.ctime_ns[file.start] = identity.ctime_ns if identity is not None else 0
        known = self.known.get(file.start)
        if known is None or not known.length:
            self.position[file.start] = 0
            return
        complete = known.length == self.queue.file_size
        same_time = known.mtime_ns == file.mtime_ns and known.ctime_ns in (0, ctime_ns)
        sure = known.length <= file.length and not self.options.full
        if sure and not (complete and same_time):
            sure = not complete and not known.problems and self._ends_match(file, known)
        if sure or self._first_difference(file, known) is None:
            self.files[file.start] = replace(known, mtime_ns=file.mtime_ns, ctime_ns=ctime_ns)
            self.position[file.start] = known.length
            return
        self.before[file.start] = known
        self.position[file.start] = 0

    def _ends_match(self, file: MappedFile, known: LogFile) -> bool:
        """Whether the first bytes of a file, and those before the last cut, are as in the repository."""
        stored = StoredFile.of_log(self.folder, known)
        tail = max(known.length - _TAIL, 0)
        with file.open() as opened:
            return all(
                opened.read(size, at) == stored.read(size, at)
                for at, size in ((0, min(_HEAD, known.length)), (tail, known.length - tail))
            )

    def _first_difference(self, file: MappedFile, known: LogFile) -> int | None:
        """Return the first position at which a file differs from the repository; None if there is none."""
        stored = StoredFile.of_log(self.folder, known)
        with file.open() as opened:
            at = 0
            while at < known.length:
                size = min(_BLOCK, known.length - at)
                own, theirs = opened.read(size, at), stored.read(size, at)
                if own != theirs:
                    return at + _first_unequal(own, theirs)
                at += size
        return None

    def _end(self) -> int:
        """Return the end of the last framed record of the log, from the files that can contain it."""
        for file in reversed(self.queue.files):
            start = self.position[file.start]
            if not start and not any(file.read_at(_HEAD, 0)):
                continue  # created ahead
            tiling = Tiling(file.start + start)
            options = ScanOptions(crc=False)
            runs = scan_file(file, start=start, body_offset=self.body_offset, exact=True, options=options)
            tiling.extend(Run(run.kind, run.start, run.stop, run.count) for run in runs)
            if tiling.records() or start:
                return reach_of(tiling)
        return self.queue.start

    # --- reading and copying --------------------------------------------------------------------------------------

    def _groups(self, last: MappedFile) -> Iterator[list[MappedFile]]:
        """Yield runs of adjacent files that have to be read, of a few hundred MiB unless a file is larger."""
        group: list[MappedFile] = []
        for file in self.queue.files:
            if file.start > last.start:
                break
            needed = self.position[file.start] < min(file.length, file.file_size)
            full = len(group) * file.file_size >= _SAVE_AFTER
            if group and (full or not needed or self.position[file.start] or group[-1].stop != file.start):
                yield group
                group = []
            if needed:
                group.append(file)
        if group:
            yield group

    def _read(self, group: Sequence[MappedFile], last: MappedFile, end: int) -> None:
        """Read adjacent files, verify their records, and copy their bytes."""
        options, queue = self.options, self.queue
        begin = group[0].start + self.position[group[0].start]
        part = MappedFileQueue(queue.name, queue.directories, queue.file_size, group, (), queue.size_from)
        followed = options.followed
        at_end = group[-1].start == last.start and not followed
        passing = PassOptions(
            self.store.path,
            tuple(sorted(self.store.config.given.items())),
            ScanOptions(drop_cache=options.live and not at_end),
            crosscheck=False,
            files=self.store.files,
            live=options.live,
            stop_before=end if options.live else 1 << 62,
            levels=delay_levels(self.store),
        )
        parts: dict[int, LogPart] = {}

        def mapper(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            for split in splits:
                at_last = split.file.start == last.start and not followed
                part = function(split) if at_last else self._copied(split, function)
                parts[split.file.start] = part
                yield split, part

        findings = Findings(keep=10_000)
        work = PassWork(progress=options.progress, mapper=mapper)
        result = read_log_from(part, begin, passing, findings, self.body_offset, work)
        whole = Findings(keep=10_000)
        check_log(result, whole, last_part=at_end, followed=not at_end)
        if at_end:
            self.wrote = result.wrote
            self._copy_last(last, result)
        self._account(parts, result, whole.listed)
        self._compare(group, result, [f for f in (*findings.listed, *whole.listed) if f.damages_log])

    def _copied(self, split: Split, function: Callable[[Split], LogPart]) -> LogPart:
        """Read a complete file, and copy it at the same time."""
        file = split.file
        start = split.start
        key = self._key(file, start)
        with file.open() as opened, PieceWriter(self.folder, key, start) as writer:
            part = function(replace(split, file=replace(file, files=CopiedFiles(file.files, writer))))
            if not part.vanished:
                self._add(file, writer.finish(opened, min(file.length, file.file_size)))
                self.copied.unread += writer.unread
        return part

    def _copy_last(self, file: MappedFile, result: LogResult) -> None:
        """Copy the last file up to its last message; of a stopped store, also damage after it."""
        start = self.position[file.start]
        stop = result.wrote
        if not self.options.live:
            stop = max([stop, *(run.stop for run in result.tiling if run.kind in (Kind.DIRTY, Kind.RECORDS))])
        stop = min(stop, file.stop) - file.start
        if stop <= start and file.start in self.files:
            return
        key = self._key(file, start)
        with file.open() as opened, PieceWriter(self.folder, key, start) as writer:
            self._add(file, writer.finish(opened, min(stop, file.length)))
            self.copied.unread += writer.unread

    def _key(self, file: MappedFile, start: int) -> str:
        name = f"log/{self.queue.name}/{offset_to_file_name(file.start)}"
        return self.folder.free_key(f"{name}{TAIL}{file.start + start}" if start else name, self.options.snapshot)

    def _add(self, file: MappedFile, piece: StoredPiece | None) -> None:
        """Add a new piece to a file."""
        ctime_ns = self.ctime_ns[file.start]
        known = self.files.get(file.start) or LogFile(file.start, (), file.mtime_ns, ctime_ns=ctime_ns)
        if piece is None:
            self.files.setdefault(file.start, known)
            return
        self.files[file.start] = replace(
            known, pieces=(*known.pieces, piece), mtime_ns=file.mtime_ns, ctime_ns=ctime_ns
        )
        self.copied.new_bytes += piece.size
        self._unsaved += piece.size

    def _account(self, parts: Mapping[int, LogPart], result: LogResult, listed: Sequence[Finding]) -> None:
        """Add to each file what was found in the part of it that was read."""
        size = self.queue.file_size
        wrote = result.wrote
        for start, part in parts.items():
            file = self.files.get(start)
            if file is None:
                continue
            problems = Counter(file.problems)
            live_tail = self.options.live and start + size > wrote
            if live_tail:  # the message after the cut may be half written
                problems.update(f.code for f in part.findings.listed if f.offset < wrote)
            else:
                problems.update(part.findings.counts)
            here = [f for f in listed if f.offset // size * size == start]
            problems.update(f.code for f in here if f.offset < wrote or not live_tail)
            times = [t for t in (file.first_time, part.first_time) if t >= 0]
            self.files[start] = replace(
                file,
                messages=file.messages + part.messages,
                bytes=file.bytes + part.bytes,
                first_time=times[0] if times else -1,
                last_time=max(file.last_time, part.max_time),
                problems={code: n for code, n in sorted(problems.items()) if _is_damage(code)},
            )
        if self._unsaved >= _SAVE_AFTER and self.options.saved is not None:
            self._unsaved = 0
            self.options.saved(self._log(complete=True))

    # --- differences ----------------------------------------------------------------------------------------------

    def _compare(self, group: Sequence[MappedFile], result: LogResult, damages: Sequence[Finding]) -> None:
        """Keep both versions of files that differ from the repository, and name the first different byte of the log."""
        for file in group:
            known = self.before.pop(file.start, None)
            if known is None or file.start not in self.files:
                continue
            at = self._first_difference(file, known)
            if at is None or any(self._first_difference(file, earlier) is None for earlier in known.earlier):
                continue  # in the second case, a repair gave it the bytes of an earlier snapshot
            own = self.files[file.start]
            self.files[file.start] = replace(own, good=tuple(dict.fromkeys((*known.pieces, *known.good))))
            offset = file.start + at
            run = result.tiling.find(offset)
            gap = run is not None and run.kind in (Kind.DIRTY, Kind.HOLE, Kind.ZERO)
            damage = gap or any(f.offset <= offset < f.offset + f.length for f in damages)
            damage = damage and offset < result.wrote
            if damage or not any(not branch.damage for branch in self.copied.branches):
                self._diverge(offset, damage=damage)

    def _diverge(self, offset: int, *, damage: bool) -> None:
        time = self._time_before(offset)
        self.copied.branches.append(BranchStart(self.queue.name, offset, time, self.options.since, damage))

    def _time_before(self, offset: int) -> int | None:
        """Return the store time of the last message before an offset that is the same in the repository (ms)."""
        file = self.queue.find(offset)
        times = -1
        if file is not None and offset > file.start:
            options = ScanOptions(crc=False)
            for run in scan_file(
                file, stop=offset - file.start, body_offset=self.body_offset, exact=True, options=options
            ):
                if run.kind is Kind.RECORDS and run.columns is not None and run.start < offset:
                    ends = run.columns.offset + run.columns.size <= offset
                    times = int(run.columns.store_timestamp[ends][-1]) if ends.any() else times
        earlier = self.known.get(file.start - self.queue.file_size) if file is not None and times < 0 else None
        if times < 0 and earlier is not None:
            times = earlier.last_time
        return times if times >= 0 else None

    # --- the result -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        named = any(not branch.damage for branch in self.copied.branches)
        if self.known and self.queue.start > self.known_end:
            time = max((file.last_time for file in self.known.values()), default=-1)
            gap = BranchStart(
                self.queue.name,
                self.known_end,
                time if time >= 0 else None,
                self.options.since,
                damage=False,
                missing_to=self.queue.start,
            )
            self.copied.branches.append(gap)
        elif self.known_end > max(self.wrote, self.queue.start) and not named:  # its end is missing
            self._diverge(max(self.wrote, self.queue.start), damage=False)
        self.copied.log = self._log(complete=False)
        for file in self.copied.log.own:
            self.copied.counts.update(file.problems)
        code = codes.DL_MISSING_FILE if self.body_offset else codes.CL_MISSING_FILE
        self.copied.counts.update(code for _ in self._missing())

    def _missing(self) -> Iterator[int]:
        """Yield the start of each range of missing files; after a file that has just expired, none are missing."""
        if self.queue.begin < self.queue.start:
            yield self.queue.begin
        for before, after in pairwise(self.queue.files):
            hole = before.stop < min(after.start, self.wrote)
            if hole and before.files.identity(before.path) is not None:
                yield before.stop

    def _log(self, *, complete: bool) -> LogCopy:
        """Return the log as it is in the repository; `complete`: only its complete files."""
        size = self.queue.file_size
        files = dict(self.files)
        begin = next((f.start for f in self.queue.files if f.start in files), self.queue.start)
        if self._continues(begin):
            for start, file in self.known.items():  # expired in the store, or missing between its files
                if start not in files and file.length and start < max(self.wrote, begin):
                    files[start] = file
        if complete:
            files = {start: file for start, file in files.items() if file.length == size}
        ordered = tuple(files[start] for start in sorted(files))
        end = max((file.start + size for file in ordered), default=begin) if complete else self.wrote
        return LogCopy(self.queue.name, size, self.body_offset, begin, end, ordered)

    def _continues(self, begin: int) -> bool:
        """Whether the log continues what the repository has, at least in its first bytes."""
        different = [branch.offset for branch in self.copied.branches if not branch.damage]
        return begin <= self.known_end and min(different, default=1 << 62) > begin


def _is_damage(code: str) -> bool:
    return PROBLEMS[code].severity >= Severity.WARNING


def _first_unequal(own: bytes, theirs: bytes) -> int:
    """Return the first position at which two texts differ; the length of the shorter one if it begins the other."""
    low, high = 0, min(len(own), len(theirs))
    if own[:high] == theirs[:high]:
        return high
    while low < high:
        middle = (low + high) // 2
        if own[low : middle + 1] == theirs[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low
