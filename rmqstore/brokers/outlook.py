"""When the broker's clean-up deletes files of a store again, and whether that is enough at the rate of its messages.

Source: DefaultMessageStore.CleanCommitLogService, DLedger's CleanSpaceService (RocketMQ 4.9.7, 5.1.4 and 5.4.0,
DLedger 0.3.2)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.brokers.clean_up import (
    BATCH,
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
from rmqstore.brokers.rules import rules_for
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.disk import existing
from rmqstore.files.log_ends import find_end, record_at, store_timestamp
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.files.walk import walk
from rmqstore.formats import dledger

DAY = 24 * HOUR
_HEAD = 256  # bytes; longer than the head of any record, with a DLedger header
_SHORT = 10 * 60_000  # ms; a rate over less is a guess


def rules_of(config: BrokerConfig, reserved: int | None = None, version: str | None = None) -> RetentionRules:
    """Read the clean-up's settings from a broker.conf, for a broker version.

    Errors: BadBrokerConfig; UsageError for an unknown version.
    """
    given = config.given_int
    before_5 = rules_for(version).version.startswith("4.")
    return RetentionRules(
        reserved=config.int("fileReservedTime") if reserved is None else reserved,
        delete_when=config.text("deleteWhen"),
        max_used=config.int("diskMaxUsedSpaceRatio") / 100,
        warning=(given("diskSpaceWarningLevelRatio") or 90) / 100,
        forcibly=(given("diskSpaceCleanForciblyRatio") or 85) / 100,
        clean_forcibly=config.bool("cleanFileForciblyEnable"),
        batch=(None if before_5 else given("deleteFileBatchMax")) or BATCH,
        before_5=before_5,
    )


def disk_of(path: Path) -> FileSystem:
    """Return the usage of a path's file system, as of Java's File#getFreeSpace and #getUsableSpace."""
    status = os.statvfs(existing(path))
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return FileSystem(used, used + status.f_bavail * status.f_frsize)


def disk_of_log(
    queue: MappedFileQueue, root_disk: FileSystem, root: Path, ask: Callable[[Path], FileSystem]
) -> tuple[FileSystem, bool]:
    """Return the least used disk of a log, and whether it is another one than the store's root: a clean-up of the log
    frees space on the root's disk, too, if both are the same.
    """
    disk, directory = min(((ask(d), d) for d in queue.directories), key=lambda found: found[0].ratio)
    try:
        same = directory.stat().st_dev == root.stat().st_dev and disk.total == root_disk.total
    except OSError:
        same = False
    return (root_disk, False) if same else (disk, True)


def candidates(queue: MappedFileQueue) -> list[Candidate]:
    """Return the files of a log as the clean-up sees them."""
    return [Candidate(str(f.path), f.start, f.length, f.mtime_ns // 1_000_000) for f in queue.files]


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
    below = (entry for folder in folders for entry in walk(files, folder))
    beside = sum(files.allocated(e.path) or 0 for e in below if e.link is None and not e.directory)
    return 1 + beside / log if log else 1.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast for a store from `now` (ms) on, with the rate that it assumes and the disk of its log.

    If the rate is a guess, the forecast assumes no growth: it tells only what the ages of the files and the disk as it
    is now mean.
    """

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

    files, room = candidates(queue), max(0, queue.stop - rate.wrote)
    growth = Growth(0.0 if rate.is_guess else rate.per_hour, on_disk_for_each_byte(store, queue))
    return Outlook(now, rate, growth, disk, forecast_filling(files, growth, disk, decide, now=now, room=room))
