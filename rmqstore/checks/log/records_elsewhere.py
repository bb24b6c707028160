"""Records that their queue has no place for, and that one other queue of their topic lacks: the queue id is wrong.

Only places without any unit are decided here; `Misfiled` has the records that a unit proves to be of another queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore.checks.log.logs import Logs

_WIDE = 64  # messages: a record does not explain a wider gap


def records_elsewhere(logs: Logs) -> dict[int, tuple[str, int, int]]:
    """Return topic, queue id and queue offset of such records, by log offset, if exactly one queue lacks them."""
    odd = [(topic, at, n) for (topic, _), part in logs.queues.items() for at, n in part.odd_records]
    if not odd or logs.foreign_from is not None:
        return {}
    gaps: dict[tuple[str, int], list[tuple[int, int, int]]] = {}  # queue id, offsets of the records around it
    for (topic, queue_id), part in logs.queues.items():
        for gap in part.gaps:
            if gap.got - gap.expected <= _WIDE and not logs.bad_between(gap.before, gap.at):
                for number in range(gap.expected, gap.got):
                    gaps.setdefault((topic, number), []).append((queue_id, gap.before, gap.at))
    places: dict[tuple[str, int, int], int] = {}
    for topic, at, number in odd:
        owners = [queue_id for queue_id, before, after in gaps.get((topic, number), ()) if before < at < after]
        if len(owners) == 1 and at not in logs.misfiled.offsets:
            places.setdefault((topic, owners[0], number), at)
    return {at: place for place, at in places.items()}
