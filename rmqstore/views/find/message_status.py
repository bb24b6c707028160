"""The status of a message: whether record, queue entry and index entries are present, and which groups received it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from rmqstore.checks.beside.config import ConsumerOffsets, QueueProgress
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Message
from rmqstore.views.index_files import IndexFiles
from rmqstore.views.lookup import Found, Unit, queue_reader
from rmqstore.views.pop import Popped, PopProgress, PopState, is_in_retry_topic


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
class IndexEntries:
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
    index: IndexEntries
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
        self.index = IndexFiles(store)
        self.offsets = ConsumerOffsets.read(store)

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
        for progress in groups:
            found = self._pop.of(progress, message.topic_text, message.queue_id, message.queue_offset)
            if found is None:
                continue
            if found.state is PopState.UNKNOWN:
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
        except CannotRead:
            return QueueEntry("unreadable")
        if unit is None:
            return QueueEntry("missing")
        if unit.offset != found.offset:
            return QueueEntry("wrong", unit.offset)
        return QueueEntry("present", unit.offset, self._tag_matches(message, known, unit))

    def _tag_matches(self, message: Message, known: dict[str, str], unit: Unit) -> bool | None:
        if consumequeue.is_ext_address(unit.tags_code):
            return None  # the code is in the extension file
        topic = message.topic_text
        if topic == properties.SCHEDULE_TOPIC:  # the code is the delivery time
            code = properties.dispatch_tags_code(topic, known, message.store_timestamp, delay_levels(self.store))
        else:
            code = properties.dispatch_tags_code(topic, known, message.store_timestamp)
        return unit.tags_code == code

    def _index_entries(self, found: Found, known: dict[str, str]) -> IndexEntries:
        topic = found.message.topic_text
        keys = [text.removeprefix(f"{topic}#") for text in properties.index_keys(topic, known)]
        if not keys or found.message.transaction_type == TRANSACTION_ROLLBACK:
            return IndexEntries("not-wanted")
        if not self.index:
            state = "not-here" if self.store.part is not None else "no-index"
            return IndexEntries(state, missing=tuple(keys))
        held = {hit.key for hit in self.index.hits((topic,), keys) if hit.offset == found.offset}
        present = tuple(key for key in keys if key in held)
        missing = tuple(key for key in keys if key not in held)
        state = "missing" if not present else "partly" if missing else "present"
        return IndexEntries(state, present, missing)
