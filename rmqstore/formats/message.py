"""The commitlog record: message V1 and V2, and the BLANK that closes a file.

Source: MessageExtEncoder#encode, CommitLog#checkMessageAndReturnSize, MessageDecoder (RocketMQ 4.3 to 5.4.0).
A commitlog file has no header: records follow one another from byte 0, and a BLANK fills the rest of the file when the
next record does not fit. In DLedger mode the same record is the body of an entry.

Fillers: records that a repair wrote in the place of lost messages. They are not messages.

A record tells that it is a filler by the property RMQSTORE_FILLER, by a tag that begins with RMQSTORE-FILLER, by a
topic that only fillers have, or, in an op topic, by a negative number as its body. Only a filler that had no room for
any of these is unmarked; the journal of its repair lists it (`checks.filler_notes`).
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cache
from typing import TYPE_CHECKING, Any, overload

from construct import Bytes, ConstructError, IfThenElse, Int8sb, Int16sb, Int32sb, Int64sb, Rebuild, len_, this

from rmqstore.formats import properties
from rmqstore.formats.layout import Buffer, Field, Kind, Layout, Record, fixed_part
from rmqstore.texts import Text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer]
    Bools = npt.NDArray[np.bool_]


crc32: Callable[..., int]
try:
    from zlib_ng.zlib_ng import crc32  # 40 ns for a small body; isal leaves AVX-512 registers dirty, 160 ns on new CPUs
except ImportError:  # a platform without a wheel: same result, slower
    crc32 = zlib.crc32

MAGIC_V1 = -626843481  # DAA320A7
MAGIC_V2 = -626843477  # DAA320AB, RocketMQ 5.1.0 and newer: 2-byte topic length
BLANK_MAGIC = -875286124  # CBD43194
MAGIC_V1_U32 = MAGIC_V1 & 0xFFFFFFFF
MAGIC_V2_U32 = MAGIC_V2 & 0xFFFFFFFF
BLANK_MAGIC_U32 = BLANK_MAGIC & 0xFFFFFFFF
BLANK_SIZE = 8

COMPRESSED = 0x1
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE_MASK = 0x700

CRC32_RESERVED_LEN = 20
CRC32_PROPERTY = b"__CRC32#\x01"
MAX_TOPIC_V1 = 127
MAX_PORT = 0xFFFF
MAX_PROPERTIES = 32767

BLANK = Layout(
    "blank",
    "CommitLog.DefaultAppendMessageCallback#doAppend, RocketMQ 5.4.0",
    Field("size", Int32sb, "Bytes left in the file, counted from this record's start.", "bytes"),
    Field("magic", Int32sb, "BLANK_MAGIC_CODE (CBD43194).", const=BLANK_MAGIC),
    about="End of a commitlog file. The bytes after these 8 are undefined.",
)


def _host(v6_bit: int) -> Kind:
    """Declare a host: an address of 4 bytes, or 16 if the SYSFLAG bit is set, and a port of 4 bytes."""
    return IfThenElse(this.sys_flag & v6_bit, Bytes(20), Bytes(8))


def _counted(length: Any) -> Kind:
    """Declare a part with a length field; like the broker, treat a negative length as an empty part."""
    return IfThenElse(length > 0, Bytes(length), Bytes(0))


MESSAGE = Record(
    "message",
    "MessageExtEncoder#encode, MessageDecoder#decode, RocketMQ 5.4.0",
    Field("size", Int32sb, "TOTALSIZE: the whole record.", "bytes"),
    Field("magic", Int32sb, "MESSAGE_MAGIC_CODE: DAA320A7 (V1) or DAA320AB (V2)."),
    Field("body_crc", Int32sb, "CRC-32 of the stored body, top bit cleared; 0 for an empty body."),
    Field("queue_id", Int32sb, "Queue of the topic."),
    Field("flag", Int32sb, "Flag set by the producer; not interpreted."),
    Field("queue_offset", Int64sb, "Position in the consume queue; 0 for prepared and rollback.", "units"),
    Field("physical_offset", Int64sb, "The record's own position in the commitlog.", "bytes"),
    Field("sys_flag", Int32sb, "MessageSysFlag: compression, transaction, IPv6 and batch bits."),
    Field("born_timestamp", Int64sb, "Producer's clock at send.", "ms"),
    Field("born_host", _host(BORN_HOST_V6), "Producer's address and port."),
    Field("store_timestamp", Int64sb, "Broker's clock at append.", "ms"),
    Field("store_host", _host(STORE_HOST_V6), "Broker's address and port."),
    Field("reconsume_times", Int32sb, "How often consumption was retried.", "times"),
    Field("prepared_transaction_offset", Int64sb, "Position of the half message, else 0.", "bytes"),
    Field("body_length", Rebuild(Int32sb, len_(this.body)), "Length of the body that follows.", "bytes"),
    Field("body", _counted(this.body_length), "The body, compressed if SYSFLAG says so."),
    Field(
        "topic_length",
        Rebuild(IfThenElse(this.magic == MAGIC_V2, Int16sb, Int8sb), len_(this.topic)),
        "Length of the topic: one byte in V1, two in V2.",
        "bytes",
    ),
    Field("topic", Bytes(this.topic_length), "The topic in UTF-8."),
    Field("properties_length", Rebuild(Int16sb, len_(this.properties)), "Length of the properties.", "bytes"),
    Field("properties", _counted(this.properties_length), "NAME 0x01 VALUE 0x02 for each property, in UTF-8."),
    about="The positions apply to IPv4 hosts (8 bytes each). SYSFLAG marks each host that is IPv6 (20 bytes).",
)
"""The record as RocketMQ writes it: V1 and V2, IPv4 and IPv6 hosts."""


@cache
def head(born_v6: bool = False, store_v6: bool = False) -> Layout:
    """Return the fixed part of a record, up to the body, for one combination of address families."""
    return fixed_part(
        MESSAGE,
        "message",
        Text("Followed by body, topic length (1 byte, V2: 2), topic, properties length (2 bytes), properties."),
        sys_flag=(BORN_HOST_V6 if born_v6 else 0) | (STORE_HOST_V6 if store_v6 else 0),
    )


HEAD = head()
HEADS_BY_FLAG = {0: head(), 0x10: head(True, False), 0x20: head(False, True), 0x30: head(True, True)}
MIN_SIZE = HEAD.size + 1 + 2  # V1 with empty body, topic and properties
SYS_FLAG_AT = HEAD.at("sys_flag")
PHYSICAL_OFFSET_AT = HEAD.at("physical_offset")


class NewerRecords(IntFlag):
    """Kinds of records that only newer brokers read."""

    NONE = 0
    V2 = 1  # magic of version 2: RocketMQ 5.1.0 and newer
    IPV6 = 2  # IPv6 address of the producer or broker: RocketMQ 4.6.0 and newer


class Fault(IntEnum):
    """The first check that a record fails, in this order."""

    NONE = 0
    SHORT = 1  # fewer bytes left than the smallest record has
    MAGIC = 2  # neither V1, V2 nor BLANK
    SIZE = 3  # TOTALSIZE is smaller than any record, or exceeds the file
    LENGTHS = 4  # the parts do not add up to TOTALSIZE ("half message")
    PHYSICAL_OFFSET = 5  # the record was written for another position: stale or copied
    BODY_CRC = 6
    RECORD_CRC = 7  # the property __CRC32#
    TOPIC = 8  # empty or invalid UTF-8
    PROPERTIES = 9  # bad syntax or invalid UTF-8
    ENTRY_MAGIC = 11  # from here to ENTRY_TERM: the header of the DLedger entry around the record
    ENTRY_SIZE = 12
    ENTRY_POS = 13
    ENTRY_INDEX = 14
    ENTRY_TERM = 15
    BLANK = 16  # a BLANK in a place where consume queues refer to messages
    UNREADABLE = 30  # reading from the disk failed


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded record; names and units as in `MESSAGE`, with the body as stored."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    topic: bytes
    properties: bytes
    body: bytes

    @property
    def transaction_type(self) -> int:
        """The transaction bits: 0 none, 4 prepared, 8 commit, 12 rollback (MessageSysFlag#getTransactionValue)."""
        return self.sys_flag & TRANSACTION_MASK

    @property
    def is_dispatched(self) -> bool:
        """Whether the broker dispatches the message to its consume queue."""
        return is_dispatched(self.sys_flag)

    @property
    def carries_crc(self) -> bool:
        """Whether the record ends with the property __CRC32#."""
        return ends_with_crc(self.properties)

    @property
    def topic_text(self) -> str:
        """The topic, with bytes that are not UTF-8 as escapes."""
        return self.topic.decode("utf-8", "backslashreplace")

    def offset_message_id(self) -> str:
        """Return the offset message id: store host and PHYSICALOFFSET in upper-case hex."""
        from rmqstore.formats.messageid import offset_message_id

        return offset_message_id(self.store_host, self.physical_offset)


@overload
def is_dispatched(sys_flag: int) -> bool: ...
@overload
def is_dispatched(sys_flag: Ints) -> Bools: ...
def is_dispatched(sys_flag: int | Ints) -> bool | Bools:
    """Return whether a queue gets a message: neither a prepared one nor a rollback. Numbers or arrays.

    Source: CommitLogDispatcherBuildConsumeQueue#dispatch
    """
    transaction = sys_flag & TRANSACTION_MASK
    return (transaction != TRANSACTION_PREPARED) & (transaction != TRANSACTION_ROLLBACK)


def body_crc(body: Buffer) -> int:
    """Compute BODYCRC of a body as stored: CRC-32 with the top bit cleared, 0 for an empty body.

    Source: UtilAll#crc32
    """
    return int(crc32(body)) & 0x7FFFFFFF if len(memoryview(body)) else 0


def record_size(body: int, topic: int, properties: int, *, v2: bool = False, sys_flag: int = 0) -> int:
    """Compute TOTALSIZE of a record from the lengths of its parts, in bytes.

    Source: MessageExtEncoder#calMsgLength
    """
    return HEADS_BY_FLAG[sys_flag & 0x30].size + max(0, body) + (2 if v2 else 1) + topic + 2 + max(0, properties)


def host_text(raw: bytes) -> str:
    """Format a stored host (8 or 20 bytes) as `ip:port`, with IPv6 in brackets."""
    port = int.from_bytes(raw[-4:], "big", signed=True)
    if len(raw) == 8:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{port}"
    return f"[{ipaddress.IPv6Address(raw[:16])}]:{port}"


def sound_host(raw: bytes) -> bytes:
    """Clear the upper two of the port's four bytes, which are zero in every valid port."""
    return raw[:-4] + bytes(2) + raw[-2:]


def host_bytes(text: str) -> bytes:
    """Convert `ip:port` or `[ip]:port` to its stored form.

    Errors: ValueError for any other text.
    """
    host, _, port = text.rpartition(":")
    return ipaddress.ip_address(host.strip("[]")).packed + int(port).to_bytes(4, "big", signed=True)


def parse_message(data: Buffer, at: int = 0) -> tuple[Message | None, Fault]:
    """Parse the record at `at`; it is returned if its parts lie within the data and add up to TOTALSIZE.

    Checks magic, size and lengths, in this order; `check_message` checks PHYSICALOFFSET and the CRC.
    """
    view = memoryview(data)
    left = len(view) - at
    if left < BLANK_SIZE:
        return None, Fault.SHORT
    size = int.from_bytes(view[at : at + 4], "big", signed=True)
    magic = int.from_bytes(view[at + 4 : at + 8], "big", signed=True)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return None, Fault.MAGIC
    if not MIN_SIZE <= size <= left:
        return None, Fault.SIZE
    try:
        values = MESSAGE.parse(view, at, size)
    except ConstructError:  # a part extends past the record, or a length is negative
        return None, Fault.LENGTHS
    lengths = (values["body_length"], values.pop("topic_length"), values.pop("properties_length"))
    if record_size(*lengths, v2=magic == MAGIC_V2, sys_flag=values["sys_flag"]) != size:
        return None, Fault.LENGTHS
    return Message(**values), Fault.NONE


def record_crc(data: Buffer, at: int, size: int) -> tuple[int | None, int]:
    """Return the stored record CRC (None if the record does not end with `__CRC32#`) and the computed one.

    Source: MessageDecoder#createCrc32, which stores the decimal digits in reverse order
    """
    view = memoryview(data)
    computed = int(crc32(view[at : at + size - CRC32_RESERVED_LEN])) & 0x7FFFFFFF
    tail = bytes(view[at + size - CRC32_RESERVED_LEN : at + size])
    digits = tail[9:19]
    if not tail.startswith(CRC32_PROPERTY) or not digits.isdigit():
        return None, computed
    return int(digits[::-1]), computed


def check_message(message: Message, offset: int | None) -> Fault:
    """Return the first fault of a parsed message: PHYSICALOFFSET (unless `offset` is None), body CRC, empty topic."""
    if offset is not None and message.physical_offset != offset:
        return Fault.PHYSICAL_OFFSET
    if message.body_length > 0 and body_crc(message.body) != message.body_crc:
        return Fault.BODY_CRC
    if not message.topic:
        return Fault.TOPIC
    return Fault.NONE


def build_message(  # noqa: PLR0913 - one for each field of a record
    *,
    topic: str | bytes,
    body: bytes = b"",
    properties: bytes = b"",
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0",
    store_timestamp: int = 0,
    store_host: bytes = b"\x7f\0\0\1\0\0\0\0",
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    v2: bool = False,
    append_crc: bool = False,
) -> bytes:
    """Return the bytes of one record as the broker encodes it; the hosts' address families set the SYSFLAG bits.

    `append_crc` adds the record CRC in the last 20 bytes (enabledAppendPropCRC), after a separator if the other
    properties do not end with one.
    Errors: ValueError for a topic or properties that are too long for their length fields.
    Source: MessageExtEncoder#encode
    """
    name = topic.encode() if isinstance(topic, str) else topic
    if len(name) > (32767 if v2 else MAX_TOPIC_V1):
        raise ValueError(Text("topic of {count} bytes", count=len(name)))
    if append_crc:
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += b"\0" * CRC32_RESERVED_LEN
    if len(properties) > MAX_PROPERTIES:
        raise ValueError(Text("properties of {count} bytes", count=len(properties)))
    sys_flag = (sys_flag & ~0x30) | (0x10 if len(born_host) == 20 else 0) | (0x20 if len(store_host) == 20 else 0)
    record = MESSAGE.build(
        size=record_size(len(body), len(name), len(properties), v2=v2, sys_flag=sys_flag),
        magic=MAGIC_V2 if v2 else MAGIC_V1,
        body_crc=body_crc(body),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=name,
        properties=properties,
    )
    return set_record_crc(record) if append_crc else record


def ends_with_crc(text: bytes) -> bool:
    """Return whether a property text ends with the property __CRC32#."""
    return text[-CRC32_RESERVED_LEN:].startswith(CRC32_PROPERTY)


def fits_record_crc(data: Buffer, at: int = 0) -> bool:
    """Return whether the record from `at` to the end of the data has the right record CRC, or none."""
    stored, computed = record_crc(data, at, len(data) - at)
    return stored in (None, computed)


def set_record_crc(record: bytes) -> bytes:
    """Replace the last 20 bytes of a record by its CRC: `__CRC32#`, 0x01, ten digits in reverse order, 0x02."""
    value = int(crc32(record[:-CRC32_RESERVED_LEN])) & 0x7FFFFFFF
    digits = f"{value:010d}".encode()[::-1]
    return record[:-CRC32_RESERVED_LEN] + CRC32_PROPERTY + digits + b"\x02"


def build_blank(size: int) -> bytes:
    """Return the 8 bytes of a BLANK; `size` is the number of bytes left in the file."""
    return BLANK.build(size=size)


WORD = b"RMQSTORE"
"""Eight bytes that the property text of every filler with a mark in it contains."""
FILLER_KEY = "RMQSTORE_FILLER"
"""Property that marks a filler. Its value is the length in bytes."""
UNKNOWN_KEY = "RMQSTORE_UNKNOWN"
"""Property of a message whose body a repair kept; its value names what of the message is unknown."""
FILLER_TAG = "RMQSTORE-FILLER"
"""Tag of a filler without a given tags code; a tag for a given code begins with this text."""
FILLER_TOPICS = (b"RMQSTORE_FILLER", b"_")
"""Topics of fillers that no broker dispatches to a queue."""
OP_TOPICS = (properties.OP_HALF_TOPIC, properties.ROCKSDB_OP_HALF_TOPIC)
OP_BODY = b"-"
"""First byte of the body of a filler in an op topic; queue offsets, which brokers write, are not negative."""


def is_filler(message: Message) -> bool:
    """Return whether a record tells that it is a filler."""
    rolled_back = message.transaction_type == TRANSACTION_ROLLBACK
    if rolled_back and message.topic in FILLER_TOPICS and len(message.properties) <= CRC32_RESERVED_LEN:
        return True  # a client's message has an id
    if message.body[:1] == OP_BODY and message.topic_text in OP_TOPICS:
        return True
    return WORD in message.properties and is_filler_text(message.properties)


def is_filler_text(text: bytes) -> bool:
    """Return whether a property text has the mark of a filler."""
    found = properties.parse_properties(text)
    return FILLER_KEY in found or found.get(properties.TAGS, "").startswith(FILLER_TAG)
