"""Rows on stdout or in a file: NDJSON, CSV, or a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

from rmqstore.cli.json_text import json_bytes, quote_wide
from rmqstore.cli.output import Output
from rmqstore.cli.quantities import columns as columns_of
from rmqstore.cli.quantities import time_text
from rmqstore.formats.controls import escape_csv

Rows = Iterable[dict[str, Any]]
_AS_TIME = ("timestamp", "write_time", "read_time")
"""Ends of the names of times, epoch ms."""
_WIDEST = 120
_AS_CODE = ("magic", "crc", "code", "hash", "flag", "flags")
"""Ends of the names of numbers that count nothing: they have no separators."""


def write_rows(out: Output, rows: Rows, columns: tuple[str, ...] = ()) -> int:
    """Rows in the format asked for, and how many; `columns` are those of a table (default: all but nested ones)."""
    count = 0

    def counted(rows: Rows) -> Rows:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    rows = counted(rows)
    if out.string_ints:
        rows = (quote_wide(row) for row in rows)
    if out.format == "table":
        _table(out, rows, columns)
        return count
    with out.stream(data=True) as file:
        if out.format == "csv":
            _csv(file, rows)
        else:
            file.writelines(json_bytes(row) + b"\n" for row in rows)
    return count


def with_body(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a table: the body in one column, whatever it is encoded as."""
    message = row.get("message")
    held = message if isinstance(message, dict) else row
    bodies = (held[name] for name in ("body", "body_base64", "body_hex") if held.get(name) is not None)
    return row | {"body": next(bodies, None)}


def _csv(file: BinaryIO, rows: Rows) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names: list[str] = []
    for row in rows:
        flat = _flat(row)
        if list(flat) != names and not (names and set(flat) <= set(names)):  # another kind of row: its own header
            names = list(flat)
            writer.writerow(names)
        writer.writerow(["" if (v := flat.get(name)) is None else _cell(v) for name in names])
        if text.tell() > 1 << 16:
            file.write(text.getvalue().encode("utf-8", "backslashreplace"))
            text.seek(0)
            text.truncate()
    file.write(text.getvalue().encode("utf-8", "backslashreplace"))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    message = row.get("message")
    if not isinstance(message, dict):
        return row
    return {k: v for k, v in row.items() if k != "message"} | {f"message.{k}": v for k, v in message.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json_bytes(value).decode("utf-8", "replace")
    return escape_csv(value) if isinstance(value, str) else value


def _table(out: Output, rows: Rows, columns: tuple[str, ...]) -> None:
    """A plain table, printed in pieces so that it begins at once: columns are as wide as the first rows need."""
    from itertools import islice

    rows = iter(rows)
    widths: dict[str, int] = {}
    with out.stream() as file:
        while block := list(islice(rows, 500)):
            for row in block:
                flat = _flat(row)
                names = columns or tuple(k for k, v in flat.items() if not isinstance(v, (dict, list)))
                cells = {name: _table_cell(name, flat.get(name)) for name in names}
                if tuple(widths) != names:
                    same = [r for r in block if columns or tuple(r) == tuple(row)]
                    widths = {
                        n: max(len(n), *(columns_of(_table_cell(n, _flat(r).get(n))) for r in same)) for n in names
                    }
                    file.write(_line({n: n for n in names}, widths, row) + b"\n")
                file.write(_line(cells, widths, row) + b"\n")


def _line(cells: dict[str, str], widths: dict[str, int], row: dict[str, Any]) -> bytes:
    parts = []
    for name, cell in cells.items():
        right = isinstance(row.get(name), int) and not isinstance(row.get(name), bool) and not name.endswith(_AS_TIME)
        pad = " " * (widths[name] - columns_of(cell))
        parts.append(pad + cell if right else cell + pad)
    return "  ".join(parts).rstrip().encode("utf-8", "backslashreplace")


def _table_cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith(_AS_TIME) and isinstance(value, int):
        return time_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith(_AS_CODE):
        return f"{value:,}"
    text = str(_cell(value))
    text = text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
    return "".join(c if c.isprintable() else "·" for c in text)
