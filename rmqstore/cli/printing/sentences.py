"""Sentences that several commands print: about a lost message, about room on the disk.

`find` and `get` print those about a lost message or a wrong queue entry; `du --growth` and `expire` about the disk.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import bytes_text, columns, fitted, in_words, many, printable, time_text, title
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.brokers.outlook import Outlook
    from rmqstore.views.lookup import Found
    from rmqstore.views.lost import MissingMessage

BODY_WORDS = {"intact": Text("intact"), "damaged": Text("damaged"), "mended": Text("mended"), "gone": Text("gone")}
"""What is left of the body of a lost message."""


def queue_place(topic: str, queue_id: int, queue_offset: int) -> Text:
    """Return the place of a message in its queue."""
    return Text("{topic}/{id} offset {at:,}", topic=printable(topic), id=queue_id, at=queue_offset)


def note_of_another_place(text: str, found: Found) -> str:
    """Return a note if a text is the place of a queue entry that points to a message of another place; "" otherwise."""
    from rmqstore.views.lookup import names_another_place, parsed_place

    place = parsed_place(text)
    if place is None or found.offset is None or not names_another_place(found.message, place):
        return ""
    return Text(
        "note: the queue entry at {place} points to a record that names another place: {other}",
        place=queue_place(*place),
        other=queue_place(*found.queue_place),
    )


def detail(name: str, value: str) -> Text:
    """Return a line with a value and its name."""
    return Placed("  {name}{value}", name=fitted(title(name), 13), value=value)


def record_words(fault: str) -> Text:
    """Say whether a record is sound; `fault`: its keyword, or sound."""
    if fault == "sound":
        return Text("sound (body CRC matches)")
    return Text("damaged: {fault}", fault=in_words(fault))


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
    where = queue_place(one.topic, one.queue_id, one.queue_offset) if one.queue_id >= 0 else one.topic
    log = "" if one.offset is None else Text("log offset {offset:,}", offset=one.offset)
    if columns(where) + columns(log) + 18 <= width:
        where, log = Placed("{where}  {log}", where=where, log=log), ""
    yield detail(Text("was in"), where)
    if log:
        yield Placed("{value}{log}", value=" " * 15, log=log)
    if one.time is not None:
        yield detail(Text("stored"), time_text(one.time, exact=one.store_timestamp is not None))
    for name, value in (("keys", one.keys), (Text("unique id"), one.unique_key), ("tags", one.tags)):
        if value:
            yield detail(name, printable(value))
    if one.consumed_by:
        yield detail(Text("read past by"), printable(joined(one.consumed_by)))
    if lost.cause != "filler":
        yield detail(Text("repair"), f"rmqstore recover {shlex.quote(str(store))}")
    elif lost.journal is not None:
        bodies = " --bodies DIR" if one.body != "gone" else ""
        yield detail(
            Text("left"), f"rmqstore lost {shlex.quote(str(store))} --journal {shlex.quote(str(lost.journal))}{bodies}"
        )


_HOUR, _DAY = 3_600_000, 86_400_000


def outlook_words(found: Outlook) -> str:
    """Return whether the clean-up is enough, in a sentence or two."""
    filling, disk = found.filling, found.disk
    days = many(round((filling.until - found.now) / _DAY) or 1, "day")
    if filling.enough:
        return Text(
            "At this rate the clean-up is enough: the disk has {now:.0%} used now, and at most {peak:.0%} in the next "
            "{days}.",
            now=disk.ratio,
            peak=filling.peak,
            days=days,
        )
    end = filling.refuses if filling.refuses is not None else filling.full
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
    if end <= found.now:
        return Text("The disk is full: the broker refuses messages now.")
    full = Text("Full in {left} at this rate: the broker refuses messages at {end}.", left=left, end=time_text(end))
    return joined((full, early), " ") if early else full


def outlook_lines(found: Outlook) -> Iterator[str]:
    """Yield what the forecast is based on."""
    rate, disk, filling = found.rate, found.disk, found.filling
    trend = ""
    if rate.before:
        change = rate.per_hour / rate.before - 1
        trend = Text(", {change:+.0%} against the time before", change=change)
    span = span_words(rate.until - rate.since)
    grown, used, total = map(bytes_text, (rate.per_hour, disk.used, disk.total))
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
    if rate.is_guess:
        yield Text("  note         the messages span only a few minutes: the rate is a guess")
    elif found.now - rate.until > _DAY:
        until = time_text(rate.until)
        yield Text("  note         the last message is of {until}: the rate is that of its time", until=until)


def span_words(ms: int) -> str:
    """Format a length of time: `3.2 days`, `5 hours`, `12 minutes`."""
    if ms >= 2 * _DAY:
        return Text("{ms:.1f} days", ms=ms / _DAY)
    if ms >= 2 * _HOUR:
        return many(round(ms / _HOUR), "hour")
    return many(max(1, round(ms / 60_000)), "minute") if ms >= 60_000 else many(max(1, round(ms / 1000)), "second")
