"""The fields of a chunk as text that need more than a number: hosts, message ids, bodies and properties.

Bodies are taken as stored or decompressed. Properties become JSON objects, TAGS, KEYS and UNIQ_KEY single values, for
JSON lines and for CSV. The C library leaves out unusual property texts (escapes, broken grammar, invalid UTF-8, a
repeated name). These are decoded one by one; without the library, all texts are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmqstore.formats import properties
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK, HEAD, STORE_HOST_V6, host_text
from rmqstore.formats.text import CONTROLS, has_unescaped, pattern_of
from rmqstore.messages.cells import KeyTable, Part, Spans, csv_cell, dumps, hexadecimal, listed
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, Bool, u64
from rmqstore.scan.properties import not_utf8


def raw_hosts(columns: Columns, name: str) -> Spans:
    """Return the bytes of `born_host` or `store_host` of every record: 8, or 20 for IPv6."""
    born = columns.born_growth
    before: I64 | int = 0 if name == "born_host" else born
    grown = born if name == "born_host" else columns.growth - born
    at = columns.at + before + HEAD.at(name)
    return Spans(columns.buf, at, at + 8 + grown)


class HostTexts:
    """Hosts as text, such as 10.0.0.1:10911, encoded by `write`; caches the texts."""

    def __init__(self, write: Callable[[str], bytes] = str.encode) -> None:
        self._write = write
        self._table = KeyTable(lambda key: write(host_text(key.to_bytes(8, "big"))))

    def of(self, columns: Columns, name: str) -> Part:
        """Return `born_host` or `store_host` of every record. `columns` must not be empty."""
        hosts = raw_hosts(columns, name)
        if not columns.moved:
            return self._table.rows(u64(columns.buf)[hosts.starts].astype(np.uint64))
        raw = hosts.raw()
        texts = {host: self._write(host_text(host)) for host in {*raw}}
        return listed([texts[host] for host in raw])


class MessageIds:
    """Offset message ids as text: store host and physical offset in hex; caches the hosts."""

    def __init__(self) -> None:
        self._table = KeyTable(lambda key: b"%016X" % key)

    def of(self, columns: Columns, offsets: I64) -> list[Part]:
        """Return the ids of all records for these physical offsets. `columns` must not be empty."""
        hosts = raw_hosts(columns, "store_host")
        if not (columns.sys_flag & STORE_HOST_V6).any():
            return [self._table.rows(u64(columns.buf)[hosts.starts].astype(np.uint64)), hexadecimal(offsets)]
        return [listed([raw.hex().upper().encode() for raw in hosts.raw()]), hexadecimal(offsets)]


CONTROL, WIDE, DELETE, INVALID, C1 = 1, 2, 4, 8, 16
_COMPRESSION = COMPRESSED | COMPRESSION_TYPE_MASK
_C1 = pattern_of(code for code in CONTROLS if code >= 0x80)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Bodies(NamedTuple):
    """Bodies, the mask of those that were decompressed (None: none), and by index, why others could not be."""

    spans: Spans
    unpacked: Bool | None
    errors: dict[int, str]

    def sys_flags(self, flags: I64) -> I64:
        """Return the SYSFLAG of each record, without the compression bits of decompressed bodies."""
        return flags if self.unpacked is None else np.where(self.unpacked, flags & ~_COMPRESSION, flags)


def bodies_of(columns: Columns, *, stored: bool = False) -> Bodies:
    """Return the bodies of all records, decompressed unless `stored`, or if that is impossible, as stored."""
    starts = columns.body_at
    stops = starts + np.maximum(columns.body_length, 0)
    flags = columns.sys_flag
    packed = np.flatnonzero(flags & (0 if stored else COMPRESSED))
    if not len(packed):
        return Bodies(Spans(columns.buf, starts, stops), None, {})
    source, at = [columns.buf.tobytes()], len(columns.buf)
    starts, unpacked = starts.copy(), np.zeros(len(columns), dtype=np.bool_)
    errors: dict[int, str] = {}
    for i in packed.tolist():
        try:
            body = decompress(int(flags[i]), source[0][int(starts[i]) : int(stops[i])])
        except BodyError as error:
            errors[i] = str(error)
            continue
        source.append(body)
        starts[i], stops[i], unpacked[i] = at, at + len(body), True
        at += len(body)
    return Bodies(Spans(np.frombuffer(b"".join(source), dtype=np.uint8), starts, stops), unpacked, errors)


def contents(texts: Spans) -> U8:
    """Return what each text contains, as a sum of flags.

    CONTROL: control characters except tabs and line ends; DELETE: 0x7F; WIDE: bytes from 0x80 on; C1: control
    characters U+0080 to U+009F and invisible ones; INVALID: not UTF-8.
    Shape: (n,)
    """
    marks = native.load().contents(texts.source, texts.starts, texts.stops)
    wide = np.flatnonzero(marks & WIDE)
    if len(wide):
        found = texts.take(wide).raw()
        marks[wide] |= np.array(not_utf8(found)) * np.uint8(INVALID)
        marks[wide] |= np.array([bool(_C1.search(text)) for text in found]) * np.uint8(C1)
    return marks


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
        starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
        stops = stops - (columns.buf[np.maximum(stops - 1, 0)] == 2)
        texts = Spans(columns.buf, starts, stops)
        self._more: list[bytes] = []
        written = self._written(texts)
        slow = np.flatnonzero(self.slow)
        for i, text in zip(slow.tolist(), texts.take(slow).raw(), strict=True):
            self._set(i, text)
        self.source: U8 = np.concatenate((written, np.frombuffer(b"".join(self._more), dtype=np.uint8)))

    def _written(self, texts: Spans) -> U8:
        """Write all texts that are not `slow`."""
        style, total = self._style, int(np.maximum(texts.stops - texts.starts, 0).sum())
        out = np.empty(2 * total + 64 * len(texts), dtype=np.uint8)
        names = tuple(name.encode() for name in NAMES)
        loops = native.load()
        end, first, last, marks = loops.objects(texts.source, texts.starts, texts.stops, style.packed, names, out, 0)
        self._first, self._last, self._end = first, last, end
        nothing = self._append(style.text(None))
        empty = self._append(style.object({}))
        for edge, none, without in zip((first, last), nothing, empty, strict=True):
            edge[0][edge[0] < 0] = without
            edge[1:][edge[1:] < 0] = none
        self.slow: Bool = marks == 1
        """Records whose texts are unusual: they are decoded one by one."""
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
