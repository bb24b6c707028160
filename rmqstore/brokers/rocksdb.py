"""What a starting broker does with the RocksDB databases of its store: queues, rows and configuration.

The load fails if the queue database does not open or its maximum physical offset cannot be read. It does not fail on a
damaged block of units: the broker starts, and delivers no message of the queues in that block. A broker that writes
queues both to files and to RocksDB compares the ends of the two, and may refuse to start (`queue_that_differs`).

Source: RocksDBConsumeQueueStore#load, #recover, RocksDBConsumeQueueOffsetTable#getMaxPhyOffset (RocketMQ 5.4.0 on
damaged databases); DBImpl::Open (RocksDB 9); CombineConsumeQueueStore#start, #verifyAndInitOffsetForAllStore (RocketMQ
5.3.4 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.brokers.dispatch import Queues
from rmqstore.brokers.mapped_files import Obstacle
from rmqstore.brokers.queues import SimpleQueue
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import CONFIG_DATABASES, WITHOUT_POSITIONS, tables_in
from rmqstore.files.files import Files
from rmqstore.files.rocksdb.database import (
    CannotRead,
    DamagedDatabase,
    UnknownFormat,
    is_readable,
    open_database,
)
from rmqstore.files.rocksdb.queues import Bound, RocksDBQueues
from rmqstore.files.rocksdb.rows import DIRECTORY, last_offset, table_rows
from rmqstore.files.store import Store
from rmqstore.files.store_queues import ASSIGNING, PREFERRED, chooses_rocksdb
from rmqstore.formats.consumequeue import UNIT, QueueName
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.rocksdbstore import TRANS_FAMILY
from rmqstore.texts import Text


@dataclass(frozen=True, slots=True)
class RocksDBAtStart:
    """What a starting broker finds in the queue database.

    `refusal` is why the load fails, "" if it does not. `dispatched` is the end of the last dispatched message as a
    global offset, 0 if the database has none, None if it cannot be determined.
    """

    refusal: str = ""
    dispatched: int | None = None
    unreadable: dict[QueueName, int] = field(default_factory=dict)
    """Messages per queue whose rows are unreadable."""
    last: dict[QueueName, Bound] = field(default_factory=dict)
    """The last row of each queue."""


Rows = Mapping[QueueName, Bound]
"""The last row of each queue."""
_PROVIDERS = {"users": "authenticationMetadataProvider", "acls": "authorizationMetadataProvider"}
"""Database in config/ → the setting with which a broker opens it."""


class Databases:
    """The databases of a store, as a broker with these settings opens them. Errors: none of reading them."""

    def __init__(self, store: Store, config: BrokerConfig) -> None:
        self._store, self._config, self._files = store, config, store.files

    def at_start(self, name: str, *, rows: bool) -> RocksDBAtStart:
        """Check the database in the directory `name` as a starting broker would; with `rows`, read every unit.

        Errors: none. Without the extra `rocksdb`, only the file names are checked.
        """
        directory = self._store.root / name
        if refusal := _by_names(self._files, directory):
            return RocksDBAtStart(refusal)
        if not self._files.exists(directory / "CURRENT"):
            return RocksDBAtStart(dispatched=0)  # the broker creates a new database
        if not is_readable():
            return RocksDBAtStart()
        try:
            queues = RocksDBQueues(self._store)
        except (DamagedDatabase, UnknownFormat) as e:
            return RocksDBAtStart(Text("it cannot be opened: {e}", e=str(e).rstrip(".")))
        except CannotRead:
            return RocksDBAtStart()  # a missing column family, which the broker creates, or a local failure
        try:
            dispatched = queues.dispatched() or 0
        except (DamagedDatabase, UnknownFormat) as e:
            return RocksDBAtStart(Text("the end of its rows cannot be read: {e}", e=e))
        except CannotRead:
            return RocksDBAtStart()
        try:
            bounds = queues.bounds()
        except CannotRead:
            bounds = {}  # the broker logs the failure and treats the queues as empty
        last = {name: ends["max"] for name, ends in bounds.items() if "max" in ends}
        return RocksDBAtStart("", dispatched, _unreadable_messages(queues, bounds) if rows else {}, last)

    def message_row_ends(self, families: Iterable[str]) -> tuple[int, ...]:
        """Return `lastOffsetPy` of families of rocksdbstore/, 0 for a missing one; -1, which no file meets, if damaged.

        An end that cannot be determined is left out. Source: MessageRocksDBStorage#getLastOffsetPy (RocketMQ 5.5.1)
        """
        ends = []
        for family in families:
            try:
                ends.append(last_offset(self._store, family) or 0)
            except (DamagedDatabase, UnknownFormat):
                ends.append(-1)
            except CannotRead:
                continue
        return tuple(ends)

    def cannot_open_rows(self) -> bool:
        """Return whether a broker cannot open rocksdbstore/, or read the end of its half messages; False if unknown."""
        if _by_names(self._files, self._store.root / DIRECTORY):
            return True
        return self.message_row_ends([TRANS_FAMILY]) == (-1,)

    def unreadable_config(self) -> Obstacle | None:
        """Return the first configuration database that a broker cannot read to its end: initialize() returns false.

        Source: ConfigManager#load, RocksDBConfigManager#loadData (whole brokers of RocketMQ 5.4.0).
        """
        for name in CONFIG_DATABASES:
            directory = self._store.root / "config" / name
            if not self._files.is_directory(directory):
                continue
            if (obstacle := self._unreadable(directory, "org.rocksdb.RocksDBException")) is not None:
                return obstacle
        return None

    def unreadable_access(self) -> Obstacle | None:
        """Return the first database of users or permissions that the broker opens and cannot open.

        Source: BrokerController#initializeMetadata, LocalAuthenticationMetadataProvider#initialize,
        LocalAuthorizationMetadataProvider#initialize (whole brokers of RocketMQ 5.4.0 and 5.5.1)
        """
        for name, provider in _PROVIDERS.items():
            directory = self._store.root / "config" / name
            is_local = self._config.text(provider).rpartition(".")[2].startswith("Local")
            if not is_local or not self._files.exists(directory):
                continue
            log_line = f"Failed to load rocksdb for auth_{name.removesuffix('s')}"
            if (obstacle := self._unreadable(directory, log_line)) is not None:
                return obstacle
        return None

    def _unreadable(self, directory: Path, log_line: str) -> Obstacle | None:
        reason = _by_names(self._files, directory) or _unread(self._files, directory)
        if not reason:
            return None
        words = Text("the RocksDB {path} cannot be read: {reason}", path=directory, reason=reason)
        return Obstacle(directory, words, log_line)

    def ends_in_rows(
        self, queues: Queues, rows: Rows, *, dispatched_from: int, log: range, light_in_rocksdb: bool
    ) -> dict[QueueName, tuple[int, int]]:
        """Return the ends of the queues as a broker reports them that reads their rows, although it also has files.

        A queue begins with its first row of a message in the `log`, or else with the first message that recovery
        dispatches to both kinds, from `dispatched_from` on. If the files assign queue offsets, a queue without rows
        gets their end. Source: RocksDBConsumeQueueStore#getMinOffsetInQueue (the real stores of RocketMQ 5.4.0 and
        5.5.1 with combineCQPreferCQType=defaultRocksDB)
        """
        ends = {}
        first = _first_rows(self._store, rows, log)
        for key in {*queues.table, *first}:
            if light_in_rocksdb and is_lmq(key[0]):
                continue
            queue = queues.table.get(key)
            end = queue.ends[1] if isinstance(queue, SimpleQueue) else 0
            dispatched = queue.first_from(dispatched_from) if isinstance(queue, SimpleQueue) else end
            if dispatched == end and chooses_rocksdb(self._config, ASSIGNING):
                end = dispatched = 0
            if key in first:
                ends[key] = first[key], max(end, rows[key].queue_offset + 1)
            else:
                ends[key] = dispatched, end
        return ends

    def queue_that_differs(
        self, queues: Queues, rows: Rows, *, begin: int, end: int, light_in_rocksdb: bool
    ) -> QueueName | None:
        """Return the first queue whose ends differ, if the broker then does not start; None if it starts.

        Only a broker that reads one kind and assigns offsets with the other refuses: queues of the other kind that are
        empty get the end of the first. Messages at `begin` and after it were dispatched again, to both kinds; where no
        message has a queue offset, this shifts the units in files, but not the rows. `end`: of the log; recovery cuts
        the rows after it, except those of a queue that has no row before it (an error of
        RocksDBConsumeQueueOffsetTable#correctMaxCqOffset, confirmed with 5.5.1).
        """
        reads, assigns = (chooses_rocksdb(self._config, key) for key in (PREFERRED, ASSIGNING))
        if reads == assigns:
            return None
        for key in sorted(queues.table):
            queue, last = queues.table[key], rows.get(key)
            if light_in_rocksdb and is_lmq(key[0]):
                continue
            if queue.shifted:
                return key
            if last is None:
                continue
            ends = (queue.ends[1], last.queue_offset + 1)
            if last.commitlog_offset >= end and ends[0] > 0:  # cut to the same message
                continue
            if begin <= max(queue.max_physic_offset, last.commitlog_offset) < end:
                continue
            if ends[0] != ends[1] and ends[0 if assigns else 1] > 0:
                return key
        return None


def _unread(files: Files, directory: Path) -> str:
    """Return why a database cannot be opened or read; "" if it can, or if this cannot be determined."""
    if not files.exists(directory / "CURRENT") or not is_readable():
        return ""
    try:
        if directory.name in WITHOUT_POSITIONS:
            open_database(files, directory)
        for table in tables_in(directory.name):
            for _ in table_rows(files, directory, table):
                pass
    except (DamagedDatabase, UnknownFormat) as e:
        return str(e)
    except CannotRead:
        return ""
    return ""


def _by_names(files: Files, directory: Path) -> str:
    """Return why RocksDB cannot open or create a database in a directory, judging by file names only; "" if it can."""
    if not files.exists(directory):
        return ""
    if not files.is_directory(directory):
        return Text("{directory} is not a directory", directory=directory.name)
    for name in ("CURRENT", "LOCK"):
        if files.is_directory(directory / name):
            return Text("{name} is a directory", name=name)
    names = [entry.path.name for entry in files.list(directory)]
    if not files.exists(directory / "CURRENT") and (logs := [name for name in names if name.endswith(".log")]):
        return Text("CURRENT is missing, but the write-ahead log {logs} exists", logs=logs[0])
    return ""


def _unreadable_messages(
    queues: RocksDBQueues, bounds: Mapping[QueueName, Mapping[str, Bound]]
) -> dict[QueueName, int]:
    """Read the rows between the ends of each queue, and count those that cannot be read."""
    out: dict[QueueName, int] = {}
    for name, ends in bounds.items():
        if "max" not in ends:
            continue
        first = ends["min"].queue_offset if "min" in ends else 0
        stop = ends["max"].queue_offset + 1
        queue = queues.queue(*name)
        for _ in queue.runs(first, stop):
            pass
        if count := queue.unreadable_in(first, stop):
            out[name] = count
    return out


def _first_rows(store: Store, rows: Rows, log: range) -> dict[QueueName, int]:
    """Return the queue offset of each queue's first row of a message in the log; queues without one are left out."""
    found: dict[QueueName, int] = {}
    try:
        database = RocksDBQueues(store)
    except CannotRead:
        return found
    for key, last in rows.items():
        if last.commitlog_offset not in log:
            continue
        queue = database.queue(*key)
        low, high = queue.first, last.queue_offset
        while low < high:
            middle = (low + high) // 2
            unit = UNIT.array(queue.pread(UNIT.size, middle * UNIT.size).ljust(UNIT.size, b"\0"))[0]
            low, high = (middle + 1, high) if int(unit["commitlog_offset"]) < log.start else (low, middle)
        found[key] = low
    return found
