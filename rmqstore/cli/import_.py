"""`rmqstore import`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.options import command
from rmqstore.cli.output import Output
from rmqstore.cli.quantities import many
from rmqstore.errors import NotAStore, OutputExists, UsageError

if TYPE_CHECKING:
    from rmqstore.append.exchange import Row
    from rmqstore.append.store.message_store import StoreOptions
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.dump.messages import Damage


@command(
    "import",
    store=False,
    examples=(
        "rmqstore import all.ndjson --output /data/rocketmq/new",
        "rmqstore import order.parquet --output new -c broker.conf --topic-map Order=Order_copy --renumber",
        "rmqstore import /data/rocketmq/damaged --output new --renumber --flush sync",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False), metavar="FILE…")
@click.option(
    "--output",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The new store; it must not be there yet, and appears when it is whole.",
)
@click.option(
    "-c",
    "--config",
    "broker_conf",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="broker.conf: file sizes and switches of the new store.",
)
@click.option("--renumber", is_flag=True, help="Number every queue anew from 0; else offsets are kept.")
@click.option("--topic-map", multiple=True, metavar="A=B", help="Messages of topic A go to B (may be repeated).")
@click.option("--now", is_flag=True, help="Stamp messages with the clock; else store timestamps are kept.")
@click.option("--flush", type=click.Choice(["sync", "async"]), default="async", help="Each batch to the disk, or not.")
@click.option("--dledger", metavar="ID", help="A DLedger store with this self id, such as n0.")
@click.option("--batch-topic", "batch_topics", multiple=True, metavar="NAME", help="A topic of queue.type=BatchCQ.")
@click.option("--no-tag-index", is_flag=True, help="No index entries for TAGS (brokers before 5.4.0 make none).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--dry-run", is_flag=True, help="Read and check every row, write nothing.")
def import_(
    out: Output,
    files: tuple[Path, ...],
    target: Path,
    broker_conf: Path | None,
    renumber: bool,
    topic_map: tuple[str, ...],
    now: bool,
    flush: str,
    dledger: str | None,
    batch_topics: tuple[str, ...],
    no_tag_index: bool,
    dry_run: bool,
) -> int:
    """A new store from exported messages (.ndjson, .csv, .parquet), or from the good messages of another store.

    It is built beside its place and renamed at the end; interrupted, the same command goes on where it was. Queue
    offsets are kept, which asks for whole queues: for a selection with gaps, or a damaged store, give --renumber. A
    bad row is an error with its line, and nothing of the new store stays then. Damaged spans of a store are passed
    over, said on stderr, and make the exit code 1.
    """
    from rmqstore.append.exchange import message_of
    from rmqstore.append.importing import ImportOptions, fingerprint, import_messages
    from rmqstore.brokers.load.config import batch_topics as topics_of_batches
    from rmqstore.cli.dump import tell_damage
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.dump.messages import Damage

    config = BrokerConfig.read(broker_conf) if broker_conf else BrokerConfig()
    batches = frozenset(batch_topics).union(*(topics_of_batches(path) for path in files if path.is_dir()))
    options = ImportOptions(
        store=_store_options(config, flush, dledger, batches, not no_tag_index),
        renumber=renumber,
        keep_timestamps=not now,
        topic_map=_topics(topic_map),
    )
    for source in files:
        if source.is_dir():
            Output(path=target).keep_out_of(source)
    damage = Damage()
    rows = _rows(files, damage)
    if dry_run:
        if target.exists():
            raise OutputExists(f"{target} is there already")
        count = len([message_of(row, where).queue_id for where, row in rows])
        _say(out, target, count, 0, {}, applied=False)
        return tell_damage(out, damage)
    with out.progress("import", unit=" messages") as progress:
        done = import_messages(rows, target, options, fingerprint(files, options), progress=progress)
    _say(out, target, done.messages, done.resumed, dict(done.queues), applied=True)
    return tell_damage(out, damage)


def _say(out: Output, target: Path, messages: int, resumed: int, queues: dict[str, int], *, applied: bool) -> None:
    if out.as_json:
        report: dict[str, Any] = {
            "schema": "rmqstore.import/1",
            "output": str(target),
            "applied": applied,
            "messages": messages,
            "resumed": resumed,
            "queues": queues,
        }
        out.report(report)
    elif not applied:
        out.lines([f"{many(messages, 'message')} can be imported into {target}; nothing was written."])
    else:
        before = f" ({resumed:,} of them by a run before)" if resumed else ""
        out.lines([f"{many(messages, 'message')}{before} in {many(len(queues), 'queue')}: {target}"])


def _rows(files: tuple[Path, ...], damage: Damage) -> Iterator[tuple[str, Row]]:
    from rmqstore.append.importing import rows_of

    for path in files:
        if path.is_dir():
            yield from _rows_of_store(path, damage)
        else:
            yield from rows_of(path)


def _rows_of_store(path: Path, damage: Damage) -> Iterator[tuple[str, Row]]:
    from rmqstore.files.store import open_store
    from rmqstore.views.dump.messages import logs_of
    from rmqstore.views.export import export_messages

    store = open_store(path)
    if not logs_of(store):
        raise NotAStore(f"{path} has no log", "`rmqstore export STORE -c broker.conf` reads a log that is elsewhere")
    number = 0
    for rows in export_messages(store, damage=damage):
        for row in rows:
            number += 1
            yield f"{path}: message {number}", row


def _topics(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not old or not new:
            raise UsageError(f"--topic-map {text!r}", "give it as OLD=NEW")
        found[old] = new
    return found


def _store_options(
    config: BrokerConfig, flush: str, dledger: str | None, batch_topics: frozenset[str], tag_key: bool
) -> StoreOptions:
    """The settings of the new store: broker.conf's, where there is one."""
    from rmqstore.append.files.flush import FlushPolicy
    from rmqstore.append.store.dispatch import DispatchOptions
    from rmqstore.append.store.encoder import Limits
    from rmqstore.append.store.message_store import StoreOptions
    from rmqstore.formats.consumequeue import round_file_size
    from rmqstore.formats.properties import parse_delay_levels

    if dledger is None and config.bool("enableDLegerCommitLog"):
        dledger = config.text("dLegerSelfId") or "n0"
    numbers_lmq = config.bool("enableLmq") and config.bool("enableMultiDispatch")
    try:
        levels = parse_delay_levels(config.text("messageDelayLevel"))
    except ValueError as error:
        raise UsageError(str(error), "correct broker.conf") from error
    return StoreOptions(
        commitlog_file_size=config.int("mappedFileSizeCommitLog"),
        index_slots=config.int("maxHashSlotNum"),
        index_units=config.int("maxIndexNum"),
        limits=Limits(max_message_size=config.int("maxMessageSize"), append_crc=config.bool("enabledAppendPropCRC")),
        dispatch=DispatchOptions(
            consume_queue_file_size=round_file_size(config.int("mappedFileSizeConsumeQueue")),
            batch_file_size=config.int("mapperFileSizeBatchConsumeQueue"),
            index=config.bool("messageIndexEnable"),
            tag_key=tag_key,
            lmq=numbers_lmq or "enableMultiDispatch" not in config.given,  # what was in light queues stays in them
            numbers_lmq=numbers_lmq,
            batch_topics=batch_topics,
            delay_levels=levels,
        ),
        flush=FlushPolicy(flush),
        dledger=dledger,
    )
