"""Read a file of a log from the pieces that a repository has of it."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from rmqstore.backup.manifest import LogFile, StoredPiece
from rmqstore.backup.repository import StoreFolder
from rmqstore.errors import CouldNotCheck
from rmqstore.files.files import OpenFile
from rmqstore.texts import Text


class StoredFile(OpenFile):
    """The bytes of a log file that a snapshot has. `length` in bytes may be larger: the rest is zeros.

    Errors: CouldNotCheck if an object is missing or too short.
    """

    def __init__(self, folder: StoreFolder, file: LogFile, length: int | None = None) -> None:
        self._folder = folder
        self._pieces = file.pieces
        self._starts = [0, *accumulate(piece.length for piece in file.pieces)]
        self._length = max(length or 0, self._starts[-1])

    @property
    def length(self) -> int:
        return self._length

    def read_into(self, buffer: memoryview, at: int) -> int:
        size = min(len(buffer), self._length - at)
        if size <= 0:
            return 0
        if at >= self._starts[-1]:
            buffer[:size] = bytes(size)
            return size
        number = bisect_right(self._starts, at) - 1
        piece, within = self._pieces[number], at - self._starts[number]
        size = min(size, piece.length - within)
        count = self._folder.storage.read_into(self._folder.key(piece.object), buffer[:size], within)
        if count <= 0:
            raise _short(self._folder, piece)
        return count

    def next_data(self, at: int, stop: int) -> tuple[int, int]:
        data = min(self._starts[-1], stop)
        return (at, data) if at < data else (stop, stop)

    def close(self) -> None:
        """Do nothing: no object stays open."""


def _short(folder: StoreFolder, piece: StoredPiece) -> CouldNotCheck:
    return CouldNotCheck(
        Text("{address}/{key} is missing or too short", address=folder.storage.address, key=folder.key(piece.object)),
        Text("`rmqstore snapshots --check` shows which snapshots need it"),
    )
