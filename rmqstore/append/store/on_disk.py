"""What the files of a store say of its settings, read before anything is opened for writing.

A writer with other settings destroys a store: it lays records over the legacy log, cuts queues that it takes for
damaged, or makes an index file longer. So what is not given comes from the files, and what contradicts them is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rmqstore.append.store.store_options import StoreOptions
from rmqstore.brokers.load.config import batch_topics
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.errors import NotAStore, Refused
from rmqstore.files.broker_config import COMMITLOG_FILE_SIZE, BrokerConfig
from rmqstore.files.disk.reading import read_at
from rmqstore.files.index_sizes import sizes_on_disk
from rmqstore.files.mapped_file_queue import MappedFileQueue, list_directory
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.formats import index
from rmqstore.formats.checkpoint import FILE_SIZE, parse_checkpoint
from rmqstore.formats.consumequeue import UNIT, is_message_unit, round_file_size
from rmqstore.formats.dledger import parse_currterm
from rmqstore.formats.message import parse_message
from rmqstore.formats.properties import DELAY, SCHEDULE_TOPIC, DelayLevels, parse_delay_levels, parse_properties
from rmqstore.formats.text.javatext import parse_int
from rmqstore.scan.units import last_nonzero

_EMPTY = {"lock", "abort", "checkpoint"}
_HEAD = 4 << 20


def options_of_store(root: Path, options: StoreOptions, config: BrokerConfig | None = None) -> StoreOptions:
    """The options, completed by broker.conf, where there is one, and by what is on the disk.

    Errors: Refused where options or broker.conf contradict the files, or where this store's log is not to be appended
    to by a single writer (a slave, a member of a larger DLedger group); NotAStore, NotReadable.
    """
    config = config or BrokerConfig()
    options = _with_config(options, config)
    if root.is_dir() and {e.path.name for e in list_directory(root)} <= _EMPTY:
        return options.with_defaults()
    try:
        store = open_store(root)
    except NotAStore:
        if not any(place.is_dir() for place in options.directories):
            raise
        return options.with_defaults()
    if store.rocksdb_consume_queue:
        raise Refused(f"{root / 'consumequeue'} is a RocksDB", "rmqstore appends to stores with consume queue files")
    legacy = MappedFileQueue.open(
        "commitlog", [root / "commitlog"] if options.dledger else _places(root, options), default=COMMITLOG_FILE_SIZE
    )
    _refuse_other_mode(store, options, legacy)
    _refuse_other_role(store, options, config)
    slots, units = _index_sizes(store, options)
    dispatch = options.dispatch
    unit_file = round_file_size(dispatch.consume_queue_file_size)
    done = replace(
        options,
        commitlog_file_size=_log_size(store, options, legacy),
        index_slots=slots,
        index_units=units,
        dispatch=replace(
            dispatch,
            consume_queue_file_size=_queue_size(store, QueueKind.SIMPLE, unit_file),
            batch_file_size=_queue_size(store, QueueKind.BATCH, dispatch.batch_file_size),
            delay_levels=_delay_levels(store, dispatch.delay_levels),
            batch_topics=_batch_topics(store, dispatch.batch_topics),
        ),
    )
    sizes = done.dispatch.consume_queue_file_size or done.dispatch.batch_file_size
    if not sizes and done.commitlog_file_size not in (0, COMMITLOG_FILE_SIZE):
        raise Refused(
            f"{root}: no consume queue file is left to tell their size, and the log files have no default size",
            "give consume_queue_file_size (mappedFileSizeConsumeQueue)",
        )
    return done.with_defaults()


def _with_config(options: StoreOptions, config: BrokerConfig) -> StoreOptions:
    """Options that are not given, from broker.conf."""
    given, dispatch = config.given_int, options.dispatch
    levels = dispatch.delay_levels
    if levels is None and "messageDelayLevel" in config.given:
        try:
            levels = parse_delay_levels(config.text("messageDelayLevel"))
        except ValueError as error:
            raise Refused(f"{config.source or 'settings'}: {error}", "correct broker.conf") from error
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
            consume_queue_file_size=dispatch.consume_queue_file_size or given("mappedFileSizeConsumeQueue") or 0,
            batch_file_size=dispatch.batch_file_size or given("mapperFileSizeBatchConsumeQueue") or 0,
            delay_levels=levels,
        ),
    )


def _places(root: Path, options: StoreOptions) -> Sequence[Path]:
    return options.directories or (root / "commitlog",)


# --- mode and role ---------------------------------------------------------------------------------------------------


def _refuse_other_mode(store: Store, options: StoreOptions, legacy: MappedFileQueue) -> None:
    """Errors: Refused where the log is of another kind, or of another DLedger member, than it would be opened as."""
    members = [e.path.name.removeprefix("dledger-") for e in store.top.values() if e.path.name.startswith("dledger-")]
    written = [one for one in members if store.dledger_at(store.root / f"dledger-{one}").data.files]
    own = options.dledger
    if own is None:
        if written:
            raise Refused(
                f"{store.root} has the log of DLedger member {written[0]}; as a plain store it would be destroyed",
                f"where that is the only member of its group, give its self id: dledger={written[0]!r}",
            )
        return
    if own in written or (options.directories and any(list_directory(place) for place in options.directories)):
        group = store.dledger_at(store.root / f"dledger-{own}")
        if group.newer:
            raise Refused(f"{group.directory} was written by DLedger 0.4", "rmqstore appends to DLedger 0.3 and older")
        return
    if written:
        raise Refused(f"{store.root} has the log of DLedger member {written[0]}, not of {own}", "give its own self id")
    if legacy.files:
        raise Refused(
            f"{store.root} is a plain store with {len(legacy.files)} log files; DLedger would begin at 0, over them",
            "open it without a self id, or run `rmqstore migrate-to-dledger` first",
        )


def _refuse_other_role(store: Store, options: StoreOptions, config: BrokerConfig) -> None:
    """Errors: Refused where another broker decides what comes next in this log."""
    root, role = store.root, config.role
    if role in ("slave", "controller", "dledger-group"):
        raise Refused(f"broker.conf says {role}: this log is a replica, and appending to it would fork it")
    if options.dledger is not None:
        vote = parse_currterm(read_at(root / f"dledger-{options.dledger}" / "currterm", 4096, 0)).vote_leader
        if vote is not None and vote != options.dledger:
            raise Refused(f"{root}: member {options.dledger} voted for {vote}: its log is that of {vote}")
        return
    if role == "master":
        return
    checkpoint = parse_checkpoint(read_at(root / "checkpoint", FILE_SIZE, 0))
    if "epochFileCheckpoint" in store.top or checkpoint.master_flushed_offset > 0:
        raise Refused(
            f"{root} belongs to a group of brokers with master and slaves",
            "where it is the master's, pass the broker.conf that says so (brokerRole=SYNC_MASTER or ASYNC_MASTER)",
        )


# --- sizes -----------------------------------------------------------------------------------------------------------


def _log_size(store: Store, options: StoreOptions, legacy: MappedFileQueue) -> int:
    given = options.commitlog_file_size
    if options.dledger is None:
        return _size_of([legacy], given, "mappedFileSizeCommitLog")
    places = options.directories or (store.root / f"dledger-{options.dledger}" / "data",)
    data = MappedFileQueue.open("dledger", places, default=COMMITLOG_FILE_SIZE)
    return _size_of([data], given, "mappedFileSizeCommitLog")


def _queue_size(store: Store, kind: QueueKind, given: int) -> int:
    key = "mappedFileSizeConsumeQueue" if kind is QueueKind.SIMPLE else "mapperFileSizeBatchConsumeQueue"
    return _size_of((files.queue for files in store.consume_queues(kind)), given, key)


def _size_of(queues: Iterable[MappedFileQueue], given: int, key: str) -> int:
    """The file size of queues; 0 where nothing says it. Errors: Refused."""
    found = 0
    for queue in queues:
        if not queue.files or queue.size_from == "default":
            continue
        found = found or queue.file_size
        if given and (queue.file_size != given or any(file.start % given for file in queue.files)):
            raise Refused(
                f"{queue.files[0].path}: files of {queue.file_size:,} bytes, not of {given:,}",
                f"leave the size out, or give the store's own {key}",
            )
    return given or found


def _index_sizes(store: Store, options: StoreOptions) -> tuple[int, int]:
    """Slots and units of the index files; what is not known is what was given. Errors: Refused."""
    slots, units = options.index_slots, options.index_units
    files = [e for e in store.index_files if e.length]
    found = sizes_on_disk(store)
    if found is None:
        wanted = index.file_size(slots or index.DEFAULT_SLOTS, units or index.DEFAULT_UNITS)
        odd = next((e for e in files if e.length != wanted), None)
    else:
        odd = files[-1] if (slots and slots != found[0]) or (units and units != found[1]) else None
        odd = odd or next((e for e in files if e.length != index.file_size(*found)), None)
    if odd is not None:
        has = f"{found[0]:,} slots and {found[1]:,} units" if found else "another number of slots and units"
        raise Refused(
            f"{odd.path} has {odd.length:,} bytes; the index of this store has {has}",
            "give the maxHashSlotNum and maxIndexNum of the store",
        )
    return found or (slots, units)


# --- what units say --------------------------------------------------------------------------------------------------


def _batch_topics(store: Store, given: frozenset[str]) -> frozenset[str]:
    """Topics with 46-byte units: given, in topics.json, or with files. Errors: Refused."""
    there = frozenset(f.topic for f in store.consume_queues(QueueKind.BATCH) if f.queue.files)
    for files in store.consume_queues(QueueKind.SIMPLE):
        if files.topic in given and files.queue.files:
            raise Refused(f"{files.queue.directories[0]} has units of 20 bytes; {files.topic} is not a BatchCQ topic")
    return given | there | batch_topics(store.root)


def _delay_levels(store: Store, given: DelayLevels | None) -> DelayLevels | None:
    """The given levels, else those that units show. Errors: Refused where the newest unit of a level contradicts."""
    if given is None:
        return delay_levels(store)
    for files in store.consume_queues(QueueKind.SIMPLE):
        level = files.queue_id + 1
        shown = _last_delay(store, files.queue) if files.topic == SCHEDULE_TOPIC else None
        if shown is not None and shown != given.deliver_time(level, 0):
            raise Refused(
                f"{SCHEDULE_TOPIC}/{files.queue_id}: the last message of level {level} is delayed by {shown:,} ms, "
                f"messageDelayLevel says {given.deliver_time(level, 0):,} ms",
                "leave the levels out, or give the store's own messageDelayLevel",
            )
    return given


def _last_delay(store: Store, queue: MappedFileQueue) -> int | None:
    """Deliver time less store time (ms) of the last unit; None where its message cannot be read or has no level."""
    at = last_nonzero(queue, UNIT.size)
    unit = queue.unit(UNIT, at // UNIT.size) if at is not None else None
    if unit is None or not is_message_unit(unit["commitlog_offset"], unit["size"]) or unit["size"] > _HEAD:
        return None
    offset, size, due = unit["commitlog_offset"], unit["size"], unit["tags_code"]
    logs = [store.dledger.data if store.dledger is not None else None, store.commitlog]
    log = next((one for one in logs if one is not None and one.find(offset) is not None), None)
    message = parse_message(log.pread(size, offset))[0] if log is not None else None
    if message is None or (parse_int(parse_properties(message.properties).get(DELAY, "")) or 0) < 1:
        return None
    return int(due) - message.store_timestamp
