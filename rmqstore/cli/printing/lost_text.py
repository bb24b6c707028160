"""Text about a lost message, for `find` and `get`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.quantities import columns, fitted, printable, time_text, title

if TYPE_CHECKING:
    from rmqstore.views.find.lost_messages import MissingMessage


def lost_words(lost: MissingMessage) -> str:
    """Why a message is lost."""
    if lost.cause == "filler":
        if lost.repair:
            return f"replaced by a filler in repair {lost.repair}"
        return "an earlier repair put a filler in its place; its journal is not here"
    if lost.cause == "missing-file":
        return "its log file is missing"
    return "its record is damaged"


def lost_lines(store: Path, lost: MissingMessage, width: int) -> Iterator[str]:
    """Yield what is known of a lost message, and what to do."""
    one = lost.message
    where = f"{printable(one.topic)}/{one.queue_id} offset {one.queue_offset:,}" if one.queue_id >= 0 else one.topic
    log = "" if one.offset is None else f"log offset {one.offset:,}"
    if columns(where) + columns(log) + 18 <= width:
        where, log = f"{where}  {log}", ""
    yield f"  {fitted(title('was in'), 13)}{where}"
    if log:
        yield f"{' ' * 15}{log}"
    time = one.indexed_time if one.store_timestamp is None else one.store_timestamp
    if time is not None:
        yield f"  {fitted(title('stored'), 13)}{time_text(time, exact=one.store_timestamp is not None)}"
    for name, value in (("keys", one.keys), ("unique id", one.unique_key), ("tags", one.tags)):
        if value:
            yield f"  {fitted(title(name), 13)}{printable(value)}"
    if one.consumed_by:
        yield f"  {fitted(title('read past by'), 13)}{printable(', '.join(one.consumed_by))}"
    if lost.cause != "filler":
        yield f"  {fitted(title('repair'), 13)}rmqstore recover {store}"
    elif one.body != "gone" and lost.journal is not None:
        yield f"  {fitted(title('left'), 13)}rmqstore lost {store} --journal {lost.journal} --bodies DIR"
    elif lost.journal is not None:
        yield f"  {fitted(title('left'), 13)}rmqstore lost {store} --journal {lost.journal}"
