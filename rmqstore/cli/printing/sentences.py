"""Sentences that several commands print: about a lost message, about room on the disk.

`find` and `get` print those about a lost message; `du --growth` and `expire` the forecast for a disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import bytes_text, columns, fitted, many, printable, time_text, title
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.repair.expire import Outlook
    from rmqstore.views.lost import MissingMessage


def lost_words(lost: MissingMessage) -> str:
    """Why a message is lost."""
    if lost.cause == "filler":
        if lost.repair:
            return Text("replaced by a filler in repair {repair}", repair=lost.repair)
        return Text("an earlier repair put a filler in its place; its journal is not here")
    if lost.cause == "missing-file":
        return Text("its log file is missing")
    return Text("its record is damaged")


def lost_lines(store: Path, lost: MissingMessage, width: int) -> Iterator[str]:
    """Yield what is known of a lost message, and what to do."""
    one = lost.message
    where = (
        Text(
            "{topic}/{queue_id} offset {queue_offset:,}",
            topic=printable(one.topic),
            queue_id=one.queue_id,
            queue_offset=one.queue_offset,
        )
        if one.queue_id >= 0
        else one.topic
    )
    log = "" if one.offset is None else Text("log offset {offset:,}", offset=one.offset)
    if columns(where) + columns(log) + 18 <= width:
        where, log = Placed("{where}  {log}", where=where, log=log), ""
    yield Placed("  {fitted}{where}", fitted=fitted(title(Text("was in")), 13), where=where)
    if log:
        yield Placed("{value}{log}", value=" " * 15, log=log)
    time = one.indexed_time if one.store_timestamp is None else one.store_timestamp
    if time is not None:
        yield Placed(
            "  {fitted}{time}",
            fitted=fitted(title(Text("stored")), 13),
            time=time_text(time, exact=one.store_timestamp is not None),
        )
    for name, value in (("keys", one.keys), (Text("unique id"), one.unique_key), ("tags", one.tags)):
        if value:
            yield f"  {fitted(title(name), 13)}{printable(value)}"
    if one.consumed_by:
        yield Placed(
            "  {fitted}{consumed_by}",
            fitted=fitted(title(Text("read past by")), 13),
            consumed_by=printable(joined(one.consumed_by)),
        )
    if lost.cause != "filler":
        yield Placed("  {fitted}rmqstore recover {store}", fitted=fitted(title(Text("repair")), 13), store=store)
    elif one.body != "gone" and lost.journal is not None:
        yield Placed(
            "  {fitted}rmqstore lost {store} --journal {journal} --bodies DIR",
            fitted=fitted(title(Text("left")), 13),
            store=store,
            journal=lost.journal,
        )
    elif lost.journal is not None:
        yield Placed(
            "  {fitted}rmqstore lost {store} --journal {journal}",
            fitted=fitted(title(Text("left")), 13),
            store=store,
            journal=lost.journal,
        )


_HOUR, _DAY = 3_600_000, 86_400_000


def outlook_words(found: Outlook) -> str:
    """Return whether the clean-up is enough, in a sentence or two."""
    filling, disk = found.filling, found.disk
    days = many(round((filling.until - found.now) / _DAY) or 1, "day")
    if filling.enough:
        return Text(
            "At this rate the clean-up is enough: the disk has {ratio:.0%} used now, and at most "
            "{peak:.0%} in the next {days}.",
            ratio=disk.ratio,
            peak=filling.peak,
            days=days,
        )
    end = filling.refuses if filling.refuses is not None else filling.full
    early = ""
    if filling.early is not None and filling.least_age is not None:
        early = Text(
            "From {early} on, the clean-up deletes files before their time, because the disk is too "
            "full: the youngest is {span} old.",
            early=time_text(filling.early),
            span=span_words(filling.least_age),
        )
    if end is None:
        return early
    left = span_words(end - found.now)
    if end <= found.now:
        return Text("The disk is full: the broker refuses messages now.")
    return Text(
        "Full in {left} at this rate: the broker refuses messages at {end}. {early}",
        left=left,
        end=time_text(end),
        early=early,
    ).rstrip()


def outlook_lines(found: Outlook) -> Iterator[str]:
    """Yield what the forecast is based on."""
    rate, disk, filling = found.rate, found.disk, found.filling
    trend = ""
    if rate.before:
        change = rate.per_hour / rate.before - 1
        trend = Text(", {change:+.0%} against the time before", change=change)
    span = span_words(rate.until - rate.since)
    yield Text(
        "  log          {per_hour} per hour in the last {span} of messages{trend}",
        per_hour=bytes_text(rate.per_hour),
        span=span,
        trend=trend,
    )
    yield Text(
        "  on disk      {on_disk:.2f} bytes for each byte of the log, with queues and index",
        on_disk=found.growth.on_disk,
    )
    yield Text(
        "  disk         {used} of {total} used ({ratio:.0%})",
        used=bytes_text(disk.used),
        total=bytes_text(disk.total),
        ratio=disk.ratio,
    )
    if filling.first_deleted is not None:
        yield Text(
            "  clean-up     deletes the next files at {first_deleted}", first_deleted=time_text(filling.first_deleted)
        )
    else:
        yield Text("  clean-up     deletes no file before {until}", until=time_text(filling.until))
    if rate.is_guess:
        yield Text("  note         the messages span only a few minutes: the rate is a guess")
    elif found.now - rate.until > _DAY:
        yield Text(
            "  note         the last message is of {until}: the rate is that of its time", until=time_text(rate.until)
        )


def span_words(ms: int) -> str:
    """Format a length of time: `3.2 days`, `5 hours`, `12 minutes`."""
    if ms >= 2 * _DAY:
        return Text("{ms:.1f} days", ms=ms / _DAY)
    if ms >= 2 * _HOUR:
        return many(round(ms / _HOUR), "hour")
    return many(max(1, round(ms / 60_000)), "minute") if ms >= 60_000 else many(max(1, round(ms / 1000)), "second")
