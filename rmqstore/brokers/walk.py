"""How a starting broker walks the commitlog, and from which file on.

Recovery and re-dispatch walk it in the same way. Every version accepts the runs of good records that a scan finds,
except for the records that `LogReader._take` selects. Everything else (damage, zeros, records of another place) goes
through the broker's byte-exact parser.
Source: CommitLog#recoverNormally, #recoverAbnormally (RocketMQ 4.3.0 to 5.5.1).

The file that recovery begins with depends on the version, and on whether the exit was clean.

Source: CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover; #isMappedFileMatchedRecover of
ConsumeQueueStore, CombineConsumeQueueStore, IndexService, IndexRocksDBStore, TransMessageRocksDBStore
(RocketMQ 4.3.0 to 5.5.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from rmqstore.brokers.dispatch import DispatchCondition, Queues, needs_exact_parser
from rmqstore.brokers.forecast import DispatchThrows, StartFails
from rmqstore.brokers.log_files import FileBytes, LogFiles
from rmqstore.brokers.mapped_files import SimulatedFile
from rmqstore.brokers.record import Checked
from rmqstore.brokers.rules import AbnormalStart, BrokerRules, NormalStart
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store_queues import ASSIGNING, PREFERRED, chooses_rocksdb
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import (
    BLANK,
    BORN_HOST_V6,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    MAGIC_V2_U32,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_V6,
    SYS_FLAG_AT,
)
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable, message_counts
from rmqstore.scan.kernels import Bool
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text

_NEVER = 1 << 63


@dataclass(slots=True)
class Walk:
    """The end of a walk: `stop` is processOffset, `file` the index of the last file that was read."""

    stop: int
    file: int
    reason: str = ""
    fatal: bool = False
    stale: int = 0
    """Accepted records whose PHYSICALOFFSET is not their own offset."""
    half_accepted: int = 0
    sizes: int = 0
    """Sum of TOTALSIZE in the last file that was read."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How recovery walks: it begins at `begin` (bytes) of the first file.

    `accept_half`: a record whose parts do not add up does not end it. `bounded`: a record whose PHYSICALOFFSET is in
    another file does (checkCommitLogOffsetOnRecover).
    """

    begin: int = 0
    accept_half: bool = False
    bounded: bool = False


@dataclass(slots=True)
class _BufferDispatch:
    """The state of re-dispatch in one buffer of the log. Units: bytes, positions in the file.

    `at` is reputFromOffset, `buffer` the position in the ByteBuffer: they differ after a half message, and after an
    entry whose message is a BLANK. The buffer has `size` bytes, of which `done` count as read (half messages do not).
    Re-dispatch ends at `end`, or earlier when `ended`; `failed` means at bytes that are not a record.
    """

    at: int
    buffer: int
    size: int
    end: int
    done: int = 0
    ended: bool = False
    failed: bool = False

    def advance(self, length: int) -> None:
        """Move past a dispatched record."""
        self.at += length
        self.buffer += length
        self.done += length


@dataclass(frozen=True, slots=True)
class _WalkTarget:
    """The queues to which records are dispatched (None: no dispatch), and the condition for it."""

    queues: Queues | None
    condition: DispatchCondition

    def mask(self, part: Columns) -> Bool:
        """Return which records of a chunk are dispatched."""
        if self.queues is None:
            return np.zeros(len(part), dtype=np.bool_)
        return self.condition.mask(part.physical_offset, part.size)

    def dispatch(self, checked: Checked, *, misplaced: bool = False) -> None:
        """Dispatch one record if it meets the condition."""
        if self.queues is not None and self.condition.meets(checked.physical_offset, checked.size):
            self.queues.dispatch(checked, misplaced=misplaced)

    def dispatch_columns(self, part: Columns, mask: Bool) -> None:
        if self.queues is not None:
            self.queues.dispatch_columns(part, mask)


@dataclass(slots=True)
class DroppedRecords:
    """The messages of good records at or after a position: those that a broker drops if it stops there.

    Messages of an inner batch count one by one; records that no broker dispatches are no messages.
    """

    messages: int = 0
    queues: Counter[QueueName] = field(default_factory=Counter)
    """Those of them whose queues are known: all, unless the log was not read again."""
    in_kept_file: int = 0
    """Good records whose bytes stay, in the file that contains the position."""


class LogReader(LogFiles):
    """Walks the files of a log as recovery and re-dispatch do."""

    jumped_at: int | None = None
    """Offset of the last damage at which the latest `reput` skipped the rest of the readable bytes."""

    # --- recovery -------------------------------------------------------------------------------------------------

    def walk(
        self, index: int, queues: Queues | None, condition: DispatchCondition, manner: Manner | None = None
    ) -> Walk:
        """Walk from the start of file `index` until a record fails or the last file ends; dispatch to `queues`."""
        manner = manner or Manner()
        start = self.files[index].start
        known = (
            self.known_from(start, queues) if queues is not None and not self.body_offset and not manner.begin else None
        )
        if queues is not None and known is not None and self.units is not None:
            walked = self.walk(index, None, condition, manner)
            if walked.stop >= known:
                queues.dispatch_known(self.units, start, known, condition)
                return walked
        begin = manner.begin
        out = Walk(start, index)
        columns = self.thorough or self.too_new or queues is not None
        above = _NEVER if queues is None else condition.above
        while True:
            file = self.files[out.file]
            out.stop = file.start + begin
            out.sizes = 0
            if queues is not None:
                queues.next_log_file()
            with FileBytes(file) as read:
                checked = self.check(read, begin, self.file_size)[0] if begin else None
                if checked is not None and not (checked.success and checked.size):
                    done = self._ends(checked, out) and not checked.success
                else:
                    runs = self.runs(out.file, begin, columns, above)
                    done = self._walk_file(file, read, out, runs, _WalkTarget(queues, condition), manner)
            if done or out.file + 1 >= len(self.files):
                return out
            out.file += 1
            begin = 0

    def _walk_file(
        self,
        file: SimulatedFile,
        read: FileBytes,
        out: Walk,
        runs: Iterator[Run],
        target: _WalkTarget,
        manner: Manner,
    ) -> bool:
        """Walk one file from `out.stop` on, advancing it; return False at a BLANK (the next file follows).

        Return True if the walk ends.
        """
        at = out.stop - file.start
        # after the last run the file ends, unless a broker has appended records since the scan
        for run in chain(runs, [Run(Kind.ZERO, _NEVER, _NEVER)]):
            run_end = run.stop - file.start
            aligned = run.start - file.start == at
            while at < run_end:
                if aligned and run.kind is Kind.RECORDS and not self.all_exact:
                    part = run.columns
                    if part is not None and part.offset[0] != file.start + at + self.body_offset:
                        part = part.take(part.offset >= file.start + at + self.body_offset)
                    refused = None if part is None else self._take(part, read, file, out, target)
                    if refused is not None:
                        at, bad = refused
                        out.stop = file.start + at
                        return self._ends(bad, out)
                    out.sizes += run_end - at - self.body_offset * (run.count if part is None else len(part))
                    at = run_end
                    out.stop = file.start + at
                    continue
                checked, advance = self.check(read, at, self.file_size)
                if checked.success and checked.size == 0:
                    return False
                if not checked.success and not (manner.accept_half and checked.size > 0):
                    return self._ends(checked, out)
                in_file = file.start <= checked.physical_offset <= file.start + self.file_size
                if manner.bounded and checked.success and not in_file:
                    out.reason = Text("the PHYSICALOFFSET belongs to another file")
                    return True
                aligned = checked.success and checked.physical_offset == file.start + at + self.body_offset
                if checked.success:
                    out.stale += not aligned
                    target.dispatch(checked, misplaced=not aligned)
                else:
                    out.half_accepted += 1
                at += advance
                out.sizes += checked.size
                out.stop = file.start + at
        raise AssertionError("bytes after the last run that are no record end the walk")

    def _ends(self, checked: Checked, out: Walk) -> bool:
        out.reason = checked.reason
        out.fatal = checked.fatal
        return True

    def _take(
        self, part: Columns, read: FileBytes, file: SimulatedFile, out: Walk, target: _WalkTarget
    ) -> tuple[int, Checked] | None:
        """Dispatch a chunk of good records; return position and verdict of the first that this version refuses."""
        odd = [] if self.is_plain(part, file) else needs_exact_parser(part)
        v2 = np.flatnonzero(part.magic == MAGIC_V2_U32)
        if len(v2) and not self.rules.v2:
            odd += v2.tolist()
        ipv6 = np.flatnonzero(part.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6))
        if len(ipv6) and not self.rules.ipv6:
            odd += ipv6.tolist()
        chosen = target.mask(part)
        done = 0
        for i in sorted(set(odd)):
            at = int(part.offset[i]) - file.start - self.body_offset
            checked, _ = self.check(read, at, self.file_size)
            if checked.success and not chosen[i]:
                continue
            before = np.zeros(len(part), dtype=np.bool_)
            before[done:i] = chosen[done:i]
            target.dispatch_columns(part, before)
            if not checked.success:
                out.sizes += int(part.size[:i].sum())
                return at, checked
            target.dispatch(checked)
            done = i + 1
        chosen[:done] = False
        target.dispatch_columns(part, chosen)
        return None

    # --- losses ---------------------------------------------------------------------------------------------------

    def losses(self, stop: int, keep: int) -> DroppedRecords:
        """Count the messages from `stop` to the end of the log; in `in_kept_file` the records of the file at `keep`.

        Without columns, all records count as messages.
        """
        out = DroppedRecords()
        table = QueueTable()
        for index, file in enumerate(self.files):
            if file.start + self.file_size <= stop:
                continue
            for run in self.runs(index, 0, self.thorough or self.too_new, stop, search=False):
                if run.kind is not Kind.RECORDS or run.stop <= stop or run.start >= self.old_from:
                    continue
                records = messages = run.count
                if run.columns is not None:
                    part = run.columns
                    if run.start < stop:
                        part = part.take(part.offset - self.body_offset >= stop)
                    counts, numbers = message_counts(part), table.of(part)
                    records, messages = len(part), int(counts.sum())
                    for number in np.unique(numbers[counts > 0]).tolist():
                        name = java_text(table.topics[number]), table.queue_ids[number]
                        out.queues[name] += int(counts[numbers == number].sum())
                out.messages += messages
                if file.start == keep:
                    out.in_kept_file += records
        return out

    def good_between(self, start: int, stop: int) -> Iterator[Columns]:
        """Yield the good records in [start, stop) of the log."""
        for index, file in enumerate(self.files):
            if file.start + self.file_size <= start or file.start >= stop:
                continue
            for run in self.runs(index, 0, True, start, search=False):
                if run.kind is Kind.RECORDS and run.columns is not None and run.stop > start:
                    begin = run.columns.offset - self.body_offset
                    yield run.columns.take((begin >= start) & (begin < stop))

    # --- re-dispatch ----------------------------------------------------------------------------------------------

    def reput(self, start: int, end: int, queues: Queues) -> int:
        """Simulate ReputMessageService#doReput from `start` to `end`; return where it stops.

        Records are read without body and CRC. At unreadable bytes, a master skips the rest of the readable bytes of
        the file. A message at which dispatch throws is tried again without end.
        """
        try:
            return self._reput(start, end, queues)
        except DispatchThrows as thrown:
            return thrown.offset - self.body_offset

    def _reput(self, start: int, end: int, queues: Queues) -> int:
        if self.units is not None and start < end == self.known_from(start, queues):
            queues.dispatch_known(self.units, start, end, DispatchCondition())
            return end
        at = start
        self.jumped_at = None
        while at < end:
            index = next((i for i, f in enumerate(self.files) if f.start <= at < f.start + self.file_size), None)
            if index is None:
                if at != 0 or not self.files:
                    return at
                index, at = 0, self.files[0].start
            file = self.files[index]
            readable = min(file.wrote, end - file.start)
            position = at - file.start
            if position >= readable:
                return at
            with FileBytes(file) as read:
                place = _BufferDispatch(position, position, readable - position, end - file.start)
                self._reput_file(file, read, place, queues, index)
            if place.failed:
                self.jumped_at = file.start + place.at
                place.at += place.size - place.done
            if place.at == position:
                return at
            at = file.start + place.at
        return at

    def _reput_file(
        self, file: SimulatedFile, read: FileBytes, place: _BufferDispatch, queues: Queues, index: int
    ) -> None:
        """Dispatch the readable bytes of one file, advancing `place`."""
        readable = place.at + place.size
        for run in self.runs(index, 0, True):
            run_end = min(run.stop - file.start, readable)
            aligned = run.start - file.start == place.at
            while place.buffer < run_end and not place.ended:
                if run.kind is Kind.RECORDS and run.columns is not None and place.buffer == place.at:
                    part = run.columns
                    begin = part.offset - self.body_offset - file.start
                    inside = (begin >= place.at) & (part.offset + part.size <= file.start + readable)
                    if (aligned or bool((begin == place.at).any())) and inside.any():
                        part = part.take(inside)
                        self._take(part, read, file, Walk(0, index), _WalkTarget(queues, DispatchCondition()))
                        place.advance(int(part.offset[-1] + part.size[-1]) - file.start - place.at)
                        continue
                self._reput_one(read, place, readable, queues)
        while place.done < place.size and not place.ended:
            self._reput_one(read, place, readable, queues)

    def _reput_one(self, read: FileBytes, place: _BufferDispatch, readable: int, queues: Queues) -> None:
        """Do one iteration of the inner loop of ReputMessageService#doReput."""
        checked, advance = self.check(read, place.buffer, readable, body=False)
        if self.rules.batch_queues and place.at + advance > place.end:  # from 5.0.0 on
            place.ended = True
        elif checked.success and not advance:
            place.at += self.file_size - place.at % self.file_size  # CommitLog#rollNextFile
            place.ended = True
        elif checked.success:
            queues.dispatch(checked)
            place.advance(advance)
            if not checked.size:
                place.buffer += BLANK.size
        elif checked.size > 0:
            place.at += advance
            place.buffer += advance - checked.size + checked.parsed
        else:
            place.failed = place.ended = True


DEFAULT_CAP = 10
MAGIC_AT = HEAD.at("magic")


@dataclass(frozen=True, slots=True)
class Exit:
    """The state after the last exit, as far as recovery depends on it.

    `clean` is False after a crash. `max_cq` is the largest address in the consume queues (global offset).
    `by_address`: the queues are in RocksDB, so that `max_cq` counts after a crash too. `rocksdb_end`: the end of the
    rows in a RocksDB that is written besides queue files (CombineConsumeQueueStore); if it lacks rows, recovery begins
    a few files earlier. `message_rows`: the lastOffsetPy of the index and of half messages in rocksdbstore/, if the
    broker keeps them there; recovery begins with a file that starts at or below each.
    """

    clean: bool
    checkpoint: StoreCheckpoint
    max_cq: int
    by_address: bool = False
    rocksdb_end: int | None = None
    message_rows: tuple[int, ...] = ()


def start_file(log: LogReader, rules: BrokerRules, config: BrokerConfig, last_exit: Exit) -> int:
    """Return the index of the file that recovery begins with; `log` has at least one file."""
    if last_exit.clean and rules.normal_start is NormalStart.LAST_THREE:
        return max(0, len(log.files) - 3)
    if last_exit.clean and rules.normal_start is NormalStart.BY_FILE_START:
        index = len(log.files) - 1
        while index > 0 and log.files[index].start > last_exit.max_cq:
            index -= 1
        return index
    tries = len(log.files) + 1
    asked = config.int("commitLogRecoverMaxNum")
    cap = asked if asked > 0 else DEFAULT_CAP
    if cap < tries and rules.recover_cap:
        tries = cap
    test = _Test(rules, config, last_exit)
    for index in range(len(log.files) - 1, 0 if last_exit.clean else -1, -1):
        tries -= 1
        if test.passes(log, index) or tries <= 0:
            return index
    return 0


def by_checkpoint(rules: BrokerRules, checkpoint: StoreCheckpoint, offset: int, time: int) -> bool:
    """Return whether recovery after a crash can begin with a message, by the checkpoint of queues in files.

    Source: ConsumeQueueStore#isMappedFileMatchedRecover (RocketMQ 5.4.0 and 5.5.1)
    """
    if not rules.logics_offset:
        return time <= checkpoint.min_timestamp()
    if checkpoint.logics_physical_offset > 0:
        return offset <= checkpoint.logics_physical_offset
    return time <= checkpoint.logics_msg_timestamp


class _Test:
    """Decides whether recovery can begin with a file (#isMappedFileMatchedRecover)."""

    def __init__(self, rules: BrokerRules, config: BrokerConfig, last_exit: Exit) -> None:
        self.rules, self.last_exit, self.checkpoint = rules, last_exit, last_exit.checkpoint
        self.index_safe = config.bool("messageIndexEnable") and config.bool("messageIndexSafe")
        self.light_queues_in_rocksdb = config.bool("combineCQUseRocksdbForLmq") and rules.logics_offset
        self.reads_rocksdb, self.assigns_in_rocksdb = (chooses_rocksdb(config, key) for key in (PREFERRED, ASSIGNING))
        self.more = config.int("combineCQMaxExtraSearchCommitLogFiles")

    def passes(self, log: LogReader, index: int) -> bool:
        if self.rules.abnormal_start is AbnormalStart.HEAD:
            return self._head(log.head(index, HEADS_BY_FLAG[0x30].size))
        first = log.first_record(index)
        if not first.success or first.store_timestamp == 0:
            return False
        time, offset = first.store_timestamp, first.physical_offset
        indexed = not self.index_safe or time <= self.checkpoint.index_msg_timestamp
        if not indexed and not self.rules.logics_offset:  # 5.5.0 and newer ask the queues first
            return False
        if not self._both_kinds(offset, files=self._queues(offset, time)):
            return False
        return indexed and all(offset <= last for last in self.last_exit.message_rows)

    def _head(self, raw: bytes) -> bool:
        time = head_store_time(raw, v2=self.rules.v2, ipv6=self.rules.ipv6)
        if self.last_exit.by_address and time is not None:
            offset = int.from_bytes(raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
            return offset <= self.last_exit.max_cq
        if time is None or time == 0:
            return False
        checkpoint = self.checkpoint
        return time <= (checkpoint.min_timestamp_index() if self.index_safe else checkpoint.min_timestamp())

    def _queues(self, offset: int, time: int) -> bool:
        if self.last_exit.clean or self.last_exit.by_address:
            return offset <= self.last_exit.max_cq
        return by_checkpoint(self.rules, self.checkpoint, offset, time)

    def _both_kinds(self, offset: int, *, files: bool) -> bool:
        """Return whether the queues in files and in RocksDB agree, or recovery has searched enough files for one kind.

        `files`: whether those in files do. The kind that assigns queue offsets must agree.
        Errors: StartFails if the broker is to read the other kind, which stays incomplete.
        Source: CombineConsumeQueueStore#isMappedFileMatchedRecover (RocketMQ 5.4.0, 5.5.1)
        """
        end = self.last_exit.rocksdb_end
        if end is None:
            return files
        assigning, other = (offset <= end, files) if self.assigns_in_rocksdb else (files, offset <= end)
        if not assigning:
            return False
        end_of_other = self.last_exit.max_cq if self.assigns_in_rocksdb else end
        if other or (end_of_other <= 0 and self.rules.logics_offset):  # 5.5.0 and newer: it is new
            return True
        if self.light_queues_in_rocksdb and not self.assigns_in_rocksdb:
            return False
        self.more -= 1
        if self.more >= 0:
            return False
        if self.reads_rocksdb != self.assigns_in_rocksdb:
            incomplete = (
                Text("the queue files lack messages of too many log files (combineAssignOffsetCQType)")
                if self.assigns_in_rocksdb
                else Text(
                    "the RocksDB of the consume queues lacks messages of too many log files (combineCQPreferCQType)"
                )
            )
            raise StartFails(incomplete, "not satisfied readable conditions, only can read from")
        return True


def head_store_time(raw: bytes, *, v2: bool, ipv6: bool) -> int | None:
    """Return the store time (ms) of the first record if its magic is valid, else None; nothing else is checked."""
    if len(raw) < HEAD.size:
        return None
    magic = int.from_bytes(raw[MAGIC_AT : MAGIC_AT + 4], "big", signed=True)
    if magic != MAGIC_V1 and not (v2 and magic == MAGIC_V2):
        return None
    flags = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & BORN_HOST_V6 if ipv6 else 0
    at = HEADS_BY_FLAG[flags].at("store_timestamp")
    return int.from_bytes(raw[at : at + 8], "big", signed=True)
