"""Finds damaged spans, each within one file, the good records around them, and the start of DLedger's entries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import MappedFile, message_at, offset_to_file_name
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.formats.message import Fault, Message, check_message, sound_host
from rmqstore.formats.properties import DUP_INFO, parse_properties
from rmqstore.repair.repaired_log import last_before
from rmqstore.repair.salvage.evidence import Evidence
from rmqstore.scan.tiling import Kind, Run


@dataclass(frozen=True, slots=True)
class EvidenceEntry:
    """A DLedger entry according to its header or its index unit; `pos` and `size` in bytes."""

    index: int
    term: int
    pos: int
    size: int


def header_at(log: LogResult, at: int) -> EvidenceEntry | None:
    """Return the entry according to the header at a global offset; None if bytes are missing."""
    raw = log.queue.pread(dledger.ENTRY.size, at)
    if len(raw) < dledger.ENTRY.size:
        return None
    values = dledger.ENTRY.parse(raw)
    return EvidenceEntry(values["index"], values["term"], values["pos"], values["size"])


def unit_of(store: Store, index: int) -> EvidenceEntry | None:
    """Return an entry according to its index unit; None if there is no valid one."""
    files = store.dledger
    values = files.index.unit(dledger.INDEX_UNIT, index) if files is not None else None
    if values is None or (values["magic"], values["index"]) != (dledger.MAGIC, index):
        return None
    return EvidenceEntry(index, values["term"], values["pos"], values["size"])


_LOCALHOST = bytes([127, 0, 0, 1])
_FAR = 1 << 62  # global offset beyond every log


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [start, stop) of one file that are not good records; global offsets.

    `runs` are those of the scan. `at_end`: the span extends to the end of its file, and so includes the BLANK. `file`
    is None if the file is missing; `short` is the number of bytes that it lacks at its end, which are in [start, stop).
    `taken` are the starts of good records (or entries) by which a span too short for a record was extended.
    """

    log: LogResult
    start: int
    stop: int
    runs: tuple[Run, ...]
    at_end: bool
    file: MappedFile | None
    short: int = 0
    taken: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def home(self) -> Path:
        """Return the path of the file, also if it is missing."""
        if self.file is not None:
            return self.file.path
        files = self.log.queue.files
        before = [f for f in files if f.start < self.start] or files[:1]
        return before[-1].path.parent / offset_to_file_name(self.start)


def find_damage(log: LogResult, *, end: int, front: tuple[int, int] | None = None) -> list[Damage]:
    """Find the damaged spans of a log up to `end` (global offset), including missing files.

    A span never crosses the end of a file. `front` is the range of files that are missing before the first one.
    """
    size = log.queue.file_size
    groups: list[list[Run]] = [[piece] for piece in _per_file(Run(Kind.HOLE, *front), size)] if front else []
    joins = False  # whether an adjacent piece belongs to the last group
    for run in log.tiling:
        if run.start >= end:
            break
        foreign = joins and run.kind is Kind.BLANK and _of_another_file(log, groups[-1][-1])
        if run.kind is Kind.RECORDS or (run.kind is Kind.BLANK and not foreign):
            joins = False
            continue
        for piece in _per_file(run, size, end):
            if joins and piece.start % size and groups[-1][-1].stop == piece.start:
                groups[-1].append(piece)
            else:
                groups.append([piece])
            joins = True
    if log.tiling.stop < end and log.tiling.stop % size == 0:
        groups += [[piece] for piece in _per_file(Run(Kind.HOLE, log.tiling.stop, end), size)]
    return [_damage(log, tuple(group)) for group in groups]


def _of_another_file(log: LogResult, run: Run) -> bool:
    """Return whether a run has sound records of another offset: the BLANK after them is of another file, too."""
    if run.kind is not Kind.DIRTY or run.count < 2:
        return False
    message = message_at(log.queue, run.start + log.body_offset)
    if message is None or message.physical_offset in (run.start + log.body_offset, -1):
        return False
    return check_message(message, message.physical_offset) is Fault.NONE


def _per_file(run: Run, size: int, end: int = _FAR) -> Iterator[Run]:
    """Yield the parts of a run before `end` (global offset), one for each file."""
    at, end = run.start, min(run.stop, end)
    while at < end:
        stop = min(end, at - at % size + size)
        whole = (at, stop) == (run.start, run.stop)
        yield run if whole else Run(run.kind, at, stop, run.count, run.cause)
        at = stop


def _damage(log: LogResult, runs: tuple[Run, ...]) -> Damage:
    start, stop = runs[0].start, runs[-1].stop
    file = log.queue.find(start)
    short = 0
    if file is not None and file.length < file.file_size:
        short = max(0, stop - max(start, file.start + file.length))
    return Damage(log, start, stop, runs, stop % log.queue.file_size == 0, file, short)


# --- the good records around damage -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Around:
    """What a filler copies from the records around it: `store_timestamp` in ms, an IPv4 host as stored, properties.

    `earliest` is the store time (ms) of the good record before, 0 without one.
    """

    store_timestamp: int
    store_host: bytes
    append_crc: bool = False
    dup_info: bool = False
    earliest: int = 0


class Neighbours:
    """Finds the good records around damage, from which fillers take store time, host and properties."""

    def __init__(self, logs: Sequence[LogResult], now_ms: int) -> None:
        self.logs = logs
        self.now_ms = now_ms
        self._runs = [(log, run) for log in logs for run in log.tiling if run.kind is Kind.RECORDS]
        self._starts = [run.start for _, run in self._runs]

    def around(self, offset: int) -> Around:
        """Return what a filler at an offset outside good records copies from the next, otherwise the last record.

        With the time of the next record, store times never decrease.
        """
        i = bisect_right(self._starts, offset) - 1
        after = self._message(i, offset) if i >= 0 and offset < self._runs[i][1].stop else self._message(i + 1)
        found = after or self._message(i if i < 0 or self._starts[i] < offset else i - 1)
        if found is None:
            return Around(max(1, self.now_ms), _LOCALHOST + bytes(4))
        time = found.store_timestamp if found.store_timestamp > 0 else max(1, self.now_ms)
        if after is None:
            time = max(time, *(log.last_time for log in self.logs))
        host = found.store_host if len(found.store_host) == 8 else _LOCALHOST + found.store_host[-4:]
        dup_info = DUP_INFO in parse_properties(found.properties)
        return Around(time, sound_host(host), found.carries_crc, dup_info, self._time_before(i, offset))

    def _time_before(self, i: int, offset: int) -> int:
        """Return the store time (ms) of the last record of the runs up to number `i` that is before an offset."""
        if i >= 0 and offset < self._runs[i][1].stop:
            i -= 1
        if i < 0:
            return 0
        log, run = self._runs[i]
        found = last_before(log, run.stop)
        message = message_at(log.queue, found[-1][0] + log.body_offset) if found else None
        return max(0, message.store_timestamp) if message is not None else 0

    def _message(self, i: int, offset: int | None = None) -> Message | None:
        """Return the first record of a run of good ones, or the one at an offset (in DLedger of its entry) in it."""
        if not 0 <= i < len(self._runs):
            return None
        log, run = self._runs[i]
        return message_at(log.queue, (run.start if offset is None else offset) + log.body_offset)


# --- where a legacy commitlog ends and DLedger's entries begin --------------------------------------------------------
#
# While legacy files exist, DLedger deletes none of its own files: its entry 0 directly followed the legacy log. Files
# that are missing between the two are lost; to which log they belong follows from the place of entry 0.


def entries_begin(evidence: Evidence) -> int | None:
    """Return the global offset of DLedger's entry 0; None if nothing proves it, or if the log begins later.

    Proofs: entry 0 itself; adjacent files; entry 0's unit in DLedger's index; the first message's consume queue unit,
    which points 48 bytes after the start of a DLedger file, but to the start of a legacy one.
    """
    log, legacy = evidence.verified.dledger, evidence.verified.legacy
    if log is None or not log.queue.files:
        return None
    start, size = log.queue.start, log.queue.file_size
    first = log.queue.pread(dledger.ENTRY.size, start)
    entry = dledger.ENTRY.parse(first) if len(first) == dledger.ENTRY.size else {}
    if start == 0 or (entry.get("index"), entry.get("pos")) == (0, start):
        return start
    if legacy is None or not legacy.queue.files:
        return None
    end = legacy.queue.stop
    if end >= start or end % size or legacy.queue.file_size != size:
        return start if end == start else None
    unit = unit_of(evidence.store, 0)
    if unit is not None and end <= unit.pos <= start and unit.pos % size == 0:
        return unit.pos
    places = evidence.about([(end, start)]).at
    for border in range(end, start, size):
        if border + log.body_offset in places:
            return border
        if border not in places:
            return None
    return None


def missing_front(evidence: Evidence, log: LogResult) -> tuple[int, int] | None:
    """Return the range of the first files of DLedger's data if they are missing; otherwise None.

    Empty files are in the log's tiling.
    """
    begin = entries_begin(evidence) if log is evidence.verified.dledger else None
    return (begin, log.tiling.start) if begin is not None and begin < log.tiling.start else None
