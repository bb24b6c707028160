"""What a plan loses: the account of a store, without that of the store as the plan leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rmqstore.checks.log.witnesses import outside_records
from rmqstore.checks.problems.account import Account, QueueAccount
from rmqstore.checks.room import units_gone
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import is_filler
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.kernels import within

if TYPE_CHECKING:
    from rmqstore.checks.verified import Verified


@dataclass(frozen=True, slots=True)
class LostByPlan:
    """What a plan loses: messages by queue, and those of unknown queues. `room`: as in `Account`."""

    queues: Mapping[QueueName, int] = field(default_factory=dict)
    unplaced: int = 0
    room: str = ""

    @property
    def messages(self) -> int:
        """The number of all lost messages."""
        return sum(self.queues.values()) + self.unplaced


def lost_by(
    before: Verified,
    after: Verified,
    fillers: Mapping[QueueName, Ranges],
    wrong: Mapping[QueueName, Ranges],
    over: Mapping[QueueName, Ranges],
    *,
    only: bool = False,
    gives_up: bool = False,
) -> LostByPlan:
    """Return what a repair loses, by the accounts of a store and of the store as the repair leaves it.

    Those messages count that the store has or lists, and that are not in the log afterwards; with `only`, which leaves
    other damage as it is, not those that are then still listed. What fillers of earlier repairs replaced was lost
    before. `fillers`: where the repair writes some; with `gives_up`, also in place of good messages. `wrong`: places
    that headers have which it corrects. `over`: places of framed records that fillers replace.
    """
    known, left = before.account, after.account or Account()  # a store without log files has none
    if known is None:
        return LostByPlan()
    queues: dict[QueueName, int] = {}
    restored = 0
    for name, one in sorted(known.queues.items()):
        if is_lmq(name[0]):
            continue
        then = left.queues.get(name, QueueAccount())
        filled = then.fillers | fillers.get(name, Ranges())
        here = then.in_log - filled - then.replaced
        if not gives_up:  # another record has the place of the filler, as after a restart of the queue: it stays
            here |= filled & one.in_log - one.fillers - over.get(name, Ranges())
        restored += len(one.lost_already & here)
        if only:
            here |= then.listed - filled
        there = one.in_log - wrong.get(name, Ranges())
        if count := len((there | one.lost_already) - one.fillers - here):
            queues[name] = count
    found = _found_again(before, after, fillers)
    # units list all places that are lost, or some places may be those of messages that only the index shows
    again = found if not known.floating else max(0, found - restored)
    unplaced = known.unplaced - again - (left.unplaced if only else 0)
    lost = LostByPlan(queues, max(0, unplaced), known.room)
    # it leaves the damage as it is, or brings back what was there
    settled = only or ((restored or found) and not units_gone(before))
    return replace(lost, room="") if settled and not lost.messages else lost


def _found_again(before: Verified, after: Verified, fillers: Mapping[QueueName, Ranges]) -> int:
    """Return how many messages that only index entries show are in the log as a plan leaves it."""
    unnamed = before.logs.witnesses.unnamed
    count = 0
    for at in unnamed[~within(outside_records(after.results), unnamed)].tolist():
        found = after.logs.record(at, MAX_RECORD)
        if found is not None and found.is_dispatched and not is_filler(found):
            count += found.queue_offset not in fillers.get((found.topic_text, found.queue_id), ())
    return count
