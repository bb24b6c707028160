"""Messages as text, a whole chunk at once: JSON lines and CSV with the fields of `message_rows`.

Every field is made for all records together, as a column of digits or as places to cut a text out of, and
`dump_cells.assemble` writes them into one array. Single records take the way of `message_rows`, which decodes one;
tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.message import BORN_HOST_V6, HEAD, STORE_HOST_V6, host_text
from rmqstore.messages.cells import (
    KeyTable,
    Part,
    Sink,
    TextTable,
    assemble,
    decimals,
    hexadecimal,
    listed,
    new_array,
)
from rmqstore.messages.properties import CSV, JSON, PropertySpans, Style
from rmqstore.messages.rows import FIELDS, BodyStyle, Row, body_fields, entry_row_of, row_of
from rmqstore.messages.text import csv_cell, dumps
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool, u64
from rmqstore.scan.queues import QueueTable

_BORN_HOST = HEAD.at("born_host")
_STORE_HOST = HEAD.at("store_host")
_HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
_ENTRY_FIELDS = ("offset", *(f.name for f in dledger.ENTRY))
FEW = 8  # records that are faster decoded one by one
Field = tuple[str, list[Part]]


class MessageLines:
    """Turns chunks of records into text. One per process: it remembers topics and hosts.

    `entries`: lines of DLedger entries, with the message inside; `csv`: rows of CSV instead of JSON (without bodies).
    """

    def __init__(self, body: BodyStyle = BodyStyle(), *, entries: bool = False, csv: bool = False) -> None:  # noqa: B008
        self.body = body
        self.entries = entries
        self.csv = csv
        self._style: Style = CSV if csv else JSON
        self._table = QueueTable()
        self._topics = TextTable()
        self._queue_ids = TextTable()
        self._hosts = KeyTable(self._host)
        self._hex_hosts = KeyTable(lambda key: b"%016X" % key)

    def header(self) -> bytes:
        """The names of the columns of CSV."""
        names = [*_ENTRY_FIELDS, *(f"message.{name}" for name in FIELDS)] if self.entries else FIELDS
        return ",".join(names).encode() + b"\n"

    def row(self, columns: Columns, i: int, file: str, crc_ok: bool) -> Row:
        """One record, or entry, as a plain dict."""
        return (entry_row_of if self.entries else row_of)(columns, i, file, crc_ok, self.body)

    def text(self, columns: Columns, file: str, crc_ok: Bool | None = None, sink: Sink = new_array) -> None:
        """Text of every record of a chunk, a line each, into the sink; `crc_ok` None: all are."""
        n = len(columns)
        if n < FEW:
            text = b"".join(self._single(columns, i, file, crc_ok is None or bool(crc_ok[i])) for i in range(n))
            sink(len(text))[:] = np.frombuffer(text, dtype=np.uint8)
            return
        fields = self._fields(columns, file, crc_ok)
        assemble(n, list(self._csv(columns, fields) if self.csv else self._json(columns, fields)), sink)

    def _single(self, columns: Columns, i: int, file: str, crc_ok: bool) -> bytes:
        row = self.row(columns, i, file, crc_ok)
        if not self.csv:
            return dumps(row).encode("utf-8", "backslashreplace") + b"\n"
        inner = row.pop("message", {})
        return b",".join(map(csv_cell, [*row.values(), *inner.values()])) + b"\n"

    def _json(self, columns: Columns, fields: Sequence[Field]) -> Iterator[Part]:
        if self.entries:
            yield from _members(self._entry(columns))
            yield b',"message":'
        yield from _members(fields)
        if self.body.style:
            yield listed(list(self._bodies(columns)))
        yield b"}}\n" if self.entries else b"}\n"

    def _csv(self, columns: Columns, fields: Sequence[Field]) -> Iterator[Part]:
        between = b""
        for _, parts in [*(self._entry(columns) if self.entries else []), *fields]:
            yield between
            yield from parts
            between = b","
        yield b"\n"

    # --- fields ------------------------------------------------------------------------------------------------------

    def _fields(self, columns: Columns, file: str, crc_ok: Bool | None) -> list[Field]:
        texts = PropertySpans(columns, self._style)
        ok: Part = b"true" if crc_ok is None else listed([b"true" if ok else b"false" for ok in crc_ok.tolist()])
        born, stored, msg_id = self._host_parts(columns)
        offset = decimals(columns.offset)
        own = columns.physical_offset
        queue_id, topic = self._queue_parts(columns)
        return [
            ("offset", [offset]),
            ("file", [self._style.text(file)]),
            ("size", [decimals(columns.size)]),
            ("magic", [decimals(columns.magic.astype(np.int32).astype(np.int64))]),
            ("body_crc", [decimals(columns.body_crc)]),
            ("crc_ok", [ok]),
            ("queue_id", [queue_id]),
            ("flag", [decimals(columns.flag)]),
            ("queue_offset", [decimals(columns.queue_offset)]),
            ("physical_offset", [offset if np.array_equal(own, columns.offset) else decimals(own)]),
            ("sys_flag", [decimals(columns.sys_flag)]),
            ("born_timestamp", [decimals(columns.born_timestamp)]),
            ("born_host", [born]),
            ("store_timestamp", [decimals(columns.store_timestamp)]),
            ("store_host", [stored]),
            ("reconsume_times", [decimals(columns.reconsume_times)]),
            ("prepared_transaction_offset", [decimals(columns.prepared_transaction_offset)]),
            ("body_length", [decimals(columns.body_length)]),
            ("topic", [topic]),
            ("tags", [texts.tags]),
            ("keys", [texts.keys]),
            ("unique_key", [texts.unique]),
            ("properties", [texts.objects]),
            ("msg_id", [*self._quoted(msg_id, hexadecimal(own))]),
        ]

    def _entry(self, columns: Columns) -> Iterator[Field]:
        at = columns.entry_at
        yield "offset", [decimals(columns.offset - dledger.ENTRY.size)]
        for field in dledger.ENTRY:
            position = at + dledger.ENTRY.at(field.name)
            yield field.name, [decimals(columns.i64(position) if field.size == 8 else columns.i32(position))]

    def _quoted(self, *parts: Part) -> Iterator[Part]:
        if not self.csv:
            yield b'"'
        yield from parts
        if not self.csv:
            yield b'"'

    def _queue_parts(self, columns: Columns) -> tuple[Part, Part]:
        """Queue ids and topics, made once per queue."""
        numbers = self._table.of(columns)
        for number in range(len(self._topics), len(self._table)):
            self._topics.add(self._style.text(self._table.topics[number].decode("utf-8", "backslashreplace")))
            self._queue_ids.add(b"%d" % self._table.queue_ids[number])
        return self._queue_ids.rows(numbers), self._topics.rows(numbers)

    def _host(self, key: int) -> bytes:
        return self._style.text(host_text(key.to_bytes(8, "big")))

    def _host_parts(self, columns: Columns) -> tuple[Part, Part, Part]:
        """Born hosts, store hosts, and store hosts in hex."""
        born, stored = columns.at + _BORN_HOST, columns.at + columns.born_growth + _STORE_HOST
        flags = columns.sys_flag
        if not (flags & _HOSTS_V6).any():
            words = u64(columns.buf)
            at_store = words[stored].astype(np.uint64)
            return (
                self._hosts.rows(words[born].astype(np.uint64)),
                self._hosts.rows(at_store),
                self._hex_hosts.rows(at_store),
            )
        born_raw = _cut(columns, born, flags & BORN_HOST_V6)
        stored_raw = _cut(columns, stored, flags & STORE_HOST_V6)
        texts = {raw: self._style.text(host_text(raw)) for raw in {*born_raw, *stored_raw}}
        return (
            listed([texts[raw] for raw in born_raw]),
            listed([texts[raw] for raw in stored_raw]),
            listed([raw.hex().upper().encode() for raw in stored_raw]),
        )

    def _bodies(self, columns: Columns) -> Iterator[bytes]:
        """Members of every record for its body, each with a comma in front."""
        start = columns.body_at
        stop = start + np.maximum(columns.body_length, 0)
        raw, body = columns.buf.data, self.body
        for flag, a, b in zip(columns.sys_flag.tolist(), start.tolist(), stop.tolist(), strict=True):
            text = dumps(dict(body_fields(flag, bytes(raw[a:b]), body)))
            yield b"," + text[1:-1].encode("utf-8", "backslashreplace")


def _members(fields: Sequence[Field] | Iterator[Field]) -> Iterator[Part]:
    """A JSON object without its closing brace."""
    before = b'{"'
    for name, parts in fields:
        yield before + name.encode() + b'":'
        yield from parts
        before = b',"'


def _cut(columns: Columns, at: I64, wide: I64) -> list[bytes]:
    """Stored hosts: 20 bytes where `wide` is not 0, else 8."""
    raw = columns.buf.data
    size = np.where(wide != 0, 20, 8)
    return [bytes(raw[a:b]) for a, b in zip(at.tolist(), (at + size).tolist(), strict=True)]
