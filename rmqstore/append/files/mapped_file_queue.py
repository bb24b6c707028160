"""MappedFileQueue, writable: files named by offset, appended to at the end, flushed, cut and expired.

Source: MappedFileQueue, MultiPathMappedFileQueue (RocketMQ 5.4.0). The reading one, without a descriptor that could
write, is `rmqstore.files.mapped_file_queue`.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from rmqstore.append.files.disk import sync_directory
from rmqstore.append.files.mapped_file import Clock, MappedFile, now_ms
from rmqstore.brokers.load.mapped_files import load_directories
from rmqstore.brokers.rules.versions import rules_for
from rmqstore.errors import Refused

DELETE_BATCH = 10  # most files that one round of the clean-up deletes
HANG_TIME = 120_000  # ms after which a file is taken from those that still hold it


class MappedFileQueue:
    """Files of one size as one address space that grows at its end.

    `directories` are where new files go (several: multi-path, by offset); `read_only` only hold old files.
    `flushed_where` and `committed_where` are global offsets; `store_timestamp` is that of the last flushed message.
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
        self.files: list[MappedFile] = []
        self.flushed_where = 0
        self.committed_where = 0
        self.store_timestamp = 0
        self._clock = clock
        self._sleep = sleep
        self._warm = warm

    # --- loading -------------------------------------------------------------------------------------------------

    def load(self, version: str | None = None) -> None:
        """Open what is there by the length rule of a RocketMQ version; all positions are then at the files' ends.

        Errors: Refused where that version's load returns false; NotReadable.
        Source: MappedFileQueue#doLoad
        """
        places = [*self.directories, *(place for place in self.read_only if place not in self.directories)]
        loaded = load_directories(places, self.file_size, rules_for(version))
        if loaded.obstacle is not None:
            raise Refused(loaded.obstacle.reason_text(), "run `rmqstore verify`, then `rmqstore recover`")
        for path in loaded.deleted:
            path.unlink(missing_ok=True)
        self.files = [MappedFile.open(f.path, f.start, self.file_size, self._clock) for f in loaded.files]
        for opened in self.files[:-1]:
            opened.relax()

    def check_self(self) -> list[tuple[int, int]]:
        """Gaps between neighbours: (end of a file, start of the next); a broker only logs them.

        Source: MappedFileQueue#checkSelf
        """
        return [(a.stop, b.start) for a, b in zip(self.files, self.files[1:], strict=False) if a.stop != b.start]

    # --- where the end is ----------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Where the first file starts; -1 without files."""
        return self.files[0].start if self.files else -1

    @property
    def max_offset(self) -> int:
        """Where the data ends; 0 without files."""
        return self.files[-1].start + self.files[-1].wrote_position if self.files else 0

    @property
    def max_wrote_position(self) -> int:
        """The same (MappedFileQueue#getMaxWrotePosition)."""
        return self.max_offset

    @property
    def behind(self) -> int:
        """Bytes written and not yet flushed (remainHowManyDataToFlush)."""
        return self.max_offset - self.flushed_where

    def last_file(self, start_offset: int = 0, content: bytes = b"") -> MappedFile:
        """The file to append to: the last one, or the next one created when it is full.

        A first file starts at `start_offset`, rounded down to a whole file; a new one begins with `content`. What is in
        the buffer of a full file goes to the system before the next one appears: were the process killed between the
        two, recovery would look for the end behind the hole.
        Errors: NoSpace, NotReadable, OutputExists.
        Source: MappedFileQueue#getLastMappedFile(long, boolean)
        """
        if self.files and not self.files[-1].full:
            return self.files[-1]
        if self.files:
            self.files[-1].commit(0)
        start = self.files[-1].stop if self.files else start_offset - start_offset % self.file_size
        file = MappedFile.create(self._place(start), start, self.file_size, self._clock, content)
        if self._warm:
            file.warm()
        if not self.files:
            file.first_create_in_queue = True
            self.flushed_where = self.committed_where = start
        self.files.append(file)
        return file

    def _place(self, start: int) -> Path:
        """Directory of a new file (MultiPathMappedFileQueue#tryCreateMappedFile)."""
        places = sorted(str(p) for p in self.directories if p not in self.read_only) or [str(self.directories[0])]
        return Path(places[start // self.file_size % len(places)])

    # --- finding -------------------------------------------------------------------------------------------------

    def find_by_offset(self, offset: int, return_first: bool = False) -> MappedFile | None:
        """The file that holds a global offset; the first one instead of none when asked for.

        Source: MappedFileQueue#findMappedFileByOffset
        """
        i = bisect_right(self.files, offset, key=lambda f: f.start) - 1
        if i >= 0 and offset < self.files[i].stop:
            return self.files[i]
        return self.files[0] if return_first and self.files else None

    def find_by_time(self, timestamp: int) -> MappedFile | None:
        """The first file modified at or after a time (ms), else the last one.

        Source: MappedFileQueue#getMappedFileByTime
        """
        for file in self.files:
            if file.last_modified >= timestamp:
                return file
        return self.files[-1] if self.files else None

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at a global offset, within one file; short where nothing is written.

        Source: CommitLog#getMessage, which also never reads over a file's end
        """
        file = self.find_by_offset(offset)
        return file.read(offset - file.start, size) if file else b""

    # --- to the disk ---------------------------------------------------------------------------------------------

    def commit(self, least_pages: int = 0) -> bool:
        """Give buffers to the system; True when nothing was to be done.

        Errors: NoSpace and others. Source: MappedFileQueue#commit
        """
        before = self.committed_where
        for file in self._from(before):
            self.committed_where = file.start + file.commit(least_pages)
            if file.committed_position != file.file_size:
                break
        return self.committed_where == before

    def flush(self, least_pages: int = 0) -> bool:
        """Bring data to the disk, file by file up to the end; True when nothing was to be done.

        Errors: NoSpace and others. Source: MappedFileQueue#flush, which does one file per call
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
                file.relax()
        return self.flushed_where == before

    def relax(self) -> None:
        """Close the descriptors of all files until they are needed again. Errors: NoSpace."""
        for file in self.files:
            file.relax()

    def unflushed(self) -> list[MappedFile]:
        """Files with data that is not on the disk yet, in order."""
        return [file for file in self._from(self.flushed_where) if file.wrote_position > file.flushed_position]

    def _from(self, offset: int) -> list[MappedFile]:
        """Files from the one that holds an offset on; few are behind it, so the search begins at the end."""
        i = len(self.files)
        while i > 0 and self.files[i - 1].stop > offset:
            i -= 1
        return self.files[i:]

    # --- cutting -------------------------------------------------------------------------------------------------

    def set_where(self, offset: int) -> None:
        """Flushed and committed up to here: recovery has found the end."""
        self.flushed_where = self.committed_where = offset

    def truncate_dirty_files(self, offset: int, *, blank: bool = False) -> list[Path]:
        """Cut at a global offset: later files are deleted, positions of its own file set; the files deleted.

        The bytes behind the cut stay, as a broker leaves them, unless `blank`.
        Source: MappedFileQueue#truncateDirtyFiles
        """
        gone = []
        for file in list(self.files):
            if file.stop <= offset:
                continue
            if file.start <= offset:
                file.commit(0)  # bytes before the cut must not get lost with the buffer
                file.set_positions(offset - file.start)
                if blank:
                    file.blank_out(offset - file.start)
            elif file.destroy(1000):
                gone.append(file.path)
                self.files.remove(file)
        for place in {path.parent for path in gone}:
            sync_directory(place)
        return gone

    def drop_empty_last(self) -> None:
        """Delete the last file when nothing is written to it.

        A consume queue file of zeros must not stay: a broker takes its first 20 bytes for a unit
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
        """Delete files last modified `expired_time` ago or longer, oldest first, never the last; at most `batch`.

        It stops at the first file that is young, or that somebody holds. With `clean_immediately` age is not asked.
        Units: ms. Source: MappedFileQueue#deleteExpiredFileByTime
        """
        gone: list[Path] = []
        candidates = self.files[:-1]
        for i, file in enumerate(candidates):
            if not clean_immediately and self._clock() < file.last_modified + expired_time:
                break
            if not file.destroy(interval_forcibly):
                break
            gone.append(file.path)
            if len(gone) >= batch:
                break
            if delete_interval > 0 and i + 1 < len(candidates):
                self._sleep(delete_interval / 1000)
        self._drop(gone)
        return gone

    def delete_expired_by_offset(self, offset: int, unit_size: int) -> list[Path]:
        """Delete files whose last unit points below a commitlog offset, oldest first, never the last.

        A file that was shut down before, while somebody held it, is deleted without looking at its units.
        Units: bytes. Source: MappedFileQueue#deleteExpiredFileByOffset
        """
        gone: list[Path] = []
        for file in self.files[:-1]:
            if file.available:
                raw = file.read(self.file_size - unit_size, 8)
                if len(raw) < 8 or int.from_bytes(raw, "big", signed=True) >= offset:
                    break
            if not file.destroy(HANG_TIME):
                break
            gone.append(file.path)
        self._drop(gone)
        return gone

    def retry_delete_first_file(self, interval_forcibly: int = HANG_TIME) -> bool:
        """Try again to delete a first file that somebody held; True when it is gone.

        Source: MappedFileQueue#retryDeleteFirstFile
        """
        if self.files and not self.files[0].available and self.files[0].destroy(interval_forcibly):
            self._drop([self.files[0].path])
            return True
        return False

    def _drop(self, gone: Sequence[Path]) -> None:
        if gone:
            names = set(gone)
            self.files = [file for file in self.files if file.path not in names]
            for place in {path.parent for path in gone}:
                sync_directory(place)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit and close all files; they stay. The first error is raised when all are closed."""
        trouble: Exception | None = None
        for file in self.files:
            try:
                file.close()
            except Exception as error:  # noqa: BLE001  # every file has to be closed before anything is said
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def abandon(self) -> None:
        """Close all files without committing, as a killed process does."""
        for file in self.files:
            file.abandon()

    def destroy(self) -> None:
        """Delete all files and close them."""
        for file in self.files:
            file.destroy(3000)
        self._drop([file.path for file in self.files])
