"""A terminal for bytes of a store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_DOT = "·".encode()


class Harmless:
    """A terminal for data of a store: control characters other than tab and newline become dots."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(_CONTROL.sub(_DOT, bytes(data)))
        return len(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._file.flush()
