"""Files of an export as tables of messages: NDJSON and CSV line by line, Parquet and Arrow by columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from rmqstore.append.messages.exchange import INTEGERS, Chunk, Row, table_of_rows
from rmqstore.errors import BadRow, NotReadable, UsageError

ROWS = 4096  # of a table
MAX_LINE = 64 << 20
csv.field_size_limit(1 << 28)


def tables_of(path: Path) -> Iterator[Chunk]:
    """The messages of an export file: NDJSON, CSV, Parquet or Arrow, by its name.

    Errors: BadRow with the line, NotReadable, UsageError for another kind of file.
    """
    kind = path.suffix.lower()
    try:
        if kind in (".ndjson", ".jsonl", ".csv"):
            yield from _of_rows(_csv(path) if kind == ".csv" else _ndjson(path))
        elif kind in (".parquet", ".arrow", ".arrows"):
            from rmqstore.append.messages.from_arrow import batches_of

            yield from batches_of(path)
        else:
            raise UsageError(
                f"{path}: unknown type; give a .ndjson, .csv, .parquet or .arrow of `rmqstore export`, or a store"
            )
    except OSError as error:
        raise NotReadable(f"{path}: {error.strerror or error}") from error


def _of_rows(lines: Iterator[tuple[str, Row]]) -> Iterator[Chunk]:
    """Tables of rows; those before a wrong line are given before the error is raised."""
    wrong: list[BadRow] = []

    def sound() -> Iterator[tuple[str, Row]]:
        try:
            yield from lines
        except BadRow as error:
            wrong.append(error)

    rows = sound()
    while some := list(islice(rows, ROWS)):
        places = [place for place, _ in some]
        yield Chunk(table_of_rows([row for _, row in some], places.__getitem__), places.__getitem__)
    if wrong:
        raise wrong[0]


def _ndjson(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE):
            number += 1
            where = f"{path}:{number}"
            if not line.endswith(b"\n") and len(line) == MAX_LINE:
                raise BadRow(f"{where}: a line of more than {MAX_LINE} bytes")
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                cut = "; the file ends in the middle of it" if not line.endswith(b"\n") else ""
                raise BadRow(f"{where}: no JSON: {error}{cut}") from error
            if not isinstance(row, dict):
                raise BadRow(f"{where}: no JSON object")
            yield where, row


def _csv(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open("rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        reader = csv.DictReader(text, strict=True)
        try:
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    raise BadRow(f"{where}: not the number of fields that the heading has")
                out: dict[str, Any] = {
                    name: value for name, value in row.items() if value != "" or name == "body_base64"
                }
                for name in INTEGERS:
                    if (number := out.get(name, "")).lstrip("-").isdigit() and len(number) <= 20:
                        with suppress(ValueError):
                            out[name] = int(number)
                if out.get("properties"):
                    try:
                        out["properties"] = orjson.loads(out["properties"])
                    except orjson.JSONDecodeError as error:
                        raise BadRow(f"{where}: properties are not JSON: {error}") from error
                if "last_separator" in out:
                    out["last_separator"] = out["last_separator"].lower() != "false"
                yield where, out
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRow(f"{path}:{reader.line_num}: {error}") from error
