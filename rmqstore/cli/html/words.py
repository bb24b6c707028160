"""Words of the reports for values, and cells that several tables have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.cli.html.elements import Html, shown, text
from rmqstore.cli.printing.quantities import time_text
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.views.lost import LostMessage

SEVERITY_WORDS = {"error": Text("error"), "warning": Text("warning"), "note": Text("note")}
STATE_WORDS = {
    "preparing": Text("never started"),
    "applying": Text("unfinished"),
    "done": Text("applied"),
    "undoing": Text("undo unfinished"),
    "undone": Text("undone"),
    "pruning": Text("being removed"),
    "missing": Text("its journal is missing"),
}
POP_WORDS = {
    "acknowledged": Text("acknowledged"),
    "invisible": Text("not acknowledged"),
    "returned": Text("returned to the retry topic"),
    "unknown": Text("unknown"),
}


def stored(one: LostMessage) -> Html:
    """Return when a message was stored, as far as that is known."""
    time = one.indexed_time if one.store_timestamp is None else one.store_timestamp
    return shown("" if time is None else time_text(time))


def consumers(one: LostMessage) -> Html:
    """Return which groups had consumed a message."""
    if one.consumed_by is None:
        return text("unknown")
    return shown(", ".join(one.consumed_by)) if one.consumed_by else text(Text("no group"))
