"""The other records of a message: half message and transaction outcome, delayed copies, retries, original.

Copies of a message share its unique id; ORIGIN_MESSAGE_ID and PREPAREDTRANSACTIONOFFSET point to others directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rmqstore.files.log_ends import first_true
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.message import TRANSACTION_COMMIT
from rmqstore.views import lookup
from rmqstore.views.index_files import IndexFiles
from rmqstore.views.lookup import Found

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

    def __init__(self, store: Store, index: IndexFiles) -> None:
        self.store, self.index = store, index
        self.topics = lookup.topics(store)

    def of(self, found: Found, others: Iterable[Found] = ()) -> Lifecycle:
        """Return the lifecycle of a message. `others`: messages already found, which may be related to it."""
        known = properties.parse_properties(found.message.properties)
        related = {r.found.offset: r for r in self._related(found, known, others) if r.found.offset != found.offset}
        ordered = [related[offset] for offset in sorted(related, key=lambda o: o or 0)]
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
    return (found.offset or 0) > (than.offset or 0) and found.message.topic_text == real


def _verdict(half: Found, related: list[Related], op: Found | None) -> str:
    commits = [r for r in related if r.relation == "real" and r.found.message.transaction_type == TRANSACTION_COMMIT]
    if commits:
        return "committed"
    if any(r.relation == "checked-too-often" for r in related):
        return "checked-too-often"
    later = [r for r in related if r.relation == "half" and (r.found.offset or 0) > (half.offset or 0)]
    if later:
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
        start = first_true(
            first, stop, lambda n: (unit := queue.at(n)) is not None and unit.offset > (half.offset or 0)
        )
        for number in range(start, min(stop, start + _MAX_OPS)):
            unit = queue.at(number)
            found = lookup.by_offset(store, unit.offset) if unit is not None else None
            if found is not None and wanted in found.message.body.decode("utf-8", "replace").split(","):
                return found, True
    except CannotRead:
        return None, False
    return None, stop - start <= _MAX_OPS
