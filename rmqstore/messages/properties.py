"""Render the properties of a chunk as JSON objects, and TAGS, KEYS and UNIQ_KEY as values, for JSON lines and for CSV.

The C library leaves out unusual texts (escapes, broken grammar, invalid UTF-8, a repeated name). These are decoded one
by one; without the library, all texts are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmqstore.formats import properties
from rmqstore.formats.text import has_unescaped
from rmqstore.messages.cells import Spans
from rmqstore.messages.text import csv_cell, dumps
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import U8, Bool
from rmqstore.scan.properties import not_utf8

NAMES = (properties.TAGS, properties.KEYS, properties.UNIQ_KEY)


@dataclass(frozen=True, slots=True)
class Style:
    """How texts are written.

    `equals` replaces 0x01, `comma` 0x02; `open` and `close` enclose an object. `quotes`: quotes around a value belong
    to it. A value that contains `bad` is written on its own, by `text`; `object` writes an object.
    """

    open: bytes
    close: bytes
    equals: bytes
    comma: bytes
    quotes: bool
    bad: bytes
    text: Callable[[str | None], bytes]
    object: Callable[[dict[str, str]], bytes]

    @property
    def packed(self) -> U8:
        """`struct style` of loops/lines.c."""
        parts = (self.open, self.close, self.equals, self.comma)
        numbers = [*map(len, parts), int(self.quotes), self.bad[0] if self.bad else -1]
        packed = np.array(numbers, dtype=np.int64).tobytes() + b"".join(p.ljust(8) for p in parts)
        return np.frombuffer(packed, dtype=np.uint8).copy()  # aligned


def _json(value: Any) -> bytes:
    return dumps(value).encode("utf-8", "backslashreplace")


JSON = Style(b'{"', b'"}', b'":"', b'","', True, b"", _json, _json)
CSV = Style(
    b'"{""', b'""}"', b'"":""', b'"",""', False, b",", csv_cell, lambda found: csv_cell(dumps(found))
)  # fmt: skip


class PropertySpans:
    """The properties of every record as an object, and its TAGS, KEYS and UNIQ_KEY, as spans of `source`."""

    def __init__(self, columns: Columns, style: Style = JSON) -> None:
        self._style = style
        n = len(columns)
        starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
        stops = stops - (columns.buf[np.maximum(stops - 1, 0)] == 2)
        texts = Spans(columns.buf, starts, stops)
        self.slow: Bool = np.ones(n, dtype=np.bool_)
        """Records that were decoded one by one: unusual texts, or without the C library, all."""
        self._first, self._last = (np.zeros((1 + len(NAMES), n), dtype=np.int64) for _ in range(2))
        self._more: list[bytes] = []
        self._end = 0
        written = np.empty(0, dtype=np.uint8)
        loops = native.load()
        if loops is not None:
            written = self._written(loops, texts)
        slow = np.flatnonzero(self.slow)
        for i, text in zip(slow.tolist(), texts.take(slow).raw(), strict=True):
            self._set(i, text)
        self.source: U8 = np.concatenate((written, np.frombuffer(b"".join(self._more), dtype=np.uint8)))

    def _written(self, loops: native.Native, texts: Spans) -> U8:
        """Render all texts that are not `slow` with the C library."""
        style, total = self._style, int(np.maximum(texts.stops - texts.starts, 0).sum())
        out = np.empty(2 * total + 64 * len(texts), dtype=np.uint8)
        names = tuple(name.encode() for name in NAMES)
        end, first, last, marks = loops.objects(texts.source, texts.starts, texts.stops, style.packed, names, out, 0)
        self._first, self._last, self._end = first, last, end
        nothing = self._append(style.text(None))
        empty = self._append(style.object({}))
        for edge, none, without in zip((first, last), nothing, empty, strict=True):
            edge[0][edge[0] < 0] = without
            edge[1:][edge[1:] < 0] = none
        self.slow = marks == 1
        wide = np.flatnonzero(marks == 2)
        if len(wide):
            wide_texts = texts.take(wide).raw()
            self.slow[wide] = np.array(not_utf8(wide_texts)) | [has_unescaped(text) for text in wide_texts]
        return out[:end]

    @property
    def objects(self) -> Spans:
        """All properties of each record, as an object."""
        return self._spans(0)

    @property
    def tags(self) -> Spans:
        return self._spans(1)

    @property
    def keys(self) -> Spans:
        return self._spans(2)

    @property
    def unique(self) -> Spans:
        return self._spans(3)

    def _spans(self, row: int) -> Spans:
        return Spans(self.source, self._first[row], self._last[row])

    def _append(self, text: bytes) -> tuple[int, int]:
        """Append a text, and return its position."""
        self._more.append(text)
        self._end += len(text)
        return self._end - len(text), self._end

    def _set(self, i: int, raw: bytes) -> None:
        """Replace record i's object and values by those of its decoded text."""
        found = properties.parse_properties(raw)
        texts = self._style.object(found), *(self._style.text(found.get(name)) for name in NAMES)
        for row, text in enumerate(texts):
            self._first[row, i], self._last[row, i] = self._append(text)


def rebuilt(found: dict[str, str], *, last_separator: bool = True) -> bytes:
    """Return the property text of pairs, in order."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in found.items())
    return (text + "\x02" if found and last_separator else text).encode("utf-8", "surrogatepass")


def unpreserved(columns: Columns, unusual: Bool) -> tuple[Bool, dict[int, bytes]]:
    """Return what the pairs do not preserve: which texts lack the last separator, and texts that differ altogether.

    `unusual`: records whose text must be compared with the text rebuilt from its pairs.
    """
    starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
    lacks = (stops > starts) & (columns.buf[np.maximum(stops - 1, 0)] != 2)
    whole = {}
    for i in np.flatnonzero(unusual | (stops == starts + 1)).tolist():
        text = bytes(columns.buf[int(starts[i]) : int(stops[i])])
        found = properties.parse_properties(text)
        lacks[i] = bool(found) and rebuilt(found, last_separator=False) == text
        if not lacks[i] and rebuilt(found) != text:
            whole[i] = text
    return lacks, whole
