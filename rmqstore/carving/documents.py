"""Find configuration files: JSON documents of config/ that begin with a sector.

A broker writes such a file again and again, so that a disk has many versions of it. The one with the newest
`dataVersion` counts; of consumer offsets without one (before 5.0), the one with the highest offsets. A document that
does not parse, because its rest is in another block, is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rmqstore.carving.source import SECTOR
from rmqstore.files.config import committed_offsets, delay_offsets, wrong_type
from rmqstore.formats.configuration import ConfigJsonError, JsonValue, parse_config_object
from rmqstore.scan.window import Window

LARGEST = 16 << 20
"""Bytes of the largest document that is read."""
_START, _BLANK, _QUOTE = b'{ "'
_FIRST = 1 << 10
_TABLES = {
    "topicConfigTable": "topics.json",
    "subscriptionGroupTable": "subscriptionGroup.json",
    "offsetTable": "consumerOffset.json",
}
_MARKS = (b'"dataVersion"', *(f'"{name}"'.encode() for name in _TABLES))
_DELAYS = "delayOffset.json"
_SPARE = 256 << 20


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A configuration file. `source`: position of its first byte; `version`: the greater, the newer; `time` in ms."""

    source: int
    name: str
    length: int
    version: tuple[int, int, int]

    @property
    def time(self) -> int:
        return self.version[0]


class DocumentFinder:
    """Finds the documents of one segment in what its window reads. `first`: position of the segment in the source."""

    def __init__(self, window: Window, first: int) -> None:
        self.window = window
        self.first = first
        self.found: list[FoundDocument] = []
        self._seen = 0
        self._parsed = 0

    def look(self) -> None:
        """Look for documents in what the window has read since the last call."""
        window = self.window
        begin = -(-max(window.base, self._seen) // SECTOR) * SECTOR
        stop = window.base + window.have
        if begin >= stop:
            return
        self._seen = stop
        read = np.frombuffer(window.buf, dtype=np.uint8)
        firsts, seconds = (read[begin - window.base + i : window.have + i : SECTOR] for i in (0, 1))
        begins = (firsts == _START) & ((seconds <= _BLANK) | (seconds == _QUOTE))
        for number in np.flatnonzero(begins).tolist():
            self._read(begin + number * SECTOR)

    def _read(self, at: int) -> None:
        head = self.window.pread(_FIRST, at)
        if not any(mark in head for mark in _MARKS):
            return
        data = self._text(at, head)
        if data is None:
            return
        found = _document(data)
        if found is not None:
            name, version = found
            self.found.append(FoundDocument(self.first + at, name, len(data), version))

    def _text(self, at: int, head: bytes) -> bytes | None:
        """Return the bytes up to the first NUL, which fills the last block; None if there are too many."""
        data, size = head, _FIRST
        while (end := data.find(b"\0")) < 0:
            if len(data) < size or size >= LARGEST or self._parsed > self._seen + _SPARE:
                return data if len(data) < size else None
            size *= 4
            data = self.window.pread(size, at)
            self._parsed += len(data)
        return data[:end]


def _document(data: bytes) -> tuple[str, tuple[int, int, int]] | None:
    """Return the name of a configuration file, and its version; None if these bytes are none."""
    try:
        table = parse_config_object(data)
    except ConfigJsonError:
        return None
    for key, name in _TABLES.items():
        if isinstance(table.get(key), Mapping):
            if key == "offsetTable" and delay_offsets(table) and not committed_offsets(table):
                name = _DELAYS
            elif "lmqOffsetTable" in table:
                name = "lmqConsumerOffset.json"
            return None if wrong_type(name, table) else (name, _version(table))
    return None


def _version(table: Mapping[str, JsonValue]) -> tuple[int, int, int]:
    """Return time and counter of the dataVersion, and the sum of the committed offsets."""
    own = table.get("dataVersion")
    time, counter = (own.get("timestamp"), own.get("counter")) if isinstance(own, Mapping) else (0, 0)
    offsets = sum(row.offset for row in committed_offsets(table) or ()) if "offsetTable" in table else 0
    return _number(time), _number(counter), min(offsets, (1 << 63) - 1)


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0
