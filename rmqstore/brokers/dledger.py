"""Simulates the start of a broker in DLedger mode, also the first one on a plain commitlog.

`DLedgerRecovery` is DLedger's own start: where the entries end, which files it deletes, what ends the process.
`DLedgerStart` is what the broker makes of that. `written_by_newer` recognizes stores of DLedger 0.4, which no RocketMQ
release contains.

Source: DLedgerMmapFileStore#recover, MmapFileList (DLedger 0.1 to 0.3.2); DLedgerCommitLog#recover (to RocketMQ
5.1.4), #dledgerRecoverNormally, #dledgerRecoverAbnormally (from 5.2.0), #setRecoverPosition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rmqstore.brokers.dispatch import DispatchCondition
from rmqstore.brokers.dledger_nodes import nodes_fault, own_group
from rmqstore.brokers.forecast import LOAD_FALSE, PROCESS_EXIT, StartFails, StartForecast, StartOptions, StartRefused
from rmqstore.brokers.log_files import FileBytes, Scanned
from rmqstore.brokers.mapped_files import SimulatedFiles, load_directories, wrapped_long
from rmqstore.brokers.plain_start import PlainStart, broker_file_size
from rmqstore.brokers.queues import BatchQueue
from rmqstore.brokers.record import ParserSettings
from rmqstore.brokers.rules import BrokerRules
from rmqstore.brokers.walk import LogReader, Walk, by_checkpoint, head_store_time
from rmqstore.files.broker_config import DLEDGER_INDEX_FILE_SIZE, BrokerConfig
from rmqstore.files.files import Files
from rmqstore.files.store import DLedgerFiles, Store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import BATCH_UNIT, UNIT, QueueName
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import BLANK, BLANK_MAGIC, HEADS_BY_FLAG, PHYSICAL_OFFSET_AT
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable, message_counts
from rmqstore.scan.kernels import leading
from rmqstore.scan.tiling import Kind, Tiling
from rmqstore.texts import Text

_UNIT = dledger.INDEX_UNIT.size
_FIELDS = ("magic", "pos", "size", "index", "term")
_BODY_LENGTH_AT = dledger.ENTRY.at("body_length")
Entry = Mapping[str, int]


@dataclass(slots=True)
class DLedgerState:
    """DLedger's state after its recovery; -1 means unknown."""

    start_file: int = 0
    process_offset: int = 0
    entries_end: int = 0
    """End of the last accepted entry. What looks like a BLANK moves `process_offset` on to the next file."""
    reason: str = ""
    begin_index: int = -1
    end_index: int = -1
    end_term: int = -1
    committed_index: int = -1
    committed_pos: int = -1
    index_rebuilt_from: int | None = None


class DLedgerRecovery:
    """One simulated recovery of a group directory; changes the given lists of files as the broker changes its own."""

    def __init__(self, files: Files, index: SimulatedFiles, reader: LogReader) -> None:
        self.files = files
        self.data = reader.log
        self.index = index
        self.reader = reader
        self.state = DLedgerState()

    def run(self, directory: Path) -> DLedgerState:
        """Recover the group in `directory`. Errors: StartFails if the broker's process or its load ends."""
        self._check_order("before")
        if not self.data.files:
            self.index.truncate_dirty_files(0)
            return self.state
        number = max(0, len(self.data.files) - 3)
        while number > 0 and not self._first_entry_fits(number):
            number -= 1
        self.state.start_file = number
        self.state.entries_end = self.data.files[number].start
        self._walk(number)
        if self.data.files[-1].start - self.state.process_offset > self.data.file_size:
            end = self.state.process_offset
            raise StartFails(
                Text("DLedger's entries end at {end}, more than a file before the last one", end=end),
                "[MONITOR]The processOffset is too small, you should check it manually",
                PROCESS_EXIT,
            )
        if self.state.end_index != -1:
            last = self.state.end_index
            if last < 0:  # DLedgerMmapFileStore#get refuses it
                raise StartFails(Text("the last DLedger entry has the number {last}", last=last), f"{last} should gt 0")
            self._revise_begin()
        self.data.truncate_dirty_files(self.state.process_offset)
        self.index.truncate_dirty_files(_index_at(self.state.end_index + 1))
        self._check_order("after")
        self._committed(directory)
        return self.state

    def _check_order(self, when: str) -> None:
        """Fail on a gap between files (MmapFileList#checkSelf)."""
        for files, what in ((self.data, "data"), (self.index, "index")):
            for a, b in zip(files.files, files.files[1:], strict=False):
                if b.start - a.start != files.file_size:
                    gap = Text("a DLedger {what} file is missing between {path} and {other}")
                    raise StartFails(
                        gap.format(what=what, path=a.path.name, other=b.path.name),
                        f"check {what} file order failed {when} recovery",
                    )

    # --- index ----------------------------------------------------------------------------------------------------

    def _first_entry_fits(self, number: int) -> bool:
        file = self.data.files[number]
        entry = parse_entry(self.data.read(file, dledger.ENTRY.size, 0))
        if entry is None or entry["magic"] < dledger.MAGIC or entry["size"] <= dledger.HEADER_SIZE:
            return False
        if entry["pos"] != file.start or entry["body_length"] + dledger.BODY_OFFSET != entry["size"]:
            return False
        return self._index_agrees(entry, file.start)

    def _index_agrees(self, entry: Entry, pos: int) -> bool:
        unit = self._index_unit(entry["index"])
        return unit is not None and all(unit[f] == (pos if f == "pos" else entry[f]) for f in _FIELDS)

    def _index_unit(self, number: int) -> Entry | None:
        raw = self._index_bytes(number, 1)
        return dledger.INDEX_UNIT.unpack(raw) if len(raw) == _UNIT else None

    def _index_bytes(self, number: int, count: int) -> bytes:
        """Return `count` index units from entry `number` on, fewer if no file holds them.

        As in MmapFileList, position 0 means the first file, wherever it starts.
        """
        out = b""
        at = _index_at(number)
        left = count * _UNIT
        while left > 0:
            file = next((f for f in self.index.files if f.start <= at < f.start + self.index.file_size), None)
            if file is None and at == 0 and self.index.files:
                file = self.index.files[0]
            if file is None:
                break
            position = at % self.index.file_size
            size = min(left, self.index.file_size - position, file.wrote - position)
            raw = self.index.read(file, size, position) if size > 0 else b""
            out += raw
            if not raw or len(raw) < size:
                break
            at += size
            left -= size
        return out

    # --- walk -----------------------------------------------------------------------------------------------------

    def _walk(self, number: int) -> None:
        state = self.state
        while number < len(self.data.files):
            file = self.data.files[number]
            state.process_offset = file.start
            with FileBytes(file) as read:
                blank = self._walk_file(number, read)
            if not blank:
                return
            state.process_offset = file.start + self.data.file_size
            state.reason = Text("end of file")
            number += 1

    def _walk_file(self, number: int, read: FileBytes) -> bool:
        """Advance `process_offset` through one file; return True at a BLANK, False if the walk ends."""
        file = self.data.files[number]
        at = 0
        for run in self.reader.runs(number, 0, self.reader.thorough or self.reader.tiling is None):
            run_end = run.stop - file.start
            while at < run_end:
                if run.kind is Kind.RECORDS and run.start - file.start == at:
                    before = at
                    if run.columns is None:
                        at = self._trust(run.count, at, run_end, read)
                    else:
                        at = self._take(run.columns, at)
                    if at > before:
                        self._accepted(file.start + at)
                    if at == run_end:
                        continue
                outcome = self._one(read, file.start, at)
                if isinstance(outcome, bool):
                    return outcome
                at += outcome
                self._accepted(file.start + at)
        outcome = self._one(read, file.start, at)
        return outcome is True

    def _accepted(self, end: int) -> None:
        self.state.process_offset = self.state.entries_end = end

    def _trust(self, count: int, at: int, run_end: int, read: FileBytes) -> int:
        """Accept a run of `count` good entries unread, numbered on from the first; return the position after them.

        The position stays `at` if the first entry does not follow the last one.
        """
        entry = parse_entry(read(dledger.ENTRY.size, at))
        if entry is None or (self.state.end_index not in (-1, entry["index"] - 1)):
            return at
        self.state.end_index = entry["index"] + count - 1
        self.state.end_term = max(self.state.end_term, entry["term"])
        return run_end

    def _take(self, columns: Columns, at: int) -> int:
        """Accept the leading entries of a chunk that pass every check of the broker; return the position after them."""
        state = self.state
        index, term, size = columns.entry_index, columns.entry_term, columns.entry_size
        before = np.concatenate(([state.end_index if state.end_index != -1 else int(index[0]) - 1], index[:-1]))
        ok = index == before + 1
        ok &= term >= np.maximum.accumulate(np.concatenate(([state.end_term], term[:-1])))
        ok &= (columns.entry_pos == columns.offset - columns.body_offset) & (columns.entry_magic == dledger.MAGIC)
        ok &= columns.i32(columns.entry_at + _BODY_LENGTH_AT) + dledger.BODY_OFFSET == size
        stops = np.append(columns.offset[1:], columns.offset[-1] + columns.size[-1] + columns.body_offset)
        ok &= size == stops - columns.offset
        n = leading(ok)
        if not n:
            return at
        self._compare_index(columns, n)
        state.end_index = int(index[n - 1])
        state.end_term = int(term[n - 1])
        return at + int(size[:n].sum())

    def _compare_index(self, columns: Columns, n: int) -> None:
        if self.state.index_rebuilt_from is not None:
            self._append_index(int(columns.entry_index[n - 1]) + 1)
            return
        first = int(columns.entry_index[0])
        raw = self._index_bytes(first, n)
        units = dledger.INDEX_UNIT.array(raw[: len(raw) // _UNIT * _UNIT])
        same = np.zeros(n, dtype=np.bool_)
        m = len(units)
        same[:m] = (
            (units["magic"] == columns.entry_magic[:m])
            & (units["pos"] == (columns.offset - columns.body_offset)[:m])
            & (units["size"] == columns.entry_size[:m])
            & (units["index"] == columns.entry_index[:m])
            & (units["term"] == columns.entry_term[:m])
        )
        if not same.all():
            self._rebuild_index(first + int(np.argmin(same)))
            self._append_index(first + n)

    def _rebuild_index(self, number: int) -> bool:
        """Rewrite the index from this entry on (#rebuildWithPos); False if that fails, which deletes the index."""
        at = _index_at(number)
        self.index.truncate_dirty_files(at)
        if self.index.max_offset() != at:
            self.index.destroy()
            if at < 0:
                return False
            self.index.last_for_append(at).wrote = at % self.index.file_size
        self.state.index_rebuilt_from = number
        return True

    def _append_index(self, until: int) -> None:
        """Extend the index to the unit before entry `until`, creating files as needed."""
        at = _index_at(until)
        while self.index.max_offset() < at:
            file = self.index.last_for_append(at)
            file.wrote = min(self.index.file_size, at - file.start)

    def _one(self, read: FileBytes, start: int, at: int) -> bool | int:
        """Check the entry at a position as the broker does: its size, True at a BLANK, False if the walk ends."""
        state = self.state
        limit = self.data.file_size
        raw = read(dledger.ENTRY.size, at)
        magic = int.from_bytes(raw[:4], "big", signed=True)
        if len(raw) >= 4 and at + 4 <= limit and magic == dledger.BLANK_MAGIC:
            return True
        entry = parse_entry(raw) if at + dledger.ENTRY.size <= limit else None
        if entry is None or entry["size"] == 0:
            state.reason = Text("no bytes left") if entry is None else Text("size 0")
            return False
        size = entry["size"]
        reason = ""
        if entry["pos"] != start + at:
            reason = f"pos {entry['pos']} != {start + at}"
        elif entry["body_length"] + dledger.BODY_OFFSET != size:
            reason = f"size {size} != {entry['body_length']} + {dledger.BODY_OFFSET}"
        elif not 0 <= at + size <= limit:
            reason = Text("the entry extends beyond the end of the file")
        elif entry["magic"] != dledger.MAGIC:
            reason = Text("unknown magic {magic}", magic=entry["magic"])
        elif state.end_index != -1 and entry["index"] != state.end_index + 1:
            reason = Text("index {index} after {end_index}", index=entry["index"], end_index=state.end_index)
        elif entry["term"] < state.end_term:
            reason = Text("term {term} after {end_term}", term=entry["term"], end_term=state.end_term)
        elif size <= dledger.HEADER_SIZE:
            reason = f"size {size} should > {dledger.HEADER_SIZE}"
        if reason:
            state.reason = reason
            return False
        known = state.index_rebuilt_from is not None or self._index_agrees(entry, start + at)
        if not known and not self._rebuild_index(entry["index"]):
            state.reason = f"rebuild index truncatePos={_index_at(entry['index'])}"
            return False
        if state.index_rebuilt_from is not None:
            self._append_index(entry["index"] + 1)
        state.end_index = entry["index"]
        state.end_term = entry["term"]
        return size

    # --- afterwards -----------------------------------------------------------------------------------------------

    def _revise_begin(self) -> None:
        """Delete index files that end below the first entry (DLedgerMmapFileStore#reviseLedgerBeginIndex)."""
        entry = parse_entry(self.data.read(self.data.files[0], dledger.ENTRY.size, 0))
        if entry is None:
            return
        self.state.begin_index = entry["index"]
        begin = _index_at(entry["index"])
        self.index.forget([f for f in self.index.files if f.start + self.index.file_size <= begin])

    def _committed(self, directory: Path) -> None:
        """Set the committed index and position: the checkpoint's, limited to the last entry.

        Errors: StartFails if the resulting entry comes before the first one, or has no index unit.
        Source: DLedgerMmapFileStore#recover, #updateCommittedIndex, #indexCheck, #getEntryPosAndSize
        """
        state = self.state
        checkpoint = dledger.parse_dledger_checkpoint(self.files.read_at(directory / "checkpoint", 4096, 0))
        if checkpoint.refused is not None:
            raise StartFails(
                Text("committedIndex in {directory}/checkpoint is not a number", directory=directory.name),
                f'java.lang.NumberFormatException: For input string: "{checkpoint.refused}"',
            )
        given = checkpoint.committed_index
        if given is None or given < 0 or state.end_index == -1 or given < state.begin_index:
            return
        number = min(given, state.end_index)
        if number < state.begin_index:
            lacks = Text("DLedger's entries end with {number}, but its first data file begins with entry {first}")
            raise StartFails(
                lacks.format(number=number, first=state.begin_index),
                f"{number} should be gt {state.begin_index}, ledgerBeginIndex may be revised",
            )
        if state.index_rebuilt_from is not None and number >= state.index_rebuilt_from:
            position = self._position_of(number)
        else:
            unit = self._index_unit(number)
            position = None if unit is None else unit["pos"] + unit["size"]
        if position is None:
            raise StartFails(
                Text("the committed DLedger entry {number} no longer has an index unit", number=number),
                f"Get null index for {number}",
            )
        state.committed_index = number
        state.committed_pos = position

    def _position_of(self, number: int) -> int | None:
        """Return where an entry ends according to the data, because the broker has yet to write its index unit."""
        for i in range(len(self.data.files) - 1, -1, -1):
            first = parse_entry(self.data.read(self.data.files[i], dledger.ENTRY.size, 0))
            if first is None or first["index"] > number:
                continue
            for run in self.reader.runs(i, 0, True):
                if run.columns is None:
                    continue
                hit = np.flatnonzero(run.columns.entry_index == number)
                if len(hit):
                    k = int(hit[0])
                    return int(run.columns.entry_pos[k] + run.columns.entry_size[k])
            return None
        return None


def _index_at(number: int) -> int:
    """Return the position of an entry's index unit as a Java long, which overflows for a damaged number."""
    return wrapped_long(number * _UNIT)


def parse_entry(raw: bytes) -> Entry | None:
    """Unpack the header of an entry without checking it; None if `raw` is too short."""
    return dledger.ENTRY.unpack(raw) if len(raw) >= dledger.ENTRY.size else None


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
        group = own_group(store, config)
        wanted = config.given.get("dLegerSelfId", "").strip()
        legacy = group is None or not group.data.files
        super().__init__(store, tiling if legacy else None, rules, config, options)
        self.group: DLedgerFiles | None = group
        self.home = home = group.directory if group is not None else store.root / f"dledger-{wanted or 'n0'}"
        size = group.data.file_size if group is not None and group.data.files else self.file_size
        size = broker_file_size(config, "mappedFileSizeCommitLog", size)
        self.data = SimulatedFiles(home / "data", size)
        index_size = group.index.file_size if group is not None else DLEDGER_INDEX_FILE_SIZE
        self.index = SimulatedFiles(home / "index", index_size)
        self.more_files = (self.data, self.index)
        fits = group is not None and tiling is not None and tiling.start == group.data.start
        tiled = frozenset(f.path for f in group.data.files) if group is not None and fits else frozenset()
        self.tiled_reader = self.entries = self._reader_of_entries(
            self.parser, Scanned(None if legacy else tiling, tiled)
        )
        self.state = DLedgerState()
        self.divided = -1
        self._before_cut: dict[QueueName, int] = {}
        self._early_end = 0

    def _check_constructor(self) -> None:
        if (fault := nodes_fault(self.config)) is not None:
            caught = fault.in_store and self.rules.any_wheel_failure_is_caught and not self.rules.shutdown_throws
            raise StartRefused(fault.reason, fault.log_line, LOAD_FALSE if caught else PROCESS_EXIT)

    def _load_and_recover(self) -> None:
        super()._load_and_recover()
        committed = self.state.committed_pos
        if self.parser.duplication and self.rules.duplicate_info and 0 <= committed < self.state.entries_end:
            # ConsumeQueueStore#compensateForHA reads entries after the committed one as messages (5.1.4 to 5.5.1)
            raise StartFails(
                Text(
                    "duplicationEnable: DLedger entries after the committed one, at {at:,}, are no messages",
                    at=committed,
                ),
                "load exception java.lang.IndexOutOfBoundsException",
            )

    def _reader_of_entries(self, parser: ParserSettings, scanned: Scanned) -> LogReader:
        body_offset = dledger.ENTRY.size
        return LogReader(self.data, self.rules, parser, scanned, options=self.options, body_offset=body_offset)

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
            loaded = load_directories(folders, files.file_size, None, self.files)
            if (obstacle := loaded.obstacle) is not None:
                # a wrong length ends the process, a wrong name only makes load() return false
                code = LOAD_FALSE if "NumberFormatException" in obstacle.log_line else PROCESS_EXIT
                raise StartFails(obstacle.reason_text(self.store.root), obstacle.log_line, code)
            files.files.extend(loaded.files)

    def _recover_entries(self) -> None:
        max_cq = self.dispatch_from  # also where 5.5.0 and newer begin to dispatch: not what the queues contain
        names = [f.path.name for f in self.data.files]
        self.state = DLedgerRecovery(self.files, self.index, self.entries).run(self.home)
        self.divided = self.data.files[0].start
        self.started_at = names[self.state.start_file]
        stop = self.data.max_offset()
        self.walk = Walk(self.state.entries_end, len(self.data.files) - 1, self.state.reason)
        self.lost = self.entries.losses(stop, self.data.files[-1].start)
        self.entries.files = self.data.files  # without those that the recovery deleted
        if self.state.index_rebuilt_from is not None:
            self.notes.append(
                Text("the DLedger index is rewritten from entry {first} on", first=self.state.index_rebuilt_from)
            )
        if self.state.begin_index > self.state.end_index:
            self.commits_from = self.state.begin_index
            words = Text(
                "no DLedger message can be read until entry {first} is appended and committed: the first data file "
                "begins with it, but the entries end with {last}"
            )
            self.notes.append(words.format(first=self.state.begin_index, last=self.state.end_index))
        elif self.state.committed_pos <= 0:
            self.notes.append(Text("no committed index: nothing can be read until a leader commits"))
        elif self.state.committed_pos < stop:
            words = Text("entries from {start} on become readable when a leader commits them")
            self.notes.append(words.format(start=self.state.committed_pos))
        if self.clean_exit or not self.rules.dledger_abnormal:
            if max_cq >= stop and not self.rocksdb:
                self.queues.truncate(stop)
            return
        if self.rocksdb:
            return
        self.queues.keep_units()  # the truncation may remove units of the last walked log file
        entries = self.entries
        if self.rules.dledger_wants_duplicate_info:
            entries = self._reader_of_entries(replace(self.parser, duplication=True), Scanned())
        walked = entries.walk(self._abnormal_start(), self.queues, DispatchCondition())
        # DLedgerCommitLog#dledgerRecoverAbnormally adds message sizes without the 48 bytes of their headers
        short = self.data.files[walked.file].start + walked.sizes
        if max_cq >= short and (not self.rules.max_cq_after_dispatch or self.queues.max_address() >= short):
            self._before_cut = {
                key: q.files.max_offset() for key, q in self.queues.table.items() if q.max_physic_offset <= stop
            }
            self.queues.truncate(short)
            self._early_end = short
        self.queues.keep_units(False)

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
            words = Text("consume queues are cut at {end:,} instead of {stop:,}: 48 bytes too early per entry")
            if self.rules.dledger_wants_duplicate_info:
                words = Text(
                    "consume queues are cut at {end:,} instead of {stop:,}: this version takes every message without "
                    "the property DUP_INFO for damaged"
                )
            self.notes.append(words.format(end=self._early_end, stop=self.data.max_offset()))

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
            for number, offset, address, messages in zip(
                numbers.of(columns).tolist(),
                columns.queue_offset.tolist(),
                columns.offset.tolist(),
                message_counts(columns).tolist(),
                strict=True,
            ):
                key = java_text(numbers.topics[number]), numbers.queue_ids[number]
                if self.rocksdb or self.queues.serve(key, offset, address):
                    self.outside_dledger += 1
                elif messages:
                    self.lost.messages += messages
                    self.lost.queues[key] += messages
                    self._uncount_cut(key, offset)

    def _uncount_cut(self, key: QueueName, offset: int) -> None:
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
            if self.config.bool("writeWithoutMmap") and self.rules.writes_without_mapping:
                raise StartFails(
                    Text("with writeWithoutMmap=true, DLedger mode cannot close commitlog/{path}", path=last.path.name),
                    "load exception java.nio.ReadOnlyBufferException",
                )
            self.notes.append(Text("a BLANK is written at {start}", start=last.start + last.wrote))
        last.wrote = self.file_size
        self.divided = last.start + self.file_size
        self.data.last_for_append(self.divided)
        self.notes.append(Text("first DLedger file: {divided:020d}", divided=self.divided))

    def _forecast(self, failure: StartFails | None = None) -> StartForecast:
        self._count_cut()
        self._count_skipped()
        return super()._forecast(failure)

    # --- start ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Re-dispatch the committed entries, then those that a leader commits later.

        Which entries a leader of a group with more members commits is unknown; assume all, up to the last one that
        recovery read. It commits none while the log ends before its first entry
        (DLedgerMmapFileStore#updateCommittedIndex).
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
            self._dispatch(begin, min(self.data.max_offset(), max(self.state.entries_end, known)))
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
