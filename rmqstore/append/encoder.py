"""Check messages against a store's limits and encode them as records, singly or in tables.

Source: MessageExtEncoder#encode, MessageExtBrokerInner#setVersion, CommitLog#asyncPutMessage (RocketMQ 5.4.0)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rmqstore.errors import MessageRefused, reason
from rmqstore.formats import properties
from rmqstore.formats.consumequeue import MAX_DIRECTORY_NAME, is_directory_name
from rmqstore.formats.message import (
    BLANK_SIZE,
    BORN_HOST_V6,
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_V6,
    crc32,
    ends_with_crc,
    set_record_crc,
)
from rmqstore.messages.cells import Part, TextRows, TextTable, assemble
from rmqstore.messages.table import NUMBERS, MessageTable
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, U8, Bool, i32, i64, u64
from rmqstore.texts import Text

LOCALHOST = b"\x7f\0\0\1\0\0\0\0"


_PACKERS = {flags: layout.packer for flags, layout in HEADS_BY_FLAG.items()}
_PROPERTIES_LENGTH = struct.Struct(">H")


@dataclass(slots=True, init=False)
class NewMessage:
    """A message to be appended to a store.

    `properties` is a mapping, or a property text as in a record; `tags` and `keys` are added to it. Hosts are in stored
    form (8 or 20 bytes: see `host_bytes`), times in ms. Defaults: `store_timestamp` 0 means the current time,
    `queue_offset` None the next one of the queue, `append_crc` None the setting of the store, and `version` (1 or 2)
    None the version that the topic's length requires.
    Errors: MessageRefused for properties that cannot be encoded.
    """

    topic: str
    body: bytes
    properties: bytes
    """The property text as in a record."""
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    queue_offset: int | None
    append_crc: bool | None
    version: int | None

    def __init__(  # noqa: PLR0913 - one for each field of a record
        self,
        topic: str,
        body: bytes,
        properties: bytes | Mapping[str, str] = b"",
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = LOCALHOST,
        store_timestamp: int = 0,
        store_host: bytes = LOCALHOST,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        queue_offset: int | None = None,
        append_crc: bool | None = None,
        version: int | None = None,
        *,
        tags: str | None = None,
        keys: Iterable[str] = (),
    ) -> None:
        if tags or keys or not isinstance(properties, bytes):
            properties = _property_text(properties, tags, keys)
        self.topic, self.body, self.properties, self.queue_id = topic, body, properties, queue_id
        self.flag, self.sys_flag, self.reconsume_times = flag, sys_flag, reconsume_times
        self.born_timestamp, self.born_host = born_timestamp, born_host
        self.store_timestamp, self.store_host = store_timestamp, store_host
        self.prepared_transaction_offset = prepared_transaction_offset
        self.queue_offset, self.append_crc, self.version = queue_offset, append_crc, version


def _property_text(given: bytes | Mapping[str, str], tags: str | None, keys: Iterable[str]) -> bytes:
    """Return the property text with `tags` and `keys` added. Errors: MessageRefused."""
    if isinstance(keys, str):
        raise MessageRefused(Text("keys must be a list of strings: [{keys!r}]", keys=keys))
    pairs = dict(given) if isinstance(given, Mapping) else properties.parse_properties(given)
    words = list(keys)
    if tags:
        pairs[properties.TAGS] = tags
    if words:
        pairs[properties.KEYS] = " ".join(words)
    try:
        return properties.build_properties(pairs)
    except ValueError as error:
        raise MessageRefused(reason(error)) from error


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a store for new records.

    `max_message_size`: limit for a body, in bytes; `auto_v2`: a topic of more than 127 Java chars gets a V2 record
    (autoMessageVersionOnTopicLen); `append_crc`: records end with a record CRC (enabledAppendPropCRC).
    """

    max_message_size: int = 4 << 20
    auto_v2: bool = True
    append_crc: bool = False


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic as stored in records: `field` is its length field and bytes, `magic` the magic of its records."""

    text: str
    raw: bytes
    field: bytes
    magic: int

    @classmethod
    def of(cls, text: str, auto_v2: bool = True, version: int | None = None) -> TopicName:
        """Encode a topic for records of `version`, by default the version that its length requires.

        Errors: MessageRefused for a topic that is empty, too long, or not a valid directory name.
        """
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) > MAX_DIRECTORY_NAME:
            too_long = Text("topic of {count} bytes: a directory name has at most {limit}")
            raise MessageRefused(too_long.format(count=len(raw), limit=MAX_DIRECTORY_NAME))
        if not is_directory_name(raw):
            raise MessageRefused(Text("topic {text!r} is not a valid directory name", text=text))
        long = auto_v2 and len(text.encode("utf-16-le", "surrogatepass")) // 2 > MAX_TOPIC_V1
        v2 = long if version is None else version == 2
        if not v2 and len(raw) > MAX_TOPIC_V1:
            raise MessageRefused(
                Text("topic of {count} bytes: the limit of a V1 record is {limit}", count=len(raw), limit=MAX_TOPIC_V1)
            )
        wide = 2 if v2 else 1
        return cls(text, raw, len(raw).to_bytes(wide, "big") + raw, MAGIC_V2 if v2 else MAGIC_V1)


_topic_name = lru_cache(maxsize=1 << 16)(TopicName.of)


def prepare(message: NewMessage, limits: Limits) -> Prepared:
    """Check a message and encode the parts of its record that do not depend on its offsets.

    Errors: MessageRefused.
    Source: HookUtils#checkBeforePutMessage, MessageExtEncoder#encode
    """
    topic = _topic_name(message.topic, limits.auto_v2, message.version)
    body, text = message.body, message.properties
    if len(body) > limits.max_message_size:
        raise _too_long(len(body), limits)
    append_crc = limits.append_crc if message.append_crc is None else message.append_crc
    if append_crc:
        if text and not text.endswith(b"\x02"):
            text += b"\x02"
        text += bytes(CRC32_RESERVED_LEN)
    if len(text) > MAX_PROPERTIES:
        raise _long_properties(len(text))
    if message.queue_id < 0:
        raise _negative_queue_id(message.queue_id)
    flags = message.sys_flag & ~0x30
    if len(message.born_host) == 20:
        flags |= 0x10
    if len(message.store_host) == 20:
        flags |= 0x20
    tail = body + topic.field + _PROPERTIES_LENGTH.pack(len(text)) + text
    head = _PACKERS[flags & 0x30]
    return Prepared(message, topic, head, flags, tail, head.size + len(tail), append_crc)


@dataclass(slots=True)
class Prepared:
    """A checked message; `size` is TOTALSIZE of its record (bytes), `tail` everything after the head."""

    message: NewMessage
    topic: TopicName
    head: struct.Struct
    sys_flag: int
    tail: bytes
    size: int
    append_crc: bool

    def record(self, physical_offset: int, queue_offset: int, store_timestamp: int) -> bytes:
        """Return the bytes of the record."""
        m = self.message
        body = m.body
        record = (
            self.head.pack(
                self.size,
                self.topic.magic,
                crc32(body) & 0x7FFFFFFF if body else 0,
                m.queue_id,
                m.flag,
                queue_offset,
                physical_offset,
                self.sys_flag,
                m.born_timestamp,
                m.born_host,
                store_timestamp,
                m.store_host,
                m.reconsume_times,
                m.prepared_transaction_offset,
                len(body),
            )
            + self.tail
        )
        return set_record_crc(record) if self.append_crc else record


def refuse_oversize(size: int, file_size: int, body_offset: int = 0) -> None:
    """Refuse a record that does not fit into a file together with a BLANK after it.

    Errors: MessageRefused.
    """
    if size + body_offset + BLANK_SIZE > file_size:
        raise MessageRefused(
            Text("record of {size} bytes does not fit into a file of {file_size} bytes", size=size, file_size=file_size)
        )


# --- whole tables ----------------------------------------------------------------------------------------------------

_WIDEST = HEADS_BY_FLAG[BORN_HOST_V6 | STORE_HOST_V6].size
_CRC32_NAME = int.from_bytes(CRC32_PROPERTY[:8], "big")
_ANY_CRC = CRC32_PROPERTY + b"0" * 10 + b"\x02"  # until `place_records` sets the record CRC


class RowRefused(MessageRefused):
    """A store refuses a message of a table; `row` is its number."""

    def __init__(self, row: int, error: MessageRefused) -> None:
        super().__init__(error.message, error.advice)
        self.row = row


def messages_of(table: MessageTable, *, renumber: bool = False) -> Iterator[NewMessage]:
    """Yield the messages of a table one by one; with `renumber`, without their queue offsets."""
    names = [*NUMBERS, "version"]
    rows = zip(*(table.numbers[name].tolist() for name in names), strict=True)
    topics = [topic.decode("utf-8", "surrogateescape") for topic in table.topics]
    texts = zip(table.topic.tolist(), table.properties.raw(), table.body.raw(), strict=True)
    hosts = zip(table.born_host.tolist(), table.store_host.tolist(), strict=True)
    for row, (topic, text, body), (born, stored) in zip(rows, texts, hosts, strict=True):
        values: dict[str, Any] = dict(zip(names, row, strict=True))
        values["version"] = values["version"] or None
        values["queue_offset"] = None if renumber else values["queue_offset"]
        has_crc = ends_with_crc(text)
        yield NewMessage(
            topic=topics[topic],
            body=body,
            properties=text[:-CRC32_RESERVED_LEN] if has_crc else text,
            append_crc=has_crc or None,
            born_host=table.hosts[born],
            store_host=table.hosts[stored],
            **values,
        )


def encode_table(table: MessageTable, limits: Limits) -> Columns:
    """Encode the messages of a table as consecutive records; `place_records` then sets offsets, times and CRCs.

    Errors: RowRefused for the first message that the store refuses.
    Source: as `prepare`.
    """
    n = len(table)
    names, which, refused = _topic_names(table, limits.auto_v2)
    texts = table.properties
    has_crc = _ends_with_crc(texts.source, texts.starts, texts.stops)
    texts = replace(texts, stops=np.where(has_crc, texts.stops - CRC32_RESERVED_LEN, texts.stops))
    has_crc |= limits.append_crc
    add_separator = has_crc & (texts.stops > texts.starts) & (texts.source[np.maximum(texts.stops - 1, 0)] != 2)
    text_length = texts.stops - texts.starts + add_separator + CRC32_RESERVED_LEN * has_crc
    body_length = table.body.stops - table.body.starts
    queue_id = table.numbers["queue_id"]
    checks: tuple[tuple[Bool, Callable[[int], MessageRefused]], ...] = (
        (body_length > limits.max_message_size, lambda i: _too_long(int(body_length[i]), limits)),
        (text_length > MAX_PROPERTIES, lambda i: _long_properties(int(text_length[i]))),
        (queue_id < 0, lambda i: _negative_queue_id(int(queue_id[i]))),
    )
    for mask, error_of in checks:
        if mask.any():
            first = int(np.argmax(mask))
            refused.append((first, error_of(first)))
    if refused:
        raise RowRefused(*min(refused, key=lambda row_and_error: row_and_error[0]))
    fields = TextTable()
    for name in names:
        fields.add(name.field)
    topic_length = np.array([len(name.raw) for name in names], dtype=np.int64)[which]
    wide = np.array([len(name.field) - len(name.raw) for name in names], dtype=np.int64)[which]
    magic = np.array([name.magic for name in names], dtype=np.int64)[which]
    heads, head_length, sys_flag = _heads(table, magic, body_length)
    raw = bytearray()

    def sink(size: int) -> U8:
        nonlocal raw
        raw = bytearray(size + 64)
        return np.frombuffer(raw, dtype=np.uint8)[:size]

    tails = TextTable()
    for tail in (b"", b"\x02", _ANY_CRC, b"\x02" + _ANY_CRC):
        tails.add(tail)
    lengths = text_length.astype(">i2").view(np.uint8).reshape(n, 2)
    parts: list[Part] = [TextRows(heads, head_length), table.body, fields.rows(which), TextRows(lengths), texts]
    _, ends = assemble(n, [*parts, tails.rows(add_separator + 2 * has_crc)], sink)
    size = head_length + body_length + wide + topic_length + 2 + text_length
    buf: U8 = np.frombuffer(raw, dtype=np.uint8)
    at = ends - size
    i32(buf)[at + HEAD.at("size")] = size
    body_at = at + head_length
    i32(buf)[at + HEAD.at("body_crc")] = native.load().body_crcs(raw, body_at, body_at + body_length)
    columns = Columns(raw, 0, at)
    columns.set(
        size=size,
        sys_flag=sys_flag,
        queue_id=queue_id,
        body_length=body_length,
        topic_at=body_at + body_length + wide,
        topic_length=topic_length,
        properties_at=ends - text_length,
        properties_length=text_length,
        has_tail=has_crc,
    )
    return columns


def place_records(columns: Columns, offsets: I64) -> None:
    """Set physical offsets, queue offsets and store times (ms) of encoded records, and then their record CRCs.

    Queue offsets and store times are those that were `set` in the columns.
    """
    numbers = i64(columns.buf)
    numbers[columns.at + PHYSICAL_OFFSET_AT] = offsets
    numbers[columns.at + HEAD.at("queue_offset")] = columns.queue_offset
    numbers[columns.at + columns.born_growth + HEAD.at("store_timestamp")] = columns.store_timestamp
    for i in np.flatnonzero(columns.has_tail).tolist():
        start, stop = int(columns.at[i]), int(columns.at[i] + columns.size[i])
        columns.raw[start:stop] = set_record_crc(bytes(columns.raw[start:stop]))


def _too_long(length: int, limits: Limits) -> MessageRefused:
    return MessageRefused(
        Text("body of {length} bytes; maxMessageSize is {limit}", length=length, limit=limits.max_message_size),
        Text("raise the limit, and maxMessageSize of the broker that will read it"),
    )


def _long_properties(length: int) -> MessageRefused:
    return MessageRefused(
        Text("properties of {length} bytes; the limit of a record is {limit}", length=length, limit=MAX_PROPERTIES)
    )


def _negative_queue_id(queue_id: int) -> MessageRefused:
    return MessageRefused(Text("queue id {queue_id} is negative", queue_id=queue_id))


def _topic_names(table: MessageTable, auto_v2: bool) -> tuple[list[TopicName], I64, list[tuple[int, MessageRefused]]]:
    """Return the encoded topics, the number of each message's topic, and (row, error) of the refused topics."""
    pairs = table.topic * 3 + table.numbers["version"]
    which = np.zeros(3 * len(table.topics), dtype=np.int64)
    which[pairs] = 1
    names: list[TopicName] = []
    refused: list[tuple[int, MessageRefused]] = []
    for pair in np.flatnonzero(which).tolist():
        which[pair] = len(names)
        topic, version = divmod(pair, 3)
        text = table.topics[topic].decode("utf-8", "surrogateescape")
        try:
            names.append(_topic_name(text, auto_v2, version or None))
        except MessageRefused as error:
            refused.append((int(np.argmax(pairs == pair)), error))
            names.append(TopicName(text, b"", b"", MAGIC_V1))
    return names, which[pairs], refused


def _ends_with_crc(source: U8, starts: I64, stops: I64) -> Bool:
    """Return which property texts end with the property __CRC32#."""
    long_enough = stops - starts >= CRC32_RESERVED_LEN
    if not long_enough.any():
        return long_enough
    at = np.where(long_enough, stops - CRC32_RESERVED_LEN, 0)
    return long_enough & (u64(source)[at] == _CRC32_NAME) & (source[at + 8] == CRC32_PROPERTY[8])


def _heads(table: MessageTable, magic: I64, body_length: I64) -> tuple[U8, I64, I64]:
    """Return the heads of the records, right-aligned in rows of equal width, their lengths, and their SYSFLAG."""
    wide = np.array([len(host) == 20 for host in table.hosts], dtype=np.bool_)
    flags = table.numbers["sys_flag"] & ~(BORN_HOST_V6 | STORE_HOST_V6)
    flags = flags | wide[table.born_host] * BORN_HOST_V6 | wide[table.store_host] * STORE_HOST_V6
    cells = np.empty((len(table), _WIDEST), dtype=np.uint8)
    length = np.empty(len(table), dtype=np.int64)
    family = flags & (BORN_HOST_V6 | STORE_HOST_V6)
    for bits in np.unique(family).tolist():
        rows = np.flatnonzero(family == bits)
        layout = HEADS_BY_FLAG[bits]
        heads = np.zeros(len(rows), dtype=layout.dtype)
        for name in NUMBERS:
            heads[name] = table.numbers[name][rows]
        heads["magic"], heads["sys_flag"], heads["body_length"] = magic[rows], flags[rows], body_length[rows]
        for name, column in (("born_host", table.born_host), ("store_host", table.store_host)):
            kind = layout.dtype[name]
            hosts = np.array([np.void(host.ljust(kind.itemsize, b"\0")[: kind.itemsize]) for host in table.hosts], kind)
            heads[name] = hosts[column[rows]]
        cells[rows, _WIDEST - layout.size :] = heads.view(np.uint8).reshape(len(rows), layout.size)
        length[rows] = layout.size
    return cells, length, flags
