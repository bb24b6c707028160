"""`rmqstore export`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output, Progress
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.messages import tell_damage, write_text
from rmqstore.cli.shared.options import WorkOptions, command, gathered, renamed, text_filters
from rmqstore.cli.shared.reading import note_live, open_named, refuse_without_log
from rmqstore.cli.shared.selections import note_no_message, selection_of
from rmqstore.cli.shared.topics import note_unknown_topics
from rmqstore.errors import UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.dump.messages import Skipped
    from rmqstore.views.dump.selection import Selection
    from rmqstore.views.export import ExportOptions


@renamed(positions="--offsets")
@command(
    "export",
    formats=("ndjson", "csv", "parquet", "arrow"),
    filters=True,
    work=True,
    examples=(
        "rmqstore export /data/rocketmq/store -o all.parquet",
        "rmqstore export /data/rocketmq/store --topic Order --since today -o order.ndjson",
        "rmqstore export /data/rocketmq/store --topic Order --decode --text | jq .body",
    ),
)
@text_filters
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Export at most N messages.")
@click.option(
    "--no-body",
    "body",
    is_flag=True,
    callback=lambda _, __, given: not given,
    help="Leave bodies out. The export then cannot be imported.",
)
@click.option("--decode", is_flag=True, help="Decompress bodies. Without it they are written as stored.")
@click.option("--text", is_flag=True, help="Write UTF-8 bodies as text. Without it, all bodies are bytes (base64).")
@click.option("--offsets", "positions", is_flag=True, help="Add offset, size and message id, which an import changes.")
@click.option("--fillers", is_flag=True, help="Include records that repairs put in the place of lost messages.")
@click.option(
    "--stale", is_flag=True, help="Instead of messages: records of earlier logs that the log does not contain."
)
@click.option(
    "--split-batches", is_flag=True, help="Write each message of a batch record (BatchCQ) as a row of its own."
)
@gathered("options", "rmqstore.views.export:ExportOptions")
def export(
    out: Output,
    store: Path,
    config: BrokerConfig,
    filters: FilterOptions,
    work: WorkOptions,
    limit: int | None,
    options: ExportOptions,
) -> int:
    """Write complete messages, with their bodies, for another store, another tool or an archive.

    Exports all records, including those of system topics. `rmqstore import` makes a store from an export, and an export
    of that store equals the first one. Damaged parts of the log are skipped and named on stderr; the exit code is then
    1. Parquet and Arrow have typed columns: times, a map of properties, and the body as bytes (as text with --text).

    A batch record (BatchCQ) is one row, so that an import restores it; with --split-batches, each of its messages is a
    row with its own queue offset, keys and tags, and the place of its batch in the log.

    CSV has all texts exactly, for programs: a spreadsheet would run one that begins with =, +, - or @ as a formula.

    With --stale, exports what `lost --stale` lists. Each of these rows has stale: true.
    """
    from rmqstore.views.dump.messages import CHUNK, Skipped, logs_of

    if out.format in ("parquet", "arrow"):
        import rmqstore.messages.arrow  # noqa: F401  # raises UsageError without pyarrow
    if out.format == "parquet" and out.path is None:
        raise UsageError(Text("a Parquet file cannot be written to stdout"), Text("name it with -o"))
    opened = open_named(store, config)
    logs = logs_of(opened)
    refuse_without_log(opened)
    live = note_live(out, opened, Text("what it writes from now on may be missing"))
    selection = replace(selection_of(filters), limit=limit)
    note_unknown_topics(out, opened, filters.topics, selection.queues)
    options = replace(options, scan=work.scanning(live, chunk=CHUNK))
    damage = Skipped(live=live)
    total = sum(log.queue.bytes_on_disk for log in logs)
    with out.progress("export", total) as progress:
        if out.format in ("parquet", "arrow"):
            written = _write_arrow(out, opened, options, selection, damage, progress)
        else:
            job = replace(options.job(selection, "csv" if out.format == "csv" else "text"), iso=out.iso)
            written = write_text(out, opened, "messages", job, damage, work.processes(total), progress)
    if not written:
        note_no_message(out, selection, logs)
    elif out.path is not None:
        out.note(Text("{messages} in {path}", messages=many(written, "message"), path=out.path))
    return tell_damage(out, damage)


def _write_arrow(
    out: Output, store: Store, options: ExportOptions, selection: Selection, damage: Skipped, progress: Progress
) -> int:
    """Write Parquet or Arrow; begin again with more columns when a row needs one. Return the number of messages."""
    from rmqstore.messages.arrow import ArrowRows, SideColumnsMissing, write_file
    from rmqstore.messages.schema import BODY, SIDE
    from rmqstore.views.dump.messages import Skipped, read_batches

    job = options.job(selection, "arrow")
    rows = ArrowRows(job.body, positions=job.positions, stale=options.stale)
    sides: frozenset[str] = frozenset()
    with out.stream() as file:
        whole = file.seekable() and out.path is not None
        if not whole:
            sides = frozenset(SIDE) | ({BODY[1]} if options.text else set())
        while True:
            count, found = 0, Skipped(live=damage.live)

            def counted(batches: Iterable[Any]) -> Iterator[Any]:
                nonlocal count
                for batch in batches:
                    count += batch.num_rows
                    yield batch

            try:
                batches = counted(read_batches(store, job, found, progress=progress.add))
                write_file(file, out.format or "", rows, batches, sides)
                break
            except SideColumnsMissing as error:
                sides |= error.names
                file.seek(0)
                file.truncate()
    damage.take(found)
    return count
