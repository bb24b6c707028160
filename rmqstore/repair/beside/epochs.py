"""Repairs the epochs of a store of controller mode: those that begin after the end of the log are dropped.

The log has none of their messages. With them, the broker takes an offset after its own end for the point where its
history and its master's part, and as a master it appends no epoch of its own. Without them, that point is its end.

Source: EpochFileCache#findConsistentPoint, #appendEntry, #setLastEpochEntryEndOffset (RocketMQ 5.4.0 and 5.5.1, which
were given both files)
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.files.controller import stored_epochs
from rmqstore.files.store import EPOCHS
from rmqstore.formats.controller import EpochFile
from rmqstore.formats.text import many
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.texts import Text


def plan_epochs(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the steps after which no epoch begins after the end of the log as the plan leaves it.

    Where all epochs begin after it, none is dropped: the file is another store's, and a broker writes no empty one.
    """
    store = draft.store
    removed = log.ends_earlier and not case.options.only
    if store.part is not None or not (removed or codes.CFG_EPOCH_BEYOND in case.wanted):
        return
    epochs = stored_epochs(store)
    kept = tuple(one for one in epochs if one.start_offset <= log.end)
    dropped = many(len(epochs) - len(kept), "epoch begins", "epochs begin")
    if not kept or len(kept) == len(epochs):
        return
    content = EpochFile(kept).build()
    old = Text("{epochs} after the end of the log", epochs=dropped)
    for name in (EPOCHS, f"{EPOCHS}.bak"):
        if name in store.top:
            draft.replace(store.root / name, content, Text("the epochs of which the log has messages"), old=old)
