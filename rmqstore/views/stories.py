"""The story of each message that was found: its records in the order of time, and in one word how it ended.

The records of a message are those that `related` connects: half message and commit, delayed and delivered, retries,
dead letter. Copies share the unique id; ORIGIN_MESSAGE_ID and PREPAREDTRANSACTIONOFFSET point to others directly. The
records that consumers read decide the ending. The status of a message says whether record, queue entry and index
entries are present, and which groups received it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from rmqstore.checks.beside.config import ConsumerOffsets, QueueProgress
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.errors import reason
from rmqstore.files.config import OFFSETS, directory_of
from rmqstore.files.log_ends import first_true
from rmqstore.files.read_rights import ReadRights
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.files.topics import topics
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.message import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Message
from rmqstore.texts import Text
from rmqstore.views import lookup
from rmqstore.views.dump.selection import log_span
from rmqstore.views.lookup import Found, KeyIndex, Unit, queue_reader
from rmqstore.views.progress import Popped, PopProgress, PopState, is_in_retry_topic


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """The consume queue unit of a message.

    `state`: present, wrong (the unit points to another message), missing, not-wanted (brokers do not dispatch such a
    message), unreadable, or not-here (the opened part of a store has no queues). `offset`: log offset in the unit.
    `tag_matches`: whether consumers that filter by tag get the message; None if the unit does not contain its tags
    code.
    """

    state: str
    offset: int | None = None
    tag_matches: bool | None = None


@dataclass(frozen=True, slots=True)
class IndexedKeys:
    """Which keys of a message are in the index.

    `state`: present, partly, missing, not-wanted (brokers do not index such a message), no-index, or not-here (the
    opened part of a store has no index).
    """

    state: str
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """What a store has of a message. `consumers`: None if their progress is unknown (`ConsumerOffsets.unreadable`).

    `popped`: by group, for groups that receive messages through POP, what they did with this one.
    """

    record: str
    queue_entry: QueueEntry
    index: IndexedKeys
    consumers: tuple[QueueProgress, ...] | None
    popped: Mapping[str, Popped] = field(default_factory=dict)

    def has_consumed(self, progress: QueueProgress, queue_offset: int) -> bool:
        """Return whether a group is past the message, and has acknowledged it if it received it through POP."""
        found = self.popped.get(progress.group)
        return progress.has_consumed(queue_offset) if found is None else found.is_consumed


class MessageStatuses:
    """The statuses of messages of one store. Queues, index and consumer offsets are read once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queue = queue_reader(store)
        self.index = KeyIndex(store)
        self.offsets = ConsumerOffsets.read(store)
        self.unread: dict[str, None] = {}
        if self.offsets.unreadable and directory_of(store, OFFSETS) is not None:
            self._lacks(self.offsets.unreadable)

    def _lacks(self, why: str) -> None:
        """Note a part of the store that could not be read; `unread` has each once, in words."""
        self.unread[why] = None

    def of(self, found: Found) -> MessageStatus:
        """Return the status of a message of the log."""
        message = found.message
        known = properties.parse_properties(message.properties)
        groups = self.offsets.of(message.topic_text, message.queue_id)
        return MessageStatus(
            "sound" if found.sound else found.fault.name.lower(),
            self._queue_entry(found, known),
            self._index_entries(found, known),
            None if self.offsets.unreadable else tuple(groups),
            {} if self.offsets.unreadable else self._popped(message, known, groups),
        )

    @cached_property
    def _pop(self) -> PopProgress:
        return PopProgress.read(self.store, self.offsets)

    def _popped(self, message: Message, known: dict[str, str], groups: list[QueueProgress]) -> dict[str, Popped]:
        """Return what POP groups did with a message; if only the index tells, a copy in a retry topic was returned."""
        out: dict[str, Popped] = {}
        if groups and self._pop.unreadable:
            self._lacks(self._pop.unreadable)
        for progress in groups:
            found = self._pop.of(progress, message.topic_text, message.queue_id, message.queue_offset)
            if found is None:
                continue
            if found.state is PopState.UNKNOWN and not self._pop.unreadable:
                returned = is_in_retry_topic(found, known.get(properties.UNIQ_KEY), self.index)
                if returned is not None:
                    found = replace(found, state=PopState.RETURNED if returned else PopState.ACKNOWLEDGED)
            out[progress.group] = found
        return out

    def _queue_entry(self, found: Found, known: dict[str, str]) -> QueueEntry:
        message = found.message
        if message.transaction_type in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return QueueEntry("not-wanted")
        if self.store.part is not None:
            return QueueEntry("not-here")
        try:
            unit = self.queue(message.topic_text, message.queue_id).at(message.queue_offset)
        except CannotRead as error:
            place = self.store.rocksdb_directory.name
            self._lacks(Text("{place}/: queues are not read: {why}", place=place, why=reason(error)))
            return QueueEntry("unreadable")
        if unit is None:
            return QueueEntry("missing")
        if unit.offset != found.offset:
            return QueueEntry("wrong", unit.offset)
        return QueueEntry("present", unit.offset, self._tag_matches(message, known, unit))

    def _tag_matches(self, message: Message, known: dict[str, str], unit: Unit) -> bool | None:
        if consumequeue.is_ext_address(unit.tags_code):
            return None  # the code is in the extension file
        topic, levels = message.topic_text, properties.DEFAULT_DELAY_LEVELS
        if topic == properties.SCHEDULE_TOPIC:  # the code is the delivery time
            levels = delay_levels(self.store)
        return unit.tags_code == properties.dispatch_tags_code(topic, known, message.store_timestamp, levels)

    def _index_entries(self, found: Found, known: dict[str, str]) -> IndexedKeys:
        topic = found.message.topic_text
        keys = [text.removeprefix(f"{topic}#") for text in properties.index_keys(topic, known)]
        if not keys or found.message.transaction_type == TRANSACTION_ROLLBACK:
            return IndexedKeys("not-wanted")
        if not self.index:
            state = "not-here" if self.store.part is not None else "no-index"
            return IndexedKeys(state, missing=tuple(keys))
        held = {hit.key for hit in self.index.hits((topic,), keys) if hit.offset == found.offset}
        present = tuple(key for key in keys if key in held)
        missing = tuple(key for key in keys if key not in held)
        state = "missing" if not present else "partly" if missing else "present"
        return IndexedKeys(state, present, missing)


_HALF = (properties.HALF_TOPIC, properties.ROCKSDB_HALF_TOPIC)
_OP_OF = {
    properties.HALF_TOPIC: properties.OP_HALF_TOPIC,
    properties.ROCKSDB_HALF_TOPIC: properties.ROCKSDB_OP_HALF_TOPIC,
}
_MAX_OPS = 5_000  # operation messages read per half message
_DELAYED = (properties.SCHEDULE_TOPIC, properties.TIMER_TOPIC)


@dataclass(frozen=True, slots=True)
class Related:
    """Another record of the same message.

    `relation`: half, real, delayed, timer, retry, dlq, original, op or checked-too-often.
    """

    relation: str
    found: Found

    @property
    def role(self) -> str:
        """The role of the record by its topic, which the relations op and original do not tell."""
        return relation_of(self.found)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The related records of a message, in log order, and its outcome.

    `outcome`: of a half message, committed, rolled-back, undecided, checked-again, checked-too-often or not-known; of a
    delayed message, delivered or waiting; otherwise empty. `due`: delivery time of a delayed message (ms).
    """

    related: tuple[Related, ...] = ()
    outcome: str = ""
    due: int | None = None


class Lifecycles:
    """The lifecycles of messages of one store. Topics and index headers are read once."""

    def __init__(self, store: Store, index: KeyIndex) -> None:
        self.store, self.index = store, index
        self.topics = topics(store)

    def of(self, found: Found, others: Iterable[Found] = ()) -> Lifecycle:
        """Return the lifecycle of a message. `others`: messages already found, which may be related to it."""
        known = properties.parse_properties(found.message.properties)
        related = {r.found.log_offset: r for r in self._related(found, known, others) if r.found.offset != found.offset}
        ordered = [related[offset] for offset in sorted(related)]
        topic = found.message.topic_text
        if topic in _HALF:
            op, whole = _operation(self.store, found)
            if op is not None:
                ordered.append(Related("op", op))
            outcome = _verdict(found, ordered, op)
            return Lifecycle(tuple(ordered), outcome if whole or outcome != "undecided" else "not-known")
        if topic in _DELAYED:
            real = any(r.relation in ("real", "retry") and _is_later(r.found, found) for r in ordered)
            return Lifecycle(tuple(ordered), "delivered" if real else "waiting", _due(self.store, found, known))
        return Lifecycle(tuple(ordered))

    def _related(self, found: Found, known: dict[str, str], others: Iterable[Found]) -> Iterator[Related]:
        unique = known.get(properties.UNIQ_KEY, "")
        if unique:
            for copy in (*lookup.by_key(self.store, unique, self.index, self.topics), *others):
                if properties.parse_properties(copy.message.properties).get(properties.UNIQ_KEY) == unique:
                    yield Related(relation_of(copy), copy)
        if found.message.prepared_transaction_offset > 0 and found.message.transaction_type == TRANSACTION_COMMIT:
            half = lookup.by_offset(self.store, found.message.prepared_transaction_offset)
            if half is not None and half.message.topic_text in _HALF:
                yield Related("half", half)
        for name in (properties.ORIGIN_MESSAGE_ID, properties.DLQ_ORIGIN_MESSAGE_ID):
            original = lookup.by_message_id(self.store, known.get(name, ""))
            if original is not None:
                yield Related("original", original)


def relation_of(copy: Found) -> str:
    """Return the role of a record among the copies of its message, according to its topic."""
    topic = copy.message.topic_text
    if topic in _HALF:
        return "half"
    if topic == properties.CHECK_MAX_TIME_TOPIC:
        return "checked-too-often"
    if topic == properties.SCHEDULE_TOPIC:
        return "delayed"
    if topic == properties.TIMER_TOPIC:
        return "timer"
    if properties.is_retry_topic(topic):
        return "retry"
    return "dlq" if properties.is_dlq_topic(topic) else "real"


def _is_later(found: Found, than: Found) -> bool:
    real = properties.parse_properties(than.message.properties).get(properties.REAL_TOPIC)
    return found.log_offset > than.log_offset and found.message.topic_text == real


def _verdict(half: Found, related: list[Related], op: Found | None) -> str:
    if any(r.relation == "real" and r.found.message.transaction_type == TRANSACTION_COMMIT for r in related):
        return "committed"
    if any(r.relation == "checked-too-often" for r in related):
        return "checked-too-often"
    if any(r.relation == "half" and r.found.log_offset > half.log_offset for r in related):
        return "checked-again"  # the broker asked the producer, and stored the half message again
    return "rolled-back" if op is not None else "undecided"


def _due(store: Store, found: Found, known: dict[str, str]) -> int | None:
    """Return the delivery time of a delayed message (ms): from its queue entry, or TIMER_OUT_MS."""
    message = found.message
    if message.topic_text == properties.TIMER_TOPIC:
        return parse_long(known.get(properties.TIMER_OUT_MS, ""))
    try:
        unit = lookup.QueueUnits(store, properties.SCHEDULE_TOPIC, message.queue_id).at(message.queue_offset)
    except CannotRead:
        return None
    return unit.tags_code if unit is not None and unit.offset == found.offset else None


def _operation(store: Store, half: Found) -> tuple[Found | None, bool]:
    """Return the operation message that ends a half message, and whether all candidates were read.

    The body of an operation message lists queue offsets of half messages.
    Source: TransactionalMessageServiceImpl#fillOpRemoveMap
    """
    wanted = str(half.message.queue_offset)
    try:
        queue = lookup.QueueUnits(store, _OP_OF[half.message.topic_text], half.message.queue_id)
        first, stop = queue.bounds() or (0, 0)
        start = first_true(first, stop, lambda n: (unit := queue.at(n)) is not None and unit.offset > half.log_offset)
        for number in range(start, min(stop, start + _MAX_OPS)):
            unit = queue.at(number)
            found = lookup.by_offset(store, unit.offset) if unit is not None else None
            if found is not None and wanted in found.message.body.decode("utf-8", "replace").split(","):
                return found, True
    except CannotRead:
        return None, False
    return None, stop - start <= _MAX_OPS


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

    `status` is that of `main`, but its `popped` says what became of the last copy in a retry topic.

    `ending`: arrived, a `Refusal` (it arrived, and the configuration keeps it from consumers), undecided, rolled-back,
    given-up (by the broker: the producer never decided), waiting (for its delivery time), overdue, or dead. `due`:
    delivery time of a message that was not delivered (ms). `texts`: the texts of the question that name it.
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
    not_allowed: frozenset[str] = frozenset()
    """The groups of the store that may not consume (consumeEnable=false)."""

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
    """The stories of messages of one store; `described`: status and lifecycle of each message, by log offset."""

    def __init__(self, store: Store) -> None:
        self.statuses = MessageStatuses(store)
        self.lifecycles = Lifecycles(store, self.statuses.index)
        self.rights = ReadRights.read(store)
        self.described: dict[int, tuple[MessageStatus, Lifecycle]] = {}
        self._store = store

    @property
    def unread(self) -> list[str]:
        """Parts of the store that the stories need and that could not be read, in words."""
        return [*self.statuses.unread]

    @cached_property
    def last_stored(self) -> int:
        """The latest store time at the end of the logs (ms)."""
        span = log_span(self._store)
        return span[1] if span is not None else 0

    def of(self, found: list[Found]) -> list[Story]:
        """Return the stories in the order of their records, and fill in `described`."""
        for one in found:
            self.described[one.log_offset] = self.statuses.of(one), self.lifecycles.of(one, found)
        return [self._story(group) for group in self._groups(found)]

    def _groups(self, found: Iterable[Found]) -> list[dict[int, Related]]:
        """Return the records of each message by log offset: those found, and those related to them."""
        groups: list[dict[int, Related]] = []
        for one in found:
            own = {one.log_offset: Related(relation_of(one), one)}
            for related in self.described[one.log_offset][1].related:
                if related.relation == "original" and related.found.log_offset not in self.described:
                    related = Related(related.role, related.found)
                own.setdefault(related.found.log_offset, related)
            rest = []
            for group in groups:
                if group.keys() & own.keys():
                    own = group | {offset: group.get(offset, related) for offset, related in own.items()}
                else:
                    rest.append(group)
            groups = [*rest, own]
        return sorted(groups, key=min)

    def _status(self, found: Found) -> MessageStatus:
        known = self.described.get(found.log_offset)
        return known[0] if known is not None else self.statuses.of(found)

    def _story(self, group: dict[int, Related]) -> Story:
        ordered = [group[offset] for offset in sorted(group)]
        readable = [r for r in ordered if r.relation != "op" and r.role == "real"]
        readable += [r for r in ordered if r.role in ("retry", "dlq")]
        main = (readable or [r for r in ordered if r.relation != "op"] or ordered)[0].found
        story = Story(main, self._status(main))
        story.committed = relation_of(main) == "real" and any(r.role == "half" for r in ordered)
        story.retries = [r.found for r in ordered if r.role == "retry"]
        story.dead = next((r.found for r in reversed(ordered) if r.role == "dlq"), None)
        story.status = replace(story.status, popped=self._popped(story))
        for one in ordered:
            self._add(story, one)
        story.not_allowed = self.rights.disabled
        if story.dead is not None:
            story.ending = "dead"
        elif story.ending == "arrived" and story.is_for_consumers:
            topic, queue_id, _ = main.queue_place
            story.ending = self.rights.refusal(topic, queue_id) or story.ending
        return story

    def _popped(self, story: Story) -> dict[str, Popped]:
        """Return what POP groups did with the last copy of a message: a copy in a retry topic takes the place of it."""
        out = dict(story.status.popped)
        for copy in story.retries:
            before = out.get(group_of(copy))
            if before is not None and copy is not story.main:
                returned = replace(before, state=PopState.RETURNED, again=False)
                out[before.group] = self._status(copy).popped.get(before.group, returned)
        return out

    def _add(self, story: Story, one: Related) -> None:
        """Add a record to a story; the last one that says how the message ended counts."""
        what = "op" if one.relation == "op" else one.role
        if what == "real":
            what = "committed" if story.committed else "delivered" if story.events else "stored"
        known = self.described.get(one.found.log_offset)
        outcome, due = (known[1].outcome, known[1].due) if known is not None else ("", None)
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
