"""The store of the Python interface: iterate over messages, get one message, use a queue as a sequence.

store = rmqstore.open("/data/rocketmq/store")
for message in store.messages(topic="Order", since="-2h"):
    print(message.keys, message.body)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.log_ends import first_true
from rmqstore.files.sources import FOR_READING, files_of
from rmqstore.files.store import Store, recognised
from rmqstore.formats import properties
from rmqstore.formats.bodies import decompress
from rmqstore.formats.message import Fault, Message, check_message, host_text, is_filler, parse_message
from rmqstore.formats.times import epoch_ms, utc
from rmqstore.texts import Text, many
from rmqstore.views import lookup
from rmqstore.views.dump.messages import Job, Skipped, read_batches, read_records
from rmqstore.views.dump.selection import Selection
from rmqstore.views.export import ExportOptions

Words = str | Iterable[str]
"""One string, or several."""
When = int | str | datetime
"""Epoch ms, a string such as "-2h" or "2026-11-21T08:00", or a datetime with a time zone."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a store, with its fields as Python types.

    `record`: all fields as stored. `offset`: global log offset of the record; None for a record outside of a log.
    `fault`: NONE if the record is sound. Times are epoch ms, as in `dump`.
    """

    record: Message
    offset: int | None
    fault: Fault = Fault.NONE

    def __repr__(self) -> str:
        size = self.record.body_length
        return f"<message {self.topic}/{self.queue_id} offset {self.queue_offset}: body of {size} bytes>"

    @property
    def sound(self) -> bool:
        """Whether lengths, CRCs and PHYSICALOFFSET are correct."""
        return self.fault is Fault.NONE

    @property
    def filler(self) -> bool:
        """Whether the record tells that a repair put it in the place of a lost message."""
        return is_filler(self.record)

    @property
    def topic(self) -> str:
        return self.record.topic_text

    @property
    def queue_id(self) -> int:
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, epoch ms."""
        return self.record.store_timestamp

    @property
    def born_timestamp(self) -> int:
        """When the producer created it, epoch ms."""
        return self.record.born_timestamp

    @property
    def store_time(self) -> datetime:
        """When the broker stored it, in UTC.

        Errors: OverflowError for a damaged time outside the range of datetime
        """
        return utc(self.record.store_timestamp)

    @property
    def born_host(self) -> str:
        """The producer's address, "ip:port"."""
        return host_text(self.record.born_host)

    @property
    def store_host(self) -> str:
        """The broker's address, "ip:port"."""
        return host_text(self.record.store_host)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including those that client and broker set."""
        return properties.parse_properties(self.record.properties)

    @property
    def tags(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> list[str]:
        """The words of KEYS."""
        return [word for word in self.properties.get(properties.KEYS, "").split(" ") if word]

    @property
    def unique_key(self) -> str | None:
        """The message id that the producer's client assigned (UNIQ_KEY)."""
        return self.properties.get(properties.UNIQ_KEY)

    @property
    def msg_id(self) -> str:
        """The offset message id, which contains the log offset. Source: MessageDecoder#createMessageId"""
        return self.record.offset_message_id()

    @property
    def body(self) -> bytes:
        """The body, decompressed.

        Errors: BodyError if it cannot be decompressed; use `raw_body` then
        """
        return decompress(self.record.sys_flag, self.record.body)

    @property
    def raw_body(self) -> bytes:
        """The body as stored."""
        return self.record.body


class Queue:
    """One consume queue as a sequence of messages: `queue[17]`, `queue[5:10]`, `len(queue)`, iteration.

    Indexes are queue offsets in [min, max), so negative indexes are errors. Slices are read lazily.
    Errors: IndexError for a queue offset outside of [min, max), LookupError if the message of a unit cannot be read
    """

    def __init__(self, store: StoreView, topic: str, queue_id: int) -> None:
        self._store = store
        self.topic = topic
        self.queue_id = queue_id
        self._label = f"{topic}/{queue_id}"

    def __repr__(self) -> str:
        return f"<Queue {self._label}: {self.min} to {self.max}>"

    @cached_property
    def _units(self) -> lookup.QueueUnits:
        return lookup.QueueUnits(self._store, self.topic, self.queue_id)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        bounds = self._units.bounds(self._store.log_start)
        if bounds is None:
            raise LookupError(Text("{path} has no queue {queue}", path=self._store.path, queue=self._label))
        return bounds

    @property
    def min(self) -> int:
        """The first queue offset whose message has not expired."""
        return self._bounds[0]

    @property
    def max(self) -> int:
        """The queue offset that the next message would get."""
        return self._bounds[1]

    def __len__(self) -> int:
        return self.max - self.min

    def __iter__(self) -> Iterator[StoredMessage]:
        return (self[number] for number in range(self.min, self.max))

    @overload
    def __getitem__(self, at: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, at: slice) -> Iterator[StoredMessage]: ...
    def __getitem__(self, at: int | slice) -> StoredMessage | Iterator[StoredMessage]:
        if isinstance(at, slice):
            start = self.min if at.start is None else max(at.start, self.min)
            stop = self.max if at.stop is None else min(at.stop, self.max)
            return (self[number] for number in range(start, stop, at.step or 1))
        if not self.min <= at < self.max:
            has = Text("{queue} has queue offsets {min} to {max}, not {at}")
            raise IndexError(has.format(queue=self._label, min=self.min, max=self.max, at=at))
        found = self._units.message(at)
        if found is None:
            lost = Text("{queue}: the message at {at} cannot be read; run `rmqstore verify`")
            raise LookupError(lost.format(queue=self._label, at=at))
        return StoredMessage(found.message, found.offset, found.fault)

    def at_time(self, when: When) -> int:
        """Return the first queue offset stored at a time or later; `max` if there is none.

        A binary search, as store times increase along a queue. Source: ConsumeQueue#getOffsetInQueueByTime
        """
        wanted = epoch_ms(when)
        return first_true(self.min, self.max, lambda at: self[at].store_timestamp >= wanted)


class Table:
    """Messages of a store as columns, read when a method is called. Needs the extra `arrow`."""

    def __init__(self, store: Store, selection: Selection, body: bool) -> None:
        self._store = store
        options = ExportOptions(body=body, decode=True, positions=True, fillers=selection.fillers)
        self._job = options.job(selection, "arrow")

    def batches(self) -> Iterator[Any]:
        """Yield a pyarrow.RecordBatch for some thousand messages at a time; memory does not grow with the store."""
        return read_batches(self._store, self._job)

    def to_arrow(self) -> Any:
        """Return all rows as one pyarrow.Table.

        Errors: UsageError without pyarrow
        """
        from rmqstore.messages.arrow import ArrowRows, one_table

        return one_table(self.batches(), ArrowRows(self._job.body, positions=True))

    def to_pandas(self) -> Any:
        """Return all rows as a pandas.DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a polars.DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())


class Filters(TypedDict, total=False):
    """What a message must match: one of the tags, one of the keys, and a store time in [since, until).

    `limit`: number of messages. `fillers`: also records that repairs put in the place of lost messages.
    """

    tag: Words
    key: Words
    since: When | None
    until: When | None
    limit: int | None
    fillers: bool


class StoreView(Store):
    """A store to read from, accepted by every function of rmqstore that takes a Store.

    It reads its directories once. Open it again after a change.
    """

    def __repr__(self) -> str:
        return f"<rmqstore store {str(self.path)!r}: {self.kind.value}>"

    def messages(
        self,
        topic: Words = (),
        queue: int | Iterable[int] = (),
        *,
        reverse: bool = False,
        damage: Skipped | None = None,
        **filters: Unpack[Filters],
    ) -> Iterator[StoredMessage]:
        """Yield messages in log order, including those with a wrong CRC (see `message.sound`).

        `filters`: tag, key, since, until, limit and fillers; see `Filters`. `reverse`: newest first. Fills in `damage`
        with what was skipped.
        Errors: ValueError for an invalid time
        """
        job = Job(_selection(topic, queue, filters, reverse))
        for records in read_records(self, "messages", job, damage):
            for one in records:
                yield StoredMessage(one.message, one.offset, one.fault)

    def table(
        self, topic: Words = (), queue: int | Iterable[int] = (), *, body: bool = True, **filters: Unpack[Filters]
    ) -> Table:
        """Return the sound messages as columns, those of `rmqstore export`, for Arrow, pandas and Polars.

        `filters`: as in `messages`. Bodies are decompressed; `body=False` omits them.
        """
        return Table(self, _selection(topic, queue, filters), body)

    def message(self, where: int | str) -> StoredMessage | None:
        """Return a message by log offset, "TOPIC/QUEUE/OFFSET", offset message id, unique id or key, or None.

        Reads a few kilobytes. Unique ids and keys are looked up only in the index files.
        """
        found = lookup.find_one(self, where)
        return StoredMessage(found.message, found.offset, found.fault) if found is not None else None

    def queue(self, topic: str, queue_id: int) -> Queue:
        """Return a consume queue: simple, BatchCQ, light (LMQ), or in RocksDB."""
        return Queue(self, topic, queue_id)


def _selection(topic: Words, queue: int | Iterable[int], filters: Filters, reverse: bool = False) -> Selection:
    """Errors: TypeError for an unknown filter, ValueError for an invalid time."""
    unknown = filters.keys() - Filters.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}")
    since, until = filters.get("since"), filters.get("until")
    return Selection(
        topics=_words(topic),
        queue_ids=frozenset([queue] if isinstance(queue, int) else queue),
        tags=_words(filters.get("tag", ())),
        keys=_words(filters.get("key", ())),
        since=None if since is None else epoch_ms(since),
        until=None if until is None else epoch_ms(until),
        limit=filters.get("limit"),
        reverse=reverse,
        fillers=filters.get("fillers", False),
    )


def open(path: Path | str, config: BrokerConfig | None = None) -> StoreView:  # noqa: A001 - the word of the library, as gzip.open
    """Open a store, a part of one, or a snapshot (`REPO::NAME`) to read from. Reads only directory listings.

    Errors: NotReadable (missing, no permission), NotAStore (no RocketMQ files)
    """
    files, settings = files_of(Path(path), config or BrokerConfig(), FOR_READING)
    return recognised(StoreView(Path(path), settings, files=files))


def parse_stored(data: bytes) -> StoredMessage:
    """Parse the bytes of a record, from a log or from `lost+found`.

    Errors: UsageError if no record starts at the first byte
    """
    record, fault = parse_message(data)
    if record is None:
        why = fault.name.lower().replace("_", " ")
        raise UsageError(Text("no record at the start of {count}: {why}", count=many(len(data), "byte"), why=why))
    return StoredMessage(record, None, check_message(record, None) if fault is Fault.NONE else fault)


def _words(given: Words) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)
