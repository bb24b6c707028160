"""A writable MappedFile, with wrote, committed and flushed positions and a reference count.

Source: DefaultMappedFile, ReferenceResource (RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rmqstore.append.files.disk import create_file, explain, read_all, write_all
from rmqstore.errors import NotReadable
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
    def references(self) -> int:
        """The number of references, including the owner's; 0 or less after the last release."""
        return self._count

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


class WritableMappedFile(ReferenceResource):
    """A file of a queue, open for appending.

    `start` is the global offset of its first byte. Positions are in bytes from there: [0, flushed) is on disk,
    [flushed, committed) in the operating system, [committed, wrote) in `_buffer`. `store_timestamp` (ms) is that of the
    last message appended.
    """

    def __init__(self, path: Path, start: int, file_size: int, descriptor: int, clock: Clock = now_ms) -> None:
        super().__init__(clock)
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

    @classmethod
    def create(
        cls, directory: Path, start: int, file_size: int, clock: Clock = now_ms, content: bytes = b""
    ) -> WritableMappedFile:
        """Create a sparse file of full size, named by its offset, that begins with `content`.

        Errors: OutputExists, NoSpace, NotReadable.
        """
        path = directory / offset_to_file_name(start)
        file = cls(path, start, file_size, create_file(path, file_size, content), clock)
        file.wrote_position = file.committed_position = len(content)
        return file

    @classmethod
    def open(cls, path: Path, start: int, file_size: int, clock: Clock = now_ms) -> WritableMappedFile:
        """Open an existing file; it counts as full until its positions are set, as after MappedFileQueue#load.

        Errors: NotReadable.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise explain(error, path) from error
        file = cls(path, start, file_size, descriptor, clock)
        file.set_positions(file_size)
        return file

    def _open(self) -> int:
        """Return the descriptor, and reopen the file if `release_descriptor` has closed it. Errors: NotReadable."""
        if self._descriptor < 0:
            if self._cleaned:
                raise NotReadable(Text("{path} is closed", path=self.path))
            try:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise explain(error, self.path) from error
        return self._descriptor

    def release_descriptor(self) -> None:
        """Commit, and close the descriptor until it is needed again, because a store may have thousands of files.

        Errors: as `commit`.
        """
        self.commit(0)
        with self._guard:
            if self._count == 1 and self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

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
        self.wrote_position = self.committed_position = self.flushed_position = position

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
        try:
            for low, stop in data_extents(self._open(), at, self.file_size):
                for start in range(low, stop, _ZERO_STEP):
                    size = min(_ZERO_STEP, stop - start)
                    if any(read_all(self._open(), size, start)):
                        write_all(self._open(), bytes(size), start)
        except OSError as error:
            raise explain(error, self.path) from error

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
        try:
            os.fdatasync(self._open())
        except OSError as error:
            raise explain(error, self.path) from error
        self.flushed_position = max(self.flushed_position, position)

    def warm(self) -> None:
        """Preallocate the blocks of the whole file, so that a full disk shows now (warmMappedFile).

        Errors: NoSpace.
        """
        try:
            os.posix_fallocate(self._open(), 0, self.file_size)
        except OSError as error:
            raise explain(error, self.path) from error

    def _pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        try:
            write_all(self._open(), data, at)
        except OSError as error:
            raise explain(error, self.path) from error

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
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._buffer = bytearray()

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
