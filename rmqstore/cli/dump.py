"""`rmqstore dump`: messages and, with --what, everything beside the log."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import OFFSET, many
from rmqstore.cli.printing.table_output import with_body, write_rows
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.help_pages import kept
from rmqstore.cli.shared.messages import tell_damage, write_text
from rmqstore.cli.shared.options import BODY, VERSIONS, WorkOptions, command, gathered, text_filters
from rmqstore.cli.shared.reading import note_live, open_named, refuse_without_log
from rmqstore.cli.shared.selections import (
    note_log_offsets,
    note_no_match,
    note_no_message,
    refuse_filters,
    refuse_with_positions,
    selection_of,
)
from rmqstore.cli.shared.topics import note_unknown_topics
from rmqstore.errors import UsageError, reason
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.dump.messages import Job, Skipped
    from rmqstore.views.dump.selection import Selection


SHOWN_BY = {
    "positions": "rmqstore.cli.positions",
    "hex": "rmqstore.cli.hex_dump",
    "compaction-log": "rmqstore.cli.compaction_log",
    "mqadmin": "rmqstore.cli.mqadmin_input",
}
"""What shows the log in another way than as messages, or another log; nothing else in `dump` needs these modules."""
MESSAGES = ("messages", "commitlog", "dledger")
COMPACTED = "compaction-log"
ROWS = ("timer-rows", "trans-rows", "index-rows", "pop-rows")
UNITS = (
    "consumequeue",
    "batchconsumequeue",
    "compaction-queue",
    "index",
    "dledger-index",
    "timerlog",
    "timerwheel",
    *ROWS,
)
SMALL = ("checkpoint", "config")
COMMANDS = "mqadmin"  # lines for a shell in every format
_WHAT = Text(
    "What to print: messages (the default: the whole log), commitlog or dledger (one part of it), compaction-log (what "
    "compaction keeps), {value}, mqadmin (users and permissions as commands, without passwords) or config.",
    value=joined(Placed("`{name}`", name=name) for name in (*UNITS, *SMALL[:-1])),
)
READ_BY = {
    **{f"{name}-rows": ("rmqstore.views.dump.message_rows", f"{name}_rows") for name in ("timer", "trans", "index")},
    "pop-rows": ("rmqstore.views.dump.message_rows", "popped_rows"),
    "compaction-queue": ("rmqstore.views.dump.compaction", "read_units"),
}
"""What reads units that only some stores have: module and function."""
_FITTING = {  # filters that apply to each kind; "topic" means --topic and --queue
    "consumequeue": {"topic", "from", "tag"},
    "batchconsumequeue": {"topic", "from", "tag", "since"},
    "compaction-queue": {"topic", "from", "tag", "since"},
    "index": {"from", "since", "topic", "key"},
    "dledger-index": {"from"},
    "timerlog": {"from", "since"},
    "timerwheel": set(),
    "timer-rows": {"from", "since"},
    "trans-rows": {"from"},
    "index-rows": {"from", "since"},
    "pop-rows": {"from", "since", "topic"},
    "checkpoint": set(),
    "mqadmin": set(),
    "config": set(),
}
_OF_PART = {  # what is printed of a part of a store
    **dict.fromkeys(("commitlog", "dledger", "dledger-group"), "messages"),
    **dict.fromkeys(("consumequeue", "consumequeue-tree", "topic"), "consumequeue"),
    **dict.fromkeys(("batchconsumequeue", "batchconsumequeue-tree"), "batchconsumequeue"),
    **{name: name for name in ("index", "dledger-index", "timerlog", "timerwheel", "config")},
}


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Which records to print, beside the shared filters, and how."""

    msg_ids: tuple[str, ...]
    start: int | None
    stop: int | None
    limit: int | None
    reverse: bool
    positions: bool
    body: str | None
    raw_body: bool

    def selection(self, filters: FilterOptions) -> Selection:
        """Return the records that all filters together select."""
        return replace(
            selection_of(filters),
            msg_ids=frozenset(i.upper() if len(i) in (32, 56) else i for i in self.msg_ids),
            start=self.start,
            stop=self.stop,
            limit=self.limit,
            reverse=self.reverse,
        )


@command(
    "dump",
    formats=("table", "ndjson", "csv", "hex"),
    filters=True,
    work=True,
    examples=(
        "rmqstore dump /data/rocketmq/store --topic Order --since -2h --body text",
        "rmqstore dump /data/rocketmq/store --what consumequeue --topic Order --queue 0 --limit 20",
        "rmqstore dump /data/rocketmq/store --from 40960 --limit 1 --format hex",
    ),
)
@click.option(
    "--what", type=click.Choice([*MESSAGES, COMPACTED, *UNITS, *SMALL, COMMANDS]), metavar="PART", help=kept(_WHAT)
)
@text_filters
@click.option(
    "--msg-id",
    "msg_ids",
    multiple=True,
    metavar="ID",
    help="Only the message with this offset id or unique id (may be repeated).",
)
@click.option("--from", "start", type=OFFSET, metavar="OFFSET", help="Only records at or after this offset.")
@click.option("--to", "stop", type=OFFSET, metavar="OFFSET", help="Only records before this offset.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print at most N records.")
@click.option("--reverse", is_flag=True, help="Print the newest records first.")
@click.option(
    "--positions",
    is_flag=True,
    help="Show what each part of the log contains, where the log ends, and where a broker's recovery would cut it.",
)
@click.option("--body", type=BODY, help="Show message bodies, in this form. They may be personal data.")
@click.option(
    "--raw-body", is_flag=True, help="Show bodies as stored, not decompressed (as base64 unless --body says otherwise)."
)
@click.option(
    "--broker",
    metavar="VERSION",
    help=kept(
        Text("With --positions: the broker version whose recovery is simulated ({versions}).", versions=VERSIONS)
    ),
)
@gathered("asked", DumpOptions)
def dump(
    out: Output,
    store: Path,
    config: BrokerConfig,
    what: str | None,
    filters: FilterOptions,
    asked: DumpOptions,
    work: WorkOptions,
) -> int:
    """Print the records of a store: messages, consume queue units, index entries, checkpoint or configuration.

    OFFSET is a log offset (bytes); with --what consumequeue a queue offset, with --what dledger-index an entry number.
    Damaged parts of the log are skipped and named on stderr, and messages with a wrong CRC are printed with crc_ok
    false; in both cases the exit code is 1. --format hex shows the bytes of each record; with --from also of a damaged
    one.

    CSV has all texts exactly, for programs: a spreadsheet would run one that begins with =, +, - or @ as a formula.
    """
    from rmqstore.messages.rows import BodyStyle
    from rmqstore.views.dump.messages import CHUNK, Job

    opened = open_named(store, config)
    what = what or _OF_PART.get(opened.part or "commitlog", "checkpoint")
    selection = asked.selection(filters)
    _refuse_what_does_not_apply(out, what, selection, asked.positions)
    note_unknown_topics(out, opened, filters.topics, selection.queues)
    live = note_live(out, opened, Text("what it writes from now on may be missing"))
    if asked.positions:
        return _shown_by("positions")(out, opened, what, work.broker, work.jobs)
    if what in UNITS:
        return dump_units(out, opened, what, selection)
    if what == COMMANDS:
        return _shown_by(what)(out, opened)
    if what in SMALL:
        return dump_small(out, opened, what, asked.limit)
    if what == COMPACTED:
        return _shown_by(what)(out, opened, selection, asked, work)
    style = BodyStyle(asked.body or ("base64" if asked.raw_body else None), asked.raw_body)
    if out.format == "hex":
        return _shown_by("hex")(out, opened, what, selection, shown=style.style is not None)
    scan = work.scanning(live, chunk=CHUNK)
    job = Job(selection, "text", what == "dledger", style, foreign=what == "commitlog", iso=out.iso, scan=scan)
    return _messages(out, opened, what, job, work)


def _shown_by(name: str) -> Callable[..., int]:
    show: Callable[..., int] = importlib.import_module(SHOWN_BY[name]).show
    return show


def _refuse_what_does_not_apply(out: Output, what: str, selection: Selection, positions: bool) -> None:
    """Errors: UsageError."""
    if what not in MESSAGES and (positions or out.format == "hex"):
        option = "--positions" if positions else "--format hex"
        raise UsageError(
            Text("{option} does not apply to --what {what}", option=option, what=what),
            Text("use messages, commitlog or dledger"),
        )
    if what == COMPACTED and selection.reverse:
        raise UsageError(Text("--reverse does not apply to --what {what}", what=what), Text("leave it out"))
    if positions:
        refuse_with_positions(out, selection)
    elif what == COMPACTED:
        return
    elif what not in MESSAGES:
        refuse_filters(what, selection, _FITTING[what])
        if what in ROWS and selection.reverse:
            raise UsageError(Text("--reverse does not apply to --what {what}", what=what), Text("leave it out"))
    else:
        note_log_offsets(out, selection)


# --- units and small files --------------------------------------------------------------------------------------------


def dump_units(out: Output, store: Store, what: str, selection: Selection) -> int:
    """Print the units of queues, indexes or timers; return the exit code. Errors: UsageError."""
    from rmqstore.files.rocksdb.database import CannotRead, is_readable, missing_extra
    from rmqstore.views.dump.batches import UNPARSED, batch_length, batch_lines, batch_rows
    from rmqstore.views.dump.units import READERS

    read = READERS[what] if what in READERS else _read_by(what)
    directory = _database(store, what)
    if directory and not is_readable() and not (store.light_in_rocksdb and what == "consumequeue"):
        out.note(
            Text(
                "warning: {folder}/ is a RocksDB, and its rows cannot be read: that {why}",
                folder=directory,
                why=missing_extra(),
            )
        )
        return 4
    problem = ""
    left = selection.limit
    unparsed = 0

    def batches() -> Iterator[Any]:
        nonlocal problem, left, unparsed
        try:
            for batch in read(store, selection):
                unparsed += batch_length(batch) if UNPARSED in batch else 0
                if left is None:
                    yield batch
                    continue
                yield {k: v if isinstance(v, (str, int)) else v[:left] for k, v in batch.items()}
                left -= min(left, batch_length(batch))
                if left == 0:
                    return
        except CannotRead as e:
            problem = reason(e)

    found = 0
    if out.format == "ndjson" and not (out.string_ints or out.iso):
        with out.stream(data=True) as file:
            for batch in batches():
                found += batch_length(batch)
                file.write(("\n".join(batch_lines(batch)) + "\n").encode())
    else:
        found = write_rows(out, (row for batch in batches() for row in batch_rows(batch)), exact=True)
    if not found and not problem:
        note_no_match(out, Text("{what} entry", what=what), selection, [str(store.path)])
    if unparsed:
        out.note(Text("warning: {rows} could not be parsed", rows=many(unparsed, "row")))
    if problem:
        words = Text("warning: the RocksDB in {folder}/ cannot be read completely: {problem}")
        out.note(words.format(folder=directory, problem=problem))
    return 4 if problem else 1 if unparsed else 0


def _read_by(what: str) -> Callable[[Store, Selection], Iterator[Any]]:
    module, name = READ_BY[what]
    read: Callable[[Store, Selection], Iterator[Any]] = getattr(importlib.import_module(module), name)
    return read


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

    rows = checkpoint_rows(store) if what == "checkpoint" else config_rows(store)
    bad, unread = 0, False

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal bad, unread
        for row in rows if limit is None else islice(rows, min(limit, sys.maxsize)):
            unread |= row.get("condition") == "not-read"
            bad += row.get("condition", "sound") != "sound" or bool(row.get("faults"))
            yield row

    write_rows(out, counted(), exact=True)
    if bad:
        out.note(Text("warning: {files} could not be parsed", files=many(bad, "file")))
    return 4 if unread else 1 if bad else 0


# --- messages --------------------------------------------------------------------------------------------------------


_MESSAGE_COLUMNS = (
    "offset",
    "store_timestamp",
    "topic",
    "queue_id",
    "queue_offset",
    "keys",
    "tags",
    "crc_ok",
    "body_length",
)


_ENTRY_COLUMNS = ("offset", "index", "term", "size", "body_length")


def _messages(out: Output, store: Store, what: str, job: Job, work: WorkOptions) -> int:
    from rmqstore.views.dump.messages import Skipped, logs_of

    logs = logs_of(store, what)
    refuse_without_log(store)
    damage = Skipped(live=job.scan.drop_cache)
    total = sum(log.queue.bytes_on_disk for log in logs)
    if not write_messages(out, store, what, job, damage, total, work.processes(total)):
        note_no_message(out, job.selection, logs, Text("DLedger entry") if job.entries else Text("message"))
    return tell_damage(out, damage)


def write_messages(out: Output, store: Store, what: str, job: Job, damage: Skipped, total: int, count: int) -> int:
    """Print messages, whose logs have `total` bytes, with `count` processes; return their number."""
    from rmqstore.scan.columns import NOTHING
    from rmqstore.views.dump.messages import read_messages

    if form := _text_form(out, job):
        job = replace(job, form=form)
        with out.progress("dump", total) as progress:
            return write_text(out, store, what, job, damage, count, progress)
    columns = _ENTRY_COLUMNS if job.entries else _MESSAGE_COLUMNS
    if out.format == "table" and not job.entries and job.instead is None:
        from rmqstore.messages.repaired import repaired_records

        job = replace(job, selection=replace(job.selection, repaired=repaired_records(store)))
    rows: Iterable[dict[str, Any]] = chain.from_iterable(read_messages(store, what, job, damage, jobs=count))
    if job.selection.repaired != NOTHING:
        rows, columns = map(_with_repair, rows), (*columns[:5], "repair", *columns[5:])
    if job.body.style and out.format == "table":
        rows, columns = map(with_body, rows), (*columns, "body")
    elif job.body.style and out.format == "csv":
        rows = (_with_columns_of_body(row, str(job.body.style)) for row in rows)
    return write_rows(out, rows, columns, exact=True)


def _with_repair(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table with what a repair did to the record."""
    return row | {"repair": "filler" if row["filler"] else "mended" if row["mended"] else None}


def _with_columns_of_body(row: dict[str, Any], style: str) -> dict[str, Any]:
    """Return a row with all fields that a body can have: rows of CSV have the same columns."""
    if "message" in row:
        return row | {"message": _with_columns_of_body(row["message"], style)}
    names = ("body_error", f"body_{style}") if style in ("hex", "base64") else ("body_error", "body", "body_base64")
    bodies = {name: row.get(name) for name in names}
    return {name: value for name, value in row.items() if name not in bodies} | bodies


def _text_form(out: Output, job: Job) -> str:
    """Return the format that `views.dump` writes itself ("text" is NDJSON); "" if rows are formatted here."""
    if out.format == "ndjson" and not out.string_ints:
        return "text"
    whole = job.selection.limit is None and not job.selection.reverse  # CSV rows cannot be counted or reversed as lines
    return "csv" if out.format == "csv" and whole and not job.body.style else ""
