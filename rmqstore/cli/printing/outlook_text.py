"""Sentences about room on the disk, which `du --growth` and `expire` print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import bytes_text, many, span_words, time_text
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.brokers.outlook import Outlook

_DAY = 86_400_000  # ms


def outlook_words(found: Outlook) -> str:
    """Return whether the clean-up is enough, in a sentence or two."""
    filling, disk, rate = found.filling, found.disk, found.rate
    span = span_words(rate.until - rate.since)
    end = filling.refuses if filling.refuses is not None else filling.full
    if end is not None and end <= found.now:
        return Text("The disk is full: the broker refuses messages now.")
    if rate.is_guess:
        return Text("The messages span only {span}: too short a time to say if the clean-up is enough.", span=span)
    days = many(round((filling.until - found.now) / _DAY) or 1, "day")
    if filling.enough:
        return Text(
            "At the rate of the last {span} of messages the clean-up is enough: the disk has {now:.0%} used now, and "
            "at most {peak:.0%} in the next {days}.",
            span=span,
            now=disk.ratio,
            peak=filling.peak,
            days=days,
        )
    early: str = ""
    if filling.early is not None and filling.least_age is not None:
        start, age = time_text(filling.early), span_words(filling.least_age)
        early = Text(
            "From {start} on, the clean-up deletes files before their time, because the disk is too full: the youngest "
            "is {age} old.",
            start=start,
            age=age,
        )
    if end is None:
        return early
    left = span_words(end - found.now)
    full = Text(
        "Full in {left} at the rate of the last {span} of messages: the broker refuses messages at {end}.",
        left=left,
        span=span,
        end=time_text(end),
    )
    return joined((full, early), " ") if early else full


def outlook_lines(found: Outlook) -> Iterator[str]:
    """Yield what the forecast is based on."""
    rate, disk, filling = found.rate, found.disk, found.filling
    trend = ""
    if rate.before:
        change = rate.per_hour / rate.before - 1
        trend = Text(", {change:+.0%} against the time before", change=change)
    span = span_words(rate.until - rate.since)
    used, total = map(bytes_text, (disk.used, disk.total))
    if rate.is_guess:
        yield Text("  log          {bytes} in the last {span} of messages", bytes=bytes_text(rate.bytes), span=span)
    else:
        grown = bytes_text(rate.per_hour)
        yield Text(
            "  log          {bytes} per hour in the last {span} of messages{trend}", bytes=grown, span=span, trend=trend
        )
    on_disk = found.growth.on_disk
    yield Text("  on disk      {bytes:.2f} bytes for each byte of the log, with queues and index", bytes=on_disk)
    yield Text("  disk         {used} of {total} used ({ratio:.0%})", used=used, total=total, ratio=disk.ratio)
    if filling.first_deleted is not None:
        yield Text("  clean-up     deletes the next files at {time}", time=time_text(filling.first_deleted))
    else:
        yield Text("  clean-up     deletes no file before {until}", until=time_text(filling.until))
    if not rate.is_guess and found.now - rate.until > _DAY:
        until = time_text(rate.until)
        yield Text("  note         the last message is of {until}: the rate is that of its time", until=until)
