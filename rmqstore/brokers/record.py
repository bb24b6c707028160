"""CommitLog#checkMessageAndReturnSize as each version does it: a pure function over the bytes of one file.

Everything that Java would throw is a failure here, as it is there: the method catches Exception and returns -1.
Source: CommitLog#checkMessageAndReturnSize, MessageDecoder#string2messageProperties (RocketMQ 4.3.0 to 5.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.brokers.rules import BrokerRules, PropertyCrc
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

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_MAX_ARRAY = 0x7FFFFFFD  # what a Java VM gives at most
DEFAULT_HEAP = 8 << 30  # bin/runserver.sh gives a broker 8 GiB

ReadAt = Callable[[int, int], bytes]
"""(size, position in the file) -> bytes, short at the end of the file."""


@dataclass(frozen=True, slots=True)
class ParserSettings:
    """The settings of broker.conf that change what a record must be; `heap` bounds one allocation, in bytes."""

    check_crc: bool = True
    force_property_crc: bool = False
    duplication: bool = False
    heap: int = DEFAULT_HEAP


@dataclass(frozen=True, slots=True)
class Checked:
    """What the broker makes of the bytes at one place.

    `size` > 0 and `success`: a record; 0 and success: end of file; not success: -1, or TOTALSIZE of a half message.
    `fatal`: the broker's process would die here (an Error is not caught). The other fields are of records only.
    """

    size: int
    success: bool
    reason: str = ""
    fatal: bool = False
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    store_timestamp: int = 0
    base_offset: int = 0
    batch_size: int = 1
    multi_dispatch: tuple[str, str] | None = None
    v2: bool = False


def _fail(reason: str, size: int = -1) -> Checked:
    return Checked(size, False, reason)


def check_message_and_return_size(
    read: ReadAt, at: int, limit: int, rules: BrokerRules, settings: ParserSettings, *, body: bool = True
) -> Checked:
    """The broker's verdict on the bytes at position `at` of a file that is `limit` bytes long.

    `body=False` is how re-dispatch reads: no body, no CRC, no DUP_INFO.
    """
    left = limit - at
    if left <= 4 and rules.bound_checks:
        return _fail("no bytes left")
    raw = read(min(HEADS_BY_FLAG[0x30].size, left), at)
    if len(raw) < 8 or left < 8:
        return _fail("no bytes left")
    size = int.from_bytes(raw[:4], "big", signed=True)
    magic = int.from_bytes(raw[4:8], "big", signed=True)
    if rules.bound_checks and left - 4 < size - 4:
        return _fail("the record is longer than what is left of the file")
    if magic == BLANK_MAGIC:
        return Checked(0, True, "end of file")
    if magic != MAGIC_V1 and not (rules.v2 and magic == MAGIC_V2):
        return _fail(f"found a illegal magic code 0x{magic & 0xFFFFFFFF:x}")
    if size < 0:
        return _fail("negative size")
    if size > min(_MAX_ARRAY, settings.heap):
        return Checked(-1, False, "java.lang.OutOfMemoryError", fatal=True)
    return _parts(read, raw, at, limit, size, magic == MAGIC_V2, rules, settings, body)


def _parts(
    read: ReadAt,
    raw: bytes,
    at: int,
    limit: int,
    size: int,
    v2: bool,
    rules: BrokerRules,
    settings: ParserSettings,
    body: bool,
) -> Checked:
    if len(raw) < HEAD.size:
        return _fail("BufferUnderflowException")
    flags = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big", signed=True)
    layout = HEADS_BY_FLAG[flags & 0x30 if rules.ipv6 else 0]
    if len(raw) < layout.size or size < 8 or (size < 20 and layout is not HEAD and flags & 0x30):
        return _fail("BufferUnderflowException")  # the hosts are copied into an array of TOTALSIZE bytes
    head = layout.parse(raw)
    body_length = head["body_length"]
    p = at + layout.size
    crc_of_body = settings.check_crc and not (settings.force_property_crc and rules.property_crc != PropertyCrc.NONE)
    if body_length > 0:
        if p + body_length > limit or (body and body_length > size):
            return _fail("BufferUnderflowException")
        if body and crc_of_body and body_crc(read(body_length, p)) != head["body_crc"]:
            return _fail("CRC check failed")
        p += body_length
    wide = 2 if v2 else 1
    topic_length = int.from_bytes(read(wide, p), "big", signed=True)
    p += wide
    if p > limit or topic_length < 0 or topic_length > size or p + topic_length + 2 > limit:
        return _fail("BufferUnderflowException")
    topic = read(topic_length, p).decode("utf-8", "replace")
    p += topic_length
    length = int.from_bytes(read(2, p), "big", signed=True)
    p += 2
    properties: dict[str, str] = {}
    if length > 0:
        if length > size or p + length > limit:
            return _fail("BufferUnderflowException")
        properties = parse_properties(read(length, p).decode("utf-8", "replace"), rules)
        p += length
        if body and settings.duplication and rules.duplicate_info:
            info = properties.get("DUP_INFO")
            if info is None or len(java_split(info, "_")) != 2:
                return _fail("DupInfo in properties check failed")
        level = properties.get("DELAY")
        if topic == SCHEDULE_TOPIC and level is not None and _parse(level, 32) is None:
            return _fail("NumberFormatException: DELAY")
    if body and settings.check_crc and settings.force_property_crc and rules.property_crc != PropertyCrc.NONE:
        reason = _wrong_property_crc(read, p, size, properties, rules)
        if reason:
            return _fail(reason)
    parts = layout.size + max(0, body_length) + wide + topic_length + 2 + max(0, length)
    if parts != size:
        return _fail("[BUG]read total count not equals msg total size", size)
    base, count = head["queue_offset"], 1
    if rules.inner_batch and "INNER_NUM" in properties and "INNER_BASE" in properties:
        parsed_base, parsed_count = _parse(properties["INNER_BASE"], 64), _parse(properties["INNER_NUM"], 16)
        if parsed_base is None or parsed_count is None:
            return _fail("NumberFormatException: INNER_BASE or INNER_NUM")
        base, count = parsed_base, parsed_count
    multi = None
    queues, offsets = properties.get("INNER_MULTI_DISPATCH", ""), properties.get("INNER_MULTI_QUEUE_OFFSET", "")
    if queues.strip() and offsets.strip():
        multi = (queues, offsets)
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
        multi_dispatch=multi,
        v2=v2,
    )


def _wrong_property_crc(read: ReadAt, end: int, size: int, properties: dict[str, str], rules: BrokerRules) -> str:
    """Why the record CRC does not fit, or nothing; `end` is the position behind the properties."""
    digits = properties.get("__CRC32#")
    expected = -1
    if digits is not None:
        expected = 0
        for c in reversed(digits):
            expected = _wrap32(expected * 10 + ord(c) - ord("0"))
    if expected < 0 or (expected == 0 and rules.property_crc is PropertyCrc.POSITIVE):
        return "failed to check message CRC, not found CRC in properties"
    start = end - size
    if start < 0 or size < CRC32_RESERVED_LEN:
        return "IllegalArgumentException"
    if body_crc(read(size - CRC32_RESERVED_LEN, start)) != expected:
        return "failed to check message CRC"
    return ""


def parse_properties(text: str, rules: BrokerRules) -> dict[str, str]:
    """The property map as the version reads it.

    Source: MessageDecoder#string2messageProperties; up to 4.9.0 it split each entry and wanted exactly two parts.
    """
    out: dict[str, str] = {}
    old = tuple(int(x) for x in rules.version.split(".")) <= (4, 9, 0)
    for entry in text.split("\x02"):
        if old:
            parts = java_split(entry, "\x01")
            if len(parts) == 2:
                out[parts[0]] = parts[1]
            continue
        at = entry.find("\x01")
        if len(entry) >= 3 and 0 < at < len(entry) - 1:
            out[entry[:at]] = entry[at + 1 :]
    return out


def java_split(text: str, separator: str) -> list[str]:
    """String#split: empty parts at the end are dropped."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not text else []


def _parse(text: str, bits: int) -> int | None:
    """Integer.parseInt and its kin: None where Java throws."""
    if _INTEGER.match(text) is None or len(text) > 40:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _wrap32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
