"""`rmqstore dump --what` for everything except messages: units of queues and indexes, checkpoint, configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.filters import note_no_match
from rmqstore.errors import UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.store import Store
    from rmqstore.views.dump.selection import Selection


def dump_units(out: Output, store: Store, what: str, selection: Selection) -> int:
    """Print the units of queues, indexes or timers; return the exit code. Errors: UsageError."""
    from rmqstore.files.rocksdb.database import CannotRead, is_readable, missing_extra
    from rmqstore.views.dump.batches import batch_length, batch_lines, batch_rows
    from rmqstore.views.dump.units import READERS

    directory = _database(store, what)
    if directory and not is_readable() and not (store.light_in_rocksdb and what == "consumequeue"):
        out.note(
            Text(
                "warning: {directory}/ is a RocksDB, and its rows cannot be read: that {missing_extra}",
                directory=directory,
                missing_extra=missing_extra(),
            )
        )
        return 4
    problem = ""
    left = selection.limit

    def batches() -> Iterator[Any]:
        nonlocal problem
        try:
            yield from READERS[what](store, selection)
        except CannotRead as e:
            problem = str(e)

    def limited() -> Iterator[Any]:
        nonlocal left
        for batch in batches():
            if left is None:
                yield batch
                continue
            yield {k: v if isinstance(v, (str, int)) else v[:left] for k, v in batch.items()}
            left -= min(left, batch_length(batch))
            if left == 0:
                return

    if out.format == "hex":
        raise UsageError(
            Text("--format hex does not apply to --what {what}", what=what), Text("use messages, commitlog or dledger")
        )
    found = 0
    if out.format == "ndjson" and not out.string_ints:
        with out.stream(data=True) as file:
            for batch in limited():
                found += batch_length(batch)
                file.write(("\n".join(batch_lines(batch)) + "\n").encode())
    else:
        found = write_rows(out, (row for batch in limited() for row in batch_rows(batch)))
    if not found and not problem:
        note_no_match(out, Text("{what} entry", what=what), selection, [str(store.path)])
    if problem:
        out.note(
            Text(
                "warning: the RocksDB in {directory}/ cannot be read completely: {problem}",
                directory=directory,
                problem=problem,
            )
        )
    return 4 if problem else 0


def _database(store: Store, what: str) -> str:
    """Return the RocksDB directory that is read; "" for units in files."""
    from rmqstore.files.rocksdb.rows import DIRECTORY

    if what.endswith("-rows"):
        return DIRECTORY if store.may_have_message_rows else ""
    in_rows = store.rocksdb_consume_queue or store.light_in_rocksdb
    return store.rocksdb_directory.name if in_rows and what == "consumequeue" else ""


def dump_small(out: Output, store: Store, what: str, limit: int | None) -> int:
    """Print checkpoint or configuration files; return the exit code. Errors: UsageError."""
    from itertools import islice

    from rmqstore.views.dump.small_files import checkpoint_rows, config_rows

    if out.format == "hex":
        raise UsageError(
            Text("--format hex does not apply to --what {what}", what=what), Text("use messages, commitlog or dledger")
        )
    rows = checkpoint_rows(store) if what == "checkpoint" else config_rows(store)
    bad = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal bad
        for row in islice(rows, limit):
            bad += row.get("condition", "sound") != "sound" or bool(row.get("faults"))
            yield row

    write_rows(out, counted())
    if bad:
        out.note(Text("warning: {files} could not be parsed", files=many(bad, "file")))
    return 1 if bad else 0
