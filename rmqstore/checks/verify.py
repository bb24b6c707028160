"""Find everything that is wrong with a store, or with a part of its log, in one pass over the log.

The steps are in the order in which they depend on each other. A step imports modules that only some stores need (for
RocksDB, an index, POP) when the store has something to check.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rmqstore.checks.beside.checkpoint import VerifiedEnd, check_checkpoint, read_checkpoint
from rmqstore.checks.beside.config import (
    ConfigFacts,
    check_batch_topics,
    check_config,
    check_delay_offsets,
    check_missing_config,
    check_offsets,
    check_tier,
)
from rmqstore.checks.beside.controller import check_epochs
from rmqstore.checks.beside.directory import check_directory
from rmqstore.checks.beside.read_rights import check_read_rights
from rmqstore.checks.beside.timer import LogRange, check_lost_timer, check_timer, listed_offsets
from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.commitlog import (
    PassWork,
    end_of_log,
    join_queues,
    reach_of,
    read_log,
    too_young_to_expire,
)
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.findings import check_log
from rmqstore.checks.log.log_contents import EntryTally
from rmqstore.checks.log.log_pass import PassOptions
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_findings import check_false_blanks, check_missing_files, check_queue_offsets
from rmqstore.checks.log.witnesses import FILES_AFTER, Witnesses, begin_of, outside_records
from rmqstore.checks.misplaced_files import find_misplaced
from rmqstore.checks.options import VerifyOptions as VerifyOptions
from rmqstore.checks.parts import check_parts, in_rocksdb
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding, Findings, QueueRange, QueueState
from rmqstore.checks.problems.report import problem_counts as problem_counts
from rmqstore.checks.queues.batch_queue import check_batch_queues
from rmqstore.checks.queues.consumequeue import check_consume_queues, check_queue_extensions, check_queues_alone
from rmqstore.checks.verified import Verified as Verified
from rmqstore.errors import about
from rmqstore.files.config import batch_topics, only_in_backup, topics_of_known_kind
from rmqstore.files.log_ends import queue_bounds
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.formats.message import parse_message
from rmqstore.formats.properties import REVIVE_TOPIC_PREFIX, ROCKSDB_HALF_TOPIC, TIMER_TOPIC, is_lmq
from rmqstore.formats.rocksdbstore import TIMER_FAMILY
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE, Mapper, jobs_or_default
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.queues.rocksdb import RocksDBFacts, RowsRead
    from rmqstore.checks.rows import MessageRowFacts
    from rmqstore.files.config import StoredTable


def _left_out(options: VerifyOptions, resume_at: Mapping[str, int] | None) -> str | None:
    """Say which part of the log is not read; None for nothing. `resume_at`: where a deadline ended the run."""
    if resume_at is not None:
        name, at = next(iter(resume_at.items()))
        return Text("{name} from offset {at} on: time limit reached; --resume continues there", name=name, at=at)
    if options.start_at:
        return Text("the part that an earlier run read: this run continued from there")
    if not options.reads_whole_log:
        return Text("messages outside of the given time range")
    return None


def _narrowed(queue: MappedFileQueue, body_offset: int, options: VerifyOptions) -> MappedFileQueue:
    """Return the files of a log that the options do not leave out, as a queue."""
    files = list(queue.files)
    if options.start_at is not None:
        files = [f for f in files if f.stop > options.start_at.get(queue.name, 0)]
    if options.since is not None or options.until is not None:
        times = [first_store_time(f, body_offset) for f in files]
        kept = []
        for i, file in enumerate(files):
            later = next((t for t in times[i + 1 :] if t is not None), None)
            begin = times[i]
            if options.until is not None and begin is not None and begin >= options.until:
                break
            if options.since is not None and later is not None and later <= options.since:
                continue
            kept.append(file)
        files = kept
    return MappedFileQueue(queue.name, queue.directories, queue.file_size, files, queue.odd, queue.size_from)


def first_store_time(file: MappedFile, body_offset: int) -> int | None:
    """Return the store time (ms) of the first record of a file; None without a record at its start."""
    head = file.read_at(4, body_offset)
    size = int.from_bytes(head, "big", signed=True) if len(head) == 4 else 0
    if not 0 < size <= MAX_RECORD:
        return None
    message, _ = parse_message(file.read_at(size, body_offset))
    return message.store_timestamp if message is not None else None


_LOGS = ("commitlog", "dledger", "dledger-group")  # parts of a store that contain only a log


class Examination:
    """One verification of a store; the results are in `verified`.

    `on_disk` is the store with the present names of its files; `store` has them renamed, if log files are misplaced.
    `crosscheck`: consume queues are compared with the log. `partial` says what of the log was not read; None: nothing.
    """

    def __init__(self, store: Store, options: VerifyOptions, verified: Verified, mapper: Mapper | None) -> None:
        self.options = options
        self.mapper = mapper
        self.verified = verified
        self.report = verified.report
        self.findings = verified.report.findings
        self.started = time.monotonic()
        self.on_disk = self.store = store
        self.log_alone = store.part in _LOGS
        verified.units = options.units
        self.checkpoint: bytes | None = None
        self.partial: str | None = None
        self.crosscheck = False
        self.rocksdb_tables: dict[str, StoredTable] = {}
        self.states: dict[str, QueueState] = {}

    def run(self) -> None:
        """Run all steps. Everything that refers to the log is read before the end of the log is determined.

        A broker writes the log first, and everything that refers to it later. So on a live store, nothing that is read
        in this order can be ahead of the log.
        """
        if not self.report.live:
            self.find_misplaced()
        self.directories()
        self.index()
        if self.report.live:
            self.on_disk.relist_logs()
            self.find_misplaced()
        self.logs()
        self.whole_logs()
        self.queues()
        self.beside_the_log()
        if self.partial is None:
            self.of_all_messages()

    def find_misplaced(self) -> None:
        """Find log files with wrong names, and continue with the store after their repair."""
        misplaced = find_misplaced(self.on_disk)
        self.findings.extend(file.finding() for file in misplaced.files)
        self.store, self.verified.misplaced = misplaced.store, misplaced

    def directories(self) -> None:
        """Check the configuration, directory entries, and whether RocksDB directories can be read."""
        store, report = self.store, self.report
        opened_rocksdb: set[str] = set()
        if store.has_rocksdb:
            rows: RowsRead = in_rocksdb("queues").open_rocksdb(store, report)
            self.crosscheck, self.rocksdb_tables, opened_rocksdb = rows.queues, rows.tables, rows.directories
            self.verified.damaged_rows = rows.damaged
        if store.kind is not StoreKind.ROCKSDB:
            self.crosscheck = store.part is None
        config = ConfigFacts()
        if not self.log_alone:
            self.checkpoint = read_checkpoint(store)
            config = check_config(store, self.findings, live=report.live, rocksdb=self.rocksdb_tables)
        check_directory(store, report, queue_types=config.queue_types, opened_rocksdb=opened_rocksdb)
        report.unchecked.extend(config.unchecked)
        self.verified.config = config

    def index(self) -> None:
        """Check the structure of index files."""
        if self.store.index_files:
            from rmqstore.checks.beside.index import check_index

            check, known = partial(check_index, self.store, live=self.report.live), self.options.last_run
            if known is None:
                self.verified.index = check(self.findings)
            else:
                self.verified.index = known.index(self.store, self.findings, check)
            self.report.unchecked.extend(self.verified.index.unchecked)

    @property
    def index_is_kept(self) -> bool:
        """Whether the broker indexes messages, and all messages were read."""
        return self.store.config.bool("messageIndexEnable") and self.partial is None

    def logs(self) -> None:
        """Read the logs."""
        options, report, store = self.options, self.report, self.store
        types = self.verified.config.queue_types
        self.verified.batch_topics = batch_topics(store, types)
        from_messages = types is None and store.part is None and store.kind is not StoreKind.ROCKSDB
        passing = PassOptions(
            store.path,
            tuple(sorted(store.config.given.items())),
            ScanOptions(crc=not options.quick, drop_cache=report.live),
            crosscheck=self.crosscheck,
            files=store.files,
            live=report.live,
            forecast=store.kind is not StoreKind.PART,
            batch_topics=self.verified.batch_topics,
            known_topics=topics_of_known_kind(store, types) if from_messages else None,
            keep=options.keep,
            levels=delay_levels(store),
            index=self.verified.index,
            fans_out=self._fans_out(),
            trusts_units=options.trusts_units,
        )
        if options.last_run is not None:
            options.last_run.begin()
        deadline = self.started + options.max_duration if options.max_duration else None
        for queue, body_offset in store.logs:
            part = queue if options.reads_whole_log else _narrowed(queue, body_offset, options)
            if not part.files:
                continue
            work = PassWork(
                # processes start too slowly beside a broker that has just deleted files of the log
                1 if store.expiring else jobs_or_default(options.jobs, part.bytes_on_disk),
                options.split_size or SPLIT_SIZE,
                options.progress,
                self.mapper,
                deadline,
                options.units,
                options.last_run,
            )
            bounded = replace(passing, stop_before=end_of_log(part, body_offset)) if report.live else passing
            result = read_log(part, bounded, self.findings, body_offset=body_offset, work=work)
            self.verified.batch_topics |= result.inner
            passing = replace(passing, batch_topics=self.verified.batch_topics)
            if body_offset:
                self.verified.dledger = result
            else:
                self.verified.legacy = result
            if result.cut_at is not None:
                report.resume_at = {queue.name: result.cut_at}
                break
        if options.last_run is not None:
            report.reused = options.last_run.reused
        if store.part is None:
            check_batch_topics(store, self.verified.config, self.verified.batch_topics, self.findings)
        elif not self.log_alone:
            report.unchecked.append(
                Text("{name} was checked without a log, so not against messages", name=store.path.absolute().name)
            )
        self.partial = _left_out(options, report.resume_at)
        if self.partial is not None:
            report.unchecked.append(self.partial)

    def _fans_out(self) -> frozenset[str] | None:
        """Return the topics whose messages get units in light queues; None: all topics."""
        if not self.store.light_in_rocksdb:
            return None
        from rmqstore.files.rocksdb.written_rows import written_rows

        return written_rows(self.store).topics

    def whole_logs(self) -> None:
        """Judge the logs as a whole, and compare the index with them."""
        report, store, verified, results = self.report, self.store, self.verified, self.verified.results
        committed = None
        if store.dledger is not None:
            from rmqstore.checks.beside.dledger import committed_end

            committed = committed_end(store.dledger, verified.dledger.tiling if verified.dledger else None)
        for result in results:
            followed = result is not results[-1]
            last_part = not followed and self.partial is None
            check_log(result, self.findings, last_part=last_part, followed=followed)
            if result.unreadable:
                report.unchecked.append(
                    Text("{result}: a disk error occurred; the data after it was not read", result=result.name)
                )
        self._compare_index(committed)
        types = verified.config.queue_types
        # every broker configures topics of its own: an empty table, as in databases of version 2, tells nothing
        topics = frozenset(types) if types and not only_in_backup(store.files, store.root) else None
        verified.logs = Logs(results, topics, lag_is_normal=store.abort or report.live, queues=join_queues(results))
        verified.logs.grows = report.live or self.partial is not None
        verified.logs.witnesses = self._witnesses()
        verified.logs.committed = committed
        if verified.legacy is not None:
            report.commitlog = verified.legacy.numbers()
        if verified.dledger is not None:
            report.dledger = verified.dledger.numbers()

    def _witnesses(self) -> Witnesses:
        """Return what lists messages outside of the logs' records, before the consume queues are checked.

        Beside a log that grows, or of which only a part was read, nothing is outside.
        """
        verified, results = self.verified, self.verified.results
        if verified.logs.grows or not results:
            return Witnesses(begin=begin_of(results))
        outside = outside_records(results)
        last, offsets = results[-1], list[int]()
        known = verified.index.offsets_within(outside) if verified.index is not None else np.zeros(0, np.int64)
        if verified.dledger is not None:
            from rmqstore.checks.beside.dledger import entries_after, entries_between

            offsets = sorted(pos + last.body_offset for pos, _ in entries_after(self.store, last))
            known = np.union1d(known, entries_between(self.store, last) + last.body_offset)
            known = np.union1d(known, np.array(offsets, dtype=np.int64))
        if self.store.timer_log is not None:
            near = outside.clip(0, last.wrote + FILES_AFTER * last.queue.file_size)
            known = np.union1d(known, listed_offsets(self.store.timer_log, near))
        return Witnesses(
            outside,
            offsets=known,
            named=np.zeros(len(known), dtype=np.bool_),
            begin=begin_of(results),
            tail=last.wrote,
            file_size=last.queue.file_size,
            stale=last.stale_from is not None,
            entries=offsets,
        )

    def _compare_index(self, committed: int | None) -> None:
        catalog, logs, results = self.verified.index, self.store.logs, self.verified.results
        if catalog is None:
            return
        if logs:
            if self.report.live or self.partial is not None or not results:  # perhaps not all of the log was read
                reach = end_of_log(*logs[-1])
            else:
                reach = reach_of(results[-1].tiling)
            catalog.check_end(reach, self.findings)
        if self.index_is_kept:
            tally = IndexTally()
            for result in results:
                tally.merge(result.index)
            catalog.report(tally, self.findings, committed)

    def queues(self) -> None:
        """Compare consume queues with the logs, or check them without a log, and check the logs' queue offsets."""
        store, findings, results, logs = self.store, self.findings, self.verified.results, self.verified.logs
        alone: dict[str, QueueState] = {}
        if self.crosscheck and results:
            self._queues_against_log()
        elif not results and not self.log_alone:
            if store.kind is StoreKind.PART:
                self.states = check_queues_alone(store, findings)
            elif store.kind is StoreKind.ROCKSDB:
                alone = self._rows_alone()
            else:
                alone = check_queues_alone(store, Findings(keep=0)) | self._batch_queues_alone()
            alone = {label: state for label, state in alone.items() if not is_lmq(label)}  # counted in their topics
        units = sum(s.max for s in (self.states if results else alone).values())
        expired = logs.min_offset > 0 and logs.witnesses.before and not logs.witnesses.listed
        if units and not any(r.messages for r in results) and self.partial is None and not expired:
            name, at = (results[-1].queue.name, results[-1].min_offset) if results else ("commitlog", 0)
            units = sum(max(0, s.max - s.min) for s in alone.values()) or units
            findings.add(Finding(codes.CL_NO_MESSAGES, name, "", at, 0, {"units": units}))
            self.verified.alone = alone
        if self.crosscheck:
            check_queue_extensions(store, findings)
        self.report.queues = self.states
        for result in results:
            check_false_blanks(result, findings, logs.pointing)
            check_missing_files(result, findings, logs.pointing)
        if any(result.index.contradicted for result in results) and self.index_is_kept:
            from rmqstore.checks.beside.index import report_contradicted

            report_contradicted(logs, findings)
        check_queue_offsets(findings, logs)

    def _batch_queues_alone(self) -> dict[str, QueueState]:
        """Return the batch queues of a store without a log."""
        queues = self.store.consume_queues(QueueKind.BATCH)
        bounds = ((files.label, queue_bounds(files.queue, 0, batch=True)) for files in queues)
        return {label: QueueState(found.min, found.max, found.max) for label, found in bounds}

    def _rows_alone(self) -> dict[str, QueueState]:
        """Return the consume queues in RocksDB of a store without a log."""
        from rmqstore.files.rocksdb.database import CannotRead
        from rmqstore.files.rocksdb.queues import RocksDBQueues

        directory = self.store.rocksdb_directory
        try:
            rows = RocksDBQueues(self.store)
            queues = {f"{topic}/{queue_id}": rows.queue(topic, queue_id) for topic, queue_id in rows.names()}
            return {label: QueueState(queue.first, queue.behind, queue.behind) for label, queue in queues.items()}
        except CannotRead as error:
            self.report.unchecked.append(about(f"{directory.name}/", error))
            return {}

    def _queues_against_log(self) -> None:
        store, logs = self.store, self.verified.logs
        if store.kind is StoreKind.ROCKSDB:
            check = in_rocksdb("queues").check_rocksdb_queues
            in_rows: RocksDBFacts = check(store, logs, self.report, self.verified.batch_topics)
            self.states = in_rows.states
            self.verified.unreadable_rows = in_rows.unreadable
            self.verified.damaged_rows = in_rows.damaged
        elif store.light_in_rocksdb:
            light: RocksDBFacts = in_rocksdb("queues").check_files_and_light_rows(store, logs, self.report)
            self.states = light.states
            self.verified.damaged_rows = light.damaged
            self.verified.dispatched_rows = light.dispatched
        else:
            self.states = check_consume_queues(store, logs, self.findings)
        if store.rocksdb_beside:
            check_rows = in_rocksdb("queues beside files").check_double_written
            self.verified.damaged_rows |= check_rows(store, self.states, self.report)
        if store.kind is not StoreKind.ROCKSDB:
            self.states.update(check_batch_queues(store, logs, self.findings))

    @property
    def queue_range(self) -> QueueRange | None:
        """Returns the range of a queue according to its units and the log; None if offsets cannot be compared with it.

        A slave gets its offsets from the master, and they may be ahead.
        """
        if not self.states or self.store.config.role == "slave":
            return None
        ranges = {k: (v.min, max(v.max, v.expected_max)) for k, v in self.states.items()}
        return lambda topic, queue_id: ranges.get(f"{topic}/{queue_id}")

    def _first_in_log(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of a queue's first message in the log; 0 without one, or if records contradict it."""
        part = self.verified.logs.queues.get((topic, queue_id))
        sound = part is not None and part.messages and not (part.outliers or part.repeats or part.restarts)
        return part.first if part is not None and sound else 0

    def beside_the_log(self) -> None:
        """Compare the checkpoint and the offsets in the configuration with the log and the queues."""
        if self.log_alone:
            return
        store, results = self.store, self.verified.results
        end = VerifiedEnd(max(0, *(r.latest for r in results)), results[-1].rolled) if results else None
        check_checkpoint(store, end if self.partial is None else None, self.findings, raw=self.checkpoint)
        queue_range = self.queue_range
        if results and self.options.reads_whole_log:
            notes = too_young_to_expire(self.on_disk, results[0])
            self.verified.too_young = bool(notes)
            self.report.notes.extend(notes)
        if queue_range is not None and self.partial is None:
            config = self.verified.config
            times = (results[-1].last_time, end.last_store_timestamp) if end is not None else (0, 0)
            check_offsets(config, queue_range, self.findings)
            check_read_rights(store, self.states, self.findings)
            check_tier(config, queue_range, self._first_in_log, self.findings)
            check_delay_offsets(store, config, queue_range, self.states, times, self.verified.logs, self.findings)
        if results and self.options.reads_whole_log and self.store.part is None and not self.report.live:
            check_missing_config(store, self.verified.config, self.states, self.verified.logs.topics, self.findings)
        if results and results[-1].messages and self.options.reads_whole_log and store.part is None:
            check_epochs(store, max(results[-1].wrote, results[-1].reaches), self.findings)
        self.verified.config.tables = {}

    def of_all_messages(self) -> None:
        """Check what needs the whole log: a DLedger group, and the timer."""
        store, results, live = self.store, self.verified.results, self.report.live
        if store.dledger is not None:
            self._group()
        elif store.part in ("dledger-checkpoint", "currterm"):
            from rmqstore.checks.beside.dledger import check_dledger_texts

            check_dledger_texts(store, self.findings)
        if self.log_alone:
            return
        span = None
        if results:
            latest = max(r.latest for r in results)
            first = min(r.min_offset for r in results)
            span = LogRange(first, results[-1].reaches, latest, results[-1].last_time)
        self.verified.timer = check_timer(store, span, self.findings, queue_range=self.queue_range, live=live)
        rows = self.verified.rows = self._message_rows()
        if span is not None and store.part is None and not live and not (rows and rows.positions.get(TIMER_FAMILY)):
            check_lost_timer(store, span, self.verified.timer, self.queue_range, self.findings)
        if not live and any(label.startswith((REVIVE_TOPIC_PREFIX, TIMER_TOPIC)) for label in self.states):
            from rmqstore.checks.beside.pop import check_revive_log

            self.verified.revive = check_revive_log(
                store, self.states, self.queue_range, span.latest if span else 0, self.findings
            )
        if store.has_pop_rows:
            from rmqstore.checks.beside.pop import check_pop_rows

            self.verified.popped = check_pop_rows(store, self.report, self.queue_range)
        check_parts(store, self.report)
        if any(result.fillers for result in results) or store.files.has_entry(store.journal_directory):
            from rmqstore.checks.filler_notes import find_fillers

            self.report.fillers = find_fillers(self.on_disk, self.verified.logs)

    def _message_rows(self) -> MessageRowFacts | None:
        """Check the rows of rocksdbstore/, of a store that may have some, or half messages that need some."""
        if not (self.store.may_have_message_rows or f"{ROCKSDB_HALF_TOPIC}/0" in self.states):
            return None
        check = in_rocksdb("message rows").check_message_rows
        found: MessageRowFacts | None = check(self.store, self.verified.logs, self.report, queue_range=self.queue_range)
        return found

    @property
    def tells_next_start(self) -> bool:
        """Whether what was read decides what the next start of a broker would do."""
        has_messages = self.verified.results or codes.CL_NO_MESSAGES in self.report.findings.counts
        return self.partial is None and self.store.kind is not StoreKind.PART and bool(has_messages)

    def _group(self) -> None:
        from rmqstore.checks.beside.dledger import check_dledger

        store, verified, report = self.store, self.verified, self.report
        assert store.dledger is not None
        entries, tiling = EntryTally(), None
        if verified.dledger is not None:
            entries, tiling = verified.dledger.entries, verified.dledger.tiling
        if verified.dledger is not None and entries.entries:  # damaged entries at the end have their own findings
            last_index = entries.last_index + verified.dledger.damaged_tail
            entries = replace(entries, last_index=last_index, end=max(entries.end, verified.dledger.reaches))
        committed = check_dledger(store, store.dledger, entries, self.findings, tiling=tiling, live=report.live)
        if report.dledger is not None:
            report.dledger |= {"group_dir": store.dledger.directory.name, "committed_index": committed}
