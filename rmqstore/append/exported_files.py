"""Read exported files as tables of messages: NDJSON and CSV by lines, Parquet and Arrow by columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from rmqstore.append.exchange import INTEGERS, Row, TableChunk, table_of_rows
from rmqstore.errors import BadRow, NotReadable, UsageError, about
from rmqstore.messages.schema import BODY
from rmqstore.texts import Text

ROWS = 4096  # rows per table
STEP = 8 << 20  # bytes of lines per table, so that large bodies do not need more memory
MAX_LINE = 64 << 20  # bytes
csv.field_size_limit(1 << 28)
T = TypeVar("T")


def tables_of(path: Path) -> Iterator[TableChunk]:
    """Yield the messages of an exported file; its suffix selects NDJSON, CSV, Parquet or Arrow.

    Errors: BadRow with the line, NotReadable, UsageError for another suffix.
    """
    kind = path.suffix.lower()
    try:
        if kind in (".ndjson", ".jsonl", ".csv"):
            yield from _of_rows(_csv(path)) if kind == ".csv" else _of_lines(path)
        elif kind in (".parquet", ".arrow", ".arrows"):
            from rmqstore.append.from_arrow import batches_of

            yield from batches_of(path)
        else:
            raise _unknown_type(path)
    except OSError as error:
        raise NotReadable(about(path, error)) from error


def _unknown_type(path: Path) -> UsageError:
    unknown = Text("{path}: unknown type; give a .ndjson, .csv, .parquet or .arrow of `rmqstore export`, or a store")
    return UsageError(unknown.format(path=path))


def rows_of(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (file and line, row) of an exported file, with all columns, one by one. Errors: as `tables_of`."""
    kind = path.suffix.lower()
    try:
        if kind in (".parquet", ".arrow", ".arrows"):
            from rmqstore.append.from_arrow import rows_of as rows_of_columns

            yield from rows_of_columns(path)
        elif kind == ".csv":
            yield from _csv(path)
        elif kind in (".ndjson", ".jsonl"):
            with path.open("rb") as file:
                yield from _ndjson(path, iter(partial(file.readline, MAX_LINE), b""), 1)
        else:
            raise _unknown_type(path)
    except OSError as error:
        raise NotReadable(about(path, error)) from error


def _of_rows(lines: Iterator[tuple[str, Row]]) -> Iterator[TableChunk]:
    """Group rows into tables; all rows before a bad line are yielded before its error is raised."""
    errors: list[BadRow] = []

    def good_rows() -> Iterator[tuple[str, Row]]:
        try:
            yield from lines
        except BadRow as error:
            errors.append(error)

    for group in _grouped(good_rows(), lambda row: sum(len(row[1].get(name, "")) for name in BODY)):
        lines_of = [line for line, _ in group]
        yield TableChunk(table_of_rows([row for _, row in group], lines_of.__getitem__), lines_of.__getitem__)
    if errors:
        raise errors[0]


def _grouped(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items in groups of up to ROWS; a group ends early when the sizes of its items (bytes) reach STEP."""
    group: list[T] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if len(group) == ROWS or total >= STEP:
            yield group
            group, total = [], 0
    if group:
        yield group


def _of_lines(path: Path) -> Iterator[TableChunk]:
    """Parse many lines at once; if one of them is not an object, parse them one by one to find it."""
    first = 1
    with path.open("rb") as file:
        for lines in _grouped(iter(partial(file.readline, MAX_LINE), b""), len):
            rows = _parsed(lines)
            if rows is None:
                yield from _of_rows(_ndjson(path, lines, first))
            else:

                def where(i: int, first: int = first) -> str:
                    return f"{path}:{first + i}"

                yield TableChunk(table_of_rows(rows, where), where)
            first += len(lines)


def _parsed(lines: list[bytes]) -> list[Row] | None:
    """Parse lines; None unless each of them is an object."""
    try:
        rows: list[Row] = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    return rows if set(map(type, rows)) == {dict} else None


def _ndjson(path: Path, lines: Iterable[bytes], first: int) -> Iterator[tuple[str, Row]]:
    """Yield (file and line, row) of each line; `first` is the number of the first one. Errors: BadRow."""
    for number, line in enumerate(lines, first):
        where = f"{path}:{number}"
        if not line.endswith(b"\n") and len(line) == MAX_LINE:
            raise BadRow(Text("{where}: the line has more than {max_line} bytes", where=where, max_line=MAX_LINE))
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            cut = Text("; the file ends in the middle of the line") if not line.endswith(b"\n") else ""
            raise BadRow(Text("{where}: not valid JSON: {error}{cut}", where=where, error=error, cut=cut)) from error
        if not isinstance(row, dict):
            raise BadRow(Text("{where}: not a JSON object", where=where))
        yield where, row


class _CsvLines:
    """Lines of a CSV file, for a reader that sets `row`, the characters of the present row, to 0 after each of them."""

    def __init__(self, path: Path, text: io.TextIOWrapper) -> None:
        self._path = path
        self._text = text
        self._number = 0
        self.row = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(MAX_LINE - self.row):
            self._number += 1
            self.row += len(line)
            if self.row >= MAX_LINE:
                where = f"{self._path}:{self._number}"
                raise BadRow(Text("{where}: the row has more than {max_line} bytes", where=where, max_line=MAX_LINE))
            yield line


def _csv(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open("rb") as raw:
        lines = _CsvLines(path, io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        reader = csv.DictReader(iter(lines), strict=True)
        try:
            for row in reader:
                lines.row = 0
                where = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    raise BadRow(Text("{where}: the row and the header have different numbers of fields", where=where))
                values: dict[str, Any] = {
                    name: value for name, value in row.items() if value != "" or name == "body_base64"
                }
                for name in INTEGERS:
                    if (number := values.get(name, "")).lstrip("-").isdigit() and len(number) <= 20:
                        with suppress(ValueError):
                            values[name] = int(number)
                if values.get("properties"):
                    try:
                        values["properties"] = orjson.loads(values["properties"])
                    except orjson.JSONDecodeError as error:
                        raise BadRow(
                            Text("{where}: properties are not valid JSON: {error}", where=where, error=error)
                        ) from error
                if "last_separator" in values:
                    values["last_separator"] = values["last_separator"].lower() != "false"
                yield where, values
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRow(about(f"{path}:{reader.line_num}", error)) from error
