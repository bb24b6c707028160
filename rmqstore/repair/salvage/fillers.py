"""Fillers: valid records of an exact length that replace damaged ones, and that every reader can process safely.

A *visible* filler keeps a queue offset: it has topic, queue and queue offset of the lost message. An *unseen* one is a
rollback record, which no broker dispatches. A filler in a system topic must satisfy the service that reads it:

* SCHEDULE_TOPIC_XXXX: REAL_TOPIC is the half topic, which the delivery service discards (`[BUG] the real topic of
  schedule msg is …, discard`); without a valid REAL_TOPIC and REAL_QID, the delay level of a 4.9 broker would stop.
* half topic: TRANSACTION_CHECK_TIMES above any transactionCheckMax, so that the check discards it.
* op topic: tag `d` and a negative number as body; 4.9 parses the body as one number and fails on an empty body.
* wheel timer: due at once, and a delete request, which is never delivered.
* POP revive log: none of the tags `ck`, `ack` and `bAck`, so that it is skipped; but 5.1 requires a delivery time in
  every message, and without one reads the same queue offset forever (`revive error`).

Source: ScheduleMessageService, TransactionalMessageServiceImpl#check, #fillOpRemoveMap, TimerMessageStore#enqueue,
#doPut, PopReviveService#consumeReviveMessage (4.9.7 to 5.4.0), HookUtils#checkBeforePutMessage (no empty bodies).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmqstore.formats import properties, services
from rmqstore.formats.message import (
    CRC32_RESERVED_LEN,
    FILLER_KEY,
    FILLER_TAG,
    FILLER_TOPICS,
    MAGIC_V2,
    MAX_TOPIC_V1,
    OP_TOPICS,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Message,
    build_message,
    record_size,
    sound_host,
)
from rmqstore.repair.salvage.evidence import QueueSlot
from rmqstore.repair.salvage.places import Around
from rmqstore.texts import Text

UNSEEN_TOPIC, SHORT_UNSEEN_TOPIC = FILLER_TOPICS
SMALLEST = record_size(0, len(SHORT_UNSEEN_TOPIC), 0)
"""Length of the shortest filler in bytes."""

LARGEST_UNSEEN = 1 << 20
"""Maximum length in bytes; less than maxMessageSize, and than the 4 MiB of a DLedger entry."""

_COMPRESSION = 0x701  # the compressed bit and the compression type
_BATCH_BITS = 0xC0  # need-unwrap and inner-batch
_BODIES = (
    b'{"rmqstore": "filler", "why": "the original message was damaged; its bytes are in lost+found"}',
    b'{"rmqstore": "filler"}',
    b"{}",
    b" ",
)
_OP_TAG = "d"
_DISCARDED = properties.HALF_TOPIC
_NOBODY = "SELF_TEST_TOPIC"


def smallest_visible(slot: QueueSlot) -> int:
    """Return the length of the shortest visible filler for a slot in bytes."""
    needed = min(len(properties.build_properties(p, last_separator=False)) for p in needed_properties(slot))
    topic = slot.topic.encode()
    return record_size(_least_body(slot.topic), len(topic), needed, v2=len(topic) > MAX_TOPIC_V1)


def build_visible(
    slot: QueueSlot, at: int, length: int, around: Around, old: Message | None = None
) -> tuple[bytes, str] | None:
    """Build a record of exactly `length` bytes at global offset `at` that keeps a slot; None if it cannot fit.

    Also return how a consumer can recognize it: "property", "tag", or "" for not at all.
    `old` is the damaged record if its header and properties are sound: the filler keeps them, and replaces the body.
    """
    topic = slot.topic.encode()
    fields: dict[str, Any] = {
        "topic": topic,
        "queue_id": slot.queue_id,
        "queue_offset": slot.queue_offset,
        "physical_offset": at,
        "born_timestamp": around.store_timestamp,
        "store_timestamp": around.store_timestamp,
        "v2": len(topic) > MAX_TOPIC_V1,
    }
    hosts = [(bytes([127, 0, 0, 1, 0, 0, 0, 0]), around.store_host)]
    if old is not None:
        fields |= _kept_fields(old)
        fields["v2"] |= old.magic == MAGIC_V2
        hosts.insert(0, (old.born_host, old.store_host))
    for pairs, marked in _choices(slot, _kept_properties(old), length, around):
        for born_host, store_host in hosts:
            fields |= {"born_host": sound_host(born_host), "store_host": sound_host(store_host)}
            for crc in (True, False) if around.append_crc else (False,):
                record = _fit(slot.topic, length, pairs, fields, crc=crc)
                if record is not None:
                    return record, marked
    return None


def build_unseen(at: int, length: int, around: Around) -> bytes:
    """Build a record of exactly `length` bytes that no broker dispatches to a queue or to the index.

    Errors: ValueError if `length` is below `SMALLEST`.
    """
    mark = properties.build_properties({FILLER_KEY: str(length)}, last_separator=True)
    for topic in (UNSEEN_TOPIC, SHORT_UNSEEN_TOPIC):
        for text in (mark, b""):
            for crc in (True, False) if around.append_crc else (False,):
                body = length - record_size(0, len(topic), len(text) + CRC32_RESERVED_LEN * crc)
                if body >= 0:
                    return build_message(
                        topic=topic,
                        body=bytes(body),
                        properties=text,
                        physical_offset=at,
                        sys_flag=TRANSACTION_ROLLBACK,
                        born_timestamp=around.store_timestamp,
                        store_timestamp=around.store_timestamp,
                        store_host=around.store_host,
                        append_crc=crc,
                    )
    raise ValueError(Text("a record cannot be as short as {length} bytes", length=length))


def tag_with_code(code: int, prefix: str = FILLER_TAG + "-") -> str | None:
    """Return a tag with a prefix and a given tags code; None for a code that is not a hash.

    The unit stays valid for brokers, which filter by code, and clients, which compare the text, drop the filler.
    """
    if not -(1 << 31) <= code < 1 << 31 or code == 0:
        return None
    target = (code - properties.java_string_hash(prefix) * 31**_DIGITS) % (1 << 32)
    for turn in range(64):
        rest, text = target + (turn << 32) - sum(_FIRST * 31**k for k in range(_DIGITS)), prefix
        for k in reversed(range(_DIGITS)):  # the rest in base 31, with digits up to 74
            digit = max(0, min(rest // 31**k, _LAST - _FIRST))
            rest -= digit * 31**k
            text += chr(_FIRST + digit)
        if rest == 0 and "\\" not in text[len(prefix) :]:  # JSON would escape it
            return text
    return None


_FIRST, _LAST = 0x30, 0x7A  # '0' to 'z'
_DIGITS = 7  # 75**7 texts for 2**32 codes


def _kept_fields(old: Message) -> dict[str, int]:
    """Return the fields of a damaged record that its filler keeps."""
    flags = old.sys_flag & ~(_COMPRESSION | _BATCH_BITS | 0x30)
    return {
        "flag": old.flag,
        "sys_flag": flags if old.is_dispatched else flags & ~TRANSACTION_MASK,
        "born_timestamp": old.born_timestamp,
        "reconsume_times": max(0, old.reconsume_times),
        "prepared_transaction_offset": old.prepared_transaction_offset,
    }


def _kept_properties(old: Message | None) -> dict[str, str]:
    """Return the properties of a damaged record that its filler keeps; none if their text is damaged."""
    if old is None or properties.property_faults(old.properties):
        return {}
    kept = properties.parse_properties(old.properties)
    kept.pop(properties.CRC32, None)
    kept.pop(FILLER_KEY, None)
    return kept


def _least_body(topic: str) -> int:
    """Return the minimum body length: brokers cannot store an empty body again, and 4.9 parses an op body."""
    if topic in OP_TOPICS:
        return 2
    return 1 if properties.is_system_topic(topic) else 0


def needed_properties(slot: QueueSlot) -> Iterator[dict[str, str]]:
    """Yield the properties that the readers of a topic require, the best set first."""
    base: dict[str, str] = {}
    if slot.count:
        base = {properties.INNER_BASE: str(slot.queue_offset), properties.INNER_NUM: str(slot.count)}
    if slot.fan_out:
        base[properties.INNER_MULTI_DISPATCH] = ",".join(name for name, _ in slot.fan_out)
        base[properties.INNER_MULTI_QUEUE_OFFSET] = ",".join(str(offset) for _, offset in slot.fan_out)
    if slot.topic == properties.SCHEDULE_TOPIC:
        place = {properties.REAL_QUEUE_ID: "0", properties.DELAY: str(slot.queue_id + 1)}
        yield base | {properties.REAL_TOPIC: _DISCARDED} | place
        yield base | {properties.REAL_TOPIC: "TBW102"} | place
    elif slot.topic in (properties.HALF_TOPIC, properties.ROCKSDB_HALF_TOPIC):
        discard = {properties.TRANSACTION_CHECK_TIMES: services.NEVER_CHECKED}
        yield base | discard | {properties.REAL_TOPIC: _NOBODY, properties.REAL_QUEUE_ID: "0"}  # for metrics
        yield base | discard
    elif slot.topic in OP_TOPICS:
        yield base | {properties.TAGS: _OP_TAG}
    elif slot.topic == properties.TIMER_TOPIC:
        due = {properties.TIMER_OUT_MS: "1", properties.REAL_TOPIC: _NOBODY, properties.REAL_QUEUE_ID: "0"}
        yield base | due | {properties.TIMER_DEL_UNIQKEY: "_"}
        yield base | due
    elif slot.topic.startswith(properties.REVIVE_TOPIC_PREFIX):
        yield base | {properties.TIMER_DELIVER_MS: "1"}
        yield base
    else:
        yield base


def _choices(
    slot: QueueSlot, kept: Mapping[str, str], length: int, around: Around
) -> Iterator[tuple[dict[str, str], str]]:
    """Yield (properties, `marked`) from the most to the fewest properties; those that fit the unit come first."""
    mark = {FILLER_KEY: str(length)}
    own_tag = slot.topic in OP_TOPICS
    more = {properties.DUP_INFO: "0_0"} if around.dup_info else {}
    tags: list[dict[str, str]] = [{}] if own_tag else list(_tags(slot))
    for needed in needed_properties(slot):
        needed = needed | more
        old = {k: v for k, v in kept.items() if k not in needed}
        if slot.topic.startswith(properties.REVIVE_TOPIC_PREFIX):
            old.pop(properties.TAGS, None)
        if old and (own_tag or slot.fits_tags(old.get(properties.TAGS))):
            yield {**old, **needed, **mark}, "property"
        old.pop(properties.TAGS, None)
        for right in (True, False):
            some = [tag for tag in tags if own_tag or slot.fits_tags(tag.get(properties.TAGS)) is right]
            for tag in some if old else ():
                yield {**old, **needed, **tag, **mark}, "property"
            for tag in some:
                yield {**needed, **tag, **mark}, "property"
        for tag in tags:
            if tag:
                yield {**needed, **tag}, "tag" if tag[properties.TAGS].startswith(FILLER_TAG) else ""
        yield needed, ""


def _tags(slot: QueueSlot) -> Iterator[dict[str, str]]:
    """Yield TAGS with the unit's tags code, then no TAGS."""
    code = slot.tags_code
    if slot.topic == properties.SCHEDULE_TOPIC:
        yield {}
        return
    if code is None:
        yield {properties.TAGS: FILLER_TAG}
    elif code:
        for prefix in (FILLER_TAG + "-", ""):
            tag = tag_with_code(code, prefix)
            if tag is not None:
                yield {properties.TAGS: tag}
    yield {}


def _fit(topic: str, length: int, pairs: Mapping[str, str], fields: Mapping[str, Any], *, crc: bool) -> bytes | None:
    """Build the filler with these properties; None if it would be too long."""
    families = 0x10 * (len(fields["born_host"]) == 20) | 0x20 * (len(fields["store_host"]) == 20)
    text = properties.build_properties(pairs, last_separator=crc)
    size = len(text) + CRC32_RESERVED_LEN * crc
    room = length - record_size(0, len(fields["topic"]), size, v2=fields["v2"], sys_flag=families)
    if size > 32767 or room < _least_body(topic):
        return None
    return build_message(body=_body(topic, room), properties=text, append_crc=crc, **fields)


def _body(topic: str, room: int) -> bytes:
    """Return a body of exactly `room` bytes: an explanation in JSON, padded with spaces; for the op topic a number."""
    if topic in OP_TOPICS:
        return b"-" + b"0" * (room - 2) + b"1"
    for text in _BODIES:
        if len(text) <= room:
            return text.ljust(room)
    return b""
