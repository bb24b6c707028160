"""Writes rows as NDJSON, CSV, or a table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, BinaryIO

from rmqstore.cli.printing.json_text import json_bytes, quote_wide
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import columns as columns_of
from rmqstore.cli.printing.quantities import fitted, printable, time_text
from rmqstore.formats.text import escape_csv, not_run
from rmqstore.formats.times import iso_utc
from rmqstore.texts import Text, joined

Rows = Iterable[dict[str, Any]]
_AS_TIME = ("timestamp", "write_time", "read_time", "indexed_time", "deliver_time", "pop_time", "visible_time")
"""Suffixes of field names with times in epoch ms."""
_WIDEST = 120
_LEAST, _LEAST_BODY = 8, 30  # minimum width of a shortened text, and of a body
_GAP = "  "
_FIRST_BLOCK, _BLOCK = 500, 5000  # rows written at once; the first block decides the widths
_IDENTIFYING = (
    *("topic", "group", "queue", "queue_id", "queue_offset", "file", "path", "kind", "start", "keys", "unique_key"),
    *("repair", "offset", "store_timestamp", "timestamp", "commitlog_offset", "phy_offset", "index", "lag"),
)
"""Columns that tell rows apart, the most telling first: they are left out last."""
_PATHS = ("file", "path")
"""Columns whose texts differ at the end, so that they are cut at the front."""
_AS_CODE = ("magic", "crc", "code", "hash", "flag", "flags")
"""Suffixes of field names with numbers that are not counts: they get no separators."""


def write_rows(out: Output, rows: Rows, columns: tuple[str, ...] = (), *, exact: bool = False) -> int:
    """Write rows and return their number; `columns` are those of a table (default: all but nested ones).

    CSV is for people, who open it in a spreadsheet: texts that this would run are written with a ' before them. With
    `exact`, they stay as they are.
    """
    count = 0

    def counted(rows: Rows) -> Rows:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    rows = counted(rows)
    if out.iso:
        rows = map(_with_iso_times, rows)
    if out.string_ints:
        rows = (quote_wide(row) for row in rows)
    if out.format == "table":
        _table(out, rows, columns)
        return count
    with out.paged(data=True) as file:
        if out.format == "csv":
            _csv(file, rows, exact=exact)
        else:
            file.writelines(json_bytes(row) + b"\n" for row in rows)
    return count


def _is_time(name: str) -> bool:
    return name.endswith(_AS_TIME) or name == "hour"


def _with_iso_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with times in ISO 8601, also those of an object in it."""
    return {
        name: _with_iso_times(value)
        if isinstance(value, dict)
        else iso_utc(value)
        if type(value) is int and _is_time(name)
        else value
        for name, value in row.items()
    }


def with_body(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for a table, with the body in one column in any encoding."""
    message = row.get("message")
    held = message if isinstance(message, dict) else row
    bodies = (held[name] for name in ("body", "body_base64", "body_hex") if held.get(name) is not None)
    return row | {"body": next(bodies, None)}


def _csv(file: BinaryIO, rows: Rows, *, exact: bool) -> None:
    import csv

    written = _cell if exact else _cell_for_people

    class Lines:
        """Ends lines with LF; the writer ends them with CR LF, because some versions quote no other line ends."""

        def write(self, line: str) -> None:
            file.write(line[:-2].encode("utf-8", "backslashreplace") + b"\n")

    writer = csv.writer(Lines(), lineterminator="\r\n")
    names: list[str] = []
    for row in rows:
        flat = _flat(row)
        if list(flat) != names and not (names and set(flat) <= set(names)):  # another kind of row
            names = list(flat)
            writer.writerow(names)
        writer.writerow(["" if (v := flat.get(name)) is None else written(v) for name in names])


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


def _cell_for_people(value: Any) -> Any:
    cell = _cell(value)
    return not_run(cell) if isinstance(cell, str) else cell


def _table(out: Output, rows: Rows, columns: tuple[str, ...]) -> None:
    """Write a table block by block, with columns as wide as the first block needs.

    To fit a terminal, long texts are shortened and the last columns left out.
    """
    from itertools import islice

    rows = map(_flat, rows)
    wanted: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    widths: list[int] = []
    room = out.terminal_width
    first = _FIRST_BLOCK
    with out.paged() as file:
        while block := list(islice(rows, first)):
            lines = []
            for row in block:
                has = columns or tuple(k for k, v in row.items() if not isinstance(v, (dict, list)))
                if has != wanted:
                    wanted = has
                    same = block if columns else [r for r in block if tuple(r) == tuple(row)]
                    needs = {n: max(len(n), *(columns_of(_table_cell(n, r.get(n))) for r in same)) for n in wanted}
                    texts = {n for n in wanted if any(isinstance(r.get(n), str) for r in same)}
                    needs = needs if room is None else _fitted(out, needs, texts, room)
                    names, widths = tuple(needs), list(needs.values())
                    titles = zip(names, names, widths, strict=True)
                    lines.append(_line([(title, _is_count(name, row.get(name)), w) for title, name, w in titles]))
                values = [row.get(name) for name in names]
                cells = map(_table_cell, names, values)
                if room is not None:
                    cells = map(_shortened, names, cells, values, widths)
                lines.append(_line(zip(cells, map(_is_count, names, values), widths, strict=True)))
            file.write(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
            first = _BLOCK


def _fitted(out: Output, needs: dict[str, int], texts: set[str], room: int) -> dict[str, int]:
    """Return the columns that fit a terminal, with their widths."""
    widths = dict(needs)
    least = {name: min(needs[name], _LEAST_BODY if name == "body" else _LEAST) for name in texts}

    def excess(widths: dict[str, int]) -> int:
        return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - room

    order = {name: number for number, name in enumerate(_IDENTIFYING)}
    gone = sorted((name for name in needs if name != "body"), key=lambda name: order.get(name, len(order)))
    while excess({name: least.get(name, width) for name, width in widths.items()}) > 0 and len(gone) > 1:
        del widths[gone.pop()]
    while excess(widths) > 0 and (long := [name for name in widths if widths[name] > least.get(name, room)]):
        widths[max(long, key=widths.__getitem__)] -= 1
    if left_out := [name for name in needs if name not in widths]:
        out.note(Text("note: no room for {left_out} (--format ndjson shows them)", left_out=joined(left_out)))
    return widths


def _shortened(name: str, cell: str, value: Any, width: int) -> str:
    if isinstance(value, int):
        return cell
    if name in _PATHS and columns_of(cell) > width:
        while columns_of(cell) > width - 1:
            cell = cell[1:]
        return f"…{cell}"
    return fitted(cell, width)


def _is_count(name: str, value: Any) -> bool:
    """Return whether a value is aligned to the right."""
    return type(value) is int and not _is_time(name)


def _line(cells: Iterable[tuple[str, bool, int]]) -> str:
    parts = []
    for cell, right, width in cells:
        if not cell.isascii():
            width += len(cell) - columns_of(cell)
        parts.append(cell.rjust(width) if right else cell.ljust(width))
    return _GAP.join(parts).rstrip()


@lru_cache(maxsize=1 << 12)
def _time_cell(second: int) -> str:
    return time_text(second * 1000)


def _table_cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if type(value) is int:
        if _is_time(name):
            return _time_cell(value // 1000) if value > 0 else time_text(value)
        return str(value) if name.endswith(_AS_CODE) else f"{value:,}"
    text = str(_cell(value))
    text = text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
    return printable(text)
