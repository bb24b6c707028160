"""The account of the messages of a store, as a value; `checks/account.py` makes it, and says what counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.ranges import Ranges
from rmqstore.formats.text import many
from rmqstore.texts import Text

NEW, EXPIRED, GONE = "new", "expired", "gone"


@dataclass(frozen=True, slots=True)
class QueueAccount:
    """The messages of one queue, as sets of queue offsets.

    `in_log`: of its records, without fillers. `kept`: those of them that are there after the next start; the same
    without a forecast. `listed`: those that a witness names, from `begin` on, the first place that the log still has.
    `served`: those of `kept` whose unit leads a consumer to the message. `before`: those before `begin` that units
    still list. `replaced`: lost messages whose place a record of another log may have. `fillers`: lost messages
    that a repair replaced by fillers. `more`: log offsets and queue offsets of records without a unit and without a
    place of their own, which nobody gets either.
    """

    in_log: Ranges = field(default_factory=Ranges)
    kept: Ranges = field(default_factory=Ranges)
    listed: Ranges = field(default_factory=Ranges)
    served: Ranges = field(default_factory=Ranges)
    begin: int = 0
    before: Ranges = field(default_factory=Ranges)
    fillers: Ranges = field(default_factory=Ranges)
    replaced: Ranges = field(default_factory=Ranges)
    more: Mapping[int, int] = field(default_factory=dict)

    @property
    def lost_already(self) -> Ranges:
        """Listed, and not in the log."""
        return (self.listed - self.in_log) | self.replaced

    @property
    def undelivered(self) -> Ranges:
        """In the log after the next start, and without a unit that leads a consumer to the message."""
        return self.kept - self.served


@dataclass(frozen=True, slots=True)
class Account:
    """The messages of a store. Light queues have an account only for what is not delivered.

    `unplaced`: lost messages that only the index or DLedger's index lists, so that their queue is unknown. `floating`:
    how many lost messages have a place in their queue, but no unit, so that their place in the log is unknown.
    `lost_at_next_start`: a number, because a start of a large log does not name the queue of each message.
    `undelivered`: pairs of message and queue. `gone_before_begin`: messages before the begin of the log that queues or
    the index still list. `unread_gone`: how many of them each group had not read. `begin`: why the log begins where it
    does: new (at 0), expired, or gone (younger than the configured time). `room`: why more messages may be lost than
    any witness lists; "" if they cannot.
    """

    queues: Mapping[QueueName, QueueAccount] = field(default_factory=dict)
    unplaced: int = 0
    floating: int = 0
    lost_at_next_start: int = 0
    undelivered: int = 0
    gone_before_begin: int = 0
    unread_gone: Mapping[str, int] = field(default_factory=dict)
    begin: str = NEW
    begin_at: int = 0
    room: str = ""

    @property
    def at_least(self) -> bool:
        """Whether more messages may be lost than any witness lists."""
        return bool(self.room)

    @property
    def lost_by_queue(self) -> dict[QueueName, int]:
        """How many messages of each queue are lost already, without queues that lost none."""
        counts = ((name, len(one.lost_already)) for name, one in sorted(self.queues.items()) if not is_lmq(name[0]))
        return {name: count for name, count in counts if count}

    @property
    def lost_already(self) -> int:
        """The number of messages that are listed, and not in the log."""
        return sum(self.lost_by_queue.values()) + self.unplaced

    @property
    def fillers(self) -> int:
        """The number of lost messages that a repair replaced by fillers."""
        return sum(len(one.fillers) for one in self.queues.values())

    @property
    def lacking(self) -> int:
        """The number of lost messages that no filler replaced."""
        return self.lost_already - self.fillers

    def to_json(self) -> dict[str, Any]:
        """Return the object `account`."""
        return {
            "lost_already": self.lost_already,
            "lost_at_next_start": self.lost_at_next_start,
            "undelivered": self.undelivered,
            "gone_before_begin": self.gone_before_begin,
            "unread_gone": dict(sorted(self.unread_gone.items())),
            "at_least": self.at_least,
        }

    def lacking_words(self) -> str:
        """Return what is lost already, and of which queues: "20 messages of 7 queues"; "" for nothing."""
        lost = self.lost_by_queue
        if not self.lost_already:
            return ""
        count = many(self.lost_already, "message")
        if self.at_least:
            count = Text("at least {messages}", messages=count)
        if not lost or self.unplaced:
            return count
        (topic, queue_id), *others = lost
        if others:
            return Text("{messages} of {queues}", messages=count, queues=many(len(lost), "queue"))
        return Text("{messages} of {queue}", messages=count, queue=f"{topic}/{queue_id}")
