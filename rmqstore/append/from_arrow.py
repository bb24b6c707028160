"""Read Parquet and Arrow files as tables of messages, by columns if these have the types of an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from rmqstore.append.exchange import Row, TableChunk, Unusual, assembled, in_range, table_of_rows
from rmqstore.errors import BadRow, UsageError, install_command
from rmqstore.messages.cells import Part, Spans, assemble
from rmqstore.messages.table import NUMBERS, MessageTable
from rmqstore.scan.kernels import I64, Bool
from rmqstore.texts import Text

try:
    import pyarrow as pa


except ImportError as error:  # the extra `arrow` is not installed
    raise UsageError(Text("Parquet and Arrow need pyarrow"), install_command("arrow")) from error

ROWS = 4096  # maximum number of rows per table
STEP = 16 << 20  # bytes per table, if all rows have about the same size
_REPEATED = ("topic", "born_host", "store_host")


def batches_of(path: Path) -> Iterator[TableChunk]:
    """Yield the messages of a file. Errors: BadRow with the row; OSError."""
    number = 0
    try:
        for batch in _read(path):
            rows = _step(batch.num_rows, batch.nbytes)
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                first = number + 1

                def where(i: int, first: int = first) -> str:
                    return Text("{path}: row {first}", path=path, first=first + i)

                yield TableChunk(_table(part, where), where)
                number += part.num_rows
    except (pa.ArrowException, orjson.JSONDecodeError, OSError) as error:
        raise _refusal(path, number + 1, error) from error


def rows_of(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (file and row number, row) of a file, in the form of an NDJSON row. Errors: BadRow; OSError."""
    number = 0
    try:
        for batch in _read(path):
            rows = _step(batch.num_rows, batch.nbytes)
            for start in range(0, batch.num_rows, rows):
                for row in _plain_times(batch.slice(start, rows)).to_pylist():
                    number += 1
                    yield Text("{path}: row {number}", path=path, number=number), _row(row)
    except (pa.ArrowException, orjson.JSONDecodeError, OSError) as error:
        raise _refusal(path, number + 1, error) from error


def _refusal(path: Path, number: int, error: Exception) -> Exception:
    """Return a BadRow for what pyarrow cannot read, in one line; errors of the system are returned unchanged."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    why = " ".join(str(error).split())
    return BadRow(Text("{path}: row {number}: {error}", path=path, number=number, error=why))


def _step(rows: int, size: int) -> int:
    """Return how many of `rows` rows of `size` bytes together to read at a time."""
    return max(1, min(ROWS, STEP * rows // max(1, size)))


def _read(path: Path) -> Iterator[Any]:
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, pre_buffer=False) as file:
            known = file.metadata
        columns = {known.schema.column(i).path for i in range(known.num_columns)}  # those of lists have other paths
        more = {"pre_buffer": False, "buffer_size": 1 << 20, "metadata": known}
        with pq.ParquetFile(path, read_dictionary=[*columns.intersection(_REPEATED)], **more) as file:
            for number in range(file.num_row_groups):  # one at a time, or pyarrow would read ahead
                group = file.metadata.row_group(number)
                rows = _step(group.num_rows, group.total_byte_size)
                yield from file.iter_batches(batch_size=rows, row_groups=[number], use_threads=False)
        return
    with path.open("rb") as raw, pa.ipc.open_stream(raw) as stream:
        yield from stream


def _table(batch: Any, where: Any) -> MessageTable:
    try:
        return _typed(batch)
    except Unusual:
        return table_of_rows([_row(row) for row in _plain_times(batch).to_pylist()], where)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Convert an Arrow row to the form of an NDJSON row."""
    values = {name: value for name, value in row.items() if value is not None}
    pairs = values.get("properties")
    if isinstance(pairs, str):  # written by rmqstore 0.1
        values["properties"] = orjson.loads(pairs)
    elif isinstance(pairs, list):
        with suppress(TypeError, ValueError):  # lists of something else are refused as such
            values["properties"] = dict(tuple(pair.values()) if isinstance(pair, dict) else pair for pair in pairs)
    if isinstance(values.get("body"), bytes):
        values["body_base64"] = values.pop("body")
    return values


def _plain_times(batch: Any) -> Any:
    """Convert timestamp columns to integers in ms."""
    for i, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            times = batch.column(i)
            if field.type.unit != "ms":
                times = times.cast(pa.timestamp("ms", field.type.tz), safe=False)
            times = pa.Array.from_buffers(pa.int64(), len(times), times.buffers(), offset=times.offset)
            batch = batch.set_column(i, field.name, times)
    return batch


def _typed(batch: Any) -> MessageTable:
    """Convert a batch that has the columns of an export. Errors: Unusual."""
    columns = dict(zip(batch.schema.names, _plain_times(batch).columns, strict=True))
    if "topic_base64" in columns and columns["topic_base64"].null_count < batch.num_rows:
        raise Unusual
    numbers = {name: _integers(columns, name) for name in NUMBERS}
    version = columns.get("version")
    numbers["version"] = np.zeros(batch.num_rows, dtype=np.int64)
    if version is not None and version.null_count < batch.num_rows:
        if not pa.types.is_integer(version.type):
            raise Unusual
        numbers["version"] = in_range(np.where(_given(version), _numbers(version), 0), "version")
    body = _texts(columns, "body", "body_base64")
    hosts = _distinct(columns, "born_host"), _distinct(columns, "store_host")
    return assembled(numbers, _distinct(columns, "topic"), hosts, _properties(columns), body)


def _column(columns: dict[str, Any], name: str) -> Any:
    if name not in columns or columns[name].null_count:
        raise Unusual
    return columns[name]


def _integers(columns: dict[str, Any], name: str) -> I64:
    column = _column(columns, name)
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        raise Unusual
    return in_range(_numbers(column), name)


# Array.to_numpy and is_valid import pandas and pyarrow.compute: 0.4 s. Numbers are read from the buffers instead.


def _numbers(column: Any) -> I64:
    """Return the integers of a column; nulls become arbitrary numbers."""
    width = column.type.bit_width
    kind = f"{'u' if pa.types.is_unsigned_integer(column.type) else 'i'}{width // 8}"
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype=np.int64)
    return np.frombuffer(data, dtype=kind)[column.offset : column.offset + len(column)].astype(np.int64)


def _bits(data: Any, column: Any) -> Bool:
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=column.offset + len(column), bitorder="little")
    return bits[column.offset :].astype(np.bool_)


def _distinct(columns: dict[str, Any], name: str) -> tuple[list[str], I64]:
    column = _column(columns, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise Unusual
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.dictionary.to_pylist(), _numbers(column.indices)


def _spans(column: Any) -> Spans:
    """Return the texts or bytes of a column as spans of its buffer, without a copy; nulls are empty."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise Unusual
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    source = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    spans = Spans(source, edges[:-1], edges[1:])
    return spans if not column.null_count else spans.where(_given(column))


def _given(column: Any) -> Bool:
    given = column.buffers()[0]
    return np.ones(len(column), dtype=np.bool_) if given is None else _bits(given, column)


def _texts(columns: dict[str, Any], name: str, other: str) -> Spans:
    """Return the texts of a column, or of the column `other` for nulls. Errors: Unusual if both are null."""
    if other not in columns or columns[other].null_count == len(columns[other]):
        return _spans(_column(columns, name))
    if not pa.types.is_binary(columns[other].type):
        raise Unusual
    first, second = columns.get(name), columns[other]
    if first is None or first.null_count == len(first):
        return _spans(_column(columns, other))
    if not (_given(first) | _given(second)).all():
        raise Unusual
    return _filled(_spans(second), _spans(first), ~_given(second))


def _filled(spans: Spans, other: Spans, mask: Bool) -> Spans:
    """Return `spans` with the masked texts taken from `other`."""
    shift = len(spans.source)
    starts = np.where(mask, other.starts + shift, spans.starts)
    stops = np.where(mask, other.stops + shift, spans.stops)
    return Spans(np.concatenate((spans.source, other.source)), starts, stops)


def _properties(columns: dict[str, Any]) -> Spans:
    """Build the property texts of all rows from a map column."""
    column = _column(columns, "properties")
    if not pa.types.is_map(column.type):
        raise Unusual
    if column.offset:  # a slice shares keys and values with the whole
        column = pa.concat_arrays([column])
    edges = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    names, values = column.keys, column.items
    if values.null_count:
        raise Unusual
    low, high = int(edges[0]), int(edges[-1])
    ends = np.zeros(high - low + 1, dtype=np.int64)
    data = np.zeros(1, dtype=np.uint8)
    if high > low:
        parts: list[Part] = [_spans(names.slice(low, high - low)), b"\1", _spans(values.slice(low, high - low)), b"\2"]
        data, ends[1:] = assemble(high - low, parts)
    starts, stops = ends[edges[:-1] - low], ends[edges[1:] - low]
    last_separator = columns.get("last_separator")
    if last_separator is not None and last_separator.null_count < len(last_separator):
        if not pa.types.is_boolean(last_separator.type):
            raise Unusual
        missing = _given(last_separator) & ~_bits(last_separator.buffers()[1], last_separator)
        stops = stops - (missing & (stops > starts))
    texts = Spans(data, starts, stops)
    raw = columns.get("properties_base64")
    if raw is None or raw.null_count == len(raw):
        return texts
    return _filled(texts, _spans(raw), _given(raw))
