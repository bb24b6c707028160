"""Messages as text, a whole chunk at once: JSON lines and rows of CSV, with the fields of `dump` or of `export`.

Every field is made for all records together, as a column of digits or as places to cut a text out of, and
`cells.assemble` writes them into one array. A few records of `dump` are faster decoded one by one, by `rows`; tests
compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK, MAGIC_V2_U32
from rmqstore.formats.text.controls import escape_csv
from rmqstore.messages.bodies import C1, CONTROL, DELETE, INVALID, Bodies, bodies_of, contents
from rmqstore.messages.cells import (
    Part,
    Sink,
    Spans,
    TextTable,
    assemble,
    decimals,
    hexadecimal,
    listed,
    new_array,
)
from rmqstore.messages.hosts import HostTexts, host_digits, host_digits_table
from rmqstore.messages.properties import CSV, JSON, PropertySpans, Style, untold
from rmqstore.messages.rows import BodyStyle, Row, body_fields, entry_row_of, row_of
from rmqstore.messages.schema import BODY, DUMPED, EXPORTED, POSITIONS, SIDE
from rmqstore.messages.text import csv_cell, dumps
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.queues import QueueTable

_ENTRY_FIELDS = ("offset", *(f.name for f in dledger.ENTRY))
FEW = 8  # records that are faster decoded one by one
Field = tuple[str, list[Part]]
_NUMBERS = (
    *("size", "body_crc", "queue_offset", "flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    *("prepared_transaction_offset", "body_length"),
)


class MessageLines:
    """Turns chunks of records into text. One per process: it remembers topics and hosts.

    `entries`: lines of DLedger entries, with the message inside; `csv`: rows of CSV instead of JSON (for `dump` without
    bodies). `export`: the fields of an export, which can be imported; `positions` adds those of `schema.POSITIONS`.
    """

    def __init__(
        self,
        body: BodyStyle = BodyStyle(),  # noqa: B008
        *,
        entries: bool = False,
        csv: bool = False,
        export: bool = False,
        positions: bool = False,
    ) -> None:
        self.body = body
        self.entries = entries
        self.csv = csv
        self.export = export
        self.positions = positions
        self.style: Style = CSV if csv else JSON
        self.queues = QueueTable()
        self.topics = TextTable()
        self.raw_topics = TextTable()  # in base64, empty where the topic itself tells it
        self.queue_ids = TextTable()
        self.hosts = HostTexts(self.style.text)
        self.hex_hosts = host_digits_table()

    def header(self) -> bytes:
        """The names of the columns of CSV."""
        if self.export:
            names = [*EXPORTED, *BODY, *SIDE, *(POSITIONS if self.positions else ())]
        else:
            names = [*_ENTRY_FIELDS, *(f"message.{name}" for name in DUMPED)] if self.entries else list(DUMPED)
        return ",".join(names).encode() + b"\n"

    def row(self, columns: Columns, i: int, file: str, crc_ok: bool) -> Row:
        """One record, or entry, as a plain dict, with the fields of `dump`."""
        return (entry_row_of if self.entries else row_of)(columns, i, file, crc_ok, self.body)

    def text(self, columns: Columns, file: str, crc_ok: Bool | None = None, sink: Sink = new_array) -> I64:
        """Text of every record of a chunk, a line each, into the sink; where each line ends. `crc_ok` None: all are."""
        n = len(columns)
        if n < FEW and not self.export:
            lines = [self._single(columns, i, file, crc_ok is None or bool(crc_ok[i])) for i in range(n)]
            text = b"".join(lines)
            sink(len(text))[:] = np.frombuffer(text, dtype=np.uint8)
            return np.cumsum([len(line) for line in lines], dtype=np.int64)
        made = _Fields(self, columns, file, crc_ok)
        return assemble(n, list(self._csv(made) if self.csv else self._json(made)), sink)[1]

    def _single(self, columns: Columns, i: int, file: str, crc_ok: bool) -> bytes:
        row = self.row(columns, i, file, crc_ok)
        if not self.csv:
            return dumps(row).encode("utf-8", "backslashreplace") + b"\n"
        inner = row.pop("message", {})
        return b",".join(map(csv_cell, [*row.values(), *inner.values()])) + b"\n"

    def _json(self, made: _Fields) -> Iterator[Part]:
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

    def _csv(self, made: _Fields) -> Iterator[Part]:
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


class _Fields:
    """The fields of one chunk, as parts of lines."""

    def __init__(self, lines: MessageLines, columns: Columns, file: str, crc_ok: Bool | None) -> None:
        self.lines = lines
        self.columns = columns
        self.file = file
        self.crc_ok = crc_ok

    def of(self, name: str) -> list[Part]:
        """The parts of a field."""
        columns, lines = self.columns, self.lines
        if name in _NUMBERS:
            return [decimals(getattr(columns, name))]
        make: dict[str, Callable[[], list[Part]]] = {
            "offset": lambda: [decimals(columns.physical_offset if lines.export else columns.offset)],
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
            "msg_id": lambda: [
                *self._quoted(host_digits(columns, lines.hex_hosts), hexadecimal(columns.physical_offset))
            ],
        }
        return make[name]()

    def entry(self) -> Iterator[Field]:
        """The header of the DLedger entry."""
        columns, at = self.columns, self.columns.entry_at
        yield "offset", [decimals(columns.offset - dledger.ENTRY.size)]
        for field in dledger.ENTRY:
            position = at + dledger.ENTRY.at(field.name)
            yield field.name, [decimals(columns.i64(position) if field.size == 8 else columns.i32(position))]

    def _quoted(self, *parts: Part) -> Iterator[Part]:
        quote = b"" if self.lines.csv else b'"'
        yield quote
        yield from parts
        yield quote

    @cached_property
    def _texts(self) -> PropertySpans:
        return PropertySpans(self.columns, self.lines.style)

    @cached_property
    def _numbers(self) -> I64:
        """Numbers of the queues; what is written of a queue is made once."""
        lines = self.lines
        numbers = lines.queues.of(self.columns)
        for number in range(len(lines.topics), len(lines.queues)):
            raw = lines.queues.topics[number]
            shown = raw.decode("utf-8", "backslashreplace")
            lines.topics.add(lines.style.text(shown))
            lines.queue_ids.add(b"%d" % lines.queues.queue_ids[number])
            told = (escape_csv(shown) if lines.csv else shown).encode() == raw
            lines.raw_topics.add(b"" if told else _base64(raw))
        return numbers

    # --- what keeps an export lossless -------------------------------------------------------------------------------

    @cached_property
    def _untold(self) -> tuple[Bool, dict[int, bytes]]:
        return untold(self.columns, self._texts.slow)

    def side_members(self) -> Iterator[Part]:
        """The members of JSON that only some rows have, each with a comma in front."""
        lacks, whole = self._untold
        yield _where(lacks, b',"last_separator":false')
        if whole:
            yield _some(len(lacks), {i: b',"properties_base64":"' + _base64(text) + b'"' for i, text in whole.items()})
        for number in np.flatnonzero(np.bincount(self._numbers)).tolist():
            if topic := self.lines.raw_topics.texts[number]:
                yield _where(self._numbers == number, b',"topic_base64":"' + topic + b'"')
        yield _where(self.columns.magic == MAGIC_V2_U32, b',"version":2')

    def side_cells(self) -> Iterator[list[Part]]:
        """The same as cells of CSV."""
        lacks, whole = self._untold
        yield [self.lines.raw_topics.rows(self._numbers)]
        yield [_some(len(lacks), {i: _base64(text) for i, text in whole.items()})]
        yield [_where(lacks, b"False")]
        yield [_where(self.columns.magic == MAGIC_V2_U32, b"2")]

    # --- bodies ------------------------------------------------------------------------------------------------------

    @cached_property
    def _bodies(self) -> Bodies:
        return bodies_of(self.columns, stored=self.lines.body.raw)

    def _sys_flag(self) -> I64:
        """SYSFLAG; of a body that an export decompresses without the bits that say how."""
        flags = self.columns.sys_flag
        if self.lines.export and self.lines.body.style and self._bodies.unpacked is not None:
            return np.where(self._bodies.unpacked, flags & ~(COMPRESSED | COMPRESSION_TYPE_MASK), flags)
        return flags

    def _is_text(self) -> Bool:
        """Which bodies are shown as text: in `dump` those that a terminal can show, in an export what is UTF-8."""
        marks = contents(self._bodies.spans)
        controls = CONTROL | DELETE
        if self.lines.export:
            controls = controls | C1 if self.lines.csv else 0
        refused = INVALID | controls
        return (marks & refused) == 0

    def body_members(self) -> Iterator[Part]:
        """The members of JSON for the body, each with a comma in front."""
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
        """The cells of CSV for the body, as text and in base64."""
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
        """Members of every record for its body, each with a comma in front."""
        stored = bodies_of(self.columns, stored=True).spans.raw()
        for flag, raw in zip(self.columns.sys_flag.tolist(), stored, strict=True):
            text = dumps(dict(body_fields(flag, raw, self.lines.body)))
            yield b"," + text[1:-1].encode("utf-8", "backslashreplace")


def _base64(raw: bytes) -> bytes:
    from binascii import b2a_base64

    return b2a_base64(raw, newline=False)


def _where(mask: Bool, text: bytes, other: bytes = b"") -> Part:
    """One text where the mask is true, another one elsewhere."""
    table = TextTable()
    table.add(other)
    table.add(text)
    return table.rows(mask.astype(np.int64))


def _some(n: int, texts: dict[int, bytes]) -> Part:
    """Texts of some of n records; the others have none."""
    return listed([texts.get(i, b"") for i in range(n)]) if texts else b""


def _either(spans: Spans, text: Bool, form: int) -> tuple[Part, Part]:
    """Bodies that are text in a form, the others in base64."""
    as_text = replace(spans.where(text), form=form) if text.any() else b""
    return as_text, b"" if text.all() else replace(spans.where(~text), form=native.BASE64)


def _members(fields: Sequence[Field] | Iterator[Field]) -> Iterator[Part]:
    """A JSON object without its closing brace."""
    before = b'{"'
    for name, parts in fields:
        yield before + name.encode() + b'":'
        yield from parts
        before = b',"'
