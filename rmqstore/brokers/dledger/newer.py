"""DLedger 0.4 on its own: its recovery, where it differs from that of 0.1 to 0.3.2, and what a report says of it.

No RocketMQ release ships it (it has no `getCommittedPos`, which RocketMQ calls), so this is the library alone: no
consume queues, no commitlog. Compared with the real DLedgerMmapFileStore on 68 damaged groups.

* No position is compared but that of the index unit: entries may say another one than their own.
* An entry has a type in its magic: NORMAL, NOOP, CONFIG_CHANGE.
* A BLANK is passed by its size and may end anywhere: what a snapshot made superfluous is a BLANK in front.
* A first file of nothing but BLANKs is deleted.
* Nothing on disk says what is committed.

Source: DLedgerMmapFileStore#recover, #reviseLedgerBeforeBeginIndex, MmapFileList#checkFirstFileAllBlank (0.4.0).
"""

from __future__ import annotations

from pathlib import Path

from rmqstore.brokers.dledger.library import PROGRAM, VERSION
from rmqstore.brokers.dledger.recovery import DLedgerRecovery, Entry, parse_entry
from rmqstore.brokers.load.mapped_files import SimulatedFiles, load_directories, strictly
from rmqstore.brokers.log.file_bytes import FileBytes
from rmqstore.brokers.log.walk import LogReader
from rmqstore.brokers.queues.simple_queue import StartFails
from rmqstore.brokers.rules.forecast import LOAD_FALSE, PROCESS_EXIT, StartForecast
from rmqstore.brokers.rules.record import ParserSettings
from rmqstore.brokers.rules.versions import rules_for
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import Bool
from rmqstore.scan.tiling import Tiling


class NewerRecovery(DLedgerRecovery):
    """One simulated recovery by DLedger 0.4."""

    def _check_order(self, when: str) -> None:
        self._drop_blank(self.data)
        self._drop_blank(self.index)
        super()._check_order(when)

    def _drop_blank(self, files: SimulatedFiles) -> None:
        """MmapFileList#checkFirstFileAllBlank."""
        if not files.files:
            return
        first, at = files.files[0], 0
        while at != files.file_size:
            head = _blank(files.read(first, dledger.BLANK.size, at))
            if head is None and 0 <= at <= files.file_size - dledger.BLANK.size:
                return
            if not head:
                what = "a BLANK of size 0: the recovery never ends" if head == 0 else "a BLANK that ends outside"
                raise StartFails(f"{first.path.name} begins with {what}", "checkFirstFileAllBlank")
            at += head
        files.forget([first])

    def _fits_first(self, magic: int) -> bool:
        return magic in dledger.TYPES

    def _fits_type(self, magic: int) -> bool:
        return magic in dledger.TYPES

    def _own_position(self, entry: Entry, pos: int) -> bool:
        return True

    def _columns_fit(self, columns: Columns) -> Bool:
        magic = columns.entry_magic
        return (magic >= dledger.NORMAL) & (magic <= dledger.CONFIG_CHANGE)

    def _one(self, read: FileBytes, start: int, at: int) -> bool | int:
        raw = read(dledger.BLANK.size, at)
        if len(raw) < dledger.BLANK.size or at + dledger.BLANK.size > self.data.file_size:
            self.state.reason = "no bytes left"
            return False
        size = _blank(raw)
        if size is None:
            return super()._one(read, start, at)
        if size == 0:
            raise StartFails(f"a BLANK of size 0 at {start + at}: the recovery never ends", "")
        if at + size == self.data.file_size:
            return True
        if 0 <= at + size < self.data.file_size:
            return size
        self.state.process_offset = start + at + size  # moved on before the jump fails
        self.state.reason = f"BLANK of size {size}"
        return False

    def _revise_begin(self) -> None:
        self._drop_blank(self.data)
        first = self.data.files[0]
        at = _blank(self.data.read(first, dledger.BLANK.size, 0)) or 0
        entry = parse_entry(self.data.read(first, dledger.ENTRY.size, at))
        if entry is None or entry["size"] == 0:
            self.state.begin_index = 0
            return
        self.state.begin_index = entry["index"]
        begin = entry["index"] * dledger.INDEX_UNIT.size
        self.index.forget([f for f in self.index.files if f.start + self.index.file_size <= begin])

    def _committed(self, directory: Path) -> None:
        """Learnt from a leader, or by leading."""


def _blank(raw: bytes) -> int | None:
    """The size that a BLANK says; None for anything else."""
    if len(raw) < dledger.BLANK.size:
        return None
    head = dledger.BLANK.parse(raw)
    return head["size"] if head["magic"] == dledger.BLANK_MAGIC else None


def simulate_newer(store: Store, tiling: Tiling | None = None, *, thorough: bool = True) -> StartForecast:
    """What DLedger 0.4 would do with the store's group directory at its next start.

    Errors: UsageError for a store without one.
    """
    group = store.dledger
    if group is None:
        raise UsageError(f"{store.path} has no DLedger group", "name a version of RocketMQ")
    data = SimulatedFiles(group.directory / "data", group.data.file_size)
    index = SimulatedFiles(group.directory / "index", group.index.file_size)
    rules = rules_for()
    if tiling is not None and tiling.start != group.data.start:
        tiling = None
    tiled = frozenset(f.path for f in group.data.files) if tiling is not None else frozenset()
    size = group.data.file_size
    reader = LogReader(
        data.files, size, rules, ParserSettings(), tiling, tiled, thorough=thorough, lead=dledger.ENTRY.size
    )
    recovery = NewerRecovery(data, index, reader, thorough)
    names: list[str] = []
    try:
        for files, directories in ((data, group.data.directories), (index, [group.directory / "index"])):
            loaded = load_directories(directories, files.file_size, strictly(rules))
            if loaded.obstacle is not None:
                thrown = "NumberFormatException" in loaded.obstacle.log_line
                text = loaded.obstacle.reason_text(store.root)
                raise StartFails(text, loaded.obstacle.log_line, LOAD_FALSE if thrown else PROCESS_EXIT)
            files.files.extend(loaded.files)
        names = [f.path.name for f in data.files]
        recovery.run(group.directory)
    except StartFails as failure:
        return StartForecast(
            VERSION,
            "run",
            False,
            program=PROGRAM,
            reason=failure.reason,
            exit_code=PROCESS_EXIT if failure.exit_code == PROCESS_EXIT else None,  # else an exception
            log_line=failure.log_line,
            other_files_deleted=_deleted(store, recovery),
            consume_queues_simulated=False,
        )
    return _forecast(store, recovery, names)


def _forecast(store: Store, recovery: NewerRecovery, names: list[str]) -> StartForecast:
    data, state = recovery.data, recovery.state
    stop = data.max_offset()
    lost = recovery.reader.losses(stop, data.files[-1].start if data.files else -1)
    notes = ["what is committed is not on disk: a leader knows it, or commits anew"]
    if state.index_rebuilt_from is not None:
        notes.append(f"the DLedger index is written anew from entry {state.index_rebuilt_from} on")
    last = store.dledger.last_snapshot if store.dledger is not None else None
    if last is not None:
        notes.append(f"a state machine goes on from snapshot_{last}; entries up to {last} are dropped then")
    return StartForecast(
        VERSION,
        "run",
        True,
        program=PROGRAM,
        start_file=names[state.start_file] if names else None,
        commitlog_stop=state.process_offset,
        stop_reason=state.reason,
        min_offset=data.files[0].start if data.files else None,
        max_offset=stop,
        other_files_deleted=_deleted(store, recovery),
        messages_lost=lost.messages,
        lost_by_topic=dict(lost.topics),
        stale_tail=lost.in_kept_file,
        consume_queues_simulated=False,
        entries={
            "begin_index": max(0, state.begin_index),
            "end_index": state.end_index,
            "end_term": state.end_term,
            "data_end": stop,
            "index_end": recovery.index.max_offset(),
        },
        notes=tuple(notes),
    )


def _deleted(store: Store, recovery: NewerRecovery) -> tuple[str, ...]:
    both = (recovery.data, recovery.index)
    return tuple(sorted(store.relative(p) for files in both for p in files.deleted if p not in files.created))
