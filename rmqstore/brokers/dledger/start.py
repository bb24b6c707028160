"""Simulates the start of a broker in DLedger mode, including the first one on a plain commitlog.

Source: DLedgerCommitLog#recover (to 5.1.4), #dledgerRecoverNormally, #dledgerRecoverAbnormally (from 5.2.0),
#setRecoverPosition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from rmqstore.brokers.dledger.recovery import DLedgerRecovery, DLedgerState
from rmqstore.brokers.load.mapped_files import STRICT, Loaded, SimulatedFiles, load_directories
from rmqstore.brokers.log.files import Scanned
from rmqstore.brokers.log.plain_start import PlainStart
from rmqstore.brokers.log.start_file import by_checkpoint, head_store_time
from rmqstore.brokers.log.walk import LogReader, Walk
from rmqstore.brokers.queues.batch_queue import BatchQueue
from rmqstore.brokers.queues.dispatch import DispatchCondition
from rmqstore.brokers.rules.forecast import LOAD_FALSE, PROCESS_EXIT, QueueKey, StartFails, StartForecast, StartOptions
from rmqstore.brokers.rules.versions import BrokerRules
from rmqstore.files.broker_config import DLEDGER_INDEX_FILE_SIZE, BrokerConfig
from rmqstore.files.store import DLedgerFiles, Store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import BATCH_UNIT, UNIT
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import BLANK, BLANK_MAGIC, HEADS_BY_FLAG, PHYSICAL_OFFSET_AT, is_dispatched
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.tiling import Tiling
from rmqstore.scan.units import KnownUnits
from rmqstore.texts import Text


class DLedgerStart(PlainStart):
    """One simulated start in DLedger mode."""

    def __init__(
        self,
        store: Store,
        tiling: Tiling | None,
        rules: BrokerRules,
        config: BrokerConfig,
        options: StartOptions,
    ) -> None:
        group = store.dledger
        wanted = config.given.get("dLegerSelfId", "").strip()
        if group is not None and wanted and group.self_id != wanted:
            group = None  # the directory belongs to another node: this node starts without entries
        legacy = group is None or not group.data.files
        super().__init__(store, tiling if legacy else None, rules, config, options)
        self.group: DLedgerFiles | None = group
        home = group.directory if group is not None else store.root / f"dledger-{wanted or 'n0'}"
        self.home = home
        size = group.data.file_size if group is not None and group.data.files else self.file_size
        self.data = SimulatedFiles(home / "data", size)
        index_size = group.index.file_size if group is not None else DLEDGER_INDEX_FILE_SIZE
        self.index = SimulatedFiles(home / "index", index_size)
        fits = group is not None and tiling is not None and tiling.start == group.data.start
        tiled = frozenset(f.path for f in group.data.files) if group is not None and fits else frozenset()
        scanned = Scanned(None if legacy else tiling, tiled)
        body_offset = dledger.ENTRY.size
        self.entries = LogReader(
            self.data.files, size, rules, self.parser, scanned, thorough=self.thorough, body_offset=body_offset
        )
        self.state = DLedgerState()
        self.divided = -1
        self._before_cut: dict[QueueKey, int] = {}
        self._early_end = 0

    def with_known(self, units: KnownUnits | None, unreadable_rows: Mapping[QueueKey, int] | None = None) -> Self:
        """Pass in the units that the good messages of the tiling need, and the unreadable rows; return self."""
        self.entries.units = units
        self.unreadable_rows = unreadable_rows
        return self

    # --- recover --------------------------------------------------------------------------------------------------

    def _recover_log(self, max_cq: int) -> None:
        self._load_group()
        if self.data.files:
            self._recover_entries()
            return
        if self.log.files:
            clean = self.clean_exit
            if not self.rules.dledger_abnormal:
                self.clean_exit = True  # up to 5.1.4, the first start in DLedger mode always recovers normally
            super()._recover_log(max_cq)
            self.clean_exit = clean
            if self.walk is None or not self.walk.fatal:
                self._pad()
        else:
            super()._no_log()

    def _no_log(self) -> None:
        self._recover_log(self.queues.max_address())

    def _load_group(self) -> None:
        group = self.group
        directories = group.data.directories if group is not None else (self.home / "data",)
        for files, folders in ((self.data, directories), (self.index, (self.home / "index",))):
            loaded = load_directories(folders, files.file_size, STRICT, self.files)
            self._refuse(loaded)
            files.files.extend(loaded.files)

    def _refuse(self, loaded: Loaded) -> None:
        """Fail on an obstacle: a wrong length ends the process, a wrong name only makes load() return false."""
        if loaded.obstacle is None:
            return
        text = loaded.obstacle.reason_text(self.store.root)
        code = LOAD_FALSE if "NumberFormatException" in loaded.obstacle.log_line else PROCESS_EXIT
        raise StartFails(text, loaded.obstacle.log_line, code)

    def _recover_entries(self) -> None:
        max_cq = self.dispatch_from  # also where 5.5.0 and newer begin to dispatch: not what the queues contain
        names = [f.path.name for f in self.data.files]
        self.state = DLedgerRecovery(self.files, self.data, self.index, self.entries, self.thorough).run(self.home)
        self.divided = self.data.files[0].start
        self.started_at = names[self.state.start_file]
        stop = self.data.max_offset()
        self.walk = Walk(self.state.entries_end, len(self.data.files) - 1, self.state.reason)
        self.lost = self.entries.losses(stop, self.data.files[-1].start)
        self.entries.files = self.data.files
        if self.state.index_rebuilt_from is not None:
            self.notes.append(
                Text(
                    "the DLedger index is rewritten from entry {index_rebuilt_from} on",
                    index_rebuilt_from=self.state.index_rebuilt_from,
                )
            )
        if self.state.begin_index > self.state.end_index:
            self.commits_from = self.state.begin_index
            self.notes.append(
                Text(
                    "no DLedger message can be read until entry {begin_index} is appended and committed: the "
                    "first data file begins with it, but the entries end with {end_index}",
                    begin_index=self.state.begin_index,
                    end_index=self.state.end_index,
                )
            )
        elif self.state.committed_pos <= 0:
            self.notes.append(Text("no committed index: nothing can be read until a leader commits"))
        elif self.state.committed_pos < stop:
            self.notes.append(
                Text(
                    "entries from {committed_pos} on become readable when a leader commits them",
                    committed_pos=self.state.committed_pos,
                )
            )
        if self.clean_exit or not self.rules.dledger_abnormal:
            if max_cq >= stop and not self.rocksdb:
                self.queues.truncate(stop)
            return
        if self.rocksdb:
            return
        self.queues.keep_units()  # the truncation may remove units of the last walked log file
        walked = self.entries.walk(self._abnormal_start(), self.queues, DispatchCondition())
        # DLedgerCommitLog#dledgerRecoverAbnormally adds message sizes without the 48 bytes of their headers
        short = self.data.files[walked.file].start + walked.sizes
        if max_cq >= short and (not self.rules.max_cq_after_dispatch or self.queues.max_address() >= short):
            self._cut_too_early(short, stop)
        self.queues.keep_units(False)

    def _cut_too_early(self, short: int, stop: int) -> None:
        """Truncate the queues at `short`, where the broker wrongly assumes the end of the log; it is at `stop`."""
        self._before_cut = {
            key: q.files.max_offset() for key, q in self.queues.table.items() if q.max_physic_offset <= stop
        }
        self.queues.truncate(short)
        self._early_end = short

    def _count_cut(self) -> None:
        """Count the truncated units of messages that stay in the log.

        Re-dispatch restores only units from the committed position on.
        """
        if not self.dispatch and self.state.committed_pos <= self._early_end:
            return
        for key, end in self._before_cut.items():
            queue = self.queues.table[key]
            unit = BATCH_UNIT.size if isinstance(queue, BatchQueue) else UNIT.size
            if (cut := (end - queue.files.max_offset()) // unit) > 0:
                self.units_cut[key] = cut
        if self.units_cut:
            self.notes.append(
                Text(
                    "consume queues are cut at {early_end:,} instead of {max_offset:,}: 48 bytes too early per entry",
                    early_end=self._early_end,
                    max_offset=self.data.max_offset(),
                )
            )

    def _count_skipped(self) -> None:
        """Count the good messages between the last entry and the file in which new entries are appended.

        The broker takes a damaged header that begins with -1 for the end of the file. DLedger has no entries for the
        messages after it; consumers get those whose units stay, because DLedgerCommitLog#getMessage reads by address.
        """
        begin, end = self.state.entries_end, self.data.max_offset()
        if self.walk is None or begin >= end:
            return
        numbers = QueueTable()
        for columns in self.entries.good_between(begin, end):
            for number, offset, address, dispatched in zip(
                numbers.of(columns).tolist(),
                columns.queue_offset.tolist(),
                columns.offset.tolist(),
                is_dispatched(columns.sys_flag).tolist(),
                strict=True,
            ):
                key = java_text(numbers.topics[number]), numbers.queue_ids[number]
                if self.rocksdb or self.queues.serve(key, offset, address):
                    self.outside_dledger += 1
                elif dispatched:
                    self.lost.messages += 1
                    self.lost.queues[key] += 1
                    self._uncount_cut(key, offset)

    def _uncount_cut(self, key: QueueKey, offset: int) -> None:
        """Do not count a lost message among the units that are cut, too."""
        if offset >= self.queues.find(*key).ends[1] and self.units_cut.get(key):
            self.units_cut[key] -= 1
            if not self.units_cut[key]:
                del self.units_cut[key]

    def _abnormal_start(self) -> int:
        """Return the file that abnormal recovery begins with (DLedgerCommitLog#isMmapFileMatchedRecover).

        It checks only the magic (V1) and the store time of a file's first message.
        """
        index_safe = self.config.bool("messageIndexEnable") and self.config.bool("messageIndexSafe")
        for i in range(len(self.data.files) - 1, -1, -1):
            raw = self.data.read(self.data.files[i], HEADS_BY_FLAG[0x30].size, dledger.ENTRY.size)
            time = head_store_time(raw, v2=False, ipv6=True)
            offset = int.from_bytes(raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
            late = not time or (index_safe and time > self.checkpoint.index_msg_timestamp)
            if not late and by_checkpoint(self.rules, self.checkpoint, offset, time or 0):
                return i
        return 0

    def _pad(self) -> None:
        """Close the last commitlog file with a BLANK (DLedgerCommitLog#setRecoverPosition)."""
        last = self.log.files[-1]
        if last.wrote + BLANK.size > self.file_size:
            raise StartFails(
                Text("commitlog/{path} has no room for the closing BLANK", path=last.path.name),
                "load exception java.nio.BufferUnderflowException",
            )
        head = BLANK.parse(last.read_at(BLANK.size, last.wrote).ljust(BLANK.size, b"\0"))
        if head["magic"] != BLANK_MAGIC:
            self.notes.append(Text("a BLANK is written at {start}", start=last.start + last.wrote))
        last.wrote = self.file_size
        self.divided = last.start + self.file_size
        self.data.last_for_append(self.divided)
        self.notes.append(Text("first DLedger file: {divided:020d}", divided=self.divided))

    def _forecast(
        self, starts: bool, reason: str | None = None, log_line: str | None = None, exit_code: int | None = None
    ) -> StartForecast:
        self._count_cut()
        self._count_skipped()
        return super()._forecast(starts, reason, log_line, exit_code)

    def _more_files(self) -> tuple[SimulatedFiles, ...]:
        return (self.data, self.index)

    # --- start ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Re-dispatch the committed entries, then those that a leader commits later.

        Which entries a leader of a group with more members commits is unknown; assume all. It commits none while the
        log ends before its first entry (DLedgerMmapFileStore#updateCommittedIndex).
        Source: DefaultMessageStore#start; DLedgerCommitLog#getData, which ends at the committed position
        """
        known = self._max_offset()
        begin = known
        if self._redispatches_from_queues:
            begin = self._dispatch(max(self.queues.max_address(), self._min_offset(), 0), known)
            self._wait_for_dispatch(begin, known)
            self.queues.correct_min_offsets(self._min_offset())
        if self.data.files and self.commits_from is None:
            self.entries.jumped_at = None  # jumps so far do not depend on commits
            self._dispatch(begin, self.data.max_offset())
            # at damage, the broker jumps to the position committed at that moment, inside an entry or after one
            self.depends_on_commits = self.entries.jumped_at

    def _dispatch(self, begin: int, end: int) -> int:
        """Dispatch the legacy log and the entries from `begin` to `end`; return where re-dispatch stops."""
        if self.divided < 0 or begin < self.divided:
            begin = self.reader.reput(begin, min(end, max(self.divided, 0)), self.queues)
        if 0 <= self.divided <= begin < end:
            begin = self.entries.reput(begin, end, self.queues)
        return begin

    def _min_offset(self) -> int:
        if self.log.files:
            return self.log.min_offset()
        return self.data.files[0].start if self.data.files else 0

    def _max_offset(self) -> int:
        """Return the broker's maximum offset before a leader commits more entries (DLedgerCommitLog#getMaxOffset)."""
        if self.state.committed_pos > 0:
            return self.state.committed_pos
        return max(0, self.data.files[0].start if self.data.files else 0)
