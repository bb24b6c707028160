"""A message to be appended, and its record: sizes, versions, hosts, record CRC, and limits with clear errors.

Source: MessageExtEncoder#encode, MessageExtBrokerInner#setVersion, CommitLog#asyncPutMessage (RocketMQ 5.4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rmqstore.errors import MessageRefused
from rmqstore.formats import properties
from rmqstore.formats.consumequeue import MAX_DIRECTORY_NAME, is_directory_name
from rmqstore.formats.message import (
    BLANK_SIZE,
    CRC32_RESERVED_LEN,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    crc32,
    set_record_crc,
)

LOCALHOST = b"\x7f\0\0\1\0\0\0\0"


_PACKERS = {flags: layout.packer for flags, layout in HEADS_BY_FLAG.items()}
_PROPERTIES_LENGTH = struct.Struct(">H")


@dataclass(slots=True, init=False)
class NewMessage:
    """A message as it comes to the store.

    `properties`: names and values, or the text as a record has it; `tags` and `keys` are added to them. Hosts are in
    stored form (8 or 20 bytes: `host_bytes`); times are ms; `store_timestamp` 0 means the store's clock,
    `queue_offset` None the queue's next one; `append_crc` None what the store is set to; `version` (1 or 2) None what
    the topic's length asks for.
    Errors: MessageRefused for properties that cannot be written
    """

    topic: str
    body: bytes
    properties: bytes
    """As a record has them."""
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

    def __init__(
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
    """Errors: MessageRefused"""
    if isinstance(keys, str):
        raise MessageRefused(f"keys are several texts: [{keys!r}]")
    pairs = dict(given) if isinstance(given, Mapping) else properties.parse_properties(given)
    words = list(keys)
    if tags:
        pairs[properties.TAGS] = tags
    if words:
        pairs[properties.KEYS] = " ".join(words)
    try:
        return properties.build_properties(pairs)
    except ValueError as error:
        raise MessageRefused(str(error)) from error


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store takes: `max_message_size` of a body (bytes), V2 by topic length or not, record CRC or not.

    `auto_v2`: a topic of more than 127 Java chars gets a V2 record (autoMessageVersionOnTopicLen).
    """

    max_message_size: int = 4 << 20
    auto_v2: bool = True
    append_crc: bool = False


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic as records carry it: its length field and bytes, and the magic of its records."""

    text: str
    raw: bytes
    field: bytes
    magic: int

    @classmethod
    def of(cls, text: str, auto_v2: bool = True, version: int | None = None) -> TopicName:
        """The stored form of a topic, in a record of that version or of the one that its length asks for.

        Errors: MessageRefused for an empty topic, one that is not a valid directory name, or one that is too long.
        """
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) > MAX_DIRECTORY_NAME:
            raise MessageRefused(f"topic of {len(raw)} bytes: a queue directory takes at most {MAX_DIRECTORY_NAME}")
        if not is_directory_name(raw):
            raise MessageRefused(f"topic {text!r} cannot name a queue directory")
        long = auto_v2 and len(text.encode("utf-16-le", "surrogatepass")) // 2 > MAX_TOPIC_V1
        v2 = long if version is None else version == 2
        if not v2 and len(raw) > MAX_TOPIC_V1:
            raise MessageRefused(f"topic of {len(raw)} bytes: a V1 record takes at most {MAX_TOPIC_V1}")
        wide = 2 if v2 else 1
        return cls(text, raw, len(raw).to_bytes(wide, "big") + raw, MAGIC_V2 if v2 else MAGIC_V1)


class Encoder:
    """Builds records; topics that it has met are remembered."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.topic = lru_cache(maxsize=1 << 16)(lambda text, version: TopicName.of(text, limits.auto_v2, version))

    def prepare(self, message: NewMessage) -> Prepared:
        """Check a message and take the parts of its record that do not depend on its place.

        Errors: MessageRefused.
        Source: HookUtils#checkBeforePutMessage, MessageExtEncoder#encode
        """
        limits = self.limits
        topic: TopicName = self.topic(message.topic, message.version)
        body, text = message.body, message.properties
        if len(body) > limits.max_message_size:
            raise MessageRefused(
                f"body of {len(body)} bytes; maxMessageSize is {limits.max_message_size}",
                "raise the limit, and maxMessageSize of the broker that will read it",
            )
        append_crc = limits.append_crc if message.append_crc is None else message.append_crc
        if append_crc:
            if text and not text.endswith(b"\x02"):
                text += b"\x02"
            text += bytes(CRC32_RESERVED_LEN)
        if len(text) > MAX_PROPERTIES:
            raise MessageRefused(f"properties of {len(text)} bytes; a record takes at most {MAX_PROPERTIES}")
        if message.queue_id < 0:
            raise MessageRefused(f"queue id {message.queue_id}")
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
    """A checked message; `size` is its TOTALSIZE (bytes), `tail` all that follows the head."""

    message: NewMessage
    topic: TopicName
    head: struct.Struct
    sys_flag: int
    tail: bytes
    size: int
    append_crc: bool

    def record(self, physical_offset: int, queue_offset: int, store_timestamp: int) -> bytes:
        """Bytes of the record at its place."""
        m = self.message
        body = m.body
        out = (
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
        return set_record_crc(out) if self.append_crc else out


def refuse_oversize(size: int, file_size: int, lead: int = 0) -> None:
    """A record has to fit into one file, together with the BLANK behind it.

    Errors: MessageRefused.
    """
    if size + lead + BLANK_SIZE > file_size:
        raise MessageRefused(f"record of {size} bytes does not fit into a file of {file_size}")
