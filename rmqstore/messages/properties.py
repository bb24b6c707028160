"""Render the properties of a chunk as JSON objects, and TAGS, KEYS and UNIQ_KEY as values, for JSON lines and for CSV.

Without the C library, all property texts are concatenated with borders between them. Replacing the separators 0x01 and
0x02 turns them into {"name":"value",…}; the positions of objects and values follow from the number of separators before
them. Unusual texts (escapes, broken grammar, invalid UTF-8, a repeated name) are decoded record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.formats import properties
from rmqstore.formats.text.controls import has_unescaped
from rmqstore.messages.cells import SLACK, Spans, assemble
from rmqstore.messages.text import csv_cell, dumps
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, Bool, u64
from rmqstore.scan.properties.texts import is_utf8, not_utf8

NAMES = (properties.TAGS, properties.KEYS, properties.UNIQ_KEY)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_RECORD = np.uint64(0xFFFFFF)  # bits of the record's index in its chunk


@dataclass(frozen=True, slots=True)
class Style:
    """How texts are written.

    `equals` replaces 0x01, `comma` 0x02 (both of the same length); `open` and `close` enclose an object. `quotes`:
    quotes around a value belong to it. A value that contains `bad` is written on its own, by `text`; `object` writes an
    object.
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
        self._columns = columns
        self._style = style
        n = len(columns)
        starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
        stops = stops - (columns.buf[np.maximum(stops - 1, 0)] == 2)
        self._more: list[bytes] = []
        self.slow: Bool = np.zeros(n, dtype=np.bool_)
        """Records that were decoded one by one, because of escapes, unusual grammar, or a repeated name."""
        loops = native.load()
        if loops is not None:
            self._written(loops, starts, stops)
            return
        joined, broken = self._side_by_side(starts, stops)
        arr = np.frombuffer(joined, dtype=np.uint8)
        marks = _Marks(joined, arr, style, n)
        slow = broken | marks.unusual()
        grown = len(style.equals) - 1
        self._end = len(joined) + grown * (len(marks.at) - n - 1)
        nothing = self._append(style.text(None))
        empty = self._append(style.object({}))
        borders = marks.at[marks.borders] + grown * (marks.borders - np.arange(n + 1))
        self._objects = [borders[:-1] + 1, borders[1:]]
        for i, bound in enumerate(empty):
            self._objects[i][marks.empty] = bound
        self._values = [[np.full(n, bound) for bound in nothing] for _ in NAMES]
        shift = len(style.equals) - style.quotes
        for (first, stop), (rows, middle, end) in zip(self._values, marks.named(), strict=True):
            before = middle - rows - 1  # number of separators before it that have grown
            first[rows] = marks.at[middle] + grown * before + shift
            stop[rows] = end + grown * (before + 1) + style.quotes
            if style.bad and len(rows):
                slow |= marks.holds(style.bad, rows, marks.at[middle], end)
        self.slow = slow
        for i in np.flatnonzero(slow).tolist():
            self._set(i, bytes(columns.buf[int(starts[i]) : int(stops[i])]))
        text = joined.replace(b"\1", style.equals).replace(b"\2", style.comma)
        self.source: U8 = np.frombuffer(b"".join([text, *self._more]), dtype=np.uint8)

    def _written(self, loops: native.Native, starts: I64, stops: I64) -> None:
        """Render all texts with the C library."""
        style, raw = self._style, self._columns.buf
        total = int(np.maximum(stops - starts, 0).sum())
        out = np.empty(SLACK + 2 * total + 64 * len(starts), dtype=np.uint8)
        out[:SLACK] = 0x20
        names = tuple(name.encode() for name in NAMES)
        self._end, first, last, marks = loops.objects(raw, starts, stops, style.packed, names, out, SLACK)
        nothing = self._append(style.text(None))
        empty = self._append(style.object({}))
        for edge, none, without in zip((first, last), nothing, empty, strict=True):
            edge[0][edge[0] < 0] = without
            edge[1:][edge[1:] < 0] = none
        self._objects = [first[0], last[0]]
        self._values = [[first[k], last[k]] for k in range(1, len(first))]
        slow = marks == 1
        wide = np.flatnonzero(marks == 2)
        if len(wide):
            wide_texts = [bytes(raw[a:b]) for a, b in zip(starts[wide], stops[wide], strict=True)]
            slow[wide] = np.array(not_utf8(wide_texts)) | [has_unescaped(text) for text in wide_texts]
        self.slow = slow
        written = out[: self._end - sum(map(len, self._more))]
        for i in np.flatnonzero(slow).tolist():
            self._set(i, bytes(raw[int(starts[i]) : int(stops[i])]))
        self.source = np.concatenate((written, np.frombuffer(b"".join(self._more), dtype=np.uint8)))

    @property
    def objects(self) -> Spans:
        """All properties of each record, as an object."""
        return Spans(self.source, self._objects[0], self._objects[1])

    @property
    def tags(self) -> Spans:
        return Spans(self.source, self._values[0][0], self._values[0][1])

    @property
    def keys(self) -> Spans:
        return Spans(self.source, self._values[1][0], self._values[1][1])

    @property
    def unique(self) -> Spans:
        return Spans(self.source, self._values[2][0], self._values[2][1])

    def _side_by_side(self, starts: I64, stops: I64) -> tuple[bytes, Bool]:
        """Return the texts between borders, and a mask of those that are left empty: a zero byte, or invalid UTF-8."""
        n, raw = len(starts), self._columns.buf
        broken = np.zeros(n, dtype=np.bool_)
        joined = self._between(raw, starts, stops)
        if (joined.isascii() or is_utf8(joined)) and joined.count(0) == n + 1:
            return joined, broken
        for i, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            text = raw[start:stop].tobytes()
            broken[i] = 0 in text or not is_utf8(text)
        return self._between(raw, starts, np.where(broken, starts, stops)), broken

    def _between(self, raw: U8, starts: I64, stops: I64) -> bytes:
        between = self._style.close + b"\0" + self._style.open
        head = b" " * SLACK + between
        whole: U8 = np.empty(0, dtype=np.uint8)

        def behind_head(size: int) -> U8:
            nonlocal whole
            whole = np.empty(len(head) + size, dtype=np.uint8)
            whole[: len(head)] = np.frombuffer(head, dtype=np.uint8)
            return whole[len(head) :]

        assemble(len(starts), [Spans(raw, starts, stops), between], behind_head)
        return whole.tobytes()

    def _append(self, text: bytes) -> tuple[int, int]:
        """Append a text, and return its position."""
        self._more.append(text)
        self._end += len(text)
        return self._end - len(text), self._end

    def _set(self, i: int, raw: bytes) -> None:
        """Replace record i's object and values by those of its decoded text."""
        found = properties.parse_properties(raw)
        spans = [(self._objects, self._style.object(found))]
        spans += [(v, self._style.text(found.get(name))) for v, name in zip(self._values, NAMES, strict=True)]
        for (first, stop), text in spans:
            first[i], stop[i] = self._append(text)


def rebuilt(found: dict[str, str], *, last_separator: bool = True) -> bytes:
    """Return the property text of pairs, in order."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in found.items())
    return (text + "\x02" if found and last_separator else text).encode("utf-8", "surrogatepass")


def untold(columns: Columns, unusual: Bool) -> tuple[Bool, dict[int, bytes]]:
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


class _Marks:
    """The separators in concatenated property texts: their positions (`at`) and bytes (`kinds`).

    `borders`: indexes of the zero bytes among them, one more than there are texts. `middle`: indexes of the 0x01 after
    names. `gap`: bytes of text between a separator and the next one. `empty`: mask of the empty texts.
    """

    def __init__(self, joined: bytes, arr: U8, style: Style, n: int) -> None:
        self.joined = joined
        self.arr = arr
        self.style = style
        self.n = n
        self.at: I64 = np.flatnonzero(arr <= 2)
        self.kinds = arr[self.at]
        self.borders: I64 = np.flatnonzero(self.kinds == 0)
        self.gap: I64 = np.diff(self.at) - 1
        self.gap[self.borders[:-1]] -= len(style.open)
        self.gap[self.borders[1:] - 1] -= len(style.close)
        is_middle = self.kinds == 1
        is_middle[1:] &= self.kinds[:-1] != 1
        self.middle: I64 = np.flatnonzero(is_middle)
        self.names = self._names()
        begin = self.at[self.borders[:-1]] + 1 + len(style.open)
        self.empty: Bool = begin == self.at[self.borders[1:]] - len(style.close)

    def _names(self) -> npt.NDArray[np.uint64]:
        """Return a number for every name: the bytes of a name of up to 8 bytes, a hash of a longer one."""
        end, length = self.at[self.middle], self.gap[self.middle - 1]
        words = u64(self.arr)
        names = words[end - 8].astype(np.uint64)  # SLACK precedes the first
        names <<= (np.clip(8 - length, 0, 7) << 3).astype(np.uint64)
        if int(length.max(initial=0)) > 8:
            for back in (length, np.where(length > 16, length // 2 + 4, 8)):  # the first 8 bytes, and 8 in the middle
                more = (words[end - np.maximum(back, 8)] ^ length.astype(np.uint64)) * _MIX
                names = np.where(length > 8, (names ^ more) * _MIX + np.uint64(1), names)
        return names

    def unusual(self) -> Bool:
        """Return the mask of records that need escapes, break the pattern name 1 value 2 …, or repeat a name.

        Shape: (n,)
        """
        at, style, arr = self.at, self.style, self.arr
        is_middle = self.kinds == 1
        # a name lies between 0 or 2 and 1, a value between 1 and 2 or 0; neither is empty
        wrong = is_middle[:-1] == is_middle[1:]
        wrong |= self.gap == 0
        wrong[self.borders[:-1][self.empty]] = False
        odd = [at[:-1][wrong]]
        if int(np.count_nonzero(arr < 0x20)) != len(at) or b"\\" in self.joined:
            odd.append(np.flatnonzero(((arr < 0x20) & (arr > 2)) | (arr == 0x5C)))
        if has_unescaped(self.joined):
            c1 = (arr[:-1] == 0xC2) & (arr[1:] >= 0x80) & (arr[1:] < 0xA0)
            odd.append(np.flatnonzero(np.append(c1, False) | (arr == 0x7F)))
        if self.joined.count(b'"') != (style.open + style.close).count(b'"') * (self.n + 1):
            odd.append(self._own(np.flatnonzero(arr == 0x22)))
        out = np.zeros(self.n, dtype=np.bool_)
        for positions in odd:
            out[self._records(positions)] = True
        out[self._twice()] = True
        return out

    def _own(self, positions: I64) -> I64:
        """Return the positions that are inside texts, not between them."""
        borders = self.at[self.borders]
        number = np.minimum(self._records(positions), self.n - 1)
        inside = positions > borders[number] + len(self.style.open)
        inside &= positions < borders[number + 1] - len(self.style.close)
        return positions[inside]

    def _records(self, positions: I64) -> I64:
        """Return the records that positions belong to; a border belongs to the text after it."""
        number: I64 = np.searchsorted(self.at[self.borders], positions, side="right") - 1
        return np.clip(number, 0, self.n - 1)

    def _twice(self) -> I64:
        """Return the records with two names that may be equal."""
        count = np.diff(np.searchsorted(self.middle, self.borders))
        each = int(count[0])
        if (count == each).all():
            rows = self.names.reshape(self.n, each)
            if (rows == rows[0]).all():  # the usual case: all records have the same names in the same order
                return np.arange(self.n if len(set(rows[0].tolist())) < each else 0)
        record = np.repeat(np.arange(self.n, dtype=np.uint64), count)
        keys = (self.names * _MIX & ~_RECORD) | record
        keys.sort()
        found: I64 = (keys[1:][keys[1:] == keys[:-1]] & _RECORD).astype(np.int64)
        return found

    def named(self) -> list[tuple[I64, I64, I64]]:
        """Return for each of `NAMES`: records that have it, index of the separator before its value, value's end."""
        out = []
        for name in NAMES:
            number = np.uint64(int.from_bytes(name.encode().ljust(8, b"\0"), "big"))
            middle = self.middle[self.names == number]
            middle = middle[self.gap[middle - 1] == len(name)]
            if len(middle) == self.n and (middle > self.borders[:-1]).all() and (middle < self.borders[1:]).all():
                rows: I64 = np.arange(self.n)
            else:
                rows = np.searchsorted(self.borders, middle) - 1
            following = middle + 1
            end = self.at[following] - (self.kinds[following] == 0) * len(self.style.close)
            out.append((rows, middle, end))
        return out

    def holds(self, bad: bytes, rows: I64, start: I64, stop: I64) -> Bool:
        """Return the mask of records with the byte `bad` in one of the spans [start, stop) of `rows`."""
        out = np.zeros(self.n, dtype=np.bool_)
        if bad in self.joined:
            where = np.flatnonzero(self.arr == ord(bad))
            out[rows[np.searchsorted(where, start) != np.searchsorted(where, stop)]] = True
        return out
