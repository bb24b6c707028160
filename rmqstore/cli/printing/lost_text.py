"""Text about a lost message, for `find` and `get`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import columns, fitted, printable, time_text, title
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
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
