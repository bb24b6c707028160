"""Writable MappedFile and MappedFileQueue; the read-only ones are in `rmqstore.files.mapped_file_queue`.

A file has wrote, committed and flushed positions and a reference count.
Source: DefaultMappedFile, ReferenceResource, MappedFileQueue, MultiPathMappedFileQueue (RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.append.disk import create_file, explain, explained, read_all, replace_link, sync_directory, write_all
from rmqstore.brokers.mapped_files import load_directories
from rmqstore.brokers.rules import rules_for
from rmqstore.errors import NotReadable, Refused
from rmqstore.files.disk import start_writing
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.files.reading import data_extents
from rmqstore.texts import Text

PAGE = 4096
COMMIT_AT = 1 << 16  # an append commits automatically from this number of bytes in the buffer on
_ZERO_STEP = 1 << 20
Clock = Callable[[], int]


def now_ms() -> int:
    """Return the current time in epoch ms, like a broker's clock."""
    return time.time_ns() // 1_000_000


class ReferenceResource:
    """A reference count for a file: every holder keeps it open, until a shutdown is enforced after some time.

    Source: ReferenceResource, RocketMQ 5.4.0
    """

    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._count = 1
        self._available = True
        self._cleaned = False
        self._first_shutdown = 0

    @property
    def available(self) -> bool:
        """Whether it has not been shut down."""
        return self._available

    @property
    def cleaned(self) -> bool:
        """Whether nobody holds it and it has been cleaned up (isCleanupOver)."""
        return self._count <= 0 and self._cleaned

    def hold(self) -> bool:
        """Add a reference; False if it has been shut down."""
        with self._guard:
            if self._available and self._count > 0:
                self._count += 1
                return True
        return False

    def release(self) -> None:
        """Drop a reference; the last one cleans up."""
        with self._guard:
            self._count -= 1
            last = self._count <= 0 and not self._cleaned
            self._cleaned = self._cleaned or last
        if last:
            self.clean_up()

    def shutdown(self, interval_forcibly: int) -> None:
        """Accept no new references; a call `interval_forcibly` ms after the first one drops those that remain."""
        if self._available:
            self._available = False
            self._first_shutdown = self._clock()
            self.release()
        elif self._count > 0 and self._clock() - self._first_shutdown >= interval_forcibly:
            self._count = -1000 - self._count
            self.release()

    def clean_up(self) -> None:
        """Free resources; the last release calls this."""


@dataclass(slots=True, eq=False)
class SharedFiles:
    """What the files of many queues share, so that work and descriptors depend on the files in use, not on all.

    `unsynced`: directories of new files, which are not on disk yet. `opened`: files with an open descriptor.
    `buffered`: files with bytes that are not committed.
    """

    unsynced: set[Path] = field(default_factory=set)
    opened: set[WritableMappedFile] = field(default_factory=set)
    buffered: set[WritableMappedFile] = field(default_factory=set)

    def release_opened(self) -> None:
        """Commit the files with an open descriptor, and close it until it is needed again. Errors: NoSpace."""
        for file in list(self.opened):
            file.release_descriptor()

    def release(self) -> None:
        """Commit all buffers, and close all descriptors. Errors: NoSpace."""
        for file in list(self.buffered):
            file.release_descriptor()
        self.release_opened()


class WritableMappedFile(ReferenceResource):
    """A file of a queue, open for appending.

    `start` is the global offset of its first byte. Positions are in bytes from there: [0, flushed) is on disk,
    [flushed, committed) in the operating system, [committed, wrote) in `_buffer`. `store_timestamp` (ms) is that of the
    last message appended.
    """

    def __init__(
        self,
        path: Path,
        start: int,
        file_size: int,
        descriptor: int,
        clock: Clock = now_ms,
        shared: SharedFiles | None = None,
    ) -> None:
        super().__init__(clock)
        self._shared = shared
        if shared is not None:
            shared.opened.add(self)
        self.path = path
        self.start = start
        self.file_size = file_size
        self.wrote_position = 0
        self.committed_position = 0
        self.flushed_position = 0
        self.start_position = 0
        self.store_timestamp = 0
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._linked = False

    @classmethod
    def create(
        cls,
        directory: Path,
        start: int,
        file_size: int,
        clock: Clock = now_ms,
        content: bytes = b"",
        shared: SharedFiles | None = None,
    ) -> WritableMappedFile:
        """Create a sparse file of full size, named by its offset, that begins with `content`.

        Its directory is fsynced, or is one of `shared.unsynced`. Errors: OutputExists, NoSpace, NotReadable.
        """
        path = directory / offset_to_file_name(start)
        unsynced = None if shared is None else shared.unsynced
        file = cls(path, start, file_size, create_file(path, file_size, content, unsynced), clock, shared)
        file.wrote_position = file.committed_position = len(content)
        return file

    @classmethod
    def open(
        cls, path: Path, start: int, file_size: int, clock: Clock = now_ms, shared: SharedFiles | None = None
    ) -> WritableMappedFile:
        """Open an existing file; it counts as full until its positions are set, as after MappedFileQueue#load.

        Never writes through a link: a copy of its file replaces it before the first write.
        Errors: NotReadable.
        """
        file = cls(path, start, file_size, -1, clock, shared)
        file._linked = path.is_symlink()
        file._open()
        file.set_positions(file_size)
        return file

    def _open(self) -> int:
        """Return the descriptor, and reopen the file if `release_descriptor` has closed it. Errors: NotReadable."""
        if self._descriptor < 0:
            if self._cleaned:
                raise NotReadable(Text("{path} is closed", path=self.path))
            with explained(self.path):
                mode = os.O_RDONLY if self._linked else os.O_RDWR
                self._descriptor = os.open(self.path, mode | os.O_CLOEXEC)
            if self._shared is not None:
                self._shared.opened.add(self)
        return self._descriptor

    def _own(self) -> int:
        """Return the descriptor for writing. Errors: NotReadable, NoSpace."""
        if self._linked:
            replace_link(self.path)
            self._linked = False
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
        return self._open()

    def release_descriptor(self) -> None:
        """Commit, and close the descriptor until it is needed again, because a store may have thousands of files.

        Errors: as `commit`.
        """
        self.commit(0)
        with self._guard:
            if self._count == 1:
                self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._shared is not None:
            self._shared.opened.discard(self)

    @property
    def released(self) -> bool:
        """Whether the descriptor is closed and the buffer empty."""
        return self._descriptor < 0 and not self._buffer

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stop(self) -> int:
        """The global offset after the file."""
        return self.start + self.file_size

    @property
    def left(self) -> int:
        """The number of bytes that can still be appended."""
        return self.file_size - self.wrote_position

    @property
    def full(self) -> bool:
        return self.wrote_position == self.file_size

    @property
    def last_modified(self) -> int:
        """The modification time in ms, which determines when the file expires.

        Errors: OSError if the file is missing.
        """
        return self.path.stat().st_mtime_ns // 1_000_000

    def set_positions(self, position: int) -> None:
        """Set all three positions and drop the buffer, after recovery has found the end of the data."""
        self._buffer.clear()
        self._forget_buffer()
        self.wrote_position = self.committed_position = self.flushed_position = position

    def _forget_buffer(self) -> None:
        if self._shared is not None:
            self._shared.buffered.discard(self)

    # --- appending -----------------------------------------------------------------------------------------------

    def append(self, data: bytes | bytearray | memoryview) -> bool:
        """Append bytes; False if they do not fit. Large data is written to the file without a copy in the buffer.

        Source: DefaultMappedFile#appendMessage(byte[])
        Errors: as `commit`
        """
        wrote = self.wrote_position + len(data)
        if wrote > self.file_size:
            return False
        if len(data) >= COMMIT_AT:
            self.commit(0)
            self._pwrite(data, self.wrote_position)
            start_writing(self._open(), self.wrote_position, len(data))
            self.wrote_position = self.committed_position = wrote
            return True
        if not self._buffer and self._shared is not None:
            self._shared.buffered.add(self)
        self._buffer += data
        self.wrote_position = wrote
        if len(self._buffer) >= COMMIT_AT:
            self.commit(0)
        return True

    def finish(self, blank: bytes) -> None:
        """Close the file with a BLANK; the bytes after it stay sparse zeros.

        Errors: as `commit`.
        """
        self._buffer += blank
        self.wrote_position += len(blank)
        self.commit(0)
        self.wrote_position = self.committed_position = self.file_size

    def blank_out(self, at: int) -> None:
        """Overwrite the data from `at` on with zeros, so that it does not reappear; holes stay holes.

        The file is not truncated, because a broker does not start with a file of the wrong length.
        Errors: NoSpace and others of `explain`.
        """
        with explained(self.path):
            for low, stop in data_extents(self._open(), at, self.file_size):
                for start in range(low, stop, _ZERO_STEP):
                    size = min(_ZERO_STEP, stop - start)
                    if any(read_all(self._open(), size, start)):
                        write_all(self._own(), bytes(size), start)

    # --- commit and flush ------------------------------------------------------------------------------------------

    def able_to_commit(self, least_pages: int) -> bool:
        """Return whether there are `least_pages` pages to commit, or any data if it is 0.

        Source: DefaultMappedFile#isAbleToCommit
        """
        if self.full and self._buffer:
            return True
        if least_pages > 0:
            return self.wrote_position // PAGE - self.committed_position // PAGE >= least_pages
        return self.wrote_position > self.committed_position

    def commit(self, least_pages: int = 0) -> int:
        """Write the buffer to the operating system if there are `least_pages` pages, and return the committed position.

        Errors: NoSpace and others of `explain`, after which the buffer is unchanged.
        """
        if self._buffer and self.able_to_commit(least_pages):
            self._pwrite(self._buffer, self.committed_position)
            self.committed_position = self.wrote_position
            self._buffer = bytearray()
            self._forget_buffer()
        return self.committed_position

    def able_to_flush(self, least_pages: int) -> bool:
        """Return whether there are `least_pages` pages to flush, or any data if it is 0.

        Source: DefaultMappedFile#isAbleToFlush
        """
        if self.flushed_position == self.file_size:
            return False
        if self.full:
            return True
        if least_pages > 0:
            return self.wrote_position // PAGE - self.flushed_position // PAGE >= least_pages
        return self.wrote_position > self.flushed_position

    def flush(self, least_pages: int = 0) -> int:
        """Flush the file to disk if there are `least_pages` pages, and return the flushed position.

        Errors: as `commit`. A failed fsync is not repeated, because the kernel may have dropped the dirty pages.
        """
        if self.able_to_flush(least_pages) and self.hold():
            try:
                position = self.commit(0)
                os.fdatasync(self._open())
                self.flushed_position = position
            except OSError as error:
                raise explain(error, self.path) from error
            finally:
                self.release()
        return self.flushed_position

    def sync(self, position: int) -> None:
        """Sync without committing; `position` is a committed position that was read under the append lock."""
        with explained(self.path):
            os.fdatasync(self._open())
        self.flushed_position = max(self.flushed_position, position)

    def warm(self) -> None:
        """Preallocate the blocks of the whole file, so that a full disk shows now (warmMappedFile).

        Errors: NoSpace.
        """
        with explained(self.path):
            os.posix_fallocate(self._own(), 0, self.file_size)

    def _pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        with explained(self.path):
            write_all(self._own(), data, at)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, at: int, size: int) -> bytes:
        """Read up to `size` bytes at position `at`, up to the wrote position.

        Errors: OSError if the disk fails.
        """
        size = min(size, self.wrote_position - at)
        if size <= 0 or at < 0:
            return b""
        committed = self.committed_position - at
        data = read_all(self._open(), min(size, committed), at) if committed > 0 else b""
        if size > committed:
            data += bytes(self._buffer[max(0, -committed) : size - committed])
        return data

    # --- close and delete ------------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        self._close_descriptor()
        self._buffer = bytearray()
        self._forget_buffer()

    def close(self) -> None:
        """Commit and close the file.

        Errors: as `commit`; the file is closed in any case.
        """
        try:
            if not self.cleaned:
                self.commit(0)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without committing; the buffer is lost, as if the process were killed."""
        self._available = False
        self._count = 0
        self._cleaned = True
        self.clean_up()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    def destroy(self, interval_forcibly: int) -> bool:
        """Shut down the file and delete it; False while somebody holds it (see `shutdown`).

        Source: DefaultMappedFile#destroy
        """
        self.shutdown(interval_forcibly)
        if not self.cleaned:
            return False
        self.path.unlink(missing_ok=True)
        return True


DELETE_BATCH = 10  # maximum number of files that one run of the clean-up deletes
HANG_TIME = 120_000  # ms after which a file is deleted although somebody holds it


class WritableMappedFileQueue:
    """Files of one size as one address space that grows at its end.

    `directories` receive new files (several for multi-path), `read_only` contain only old ones. `flushed_where` and
    `committed_where` are global offsets; `store_timestamp` (ms) is that of the last flushed message. Directories of new
    files are fsynced, except with `shared`, whose owner does so for many queues at once.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        file_size: int,
        *,
        read_only: Sequence[Path] = (),
        clock: Clock = now_ms,
        sleep: Callable[[float], None] = time.sleep,
        warm: bool = False,
        shared: SharedFiles | None = None,
    ) -> None:
        self._shared = shared
        self.directories = tuple(directories)
        self.read_only = tuple(read_only)
        self.file_size = file_size
        self.files: list[WritableMappedFile] = []
        self.flushed_where = 0
        self.committed_where = 0
        self.store_timestamp = 0
        self._clock = clock
        self._sleep = sleep
        self._warm = warm

    # --- loading -------------------------------------------------------------------------------------------------

    def load(self, version: str | None = None) -> None:
        """Open existing files by the rules of a RocketMQ version for file lengths, with all positions at their ends.

        Errors: Refused if that version's load returns false; NotReadable.
        Source: MappedFileQueue#doLoad
        """
        directories = [*self.directories, *(path for path in self.read_only if path not in self.directories)]
        loaded = load_directories(directories, self.file_size, rules_for(version))
        if loaded.obstacle is not None:
            raise Refused(loaded.obstacle.reason_text(), Text("run `rmqstore verify`, then `rmqstore recover`"))
        for path in loaded.deleted:
            path.unlink(missing_ok=True)
        self.files = [
            WritableMappedFile.open(f.path, f.start, self.file_size, self._clock, self._shared) for f in loaded.files
        ]
        for opened in self.files[:-1]:
            opened.release_descriptor()

    def check_self(self) -> list[tuple[int, int]]:
        """List gaps between adjacent files as (end of a file, start of the next); a broker only logs them.

        Source: MappedFileQueue#checkSelf
        """
        return [(a.stop, b.start) for a, b in zip(self.files, self.files[1:], strict=False) if a.stop != b.start]

    # --- start and end of the data -------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """The start of the first file; -1 without files."""
        return self.files[0].start if self.files else -1

    @property
    def max_offset(self) -> int:
        """The end of the data; 0 without files."""
        return self.files[-1].start + self.files[-1].wrote_position if self.files else 0

    @property
    def behind(self) -> int:
        """The number of bytes not flushed yet (remainHowManyDataToFlush)."""
        return self.max_offset - self.flushed_where

    def last_file(self, start_offset: int = 0, content: bytes = b"") -> WritableMappedFile:
        """Return the file to append to: the last one, or a new one if that is full.

        The first file of a queue starts at `start_offset`, rounded down to a file border. A new file begins with
        `content`. A full file is committed before the next one is created; if the process were killed in between,
        recovery would otherwise look for the end of the data after a hole.
        Errors: NoSpace, NotReadable, OutputExists.
        Source: MappedFileQueue#getLastMappedFile(long, boolean)
        """
        if self.files and not self.files[-1].full:
            return self.files[-1]
        if self.files:
            self.files[-1].commit(0)
        start = self.files[-1].stop if self.files else start_offset - start_offset % self.file_size
        place = self._directory(start)
        file = WritableMappedFile.create(place, start, self.file_size, self._clock, content, self._shared)
        if self._warm:
            file.warm()
        if not self.files:
            self.flushed_where = self.committed_where = start
        self.files.append(file)
        return file

    def _directory(self, start: int) -> Path:
        """Return the directory for a new file (MultiPathMappedFileQueue#tryCreateMappedFile)."""
        writable = sorted(str(p) for p in self.directories if p not in self.read_only) or [str(self.directories[0])]
        return Path(writable[start // self.file_size % len(writable)])

    # --- finding -------------------------------------------------------------------------------------------------

    def find_by_offset(self, offset: int, return_first: bool = False) -> WritableMappedFile | None:
        """Return the file that contains a global offset, else None, or with `return_first` the first file.

        Source: MappedFileQueue#findMappedFileByOffset
        """
        i = bisect_right(self.files, offset, key=lambda f: f.start) - 1
        if i >= 0 and offset < self.files[i].stop:
            return self.files[i]
        return self.files[0] if return_first and self.files else None

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes at a global offset, up to the end of the data in that file.

        Source: CommitLog#getMessage, which does not read across files either
        """
        file = self.find_by_offset(offset)
        return file.read(offset - file.start, size) if file else b""

    # --- commit and flush ----------------------------------------------------------------------------------------

    def commit(self, least_pages: int = 0) -> bool:
        """Write buffers to the operating system; True if there was nothing to do.

        Errors: NoSpace and others. Source: MappedFileQueue#commit
        """
        before = self.committed_where
        for file in self._from(before):
            self.committed_where = file.start + file.commit(least_pages)
            if file.committed_position != file.file_size:
                break
        return self.committed_where == before

    def flush(self, least_pages: int = 0) -> bool:
        """Flush all files in order; True if there was nothing to do.

        Errors: NoSpace and others. Source: MappedFileQueue#flush, which flushes one file per call
        """
        before = self.flushed_where
        for file in self._from(before):
            self.flushed_where = file.start + file.flush(least_pages)
            self.committed_where = max(self.committed_where, self.flushed_where)
            if least_pages == 0:
                self.store_timestamp = file.store_timestamp or self.store_timestamp
            if file.flushed_position != file.file_size:
                break
            if file is not self.files[-1]:
                file.release_descriptor()
        return self.flushed_where == before

    def release_descriptors(self) -> None:
        """Close the descriptors of all files until they are needed again. Errors: NoSpace."""
        for file in self.files:
            file.release_descriptor()

    def unflushed(self) -> list[WritableMappedFile]:
        """Return the files with data that is not on disk yet, in order."""
        return [file for file in self._from(self.flushed_where) if file.wrote_position > file.flushed_position]

    def _from(self, offset: int) -> list[WritableMappedFile]:
        """Return the files from the one that contains an offset on; searches from the end, because these are few."""
        i = len(self.files)
        while i > 0 and self.files[i - 1].stop > offset:
            i -= 1
        return self.files[i:]

    # --- truncation ----------------------------------------------------------------------------------------------

    def set_where(self, offset: int) -> None:
        """Set the flushed and committed offsets, after recovery has found the end of the data."""
        self.flushed_where = self.committed_where = offset

    def truncate_dirty_files(self, offset: int, *, blank: bool = False) -> list[Path]:
        """Truncate at a global offset: set the positions of its file, delete later files, and return their paths.

        A broker leaves the bytes after the offset in the file; `blank` overwrites them with zeros.
        Source: MappedFileQueue#truncateDirtyFiles
        """
        deleted = []
        for file in list(self.files):
            if file.stop <= offset:
                continue
            if file.start <= offset:
                file.commit(0)  # set_positions drops the buffer, which may contain bytes before the offset
                file.set_positions(offset - file.start)
                if blank:
                    file.blank_out(offset - file.start)
            elif file.destroy(1000):
                deleted.append(file.path)
                self.files.remove(file)
        for directory in {path.parent for path in deleted}:
            sync_directory(directory)
        return deleted

    def drop_empty_last(self) -> None:
        """Delete the last file if nothing is written to it.

        A consume queue file of zeros must not stay, because a broker takes its first 20 bytes for a unit
        (ConsumeQueue#truncateDirtyLogicFiles). Source: MappedFileQueue#deleteLastMappedFile
        """
        if self.files and self.files[-1].wrote_position == 0 and self.files[-1].destroy(1000):
            self._drop([self.files[-1].path])

    # --- retention -----------------------------------------------------------------------------------------------

    def delete_expired_by_time(
        self,
        expired_time: int,
        *,
        delete_interval: int = 0,
        interval_forcibly: int = HANG_TIME,
        clean_immediately: bool = False,
        batch: int = DELETE_BATCH,
    ) -> list[Path]:
        """Delete at most `batch` files that were last modified `expired_time` or longer ago, and return their paths.

        Deletes the oldest files first and never the last file; stops at the first file that is younger or held by
        somebody. `clean_immediately` ignores the age.
        Units: ms. Source: MappedFileQueue#deleteExpiredFileByTime
        """
        deleted: list[Path] = []
        candidates = self.files[:-1]
        for i, file in enumerate(candidates):
            if not clean_immediately and self._clock() < file.last_modified + expired_time:
                break
            if not file.destroy(interval_forcibly):
                break
            deleted.append(file.path)
            if len(deleted) >= batch:
                break
            if delete_interval > 0 and i + 1 < len(candidates):
                self._sleep(delete_interval / 1000)
        self._drop(deleted)
        return deleted

    def delete_expired_by_offset(self, offset: int, unit_size: int) -> list[Path]:
        """Delete files whose last unit points below a physical offset, and return their paths.

        Deletes the oldest files first and never the last file. A file that is shut down already, but was held by
        somebody, is deleted without another look at its units.
        Units: bytes. Source: MappedFileQueue#deleteExpiredFileByOffset
        """
        deleted: list[Path] = []
        for file in self.files[:-1]:
            if file.available:
                raw = file.read(self.file_size - unit_size, 8)
                if len(raw) < 8 or int.from_bytes(raw, "big", signed=True) >= offset:
                    break
            if not file.destroy(HANG_TIME):
                break
            deleted.append(file.path)
        self._drop(deleted)
        return deleted

    def _drop(self, deleted: Sequence[Path]) -> None:
        if deleted:
            paths = set(deleted)
            self.files = [file for file in self.files if file.path not in paths]
            for directory in {path.parent for path in deleted}:
                sync_directory(directory)

    # --- close and delete ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit and close all files, then raise the first error."""
        first_error: Exception | None = None
        for file in self.files:
            try:
                file.close()
            except Exception as error:  # noqa: BLE001  # close all files before the error is raised
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def abandon(self) -> None:
        """Close all files without committing, as if the process were killed."""
        for file in self.files:
            file.abandon()

    def destroy(self) -> None:
        """Close and delete all files."""
        for file in self.files:
            file.destroy(3000)
        self._drop([file.path for file in self.files])
