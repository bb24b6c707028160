"""Summarize a store without a scan, from directory listings, first and last records, last units, and small files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rmqstore.files.controller import stored_epochs, stored_identity
from rmqstore.files.files import SmallReads
from rmqstore.files.index import index_header
from rmqstore.files.log_ends import (
    LogEnd,
    QueueBounds,
    find_end,
    first_timestamp,
    queue_bounds,
    written_units,
)
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import IDENTITY, QueueKind, Store, unknown_entries
from rmqstore.files.store_queues import has_database
from rmqstore.formats import checkpoint, dledger, index, timer
from rmqstore.formats.consumequeue import QueueName
from rmqstore.texts import Text
from rmqstore.views.dump.small_files import config_tables, rocksdb_config_tables

SCHEMA = "rmqstore.info/1"


@dataclass(frozen=True, slots=True)
class LogInfo:
    """A log. `wrote`: end of the last whole record; `torn`: bytes after it of records with only their heads written.

    Units: bytes, global offsets, times in ms.
    """

    files: int
    file_size: int
    file_size_from: str
    bytes: int
    min_offset: int
    wrote: int
    found_by: str
    first_timestamp: int | None
    last_timestamp: int | None
    odd: tuple[str, ...] = ()
    holes: tuple[tuple[int, int], ...] = ()
    torn: int = 0


@dataclass(frozen=True, slots=True)
class DLedgerInfo:
    """The DLedger group of a store: its log, index, checkpoint and currterm."""

    group_dir: str
    self_id: str
    data: LogInfo
    first_index: int
    last_index: int
    last_index_term: int
    term: int
    voted_for: str | None
    committed_index: int | None
    divided_commitlog_offset: int | None


@dataclass(frozen=True, slots=True)
class ControllerInfo:
    """What a broker in controller mode left: its identity, and the epochs of its masters.

    `registered`: the controller gave the broker id; otherwise the broker had only asked for it. `epochs`: number and
    start (offset in the log) of each.
    """

    cluster: str | None
    broker_name: str | None
    broker_id: int | None
    registered: bool
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One consume queue: queue offsets [min, max), number of files, bytes on disk."""

    queue_id: int
    kind: str
    min: int
    max: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The queues of a topic."""

    topic: str
    queues: tuple[QueueInfo, ...]

    @property
    def messages(self) -> int:
        return sum(q.max - q.min for q in self.queues)


@dataclass(slots=True)
class Info:
    """The result of `info`."""

    store: str
    kind: str
    part: str | None
    live: bool
    lock: dict[str, Any]
    abort: bool
    clean_exit: bool | None
    commitlog: LogInfo | None = None
    dledger: DLedgerInfo | None = None
    controller: ControllerInfo | None = None
    role: str = "unknown"
    topics: list[TopicInfo] = field(default_factory=list)
    index: dict[str, Any] | None = None
    timerlog: LogInfo | None = None
    rocksdbstore: dict[str, int] | None = None
    pop_rows: int | None = None
    checkpoint: dict[str, int] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    journals: list[dict[str, Any]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def logs(self) -> list[LogInfo]:
        """The commitlog, then DLedger's data."""
        return [log for log in (self.commitlog, self.dledger.data if self.dledger else None) if log is not None]

    @property
    def retained(self) -> tuple[int, int] | None:
        """The store times (ms) of the first and the last message of the log."""
        first = [log.first_timestamp for log in self.logs if log.first_timestamp is not None]
        last = [log.last_timestamp for log in self.logs if log.last_timestamp is not None]
        return (first[0], last[-1]) if first and last else None

    def to_json(self) -> dict[str, Any]:
        """Return the object of `info --json`."""
        retained = self.retained
        return {
            "schema": SCHEMA,
            **asdict(replace(self, topics=[])),
            "retained": None if retained is None else {"first_timestamp": retained[0], "last_timestamp": retained[1]},
            "queues": {
                f"{t.topic}/{q.queue_id}": {name: getattr(q, name) for name in ("min", "max", "kind", "files", "bytes")}
                for t in self.topics
                for q in t.queues
            },
            "topics": {t.topic: {"queues": len(t.queues), "messages": t.messages} for t in self.topics},
        }


def info(store: Store) -> Info:
    """Summarize a store; reads at most a few kilobytes per file.

    Errors: OSError if a directory cannot be listed.
    """
    lock = store.lock_state()
    whole = store.part is None
    out = Info(
        store=str(store.path),
        kind=store.kind.value,
        part=store.part,
        live=lock.held,
        lock={"exists": lock.exists, "held": lock.held, "pid": lock.pid},
        abort=store.abort,
        clean_exit=None if not whole or lock.held else not store.abort,
    )
    problems: list[str] = []
    out.topics, last = _topics(store, problems)
    if store.commitlog is not None:
        out.commitlog = _log(store, store.commitlog, 0, last)
    if store.dledger is not None:
        out.dledger = _dledger(store)
    if whole and store.controller_files:
        out.controller = _controller(store)
    if whole:
        out.role = _role(store)
    out.index = _index(store)
    if store.timer_log is not None and store.timer_log.files:
        out.timerlog = _log_of(store, store.timer_log, LogEnd(store.timer_log.stop, None, ""), None)
    out.rocksdbstore = _message_rows(store, problems)
    out.pop_rows = _pop_rows(store, problems)
    out.checkpoint = _checkpoint(store)
    out.config = dict(config_tables(store)) | dict(rocksdb_config_tables(store, problems))
    if whole and store.files.is_directory(store.journal_directory):  # loading rmqstore.repair takes time
        from rmqstore.documents.journal import find_unfinished

        out.journals = [j.to_json() for j in find_unfinished(store.root, store.config.directories)]
    out.unchecked = problems + _unchecked(store)
    out.notes = _notes(store)
    return out


def _topics(store: Store, problems: list[str]) -> tuple[list[TopicInfo], int]:
    """Return the topics with their queues, and the greatest commitlog offset of a unit (-1: none)."""
    queues: dict[str, list[QueueInfo]] = {}
    last = -1
    kinds: tuple[QueueKind, ...] = (QueueKind.SIMPLE, QueueKind.BATCH)
    if store.rocksdb_consume_queue:
        kinds = (QueueKind.BATCH,)
    if store.rocksdb_consume_queue or (store.light_in_rocksdb and has_database(store.files, store.rocksdb_directory)):
        for (topic, queue_id), bounds in _rocksdb_bounds(store, problems).items():
            if store.reads_rows(topic):
                last = max(last, bounds.last_commitlog_offset)
                queues.setdefault(topic, []).append(QueueInfo(queue_id, "rocksdb", bounds.min, bounds.max, 0, 0))
    for cq in store.consume_queues(*kinds):
        if cq.kind is QueueKind.SIMPLE and store.reads_rows(cq.topic):
            continue  # left over: no broker reads them
        batch = cq.kind is QueueKind.BATCH
        bounds = queue_bounds(cq.queue, store.log_start, batch=batch)
        last = max(last, bounds.last_commitlog_offset)
        one = QueueInfo(cq.queue_id, cq.kind.value, bounds.min, bounds.max, len(cq.queue), cq.queue.bytes_on_disk)
        queues.setdefault(cq.topic, []).append(one)
    return [TopicInfo(t, tuple(q)) for t, q in sorted(queues.items())], last


def _rocksdb_bounds(store: Store, problems: list[str]) -> dict[QueueName, QueueBounds]:
    from rmqstore.files.rocksdb.database import CannotRead, is_readable, missing_extra

    if not is_readable():
        place = store.rocksdb_directory.name
        why = missing_extra()
        problems.append(
            Text("{place}/ is a RocksDB database: its queues are not read: that {why}", place=place, why=why)
        )
        return {}
    from rmqstore.views.dump.rocksdb import queue_bounds as row_bounds

    try:
        return row_bounds(store, store.log_start)
    except CannotRead as e:
        place = store.rocksdb_directory.name
        problems.append(Text("{place}/ is a RocksDB database that cannot be read: {e}", place=place, e=e))
        return {}


def _message_rows(store: Store, problems: list[str]) -> dict[str, int] | None:
    """Count the rows of rocksdbstore/; None if there are none, or if they cannot be read."""
    if not store.may_have_message_rows:
        return None
    from rmqstore.files.rocksdb.database import CannotRead
    from rmqstore.files.rocksdb.rows import DIRECTORY, MessageRows
    from rmqstore.formats.rocksdbstore import INDEX_FAMILY, TIMER_FAMILY, TRANS_FAMILY

    names = {"timer": TIMER_FAMILY, "trans": TRANS_FAMILY, "index": INDEX_FAMILY}
    try:
        rows = MessageRows.of(store)
        if rows is None:
            return None
        return {name: rows.count(family) for name, family in names.items()} | {"pending": rows.pending_timers()}
    except CannotRead as e:
        problems.append(Text("{directory}/: its rows are not read: {e}", directory=DIRECTORY, e=e))
        return None


def _pop_rows(store: Store, problems: list[str]) -> int | None:
    """Count the rows of kvStore/; None if there is none, or if they cannot be read."""
    if not store.has_pop_rows:
        return None
    from rmqstore.files.rocksdb.database import CannotRead
    from rmqstore.files.rocksdb.rows import pop_rows
    from rmqstore.formats.pop import KV_DIRECTORY

    try:
        return sum(1 for _ in pop_rows(store))
    except CannotRead as e:
        problems.append(Text("{directory}/: its rows are not read: {e}", directory=KV_DIRECTORY, e=e))
        return None


def _log(store: Store, queue: MappedFileQueue, body_offset: int, hint: int) -> LogInfo:
    return _log_of(store, queue, find_end(queue, body_offset, hint), first_timestamp(queue, body_offset))


def _log_of(store: Store, queue: MappedFileQueue, end: LogEnd, first: int | None) -> LogInfo:
    return LogInfo(
        files=len(queue),
        file_size=queue.file_size,
        file_size_from=queue.size_from,
        bytes=queue.bytes_on_disk,
        min_offset=queue.start,
        wrote=end.wrote,
        found_by=end.found_by,
        first_timestamp=first,
        last_timestamp=end.last_timestamp,
        odd=tuple(f"{store.relative(o.path)}: {o.kind.value}" for o in queue.odd),
        holes=tuple(queue.holes()),
        torn=end.torn,
    )


def _blank_size(head: bytes) -> int:
    """Return the bytes that a BLANK at a file's start covers (DLedger 0.4 so removes entries), otherwise 0."""
    blank = dledger.BLANK.parse(head.ljust(dledger.BLANK.size, b"\0"))
    return max(0, blank["size"]) if blank["magic"] == dledger.BLANK_MAGIC else 0


def _dledger(store: Store) -> DLedgerInfo:
    group = store.dledger
    assert group is not None
    unit = dledger.INDEX_UNIT

    def is_written(raw: bytes) -> bool:
        return len(raw) == unit.size and int.from_bytes(raw[:4], "big") in dledger.TYPES

    units = written_units(group.index, unit, is_written, lambda head: _blank_size(head) // unit.size)
    last = unit.parse(units.last) if units.last else None
    data = _log(store, group.data, dledger.ENTRY.size, last["pos"] if last else -1)
    first_index, last_index = units.first, units.stop - 1
    if group.data.files:  # index files are larger, so they may start before the data
        with SmallReads(group.data.files[0]) as f:
            at = _blank_size(f.pread(dledger.BLANK.size, 0))
            raw = f.pread(dledger.ENTRY.size, at)
        if len(raw) == dledger.ENTRY.size:
            entry = dledger.ENTRY.parse(raw)
            if entry["magic"] in dledger.TYPES and entry["pos"] == group.data.start + at:
                first_index = entry["index"]
    point = dledger.parse_dledger_checkpoint(store.files.read_at(group.directory / "checkpoint", 4096, 0))
    term = dledger.parse_currterm(store.files.read_at(group.directory / "currterm", 4096, 0))
    legacy = store.commitlog is not None and bool(store.commitlog.files)
    return DLedgerInfo(
        group_dir=group.directory.name,
        self_id=group.self_id,
        data=data,
        first_index=first_index if last or data.last_timestamp is not None else -1,
        last_index=last_index if last else -1,
        last_index_term=last["term"] if last else -1,
        term=term.term,
        voted_for=term.vote_leader,
        committed_index=point.committed_index,
        divided_commitlog_offset=group.data.start if legacy and group.data.files else None,
    )


def _controller(store: Store) -> ControllerInfo:
    identity = stored_identity(store)
    epochs = tuple((entry.epoch, entry.start_offset) for entry in stored_epochs(store))
    registered = IDENTITY in store.top
    if identity is None:
        return ControllerInfo(None, None, None, registered, epochs)
    return ControllerInfo(identity.cluster, identity.broker_name, identity.broker_id, registered, epochs)


def _role(store: Store) -> str:
    """Return the role of the broker according to broker.conf; without one, according to the files of the store."""
    role = store.config.role
    if role != "unknown":
        return role
    if store.dledger is not None and store.dledger.data.files:
        return "dledger-group"
    return "controller" if store.controller_files else role


def _index(store: Store) -> dict[str, Any] | None:
    files = store.index_files
    if not files:
        return None
    headers = [header for entry in files if (header := index_header(store.files, entry.path)) is not None]
    begins = [h["begin_timestamp"] for h in headers if h["begin_timestamp"] > 0]
    return {
        "files": len(files),
        "bytes": sum(e.length for e in files),
        "entries": sum(index.entries(h["index_count"]) for h in headers),
        "begin_timestamp": min(begins, default=0),
        "end_timestamp": max((h["end_timestamp"] for h in headers), default=0),
        "end_phy_offset": max((h["end_phy_offset"] for h in headers), default=0),
    }


def _checkpoint(store: Store) -> dict[str, int] | None:
    path = store.path if store.part == "checkpoint" else store.root / "checkpoint"
    if store.part not in (None, "checkpoint"):
        return None
    raw = store.files.read_at(path, checkpoint.FILE_SIZE, 0)
    return asdict(checkpoint.parse_checkpoint(raw)) if raw else None


def _unchecked(store: Store) -> list[str]:
    unknown = [one.words for one in unknown_entries(store) if one.holds]
    if not store.missing_paths:
        return unknown
    from rmqstore.files.store import paths_that_miss

    return [Text("configured path {p} does not exist", p=p) for p, _ in paths_that_miss(store)] + unknown


def _notes(store: Store) -> list[str]:
    out: list[str] = [
        Text("{name} is not read, but {directory}", name=name, directory=store.dledger.directory.name)
        for name in store.other_dledger
        if store.dledger
    ]
    if store.rocksdb_beside:
        from rmqstore.files.rocksdb.written_rows import beside_words

        words = Text("{beside}; consumers are served from the files, and this page shows them")
        if store.light_in_rocksdb:
            words = Text(
                "{beside}; consumers are served from the files, and this page shows them; those of light queues "
                "(%LMQ%) come from the RocksDB"
            )
        out.append(words.format(beside=beside_words(store)))
    out += [
        Text("{relative} is a symbolic link and was followed", relative=store.relative(entry.path))
        for entry in store.top.values()
        if entry.link is not None
    ]
    length, size = store.top["timerwheel"].length if "timerwheel" in store.top else 0, timer.wheel_size()
    if length not in (0, size):
        out.append(Text("timerwheel has {length} bytes instead of {size}", length=length, size=size))
    out += [Text("{relative} is not a broker file", relative=store.relative(s.path)) for s in store.strays]
    out += [one.words for one in unknown_entries(store) if not one.holds]
    return out
