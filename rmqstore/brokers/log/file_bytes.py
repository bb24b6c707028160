"""Buffered small reads of one file, for the byte-exact parsers."""

from __future__ import annotations

import os
from pathlib import Path

from rmqstore.files.disk.reading import open_regular

_BLOCK = 64 << 10


class FileBytes:
    """Reads `(size, position)` of one file through a 64-KiB buffer; short at the end, empty if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = open_regular(path)
        except OSError:
            self._fd = -1
        self._at = 0
        self._block = b""

    def __call__(self, size: int, at: int) -> bytes:
        if size <= 0 or at < 0 or self._fd < 0:
            return b""
        lo = at - self._at
        if lo >= 0 and lo + size <= len(self._block):
            return self._block[lo : lo + size]
        try:
            if size >= _BLOCK:
                return os.pread(self._fd, size, at)
            self._block = os.pread(self._fd, _BLOCK, at)
        except OSError:
            return b""
        self._at = at
        return self._block[:size]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FileBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
