"""`rmqstore export`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rmqstore.cli.filters import Filters, note_no_message, note_unknown_topics
from rmqstore.cli.options import command
from rmqstore.cli.output import Output, json_bytes
from rmqstore.cli.quantities import many
from rmqstore.errors import NotAStore, OutputExists, UsageError

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig

FORMATS = ("ndjson", "csv", "parquet")
_SUFFIXES = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".parquet": "parquet"}


@command(
    "export",
    filters=True,
    work=True,
    examples=(
        "rmqstore export /data/rocketmq/store -o all.ndjson",
        "rmqstore export /data/rocketmq/store --topic Order --since today -o order.parquet",
        "rmqstore export /data/rocketmq/store --topic Order --decode --text | jq .body",
    ),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Output file; must not exist.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Default: from the suffix of FILE; NDJSON on stdout."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only messages with these TAGS (may be repeated).")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only messages with this key (may be repeated).")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Export at most N messages.")
@click.option("--no-body", is_flag=True, help="Leave bodies out. Such an export cannot be imported.")
@click.option("--decode", is_flag=True, help="Decompress bodies. Without it they are written as stored.")
@click.option("--text", is_flag=True, help="Write bodies that are UTF-8 as text. Without it all are base64.")
@click.option("--positions", is_flag=True, help="Add offset, size and message id, which differ in an imported store.")
def export(
    out: Output,
    store: Path,
    config: BrokerConfig,
    filters: Filters,
    jobs: int | None,
    max_rate: int | None,
    overwrite: bool,
    kind: str | None,
    tags: tuple[str, ...],
    keys: tuple[str, ...],
    limit: int | None,
    no_body: bool,
    decode: bool,
    text: bool,
    positions: bool,
) -> int:
    """Write complete messages, with their bodies, for another store, another tool or an archive.

    Exports all records, those of system topics included. `rmqstore import` makes a store from an export; an export of
    that store is equal to the first. Damaged parts of the log are skipped and named on stderr; the exit code is then 1.
    """
    from rmqstore.cli.dump import tell_damage
    from rmqstore.files.store import open_store
    from rmqstore.scan.window import ScanOptions
    from rmqstore.scan.workers import jobs_or_default
    from rmqstore.views.dump.messages import Damage, logs_of
    from rmqstore.views.export import ExportOptions, export_messages

    kind = kind or _format_of(out.path)
    _refuse_output(out, kind, overwrite)
    opened = open_store(store, config)
    logs = logs_of(opened)
    if not logs and not (opened.commitlog or opened.dledger):
        raise NotAStore(f"{store} has no log")
    live = opened.lock_state().held
    if live:
        out.note("note: a broker is running on this store; what it writes from now on may be missing")
    selection = replace(filters.selection(), tags=frozenset(tags), keys=frozenset(keys), limit=limit)
    note_unknown_topics(out, opened, filters.topics, selection.queues)
    options = ExportOptions(
        body=not no_body,
        decode=decode,
        text=text,
        positions=positions,
        scan=ScanOptions(drop_cache=live, max_rate=max_rate or 0),
    )
    damage = Damage(live=live)
    total = sum(log.queue.bytes_on_disk for log in logs)
    count = jobs_or_default(jobs) if total > 32 << 20 and not max_rate else 1
    parts = export_messages(opened, selection, options, damage=damage, jobs=count)
    with out.progress("export", unit=" messages") as progress, out.stream(data=True) as file:
        written = _write(file, kind, _told(parts, progress), positions)
    if not written:
        note_no_message(out, selection, logs)
    elif out.path is not None:
        out.note(f"{many(written, 'message')} in {out.path}")
    return tell_damage(out, damage)


def _refuse_output(out: Output, kind: str, overwrite: bool) -> None:
    """Errors: UsageError for Parquet on stdout; OutputExists."""
    if kind == "parquet" and out.path is None:
        raise UsageError("a Parquet file cannot be written to stdout", "name it with -o")
    if out.is_file and not overwrite:
        raise OutputExists(f"{out.path} already exists", "choose another name, or add --overwrite")


def _format_of(path: Path | None) -> str:
    """The format that a file's name asks for; NDJSON on stdout and for a device or a pipe.

    Errors: UsageError for an unknown suffix.
    """
    if path is None or (path.exists() and not path.is_file()):
        return "ndjson"
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(_SUFFIXES)
        suffix = f"the suffix {path.suffix!r}" if path.suffix else "a name without a suffix"
        raise UsageError(f"{path}: {suffix} does not say which format to write", f"use {known}, or add --format")
    return kind


def _told(parts: Iterable[list[dict[str, Any]]], progress: Any) -> Iterable[list[dict[str, Any]]]:
    for rows in parts:
        yield rows
        progress.add(len(rows))


def _write(file: BinaryIO, kind: str, parts: Iterable[list[dict[str, Any]]], positions: bool) -> int:
    if kind == "csv":
        return _write_csv(file, parts, positions)
    if kind == "parquet":
        return _write_parquet(file, parts, positions)
    count = 0
    for rows in parts:
        file.write(b"".join(json_bytes(row) + b"\n" for row in rows))
        count += len(rows)
    return count


def _columns(positions: bool) -> list[str]:
    from rmqstore.append.messages.exchange import COLUMNS

    return [*COLUMNS, *(("offset", "size", "msg_id") if positions else ())]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "properties": json_bytes(row["properties"]).decode()}


def _csv_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row without raw control characters; topic and body, which import reads, then have an exact copy in base64."""
    from base64 import b64encode

    from rmqstore.messages.text import escape_controls

    out = _flat(row)
    for name in ("topic", "tags", "keys", "unique_key", "body"):
        text = out.get(name)
        if text is None or (shown := escape_controls(text)) == text:
            continue
        if name in ("topic", "body"):
            out.setdefault(f"{name}_base64", b64encode(text.encode()).decode())
        if name == "body":
            del out[name]
        else:
            out[name] = shown
    return out


def _write_csv(file: BinaryIO, parts: Iterable[list[dict[str, Any]]], positions: bool) -> int:
    import csv
    import io

    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    writer = csv.DictWriter(text, _columns(positions), restval="", lineterminator="\n")
    writer.writeheader()
    count = 0
    for rows in parts:
        writer.writerows(map(_csv_row, rows))
        count += len(rows)
    text.flush()
    text.detach()
    return count


def _write_parquet(file: BinaryIO, parts: Iterable[list[dict[str, Any]]], positions: bool) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow", "pip install 'rmqstore[arrow]'") from error
    from base64 import b64decode

    from rmqstore.append.messages.exchange import INTEGERS

    kinds = {name: pa.int32() if bits == 32 else pa.int64() for name, bits in INTEGERS.items()}
    kinds |= {"offset": pa.int64(), "size": pa.int32(), "last_separator": pa.bool_()}
    kinds |= {name: pa.binary() for name in ("body_base64", "topic_base64", "properties_base64")}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in _columns(positions)])
    count = 0
    with pq.ParquetWriter(file, schema) as writer:
        for rows in parts:
            flat = [_flat(row) for row in rows]
            for row in flat:
                for name in ("body_base64", "topic_base64", "properties_base64"):
                    if name in row:
                        row[name] = b64decode(row[name])
            writer.write_table(pa.Table.from_pylist(flat, schema=schema))
            count += len(rows)
    return count
