"""Render a chunk of messages as JSON lines or rows of CSV, with the fields of `dump` or of `export`.

Each field is computed for all records at once, as `cells.TextRows` or `cells.Spans`, and `cells.assemble` writes the
lines into one array. For a few records of `dump`, it is faster to decode them one by one (`rows`); tests compare the
two ways.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.message import MAGIC_V2_U32
from rmqstore.formats.text import escape_csv
from rmqstore.formats.times import iso_utc
from rmqstore.messages.cells import (
    Part,
    Sink,
    Spans,
    TextTable,
    assemble,
    csv_cell,
    decimals,
    dumps,
    listed,
    new_array,
)
from rmqstore.messages.fields import (
    C1,
    CONTROL,
    CSV,
    DELETE,
    INVALID,
    JSON,
    Bodies,
    HostTexts,
    MessageIds,
    PropertySpans,
    Style,
    bodies_of,
    contents,
    unpreserved,
)
from rmqstore.messages.rows import BodyStyle, Row, body_fields, entry_row_of, row_of
from rmqstore.messages.schema import BODY, DUMPED, EXPORTED, POSITIONS, SIDE
from rmqstore.scan import native
from rmqstore.scan.columns import NOTHING, Columns, Repaired, filler_mask, mended_mask
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool

_ENTRY_FIELDS = ("offset", *(f.name for f in dledger.ENTRY))
FEW = 8  # up to this number of records, decoding them one by one is faster
Field = tuple[str, list[Part]]
_TIMES = ("born_timestamp", "store_timestamp")
_NUMBERS = (
    *("size", "body_crc", "queue_offset", "flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    *("prepared_transaction_offset", "body_length"),
)


class MessageLines:
    """Renders chunks of records as text; caches the texts of topics, queues and hosts.

    `entries`: DLedger entries with the message inside. `csv`: CSV instead of JSON lines (`dump`: only without bodies).
    `export`: the fields of an export instead of a dump; `positions`: also `schema.POSITIONS`. `repaired`: what
    journals tell about the records. `stale`: all are records of an earlier log.
    """

    def __init__(
        self,
        body: BodyStyle = BodyStyle(),  # noqa: B008
        *,
        entries: bool = False,
        csv: bool = False,
        export: bool = False,
        positions: bool = False,
        repaired: Repaired = NOTHING,
        stale: bool = False,
    ) -> None:
        self.body = body
        self.iso = False
        """Whether times are written in ISO 8601 instead of epoch ms."""
        self.stale = stale
        self.entries = entries
        self.csv = csv
        self.export = export
        self.positions = positions
        self.repaired = repaired
        self.fillers = True
        """Whether any record may be a filler."""
        self.style: Style = CSV if csv else JSON
        self.queues = QueueTable()
        self.topics = TextTable()
        self.raw_topics = TextTable()  # in base64; empty if the topic is printable UTF-8
        self.queue_ids = TextTable()
        self.hosts = HostTexts(self.style.text)
        self.message_ids = MessageIds()

    def header(self) -> bytes:
        """Return the header line of CSV."""
        if self.export:
            names = [*EXPORTED, *BODY, *SIDE, *(POSITIONS if self.positions else ())]
        else:
            names = [*_ENTRY_FIELDS, *(f"message.{name}" for name in DUMPED)] if self.entries else list(DUMPED)
        return ",".join(names).encode() + b"\n"

    def row(self, columns: Columns, i: int, file: str, crc_ok: bool) -> Row:
        """Return a record or DLedger entry as a dict with the fields of `dump`."""
        row = (entry_row_of if self.entries else row_of)(columns, i, file, crc_ok, self.body, self.repaired)
        if self.iso:
            message = row.get("message", row)
            message |= {name: iso_utc(message[name]) for name in _TIMES}
        return row

    def text(self, columns: Columns, file: str, crc_ok: Bool | None = None, sink: Sink = new_array) -> I64:
        """Write the lines of all records of a chunk into the sink; return the line ends. `crc_ok` None: all True."""
        n = len(columns)
        if n < FEW and not self.export:
            lines = [self._single(columns, i, file, crc_ok is None or bool(crc_ok[i])) for i in range(n)]
            text = b"".join(lines)
            sink(len(text))[:] = np.frombuffer(text, dtype=np.uint8)
            return np.cumsum([len(line) for line in lines], dtype=np.int64)
        made = _LineFields(self, columns, file, crc_ok)
        return assemble(n, list(self._csv(made) if self.csv else self._json(made)), sink)[1]

    def _single(self, columns: Columns, i: int, file: str, crc_ok: bool) -> bytes:
        row = self.row(columns, i, file, crc_ok)
        if not self.csv:
            return dumps(row).encode("utf-8", "backslashreplace") + b"\n"
        inner = row.pop("message", {})
        return b",".join(map(csv_cell, [*row.values(), *inner.values()])) + b"\n"

    def _json(self, made: _LineFields) -> Iterator[Part]:
        if self.entries:
            yield from _members(made.entry())
            yield b',"message":'
        if self.export:
            yield from _members((name, made.of(name)) for name in EXPORTED)
            yield from made.side_members()
            yield from made.body_members()
            for name in POSITIONS if self.positions else ():
                yield b',"' + name.encode() + b'":'
                yield from made.of(name)
        else:
            yield from _members((name, made.of(name)) for name in DUMPED)
            yield from made.body_members()
        yield b"}}\n" if self.entries else b"}\n"

    def _csv(self, made: _LineFields) -> Iterator[Part]:
        fields = [made.of(name) for name in (EXPORTED if self.export else DUMPED)]
        if self.entries:
            fields = [*(parts for _, parts in made.entry()), *fields]
        if self.export:
            fields += [*made.body_cells(), *made.side_cells()]
            fields += [made.of(name) for name in POSITIONS] if self.positions else []
        between = b""
        for parts in fields:
            yield between
            yield from parts
            between = b","
        yield b"\n"


class _LineFields:
    """The fields of one chunk as parts of lines, computed on demand."""

    def __init__(self, lines: MessageLines, columns: Columns, file: str, crc_ok: Bool | None) -> None:
        self.lines = lines
        self.columns = columns
        self.file = file
        self.crc_ok = crc_ok

    def of(self, name: str) -> list[Part]:
        """Return the parts of a field."""
        columns, lines = self.columns, self.lines
        if name in _TIMES and lines.iso:
            return self._quoted([listed([iso_utc(ms).encode() for ms in getattr(columns, name).tolist()])])
        if name in _NUMBERS:
            return [decimals(getattr(columns, name))]
        own = lines.stale or not lines.export
        make: dict[str, Callable[[], list[Part]]] = {
            "offset": lambda: [decimals(columns.offset if own else columns.physical_offset)],
            "file": lambda: [lines.style.text(self.file)],
            "magic": lambda: [decimals(columns.magic.astype(np.int32).astype(np.int64))],
            "crc_ok": lambda: [
                b"true" if self.crc_ok is None else listed([b"true" if ok else b"false" for ok in self.crc_ok.tolist()])
            ],
            "queue_id": lambda: [lines.queue_ids.rows(self._numbers)],
            "physical_offset": lambda: [decimals(columns.physical_offset)],
            "sys_flag": lambda: [decimals(self._sys_flag())],
            "born_host": lambda: [lines.hosts.of(columns, name)],
            "store_host": lambda: [lines.hosts.of(columns, name)],
            "topic": lambda: [lines.topics.rows(self._numbers)],
            "tags": lambda: [self._texts.tags],
            "keys": lambda: [self._texts.keys],
            "unique_key": lambda: [self._texts.unique],
            "properties": lambda: [self._texts.objects],
            "msg_id": lambda: self._quoted(lines.message_ids.of(columns, columns.physical_offset)),
            "filler": lambda: [b"false" if self._fillers is None else _where(self._fillers, b"true", b"false")],
            "mended": lambda: [b"false" if self._mended is None else _where(self._mended, b"true", b"false")],
        }
        return make[name]()

    def entry(self) -> Iterator[Field]:
        """Yield the fields of the DLedger entry header."""
        columns, at = self.columns, self.columns.entry_at
        yield "offset", [decimals(columns.offset - dledger.ENTRY.size)]
        for field in dledger.ENTRY:
            position = at + dledger.ENTRY.at(field.name)
            yield field.name, [decimals(columns.i64(position) if field.size == 8 else columns.i32(position))]

    def _quoted(self, parts: list[Part]) -> list[Part]:
        return parts if self.lines.csv else [b'"', *parts, b'"']

    @cached_property
    def _texts(self) -> PropertySpans:
        return PropertySpans(self.columns, self.lines.style)

    @cached_property
    def _fillers(self) -> Bool | None:
        return filler_mask(self.columns, self.lines.repaired) if self.lines.fillers else None

    @cached_property
    def _mended(self) -> Bool | None:
        return mended_mask(self.columns, self.lines.repaired, self._fillers)

    @cached_property
    def _numbers(self) -> I64:
        """The queue number of each record; adds the texts of new queues to the tables."""
        lines = self.lines
        numbers = lines.queues.of(self.columns)
        for number in range(len(lines.topics), len(lines.queues)):
            raw = lines.queues.topics[number]
            shown = lines.queues.topic(number)
            lines.topics.add(lines.style.text(shown))
            lines.queue_ids.add(b"%d" % lines.queues.queue_ids[number])
            is_lossless = (escape_csv(shown) if lines.csv else shown).encode() == raw
            lines.raw_topics.add(b"" if is_lossless else _base64(raw))
        return numbers

    # --- fields that make an export lossless (schema.SIDE) -----------------------------------------------------------

    @cached_property
    def _unpreserved(self) -> tuple[Bool, dict[int, bytes]]:
        return unpreserved(self.columns, self._texts.slow)

    def side_members(self) -> Iterator[Part]:
        """Yield the JSON members that only some rows have, each with a leading comma."""
        lacks, whole = self._unpreserved
        yield _where(lacks, b',"last_separator":false')
        if whole:
            yield _some(len(lacks), {i: b',"properties_base64":"' + _base64(text) + b'"' for i, text in whole.items()})
        for number in np.flatnonzero(np.bincount(self._numbers)).tolist():
            if topic := self.lines.raw_topics.texts[number]:
                yield _where(self._numbers == number, b',"topic_base64":"' + topic + b'"')
        yield _where(self.columns.magic == MAGIC_V2_U32, b',"version":2')
        if self._fillers is not None:
            yield _where(self._fillers, b',"filler":true')
        if self._mended is not None:
            yield _where(self._mended, b',"mended":true')
        if self.lines.stale:
            yield b',"stale":true'

    def side_cells(self) -> Iterator[list[Part]]:
        """Yield the same fields as cells of CSV."""
        lacks, whole = self._unpreserved
        yield [self.lines.raw_topics.rows(self._numbers)]
        yield [_some(len(lacks), {i: _base64(text) for i, text in whole.items()})]
        yield [_where(lacks, b"false")]
        yield [_where(self.columns.magic == MAGIC_V2_U32, b"2")]
        yield [b"" if self._fillers is None else _where(self._fillers, b"true")]
        yield [b"" if self._mended is None else _where(self._mended, b"true")]
        yield [b"true" if self.lines.stale else b""]

    # --- bodies ------------------------------------------------------------------------------------------------------

    @cached_property
    def _bodies(self) -> Bodies:
        return bodies_of(self.columns, stored=self.lines.body.raw)

    def _sys_flag(self) -> I64:
        """Return SYSFLAG; in an export, without the compression bits of bodies that were decompressed."""
        flags = self.columns.sys_flag
        return self._bodies.sys_flags(flags) if self.lines.export and self.lines.body.style else flags

    def _is_text(self) -> Bool:
        """Return the mask of bodies shown as text: in `dump`, printable ones; in an export, UTF-8 that is lossless."""
        marks = contents(self._bodies.spans)
        controls = CONTROL | DELETE
        if self.lines.export:
            controls = controls | C1 if self.lines.csv else 0
        refused = INVALID | controls
        return (marks & refused) == 0

    def body_members(self) -> Iterator[Part]:
        """Yield the JSON members of the body, each with a leading comma."""
        style = self.lines.body.style
        if not style:
            return
        if style == "json":
            yield listed(list(self._single_bodies()))
            return
        spans, _, errors = self._bodies
        if errors and not self.lines.export:
            members = {i: b',"body_error":' + dumps(why).encode() for i, why in errors.items()}
            yield _some(len(spans), members)
        if style in ("hex", "base64"):
            yield b',"body_' + style.encode() + b'":"'
            yield replace(spans, form=native.HEX if style == "hex" else native.BASE64)
            yield b'"'
            return
        text = self._is_text()
        yield _where(text, b',"body":"', b',"body_base64":"')
        yield from _either(spans, text, native.ESCAPED)
        yield b'"'

    def body_cells(self) -> Iterator[list[Part]]:
        """Yield the two cells of CSV for the body: as text, and in base64."""
        style = self.lines.body.style
        if not style:
            yield [b""]
            yield [b""]
            return
        spans = self._bodies.spans
        text = self._is_text() if style == "text" else np.zeros(len(spans), dtype=np.bool_)
        as_text, as_base64 = _either(spans, text, native.CELL)
        yield from ([as_text], [as_base64])

    def _single_bodies(self) -> Iterator[bytes]:
        """Yield the JSON members of every record's body, with a leading comma, decoded one by one."""
        stored = bodies_of(self.columns, stored=True).spans.raw()
        for flag, raw in zip(self.columns.sys_flag.tolist(), stored, strict=True):
            text = dumps(dict(body_fields(flag, raw, self.lines.body)))
            yield b"," + text[1:-1].encode("utf-8", "backslashreplace")


def _base64(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False)


def _where(mask: Bool, text: bytes, other: bytes = b"") -> Part:
    """Return one text where the mask is true, and another one elsewhere."""
    table = TextTable()
    table.add(other)
    table.add(text)
    return table.rows(mask.astype(np.int64))


def _some(n: int, texts: dict[int, bytes]) -> Part:
    """Return the texts of some of n records; those of the others are empty."""
    return listed([texts.get(i, b"") for i in range(n)]) if texts else b""


def _either(spans: Spans, text: Bool, form: int) -> tuple[Part, Part]:
    """Return the bodies that are text in a form, and the others in base64."""
    as_text = replace(spans.where(text), form=form) if text.any() else b""
    return as_text, b"" if text.all() else replace(spans.where(~text), form=native.BASE64)


def _members(fields: Iterable[Field]) -> Iterator[Part]:
    """Yield a JSON object without its closing brace."""
    before = b'{"'
    for name, parts in fields:
        yield before + name.encode() + b'":'
        yield from parts
        before = b',"'
