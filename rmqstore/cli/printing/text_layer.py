"""File objects between rich and a binary output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, BinaryIO

_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_DOT = "·".encode()


class Unclosed:
    """A binary file that stays open when a text layer closes it."""

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
    """A text file for rich, which writes invalid UTF-8 as escapes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.encoding = "utf-8"

    def write(self, text: str) -> int:
        # paths may hold bytes that are not UTF-8
        clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return int(self._file.write(clean))

    def flush(self) -> None:
        self._file.flush()

    def isatty(self) -> bool:
        return False


class Harmless(Unclosed):
    """A terminal for data of a store: control characters other than tab and newline become dots."""

    def write(self, data: bytes) -> int:
        self._file.write(_CONTROL.sub(_DOT, bytes(data)))
        return len(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)
