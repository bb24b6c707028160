"""CommitLog#checkMessageAndReturnSize of each version, as a pure function over the bytes of one file.

Whatever makes the Java code throw is a failed check: the method catches Exception and returns -1.
Source: CommitLog#checkMessageAndReturnSize, MessageDecoder#string2messageProperties (RocketMQ 4.3.0 to 5.5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqstore.brokers.rules import BrokerRules, PropertyCrc
from rmqstore.formats.javatext import java_split, parse_int, parse_long, parse_short
from rmqstore.formats.message import (
    BLANK_MAGIC,
    CRC32_RESERVED_LEN,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_AT,
    body_crc,
)
from rmqstore.formats.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, SCHEDULE_TOPIC

_MAX_ARRAY = 0x7FFFFFFD  # the longest array that a Java VM allocates
DEFAULT_HEAP = 8 << 30  # bin/runserver.sh gives a broker 8 GiB

ReadAt = Callable[[int, int], bytes]
"""(size, position in the file) -> bytes, short at the end of the file."""


@dataclass(frozen=True, slots=True)
class ParserSettings:
    """The broker.conf settings that decide whether a record is valid; `heap` bounds one allocation, in bytes."""

    check_crc: bool = True
    force_property_crc: bool = False
    duplication: bool = False
    heap: int = DEFAULT_HEAP


@dataclass(frozen=True, slots=True)
class Checked:
    """The broker's verdict on the bytes at one position (DispatchRequest).

    `success` with `size` > 0 is a record, with 0 the end of the file. Without `success`, `size` is -1, or the
    TOTALSIZE of a half message (the parts do not add up), of which `parsed` bytes were read. `fatal`: the broker's
    process dies here, because it does not catch an Error. The other fields are set for records only.
    """

    size: int
    success: bool
    reason: str = ""
    fatal: bool = False
    parsed: int = 0
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    store_timestamp: int = 0
    base_offset: int = 0
    batch_size: int = 1
    multi_dispatch: Mapping[str, str] | None = None


def _fail(reason: str) -> Checked:
    return Checked(-1, False, reason)


def check_message_and_return_size(
    read: ReadAt, at: int, limit: int, rules: BrokerRules, settings: ParserSettings, *, body: bool = True
) -> Checked:
    """Return the broker's verdict on the bytes at position `at` of a file that is `limit` bytes long.

    `body=False` reads as re-dispatch does: without body, CRC and DUP_INFO.
    """
    left = limit - at
    if left <= 4 and rules.bound_checks:
        return _fail("no bytes left")
    raw = read(min(HEADS_BY_FLAG[0x30].size, left), at)
    if len(raw) < 8 or left < 8:
        return _fail("no bytes left")
    size = int.from_bytes(raw[:4], "big", signed=True)
    magic = int.from_bytes(raw[4:8], "big", signed=True)
    if left < size and rules.bound_checks:
        return _fail("the record extends beyond the end of the file")
    if size < 0 and rules.negative_size_refused:
        return _fail("negative size")
    if magic == BLANK_MAGIC:
        return Checked(0, True, "end of file")
    if magic != MAGIC_V1 and not (magic == MAGIC_V2 and rules.v2):
        return _fail(f"found a illegal magic code 0x{magic & 0xFFFFFFFF:x}")
    if size < 0:
        return _fail("negative size")
    if size > min(_MAX_ARRAY, settings.heap):
        return Checked(-1, False, "java.lang.OutOfMemoryError", fatal=True)
    try:
        return _parts(_Buffer(read, at, limit, size), raw, magic == MAGIC_V2, rules, settings, body)
    except _JavaError as e:
        return _fail(str(e))


class _JavaError(Exception):
    """An exception that the Java method throws and catches: the bytes are not a record."""


class _Buffer:
    """The ByteBuffer over the file's bytes, and the array of TOTALSIZE bytes that parts of a record are copied into."""

    __slots__ = ("at", "limit", "read", "size")

    def __init__(self, read: ReadAt, at: int, limit: int, size: int) -> None:
        self.read = read
        self.at = at
        self.limit = limit
        self.size = size

    def skip(self, length: int) -> None:
        """Advance the position (ByteBuffer#position)."""
        if self.at + length > self.limit:
            raise _JavaError("BufferUnderflowException")
        self.at += length

    def number(self, width: int) -> int:
        """Read a signed number of `width` bytes."""
        start = self.at
        self.skip(width)
        return int.from_bytes(self.read(width, start), "big", signed=True)

    def take(self, length: int) -> bytes:
        """Read bytes into the array (ByteBuffer#get)."""
        start = self.at
        if length < 0 or length > self.size:
            raise _JavaError("BufferUnderflowException")
        self.skip(length)
        return self.read(length, start)


def _parts(buffer: _Buffer, raw: bytes, v2: bool, rules: BrokerRules, settings: ParserSettings, body: bool) -> Checked:
    start, size = buffer.at, buffer.size
    if len(raw) < HEAD.size:
        raise _JavaError("BufferUnderflowException")
    flags = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big", signed=True)
    layout = HEADS_BY_FLAG[flags & 0x30 if flags & 0x30 and rules.ipv6 else 0]
    if len(raw) < layout.size or size < 8 or (size < 20 and layout is not HEAD and flags & 0x30):
        raise _JavaError("BufferUnderflowException")  # the hosts are copied into the array
    head = layout.unpack(raw)
    buffer.skip(layout.size)
    by_record_crc = settings.force_property_crc and rules.property_crc != PropertyCrc.NONE
    if head["body_length"] > 0:
        if not body:
            buffer.skip(head["body_length"])
        else:
            content = buffer.take(head["body_length"])
            if settings.check_crc and not by_record_crc and body_crc(content) != head["body_crc"]:
                return _fail("CRC check failed")
    topic = buffer.take(buffer.number(2 if v2 else 1)).decode("utf-8", "replace")
    length = buffer.number(2)
    properties: dict[str, str] = {}
    if length > 0:
        properties = parse_properties(buffer.take(length).decode("utf-8", "replace"), rules)
        if body and settings.duplication and rules.duplicate_info:
            info = properties.get("DUP_INFO")
            if info is None or len(java_split(info, "_")) != 2:
                return _fail("DupInfo in properties check failed")
        level = properties.get("DELAY")
        if topic == SCHEDULE_TOPIC and level is not None and parse_int(level) is None:
            raise _JavaError("NumberFormatException: DELAY")
    if body and settings.check_crc and by_record_crc:
        reason = _wrong_property_crc(buffer.read, buffer.at, size, properties, rules)
        if reason:
            return _fail(reason)
    if buffer.at - start != size:
        return Checked(size, False, "[BUG]read total count not equals msg total size", parsed=buffer.at - start)
    base, count = _batch(head["queue_offset"], properties, rules)
    return Checked(
        size,
        True,
        topic=topic,
        queue_id=head["queue_id"],
        queue_offset=head["queue_offset"],
        physical_offset=head["physical_offset"],
        sys_flag=flags,
        store_timestamp=head["store_timestamp"],
        base_offset=base,
        batch_size=count,
        multi_dispatch=_multi_dispatch(properties),
    )


def _batch(queue_offset: int, properties: dict[str, str], rules: BrokerRules) -> tuple[int, int]:
    """Return the first queue offset and the number of messages in a record."""
    if not ("INNER_NUM" in properties and "INNER_BASE" in properties and rules.inner_batch):
        return queue_offset, 1
    base, count = parse_long(properties["INNER_BASE"]), parse_short(properties["INNER_NUM"])
    if base is None or count is None:
        raise _JavaError("NumberFormatException: INNER_BASE or INNER_NUM")
    return base, count


def _multi_dispatch(properties: dict[str, str]) -> dict[str, str] | None:
    """Return the properties that name the light queues (LMQ) of a message, and its offsets in them."""
    found = {name: properties.get(name, "") for name in (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET)}
    return found if all(value.strip() for value in found.values()) else None


def _wrong_property_crc(read: ReadAt, end: int, size: int, properties: dict[str, str], rules: BrokerRules) -> str:
    """Return why the record CRC is wrong, or "" if it is right; `end` is the position after the properties."""
    digits = properties.get("__CRC32#")
    expected = -1
    if digits is not None:
        expected = 0
        for c in reversed(digits):
            expected = expected * 10 + ord(c) - ord("0") & 0xFFFFFFFF
        if expected >= 1 << 31:
            expected -= 1 << 32
    if expected < 0 or (expected == 0 and rules.property_crc is PropertyCrc.POSITIVE):
        return "failed to check message CRC, not found CRC in properties"
    start = end - size
    if start < 0 or size < CRC32_RESERVED_LEN:
        return "IllegalArgumentException"
    if body_crc(read(size - CRC32_RESERVED_LEN, start)) != expected:
        return "failed to check message CRC"
    return ""


def parse_properties(text: str, rules: BrokerRules) -> dict[str, str]:
    """Parse properties as the version does.

    Source: MessageDecoder#string2messageProperties; up to 4.9.0 it split each entry and required exactly two parts.
    """
    out: dict[str, str] = {}
    for entry in text.split("\x02"):
        name, separator, value = entry.partition("\x01")
        if name and value and "\x01" not in value:  # in all versions
            out[name] = value
        elif separator and rules.splits_properties:
            parts = java_split(entry, "\x01")
            if len(parts) == 2:
                out[parts[0]] = parts[1]
        elif name and value:
            out[name] = value
    return out
