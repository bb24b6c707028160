"""Texts as lines: whole chunks of records at once, without a Python object per record, and single values.

A line is a sequence of parts. `TextRows` and `Spans` have a text per record; bytes are the same in every line.
`assemble` computes the line ends from the lengths, and the C library then writes line by line. Without the library,
every line is joined from Python bytes, which is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from rmqstore.formats.text import escape_csv, escape_json
from rmqstore.scan import native
from rmqstore.scan.kernels import I64, U8, Bool


def valid_text(text: str) -> str:
    """Return a text that can be encoded as UTF-8: lone surrogates (from invalid UTF-8) become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def dumps(value: Any) -> str:
    """Return JSON text without raw control characters; lone surrogates become escapes."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        import json

        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return escape_json(text).decode()


def csv_cell(value: Any) -> bytes:
    """Return a value as a cell of CSV, quoted if necessary. Objects become JSON text, None becomes nothing."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (dict, list)):
        value = dumps(value)
    elif isinstance(value, str):
        value = escape_csv(value)
    return csv_quoted(str(value).encode("utf-8", "backslashreplace"))


def csv_quoted(text: bytes) -> bytes:
    """Return a text as a cell of CSV, quoted if necessary.

    Some versions of `csv.writer` do not quote a lone CR, at which `csv.reader` ends the row.
    """
    if b'"' in text or b"," in text or b"\n" in text or b"\r" in text:
        return b'"' + text.replace(b'"', b'""') + b'"'
    return text


WIDEST = 256  # bytes; rows as wide as a longer text would take too much memory
_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % i for i in range(10_000)), dtype=np.uint32)
_HEX = np.frombuffer(b"".join(b"%02X" % i for i in range(256)), dtype=np.uint16)
_TEN_THOUSAND = np.uint32(10_000)


@dataclass(frozen=True, slots=True)
class TextRows:
    """A text per record, right-aligned in a row of bytes. `length` None: the texts fill their rows.

    Shape: cells (n, width), length (n,)
    """

    cells: U8
    length: I64 | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """A text per record: bytes [starts, stops) of `source`, written in a form.

    `form`: SPANS (unchanged), BASE64, HEX, ESCAPED (JSON escapes) or CELL (a cell of CSV).
    Shape: starts, stops (n,)
    """

    source: U8
    starts: I64
    stops: I64
    form: int = native.SPANS

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, index: I64 | Bool | slice) -> Spans:
        """Return the texts that an index array, mask or slice selects."""
        return replace(self, starts=self.starts[index], stops=self.stops[index])

    def where(self, mask: Bool) -> Spans:
        """Return the texts with empty texts where the mask is false."""
        return replace(self, stops=np.where(mask, self.stops, self.starts))

    def raw(self) -> list[bytes]:
        """Return each text as bytes, not converted to `form`."""
        view = self.source.data
        return [bytes(view[a:b]) for a, b in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]

    def joined(self) -> tuple[U8, I64]:
        """Return the concatenated texts, and the end of each."""
        if not len(self.starts):
            return np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)
        return assemble(len(self.starts), [self])

    def texts(self) -> list[str]:
        """Return each text as a string."""
        whole = self.source.tobytes()
        bounds = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        if whole.isascii():
            text = whole.decode()
            return [text[a:b] for a, b in bounds]
        return [whole[a:b].decode("utf-8", "backslashreplace") for a, b in bounds]


Part = bytes | TextRows | Spans
Sink = Callable[[int], U8]
"""Returns an array for a number of bytes; `assemble` writes the lines into it."""


def new_array(size: int) -> U8:
    """Return a new array: the default sink."""
    return np.empty(size, dtype=np.uint8)


# --- texts of columns ------------------------------------------------------------------------------------------------


def decimals(column: I64) -> Part:
    """Return numbers as decimal text; for a column of equal numbers, one text."""
    low, high = int(column.min()), int(column.max())
    if low == high:
        return b"%d" % low
    if low < 0:
        return listed([b"%d" % number for number in column.tolist()])
    width, least = len(str(high)), len(str(low))
    groups = -(-width // 4)
    cells = np.empty((len(column), groups), dtype=np.uint32)
    left = column
    for group in range(groups - 1, -1, -1):
        if low == high:  # leading digits that all numbers share
            cells[:, group] = _FOUR_DIGITS[low % 10_000]
        else:
            if high < 1 << 32 and left.dtype != np.uint32:
                left = left.astype(np.uint32)  # division is much faster
            more = left // (_TEN_THOUSAND if left.dtype == np.uint32 else 10_000)
            cells[:, group] = _FOUR_DIGITS[left - more * left.dtype.type(10_000)]
            left = more
        low, high = low // 10_000, high // 10_000
    rows = cells.view(np.uint8).reshape(len(column), 4 * groups)[:, 4 * groups - width :]
    if least == width:
        return TextRows(rows)
    length = np.full(len(column), least, dtype=np.int64)
    for digits in range(least, width):
        length += column >= 10**digits
    return TextRows(rows, length)


def hexadecimal(column: I64) -> TextRows:
    """Return 64-bit numbers as 16 upper-case hex digits."""
    octets = column.astype(">i8").view(np.uint8).reshape(len(column), 8)
    return TextRows(_HEX[octets].view(np.uint8).reshape(len(column), 16))


def listed(texts: Sequence[bytes]) -> Spans:
    """Return texts as spans of their concatenation."""
    length = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    stops = np.cumsum(length)
    joined = b"".join(texts) or b"\0"  # callers also read at clamped positions of empty texts
    return Spans(np.frombuffer(joined, dtype=np.uint8), stops - length, stops)


class TextTable:
    """A table of texts, numbered from 0, from which a text per record is gathered."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._cells: U8 = np.empty((0, 0), dtype=np.uint8)
        self._length: I64 = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, text: bytes) -> None:
        """Add the text of the next number."""
        self.texts.append(text)

    def rows(self, numbers: I64) -> Part:
        """Return the texts of these numbers."""
        first = int(numbers[0])
        if (numbers == first).all():
            return self.texts[first]
        if len(self._length) != len(self.texts):
            self._length = np.array([len(t) for t in self.texts], dtype=np.int64)
            width = int(self._length.max())
            joined = b"".join(t.rjust(width) for t in self.texts)
            self._cells = np.frombuffer(joined, dtype=np.uint8).reshape(len(self.texts), width)
        if self._cells.shape[1] > WIDEST:
            return listed([self.texts[number] for number in numbers.tolist()])
        return TextRows(self._cells[numbers], self._length[numbers])


class KeyTable:
    """Texts of 64-bit keys (hosts as stored); `make` is called once per key. Holds at most about `most` texts."""

    def __init__(self, make: Callable[[int], bytes], most: int = 1 << 16) -> None:
        self._make = make
        self._most = most
        self._clear()

    def _clear(self) -> None:
        self._texts = TextTable()
        self._keys: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.empty(0, dtype=np.uint64)  # sorted
        self._numbers: I64 = np.empty(0, dtype=np.int64)

    def rows(self, keys: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Part:
        """Return the texts of these keys."""
        if (keys == keys[0]).all():
            keys = keys[:1]
        numbers = self._look_up(keys)
        if (numbers < 0).any():
            if len(self._texts) > self._most:
                self._clear()
                numbers = self._look_up(keys)
            for key in sorted({*keys[numbers < 0].tolist()}):  # np.unique would import numpy.ma, which takes 10 ms
                self._keys = np.append(self._keys, np.uint64(key))
                self._numbers = np.append(self._numbers, len(self._texts))
                self._texts.add(self._make(key))
            order = np.argsort(self._keys)
            self._keys, self._numbers = self._keys[order], self._numbers[order]
            numbers = self._look_up(keys)
        return self._texts.rows(numbers)

    def _look_up(self, keys: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> I64:
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._numbers[at], -1)


# --- lines -----------------------------------------------------------------------------------------------------------


def assemble(n: int, parts: Sequence[Part], sink: Sink = new_array) -> tuple[U8, I64]:
    """Write `n` >= 1 lines, each consisting of all parts, into an array of the sink; return it and the line ends."""
    rows: list[tuple[int, ...]] = []
    kept: list[U8 | I64] = []  # arrays that must live while the C code uses their addresses
    same = b""
    for part in [*parts, None]:
        if isinstance(part, bytes):
            same += part
            continue
        if same:
            kept.append(np.frombuffer(same, dtype=np.uint8))
            rows.append((native.SAME, native.address(kept[-1]), len(same), 0, 0, 0))
            same = b""
        if isinstance(part, TextRows):
            length = None if part.length is None else np.ascontiguousarray(part.length, dtype=np.int64)
            cells, width = part.cells, part.cells.shape[1]
            if cells.strides[1] != 1:
                cells = np.ascontiguousarray(cells)
            kept += [cells] if length is None else [cells, length]
            place = 0 if length is None else native.address(length)
            rows.append((native.ROWS, native.address(cells), width, cells.strides[0], place, 0))
        elif isinstance(part, Spans):
            first, stop = (np.ascontiguousarray(edge, dtype=np.int64) for edge in (part.starts, part.stops))
            kept += [part.source, first, stop]
            where = native.address(first), native.address(stop)
            rows.append((part.form, native.address(part.source), len(part.source), 0, *where))
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 6)
    loops = native.load()
    ends = loops.line_ends(n, table)
    out = sink(int(ends[-1]))
    loops.lines(n, table, out)
    return out, ends
