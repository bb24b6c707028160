"""Which snapshots of a repository stay: by age, by number, and one of each of the last hours, days, weeks, months."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rmqstore.backup.manifest import order_of
from rmqstore.formats.times import SNAPSHOT_NAME, parse_snapshot_name, utc

_LAST = 253_402_300_799  # the last second of the year 9999
_PERIODS = {"hourly": "%Y%m%dT%H", "daily": "%Y%m%d", "weekly": "%GW%V", "monthly": "%Y%m"}
"""The periods of a `KeepRule` as formats of UTC times; weeks are those of ISO 8601."""


@dataclass(frozen=True, slots=True)
class KeepRule:
    """What to keep; None: no such rule. Without any, everything stays, and the newest snapshot always stays.

    A snapshot stays if one of the rules keeps it: it is not older than `age` ms, it is one of the `last`, or the newest
    one of one of the last hours, days, weeks or months that have any. `size`: of these, the oldest go while all of them
    need more bytes.
    """

    age: int | None = None
    size: int | None = None
    last: int | None = None
    hourly: int | None = None
    daily: int | None = None
    weekly: int | None = None
    monthly: int | None = None

    @property
    def counts(self) -> bool:
        """Whether a rule counts snapshots."""
        return any(one is not None for one in (self.last, self.hourly, self.daily, self.weekly, self.monthly))

    def outdated(self, names: Sequence[str], now_ms: int) -> list[str]:
        """Return the snapshots that no rule but that of the size keeps. `names`: all of them, oldest first."""
        if self.age is None and not self.counts:
            return []
        kept = {*names[-1:]}
        if self.age is not None:
            oldest = order_of(name_at(now_ms - self.age))
            kept.update(name for name in names if order_of(name) >= oldest)
        if self.last:
            kept.update(names[-self.last :])
        for period, form in _PERIODS.items():
            number = getattr(self, period)
            if number:
                newest = {f"{_time_of(name):{form}}": name for name in names}  # oldest first: the newest one remains
                kept.update([*newest.values()][-number:])
        return [name for name in names if name not in kept]

    def oldest(self, names: Sequence[str], now_ms: int) -> int | None:
        """Return the time (ms) before which a log file that the broker has deleted is not kept; None: all are kept.

        It is the age, or the time of the oldest snapshot that the counting rules keep, whichever is earlier.
        """
        times = [now_ms - self.age] if self.age is not None else []
        if self.counts:
            gone = {*self.outdated(names, now_ms)}
            first = next((name for name in names if name not in gone), None)
            times.append(now_ms if first is None else int(_time_of(first).timestamp() * 1000))
        return min(times, default=None)


def name_at(ms: int) -> str:
    """Return the name of a snapshot that is made at a time (ms); of the nearest time between 1970 and 9999."""
    return f"{datetime.fromtimestamp(min(max(ms, 0) // 1000, _LAST), UTC):{SNAPSHOT_NAME}}"


def _time_of(name: str) -> datetime:
    """Return the time in the name of a snapshot; the earliest for an impossible one, such as the 31st of June."""
    return utc(parse_snapshot_name(name) or 0)
