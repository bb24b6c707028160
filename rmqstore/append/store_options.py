"""The settings of a writable store: given ones, and those of an existing store.

A writer with wrong settings destroys a store: it overwrites the legacy log, truncates queues that look damaged, or
extends index files. So settings that are not given come from the files, before anything is opened for writing, and
settings that contradict them are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import Limits
from rmqstore.append.flush import FlushIntervals, FlushPolicy
from rmqstore.brokers.load import batch_topics
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.errors import NotAStore, Refused, about
from rmqstore.files.broker_config import BATCH_FILE_SIZE, COMMITLOG_FILE_SIZE, CONSUME_QUEUE_FILE_SIZE, BrokerConfig
from rmqstore.files.files import LOCAL
from rmqstore.files.index import sizes_on_disk
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.formats import index
from rmqstore.formats.checkpoint import FILE_SIZE, parse_checkpoint
from rmqstore.formats.consumequeue import UNIT, is_message_unit, round_file_size
from rmqstore.formats.dledger import parse_currterm
from rmqstore.formats.javatext import parse_int
from rmqstore.formats.message import parse_message
from rmqstore.formats.properties import (
    DEFAULT_DELAY_LEVELS,
    DELAY,
    SCHEDULE_TOPIC,
    DelayLevels,
    is_lmq,
    parse_delay_levels,
    parse_properties,
)
from rmqstore.scan.units import last_nonzero
from rmqstore.texts import Text, many


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The broker settings that determine the bytes of a store, and how it is written; sizes in bytes.

    A size of 0 means not given: an existing store keeps its own, a new one gets RocketMQ's default.
    `dledger` is the self id (`n0`) of the only member of a DLedger group, None for a plain store, and `term` its first
    term. `directories` contain the log files (several for multi-path), by default one directory in the store. `start`
    is the offset of the first log file. `warm` preallocates new files. `open` follows the rules of RocketMQ `version`.
    With `write_through` a message is written to the operating system before it is acknowledged, and so survives the
    death of the process, as in a broker. Without it, writing is faster, but up to 64 KiB of the log may be lost.
    """

    commitlog_file_size: int = 0
    index_slots: int = 0
    index_units: int = 0
    limits: Limits = field(default_factory=Limits)
    dispatch: DispatchOptions = field(default_factory=DispatchOptions)
    flush: FlushPolicy = FlushPolicy.ASYNC
    intervals: FlushIntervals = field(default_factory=FlushIntervals)
    dledger: str | None = None
    term: int = 0
    directories: tuple[Path, ...] = ()
    start: int = 0
    warm: bool = False
    version: str | None = None
    write_through: bool = True

    def with_defaults(self) -> StoreOptions:
        """Return these options with RocketMQ's defaults for everything that is not given."""
        dispatch = self.dispatch
        return replace(
            self,
            commitlog_file_size=self.commitlog_file_size or COMMITLOG_FILE_SIZE,
            index_slots=self.index_slots or index.DEFAULT_SLOTS,
            index_units=self.index_units or index.DEFAULT_UNITS,
            dispatch=replace(
                dispatch,
                consume_queue_file_size=dispatch.consume_queue_file_size or CONSUME_QUEUE_FILE_SIZE,
                batch_file_size=dispatch.batch_file_size or BATCH_FILE_SIZE,
                delay_levels=dispatch.delay_levels or DEFAULT_DELAY_LEVELS,
            ),
        )


_EMPTY = {"lock", "abort", "checkpoint"}
_HEAD = 4 << 20


def options_of_store(root: Path, options: StoreOptions, config: BrokerConfig | None = None) -> StoreOptions:
    """Complete the options from broker.conf, if given, and from the files of the store.

    Errors: Refused if options or broker.conf contradict the files, or if the log is a replica, which no single writer
    may append to (a slave, a member of a larger DLedger group); NotAStore, NotReadable.
    """
    config = config or BrokerConfig()
    options = _with_config(options, config)
    if root.is_dir() and {e.path.name for e in LOCAL.list(root)} <= _EMPTY:
        return options.with_defaults()
    try:
        store = open_store(root)
    except NotAStore:
        if not any(path.is_dir() for path in options.directories):
            raise
        return options.with_defaults()
    if store.rocksdb_consume_queue:
        reason = Text("{folder} is a RocksDB database", folder=store.rocksdb_directory)
        raise Refused(reason, "rmqstore appends only to stores with consume queue files")
    if options.dledger is None and "enableDLegerCommitLog" not in config.given:
        written = _written_members(store)  # a member that follows another one is refused later, by its vote
        options = replace(options, dledger=written[0] if len(written) == 1 else None)
    _refuse_light_rows(store, options)
    directories = [root / "commitlog"] if options.dledger or not options.directories else options.directories
    legacy = MappedFileQueue.open("commitlog", directories, default=COMMITLOG_FILE_SIZE)
    _refuse_other_mode(store, options, legacy)
    _refuse_other_role(store, options, config)
    slots, units = _index_sizes(store, options)
    dispatch = options.dispatch
    queue_size = round_file_size(dispatch.consume_queue_file_size)
    complete = replace(
        options,
        commitlog_file_size=_log_size(store, options, legacy),
        index_slots=slots,
        index_units=units,
        dispatch=replace(
            dispatch,
            consume_queue_file_size=_queue_size(store, QueueKind.SIMPLE, queue_size),
            batch_file_size=_queue_size(store, QueueKind.BATCH, dispatch.batch_file_size),
            delay_levels=_delay_levels(store, dispatch.delay_levels),
            batch_topics=_batch_topics(store, dispatch.batch_topics),
        ),
    )
    known = complete.dispatch.consume_queue_file_size or complete.dispatch.batch_file_size
    if not known and complete.commitlog_file_size not in (0, COMMITLOG_FILE_SIZE):
        unknown = Text(
            "{root}: the size of consume queue files is unknown: the store has none, and its log files do not have the "
            "default size"
        )
        raise Refused(unknown.format(root=root), Text("give consume_queue_file_size (mappedFileSizeConsumeQueue)"))
    return complete.with_defaults()


def _with_config(options: StoreOptions, config: BrokerConfig) -> StoreOptions:
    """Take options that are not given from broker.conf."""
    given, dispatch = config.given_int, options.dispatch
    levels = dispatch.delay_levels
    if levels is None and "messageDelayLevel" in config.given:
        try:
            levels = parse_delay_levels(config.text("messageDelayLevel"))
        except ValueError as error:
            raise Refused(about(config.source or "settings", error), Text("correct broker.conf")) from error
    self_id = config.text("dLegerSelfId") or "n0" if config.bool("enableDLegerCommitLog") else None
    log = "storePathDLedgerCommitLog" if options.dledger or self_id else "storePathCommitLog"
    return replace(
        options,
        commitlog_file_size=options.commitlog_file_size or given("mappedFileSizeCommitLog") or 0,
        index_slots=options.index_slots or given("maxHashSlotNum") or 0,
        index_units=options.index_units or given("maxIndexNum") or 0,
        dledger=options.dledger or self_id,
        directories=options.directories or tuple(config.paths(log)),
        dispatch=replace(
            dispatch,
            consume_queue_file_size=dispatch.consume_queue_file_size or given(QueueKind.SIMPLE.size_key) or 0,
            batch_file_size=dispatch.batch_file_size or given(QueueKind.BATCH.size_key) or 0,
            delay_levels=levels,
        ),
    )


# --- mode and role ---------------------------------------------------------------------------------------------------


def _written_members(store: Store) -> list[str]:
    """Return the self ids of the DLedger members that have a log in the store."""
    members = [e.path.name.removeprefix("dledger-") for e in store.top.values() if e.path.name.startswith("dledger-")]
    return [member for member in members if store.dledger_at(store.root / f"dledger-{member}").data.files]


def _refuse_light_rows(store: Store, options: StoreOptions) -> None:
    """Refuse to fill light queues that are in a RocksDB only: their queue offsets would begin at 0 again.

    Errors: Refused.
    """
    if not (options.dispatch.lmq and store.light_in_rocksdb):
        return
    try:
        light = any(is_lmq(topic) for topic, _ in RocksDBQueues(store).bounds())
    except CannotRead:
        light = True
    if light:
        raise Refused(
            Text("{folder} is a RocksDB with the light queues of the store", folder=store.rocksdb_directory),
            "rmqstore appends only to stores with consume queue files",
        )


def _refuse_other_mode(store: Store, options: StoreOptions, legacy: MappedFileQueue) -> None:
    """Refuse to open a log as another kind, or as that of another DLedger member, than it is.

    Errors: Refused.
    """
    root, own, members = store.root, options.dledger, _written_members(store)
    written = members[0] if members else ""
    if own is None:
        if written:
            raise Refused(
                Text(
                    "{root} has the log of DLedger member {id}; a plain store would overwrite it", root=root, id=written
                ),
                Text("if that is the only member of its group, give its self id: dledger={id!r}", id=written),
            )
        return
    if own in members or any(LOCAL.list(path) for path in options.directories):
        group = store.dledger_at(store.root / f"dledger-{own}")
        if group.newer:
            raise Refused(
                Text("{directory} was written by DLedger 0.4", directory=group.directory),
                "rmqstore appends to DLedger 0.3 and older",
            )
        return
    if written:
        reason = Text("{root} has the log of DLedger member {id}, not of {own}", root=root, id=written, own=own)
        raise Refused(reason, Text("give its own self id"))
    if legacy.files:
        plain = Text("{root} is a plain store with {count}; DLedger would start at 0, over them")
        raise Refused(
            plain.format(root=root, count=many(len(legacy.files), "log file")),
            Text("open it without a self id, or run `rmqstore migrate-to-dledger` first"),
        )


def _refuse_other_role(store: Store, options: StoreOptions, config: BrokerConfig) -> None:
    """Refuse a log whose contents another broker determines.

    Errors: Refused.
    """
    root, role = store.root, config.role
    if role in ("slave", "controller", "dledger-group"):
        raise Refused(
            Text("broker.conf says {role}: this log is a replica, and appending to it would fork it", role=role)
        )
    if options.dledger is not None:
        vote = parse_currterm(LOCAL.read_at(root / f"dledger-{options.dledger}" / "currterm", 4096, 0)).vote_leader
        if vote is not None and vote != options.dledger:
            voted = Text("{root}: member {own} voted for {vote}, so it follows that member's log")
            raise Refused(voted.format(root=root, own=options.dledger, vote=vote))
        return
    if role == "master":
        return
    checkpoint = parse_checkpoint(LOCAL.read_at(root / "checkpoint", FILE_SIZE, 0))
    if "epochFileCheckpoint" in store.top or checkpoint.master_flushed_offset > 0:
        raise Refused(
            Text("{root} belongs to a group of brokers with master and slaves", root=root),
            Text("if it is the master's store, pass its broker.conf (brokerRole=SYNC_MASTER or ASYNC_MASTER)"),
        )


# --- sizes -----------------------------------------------------------------------------------------------------------


def _log_size(store: Store, options: StoreOptions, legacy: MappedFileQueue) -> int:
    log = legacy
    if options.dledger is not None:
        directories = options.directories or (store.root / f"dledger-{options.dledger}" / "data",)
        log = MappedFileQueue.open("dledger", directories, default=COMMITLOG_FILE_SIZE)
    return _size_of([log], options.commitlog_file_size, "mappedFileSizeCommitLog")


def _queue_size(store: Store, kind: QueueKind, given: int) -> int:
    return _size_of((files.queue for files in store.consume_queues(kind)), given, kind.size_key)


def _size_of(queues: Iterable[MappedFileQueue], given: int, key: str) -> int:
    """Return the file size of mapped file queues, 0 if unknown. Errors: Refused if a queue contradicts `given`."""
    found = 0
    for queue in queues:
        if not queue.files or queue.size_from == "default":
            continue
        found = found or queue.file_size
        if given and (queue.file_size != given or any(file.start % given for file in queue.files)):
            path, size = queue.files[0].path, queue.file_size
            raise Refused(
                Text("{path}: files of {size:,} bytes, not of {given:,}", path=path, size=size, given=given),
                Text("omit the size, or give the store's own {key}", key=key),
            )
    return given or found


def _index_sizes(store: Store, options: StoreOptions) -> tuple[int, int]:
    """Return slots and units of the index files, as given if unknown. Errors: Refused if a file contradicts them."""
    slots, units = options.index_slots, options.index_units
    files = [e for e in store.index_files if e.length]
    found = sizes_on_disk(store)
    if found is None:
        expected = index.file_size(slots or index.DEFAULT_SLOTS, units or index.DEFAULT_UNITS)
        contradicting = next((e for e in files if e.length != expected), None)
    else:
        contradicting = files[-1] if (slots and slots != found[0]) or (units and units != found[1]) else None
        contradicting = contradicting or next((e for e in files if e.length != index.file_size(*found)), None)
    if contradicting is not None:
        has = Text("another number of slots and units")
        if found is not None:
            has = Text("{slots:,} slots and {units:,} units", slots=found[0], units=found[1])
        path, size = contradicting.path, contradicting.length
        raise Refused(
            Text("{path} has {size:,} bytes; the index of this store has {has}", path=path, size=size, has=has),
            Text("give the maxHashSlotNum and maxIndexNum of the store"),
        )
    return found or (slots, units)


# --- batch topics and delay levels -----------------------------------------------------------------------------------


def _batch_topics(store: Store, given: frozenset[str]) -> frozenset[str]:
    """Return the topics with 46-byte units: given, configured in topics.json, or with such files. Errors: Refused."""
    on_disk = frozenset(f.topic for f in store.consume_queues(QueueKind.BATCH) if f.queue.files)
    for files in store.consume_queues(QueueKind.SIMPLE):
        if files.topic in given and files.queue.files:
            simple = Text("{folder} has units of 20 bytes; {topic} is not a BatchCQ topic")
            raise Refused(simple.format(folder=files.queue.directories[0], topic=files.topic))
    return given | on_disk | batch_topics(store)


def _delay_levels(store: Store, given: DelayLevels | None) -> DelayLevels | None:
    """Return the given levels, else those found from units. Errors: Refused if the newest unit of a level differs."""
    if given is None:
        return delay_levels(store)
    for files in store.consume_queues(QueueKind.SIMPLE):
        level = files.queue_id + 1
        actual = _last_delay(store, files.queue) if files.topic == SCHEDULE_TOPIC else None
        if actual is not None and actual != given.deliver_time(level, 0):
            differs = Text(
                "{queue}: the last message of level {level} is delayed by {actual:,} ms, but messageDelayLevel says "
                "{delay:,} ms"
            )
            queue, delay = f"{SCHEDULE_TOPIC}/{files.queue_id}", given.deliver_time(level, 0)
            raise Refused(
                differs.format(queue=queue, level=level, actual=actual, delay=delay),
                Text("omit the levels, or give the store's own messageDelayLevel"),
            )
    return given


def _last_delay(store: Store, queue: MappedFileQueue) -> int | None:
    """Return deliver time minus store time (ms) of the last unit; None if its message is unreadable or has no level."""
    at = last_nonzero(queue, UNIT.size)
    unit = queue.unit(UNIT, at // UNIT.size) if at is not None else None
    if unit is None or not is_message_unit(unit["commitlog_offset"], unit["size"]) or unit["size"] > _HEAD:
        return None
    offset, size, due = unit["commitlog_offset"], unit["size"], unit["tags_code"]
    logs = [store.dledger.data if store.dledger is not None else None, store.commitlog]
    log = next((log for log in logs if log is not None and log.find(offset) is not None), None)
    message = parse_message(log.pread(size, offset))[0] if log is not None else None
    if message is None or (parse_int(parse_properties(message.properties).get(DELAY, "")) or 0) < 1:
        return None
    return int(due) - message.store_timestamp
