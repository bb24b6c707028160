"""The forecast for a disk in words: for `du --growth` and `expire`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import bytes_text, many, time_text

if TYPE_CHECKING:
    from rmqstore.repair.filling import Outlook

_HOUR, _DAY = 3_600_000, 86_400_000


def outlook_words(found: Outlook) -> str:
    """Return whether the clean-up is enough, in a sentence or two."""
    filling, disk = found.filling, found.disk
    days = many(round((filling.until - found.now) / _DAY) or 1, "day")
    if filling.enough:
        return (
            f"At this rate the clean-up is enough: the disk has {disk.ratio:.0%} used now, and at most "
            f"{filling.peak:.0%} in the next {days}."
        )
    end = filling.refuses if filling.refuses is not None else filling.full
    early = ""
    if filling.early is not None and filling.least_age is not None:
        early = (
            f"From {time_text(filling.early)} on, the clean-up deletes files before their time, because the disk is "
            f"too full: the youngest is {span_words(filling.least_age)} old."
        )
    if end is None:
        return early
    left = span_words(end - found.now)
    if end <= found.now:
        return "The disk is full: the broker refuses messages now."
    return f"Full in {left} at this rate: the broker refuses messages at {time_text(end)}. {early}".rstrip()


def outlook_lines(found: Outlook) -> Iterator[str]:
    """Yield what the forecast is based on."""
    rate, disk, filling = found.rate, found.disk, found.filling
    trend = ""
    if rate.before:
        change = rate.per_hour / rate.before - 1
        trend = f", {change:+.0%} against the time before"
    span = span_words(rate.until - rate.since)
    yield f"  log          {bytes_text(rate.per_hour)} per hour in the last {span} of messages{trend}"
    yield f"  on disk      {found.growth.on_disk:.2f} bytes for each byte of the log, with queues and index"
    yield f"  disk         {bytes_text(disk.used)} of {bytes_text(disk.total)} used ({disk.ratio:.0%})"
    if filling.first_deleted is not None:
        yield f"  clean-up     deletes the next files at {time_text(filling.first_deleted)}"
    else:
        yield f"  clean-up     deletes no file before {time_text(filling.until)}"
    if rate.is_guess:
        yield "  note         the messages span only a few minutes: the rate is a guess"
    elif found.now - rate.until > _DAY:
        yield f"  note         the last message is of {time_text(rate.until)}: the rate is that of its time"


def span_words(ms: int) -> str:
    """Format a length of time: `3.2 days`, `5 hours`, `12 minutes`."""
    if ms >= 2 * _DAY:
        return f"{ms / _DAY:.1f} days"
    if ms >= 2 * _HOUR:
        return many(round(ms / _HOUR), "hour")
    return many(max(1, round(ms / 60_000)), "minute") if ms >= 60_000 else many(max(1, round(ms / 1000)), "second")
