"""Lines of text for a whole chunk of records, put together column by column: no Python object per record.

A line is a row of parts. `Rows` and `Spans` have one text per record, bytes are the same for all. `assemble` knows
where each line ends from the lengths alone, and then writes part by part, the last one first, for all lines at once: a
text shorter than its column has filler in front, which the part to its left overwrites. Where too little precedes
its left, texts are written in classes of like length, so that nothing is ever written outside of its own line.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from rmqstore.formats.text.controls import escape_json
from rmqstore.scan import native
from rmqstore.scan.kernels import I64, U8, Bool

SLACK = 256  # filler in front of texts that others are cut out of: wide cuts may begin there
_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % i for i in range(10_000)), dtype=np.uint32)
_HEX = np.frombuffer(b"".join(b"%02X" % i for i in range(256)), dtype=np.uint16)
_TEN_THOUSAND = np.uint32(10_000)


@dataclass(frozen=True, slots=True)
class Rows:
    """A text per record, at the right end of a row of bytes; `length` None: all of the row.

    Shape: cells (n, width), length (n,)
    """

    cells: U8
    length: I64 | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """A text per record, cut out of `source`: bytes [starts, stops), written as `form` says.

    `form` is one of SPANS (as they are), BASE64, HEX, ESCAPED (with the escapes of JSON) and CELL (a cell of CSV).
    Shape: starts, stops (n,)
    """

    source: U8
    starts: I64
    stops: I64
    form: int = native.SPANS

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, index: I64 | Bool | slice) -> Spans:
        """The texts of an index array, a mask or a slice."""
        return replace(self, starts=self.starts[index], stops=self.stops[index])

    def where(self, mask: Bool) -> Spans:
        """The same with empty texts where the mask is false."""
        return replace(self, stops=np.where(mask, self.stops, self.starts))

    def raw(self) -> list[bytes]:
        """Each text on its own, as bytes and as it is."""
        view = self.source.data
        return [bytes(view[a:b]) for a, b in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]

    def plain(self) -> Spans:
        """The same texts, already written in their form."""
        write = _WRITTEN.get(self.form)
        return self if write is None else listed([write(text) for text in self.raw()])

    def joined(self) -> tuple[U8, I64]:
        """The texts behind each other, and where each ends."""
        if not len(self.starts):
            return np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)
        return assemble(len(self.starts), [self])

    def texts(self) -> list[str]:
        """Each text on its own."""
        whole = self.source.tobytes()
        bounds = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        if whole.isascii():
            text = whole.decode()
            return [text[a:b] for a, b in bounds]
        return [whole[a:b].decode("utf-8", "backslashreplace") for a, b in bounds]


def _escaped(text: bytes) -> bytes:
    # quotes and backslashes are all that a lenient decoder leaves to be escaped in bytes that are not UTF-8
    return escape_json(orjson.dumps(text.decode("latin-1")).decode().encode("latin-1")[1:-1])


def cell_text(text: bytes) -> bytes:
    """A text as a cell of CSV, quoted where it must be."""
    if any(mark in text for mark in (b'"', b",", b"\n", b"\r")):
        return b'"' + text.replace(b'"', b'""') + b'"'
    return text


_WRITTEN: dict[int, Callable[[bytes], bytes]] = {
    native.BASE64: lambda text: b2a_base64(text, newline=False),
    native.HEX: lambda text: text.hex().encode(),
    native.ESCAPED: _escaped,
    native.CELL: cell_text,
}

Part = bytes | Rows | Spans
Sink = Callable[[int], U8]
"""Gives an array of so many bytes for the next lines."""


def new_array(size: int) -> U8:
    """The simplest sink."""
    return np.empty(size, dtype=np.uint8)


# --- texts of columns ------------------------------------------------------------------------------------------------


def decimals(column: I64) -> bytes | Rows | Spans:
    """Numbers as decimal text; a column of one value is one text."""
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
        if low == high:  # the leading digits that all have in common
            cells[:, group] = _FOUR_DIGITS[low % 10_000]
        else:
            if high < 1 << 32 and left.dtype != np.uint32:
                left = left.astype(np.uint32)  # divides much faster
            more = left // (_TEN_THOUSAND if left.dtype == np.uint32 else 10_000)
            cells[:, group] = _FOUR_DIGITS[left - more * left.dtype.type(10_000)]
            left = more
        low, high = low // 10_000, high // 10_000
    rows = cells.view(np.uint8).reshape(len(column), 4 * groups)[:, 4 * groups - width :]
    if least == width:
        return Rows(rows)
    length = np.full(len(column), least, dtype=np.int64)
    for digits in range(least, width):
        length += column >= 10**digits
    return Rows(rows, length)


def hexadecimal(column: I64) -> Rows:
    """64-bit numbers as 16 upper-case hex digits."""
    octets = column.astype(">i8").view(np.uint8).reshape(len(column), 8)
    return Rows(_HEX[octets].view(np.uint8).reshape(len(column), 16))


def listed(texts: Sequence[bytes]) -> Spans:
    """Texts made one by one."""
    length = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    stops = np.cumsum(length) + SLACK
    return Spans(np.frombuffer(bytes(SLACK) + b"".join(texts), dtype=np.uint8), stops - length, stops)


class TextTable:
    """Texts by small numbers, made once and then gathered."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._cells: U8 = np.empty((0, 0), dtype=np.uint8)
        self._length: I64 = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, text: bytes) -> None:
        """The next number's text."""
        self.texts.append(text)

    def rows(self, numbers: I64) -> bytes | Rows | Spans:
        """The texts of these numbers."""
        first = int(numbers[0])
        if (numbers == first).all():
            return self.texts[first]
        if len(self._length) != len(self.texts):
            self._length = np.array([len(t) for t in self.texts], dtype=np.int64)
            width = int(self._length.max())
            joined = b"".join(t.rjust(width) for t in self.texts)
            self._cells = np.frombuffer(joined, dtype=np.uint8).reshape(len(self.texts), width)
        if self._cells.shape[1] > SLACK:
            return listed([self.texts[number] for number in numbers.tolist()])
        return Rows(self._cells[numbers], self._length[numbers])


class KeyTable:
    """Texts of 64-bit keys (hosts, as stored): each is made once."""

    def __init__(self, make: Callable[[int], bytes], most: int = 1 << 16) -> None:
        self._make = make
        self._most = most
        self._clear()

    def _clear(self) -> None:
        self._texts = TextTable()
        self._keys: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.empty(0, dtype=np.uint64)  # sorted
        self._numbers: I64 = np.empty(0, dtype=np.int64)

    def rows(self, keys: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> bytes | Rows | Spans:
        """The texts of these keys."""
        if (keys == keys[0]).all():
            keys = keys[:1]
        numbers = self._look_up(keys)
        if (numbers < 0).any():
            if len(self._texts) > self._most:
                self._clear()
                numbers = self._look_up(keys)
            for key in sorted({*keys[numbers < 0].tolist()}):  # np.unique imports numpy.ma: 10 ms
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


@dataclass(slots=True)
class _Group:
    """Neighbouring parts that are written together: only the first may be of different lengths.

    `fixed` bytes follow `head` in every line; at least `room` bytes precede it.
    """

    head: Rows | Spans | None
    tail: list[bytes | Rows]
    fixed: int = 0
    length: I64 | int = 0
    least: int = 0
    room: int = 0


def _groups(parts: Sequence[Part]) -> list[_Group]:
    groups = [_Group(None, [])]
    for part in parts:
        if isinstance(part, Spans):
            groups.append(_Group(part, [], length=part.stops - part.starts))
        elif isinstance(part, Rows) and part.length is not None:
            groups.append(_Group(part, [], length=part.length))
        else:
            tail, last = groups[-1].tail, groups[-1].tail[-1:]
            if isinstance(part, bytes) and last and isinstance(last[0], bytes):
                tail[-1] = last[0] + part
            elif not isinstance(part, bytes) or part:
                tail.append(part)
            groups[-1].fixed += len(part) if isinstance(part, bytes) else part.cells.shape[1]
    room = 0
    for group in groups:
        group.room = room
        if group.head is not None:
            group.least = int(np.min(group.length))
        room += group.least + group.fixed
    return groups


def assemble(n: int, parts: Sequence[Part], sink: Sink = new_array) -> tuple[U8, I64]:
    """Lines of all parts, side by side in an array of the sink, and where each ends in it. `n` is at least 1."""
    loops = native.load()
    if loops is not None:
        return _assemble_native(loops, n, parts, sink)
    parts = [part.plain() if isinstance(part, Spans) else part for part in parts]
    groups = _groups(parts)
    length = np.full(n, sum(group.fixed for group in groups), dtype=np.int64)
    for group in groups:
        length += group.length
    ends: I64 = np.cumsum(length)
    out = sink(int(ends[-1]))
    at = ends.copy()
    for group in reversed(groups):
        if isinstance(group.head, Rows):
            _write_rows(out, at, n, group, group.head)
        else:
            _write_fixed(out, at, n, group)
        at -= group.fixed
        if isinstance(group.head, Spans):
            _write_spans(out, at, group, group.head)
        at -= group.length
    return out, ends


def _assemble_native(loops: native.Native, n: int, parts: Sequence[Part], sink: Sink) -> tuple[U8, I64]:
    """The same, a line after the other."""
    rows: list[tuple[int, ...]] = []
    kept: list[U8 | I64] = []  # what the rows tell the addresses of
    same = b""
    for part in [*parts, None]:
        if isinstance(part, bytes):
            same += part
            continue
        if same:
            kept.append(np.frombuffer(same, dtype=np.uint8))
            rows.append((native.SAME, native.address(kept[-1]), len(same), 0, 0, 0))
            same = b""
        if isinstance(part, Rows):
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
    ends = loops.line_ends(n, table)
    out = sink(int(ends[-1]))
    loops.lines(n, table, out)
    return out, ends


def _view(buffer: U8, width: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The `width` bytes at every position, as one thing that is copied at once."""
    return np.ndarray((len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer, strides=(1,))


def _block(n: int, group: _Group, width: int) -> U8:
    """Rows of the group's parts, `width` bytes of them of the head."""
    block = np.empty((n, width + group.fixed), dtype=np.uint8)
    if width and isinstance(group.head, Rows):
        block[:, :width] = group.head.cells
    for part in group.tail:
        if isinstance(part, bytes):
            block[:, width : width + len(part)] = np.frombuffer(part, dtype=np.uint8)
            width += len(part)
        else:
            block[:, width : width + part.cells.shape[1]] = part.cells
            width += part.cells.shape[1]
    return block


def _write_fixed(out: U8, at: I64, n: int, group: _Group) -> None:
    """What follows the head; `at` is where it ends."""
    width = group.fixed
    if not width:
        return
    if len(group.tail) == 1 and isinstance(group.tail[0], bytes):
        _view(out, width)[at - width] = np.void(group.tail[0])
    else:
        _view(out, width)[at - width] = _block(n, group, 0).view(f"V{width}")[:, 0]


def _write_rows(out: U8, at: I64, n: int, group: _Group, head: Rows) -> None:
    """The head and what follows it; `at` is where that ends."""
    width = head.cells.shape[1]
    block = _block(n, group, width)
    whole = block.shape[1]
    if not whole:  # texts that are all empty
        return
    if width - group.least <= group.room:
        _view(out, whole)[at - whole] = block.view(f"V{whole}")[:, 0]
        return
    for length in np.unique(group.length).tolist():
        size = length + group.fixed
        if size:
            index = np.flatnonzero(group.length == length)
            part = np.ascontiguousarray(block[index, whole - size :])
            _view(out, size)[at[index] - size] = part.view(f"V{size}")[:, 0]


def _write_spans(out: U8, at: I64, group: _Group, spans: Spans) -> None:
    """The texts themselves; `at` is where they end."""
    length: I64 = spans.stops - spans.starts
    width = int(length.max())
    if not width:
        return
    stops, source = spans.stops, spans.source
    if width - group.least <= min(group.room, SLACK) and int(stops.min()) >= width:
        _view(out, width)[at - width] = _view(source, width)[stops - width]
        return
    bits = np.frexp(length)[1]  # 2 to the power of (bits - 1) is the longest that a text of these lengths has room for
    for size in np.unique(bits).tolist():
        if size == 0:
            continue
        index = np.flatnonzero(bits == size)
        width = 1 << (size - 1)
        to, into = _view(out, width), at[index]
        from_, stop = _view(source, width), stops[index]
        # the two may lie over each other; together they are the text and nothing else
        to[into - width] = from_[stop - width]
        to[into - length[index]] = from_[spans.starts[index]]
