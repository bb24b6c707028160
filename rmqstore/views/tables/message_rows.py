"""Messages as Arrow batches: a column for each field of the layouts, and derived columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore.formats import dledger
from rmqstore.formats.layout import Field, arrow_type
from rmqstore.formats.message import HEAD
from rmqstore.messages.arrow import (
    NameArrays,
    PropertyArrays,
    bool_array,
    field_of,
    number_array,
    part_array,
    text_array,
)
from rmqstore.messages.cells import listed
from rmqstore.messages.fields import bodies_of
from rmqstore.messages.schema import COLUMNS
from rmqstore.scan.columns import Columns, filler_mask, mended_mask
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.properties import read_texts
from rmqstore.texts import Text, joined
from rmqstore.views.tables.file_splits import Piece

_DAY = 86_400_000
_HOSTS = ("born_host", "store_host")


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """Optional columns.

    `body`: "" (none), "raw" (as stored) or "plain" (decompressed). `tags`: TAGS, KEYS, UNIQ_KEY, `filler` and `mended`.
    `properties`: all properties as a map, and message ids. `entry`: the DLedger entry header. `crc`: check CRCs for
    `crc_ok`.
    `segment_bytes`: the columns `day` and `segment`, which partition an export; the rows of a chunk are in groups with
    the same topic and day. `only`: keep just these columns.
    """

    body: str = ""
    tags: bool = True
    properties: bool = False
    entry: bool = False
    crc: bool = True
    segment_bytes: int = 0
    only: tuple[str, ...] = ()


def segment_name(store: str, log: str, start: int, segment_bytes: int) -> str:
    """Return the name of the segment of a log that contains an offset."""
    return f"{digest_of(store)}-{log}-{start // segment_bytes * segment_bytes}"


def digest_of(store: str) -> str:
    """Return the first part of the names of a store's segments, which identifies its label."""
    return hashlib.sha256(store.encode("utf-8", "surrogateescape")).hexdigest()[:12]


class RecordChunk:
    """A run of records with everything that its Arrow columns need."""

    def __init__(
        self,
        columns: Columns,
        piece: Piece,
        crc_ok: Bool | None,
        names: NameArrays,
        options: MessageOptions,
    ) -> None:
        self.columns = columns
        self.store = piece.store
        self.log = piece.queue
        self.file = piece.file
        self.repaired = piece.repaired
        self.crc_ok = crc_ok
        self.names = names
        self.options = options

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def texts(self) -> PropertyArrays:
        return PropertyArrays(self.columns)

    @cached_property
    def fillers(self) -> Bool | None:
        return filler_mask(self.columns, self.repaired)

    @property
    def segment(self) -> str:
        """The segment of the log that contains the records."""
        return segment_name(self.store, self.log, self.file.start, self.options.segment_bytes)

    def constant(self, text: str) -> Any:
        return part_array(len(self), text.encode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """A column: its Arrow type, its description in the manual, and a function from a chunk to its array."""

    name: str
    type: Any
    about: str
    unit: str
    make: Callable[[RecordChunk], Any]


def _shared(name: str, make: Callable[[RecordChunk], Any]) -> ArrowColumn:
    """Return a column that other outputs have too, with the same type and description."""
    column = COLUMNS[name]
    return ArrowColumn(name, field_of(name).type, column.about, column.unit, make)


def _number(field: Field) -> ArrowColumn:
    narrow = np.dtype(field.dtype).newbyteorder("=")

    def make(chunk: RecordChunk) -> Any:
        values: I64 = getattr(chunk.columns, field.name)
        return number_array(values.astype(narrow))  # the magic is unsigned in Columns

    return ArrowColumn(field.name, arrow_type(field), field.about, field.unit, make)


def _host(field: Field) -> ArrowColumn:
    return ArrowColumn(field.name, pa.string(), field.about, field.unit, lambda c: c.names.hosts(c.columns, field.name))


def _entry_number(field: Field) -> ArrowColumn:
    at = dledger.ENTRY.at(field.name)

    def make(chunk: RecordChunk) -> Any:
        columns = chunk.columns
        position = columns.entry_at + at
        values = columns.i64(position) if field.size == 8 else columns.i32(position)
        return number_array(values.astype(np.dtype(field.dtype).newbyteorder("=")))

    return ArrowColumn(f"entry_{field.name}", arrow_type(field), field.about, field.unit, make)


def _topics(chunk: RecordChunk) -> Any:
    return chunk.names.topics(chunk.names.queues.of(chunk.columns))


def _crc_ok(chunk: RecordChunk) -> Any:
    if not chunk.options.crc:
        return pa.nulls(len(chunk), pa.bool_())
    return bool_array(np.ones(len(chunk), dtype=np.bool_) if chunk.crc_ok is None else chunk.crc_ok)


def _body(chunk: RecordChunk) -> Any:
    return text_array(bodies_of(chunk.columns, stored=chunk.options.body != "plain").spans, kind=pa.binary())


def _sane(ms: I64) -> I64:
    """Limit damaged times to the years 1 to 9999, so that microseconds do not overflow."""
    return np.clip(ms, -62_135_596_800_000, 253_402_300_799_999)


def _time(chunk: RecordChunk) -> Any:
    return number_array(_sane(chunk.columns.store_timestamp) * 1000, pa.timestamp("us", "UTC"))


def _days(columns: Columns) -> I64:
    return _sane(columns.store_timestamp) // _DAY


def grouped(columns: Columns, names: NameArrays) -> Columns:
    """Return the records in groups with the same topic and day, each in its old order."""
    topics = names.topics(names.queues.of(columns)).dictionary_encode().indices
    numbers = np.frombuffer(topics.buffers()[1], dtype=np.int32, count=len(topics))
    return columns.take(np.lexsort((numbers, _days(columns))))


def _day(chunk: RecordChunk) -> Any:
    days, where = np.unique(_days(chunk.columns), return_inverse=True)
    texts = listed([day.encode() for day in np.datetime_as_string(days.astype("datetime64[D]")).tolist()])
    return text_array(texts.take(where))


def message_columns(options: MessageOptions) -> list[ArrowColumn]:
    """Return the columns for some options, in order.

    Errors: ValueError for an unknown column name in `only`.
    """
    out = [
        ArrowColumn("store", pa.string(), "Label of the store.", "", lambda c: c.constant(c.store)),
        ArrowColumn("log", pa.string(), "commitlog or dledger.", "", lambda c: c.constant(c.log)),
        _shared("file", lambda c: c.constant(c.file.name)),
        _shared("offset", lambda c: number_array(c.columns.offset)),
    ]
    if options.entry:
        out += [_entry_number(f) for f in dledger.ENTRY]
    for field in HEAD:
        out.append(_host(field) if field.name in _HOSTS else _number(field))
    out += [
        _shared("topic", _topics),
        ArrowColumn(
            "crc_ok", pa.bool_(), "Whether body CRC and record CRC are correct; null if not checked.", "", _crc_ok
        ),
        ArrowColumn("tags_code", pa.int64(), "Hash of TAGS, as in consume queues; 0 without TAGS.", "", _tags_code),
        ArrowColumn("store_time", pa.timestamp("us", "UTC"), "store_timestamp as a time.", "", _time),
    ]
    if options.tags:
        out += [
            _shared("tags", lambda c: c.texts.values[0]),
            _shared("keys", lambda c: c.texts.values[1]),
            _shared("unique_key", lambda c: c.texts.values[2]),
            _shared("filler", _fillers),
            _shared("mended", _mended),
        ]
    if options.properties:
        out += [
            _shared("properties", lambda c: c.texts.map),
            _shared("msg_id", lambda c: c.names.message_ids(c.columns)),
        ]
    if options.segment_bytes:
        out += [
            ArrowColumn("day", pa.string(), "Day of store_timestamp, UTC.", "", _day),
            ArrowColumn("segment", pa.string(), "Store and segment of its log.", "", lambda c: c.constant(c.segment)),
        ]
    if options.body:
        out.append(_shared("body", _body))
    if not options.only:
        return out
    known = {c.name: c for c in out}
    missing = [name for name in options.only if name not in known]
    if missing:
        raise ValueError(
            Text(
                "unknown column {missing!r} with these options; columns: {known}",
                missing=missing[0],
                known=joined(known),
            )
        )
    return [known[name] for name in options.only]


def _fillers(chunk: RecordChunk) -> Any:
    return bool_array(np.zeros(len(chunk), dtype=np.bool_) if chunk.fillers is None else chunk.fillers)


def _mended(chunk: RecordChunk) -> Any:
    mask = mended_mask(chunk.columns, chunk.repaired, chunk.fillers)
    return bool_array(np.zeros(len(chunk), dtype=np.bool_) if mask is None else mask)


def _tags_code(chunk: RecordChunk) -> Any:
    return number_array(read_texts(chunk.columns).tags_code)


def arrow_schema(columns: list[ArrowColumn]) -> Any:
    """Return the Arrow schema of columns."""
    return pa.schema([pa.field(c.name, c.type, metadata={"about": c.about, "unit": c.unit}) for c in columns])


def batch(columns: list[ArrowColumn], schema: Any, chunk: RecordChunk) -> Any:
    """Convert a chunk to a RecordBatch."""
    return pa.RecordBatch.from_arrays([c.make(chunk) for c in columns], schema=schema)


def merged(batches: Iterator[Any], rows: int = 8192) -> Iterator[Any]:
    """Yield the same rows in batches of a useful size; damage makes runs short."""
    held: list[Any] = []
    count = 0
    for one in batches:
        if not held and one.num_rows >= rows // 4:
            yield one
            continue
        held.append(one)
        count += one.num_rows
        if count >= rows:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, count = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()
