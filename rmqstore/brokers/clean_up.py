"""What the broker's clean-up would delete, as pure decisions: age, deleteWhen, disk ratios, rounds of ten files.

Nothing here deletes; `MappedFileQueue.delete_expired_by_time` does it in a store that is written, `repair.expire`
plans it for one that is not.
Source: DefaultMessageStore.CleanCommitLogService, DLedgerMmapFileStore.CleanSpaceService, DLedgerCommitLog
#deleteExpiredFile, MappedFileQueue#deleteExpiredFileByTime (RocketMQ 4.9.7, 5.1.4 and 5.4.0, DLedger 0.3.2). Ratios
are 0 to 1.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

HOUR = 3_600_000
BATCH = 10
LEGACY_HOURS = 24 * 365 * 10
MAX_ROUNDS = 1 << 20


class Why(StrEnum):
    """Why a file goes or stays."""

    EXPIRED = "older than the reserved time"
    DISK_FULL = "the disk is so full that age does not count"
    YOUNG = "younger than the reserved time"
    BEHIND_YOUNG = "behind a younger file"
    LAST = "the last file is always kept"
    NOT_THE_HOUR = "waits for deleteWhen"
    NO_HOURS = "deleteWhen is not a list of hours, so every clean-up fails"
    BESIDE_LEGACY = "kept while legacy files exist"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log file: where it starts and its size (bytes), and when it was last modified (ms)."""

    path: str
    start: int
    size: int
    last_modified: int


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Settings of the clean-up; `reserved` in hours.

    `max_used` is diskMaxUsedSpaceRatio (10 to 95 %), `clean_forcibly` cleanFileForciblyEnable, `batch`
    deleteFileBatchMax (always 10 before 5.0 and in DLedger).

    `before_5`: as 4.9 does it. There a disk above diskSpaceCleanForciblyRatio, but not above diskMaxUsedSpaceRatio,
    waits for the hour; and the last legacy file beside a DLedger log goes, too, once it is alone, after which the
    files of DLedger are cleaned as ever. 5.x never calls that override (DLedgerCommitLog#deleteExpiredFile).
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
        """Whether deleteWhen names this hour; None where the broker fails on a part that is not a number.

        Parts behind the hour are not looked at. Source: UtilAll#isItTimeToDo
        """
        parts = self.delete_when.split(";")
        while len(parts) > 1 and not parts[-1]:  # as Java's split
            parts.pop()
        for part in parts:
            if not re.fullmatch(r"[+-]?[0-9]+", part):
                return None
            if int(part) == hour:
                return True
        return False

    def bounded(self) -> RetentionRules:
        """With the bounds that the getters put on ratios."""
        return replace(
            self,
            max_used=min(max(self.max_used, 0.10), 0.95),
            warning=min(max(self.warning, 0.35), 0.90),
            forcibly=min(max(self.forcibly, 0.30), 0.85),
        )


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: bytes used, and those with what its user can still write (less than the whole, as in df)."""

    used: int
    total: int

    @property
    def ratio(self) -> float:
        """Part that is used, whole percents, rounded up; -1 where it cannot be told.

        Source: UtilAll#getDiskPartitionSpaceUsedPercent, DLedgerUtils#getDiskPartitionSpaceUsedPercent
        """
        return -(-self.used * 100 // self.total) / 100 if self.total > 0 else -1.0

    def less(self, freed: int) -> Disk:
        """After so many bytes are free again."""
        return Disk(max(0, self.used - freed), self.total)


@dataclass(frozen=True, slots=True)
class Decision:
    """What would go, in order, and why the others stay.

    `rounds` is how many rounds of the service it takes; `write_forbidden` whether the disk counts as full before it;
    `time_up` and `space` are what the first round found.
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
        """Bytes of the files that go."""
        return sum(file.size for file, _ in self.delete)


def one_round(
    files: Sequence[Candidate], now: int, reserved: int, at_once: bool, *, keep_last: bool = True, batch: int = BATCH
) -> list[tuple[Candidate, Why]]:
    """Files that one call of deleteExpiredFileByTime deletes.

    Units: hours. Source: MappedFileQueue#deleteExpiredFileByTime
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
    log_disk: Disk,
    queue_disk: Disk | None = None,
    legacy: bool = False,
) -> Decision:
    """What CleanCommitLogService deletes from now on while the hour and the rest of the disk stay as they are.

    `queue_disk` is that of the consume queues, if different. `legacy`: the files are the legacy part of a mixed store.
    Units: ms; `hour` of the day in the broker's zone.
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
        # the service leaves `cleanImmediately` false below the ratios, so age counts again as soon as there is room
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
    """The file systems of a DLedger store: of the store's root, and of the data where that is elsewhere."""

    base: Disk
    data: Disk | None = None


def decide_dledger(
    files: Sequence[Candidate],
    rules: RetentionRules,
    *,
    now: int,
    hour: int,
    disks: DLedgerDisks,
    legacy: bool = False,
    force_clean: float = 0.85,
) -> Decision:
    """What DLedger's CleanSpaceService deletes from now on; `legacy`: files of a plain commitlog are still there.

    `rules.reserved` is the broker's fileReservedTime: DLedger keeps one hour more, and ten years beside legacy files.
    Its diskSpaceRatioToCheckExpired is the broker's diskMaxUsedSpaceRatio, as a float of 32 bits: 0.70 is more than
    that. Source: DLedgerCommitLog#refreshConfig, #disableDeleteDledger and its constructor
    """
    rules = rules.bounded()
    check_expired = struct.unpack("f", struct.pack("f", rules.max_used))[0]
    reserved = LEGACY_HOURS if legacy else rules.reserved + 1
    force_clean = max(force_clean, 0.50)
    full = min(force_clean + 0.05, 0.95)
    time_up = rules.time_up(hour)
    left = list(files)
    gone: list[tuple[Candidate, Why]] = []
    rounds, first_space, first_forced = 0, False, False
    base = disks.base.ratio if disks.data is not None else -1.0
    disk = disks.data or disks.base
    forbidden = max(disks.base.ratio, disk.ratio) > full
    while rounds < MAX_ROUNDS and time_up is not None:
        ratio = max(disk.ratio, base)
        space = ratio > check_expired
        forced = ratio > force_clean and rules.clean_forcibly and not legacy
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


def expired_by_offset(last_units: Sequence[int], minimum: int) -> int:
    """How many files of a consume queue go, oldest first: those whose last unit points below the log's minimum.

    `last_units` are the addresses of the last unit of each file; the last file always stays.
    Units: bytes. Source: MappedFileQueue#deleteExpiredFileByOffset
    """
    return _leading_below(last_units[:-1], minimum)


def expired_index(ends: Sequence[int], minimum: int) -> int:
    """How many index files go: those whose end address is below the log's minimum, never the last.

    Units: bytes. Source: IndexService#deleteExpiredFile
    """
    return _leading_below(ends[:-1], minimum)


def _leading_below(values: Sequence[int], minimum: int) -> int:
    return sum(1 for _ in takewhile(lambda value: value < minimum, values))
