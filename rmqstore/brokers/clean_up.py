"""Decides which files the broker's clean-up would delete, and forecasts when it will.

`decide_commitlog` and `decide_dledger` apply the rules: age, deleteWhen and disk ratios (0 to 1), ten files per round.
`forecast_filling` lets hours pass in which the log grows at one rate, applies the same rules in each, and says whether
the disk has room until files go.

Pure: nothing here deletes a file. `append.MappedFileQueue.delete_expired_by_time` deletes, `repair.expire` plans a
deletion.
Source: DefaultMessageStore.CleanCommitLogService, DLedgerMmapFileStore.CleanSpaceService, DLedgerCommitLog
#deleteExpiredFile, MappedFileQueue#deleteExpiredFileByTime (RocketMQ 4.9.7, 5.1.4 and 5.4.0, DLedger 0.3.2).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from rmqstore.formats.javatext import java_split, parse_int
from rmqstore.texts import Text

HOUR = 3_600_000
BATCH = 10
LEGACY_HOURS = 24 * 365 * 10
MAX_ROUNDS = 1 << 20
_DLEDGER_FORCES, _DLEDGER_FULL = 0.85, 0.90  # diskSpaceRatioToForceClean, which no broker sets, and 0.05 more


class Why(StrEnum):
    """Why a file is deleted or kept."""

    EXPIRED = Text("older than the reserved time")
    DISK_FULL = Text("the disk is so full that age does not count")
    YOUNG = Text("younger than the reserved time")
    BEHIND_YOUNG = Text("after a younger file")
    LAST = Text("the last file is always kept")
    NOT_THE_HOUR = Text("waits for deleteWhen")
    NO_HOURS = Text("deleteWhen is not a list of hours, so every clean-up fails")
    BESIDE_LEGACY = Text("kept while legacy files exist")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log file: start offset and size in bytes, time of the last modification in ms."""

    path: str
    start: int
    size: int
    last_modified: int


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Settings of the clean-up.

    `reserved` is fileReservedTime in hours, `max_used` diskMaxUsedSpaceRatio (10 to 95 %), `clean_forcibly`
    cleanFileForciblyEnable, `batch` deleteFileBatchMax (always 10 before 5.0 and in DLedger).

    `before_5` selects the rules of 4.9, which differ in two ways. A disk above diskSpaceCleanForciblyRatio but not
    above diskMaxUsedSpaceRatio waits for deleteWhen. And in a mixed store the last legacy file is deleted too, once it
    is the only one left; from then on DLedger's files are cleaned as usual. 5.x never calls the override that does
    this (DLedgerCommitLog#deleteExpiredFile).
    """

    reserved: int = 72
    delete_when: str = "04"
    max_used: float = 0.75
    warning: float = 0.90
    forcibly: float = 0.85
    clean_forcibly: bool = True
    batch: int = BATCH
    before_5: bool = False

    def time_up(self, hour: int) -> bool | None:
        """Return whether deleteWhen names this hour, or None if the broker throws on a part that is not a number.

        The broker stops at the part that matches, so later parts may be anything. Source: UtilAll#isItTimeToDo
        """
        for part in java_split(self.delete_when, ";"):
            number = parse_int(part)
            if number is None:
                return None
            if number == hour:
                return True
        return False

    def bounded(self) -> RetentionRules:
        """Clamp the ratios as the broker's getters do."""
        return replace(
            self,
            max_used=min(max(self.max_used, 0.10), 0.95),
            warning=min(max(self.warning, 0.35), 0.90),
            forcibly=min(max(self.forcibly, 0.30), 0.85),
        )


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system as `df` sees it: bytes used, and `total` = used + available to the user (less than its size)."""

    used: int
    total: int

    @property
    def ratio(self) -> float:
        """Used share of the disk (0 to 1), rounded up to a whole percent; -1 if unknown.

        Source: UtilAll#getDiskPartitionSpaceUsedPercent, DLedgerUtils#getDiskPartitionSpaceUsedPercent
        """
        return -(-self.used * 100 // self.total) / 100 if self.total > 0 else -1.0

    def less(self, freed: int) -> FileSystem:
        """Return the disk after `freed` bytes were released."""
        return FileSystem(max(0, self.used - freed), self.total)


@dataclass(frozen=True, slots=True)
class Decision:
    """The files that the clean-up deletes, in order, and why it keeps the others.

    `rounds` is the number of service rounds this takes. `write_forbidden`: the disk counts as full before the first
    round. `time_up`, `space` and `forced` describe the first round: the hour is in deleteWhen, the disk is above a
    limit, age does not count.
    """

    delete: tuple[tuple[Candidate, Why], ...]
    keep: tuple[tuple[Candidate, Why], ...]
    rounds: int
    time_up: bool
    space: bool
    forced: bool
    write_forbidden: bool

    @property
    def freed(self) -> int:
        """Bytes of the deleted files."""
        return sum(file.size for file, _ in self.delete)


def one_round(
    files: Sequence[Candidate], now: int, reserved: int, at_once: bool, *, keep_last: bool = True, batch: int = BATCH
) -> list[tuple[Candidate, Why]]:
    """Return the files that one call of deleteExpiredFileByTime deletes; `at_once` ignores their age.

    Units: `now` ms, `reserved` hours. Source: MappedFileQueue#deleteExpiredFileByTime
    """
    gone: list[tuple[Candidate, Why]] = []
    for file in files[:-1] if keep_last else files:
        expired = now >= file.last_modified + reserved * HOUR
        if not expired and not at_once:
            break
        gone.append((file, Why.EXPIRED if expired else Why.DISK_FULL))
        if len(gone) >= batch:
            break
    return gone


def decide_commitlog(
    files: Sequence[Candidate],
    rules: RetentionRules,
    *,
    now: int,
    hour: int,
    log_disk: FileSystem,
    queue_disk: FileSystem | None = None,
    legacy: bool = False,
) -> Decision:
    """Decide what CleanCommitLogService deletes from now on, if the hour and all other files on the disk do not change.

    `queue_disk` is the consume queues' file system if it is a different one. `legacy`: the files are the legacy part
    of a mixed store. Units: `now` ms, `hour` of the day in the broker's time zone.
    """
    rules = rules.bounded()
    time_up = rules.time_up(hour)
    left = list(files)
    gone: list[tuple[Candidate, Why]] = []
    rounds, first_space, first_forced = 0, False, False
    forbidden = max(log_disk.ratio, queue_disk.ratio if queue_disk else -1.0) > rules.warning
    disk = log_disk
    while rounds < MAX_ROUNDS and time_up is not None:
        ratios = [disk.ratio, *([queue_disk.ratio] if queue_disk is not None else [])]
        very_full = any(ratio > rules.forcibly for ratio in ratios)
        space = any(ratio < 0 or ratio > rules.max_used for ratio in ratios) or (very_full and not rules.before_5)
        forced = rules.clean_forcibly and very_full
        if rounds == 0:
            first_space, first_forced = space, forced and (space or time_up)
        if not time_up and not space:
            break
        # below the ratios the service resets `cleanImmediately`: age counts again as soon as there is room
        found = one_round(left, now, rules.reserved, forced, batch=rules.batch)
        if not found and legacy and rules.before_5 and len(left) == 1:
            found = one_round(left, now, rules.reserved, forced, keep_last=False)
        if not found:
            break
        rounds += 1
        gone += found
        left = left[len(found) :]
        disk = disk.less(sum(file.size for file, _ in found))
    runs = None if time_up is None else time_up or first_space
    keep = _reasons(left, now, rules.reserved, runs, keep_last=not (legacy and rules.before_5))
    return Decision(tuple(gone), keep, rounds, bool(time_up), first_space, first_forced, forbidden)


class DLedgerDisks(NamedTuple):
    """The file systems of a DLedger store: that of the store's root, and that of the data if it is a different one."""

    base: FileSystem
    data: FileSystem | None = None


def decide_dledger(
    files: Sequence[Candidate],
    rules: RetentionRules,
    *,
    now: int,
    hour: int,
    disks: DLedgerDisks,
    legacy: bool = False,
) -> Decision:
    """Decide what DLedger's CleanSpaceService deletes from now on; `legacy`: plain commitlog files still exist.

    DLedger keeps files one hour longer than the broker's fileReservedTime (`rules.reserved`), and ten years while
    legacy files exist. Its diskSpaceRatioToCheckExpired is the broker's diskMaxUsedSpaceRatio cast to a 32-bit float:
    a ratio of 0.70 exceeds it. Source: DLedgerCommitLog#refreshConfig, #disableDeleteDledger and its constructor
    """
    rules = rules.bounded()
    check_expired = struct.unpack("f", struct.pack("f", rules.max_used))[0]
    reserved = LEGACY_HOURS if legacy else rules.reserved + 1
    time_up = rules.time_up(hour)
    left = list(files)
    gone: list[tuple[Candidate, Why]] = []
    rounds, first_space, first_forced = 0, False, False
    base = disks.base.ratio if disks.data is not None else -1.0
    disk = disks.data or disks.base
    forbidden = max(disks.base.ratio, disk.ratio) > _DLEDGER_FULL
    while rounds < MAX_ROUNDS and time_up is not None:
        ratio = max(disk.ratio, base)
        space = ratio > check_expired
        forced = ratio > _DLEDGER_FORCES and rules.clean_forcibly and not legacy
        if rounds == 0:
            first_space, first_forced = space, forced
        found = one_round(left, now, reserved, forced) if time_up or space else []
        if not found:
            break
        rounds += 1
        gone += found
        left = left[len(found) :]
        disk = disk.less(sum(file.size for file, _ in found))
    runs = None if time_up is None else time_up or first_space
    keep = _reasons(left, now, reserved, runs, legacy=legacy)
    return Decision(tuple(gone), keep, rounds, bool(time_up), first_space, first_forced, forbidden)


def _reasons(
    left: Sequence[Candidate],
    now: int,
    reserved: int,
    runs: bool | None,
    *,
    keep_last: bool = True,
    legacy: bool = False,
) -> tuple[tuple[Candidate, Why], ...]:
    """Return why each remaining file is kept; `runs`: whether the clean-up runs now, None if it fails on deleteWhen."""
    out: list[tuple[Candidate, Why]] = []
    young = False
    for number, file in enumerate(left):
        expired = now >= file.last_modified + reserved * HOUR
        if young:
            why = Why.LAST if keep_last and number == len(left) - 1 else Why.BEHIND_YOUNG
        elif keep_last and number == len(left) - 1:
            why = Why.LAST
        elif not expired:
            why = Why.BESIDE_LEGACY if legacy else Why.YOUNG
            young = True
        else:
            why = Why.NO_HOURS if runs is None else Why.BEHIND_YOUNG if runs else Why.NOT_THE_HOUR
        out.append((file, why))
    return tuple(out)


def expired_below(last: Sequence[int], minimum: int) -> int:
    """Count the leading files of a consume queue, or of the index, that are deleted; never the last one.

    `last` has the last log address of each file, in its last unit or in its header; `minimum` is the first of the log.
    Source: MappedFileQueue#deleteExpiredFileByOffset, IndexService#deleteExpiredFile
    """
    return sum(1 for _ in takewhile(lambda address: address < minimum, last[:-1]))


HORIZON = 30 * 24 * HOUR
"""How far the forecast goes, in ms."""
_LEAST_STEP, _SHARE = 60_000, 200  # a step is at most an hour, or the time in which 1/200 of the disk fills
_MOST_STEPS = 1500
_MOST_FILES = 200  # that a disk is divided into; smaller files are taken together

Decide = Callable[[Sequence[Candidate], int, FileSystem], Decision]
"""Returns what the clean-up decides at a time (ms) with a disk."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How fast a log grows: bytes of the log per hour, and bytes on disk for each of them (with queues and index)."""

    per_hour: float
    on_disk: float = 1.0


@dataclass(frozen=True, slots=True)
class Filling:
    """The disk in the coming days; times in ms, None for what does not happen within the horizon.

    `first_deleted`: the next files go. `early`: files go before their time, because the disk is too full; the youngest
    of them has the age `least_age` (ms). `refuses`: the broker refuses messages. `full`: nothing is left. `peak`: the
    highest used share of the disk, at `peak_at`. `until`: the end of the forecast.
    """

    until: int
    peak: float
    peak_at: int
    first_deleted: int | None = None
    early: int | None = None
    least_age: int | None = None
    refuses: int | None = None
    full: int | None = None

    @property
    def enough(self) -> bool:
        """Whether the clean-up keeps room on the disk without deleting files early."""
        return self.early is None and self.refuses is None and self.full is None


@dataclass(slots=True)
class _CleanedLog:
    """The files of a log that grows; `room`: bytes left in the last one."""

    files: list[Candidate]
    size: int
    room: float

    def grow(self, count: float, now: int) -> None:
        """Append bytes: the last file is written to, and new ones begin."""
        self.room -= count
        while self.room < 0:
            last = self.files[-1]
            self.files[-1] = Candidate(last.path, last.start, last.size, now)
            self.files.append(Candidate("", last.start + self.size, self.size, now))
            self.room += self.size
        last = self.files[-1]
        self.files[-1] = Candidate(last.path, last.start, last.size, now)

    def drop(self, decision: Decision) -> int:
        """Remove deleted files; return their bytes."""
        self.files = self.files[len(decision.delete) :]
        return decision.freed


def _taken_together(files: Sequence[Candidate], size: int) -> list[Candidate]:
    """Return the files, small ones as one of about `size` bytes that is as old as the youngest of them.

    The first file stays alone: its age decides when the next files are deleted.
    """
    out: list[Candidate] = []
    for file in files[:-1]:
        if len(out) > 1 and out[-1].size + file.size <= size:
            last = out[-1]
            youngest = max(last.last_modified, file.last_modified)
            out[-1] = Candidate(last.path, last.start, last.size + file.size, youngest)
        else:
            out.append(file)
    return [*out, files[-1]]


def forecast_filling(
    files: Sequence[Candidate], growth: Growth, disk: FileSystem, decide: Decide, *, now: int, room: int
) -> Filling:
    """Forecast a disk from `now` (ms) on; `room`: bytes left in the last log file."""
    per_hour = max(growth.per_hour, 0.0) * growth.on_disk
    step = HOUR
    if per_hour:
        step = int(min(HOUR, max(_LEAST_STEP, disk.total / _SHARE / per_hour * HOUR)))
    horizon = min(HORIZON, step * _MOST_STEPS)
    size = max(files[-1].size, disk.total // _MOST_FILES)
    log = _CleanedLog(_taken_together(files, size), size, room)
    found: dict[str, int] = {}
    used = float(disk.used)
    peak, peak_at, least_age = disk.ratio, now, None
    time = now
    while time <= now + horizon and "refuses" not in found and "full" not in found:
        current = FileSystem(int(used), disk.total)
        decision = decide(log.files, time, current)
        if current.ratio > peak:
            peak, peak_at = current.ratio, time
        if decision.write_forbidden:
            found["refuses"] = time
        if current.used >= current.total:
            found["full"] = time
        if decision.delete:
            found.setdefault("first_deleted", time)
        early = [time - file.last_modified for file, why in decision.delete if why is Why.DISK_FULL]
        if early:
            found.setdefault("early", time)
            least_age = min(early) if least_age is None else min(least_age, *early)
        used = max(0.0, used - log.drop(decision) * growth.on_disk)
        passed = (time // step + 1) * step - time  # the clock reaches the hours of deleteWhen on time
        log.grow(min(growth.per_hour * passed / HOUR, disk.total), time)
        used += per_hour * passed / HOUR
        time += passed
    return Filling(min(time, now + horizon), peak, peak_at, least_age=least_age, **found)
