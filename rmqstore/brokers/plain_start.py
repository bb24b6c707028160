"""Simulates the start of a broker on a plain commitlog: load, recover, re-dispatch.

Source: DefaultMessageStore#load, #recover, #start; CommitLog#recoverNormally, #recoverAbnormally (RocketMQ 4.3.0 to
5.5.1). `rules.py` has the rules of each version.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.brokers.dispatch import DispatchCondition, DispatchSettings, Queues
from rmqstore.brokers.forecast import LOAD_FALSE, PROCESS_EXIT, StartFails, StartForecast, StartOptions, StartRefused
from rmqstore.brokers.index_files import IndexLoad, entry_fault, load_index, writes_index_files
from rmqstore.brokers.load import (
    HIDDEN,
    QueueStores,
    batch_topics,
    check_after_load,
    check_before_load,
    check_command_line,
    check_plugins,
    check_queue_stores,
    database_directory,
    unreadable_after_load,
    unreadable_metadata,
)
from rmqstore.brokers.log_files import Scanned
from rmqstore.brokers.mapped_files import Obstacle, SimulatedFiles, load_directories
from rmqstore.brokers.queues import SimpleQueue
from rmqstore.brokers.record import ParserSettings
from rmqstore.brokers.rules import BrokerRules, Reput
from rmqstore.brokers.walk import DroppedRecords, Exit, LogReader, Manner, Walk, start_file
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import QueueKind, Store
from rmqstore.files.store_queues import ASSIGNING, PREFERRED, chooses_rocksdb
from rmqstore.formats.checkpoint import FILE_SIZE, StoreCheckpoint, parse_checkpoint
from rmqstore.formats.consumequeue import QueueName, round_file_size
from rmqstore.formats.javatext import parse_int
from rmqstore.formats.rocksdbstore import INDEX_FAMILY, TRANS_FAMILY
from rmqstore.scan.tiling import Tiling
from rmqstore.texts import Text, many

if TYPE_CHECKING:
    from rmqstore.brokers.rocksdb import Databases, RocksDBAtStart

LOADED_BY = {"compaction": "rmqstore.brokers.compaction", "rocksdb": "rmqstore.brokers.rocksdb"}
"""What simulates the load of a part that only some stores have."""
_COMPLETE = 1 << 62  # larger than any offset


def broker_file_size(config: BrokerConfig, key: str, known: int) -> int:
    """Return the file size (bytes) that a broker expects: `known`, or that of its broker.conf if no file can have it.

    A `known` size is one that the store can be read with.
    """
    size = config.int(key) if config.complete else known
    return known if size > 0 else round_file_size(size) if key == QueueKind.SIMPLE.size_key else size


class PlainStart:
    """One simulated start of a store with a plain commitlog."""

    def __init__(
        self,
        store: Store,
        tiling: Tiling | None,
        rules: BrokerRules,
        config: BrokerConfig,
        options: StartOptions,
    ) -> None:
        self.store = store
        self.rules = rules
        self.files = store.files
        self.config = config
        self.options = options
        self.dispatch = options.dispatch
        self.notes: list[str] = []
        self.depends_on_commits: int | None = None
        self.commits_from: int | None = None
        self.outside_dledger = 0
        self.deleted: list[Path] = []
        self.more_files: tuple[SimulatedFiles, ...] = ()
        """Files besides the commitlog and the queues from which the start may delete."""
        self.clean_exit = not store.abort
        self.parser = ParserSettings(
            check_crc=config.bool("checkCRCOnRecover"),
            force_property_crc=config.bool("forceVerifyPropCRC"),
            duplication=config.bool("duplicationEnable"),
            heap=options.heap,
        )
        queue = store.commitlog
        known = queue.file_size if queue is not None else config.int("mappedFileSizeCommitLog")
        self.file_size = broker_file_size(config, "mappedFileSizeCommitLog", known)
        self.log = SimulatedFiles(store.root / "commitlog", self.file_size)
        fits = queue is not None and tiling is not None and tiling.start == queue.start
        self.tiled = frozenset(f.path for f in queue.files) if queue is not None and fits else frozenset()
        scanned = Scanned(tiling, self.tiled)
        self.reader = LogReader(self.log, rules, self.parser, scanned, options=options)
        self.tiled_reader = self.reader
        """The reader whose `units` a caller may know."""
        with_rocksdb = (
            chooses_rocksdb(config, "storeType") if "storeType" in config.given else store.rocksdb_consume_queue
        )
        self.rocksdb = with_rocksdb and rules.rocksdb_queues
        self.kinds = QueueStores(self.rocksdb, self._writes_both())
        self.rows: RocksDBAtStart | None = None
        self.unreadable_rows: Mapping[QueueName, int] | None = None
        self.rocksdb_end: int | None = None
        self.message_rows: tuple[int, ...] = ()
        self.dispatch_from = 0
        self.dispatched_from = 0
        self.checkpoint = StoreCheckpoint()
        self.queues = Queues(store, rules, self._dispatch_settings())
        self.walk: Walk | None = None
        self.started_at: str | None = None
        self.lost = DroppedRecords()
        self.units_cut: dict[QueueName, int] = {}
        self.not_dispatched: tuple[int, int] | None = None

    @property
    def _light_in_rocksdb(self) -> bool:
        return self.store.light_in_rocksdb and self.rules.light_in_rocksdb

    def _databases(self) -> Databases:
        databases: type[Databases] = importlib.import_module(LOADED_BY["rocksdb"]).Databases
        return databases(self.store, self.config)

    def _dispatch_settings(self) -> DispatchSettings:
        return DispatchSettings(
            multi_dispatch=self.config.bool("enableMultiDispatch") and not self._light_in_rocksdb,
            light_in_rocksdb=self._light_in_rocksdb,
            reads_rows_beside=self._reads_rows_beside,
            half_rows_fail=self._half_rows_fail(),
            lmq=self.config.bool("enableLmq"),
            batch_topics=batch_topics(self.store),
            simple_size=self._queue_file_size(QueueKind.SIMPLE),
            batch_size=self._queue_file_size(QueueKind.BATCH),
        )

    def _queue_file_size(self, kind: QueueKind) -> int:
        return broker_file_size(self.config, kind.size_key, self.store.queue_file_size(kind))

    def _half_rows_fail(self) -> bool:
        """Return whether the broker keeps half messages in rocksdbstore/, and cannot open it."""
        if not (self.config.bool("transRocksDBEnable") and self.rules.message_rows_limit_start):
            return False
        return self._databases().cannot_open_rows()

    def run(self) -> StartForecast:
        """Load, recover and start; return the forecast, at the latest when something stops the start."""
        try:
            self._check_access()
            self._check_constructor()
            check_command_line(self.rules, self.config)
            check_before_load(self.store, self.rules, self.config)
            check_queue_stores(self.store, self.rules, self.config, self.kinds)
            check_plugins(self.rules, self.config)
            self._load_and_recover()
            self._check_configuration()
            self._compare_kinds()
            if self.dispatch:
                self._start()
        except StartRefused as refusal:
            return self._forecast(refusal)
        except StartFails as failure:
            if failure.exit_code == LOAD_FALSE and self.rules.shutdown_throws and self.config.bool("timerWheelEnable"):
                failure.exit_code = PROCESS_EXIT
                self.notes.append(HIDDEN)
            return self._forecast(failure)
        return self._forecast()

    def _check_access(self) -> None:
        """Fail if the broker cannot open a database of users or permissions. Errors: StartRefused."""
        configured = any(self.config.text(f"{name}MetadataProvider") for name in ("authentication", "authorization"))
        if configured and self.rules.access_databases:
            obstacle = self._databases().unreadable_access()
            if obstacle is not None:
                raise StartRefused(obstacle.reason_text(self.store.root), obstacle.log_line, PROCESS_EXIT)

    def _check_constructor(self) -> None:
        """Fail if the store's constructor refuses the settings of the log. Errors: StartRefused."""

    def _load_and_recover(self) -> None:
        self._stop_at(self._load())
        if self.rocksdb or self.kinds.both:
            self._open_rocksdb()
        index = load_index(self.store, self.clean_exit, self.checkpoint.index_msg_timestamp, self.config)
        self.deleted.extend(index.deleted)
        self.queues.entry_fault, self.queues.indexed_to = self._entry_fault(index), index.end
        self._recover()
        if self.walk is not None and self.walk.fatal:
            raise StartFails(
                Text("the record at {stop} claims more memory than the broker has", stop=self.walk.stop),
                "java.lang.OutOfMemoryError",
                PROCESS_EXIT,
            )
        if (fault := self.queues.entry_fault) is not None:
            words = Text("{reason}: dispatch ends at the next message with a key", reason=fault.reason)
            self.notes.append(words)
        if self.rules.index_failure_is_fatal:
            self._stop_at(index.obstacle)
        elif index.obstacle is not None:
            reason = index.obstacle.reason_text(self.store.root)
            self.notes.append(Text("{reason}: this file and the later ones are ignored", reason=reason))

    def _check_configuration(self) -> None:
        """Fail if the broker refuses its configuration once the store has loaded."""
        self._stop_at(unreadable_metadata(self.store, self.rules))
        if self.rocksdb:
            self._stop_at(self._databases().unreadable_config())
        self._stop_at(unreadable_after_load(self.store, self.rules, self.config), StartRefused)
        check_after_load(self.rules, self.config, self.kinds)

    def _stop_at(self, obstacle: Obstacle | None, kind: type[StartFails] = StartFails) -> None:
        if obstacle is not None:
            raise kind(obstacle.reason_text(self.store.root), obstacle.log_line)

    def _entry_fault(self, index: IndexLoad) -> StartFails | None:
        """Return why the broker cannot add an entry to the index: it throws at each message that needs one.

        Source: IndexService#getAndCreateLastIndexFile, whose `finally` releases a lock that it does not hold (4.9.7 to
        5.5.1)
        """
        if not writes_index_files(self.config):
            return None
        entry = self.store.top.get("index")
        if entry is not None and not entry.directory:
            return StartFails(Text("index is not a directory"), "java.lang.IllegalMonitorStateException")
        return entry_fault(self.config, index.count)

    # --- load -----------------------------------------------------------------------------------------------------

    def _load(self) -> Obstacle | None:
        loaded = load_directories(self.store.commitlog_directories, self.file_size, self.rules, self.files)
        self.deleted.extend(loaded.deleted)
        if loaded.ignored:
            names = ", ".join(p.name for p in loaded.ignored[:3])
            words = Text("does not load {entries} of commitlog/, starting with {names}")
            self.notes.append(words.format(entries=many(len(loaded.ignored), "entry", "entries"), names=names))
        if loaded.obstacle is not None:
            return loaded.obstacle
        self.log.files.extend(loaded.files)
        simple = None if self.rocksdb else self._load_queues(QueueKind.SIMPLE)
        if simple is not None and not self.rules.batch_queues:
            return simple
        # from 5.0.0 on the broker loads both trees, even if the first one fails
        batch = self._load_queues(QueueKind.BATCH) if self.rules.batch_queues and not self.rocksdb else None
        if simple is not None or batch is not None:
            return simple or batch
        if (obstacle := self._load_compaction()) is not None:
            return obstacle
        path = self.store.root / "checkpoint"
        if self.files.exists(path) and not self.files.is_file(path):
            return Obstacle(
                path, Text("{path} cannot be opened", path=path), "load exception java.io.FileNotFoundException"
            )
        self.checkpoint = parse_checkpoint(self.files.read_at(path, FILE_SIZE, 0))
        return None

    def _load_queues(self, kind: QueueKind) -> Obstacle | None:
        batch = kind is QueueKind.BATCH
        size = self.queues.settings.batch_size if batch else self.queues.settings.simple_size
        for topic in self.files.list(self.store.root / ("batchconsumequeue" if batch else "consumequeue")):
            if not topic.directory:
                continue
            for entry in self.files.list(topic.path):
                queue_id = parse_int(entry.path.name)
                if queue_id is None:
                    continue
                name = topic.path.name
                if self.rules.batch_queues and (name in self.queues.settings.batch_topics) != batch:
                    wrong, right = ("BatchCQ", "SimpleCQ") if batch else ("SimpleCQ", "BatchCQ")
                    text = f"The queue type of topic: {name} should be {wrong}, but is {right}"
                    return Obstacle(
                        entry.path,
                        Text("{path}: topics.json says that the topic is a {right}", path=entry.path, right=right),
                        text,
                    )
                loaded = load_directories([entry.path] if entry.directory else [], size, self.rules, self.files)
                self.deleted.extend(loaded.deleted)
                obstacle = loaded.obstacle or (None if batch else self._load_extension(entry.path))
                if obstacle is not None:
                    return obstacle
                self.queues.add(name, queue_id, batch, loaded.files)
        return None

    def _load_compaction(self) -> Obstacle | None:
        """Load the compacted queues, if the broker compacts topics."""
        if "compaction" not in self.store.top or not self.rules.compaction or not self.config.bool("enableCompaction"):
            return None
        loader = importlib.import_module(LOADED_BY["compaction"])
        loaded: tuple[Obstacle | None, list[Path]] = loader.load(self.store, self.rules, self.config, self.notes)
        self.deleted.extend(loaded[1])
        return loaded[0]

    def _load_extension(self, queue: Path) -> Obstacle | None:
        """Load the extension files of a queue, as ConsumeQueue#load does if enableConsumeQueueExt is set."""
        if not self.config.bool("enableConsumeQueueExt"):
            return None
        folder = self.store.root / "consumequeue_ext" / queue.parent.name / queue.name
        size = self._queue_file_size(QueueKind.EXT)
        loaded = load_directories([folder] if self.files.is_directory(folder) else [], size, self.rules, self.files)
        if self.clean_exit:  # after a crash, re-dispatch creates the deleted file again, even if no unit changes
            self.deleted.extend(loaded.deleted)
        return loaded.obstacle

    # --- recover --------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        for queue in self.queues:
            queue.recover()
        max_cq = self._dispatched() if self.rocksdb else self.queues.max_address()
        if self.kinds.both:
            self.rocksdb_end = self._dispatched()
        self.message_rows = self._message_rows()
        self.dispatch_from = self._dispatch_begin(max_cq)
        if self.log.files:
            self._recover_log(max_cq)
        else:
            self._no_log()
        self.queues.correct_min_offsets(self._min_offset())

    def _writes_both(self) -> bool:
        """Return whether the broker reads queues in files, and also opens and writes the same queues in RocksDB."""
        if self.rocksdb:
            return False
        key = "rocksdbCQDoubleWriteEnable"  # if not configured, infer it from the RocksDB, which only it creates
        given = "storeType" in self.config.given or key in self.config.given
        both = self.config.bool(key) if given else self.store.rocksdb_beside
        return both and self.rules.combined_queues

    @property
    def _reads_rows_beside(self) -> bool:
        """Whether consumers are served from the RocksDB of a broker that writes queues in files, too."""
        return self.kinds.both and chooses_rocksdb(self.config, PREFERRED)

    def _compare_kinds(self) -> None:
        """Compare the queues in files with those in RocksDB.

        Errors: StartFails if the broker reads one kind, assigns offsets with the other, and a queue's ends differ.
        """
        if not self.kinds.both:
            return
        found = self._databases().queue_that_differs(
            self.queues,
            self.rows.last if self.rows is not None else {},
            begin=self.dispatched_from,
            end=self._max_offset(),
            light_in_rocksdb=self._light_in_rocksdb,
        )
        if found is not None:
            differs = Text(
                "{topic}/{id} ends at another queue offset in RocksDB than in the files, and {preferred} and "
                "{assigning} choose different kinds of queues"
            )
            raise StartFails(
                differs.format(topic=found[0], id=found[1], preferred=PREFERRED, assigning=ASSIGNING),
                "CombineConsumeQueueStore currentReadStore not satisfied readable conditions",
                PROCESS_EXIT,
            )

    def _queue_ends(self) -> dict[QueueName, tuple[int, int]]:
        """Return the ends of the queues that consumers are served from."""
        if not self._reads_rows_beside:
            return {(queue.topic, queue.queue_id): queue.ends for queue in self.queues}
        return self._databases().ends_in_rows(
            self.queues,
            self.rows.last if self.rows is not None else {},
            dispatched_from=self.dispatched_from,
            log=range(self._min_offset(), self._max_offset()),
            light_in_rocksdb=self._light_in_rocksdb,
        )

    def _in_both(self, max_cq: int) -> int:
        """Return the end of what the queue files contain, and the RocksDB too if the broker writes both."""
        return max_cq if self.rocksdb_end is None else min(max_cq, self.rocksdb_end)

    def _message_rows(self) -> tuple[int, ...]:
        """Return the ends of the index and of half messages in rocksdbstore/ that recovery considers."""
        families = []
        if self.config.bool("indexRocksDBEnable") and self.rules.message_rows_limit_start:
            families.append(INDEX_FAMILY)
        only_there = not self.config.bool("transWriteOriginTransHalfEnable")
        if (
            self.config.bool("transRocksDBEnable")
            and self.rules.message_rows_limit_start
            and (only_there or self.rules.logics_offset)
        ):
            families.append(TRANS_FAMILY)
        if not families:
            return ()
        ends = self._databases().message_row_ends(families)
        if len(ends) < len(families):
            self.notes.append(
                Text("the rows in rocksdbstore/ cannot be read: recovery may begin earlier than forecast")
            )
        return ends

    def _dispatch_begin(self, max_cq: int) -> int:
        """Return the offset above which recovery dispatches after a clean exit, or where accelerated recovery begins.

        Errors: StartFails if accelerated recovery needs an offset that the checkpoint lacks.
        Source: DefaultMessageStore#recover, ConsumeQueueStore#getDispatchFromPhyOffset (RocketMQ 5.5.1)
        """
        by_queues = (self.clean_exit or self.rocksdb) and not self.message_rows
        if by_queues or not self.rules.logics_offset:
            return self._in_both(max_cq)
        begin = max_cq
        if not self.clean_exit and not self.rocksdb:
            begin, checkpoint = self.checkpoint.logics_physical_offset, self.checkpoint
            if self._accelerated() and begin <= 0 < checkpoint.physic_msg_timestamp:
                raise StartFails(
                    Text("enableAcceleratedRecovery needs the logicsPhysicalOffset that the checkpoint lacks"),
                    "Accelerated recovery is enabled but checkpoint's logicsPhysicalOffset is invalid",
                )
        return min([self._in_both(begin), *(end for end in self.message_rows if end > 0)])

    def _accelerated(self) -> bool:
        return not self.clean_exit and self.config.bool("enableAcceleratedRecovery") and self.rules.accelerated_recovery

    def _begin_in(self, index: int) -> int:
        """Return the position in the first file at which recovery begins to walk.

        Errors: StartFails if the position is after the end of the file.
        """
        if not self._accelerated():
            return 0
        at = max(0, self.dispatch_from - self.log.files[index].start)
        if at & 0xFFFFFFFF > self.file_size:  # the position is cut to 32 bits
            raise StartFails(
                Text("accelerated recovery would begin after the end of the file that recovery begins with"),
                "load exception java.lang.IllegalArgumentException: newPosition > limit",
            )
        return at & 0xFFFFFFFF

    def _dispatched(self) -> int:
        """Return the end of the last message with RocksDB rows; if unknown, assume that the rows are complete."""
        dispatched = self.rows.dispatched if self.rows is not None else None
        return _COMPLETE if dispatched is None else dispatched

    def _open_rocksdb(self) -> None:
        """Open the RocksDB of the consume queues. Errors: StartFails if that fails the load."""
        known = self.unreadable_rows
        name = database_directory(self.store, self.rules, self.config)
        self.rows = self._databases().at_start(name, rows=self.rocksdb and self.options.thorough and known is None)
        if self.rocksdb:
            self.unreadable_rows = self.rows.unreadable if known is None else known
        if self.rows.refusal:
            reason = Text("the RocksDB in {name}/: {refusal}", name=name, refusal=self.rows.refusal)
            raise StartFails(reason, "org.rocksdb.RocksDBException" if self.rocksdb else "postLoad Failed")

    def _no_log(self) -> None:
        """Delete the consume queues of a store without commitlog files, if the version does so."""
        if not self.clean_exit or self.rules.destroys_cq_without_log_after_clean_exit:
            self.notes.append(Text("there is no commitlog file: all consume queues are deleted"))
            self.queues.destroy()

    def _min_offset(self) -> int:
        return self.log.min_offset()

    def _max_offset(self) -> int:
        return self.log.max_offset()

    def _recover_log(self, max_cq: int) -> None:
        last_exit = Exit(
            self.clean_exit, self.checkpoint, max_cq, self.rocksdb, self.rocksdb_end, message_rows=self.message_rows
        )
        index = start_file(self.reader, self.rules, self.config, last_exit)
        self.started_at = self.log.files[index].path.name
        dispatch = (not self.clean_exit or self.rules.dispatches_after_clean_exit) and not self.rocksdb
        self.walk = self.reader.walk(
            index,
            self.queues if dispatch else None,
            self._condition(self.dispatch_from),
            Manner(
                self._begin_in(index),
                accept_half=not self.clean_exit and self.rules.half_message_accepted,
                bounded=not self.clean_exit
                and self.config.bool("checkCommitLogOffsetOnRecover")
                and self.rules.offset_check,
            ),
        )
        stop = self.walk.stop
        if self.walk.fatal:
            return
        # after a clean exit, only messages above dispatch_from are dispatched
        above = self.dispatch_from + 1 if self.clean_exit and self.rules.dispatches_after_clean_exit else 0
        self.dispatched_from = max(self.log.files[index].start, above)
        rows_end = max_cq if self.rocksdb else self.rocksdb_end if self._reads_rows_beside else None
        if rows_end is not None and rows_end < min(stop, self.dispatched_from):
            self.not_dispatched = (rows_end, self.dispatched_from)
        keep = self.log.files[self.walk.file].start
        self.lost = self.reader.losses(stop, keep)
        if self.walk.half_accepted:
            self.notes.append(
                Text("accepts {count} with inconsistent lengths", count=many(self.walk.half_accepted, "record"))
            )
        if self.rules.max_cq_after_dispatch:
            max_cq = self.queues.max_address()
        wanted = max_cq >= stop and (not self.clean_exit or self.rules.truncates_cq_after_clean_exit)
        if wanted or (not self.clean_exit and self.rules.cq_truncation_unconditional):
            self.queues.truncate(stop)
        self.log.truncate_dirty_files(stop)

    def _condition(self, max_cq: int) -> DispatchCondition:
        if self.clean_exit:
            return DispatchCondition(above=max_cq)
        if not self.parser.duplication and not self.config.bool("enableControllerMode"):
            return DispatchCondition()
        if not self.rules.batch_queues:  # before 5.0.0 the confirm offset is not stored: it is -1 during recovery
            return DispatchCondition(start_below=-1) if self.parser.duplication else DispatchCondition()
        self.notes.append(Text("duplication or controller mode: recovery dispatches up to the confirm offset only"))
        return DispatchCondition(end_within=self.checkpoint.confirm_phy_offset)

    # --- start ----------------------------------------------------------------------------------------------------

    @property
    def _redispatches_from_queues(self) -> bool:
        """Whether re-dispatch begins at the end of the consume queues, not at the end of the log."""
        rechecks = self.rules.batch_queues and self.config.bool("recheckReputOffsetFromCq")
        return self.rules.reput is Reput.CQ_MAX or rechecks

    def _start(self) -> None:
        # a controller gives the broker its role: until then, every broker is a slave
        gets_a_role = self.config.bool("enableControllerMode") and self.config.text("brokerRole").strip() == "SLAVE"
        if self.rules.batch_queues and not self.rocksdb and gets_a_role:
            self._dispatch_unconfirmed()
        if not self._redispatches_from_queues or self.rocksdb:
            return
        begin = max(self.queues.max_address(), self.log.min_offset(), 0)
        end = self.log.max_offset()
        if self.parser.duplication:
            self._wait_for_dispatch(begin, end)
            self.notes.append(Text("duplicationEnable: re-dispatch waits for a confirm offset"))
            return
        if begin < end:
            dispatched = self.reader.reput(begin, end, self.queues)
            self._wait_for_dispatch(dispatched, end)
        self.queues.correct_min_offsets(self._min_offset())

    def _wait_for_dispatch(self, stop: int, end: int) -> None:
        """Fail if re-dispatch stops before the end of the log, and the start waits for it.

        Source: DefaultMessageStore#start 4.9.7, `while (true)` around dispatchBehindBytes()
        """
        if self.rules.reput is Reput.CQ_MAX and stop < end:
            waits = Text(
                "re-dispatch stops at {stop:,}, before the end of the log at {end:,}, and the start waits for it "
                "without end"
            )
            raise StartFails(
                waits.format(stop=stop, end=end),
                "Try to finish doing reput the messages fall behind during the starting",
                None,
            )

    def _dispatch_unconfirmed(self) -> None:
        """Dispatch messages after the confirm offset, as the broker does once it has a role (#getConfirmOffset)."""
        end = self.log.max_offset()
        begin = min(max(self.checkpoint.confirm_phy_offset, self.log.min_offset()), end)
        if begin < end:
            words = Text("messages from {begin:,} on are dispatched once the controller has given the broker a role")
            self.notes.append(words.format(begin=begin))
            self.reader.reput(begin, end, self.queues)

    # --- forecast -------------------------------------------------------------------------------------------------

    def _forecast(self, failure: StartFails | None = None) -> StartForecast:
        starts = failure is None
        commitlog = {p for d in self.store.commitlog_directories for p in self.deleted if p.parent == d}
        others = [p for p in self.deleted if p not in commitlog]
        for files in (*(queue.files for queue in self.queues), *self.more_files):
            others.extend(files.deleted)
        made = {p for queue in self.queues for p in queue.files.created}
        if self.rocksdb:
            self.notes.append(Text("the consume queues are in RocksDB: what a start does to them is not simulated"))
        if self.queues.stopped_at is not None:
            place = self.store.relative(self.queues.stopped_at)
            self.notes.append(
                Text("no queue can be created at {place}: no later message of any queue gets a unit", place=place)
            )
        tables = [((q.topic, q.queue_id), q) for q in self.queues] if starts else []
        return StartForecast(
            version=self.rules.version,
            evidence=self.rules.evidence,
            starts=starts,
            reason=failure.reason if failure is not None else None,
            exit_code=failure.exit_code if failure is not None else None,
            log_line=failure.log_line if failure is not None else None,
            clean_exit=self.clean_exit,
            start_file=self.started_at,
            commitlog_stop=self.walk.stop if self.walk is not None else None,
            stop_reason=self.walk.reason if self.walk is not None else "",
            min_offset=self._min_offset() if starts else None,
            max_offset=self._max_offset() if starts else None,
            files_deleted=tuple(sorted(p.name for p in [*commitlog, *self.log.deleted])),
            other_files_deleted=tuple(sorted(self.store.relative(p) for p in others if p not in made)),
            queue_ends=self._queue_ends() if starts else {},
            redispatched={topic: n for topic, n in self.queues.dispatched.items() if n},
            messages_lost=self.lost.messages,
            lost_by_queue=dict(self.lost.queues),
            stale_accepted=self.walk.stale if self.walk is not None else 0,
            stale_tail=self.lost.in_kept_file,
            ghost_units={key: n for key, q in tables if (n := q.ghost_units())},
            shifted_units={key: q.shifted for key, q in tables if q.shifted},
            units_put={key: q.units_put() for key, q in tables if isinstance(q, SimpleQueue)},
            units_cut=self.units_cut if starts else {},
            consume_queues_simulated=not self.rocksdb,
            reads_rows_beside=self._reads_rows_beside,
            not_dispatched=self.not_dispatched,
            unreadable_rows=dict(self.unreadable_rows or {}) if starts else {},
            depends_on_commits=self.depends_on_commits,
            commits_from=self.commits_from if starts else None,
            outside_dledger=self.outside_dledger if starts else 0,
            notes=tuple(self.notes),
        )
