"""Fillers of earlier repairs: how many records replace lost messages, and which repair wrote them.

The pass over the log finds most fillers by their mark. Those without room for a mark are listed in the plan in the
journal of their repair. A journal is not trusted: a filler that it lists must also be in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from rmqstore.checks.problems.report import Fillers
from rmqstore.files.journals import repairs
from rmqstore.files.store import Store
from rmqstore.messages.repaired import RecordOf, unmarked_fillers, written_ranges

if TYPE_CHECKING:
    from rmqstore.checks.log.logs import Logs


def find_fillers(store: Store, logs: Logs) -> list[Fillers]:
    """Return the fillers of a store by repair, the oldest repair first, and those of unknown repairs last."""
    unknown = sorted(at for result in logs.results for at in result.fillers)
    homes = {directory for result in logs.results for directory in result.queue.directories}
    found = []
    for name, plan in reversed(list(repairs(store)) if logs.results else []):
        own = {
            at
            for low, high in written_ranges(store, plan, homes)
            for at in unknown[bisect_left(unknown, low) : bisect_left(unknown, high)]
        }
        own.update(unmarked_fillers(plan, _undamaged(logs)))
        unknown = [at for at in unknown if at not in own]
        if own:
            found.append(Fillers(len(own), name))
    found.reverse()
    return [*found, Fillers(len(unknown))] if unknown else found


def filler_offsets(store: Store, logs: Logs) -> list[int]:
    """Return the sorted global offsets of the fillers that earlier repairs wrote, or the plan that the store shows."""
    found = {at for result in logs.results for at in result.fillers}
    plans = [plan for _, plan in repairs(store)] if logs.results else []
    if store.files.planned is not None:
        plans.append(store.files.planned)
    for plan in plans:
        found.update(unmarked_fillers(plan, _undamaged(logs)))
    return sorted(found)


def _undamaged(logs: Logs) -> RecordOf:
    return lambda offset, length: None if logs.damaged(offset) else logs.record(offset, length)
