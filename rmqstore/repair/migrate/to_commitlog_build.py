"""Converts a DLedger store to a plain one in a new directory; the source is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.readdress import (
    WHEEL_TOPIC,
    IdMap,
    Readdressing,
    ReaddressOptions,
    building,
    copy_file,
    copy_tree,
    fix_timercheck,
    relay_timer_log,
)
from rmqstore.checks.beside.index import indexes_tags
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.verify import Verified
from rmqstore.errors import PlanStale
from rmqstore.files.broker_config import BATCH_FILE_SIZE, CONSUME_QUEUE_FILE_SIZE
from rmqstore.files.files import LOCAL
from rmqstore.files.index import index_sizes
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats.properties import LMQ_PREFIX, is_lmq, is_system_topic
from rmqstore.repair.migrate.to_commitlog import COPIED_FILES, COPIED_TREES, CommitLogMigration
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import one_ahead
from rmqstore.texts import Text

Progress = Callable[[int], None]


@dataclass(slots=True)
class Built:
    """What was built: converted messages, log end (`wrote`), commitlog files, copied files, dangling references."""

    messages: int = 0
    wrote: int = 0
    files: int = 0
    copied: int = 0
    unmapped: int = 0
    notes: list[str] = field(default_factory=list)


def migrate_to_commitlog(
    store: Store,
    verified: Verified,
    migration: CommitLogMigration,
    output: Path,
    id_map: Path | None = None,
    progress: Progress | None = None,
) -> Built:
    """Build the plain store at `output`, which appears once it is complete.

    Errors: OutputExists, NoSpace, NotReadable; PlanStale if the source has changed since it was verified.
    """
    log = verified.dledger
    assert log is not None
    assert migration.ready
    built = Built(notes=list(migration.notes))
    ids = IdMap(id_map) if id_map is not None else None
    try:
        with building(output) as place:
            relay = Readdressing(place, _options(store, verified, migration), ids)
            try:
                _relay(relay, verified, migration, progress)
                built.wrote = relay.position
                relay.finish()
            except BaseException:
                relay.abandon()
                raise
            built.messages, built.unmapped = relay.messages, relay.unmapped
            built.files = len(LOCAL.list(place / "commitlog"))
            built.copied = _copy_rest(store, place, relay, migration, built)
            if ids is not None:
                ids.finish()
    finally:
        if ids is not None:
            ids.discard()
    return built


def _relay(relay: Readdressing, verified: Verified, migration: CommitLogMigration, progress: Progress | None) -> None:
    legacy, log = verified.legacy, verified.dledger
    assert log is not None
    kept = 0
    if legacy is not None:
        for file in legacy.queue.files:
            relay.copy_legacy(file)
            for columns in one_ahead(_columns(legacy, file)):
                relay.keep(columns)
                kept += len(columns)
            if progress is not None:
                progress(file.length)
    for file in log.queue.files:
        for columns in one_ahead(_columns(log, file)):
            taken = columns.slice(0, int((columns.entry_index <= migration.last_index).sum()))
            if len(taken):
                relay.add(taken)
        if progress is not None:
            progress(file.length)
    if (kept, relay.messages) != (migration.legacy_messages, migration.entries):
        found, wanted = kept + relay.messages, migration.legacy_messages + migration.entries
        raise PlanStale(
            Text(
                "{store} changed while it was read: {found:,} of {wanted:,} messages were found",
                store=migration.store,
                found=found,
                wanted=wanted,
            )
        )


def _columns(log: LogResult, file: MappedFile) -> Iterator[Columns]:
    """Yield the good records of one file, up to the log's end."""
    if file.start >= log.wrote:
        return
    for run in scan_file(file, body_offset=log.body_offset, options=ScanOptions()):
        if run.kind is Kind.RECORDS and run.columns is not None and run.start < log.wrote:
            yield run.columns.copied().slice(0, int((run.columns.offset < log.wrote).sum()))


def _options(store: Store, verified: Verified, migration: CommitLogMigration) -> ReaddressOptions:
    config = store.config
    slots, units = _index_sizes(store, verified)
    light = any(topic.startswith(LMQ_PREFIX) for topic, _, _ in store.queue_directories(QueueKind.SIMPLE))
    dispatch = DispatchOptions(
        consume_queue_file_size=store.queue_file_size(QueueKind.SIMPLE) or CONSUME_QUEUE_FILE_SIZE,
        batch_file_size=store.queue_file_size(QueueKind.BATCH) or BATCH_FILE_SIZE,
        index=config.bool("messageIndexEnable"),
        tag_key=indexes_tags(store, verified.logs, [e.path for e in reversed(store.index_files)], slots),
        lmq=light or (config.bool("enableLmq") and config.bool("enableMultiDispatch")),
        batch_topics=verified.batch_topics,
        delay_levels=delay_levels(store),
    )
    return ReaddressOptions(migration.file_size, migration.start, dispatch, slots, units, _known(store, verified))


def _index_sizes(store: Store, verified: Verified) -> tuple[int, int]:
    """Return the numbers of slots and units of the store's index files; a setting in broker.conf takes precedence."""
    config = store.config
    slots, units = config.int("maxHashSlotNum"), config.int("maxIndexNum")
    if config.given_int("maxHashSlotNum") is not None or not store.index_files:
        return slots, units
    return index_sizes(store) or (slots, units)


def _known(store: Store, verified: Verified) -> Callable[[str, int], bool]:
    """Return a function that returns whether a queue exists: it has a directory, or its topic was not deleted."""
    kinds = (QueueKind.SIMPLE, QueueKind.BATCH)
    there = {(topic, queue_id) for kind in kinds for topic, queue_id, _ in store.queue_directories(kind)}
    types = verified.config.queue_types

    def known(topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in there or types is None or topic in types or is_system_topic(topic) or is_lmq(topic)

    return known


def _copy_rest(store: Store, place: Path, relay: Readdressing, migration: CommitLogMigration, built: Built) -> int:
    """Copy the configuration, and the timers with new addresses; return the number of files."""
    count = 0
    for name in COPIED_TREES:
        source = store.root / name
        if store.files.is_directory(source):
            count += copy_tree(source, place / name)
    timers = [n for n in sorted(store.top) if n in COPIED_FILES or n.startswith("timerwheel.")]
    for name in timers:
        copy_file(store.root / name, place / name)
        count += 1
    if store.timer_log is not None and store.timer_log.files:
        assert store.dledger is not None
        first_moved = store.dledger.data.start  # the old address of the first converted record
        cut = relay_timer_log(store.timer_log, place, relay.find_address, first_moved)
        count += len(store.timer_log.files)
        if cut is not None:
            end = relay.max_offset(WHEEL_TOPIC.decode(), 0)
            fix_timercheck(place / "config" / "timercheck", cut, end)
            built.notes.append(
                Text("the timer log was cut at {cut}: messages of later units were not migrated", cut=cut)
            )
    return count
