"""Sentences about a lost message or a wrong queue entry, which `find` and `get` print."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import columns, fitted, in_words, printable, time_text, title
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
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
