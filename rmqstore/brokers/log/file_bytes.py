"""Buffered small reads of one file, for the byte-exact parsers."""

from __future__ import annotations

import contextlib

from rmqstore.brokers.load.mapped_files import SimulatedFile
from rmqstore.files.files import OpenFile

_BLOCK = 64 << 10


class FileBytes:
    """Reads `(size, position)` of one file through a 64-KiB buffer; short at the end, empty if it cannot be opened."""

    def __init__(self, file: SimulatedFile) -> None:
        self._file: OpenFile | None = None
        with contextlib.suppress(OSError):
            self._file = file.files.open(file.path)
        self._at = 0
        self._block = b""

    def __call__(self, size: int, at: int) -> bytes:
        if size <= 0 or at < 0 or self._file is None:
            return b""
        lo = at - self._at
        if lo >= 0 and lo + size <= len(self._block):
            return self._block[lo : lo + size]
        try:
            if size >= _BLOCK:
                return self._file.read(size, at)
            self._block = self._file.read(_BLOCK, at)
        except OSError:
            return b""
        self._at = at
        return self._block[:size]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> FileBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
