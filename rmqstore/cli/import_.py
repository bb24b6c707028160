"""`rmqstore import`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output, refuse_inside, warn
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.options import (
    PATH,
    SOURCE,
    command,
    config_option,
    gathered,
    json_option,
    read_config,
    root_option,
    topic_map,
)
from rmqstore.cli.shared.rights import rights_options
from rmqstore.cli.shared.signals import end_like_ctrl_c
from rmqstore.errors import NoSpace, NotAStore, OutputExists, Refused, UsageError, reason
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.append.exchange import TableChunk
    from rmqstore.append.importing import Imported, ImportOptions
    from rmqstore.append.message_store import StoreOptions
    from rmqstore.append.rights import GivenRights
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.repair.importing import IntoStore
    from rmqstore.repair.journal.journal import Applied
    from rmqstore.views.dump.messages import Skipped


@dataclass(frozen=True, slots=True)
class ImportFlags:
    """How messages become those of the other store, and which directories outside of it may be changed."""

    renumber: bool
    topic_map: tuple[str, ...]
    now: bool
    flush: str
    dledger: str | None
    batch_topics: tuple[str, ...]
    no_tag_index: bool
    roots: tuple[Path, ...]
    rights: GivenRights

    def options(self, config: BrokerConfig, batch_topics: frozenset[str]) -> ImportOptions:
        """Return the options of the import; `batch_topics`: BatchCQ topics of the sources."""
        from rmqstore.append.importing import ImportOptions

        return ImportOptions(
            store=_store_options(self, config, batch_topics.union(self.batch_topics)),
            renumber=self.renumber,
            keep_timestamps=not self.now,
            topic_map=topic_map(self.topic_map),
        )


@command(
    "import",
    store=False,
    examples=(
        "rmqstore import order.parquet -o new -c broker.conf --topic-map Order=Order_copy --renumber",
        "rmqstore import /data/rocketmq/damaged -o new --renumber --flush sync",
        "rmqstore import lost.ndjson --into /data/rocketmq/store --renumber",
    ),
)
@click.argument("files", nargs=-1, required=True, type=SOURCE, metavar="FILE…")
@click.option(
    "-o",
    "--output",
    "target",
    type=PATH,
    metavar="DIR",
    help="Directory of the new store. It must not exist; it appears when the import is complete.",
)
@click.option(
    "--into",
    type=PATH,
    metavar="STORE",
    help="Append to this store instead. It must have no problems, and its broker must be stopped.",
)
@config_option(Text("broker.conf with file sizes and other settings of the new store."))
@click.option(
    "--renumber", is_flag=True, help="Number each queue's messages from 0. Without it, queue offsets are kept."
)
@click.option("--topic-map", multiple=True, metavar="OLD=NEW", help="Write messages of OLD to NEW (may be repeated).")
@click.option("--now", is_flag=True, help="Set store timestamps to the current time. Without it, they are kept.")
@click.option(
    "--flush",
    type=click.Choice(["sync", "async"]),
    default="async",
    help="Flush each batch to disk (sync), or leave that to the system (async, the default).",
)
@click.option("--dledger", metavar="ID", help="Create a DLedger store with this dLegerSelfId, such as n0.")
@click.option(
    "--batch-topic",
    "batch_topics",
    multiple=True,
    metavar="NAME",
    help="Topic with queue.type=BatchCQ (may be repeated).",
)
@click.option("--no-tag-index", is_flag=True, help="Do not index TAGS, like brokers before 5.4.0.")
@rights_options
@root_option
@json_option
@click.option("--dry-run", is_flag=True, help="Read and check every row; write nothing.")
@gathered("how", ImportFlags)
def import_(
    out: Output,
    files: tuple[Path, ...],
    target: Path | None,
    into: Path | None,
    broker_conf: Path | None,
    how: ImportFlags,
    dry_run: bool,
) -> int:
    """Create a store from exported messages (NDJSON, CSV, Parquet, Arrow), or from the valid messages of another store.

    The store is built in .NAME.importing beside DIR and renamed at the end. After an interruption or a full disk, run
    the same command again to continue. Queue offsets are kept, which requires queues without gaps: use --renumber for a
    selection of messages, or for a damaged store. Owner and modes are those of another store, and private for files,
    unless --owner and --mode say otherwise. An invalid row ends the import: the error names file and line, and nothing
    is left behind. Damaged parts of a source store are skipped and named on stderr; the exit code is then 1.

    With --into, the messages are appended to an existing store. All of them and the free space are checked first: if
    one is invalid, the store does not change. Their queue offsets must continue its queues, or --renumber assigns new
    ones. After an interruption or a full disk, the same command continues, and no message is appended twice. `rmqstore
    undo` restores the store, before and after the end.
    """
    from rmqstore.append.importing import Imported, fingerprint, import_messages, prepared
    from rmqstore.append.rights import GivenRights, rights_of
    from rmqstore.cli.shared.apply_command import after_apply
    from rmqstore.cli.shared.messages import tell_damage
    from rmqstore.files.config import batch_topics as topics_of_batches
    from rmqstore.files.config import configured_types
    from rmqstore.files.store import open_store
    from rmqstore.views.dump.messages import Skipped

    config = read_config(out, broker_conf)
    stores = [open_store(path) for path in files if path.is_dir()]
    batches = frozenset[str]().union(*(topics_of_batches(s, configured_types(s.files, s.root)) for s in stores))
    options = how.options(config, batches)
    if (target is None) == (into is None):
        raise UsageError(
            Text("give either --output or --into"), Text("--output DIR makes a new store, --into STORE appends to one")
        )
    if into is not None and how.rights != GivenRights():
        raise UsageError(
            Text("--owner and --mode are for a new store"), Text("the files of a store have those of their neighbours")
        )
    how.rights.check()
    place = target or into
    assert place is not None
    for source in files:
        if source.is_dir():
            refuse_inside(place, source)
    damage = Skipped()
    if into is not None:
        if dry_run:
            raise UsageError(
                Text("--dry-run does not apply to --into"), Text("every message is checked before one is written")
            )
        appended = _append_to(out, into, files, options, config, how.roots, damage)
        said = contextlib.nullcontext() if appended.known else after_apply(out, appended.applied)
        with said:
            _say(out, into, appended.imported, applied_as=appended.applied, known=appended.known)
            return tell_damage(out, damage)
    chunks = _chunks(files, damage)
    if dry_run:
        if place.exists():
            raise OutputExists(Text("{place} already exists", place=place))
        count = sum(len(prepared(table, options)) for table, _ in chunks)
        _say(out, place, Imported(count, 0, {}), applied=False)
        return tell_damage(out, damage)
    with _naming_unfinished(place), out.progress("import", unit=Text(" messages")) as progress:
        done = import_messages(
            chunks,
            place,
            options,
            fingerprint(files, options),
            rights=how.rights,
            source=rights_of(stores[0]) if stores else None,
            progress=progress,
        )
    _say(out, place, done)
    if done.note is not None:
        out.note(Text("note: {note}", note=done.note))
    return tell_damage(out, damage)


def _append_to(
    out: Output,
    place: Path,
    files: tuple[Path, ...],
    options: ImportOptions,
    config: BrokerConfig,
    roots: tuple[Path, ...],
    damage: Skipped,
) -> IntoStore:
    """Append to a store without problems. Errors: Refused for a store with problems; as `import_into`."""
    from rmqstore.append.importing import fingerprint
    from rmqstore.checks.examine import examine
    from rmqstore.files.store import open_store
    from rmqstore.repair.importing import ImportSource, import_into
    from rmqstore.views.dump.messages import Skipped

    opened = open_store(place, config)
    reads = [Skipped()]

    def check() -> None:
        report = examine(opened).report
        if not report.clean:
            found = joined(sorted(report.findings.counts)) or (report.unchecked or ["it was not checked completely"])[0]
            raise Refused(
                Text("{place} has problems: {found}", place=place, found=found),
                Text("see `rmqstore verify {place}`, and repair it", place=shlex.quote(str(place))),
            )

    def chunks() -> Iterator[TableChunk]:
        reads.append(Skipped())
        return _chunks(files, reads[-1])

    source = ImportSource(chunks, lambda: fingerprint(files, options))
    with end_like_ctrl_c(), out.progress("import", unit=Text(" messages")) as progress:
        done = import_into(opened, source, options, check=check, roots=roots, progress=progress)
    damage.take(reads[-1])
    return done


def _say(
    out: Output,
    target: Path,
    done: Imported,
    *,
    applied: bool = True,
    applied_as: Applied | None = None,
    known: bool = False,
) -> None:
    if out.as_json:
        report: dict[str, Any] = {
            "schema": "rmqstore.import/1",
            "output": str(target),
            "applied": applied,
            "messages": done.messages,
            "resumed": done.resumed,
            "queues": dict(done.queues),
            "journal": str(applied_as.journal) if applied_as is not None else None,
        }
        out.report(report)
    elif not applied:
        words = Text("{messages} can be imported into {target}. Nothing was written (--dry-run).")
        out.lines([words.format(messages=many(done.messages, "message"), target=target)])
    elif known and applied_as is not None:
        from rmqstore.cli.shared.apply_command import undo_command

        words = Text("{target} has these {messages} already: an earlier run imported them. To undo that: {undo}")
        count = many(done.messages, "message")
        out.lines([words.format(messages=count, target=target, undo=undo_command(applied_as))])
    else:
        resumed = done.resumed
        before = Text(" ({resumed:,} of them imported by an earlier run)", resumed=resumed) if resumed else ""
        count, places = many(done.messages, "message"), many(len(done.queues), "queue")
        what = Text("{messages}{before} in {queues}", messages=count, before=before, queues=places)
        out.lines([Text("Imported {what} into {target}", what=what, target=target)])


@contextlib.contextmanager
def _naming_unfinished(target: Path) -> Iterator[None]:
    """Name the unfinished store after a full disk or an interruption: the next run continues it."""
    from rmqstore.append.importing import building_of

    try:
        yield
    except (OSError, NoSpace, KeyboardInterrupt):
        building = building_of(target)
        if building.exists():
            remove = shlex.join(["rm", "-r", str(building), f"{building}.json"])
            words = Text(
                "The unfinished store is {path}. Run the same command again to continue, or remove it: {remove}"
            )
            warn(words.format(path=building, remove=remove))
        raise


def _chunks(files: tuple[Path, ...], damage: Skipped) -> Iterator[TableChunk]:
    from rmqstore.append.exported_files import tables_of

    for path in files:
        if path.is_dir():
            yield from _chunks_of_store(path, damage)
        else:
            yield from tables_of(path)


def _chunks_of_store(path: Path, damage: Skipped) -> Iterator[TableChunk]:
    from rmqstore.append.exchange import TableChunk
    from rmqstore.files.store import open_store
    from rmqstore.views.dump.messages import logs_of, read_tables

    store = open_store(path)
    if not logs_of(store):
        raise NotAStore(
            Text("{path} has no log", path=path),
            Text("`rmqstore export STORE -c broker.conf` reads a log that is elsewhere"),
        )
    number = 0
    for table in read_tables(store, damage):

        def where(i: int, first: int = number + 1) -> str:
            return Text("{path}: message {first}", path=path, first=first + i)

        yield TableChunk(table, where)
        number += len(table)


def _store_options(how: ImportFlags, config: BrokerConfig, batch_topics: frozenset[str]) -> StoreOptions:
    """Return the settings of the new store, from the options and broker.conf."""
    from rmqstore.append.dispatch import DispatchOptions
    from rmqstore.append.encoder import Limits
    from rmqstore.append.flush import FlushPolicy
    from rmqstore.append.message_store import StoreOptions
    from rmqstore.formats.consumequeue import round_file_size
    from rmqstore.formats.properties import parse_delay_levels

    dledger = how.dledger
    if dledger is None and config.bool("enableDLegerCommitLog"):
        dledger = config.text("dLegerSelfId") or "n0"
    numbers_lmq = config.bool("enableLmq") and config.bool("enableMultiDispatch")
    try:
        levels = parse_delay_levels(config.text("messageDelayLevel"))
    except ValueError as error:
        raise UsageError(reason(error), Text("correct broker.conf")) from error
    return StoreOptions(
        commitlog_file_size=config.int("mappedFileSizeCommitLog"),
        index_slots=config.int("maxHashSlotNum"),
        index_units=config.int("maxIndexNum"),
        limits=Limits(max_message_size=config.int("maxMessageSize"), append_crc=config.bool("enabledAppendPropCRC")),
        dispatch=DispatchOptions(
            consume_queue_file_size=round_file_size(config.int("mappedFileSizeConsumeQueue")),
            batch_file_size=config.int("mapperFileSizeBatchConsumeQueue"),
            index=config.bool("messageIndexEnable"),
            tag_key=not how.no_tag_index,
            lmq=numbers_lmq or "enableMultiDispatch" not in config.given,  # messages in light queues stay there
            numbers_lmq=numbers_lmq,
            batch_topics=batch_topics,
            delay_levels=levels,
        ),
        flush=FlushPolicy(how.flush),
        dledger=dledger,
    )
