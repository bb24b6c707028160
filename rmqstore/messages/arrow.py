"""Convert chunks of records to Arrow batches with typed columns, and write them as Parquet or Arrow IPC.

Times are timestamp[ms, UTC], properties map<string, string>, bodies binary or string. What these columns do not
preserve is in the columns of `schema.SIDE`, which a file has only if one of its rows needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rmqstore.errors import UsageError, install_command
from rmqstore.formats import properties
from rmqstore.formats.message import MAGIC_V2_U32
from rmqstore.messages.cells import Part, Spans, TextTable, assemble, listed, valid_text
from rmqstore.messages.fields import (
    INVALID,
    NAMES,
    Bodies,
    HostTexts,
    MessageIds,
    bodies_of,
    contents,
    rebuilt,
    unpreserved,
)
from rmqstore.messages.rows import BodyStyle
from rmqstore.messages.schema import BODY, COLUMNS, EXPORTED, POSITIONS, SIDE
from rmqstore.scan import native
from rmqstore.scan.columns import NOTHING, Columns, Repaired, filler_mask, mended_mask
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, U8, Bool
from rmqstore.scan.properties import not_utf8
from rmqstore.scan.workers import one_ahead
from rmqstore.texts import Text

try:
    import pyarrow as pa
except ImportError as error:  # the extra `arrow` is not installed
    raise UsageError(Text("Parquet and Arrow need pyarrow"), install_command("arrow")) from error

_TYPES = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "time": pa.timestamp("ms", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "map": pa.map_(pa.string(), pa.string()),
}
_REPEATED = (
    "store",
    "log",
    "file",
    "topic",
    "store_host",
    "born_host",
    "tags",
    "queue_id",
    "flag",
    "sys_flag",
    "reconsume_times",
    "version",
)
ROWS, BYTES = 1 << 17, 32 << 20  # limits of a row group


def field_of(name: str, *, text_body: bool = False) -> Any:
    """Return the Arrow field of a column."""
    column = COLUMNS[name]
    kind = pa.string() if name == "body" and text_body else _TYPES[column.type]
    return pa.field(name, kind, metadata={"about": column.about, "unit": column.unit})


# pa.array and Array.to_numpy import pandas if it is installed, and take imports pyarrow.compute, which takes 0.4 s.
# Therefore arrays are built from their buffers.


def number_array(values: npt.NDArray[Any], kind: Any = None, missing: Bool | None = None) -> Any:
    """Return numbers as an Arrow array (of type `kind`, with the same number of bytes), null where `missing`."""
    kind = kind or pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [_validity(missing), pa.py_buffer(np.ascontiguousarray(values))])


def bool_array(values: Bool, missing: Bool | None = None) -> Any:
    """Return booleans as an Arrow array, null where `missing`."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [_validity(missing), bits])


def _validity(missing: Bool | None) -> Any:
    return None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))


def text_array(spans: Spans, missing: Bool | None = None, kind: Any = None) -> Any:
    """Return texts as an Arrow array of strings (or of type `kind`), null where `missing`."""
    if missing is not None and not missing.any():
        missing = None
    return part_array(len(spans), spans if missing is None else spans.where(~missing), missing=missing, kind=kind)


def part_array(n: int, *parts: Part, missing: Bool | None = None, kind: Any = None) -> Any:
    """Return n lines, assembled from parts, as an Arrow array of strings (or of `kind`), null where `missing`."""
    offsets = np.zeros(n + 1, dtype=np.int32)
    data: U8 = np.empty(0, dtype=np.uint8)
    if n:
        data, offsets[1:] = assemble(n, parts)
    buffers = [_validity(missing), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.string(), n, buffers)


class NameArrays:
    """Topics, hosts and message ids of records as arrays; caches the texts of topics and hosts."""

    def __init__(self) -> None:
        self.queues = QueueTable()
        self._topics = TextTable()
        self._hosts = HostTexts()
        self._message_ids = MessageIds()

    def topics(self, numbers: I64) -> Any:
        """Return the topics of queues, given as numbers of `queues`."""
        for number in range(len(self._topics), len(self.queues)):
            self._topics.add(self.queues.topic(number).encode())
        return part_array(len(numbers), self._topics.rows(numbers) if len(numbers) else b"")

    def hosts(self, columns: Columns, name: str) -> Any:
        """Return `born_host` or `store_host`, such as 10.0.0.1:10911."""
        return part_array(len(columns), self._hosts.of(columns, name) if len(columns) else b"")

    def message_ids(self, columns: Columns) -> Any:
        """Return the offset message ids."""
        return part_array(len(columns), *self._message_ids.of(columns, columns.physical_offset) if len(columns) else ())


class ArrowRows:
    """Converts chunks of records to batches with the columns of an export; caches topics and hosts."""

    def __init__(
        self, body: BodyStyle, *, positions: bool = False, repaired: Repaired = NOTHING, stale: bool = False
    ) -> None:
        self.body = body
        self.positions = positions
        self.repaired = repaired
        self.stale = stale
        self.names = NameArrays()
        self._schemas: dict[tuple[str, ...], Any] = {}

    def schema(self, sides: Iterable[str]) -> Any:
        """Return the schema of a file with these side columns in addition to the common ones."""
        names = (*EXPORTED, *(["body"] if self.body.style else []), *(n for n in (BODY[1], *SIDE) if n in sides))
        names += POSITIONS if self.positions else ()
        if names not in self._schemas:
            fields = [field_of(name, text_body=self.body.style == "text") for name in names]
            self._schemas[names] = pa.schema(fields)
        return self._schemas[names]

    def batch(self, columns: Columns) -> Any:
        """Return the rows of a chunk, with the side columns that any of its rows needs."""
        made = _Arrays(self, columns)
        arrays = {name: made.of(name) for name in EXPORTED}
        arrays |= made.body() | made.sides()
        arrays |= {name: made.of(name) for name in POSITIONS if self.positions}
        schema = self.schema(arrays)
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


class _Arrays:
    def __init__(self, rows: ArrowRows, columns: Columns) -> None:
        self.rows = rows
        self.columns = columns

    def of(self, name: str) -> Any:
        columns = self.columns
        make: dict[str, Callable[[], Any]] = {
            "topic": lambda: self.rows.names.topics(self._numbers),
            "store_host": lambda: self.rows.names.hosts(columns, name),
            "born_host": lambda: self.rows.names.hosts(columns, name),
            "properties": lambda: self._pairs.map,
            "offset": lambda: number_array(columns.offset if self.rows.stale else columns.physical_offset),
            "sys_flag": lambda: number_array(self._sys_flag().astype(np.int32)),
            "msg_id": lambda: self.rows.names.message_ids(columns),
        }
        if name in ("tags", "keys", "unique_key"):
            return self._pairs.values[("tags", "keys", "unique_key").index(name)]
        if name in make:
            return make[name]()
        kind = COLUMNS[name].type
        values: I64 = getattr(columns, name)
        return number_array(values.astype(np.int32) if kind == "int32" else values, _TYPES[kind])

    @cached_property
    def _numbers(self) -> I64:
        return self.rows.names.queues.of(self.columns)

    @cached_property
    def _pairs(self) -> PropertyArrays:
        return PropertyArrays(self.columns)

    @cached_property
    def _bodies(self) -> Bodies:
        return bodies_of(self.columns, stored=self.rows.body.raw)

    def _sys_flag(self) -> I64:
        flags = self.columns.sys_flag
        return self._bodies.sys_flags(flags) if self.rows.body.style else flags

    def body(self) -> dict[str, Any]:
        if not self.rows.body.style:
            return {}
        spans = self._bodies.spans
        if self.rows.body.style != "text":
            return {"body": text_array(spans, kind=pa.binary())}
        other = (contents(spans) & INVALID) != 0
        out = {"body": text_array(spans, other)}
        return out | ({BODY[1]: text_array(spans, ~other, pa.binary())} if other.any() else {})

    def sides(self) -> dict[str, Any]:
        """Return the side columns that any row of this chunk needs."""
        out, n = {}, len(self.columns)
        topics = {}
        for number in np.flatnonzero(np.bincount(self._numbers)).tolist():
            raw = self.rows.names.queues.topics[number]
            with suppress(UnicodeDecodeError):
                raw.decode()
                continue
            topics[number] = raw
        if topics:
            out["topic_base64"] = _binary([topics.get(k) for k in self._numbers.tolist()])
        lacks, whole = unpreserved(self.columns, self._pairs.unusual)
        if whole:
            out["properties_base64"] = _binary([whole.get(i) for i in range(n)])
        if lacks.any():
            out["last_separator"] = bool_array(np.zeros(n, dtype=np.bool_), ~lacks)
        second = self.columns.magic == MAGIC_V2_U32
        if second.any():
            out["version"] = number_array(np.full(n, 2, dtype=np.int32), missing=~second)
        fillers = filler_mask(self.columns, self.rows.repaired)
        if fillers is not None:
            out["filler"] = bool_array(fillers)
        mended = mended_mask(self.columns, self.rows.repaired, fillers)
        if mended is not None:
            out["mended"] = bool_array(mended)
        if self.rows.stale:
            out["stale"] = bool_array(np.ones(n, dtype=np.bool_))
        return out


def _binary(texts: list[bytes | None]) -> Any:
    missing = np.array([text is None for text in texts])
    return text_array(listed([text or b"" for text in texts]), missing, pa.binary())


class PropertyArrays:
    """The properties of a chunk as a map array, and the values of TAGS, KEYS and UNIQ_KEY as arrays.

    `unusual`: mask of the records whose property text may differ from the text rebuilt from the map.
    """

    def __init__(self, columns: Columns) -> None:
        starts, stops = columns.properties_at, columns.properties_at + columns.properties_length
        self.unusual: Bool = np.ones(len(columns), dtype=np.bool_)
        spans = Spans(columns.buf, starts, stops)
        loops = native.load()
        names = tuple(name.encode() for name in NAMES)
        pairs = loops.pairs(spans.source, spans.starts, spans.stops, names)
        odd = (pairs.marks & 1) != 0
        wide = np.flatnonzero(pairs.marks & 2)
        if len(wide):
            odd[wide] |= np.array(not_utf8(spans.take(wide).raw()))
        self.unusual = odd | ((pairs.marks & 4) != 0)
        if odd.any():
            rows = np.flatnonzero(odd)
            texts = dict(zip(rows.tolist(), map(_canonical, spans.take(rows).raw()), strict=True))
            spans = _with_texts(spans, texts)
            pairs = loops.pairs(spans.source, spans.starts, spans.stops, names)
        pair_columns = (
            pa.Array.from_buffers(pa.string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])
            for data, ends in ((pairs.names, pairs.name_ends), (pairs.values, pairs.value_ends))
        )
        self.map = pa.MapArray.from_arrays(number_array(pairs.after), *pair_columns)
        self.values = [
            text_array(Spans(spans.source, np.maximum(a, 0), np.maximum(b, 0)), a < 0)
            for a, b in zip(pairs.first, pairs.last, strict=True)
        ]


def _canonical(text: bytes) -> bytes:
    """Return a property text with the pairs that a broker reads from `text`, without repeated names."""
    found = properties.parse_properties(text)
    return rebuilt({valid_text(name): valid_text(value) for name, value in found.items()})


def _with_texts(spans: Spans, texts: dict[int, bytes]) -> Spans:
    """Return the spans with other texts for some records."""
    more = listed(list(texts.values()))
    starts, stops = spans.starts.copy(), spans.stops.copy()
    rows = np.fromiter(texts, dtype=np.int64)
    starts[rows], stops[rows] = more.starts + len(spans.source), more.stops + len(spans.source)
    return Spans(np.concatenate((spans.source, more.source)), starts, stops)


# --- files -----------------------------------------------------------------------------------------------------------


def one_table(batches: Iterable[Any], rows: ArrowRows) -> Any:
    """Return all batches as one pyarrow.Table; a side column that a batch lacks is null in its rows."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables([rows.schema(()).empty_table(), *tables], promote_options="default")


class SideColumnsMissing(Exception):
    """A row needs side columns that the file does not have. The file must be rewritten with these columns."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


def write_file(file: BinaryIO, kind: str, rows: ArrowRows, batches: Iterable[Any], sides: frozenset[str]) -> None:
    """Write batches as a Parquet file or Arrow IPC stream (`kind`: "parquet" or "arrow") with some side columns.

    Errors: SideColumnsMissing
    """
    schema = rows.schema(sides)
    with closing(one_ahead(_groups(_fitting(batches, schema)))) as tables:
        if kind == "arrow":
            with pa.ipc.new_stream(file, schema) as writer:
                for table in tables:
                    writer.write_table(table)
            return
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema, **parquet_options(schema)) as writer:
            for table in tables:
                writer.write_table(table)


def parquet_options(schema: Any) -> dict[str, Any]:
    """Return the options of ParquetWriter: dictionaries only for columns with repeated values."""
    repeated = [name for name in _REPEATED if name in schema.names] + ["properties.key_value.key"]
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": repeated}


def _fitting(batches: Iterable[Any], schema: Any) -> Iterator[Any]:
    for batch in batches:
        extra = frozenset(batch.schema.names) - frozenset(schema.names)
        if extra:
            raise SideColumnsMissing(extra)
        have = frozenset(batch.schema.names)
        arrays = [batch.column(f.name) if f.name in have else pa.nulls(batch.num_rows, f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _groups(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield tables of about the size of a row group."""
    held: list[Any] = []
    count = size = 0
    for batch in batches:
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= ROWS or size >= BYTES:
            yield pa.Table.from_batches(held)
            held, count, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
