"""Copy a part of a file into an object of a repository, hashing and writing it while the caller reads it."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from rmqstore.backup.manifest import StoredPiece
from rmqstore.backup.repository import StoreFolder
from rmqstore.files.files import DirEntry, Files, OpenFile

_BLOCK = 4 << 20
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
