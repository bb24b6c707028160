"""The story of each message that was found: its records in the order of time, and in one word how it ended.

The records of a message are those that `related` connects: half message and commit, delayed and delivered, retries,
dead letter. The records that consumers read decide the ending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rmqstore.checks.beside.config import QueueProgress
from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.views.dump.log_times import time_span
from rmqstore.views.find.message_status import MessageStatus, MessageStatuses
from rmqstore.views.find.related import Lifecycle, Lifecycles, Related, relation_of
from rmqstore.views.lookup import Found
from rmqstore.views.pop import Popped

PENDING = ("delayed", "timer")
_UNCONSUMED = ("half", "op", "checked-too-often", *PENDING)


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a story.

    `what`: half, committed, rolled-back, op, checked-too-often, delayed, timer, delivered, stored, retry or dlq. `due`:
    delivery time of a delayed message (ms).
    """

    what: str
    found: Found
    due: int | None = None


@dataclass(slots=True)
class Story:
    """One message. `events` in log order; `main`: the record that consumers read first, or the only one there is.

    `ending`: arrived, undecided, rolled-back, given-up (by the broker: the producer never decided), waiting (for its
    delivery time), overdue, or dead. `due`: delivery time of a message that was not delivered (ms). `texts`: the texts
    of the question that name it.
    """

    main: Found
    status: MessageStatus
    events: list[Event] = field(default_factory=list)
    ending: str = "arrived"
    due: int | None = None
    committed: bool = False
    retries: list[Found] = field(default_factory=list)
    dead: Found | None = None
    texts: tuple[str, ...] = ()

    @property
    def past(self) -> list[QueueProgress]:
        """The groups that are past the message, without those that sent it back or received it through POP.

        An offset tells only that a group has read past a message.
        """
        read = [p for p in self._groups if p.has_consumed(self.main.message.queue_offset)]
        return [p for p in read if p.group not in self.sent_back and p.group not in self.popped]

    @property
    def before(self) -> list[QueueProgress]:
        """The groups that have not come to the message."""
        unread = [p for p in self._groups if not p.has_consumed(self.main.message.queue_offset)]
        return [p for p in unread if p.group not in self.popped]

    @property
    def popped(self) -> Mapping[str, Popped]:
        """What groups did with the message that received it through POP, by group."""
        return self.status.popped if self.is_for_consumers else {}

    @property
    def _groups(self) -> tuple[QueueProgress, ...]:
        return self.status.consumers or () if self.is_for_consumers else ()

    @property
    def given_up_by(self) -> str:
        """The group that gave up on the message, "" if none did."""
        return group_of(self.dead) if self.dead is not None else ""

    @property
    def is_for_consumers(self) -> bool:
        """Whether consumers read `main`; other records are only for the broker."""
        return relation_of(self.main) not in _UNCONSUMED

    @property
    def sent_back(self) -> list[str]:
        """The groups that sent the message back to the broker, to get it again or as a dead letter."""
        copies = [*self.retries, *([self.dead] if self.dead is not None else [])]
        return list(dict.fromkeys(group_of(copy) for copy in copies if copy is not self.main))


class Stories:
    """The stories of messages of one store."""

    def __init__(self, store: Store) -> None:
        self.statuses = MessageStatuses(store)
        self.lifecycles = Lifecycles(store, self.statuses.index)
        self._store = store

    @cached_property
    def last_stored(self) -> int:
        """The latest store time at the end of the logs (ms)."""
        spans = [time_span(log, body_offset) for log, body_offset in self._store.logs]
        return max((span[1] for span in spans if span is not None), default=0)

    def of(self, found: list[Found]) -> tuple[dict[int, tuple[MessageStatus, Lifecycle]], list[Story]]:
        """Return status and lifecycle of each record by log offset, and the stories in the order of their records."""
        described: dict[int, tuple[MessageStatus, Lifecycle]] = {}
        for one in found:
            described[one.offset or 0] = self.statuses.of(one), self.lifecycles.of(one, found)
        return described, [self._story(group, described) for group in _groups(found, described)]

    def _story(self, group: dict[int, Related], described: dict[int, tuple[MessageStatus, Lifecycle]]) -> Story:
        ordered = [group[offset] for offset in sorted(group)]
        readable = [r for r in ordered if r.relation != "op" and relation_of(r.found) == "real"]
        readable += [r for r in ordered if relation_of(r.found) in ("retry", "dlq")]
        main = (readable or [r for r in ordered if r.relation != "op"] or ordered)[0].found
        known = described.get(main.offset or 0)
        story = Story(main, known[0] if known is not None else self.statuses.of(main))
        half = any(relation_of(r.found) == "half" for r in ordered)
        story.committed = half and relation_of(main) == "real"
        story.retries = [r.found for r in ordered if relation_of(r.found) == "retry"]
        story.dead = next((r.found for r in reversed(ordered) if relation_of(r.found) == "dlq"), None)
        for one in ordered:
            lifecycle = described[one.found.offset or 0][1] if (one.found.offset or 0) in described else None
            self._add(story, one, lifecycle)
        if story.dead is not None:
            story.ending = "dead"
        return story

    def _add(self, story: Story, one: Related, lifecycle: Lifecycle | None) -> None:
        """Add a record to a story; the last one that says how the message ended counts."""
        what = "op" if one.relation == "op" else relation_of(one.found)
        if what == "real":
            what = "committed" if story.committed else "delivered" if story.events else "stored"
        outcome = lifecycle.outcome if lifecycle is not None else ""
        due = lifecycle.due if lifecycle is not None else None
        if what == "op" and story.ending == "rolled-back":
            what = "rolled-back"
        story.events.append(Event(what, one.found, due))
        if relation_of(story.main) == "real" and what not in PENDING:
            return
        if outcome == "waiting":
            story.due = due
            story.ending = "overdue" if due is not None and due < self.last_stored else "waiting"
        elif outcome in ("undecided", "checked-again", "not-known"):
            story.ending = "undecided"
        elif outcome in ("rolled-back", "checked-too-often"):
            story.ending = "rolled-back" if outcome == "rolled-back" else "given-up"


def group_of(found: Found) -> str:
    """Return the consumer group of a message in a retry or dead letter topic.

    The retry topics of POP have the name of the group and of the original topic.
    """
    topic = found.message.topic_text
    if group := properties.parse_properties(found.message.properties).get(properties.ORIGIN_GROUP):
        return group
    for prefix in (properties.RETRY_PREFIX, properties.DLQ_PREFIX):
        topic = topic.removeprefix(prefix)
    return topic


def _groups(
    found: Iterable[Found], described: dict[int, tuple[MessageStatus, Lifecycle]]
) -> Iterator[dict[int, Related]]:
    """Yield the records of each message by log offset: those found, and those related to them."""
    groups: list[dict[int, Related]] = []
    for one in found:
        own = {one.offset or 0: Related(relation_of(one), one)}
        for related in described[one.offset or 0][1].related:
            if related.relation == "original" and related.found.offset not in described:
                own.setdefault(related.found.offset or 0, Related(relation_of(related.found), related.found))
            else:
                own.setdefault(related.found.offset or 0, related)
        rest = []
        for group in groups:
            if group.keys() & own.keys():
                own = group | {offset: group.get(offset, related) for offset, related in own.items()}
            else:
                rest.append(group)
        groups = [*rest, own]
    yield from sorted(groups, key=min)
