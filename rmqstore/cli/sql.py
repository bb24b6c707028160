"""`rmqstore sql`."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.options import command, config_option, read_config
from rmqstore.errors import UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.views.sql import Read


@command(
    "sql",
    store=False,
    formats=("table", "ndjson", "csv", "parquet"),
    examples=(
        'rmqstore sql /data/rocketmq/store "select topic, count(*) from messages group by topic"',
        "rmqstore sql /data/a /data/b \"select store, msg_id from messages where keys = 'ORDER-123'\" --format csv",
        'rmqstore sql /data/rocketmq/store --table p=paid.csv "from p anti join messages on keys = p.id" -o x.csv',
    ),
)
@click.argument("stores", nargs=-1, required=True, metavar="STORE... [QUERY]")
@config_option()
@click.option(
    "--table",
    "files",
    multiple=True,
    metavar="NAME=FILE",
    help="Let the query read this CSV (with a header) or Parquet file as the table NAME (may be repeated).",
)
@click.option("--raw-body", is_flag=True, help="Do not decompress the column body.")
@click.option("--fillers", is_flag=True, help="Include records that repairs put in the place of lost messages.")
def sql(
    out: Output,
    stores: tuple[str, ...],
    broker_conf: Path | None,
    files: tuple[str, ...],
    raw_body: bool,
    fillers: bool,
) -> int:
    """Query one or more stores with SQL (DuckDB, in this process).

    The views are messages, consumequeue, indexfile, dledger, consumer_offsets, pop and findings; the query `describe
    messages` lists the columns of a view. The names "offset" and "group" are SQL keywords and need double quotes. The
    column store tells the stores apart. Only the columns that the query names are read, and CRCs are checked only for
    the column crc_ok. The query can neither write nor read other files than those of --table. STORE is a path, a quoted
    pattern ("/data/*", "REPO::*"), or @FILE with one path per line. Text output shows bodies as base64. Damaged parts
    of a log that the query reads are skipped and named on stderr; the exit code is then 1.

    Without QUERY, a terminal gets a prompt with history and completion; otherwise stdin holds the query.

    In CSV, a text that a spreadsheet would run as a formula has a ' before it.
    """
    stores, query = _split(stores)
    if out.format == "parquet" and out.path is None:
        raise UsageError(Text("a Parquet file cannot be written to stdout"), Text("name it with -o"))
    from rmqstore.views.sql import Query
    from rmqstore.views.stores import store_refs

    read_config(out, broker_conf)
    refs = store_refs(stores, broker_conf)
    live, total = [], 0
    for ref in refs:
        out.keep_out_of(ref.path)
        store = ref.open()
        total += store.log_bytes
        if store.lock_state().held:
            live.append(ref.label)
            words = Text("note: a broker is running on {label}; what it writes from now on may be missing")
            out.note(words.format(label=ref.label))
    options: dict[str, Any] = {"raw_body": raw_body, "fillers": fillers, "live": live, "files": _tables(files)}

    def answer(query: str) -> int:
        with out.progress("sql", total) as progress:
            opened = Query(refs, **options, progress=progress.add)
            with opened, opened.run(query) as rows:
                if out.format == "parquet":
                    count = _write_parquet(out, rows)
                else:
                    count = write_rows(out, _rows(rows), tuple(rows.schema.names))
        if not count:
            out.note(Text("note: the query returned no rows"))
        return _tell(out, opened.read, several=len(refs) > 1)

    if query is not None:
        return answer(query)
    if sys.stdin is not None and sys.stdin.isatty() and out.path is None:
        from rmqstore.cli.sql_prompt import ask

        with Query([], progress=lambda _: None) as empty:
            return ask(answer, empty.columns())
    text = "" if sys.stdin is None else sys.stdin.read()
    if not text.strip():
        raise UsageError(Text("there is no query"), 'rmqstore sql STORE "select …"')
    return answer(text)


def _split(words: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """(the stores; the query, or None if the last word names a store, too)."""
    last = words[-1]
    if last.startswith("@") or ("::" in last and " " not in last) or os.path.lexists(last):
        return words, None
    if len(words) == 1 and " " not in last:
        return words, None  # a store that does not exist
    if len(words) == 1:
        raise UsageError(Text("sql needs at least one STORE"), 'rmqstore sql STORE "select …"')
    return words[:-1], last


def _tables(pairs: tuple[str, ...]) -> dict[str, Path]:
    """Return the files of --table by name. Errors: UsageError."""
    from rmqstore.views.tables import VIEWS

    files: dict[str, Path] = {}
    for pair in pairs:
        name, sign, path = pair.partition("=")
        if not sign or not path or not name.isidentifier():
            raise UsageError(Text("--table {pair} is not NAME=FILE", pair=pair), "--table paid=paid.csv")
        if name.lower() in {*VIEWS, *map(str.lower, files)}:
            raise UsageError(Text("--table {name}: that name is taken", name=name), Text("choose another name"))
        files[name] = Path(path)
    return files


def _write_parquet(out: Output, rows: Any) -> int:
    import pyarrow.parquet as pq

    count = 0
    with out.stream() as file, pq.ParquetWriter(file, rows.schema, compression="zstd") as writer:
        for batch in rows:
            count += batch.num_rows
            writer.write_batch(batch)
    return count


def _rows(batches: Any) -> Iterator[dict[str, Any]]:
    names = batches.schema.names
    for batch in batches:
        for row in zip(*map(_cells, batch.columns), strict=True):
            yield dict(zip(names, row, strict=True))


def _cells(column: Any) -> list[Any]:
    """Return the values of a column, converted for JSON."""
    values = column.to_pylist()
    if str(column.type).startswith("map<"):
        return [v if v is None else {str(_plain(key)): _plain(value) for key, value in v} for v in values]
    return [_plain(v) for v in values]


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | float) or value is None:
        return value
    if isinstance(value, Decimal):  # as DuckDB's sum() of whole numbers
        exponent = value.as_tuple().exponent
        value = float(value) if isinstance(exponent, int) and exponent < 0 else int(value)
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, float) else str(value)


def _tell(out: Output, read: Read, *, several: bool) -> int:
    """Write to stderr what could not be read; return the exit code."""
    from rmqstore.cli.shared.messages import tell_damage
    from rmqstore.views.dump.messages import Skipped

    by_store: dict[str, Skipped] = {}
    for label, log in sorted(read.damage):
        by_store.setdefault(label, Skipped()).take(read.damage[label, log])
    code = 0
    for label, damage in by_store.items():
        if damage and several:
            out.note(f"{label}:")
        code = max(code, tell_damage(out, damage))
    for words in read.missing:
        out.note(Text("warning: {words}", words=words))
    return 4 if read.missing else code
