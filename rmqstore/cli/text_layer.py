"""What lies between rich and a binary output: text that is always valid, and a file that stays open."""

from __future__ import annotations

from typing import Any, BinaryIO


class Unclosed:
    """A binary file that a text layer on top of it may not close."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.flush()


class TextLayer:
    """What rich writes to."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.encoding = "utf-8"

    def write(self, text: str) -> int:
        # paths may hold bytes that are no UTF-8
        clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return int(self._file.write(clean))

    def flush(self) -> None:
        self._file.flush()

    def isatty(self) -> bool:
        return False
