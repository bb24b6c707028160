"""Where the damage is: spans within one file each, and what follows them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.records import message_at
from rmqstore.formats.message import (
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    Fault,
    Message,
    check_message,
    sound_host,
)
from rmqstore.formats.properties import DUP_INFO, parse_properties
from rmqstore.repair.salvage.evidence.filler_records import Around
from rmqstore.scan.tiling import Kind, Run


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [start, stop) of one file that are not good records; global offsets.

    `runs` are what the scan saw there. `at_end`: it reaches to the end of its file, so that the BLANK is gone too.
    `file` None: the file is missing; `short`: bytes that the file lacks at its end (they are in [start, stop)).
    `taken`: starts of good records (of their entries) that were taken in, because the damage is too short for a record.
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
        """The file, or where the missing one would be."""
        if self.file is not None:
            return self.file.path
        files = self.log.queue.files
        before = [f for f in files if f.start < self.start] or files[:1]
        return before[-1].path.parent / offset_to_file_name(self.start)


def find_damage(log: LogResult, *, end: int, front: tuple[int, int] | None = None) -> list[Damage]:
    """Spans of a log up to `end` (global offset), also where no file is; a span never goes over a file's end.

    `front`: global offsets of files that are missing before the first one.
    """
    out: list[Damage] = []
    held: list[Run] = []

    def close() -> None:
        if held:
            out.append(_damage(log, tuple(held)))
            held.clear()

    for piece in _per_file(log, Run(Kind.HOLE, *front)) if front is not None else ():
        held.append(piece)
        close()
    for run in log.tiling:
        if run.start >= end:
            break
        if run.kind is Kind.RECORDS or (run.kind is Kind.BLANK and not (held and _of_another_file(log, held[-1]))):
            close()
            continue
        for piece in _per_file(log, run):
            if held and (piece.start % log.queue.file_size == 0 or held[-1].stop != piece.start):
                close()
            held.append(piece)
    if log.tiling.stop < end and log.tiling.stop % log.queue.file_size == 0:
        for piece in _per_file(log, Run(Kind.HOLE, log.tiling.stop, end)):
            close()
            held.append(piece)
    close()
    return out


def _of_another_file(log: LogResult, run: Run) -> bool:
    """Whether sound records of another place are there: the BLANK behind them is that of another file, too."""
    if run.kind is not Kind.DIRTY or run.count < 2:
        return False
    message = message_at(log.queue, run.start + log.lead)
    if message is None or message.physical_offset in (run.start + log.lead, -1):
        return False
    return check_message(message, message.physical_offset) is Fault.NONE


def _per_file(log: LogResult, run: Run) -> Iterator[Run]:
    size = log.queue.file_size
    at = run.start
    while at < run.stop:
        stop = min(run.stop, at - at % size + size)
        yield run if (at, stop) == (run.start, run.stop) else Run(run.kind, at, stop, cause=run.cause)
        at = stop


def _damage(log: LogResult, runs: tuple[Run, ...]) -> Damage:
    start, stop = runs[0].start, runs[-1].stop
    file = log.queue.find(start)
    short = 0
    if file is not None and file.length < file.file_size:
        short = max(0, stop - max(start, file.start + file.length))
    at_end = stop % log.queue.file_size == 0
    return Damage(log, start, stop, runs, at_end, file, short)


class Neighbours:
    """The good records around damage: store times, hosts, and whether they carry a record CRC."""

    def __init__(self, logs: Sequence[LogResult], now_ms: int) -> None:
        self.logs = logs
        self.now_ms = now_ms
        self._runs = [
            (run.start, log) for log in logs for run in log.tiling if run.kind is Kind.RECORDS and run.stop > run.start
        ]
        self._starts = [start for start, _ in self._runs]
        self._stops = {start: log.tiling.find(start) for start, log in self._runs}

    def behind(self, offset: int) -> Message | None:
        """The first good record at or behind a global offset that is not inside a record."""
        i = bisect_right(self._starts, offset) - 1
        if i >= 0:
            run = self._stops[self._starts[i]]
            if run is not None and run.start <= offset < run.stop:
                return self.message(self._runs[i][1], offset)
        if i + 1 < len(self._runs):
            start, log = self._runs[i + 1]
            return self.message(log, start)
        return None

    def before(self, offset: int) -> Message | None:
        """A good record not far before: the first one of the run that ends at or before a global offset."""
        i = bisect_right(self._starts, offset - 1) - 1
        return self.message(self._runs[i][1], self._runs[i][0]) if i >= 0 else None

    def around(self, offset: int) -> Around:
        """What a filler at an offset takes over: the next record's time, so that times never fall.

        At the log's end that of the last record.
        """
        behind = self.behind(offset)
        found = behind or self.before(offset)
        if found is None:
            return Around(max(1, self.now_ms), bytes([127, 0, 0, 1, 0, 0, 0, 0]))
        time = found.store_timestamp if found.store_timestamp > 0 else max(1, self.now_ms)
        if behind is None:
            time = max(time, *(log.last_time for log in self.logs))
        host = found.store_host if len(found.store_host) == 8 else bytes([127, 0, 0, 1]) + found.store_host[-4:]
        return Around(time, sound_host(host), carries_crc(found), DUP_INFO in parse_properties(found.properties))

    @staticmethod
    def message(log: LogResult, start: int) -> Message | None:
        """The record whose run (with DLedger's header) starts at a global offset."""
        return message_at(log.queue, start + log.lead)


def carries_crc(message: Message) -> bool:
    """Whether a record ends with the property __CRC32#."""
    return message.properties[-CRC32_RESERVED_LEN:].startswith(CRC32_PROPERTY)
