"""A writable MappedFileQueue: append, flush, truncate and delete expired files.

Source: MappedFileQueue, MultiPathMappedFileQueue (RocketMQ 5.4.0). The read-only counterpart is in
`rmqstore.files.mapped_file_queue`.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from rmqstore.append.files.disk import sync_directory
from rmqstore.append.files.mapped_file import Clock, WritableMappedFile, now_ms
from rmqstore.brokers.mapped_files import load_directories
from rmqstore.brokers.rules import rules_for
from rmqstore.errors import Refused
from rmqstore.texts import Text

DELETE_BATCH = 10  # maximum number of files that one run of the clean-up deletes
HANG_TIME = 120_000  # ms after which a file is deleted although somebody holds it


class WritableMappedFileQueue:
    """Files of one size as one address space that grows at its end.

    `directories` receive new files (several for multi-path), `read_only` contain only old ones. `flushed_where` and
    `committed_where` are global offsets; `store_timestamp` (ms) is that of the last flushed message.
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
    ) -> None:
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
        self.files = [WritableMappedFile.open(f.path, f.start, self.file_size, self._clock) for f in loaded.files]
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
        file = WritableMappedFile.create(self._directory(start), start, self.file_size, self._clock, content)
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
