"""Stores as Arrow batches, for Spark sources and `rmqstore sql`. Needs pyarrow, not Spark.

Messages have a column for each field of the layouts, and derived columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.files.files import Files
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.formats import consumequeue, dledger, index
from rmqstore.formats.consumequeue import split_queue_label
from rmqstore.formats.layout import Field, Layout, arrow_type
from rmqstore.formats.message import HEAD, Fault
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
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.units import file_chunks
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text, joined
from rmqstore.views.dump.batches import batch_length, fields_of
from rmqstore.views.dump.messages import wanted_records
from rmqstore.views.dump.selection import Selection, Selector
from rmqstore.views.dump.units import index_units
from rmqstore.views.progress import PopProgress
from rmqstore.views.stores import Piece, StoreRef, runs_of

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


@dataclass(frozen=True)
class RecordChunk:
    """A run of records with everything that its Arrow columns need."""

    columns: Columns
    piece: Piece
    crc_ok: Bool | None
    names: NameArrays
    options: MessageOptions

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def texts(self) -> PropertyArrays:
        return PropertyArrays(self.columns)

    @cached_property
    def fillers(self) -> Bool | None:
        return filler_mask(self.columns, self.piece.repaired)

    @property
    def segment(self) -> str:
        """The segment of the log that contains the records."""
        piece = self.piece
        return segment_name(piece.store, piece.queue, piece.file.start, self.options.segment_bytes)

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
        ArrowColumn("store", pa.string(), "Label of the store.", "", lambda c: c.constant(c.piece.store)),
        ArrowColumn("log", pa.string(), "commitlog or dledger.", "", lambda c: c.constant(c.piece.queue)),
        _shared("file", lambda c: c.constant(c.piece.file.name)),
        _shared("offset", lambda c: number_array(c.columns.offset)),
    ]
    if options.entry:
        out += [_entry_number(f) for f in dledger.ENTRY]
    for one in HEAD:
        out.append(_host(one) if one.name in _HOSTS else _number(one))
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
        unknown = Text("unknown column {name!r} with these options; columns: {known}")
        raise ValueError(unknown.format(name=missing[0], known=joined(known)))
    return [known[name] for name in options.only]


def _fillers(chunk: RecordChunk) -> Any:
    return bool_array(np.zeros(len(chunk), dtype=np.bool_) if chunk.fillers is None else chunk.fillers)


def _mended(chunk: RecordChunk) -> Any:
    mask = mended_mask(chunk.columns, chunk.piece.repaired, chunk.fillers)
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


VIEWS = ("messages", "consumequeue", "indexfile", "dledger", "consumer_offsets", "pop", "findings")
"""The views of `sql` and `pipeline sql`."""
CHUNK, BODY_CHUNK = 4 << 20, 1 << 20
KEPT_FINDINGS = 10_000
Seen = Callable[[str, Run, bool], None]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How pieces are read: columns, filters, and what to skip.

    `skip_unreadable`: skip files that cannot be opened. `damaged`: include damaged records, for the column crc_ok.
    """

    message: MessageOptions = field(default_factory=MessageOptions)
    selection: Selection = field(default_factory=Selection)
    skip_unreadable: bool = False
    damaged: bool = True

    @property
    def scan(self) -> ScanOptions:
        chunk = BODY_CHUNK if self.message.body else CHUNK
        return ScanOptions(crc=self.message.crc, chunk=chunk)


def read_messages(pieces: Iterable[Piece], options: ReadOptions, seen: Seen | None = None) -> Iterator[Any]:
    """Yield batches of the messages of some pieces. Files that a live broker has deleted are skipped.

    `seen` is called with every run, as `Damage.feed`.
    Errors: OSError for a file that cannot be opened, unless `skip_unreadable`.
    """
    columns = message_columns(options.message)
    yield from merged(_each(pieces, options, columns, arrow_schema(columns), seen))


def _each(
    pieces: Iterable[Piece], options: ReadOptions, columns: list[ArrowColumn], schema: Any, seen: Seen | None
) -> Iterator[Any]:
    selector = Selector(options.selection)
    names = NameArrays()
    for piece in pieces:
        try:
            for chunk in _chunks(piece, options, selector, names, seen):
                yield batch(columns, schema, chunk)
        except FileNotFoundError:
            continue
        except OSError:
            if not options.skip_unreadable:
                raise


def _chunks(
    piece: Piece, options: ReadOptions, selector: Selector, names: NameArrays, seen: Seen | None
) -> Iterator[RecordChunk]:
    selector.repaired = piece.repaired
    for run in runs_of(piece, options.scan):
        columns = run.columns
        dirty = run.kind is Kind.DIRTY
        hidden = columns is None or (dirty and (run.cause is Fault.PHYSICAL_OFFSET or not options.damaged))
        if seen is not None:
            seen(piece.queue, run, dirty and not hidden)
        if columns is None or hidden:
            continue
        columns, crc_ok = wanted_records(run, columns, selector)
        if len(columns):
            columns = grouped(columns, names) if options.message.segment_bytes else columns
            yield RecordChunk(columns, piece, crc_ok, names, options.message)


# --- consume queues ---------------------------------------------------------------------------------------------------


def unit_schema(*, batch_units: bool) -> Any:
    """Return the Arrow schema of `rmqstore.consumequeue`."""
    head = [pa.field("store", pa.string()), pa.field("topic", pa.string()), pa.field("queue_id", pa.int32())]
    if batch_units:
        return pa.schema([*head, *consumequeue.BATCH_UNIT.arrow_schema()])
    return pa.schema([*head, pa.field("queue_offset", pa.int64()), *consumequeue.UNIT.arrow_schema()])


def queue_pieces(label: str, store: Store, selection: Selection, size: int, *, batch_units: bool) -> Iterator[Piece]:
    """Yield the files of the selected consume queues; files longer than `size` are cut between units."""
    kind = QueueKind.BATCH if batch_units else QueueKind.SIMPLE
    step = max(kind.unit, size // kind.unit * kind.unit)
    for one in store.consume_queues(kind):
        in_rows = kind is QueueKind.SIMPLE and store.reads_rows(one.topic)
        if in_rows or not selection.wants_queue(one.topic, one.queue_id):
            continue
        for file in one.queue.files:
            for start in range(0, min(file.length, file.file_size), step):
                yield Piece(label, one.label, 0, file, start, min(start + step, file.file_size), exact=True)


def read_units(pieces: Iterable[Piece], *, batch_units: bool, skip_unreadable: bool = False) -> Iterator[Any]:
    """Yield batches of units, without zeros and pre-blanks, as `dump --what consumequeue`."""
    layout = consumequeue.BATCH_UNIT if batch_units else consumequeue.UNIT
    schema = unit_schema(batch_units=batch_units)
    yield from merged(_unit_batches(pieces, layout, schema, batch_units, skip_unreadable))


def read_rows(label: str, store: Store) -> Iterator[Any]:
    """Yield batches of the units of consume queues in RocksDB.

    Errors: CannotRead, after all readable rows.
    """
    from rmqstore.views.dump.rocksdb import consume_queue_rows

    schema = unit_schema(batch_units=False)
    for one in consume_queue_rows(store, Selection()):
        yield _batch_of(schema, {**one, "store": label})


def _batch_of(schema: Any, columns: Mapping[str, Any]) -> Any:
    """Return the columns of a schema as a batch; a text or a number stands for all rows."""
    n = batch_length(columns)
    arrays = []
    for column in schema:
        value = columns[column.name]
        if isinstance(value, np.ndarray):
            arrays.append(number_array(value.astype(column.type.to_pandas_dtype())))
        else:
            plain = value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
            arrays.append(pa.repeat(pa.scalar(plain, column.type), n))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _unit_batches(pieces: Iterable[Piece], layout: Layout, schema: Any, batch_units: bool, skip: bool) -> Iterator[Any]:
    for piece in pieces:
        if not skip and piece.file.files.exists(piece.file.path):
            with piece.file.open():  # raises an error, so that an unreadable file does not seem empty
                pass
        topic, queue_id = split_queue_label(piece.queue)
        for chunk in file_chunks(piece.file, layout, start=piece.start, stop=piece.stop):
            units: Any = chunk.units
            wanted = (units["size"] != 0) | (units["commitlog_offset"] != 0)
            if not batch_units:
                wanted &= ~consumequeue.is_pre_blank(units["commitlog_offset"], units["size"])
            rows = np.flatnonzero(wanted)
            if len(rows):
                named = {"store": piece.store, "topic": topic, "queue_id": queue_id}
                numbers = {"queue_offset": chunk.number + rows, **fields_of(units[rows], layout)}
                yield _batch_of(schema, named | numbers)


# --- index files ------------------------------------------------------------------------------------------------------


def index_schema() -> Any:
    """Return the Arrow schema of `rmqstore.index`."""
    head = [("store", pa.string()), ("file", pa.string()), ("unit", pa.int64()), ("slot", pa.int64())]
    fields = [pa.field(n, t) for n, t in head]
    return pa.schema([*fields, *index.UNIT.arrow_schema(), pa.field("timestamp", pa.int64(), metadata={"unit": "ms"})])


def read_index(label: str, files: Files, path: Path, selection: Selection) -> Iterator[Any]:
    """Yield batches of the units of one index file of the store with this label."""
    schema = index_schema()
    for one in index_units(open_store(path, files=files), replace(selection, limit=None)):
        if "unit" in one:  # not the header
            yield _batch_of(schema, {**one, "store": label})


# --- findings ---------------------------------------------------------------------------------------------------------


def findings_schema() -> Any:
    """Return the Arrow schema of `rmqstore.findings`."""
    texts = ("store", "code", "severity", "queue", "file")
    return pa.schema(
        [pa.field(n, pa.string()) for n in texts]
        + [pa.field("offset", pa.int64(), metadata={"unit": "bytes"})]
        + [pa.field("length", pa.int64(), metadata={"unit": "bytes"})]
        + [pa.field("facts", pa.string()), pa.field("remedy", pa.string())]
    )


def findings_batch(rows: list[Mapping[str, Any]]) -> Any:
    """Convert findings (as in `verify --json`, with `store`) to a batch; facts become JSON text."""
    import orjson

    schema = findings_schema()
    cells = [{**row, "facts": orjson.dumps(row["facts"]).decode()} for row in rows]
    return one_batch(schema, [tuple(row[name] for name in schema.names) for row in cells])


def read_findings(ref: StoreRef, *, quick: bool = False, keep: int = KEPT_FINDINGS) -> Iterator[Any]:
    """Yield at most `keep` findings of `verify`, as one batch.

    Errors: NotReadable, NotAStore.
    """
    from rmqstore.checks.examine import examine_named
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.files.sources import FOR_VERIFY

    _, verified = examine_named(ref.open(FOR_VERIFY), VerifyOptions(jobs=1, quick=quick, keep=keep))
    report = verified.report
    if report.findings.listed:
        yield findings_batch([{"store": ref.label, **f.to_json(ref.label)} for f in report.ordered()])


# --- consumers --------------------------------------------------------------------------------------------------------


def offsets_schema() -> Any:
    """Return the Arrow schema of the view `consumer_offsets`."""
    texts = [pa.field(name, pa.string()) for name in ("store", "group", "topic")]
    return pa.schema([*texts, pa.field("queue_id", pa.int32()), pa.field("offset", pa.int64())])


def offset_rows(label: str, offsets: ConsumerOffsets) -> list[tuple[str, str, str, int, int]]:
    """Return a row of `offsets_schema` for each committed offset."""
    return [(label, one.group, one.topic, one.queue_id, one.offset) for one in offsets.rows()]


def pop_schema() -> Any:
    """Return the Arrow schema of the view `pop`."""
    texts = [pa.field(name, pa.string()) for name in ("store", "group", "topic")]
    places = [pa.field("queue_id", pa.int32()), pa.field("queue_offset", pa.int64()), pa.field("state", pa.string())]
    times = [pa.field(name, pa.int64()) for name in ("pop_time", "visible_time")]
    return pa.schema([*texts, *places, *times, pa.field("times", pa.int32())])


def popped_rows(label: str, progress: PopProgress) -> list[tuple[str, str, str, int, int, str, int, int, int]]:
    """Return a row of `pop_schema` for each message whose check point or row exists.

    Messages whose check point has expired, and acknowledged messages of the KV service, have no row.
    """
    return [
        (label, p.group, p.topic, p.queue_id, p.queue_offset, p.state.value, p.pop_time, p.visible_time, p.times)
        for p in progress.received.values()
    ]


def one_batch(schema: Any, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return rows as one Arrow batch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
