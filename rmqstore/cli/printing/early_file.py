"""Output files whose pages the kernel begins to write to disk while the command still computes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rmqstore.files.disk import start_writing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STEP = 8 << 20  # bytes


class EarlyFile(io.FileIO):
    """A new file whose pages the kernel begins to write every few megabytes."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "wb")
        self._waiting = 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Write like FileIO, and start the write-back of earlier pages."""
        count = super().write(data)
        self._waiting += count
        if self._waiting >= _STEP:
            start_writing(self.fileno())
            self._waiting = 0
        return count
