"""MappedFile, writable: one file with its wrote, committed and flushed positions, and the count of who uses it.

Source: DefaultMappedFile, ReferenceResource (RocketMQ 5.4.0).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rmqstore.append.files.disk import create_file, explain, read_all, write_all
from rmqstore.errors import NotReadable
from rmqstore.files.disk.sparse import data_extents
from rmqstore.files.mapped_file_queue import offset_to_file_name

PAGE = 4096
COMMIT_AT = 1 << 16  # bytes in the buffer at which an append gives them to the system by itself
_ZERO_STEP = 1 << 20
Clock = Callable[[], int]


def now_ms() -> int:
    """The clock of a broker: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class ReferenceResource:
    """Counts the users of a file: who holds it keeps it open, until it is shut down and long enough has passed.

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
        """Nobody has shut it down."""
        return self._available

    @property
    def references(self) -> int:
        """Users, the owner included; 0 or less when nobody is left."""
        return self._count

    @property
    def cleaned(self) -> bool:
        """Nobody uses it any more, and what it held is given back (isCleanupOver)."""
        return self._count <= 0 and self._cleaned

    def hold(self) -> bool:
        """One user more; False when it is being shut down."""
        with self._guard:
            if self._available and self._count > 0:
                self._count += 1
                return True
        return False

    def release(self) -> None:
        """One user less; the last one cleans up."""
        with self._guard:
            self._count -= 1
            last = self._count <= 0 and not self._cleaned
            self._cleaned = self._cleaned or last
        if last:
            self.clean_up()

    def shutdown(self, interval_forcibly: int) -> None:
        """Let no new user in. Asked again after `interval_forcibly` ms it is taken away from those that still hold it.

        Units: ms.
        """
        if self._available:
            self._available = False
            self._first_shutdown = self._clock()
            self.release()
        elif self._count > 0 and self._clock() - self._first_shutdown >= interval_forcibly:
            self._count = -1000 - self._count
            self.release()

    def clean_up(self) -> None:
        """What the last release does."""


class MappedFile(ReferenceResource):
    """A file of a queue, open for appending.

    `start` is the global offset of its first byte. Positions are bytes in the file: [0, flushed) is on the disk,
    [flushed, committed) with the system, [committed, wrote) in `_buffer`. `store_timestamp` is that of the last
    message appended (ms).
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
        self.first_create_in_queue = False
        self._descriptor = descriptor
        self._buffer = bytearray()

    @classmethod
    def create(
        cls, directory: Path, start: int, file_size: int, clock: Clock = now_ms, content: bytes = b""
    ) -> MappedFile:
        """A new file named by its offset, sparse at full size, with `content` appended already.

        Errors: OutputExists, NoSpace, NotReadable.
        """
        path = directory / offset_to_file_name(start)
        file = cls(path, start, file_size, create_file(path, file_size, content), clock)
        file.wrote_position = file.committed_position = len(content)
        return file

    @classmethod
    def open(cls, path: Path, start: int, file_size: int, clock: Clock = now_ms) -> MappedFile:
        """A file that is there; it counts as full until its positions are set, as after MappedFileQueue#load.

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
        """The descriptor; opened again where `relax` has closed it. Errors: NotReadable."""
        if self._descriptor < 0:
            if self._cleaned:
                raise NotReadable(f"{self.path} is closed")
            try:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise explain(error, self.path) from error
        return self._descriptor

    def relax(self) -> None:
        """Commit, and close the descriptor until it is needed again: a store may have many thousands of files.

        Errors: as `commit`.
        """
        self.commit(0)
        with self._guard:
            if self._count == 1 and self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    @property
    def relaxed(self) -> bool:
        """Nothing is open, nor in the buffer."""
        return self._descriptor < 0 and not self._buffer

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stop(self) -> int:
        """Global offset behind the file."""
        return self.start + self.file_size

    @property
    def left(self) -> int:
        """Bytes that can still be appended."""
        return self.file_size - self.wrote_position

    @property
    def full(self) -> bool:
        return self.wrote_position == self.file_size

    @property
    def last_modified(self) -> int:
        """Modification time, ms; retention goes by it.

        Errors: OSError when the file has vanished.
        """
        return self.path.stat().st_mtime_ns // 1_000_000

    def set_positions(self, position: int) -> None:
        """All three positions at once: recovery has found the end."""
        self._buffer.clear()
        self.wrote_position = self.committed_position = self.flushed_position = position

    # --- appending -----------------------------------------------------------------------------------------------

    def append(self, data: bytes | bytearray | memoryview) -> bool:
        """Append bytes; False when they do not fit. Many at once go to the system without a copy in the buffer.

        Source: DefaultMappedFile#appendMessage(byte[])
        Errors: as `commit`
        """
        wrote = self.wrote_position + len(data)
        if wrote > self.file_size:
            return False
        if len(data) >= COMMIT_AT:
            self.commit(0)
            self._pwrite(data, self.wrote_position)
            self.wrote_position = self.committed_position = wrote
            return True
        self._buffer += data
        self.wrote_position = wrote
        if len(self._buffer) >= COMMIT_AT:
            self.commit(0)
        return True

    def append_with(self, encode: Callable[[int, int], bytes | None], store_timestamp: int = 0) -> int | None:
        """Append what `encode(global offset, bytes left)` gives; None when it gives nothing or too much.

        Units: the answer is the global offset, bytes.
        Source: DefaultMappedFile#appendMessagesInner
        """
        offset = self.start + self.wrote_position
        data = encode(offset, self.left) if self.left else None
        if data is None or not self.append(data):
            return None
        self.store_timestamp = store_timestamp or self.store_timestamp
        return offset

    def finish(self, blank: bytes) -> None:
        """Close the file with a BLANK: its bytes are written, the rest of the file stays as it is (sparse zeros).

        Errors: as `commit`.
        """
        self._buffer += blank
        self.wrote_position += len(blank)
        self.commit(0)
        self.wrote_position = self.committed_position = self.file_size

    def overwrite(self, data: bytes, at: int) -> None:
        """Replace bytes below the wrote position (a counter, a header); positions stay.

        Errors: ValueError when they are not all written yet; NoSpace.
        """
        if at < 0 or at + len(data) > self.wrote_position:
            raise ValueError(f"{self.path}: [{at}, {at + len(data)}) is not written")
        low = max(at, self.committed_position)
        if low < at + len(data):
            place = low - self.committed_position
            self._buffer[place : place + at + len(data) - low] = data[low - at :]
        if at < self.committed_position:
            self._pwrite(memoryview(data)[: self.committed_position - at], at)
            self.flushed_position = min(self.flushed_position, at)

    def blank_out(self, at: int) -> None:
        """Zero the disk behind a cut, so that old data does not reappear; holes stay holes.

        Written over, not truncated: a file of the wrong length would keep a broker from starting.
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

    # --- to the system, and to the disk ---------------------------------------------------------------------------

    def able_to_commit(self, least_pages: int) -> bool:
        """Source: DefaultMappedFile#isAbleToCommit"""
        if self.full and self._buffer:
            return True
        if least_pages > 0:
            return self.wrote_position // PAGE - self.committed_position // PAGE >= least_pages
        return self.wrote_position > self.committed_position

    def commit(self, least_pages: int = 0) -> int:
        """Give the buffer to the system, when there are that many pages of it; the committed position.

        Errors: NoSpace and others of `explain`; the buffer is kept then.
        """
        if self._buffer and self.able_to_commit(least_pages):
            self._pwrite(self._buffer, self.committed_position)
            self.committed_position = self.wrote_position
            self._buffer = bytearray()
        return self.committed_position

    def able_to_flush(self, least_pages: int) -> bool:
        """Source: DefaultMappedFile#isAbleToFlush"""
        if self.flushed_position == self.file_size:
            return False
        if self.full:
            return True
        if least_pages > 0:
            return self.wrote_position // PAGE - self.flushed_position // PAGE >= least_pages
        return self.wrote_position > self.flushed_position

    def flush(self, least_pages: int = 0) -> int:
        """Bring it to the disk, when there are that many pages of it; the flushed position.

        Errors: as `commit`. A failing fsync is not tried again: what it lost is lost.
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
        """fsync alone, for a committed position that was taken under the appenders' lock."""
        try:
            os.fdatasync(self._open())
        except OSError as error:
            raise explain(error, self.path) from error
        self.flushed_position = max(self.flushed_position, position)

    def warm(self) -> None:
        """Reserve the blocks of the whole file now, so that a full disk is met here (warmMappedFile).

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
        """Bytes in [at, at + size), as far as they are written; positions in the file.

        Errors: OSError of a failing disk.
        """
        size = min(size, self.wrote_position - at)
        if size <= 0 or at < 0:
            return b""
        low = self.committed_position - at
        out = read_all(self._open(), min(size, low), at) if low > 0 else b""
        if size > low:
            first = max(0, -low)
            out += bytes(self._buffer[first : size - low])
        return out

    # --- the end -------------------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._buffer = bytearray()

    def close(self) -> None:
        """Commit, and let go; the file stays.

        Errors: as `commit`; the file is closed all the same.
        """
        try:
            if not self.cleaned:
                self.commit(0)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without committing: what was in the buffer is lost, as when the process is killed."""
        self._available = False
        self._count = 0
        self._cleaned = True
        self.clean_up()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    def destroy(self, interval_forcibly: int) -> bool:
        """Delete the file when nobody uses it any more; False while somebody does.

        Units: ms. Source: DefaultMappedFile#destroy
        """
        self.shutdown(interval_forcibly)
        if not self.cleaned:
            return False
        self.path.unlink(missing_ok=True)
        return True
