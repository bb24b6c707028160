"""Parse times as people write them: `1763712000`, `2026-11-21T08:00`, `-2h`, `today 10:00`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import time as Clock

from rmqstore.texts import Text

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Units of durations in ms."""
_AGO = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)")


def parse_stamp(name: str) -> int | None:
    """Return the time (ms) with which the name of a journal begins, such as `20261123T101500.123456Z`; None without."""
    try:
        when = datetime.strptime(name[:22], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(when.timestamp() * 1000)


SNAPSHOT_NAME = "%Y%m%dT%H%M%SZ"
"""How the name of a snapshot begins, in the form of strftime."""


def parse_snapshot_name(name: str) -> int | None:
    """Return the time (ms) with which the name of a snapshot begins, such as `20261129T090001Z`; None without."""
    try:
        when = datetime.strptime(name[:16], SNAPSHOT_NAME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(when.timestamp()) * 1000


def parse_time(text: str, now: float | None = None, zone: tzinfo | None = None) -> int:
    """Parse a time to epoch ms.

    13 digits are epoch ms, 10 are epoch s. A date and time without a zone is in `zone`, by default the local zone.
    `today` and `yesterday` mean midnight, or the time of day that follows the word; `-2h` means two hours ago. `now` is
    in epoch s (default: the clock).
    Errors: ValueError with the reason, also for a local time that occurs twice or never.
    """
    text = text.strip()
    now = time.time() if now is None else now
    if re.fullmatch(r"[0-9]+", text):
        return _epoch(text)
    ago = _AGO.fullmatch(text)
    if ago:
        return round(now * 1000 - float(ago[1]) * UNITS[ago[2]])
    if text.lower() == "now":
        return round(now * 1000)
    day, _, clock = text.partition(" ")
    days_ago = {"today": 0, "yesterday": 1}.get(day.lower())
    if days_ago is None:
        return _moment(datetime.fromisoformat(text), text, zone)
    date = datetime.fromtimestamp(now, zone).date() - timedelta(days=days_ago)
    return _moment(datetime.combine(date, Clock.fromisoformat(clock.strip() or "00:00")), text, zone)


def epoch_ms(when: int | str | datetime) -> int:
    """Convert epoch ms, a text for `parse_time`, or a datetime with a zone to epoch ms.

    Errors: ValueError for a text that `parse_time` rejects, and for a datetime without a zone.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError(Text("{when!r} has no zone: add one, such as tzinfo=datetime.UTC", when=when))
        return round(when.timestamp() * 1000)
    return when if isinstance(when, int) else parse_time(when)


def utc(milliseconds: int) -> datetime:
    """Convert epoch ms to a datetime in UTC.

    Errors: OverflowError for a year that Python cannot represent.
    """
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def iso_utc(milliseconds: int) -> str:
    """Format epoch ms as ISO 8601 in UTC, `2026-11-21T07:10:25.630Z`; a time out of range stays a number."""
    try:
        return utc(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(milliseconds)


def _epoch(digits: str) -> int:
    if len(digits) == 13:
        return int(digits)
    if len(digits) == 10:
        return int(digits) * 1000
    wrong = Text("{digits} has {count} digits: epoch milliseconds have 13, epoch seconds have 10")
    raise ValueError(wrong.format(digits=digits, count=len(digits)))


def _moment(when: datetime, text: str, zone: tzinfo | None) -> int:
    if when.tzinfo is None and zone is not None:
        when = when.replace(tzinfo=zone)
    if when.tzinfo is None and when.timestamp() != when.replace(fold=1).timestamp():
        raise ValueError(Text("{text} occurs twice or never in the local zone: add a zone, such as +01:00", text=text))
    return round(when.timestamp() * 1000)
