"""Dispatch records of the log to consume queues and index.

Source: CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex, CommitLog#checkMessageAndReturnSize,
ConsumeQueue#putMessagePositionInfoWrapper, #multiDispatchLmqQueue (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rmqstore.append.consumequeue import BatchConsumeQueue, ConsumeQueue
from rmqstore.append.encoder import TopicName
from rmqstore.append.index import IndexService
from rmqstore.append.mapped_files import SharedFiles
from rmqstore.formats import properties as props
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.javatext import java_text
from rmqstore.formats.message import INNER_BATCH, is_dispatched
from rmqstore.formats.properties import DEFAULT_DELAY_LEVELS, DelayLevels
from rmqstore.formats.services import NEWEST, batch_extent, light_queues
from rmqstore.scan.dispatch import BatchRow

OPEN_QUEUES = 128  # number of queues whose files stay open


@lru_cache(maxsize=1 << 16)
def _tags_code(value: bytes) -> int:
    return props.tags_code(java_text(value))


def property_value(text: bytes, name: bytes) -> bytes:
    """Return the value of one property, empty if there is none; the last nonempty duplicate wins.

    Source: MessageDecoder#string2messageProperties
    """
    prefix = name + b"\x01"
    at = text.rfind(b"\x02" + prefix)
    if at >= 0:
        at += 1
    elif text.startswith(prefix):
        at = 0
    else:
        return b""
    start = at + len(prefix)
    stop = text.find(b"\x02", start)
    value = text[start:] if stop < 0 else text[start:stop]
    if not value:  # rare: there may be an earlier nonempty value
        return props.parse_properties(text).get(name.decode(), "").encode("utf-8", "surrogatepass")
    return value


def read_properties(text: bytes) -> dict[bytes, bytes]:
    """Parse a property text without decoding it, by the rules of `formats.properties.parse_properties`."""
    found = {}
    for part in text.split(b"\x02"):
        name, _, value = part.partition(b"\x01")
        if value and name:
            found[name] = value
    return found


def index_keys(found: Mapping[bytes, bytes], *, tag_key: bool) -> list[bytes]:
    """List the keys of a message's index entries, without the topic, in order.

    Source: IndexService#buildIndex
    """
    unique = found.get(b"UNIQ_KEY")
    keys = [unique] if unique else []
    text = found.get(b"KEYS")
    if text:
        keys += [key for key in text.split(b" ") if key] if b" " in text else [text]
    if tag_key and b"TAGS" in found:
        keys.append(b"T#" + found[b"TAGS"])
    return keys


@dataclass(slots=True)
class OpenQueue:
    """A queue of a topic: its next queue offset, whether it has a message yet, and its files, created on demand."""

    topic: str
    queue_id: int
    next_offset: int = 0
    started: bool = False
    simple: ConsumeQueue | None = None
    batch: BatchConsumeQueue | None = None


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """The broker settings for dispatch; file sizes in bytes. 0 and None mean not given, as in `StoreOptions`.

    `index`: messageIndexEnable; `tag_key`: index entries for TAGS (5.4.0 and newer); `lmq`: enableLmq and
    enableMultiDispatch; `numbers_lmq`: assign offsets in light message queues, or else dispatch only messages that
    bring their own; `batch_topics`: topics with queue.type=BatchCQ.
    """

    consume_queue_file_size: int = 0
    batch_file_size: int = 0
    index: bool = True
    tag_key: bool = True
    lmq: bool = False
    numbers_lmq: bool = True
    batch_topics: frozenset[str] = frozenset()
    delay_levels: DelayLevels | None = None


class WrittenRecord(NamedTuple):
    """The fields of a record that dispatch needs.

    Units: `offset` and `size` in bytes, `queue_offset` in units, `store_timestamp` in ms.
    """

    offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    sys_flag: int
    properties: bytes


@dataclass(slots=True)
class Dispatcher:
    """Dispatches records to the consume queues and the index of a store.

    `timestamp` is the store time (ms) of the last dispatched message. With `in_order` every unit is committed at once.
    DLedger stores need this: after a crash, a DLedger member of 4.9 continues dispatch after the last message that has
    a unit in any queue (DLedgerCommitLog#recover), so that units missing in other queues would stay missing. A plain
    broker dispatches again from the checkpoint on.
    """

    root: Path
    options: DispatchOptions
    index: IndexService
    in_order: bool = False
    queues: dict[QueueName, OpenQueue] = field(default_factory=dict)
    timestamp: int = 0
    shared: SharedFiles = field(default_factory=SharedFiles)

    def queue(self, topic: str, queue_id: int) -> OpenQueue:
        """Return the state of a queue, and create it for a new queue."""
        key = (topic, queue_id)
        state = self.queues.get(key)
        if state is None:
            state = self.queues[key] = OpenQueue(topic, queue_id)
        return state

    def dispatch(
        self, topic: TopicName, state: OpenQueue, record: WrittenRecord, *, to_queue: bool = True, to_index: bool = True
    ) -> None:
        """Dispatch a record that has been written to the log. Errors: NoSpace."""
        found = read_properties(record.properties)
        if to_queue and is_dispatched(record.sys_flag):
            self._to_queue(topic, state, record, found)
        if to_index and self.options.index:
            keys = index_keys(found, tag_key=self.options.tag_key)
            self.index.build(record.offset, record.store_timestamp, record.sys_flag, topic.raw, keys)
        self.timestamp = record.store_timestamp

    def own_properties(
        self, topic: str, queue_id: int, sys_flag: int, text: bytes, queue_offset: int, batched: bool
    ) -> bytes:
        """Return the properties that the store adds to a message: INNER_BASE, INNER_MULTI_QUEUE_OFFSET.

        Errors: MessageRefused. Source: BatchConsumeQueue#assignQueueOffset, MultiDispatch#wrapMultiDispatch
        """
        added = b""
        if batched and sys_flag & INNER_BATCH and not property_value(text, b"INNER_BASE"):
            added += b"INNER_BASE\x01%d\x02" % queue_offset
        assigns_offsets = self.options.lmq and self.options.numbers_lmq
        names = property_value(text, b"INNER_MULTI_DISPATCH") if assigns_offsets else b""
        queues = [TopicName.of(name).text for name in names.decode("utf-8", "replace").split(",")] if names else []
        if queues and NEWEST.includes(topic) and not property_value(text, b"INNER_MULTI_QUEUE_OFFSET"):
            states = [self.queue(name, 0 if props.is_lmq(name) else queue_id) for name in queues]
            added += b"INNER_MULTI_QUEUE_OFFSET\x01" + b",".join(b"%d" % s.next_offset for s in states) + b"\x02"
        return added

    def simple(self, state: OpenQueue) -> ConsumeQueue:
        """Return the consume queue of a queue."""
        if state.simple is None:
            directory, size = self._directory(state), self.options.consume_queue_file_size
            state.simple = ConsumeQueue(directory, size, self.shared)
        self.limit_descriptors()
        return state.simple

    def _to_queue(
        self, topic: TopicName, state: OpenQueue, record: WrittenRecord, found: Mapping[bytes, bytes]
    ) -> None:
        offset, size, queue_offset, store_timestamp, _, text = record
        if topic.text == props.SCHEDULE_TOPIC:  # the tags code is the deliver time (ms)
            levels = self.options.delay_levels or DEFAULT_DELAY_LEVELS
            code = props.dispatch_tags_code(topic.text, props.parse_properties(text), store_timestamp, levels) or 0
        else:
            tags = found.get(b"TAGS")
            code = _tags_code(tags) if tags else 0
        if topic.text in self.options.batch_topics:
            base, count = batch_extent(props.parse_properties(text), queue_offset)
            self.put_batch(state, BatchRow(offset, size, code, store_timestamp, base, count))
            return
        self.put(state, offset, size, code, queue_offset)
        if self.options.lmq and b"INNER_MULTI_DISPATCH" in text:
            for name, queue_id, at in light_queues(topic.text, state.queue_id, props.parse_properties(text)):
                self.put_light(self.queue(TopicName.of(name).text, queue_id), offset, size, code, at)

    def put(self, state: OpenQueue, offset: int, size: int, code: int, queue_offset: int) -> None:
        """Append the unit of a message to a queue. Units: bytes for `offset` and `size`. Errors: NoSpace."""
        queue = self.simple(state)
        queue.put(offset, size, code, queue_offset)
        if self.in_order:
            self._commit(queue)

    def put_light(self, state: OpenQueue, offset: int, size: int, code: int, queue_offset: int) -> None:
        """Append the unit of a message to a light queue, which continues after it. Errors: NoSpace."""
        self.put(state, offset, size, code, queue_offset)
        state.next_offset = max(state.next_offset, queue_offset + 1)
        state.started = True

    def put_batch(self, state: OpenQueue, row: BatchRow) -> None:
        """Append the unit of a message or an inner batch to a BatchCQ. Errors: NoSpace."""
        if state.batch is None:
            directory, size = self._directory(state, batch=True), self.options.batch_file_size
            state.batch = BatchConsumeQueue(directory, size, self.shared)
        self.limit_descriptors()
        state.batch.put(row.offset, row.size, row.tags_code, row.store_timestamp, row.base, row.count)
        if self.in_order:
            self._commit(state.batch)

    def _commit(self, consume_queue: ConsumeQueue | BatchConsumeQueue) -> None:
        file = consume_queue.queue.files[-1]
        if self.too_many_open:
            file.release_descriptor()
        else:
            file.commit(0)

    @property
    def too_many_open(self) -> bool:
        """Whether there are too many queues to keep their descriptors open."""
        return len(self.queues) > OPEN_QUEUES

    def limit_descriptors(self) -> None:
        """Commit and close the open files of all queues if they have become too many. Errors: NoSpace."""
        if len(self.shared.opened) >= OPEN_QUEUES:
            self.shared.release_opened()

    def _directory(self, state: OpenQueue, *, batch: bool = False) -> Path:
        return self.root / ("batchconsumequeue" if batch else "consumequeue") / state.topic / str(state.queue_id)

    def files(self) -> Iterator[ConsumeQueue | BatchConsumeQueue]:
        """Yield all consume queues that have been opened or created."""
        for state in list(self.queues.values()):
            if state.simple is not None:
                yield state.simple
            if state.batch is not None:
                yield state.batch


def messages_in(sys_flag: int, text: bytes) -> int:
    """Return the number of messages in a record of a batch topic: INNER_NUM of an inner batch, else 1.

    Source: MultiDispatchUtils, BatchConsumeQueue#increaseQueueOffset
    """
    if not sys_flag & INNER_BATCH:
        return 1
    number = property_value(text, b"INNER_NUM")
    return int(number) if number.isdigit() and 0 < int(number) < 1 << 15 else 1
