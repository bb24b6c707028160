"""Forecasts when the clean-up deletes log files, and whether the disk has room until then, if messages keep coming.

Pure: hours pass in steps, in which the log grows at one rate and the rules of `clean_up` decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmqstore.brokers.clean_up import HOUR, Candidate, Decision, FileSystem, Why

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
class _Log:
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
    """Return the files, small ones as one of about `size` bytes that is as old as the youngest of them."""
    out: list[Candidate] = []
    for file in files[:-1]:
        if out and out[-1].size + file.size <= size:
            last = out[-1]
            out[-1] = Candidate(last.path, last.start, last.size + file.size, file.last_modified)
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
    log = _Log(_taken_together(files, size), size, room)
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
