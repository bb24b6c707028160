"""When the broker's clean-up deletes files of a store, and whether that is enough: the rate is that of its messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.brokers.clean_up import (
    HOUR,
    Candidate,
    Decision,
    DLedgerDisks,
    FileSystem,
    Filling,
    Growth,
    RetentionRules,
    decide_commitlog,
    decide_dledger,
    forecast_filling,
)
from rmqstore.files.files import Files
from rmqstore.files.log_ends import find_end, record_at, store_timestamp
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.repair.expire import disk_of_log

DAY = 24 * HOUR
_HEAD = 256  # bytes; longer than the head of any record, with a DLedger header
_SHORT = 10 * 60_000  # ms; a rate over less is a guess


@dataclass(frozen=True, slots=True)
class LogRate:
    """How fast a log grew at its end: `bytes` from `since` to `until` (ms), by the store times of its messages.

    `before`: bytes per hour in a span of the same length before that; None if the log does not reach back so far.
    `wrote`: the end of the last record (global offset).
    """

    bytes: int
    since: int
    until: int
    before: float | None
    wrote: int

    @property
    def per_hour(self) -> float:
        """Bytes per hour."""
        return self.bytes * HOUR / max(1, self.until - self.since)

    @property
    def is_guess(self) -> bool:
        """Whether the span is too short for a forecast of days."""
        return self.until - self.since < _SHORT


def log_rate(queue: MappedFileQueue, body_offset: int) -> LogRate | None:
    """Return the rate of the last day of a log, or of as much of it as there is; None without messages of two times.

    Reads the first record of each file, and the last ones.
    """
    marks: list[tuple[int, int]] = []
    for file in queue.files:
        head = file.read_at(_HEAD, 0)
        if record_at(head, file.start, body_offset) is not None:
            marks.append((store_timestamp(head[body_offset:]), file.start))
    end = find_end(queue, body_offset, -1)
    if end.last_timestamp is None or not marks:
        return None
    last = end.last_timestamp
    past = [mark for mark in marks if mark[0] < last]
    if not past:
        return None
    since, start = min(past, key=lambda mark: (abs(last - DAY - mark[0]), mark[0]))
    earlier = [mark for mark in past if mark[0] < since]
    before = None
    if earlier:
        time_, offset = min(earlier, key=lambda mark: abs(since - (last - since) - mark[0]))
        before = (start - offset) * HOUR / (since - time_)
    return LogRate(end.wrote - start, since, last, before, end.wrote)


def live_log(store: Store) -> tuple[MappedFileQueue, int] | None:
    """Return the log that a broker appends to, and the length of what precedes each record; None without one."""
    if store.dledger is not None and store.dledger.data.files:
        return store.dledger.data, dledger.ENTRY.size
    if store.commitlog is not None and store.commitlog.files:
        return store.commitlog, 0
    return None


def on_disk_for_each_byte(store: Store, queue: MappedFileQueue) -> float:
    """Return how many bytes on disk a store has for each byte of its log, with consume queues and index."""
    files = store.files
    log = sum(files.allocated(file.path) or 0 for file in queue.files)
    folders = [store.root / name for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")]
    beside = sum(files.allocated(path) or 0 for folder in folders for path in _below(files, folder))
    return 1 + beside / log if log else 1.0


def _below(files: Files, folder: Path) -> Iterator[Path]:
    try:
        entries = files.list(folder)
    except OSError:
        return  # which has its own finding
    for entry in entries:
        if entry.link is None:
            yield from _below(files, entry.path) if entry.directory else (entry.path,)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast for a store from `now` (ms) on, with the rate that it assumes and the disk of its log."""

    now: int
    rate: LogRate
    growth: Growth
    disk: FileSystem
    filling: Filling


def outlook(store: Store, rules: RetentionRules, now: int, ask: Callable[[Path], FileSystem]) -> Outlook | None:
    """Forecast the disk of a store from `now` (ms) on; None if the rate is unknown. Errors: OSError."""
    found = live_log(store)
    rate = log_rate(*found) if found is not None else None
    if found is None or rate is None:
        return None
    queue, body_offset = found
    root = ask(store.root)
    disk, own = disk_of_log(queue, root, store.root, ask)
    legacy = body_offset != 0 and store.commitlog is not None and bool(store.commitlog.files)

    def decide(files: Sequence[Candidate], at: int, filled: FileSystem) -> Decision:
        hour = time.localtime(at // 1000).tm_hour
        if body_offset:
            disks = DLedgerDisks(root, filled) if own else DLedgerDisks(filled)
            return decide_dledger(files, rules, now=at, hour=hour, disks=disks, legacy=legacy)
        queue_disk = root if own else None
        return decide_commitlog(files, rules, now=at, hour=hour, log_disk=filled, queue_disk=queue_disk)

    files = [Candidate(str(f.path), f.start, f.length, f.mtime_ns // 1_000_000) for f in queue.files]
    room = max(0, queue.stop - rate.wrote)
    growth = Growth(rate.per_hour, on_disk_for_each_byte(store, queue))
    return Outlook(now, rate, growth, disk, forecast_filling(files, growth, disk, decide, now=now, room=room))
