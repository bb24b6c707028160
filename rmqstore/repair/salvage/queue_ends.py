"""Lost messages that no queue tells of: those at a queue's end, where its consume queue is gone too. Pure.

A queue offset between two good messages is missed by its gap, the last ones of a queue are not. What still tells of
them: consumers and delay levels that have come further than the log's good messages go, index entries that point into
the damage, and in DLedger the number of the entries. What is left untold makes the loss a lower bound, and is said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.verify import Verified
from rmqstore.files.disk.reading import read_at
from rmqstore.formats import index, properties
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.filler_records import QueueSlot
from rmqstore.repair.salvage.evidence.lost_messages import Known, Name, Ranges, room
from rmqstore.repair.salvage.layout import Layout
from rmqstore.repair.salvage.merge import NO_UNIT

_CHUNK = 1 << 16  # index units
_LISTED = 8


@dataclass(frozen=True, slots=True)
class Untold:
    """What damage held and nothing says: `bytes` of it, and at least `messages` messages of unknown queues."""

    bytes: int = 0
    messages: int = 0
    queues: tuple[Name, ...] = ()

    def text(self) -> str:
        """For a person."""
        names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in self.queues[:_LISTED])
        more = f" and {len(self.queues) - _LISTED} more" if len(self.queues) > _LISTED else ""
        counted = f"; {self.messages:,} were messages of unknown queues" if self.messages else ""
        return (
            f"the loss is a lower bound: {self.bytes:,} damaged bytes may have held the last messages of queues whose "
            f"consume queues are missing too ({names}{more}){counted}. New messages of such a queue get queue offsets "
            "that were in use before"
        )


def open_ends(logs: Logs, known: Known, ranges: Ranges) -> tuple[Name, ...]:
    """Queues with damage behind their last good message and no unit that points there: nothing says where they end."""
    told = {(row.seat.topic, row.seat.queue_id) for at, row in known.by_offset.items() if at not in known.lent}
    return tuple(
        name
        for name, part in sorted(logs.queues.items())
        if part.messages
        and name not in told
        and not properties.is_lmq(name[0])
        and max((b for _, b in part.accounted), default=0) < part.next
        and bisect_right(ranges.starts, part.last_at) < len(ranges.starts)
    )


def take_ends(
    known: Known, logs: Logs, ranges: Ranges, audience: ConsumerProgress, *, without: Collection[Name] = ()
) -> None:
    """Queue offsets behind the last good message that a consumer has passed: they were there, so they are lost."""
    end = max(logs.wrote, *ranges.stops) if ranges.stops else logs.wrote
    for name in open_ends(logs, known, ranges):
        part = logs.queues[name]
        if name in without:
            continue
        reached = audience.furthest(*name)
        if reached <= part.next:
            continue
        label, count = f"{name[0]}/{name[1]}", reached - part.next
        if count > room(ranges, part.last_at, end):
            known.notes.append(
                f"{label} ends at {part.next:,} in the log, its consumers are at {reached:,}: more than the damage "
                "there can have held"
            )
            continue
        words = "1 message" if count == 1 else f"{count:,} messages"
        known.notes.append(f"{label} lost {words} at its end: its consumers are at {reached:,}")
        for number in range(part.next, reached):
            known.floating.append((part.last_at, logs.wrote, QueueSlot(name[0], name[1], number)))


def find_untold(verified: Verified, layouts: Sequence[Layout], queues: tuple[Name, ...]) -> Untold:
    """What is left of the spans when everything known is in its cell. `queues`: those with open ends."""
    if not queues:
        return Untold()
    size = entries = held = floating = 0
    for layout in layouts:
        if layout.refused:
            continue
        cells = [c for c in layout.cells if c.kept is None and not c.blank]
        unknown = [
            c for c in cells if c.lost is None and (c.message is None or c.message.transaction_type not in NO_UNIT)
        ]
        size += sum(c.length for c in unknown)
        if layout.lead:  # every entry is a message
            entries += len(unknown)
            continue
        # a message that only a gap tells of may have stood in any of the spans: it is not counted once more for its key
        floating += sum(c.lost is not None and c.lost.offset is None for c in cells)
        if unknown:
            placed = {c.start for c in cells if c.lost is not None and c.lost.offset is not None}
            held += len(indexed_in(verified, layout.damage.start, layout.damage.stop) - placed)
    return Untold(size, entries + max(0, held - floating), queues) if size else Untold()


def indexed_in(verified: Verified, start: int, stop: int) -> set[int]:
    """Places within a span of the log where the index has a message."""
    found: set[int] = set()
    for file in verified.index.files if verified.index is not None else ():
        for first in range(1, file.last + 1, _CHUNK):
            length = min(_CHUNK, file.last + 1 - first)
            raw = read_at(file.path, length * index.UNIT.size, index.unit_at(first, file.slots))
            offset = index.UNIT.array(raw)["phy_offset"].astype(np.int64)
            found.update(offset[(offset >= start) & (offset < stop)].tolist())
    return found
