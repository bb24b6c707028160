"""Keep a message whose body is whole, although its topic or its properties are damaged.

A lost page leaves zero bytes over a part of a record. If that part lies after the body, TOTALSIZE and the CRC of the
body prove the message, and its unit, or the records around it, its place. The record keeps its size, so that every
other offset stays valid, and these properties:

* those that can still be read;
* those that follow from its place: of the batch, and of light queues;
* TAGS: those that can be read, if they fit the unit; otherwise those of another message of the topic with the same
  tags code. If there is none, TAGS are made that have this code, so that the unit stays valid;
* `RMQSTORE_UNKNOWN`, which names what is unknown, and fills the rest.

Messages of system topics are not kept, because the services that read them need the true properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqstore.formats import consumequeue, properties
from rmqstore.formats.halfrecord import message_with_body
from rmqstore.formats.message import (
    CRC32_RESERVED_LEN,
    HEADS_BY_FLAG,
    INNER_BATCH,
    MAGIC_V2,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    UNKNOWN_KEY,
    Message,
    check_message,
    parse_message,
    set_record_crc,
)
from rmqstore.repair.salvage.candidates import Kept, changed_fields, mend_properties
from rmqstore.repair.salvage.evidence import Expected, QueueSlot, key_of
from rmqstore.repair.salvage.fillers import needed_properties, tag_with_code
from rmqstore.repair.salvage.known_tags import KnownTags
from rmqstore.texts import Text

UNPROVED = Text("its properties are unknown")
_MADE_TAG = "RMQSTORE_UNKNOWN-"
_LOST_BYTES = bytes(8)
"""Zero bytes that no property contains, and that a lost page leaves."""
_TEXT, _TAGS = "properties", "TAGS"


def keep_body(raw: bytes, at: int, expected: Expected, tags: KnownTags, *, append_crc: bool) -> Kept | None:
    """Return a record with the body of a damaged one, at global offset `at`; None unless body and place are proved.

    `append_crc`: the broker writes record CRCs.
    """
    slot, message = expected.slot, message_with_body(raw)
    if message is None or message.size != len(raw) or expected.size not in (None, len(raw)):
        return None
    place = message.queue_id, message.queue_offset, message.physical_offset
    if place != (slot.queue_id, slot.queue_offset, at) or not message.is_dispatched:
        return None
    if message.topic and message.topic_text != slot.topic:
        return None
    record = _rebuilt(raw, message, slot, tags, append_crc=append_crc)
    return None if record is None else Kept(record, changed_fields(raw, record), unproved=UNPROVED)


def mend_text(raw: bytes, slot: QueueSlot, tags: KnownTags) -> Kept | None:
    """Give a framed record with a damaged property text a sound one; its TAGS fit the tags code of its slot.

    Single wrong bytes are replaced; after a lost page, all damaged properties. None if that is not possible.
    """
    mended = mend_properties(raw, slot.tags_code)
    framed, _ = parse_message(raw)
    if framed is None or (mended is not None and not mended.unproved):
        return mended
    after, _ = parse_message(mended.record) if mended is not None else (None, 0)
    has = properties.parse_properties(after.properties).get(properties.TAGS) if after is not None else None
    if after is not None and slot.fits_tags(has) and _LOST_BYTES not in framed.properties:
        return mended
    message = message_with_body(raw)
    if message is None or key_of(message) != slot.key:
        return mended
    record = _rebuilt(raw, message, slot, tags, append_crc=framed.carries_crc)
    return mended if record is None else Kept(record, (_TEXT,), unproved=UNPROVED)


def _rebuilt(raw: bytes, message: Message, slot: QueueSlot, tags: KnownTags, *, append_crc: bool) -> bytes | None:
    """Return the record with the topic of its slot and properties of the same length as before; None without room."""
    topic, wide = slot.topic.encode(), 2 if message.magic == MAGIC_V2 else 1
    if properties.is_system_topic(slot.topic) or (message.sys_flag & INNER_BATCH and not slot.count):
        return None
    if wide == 1 and len(topic) > MAX_TOPIC_V1:
        return None
    front = raw[: HEADS_BY_FLAG[message.sys_flag & 0x30].size + len(message.body)]
    front += len(topic).to_bytes(wide, "big") + topic
    room = len(raw) - len(front) - 2
    if not 0 <= room <= MAX_PROPERTIES:
        return None
    for crc in (True, False) if append_crc else (False,):
        text = _text(message, slot, tags, room - CRC32_RESERVED_LEN * crc, ends_open=not crc)
        if text is None:
            continue
        record = front + room.to_bytes(2, "big") + text + bytes(CRC32_RESERVED_LEN * crc)
        record = set_record_crc(record) if crc else record
        rebuilt, _ = parse_message(record)
        if rebuilt is not None and not check_message(rebuilt, message.physical_offset).value:
            return record
    return None


def _text(message: Message, slot: QueueSlot, tags: KnownTags, room: int, *, ends_open: bool) -> bytes | None:
    """Return a property text of exactly `room` bytes, with as many of the known properties as fit."""
    for pairs, unknown in _choices(message, slot, tags):
        text = properties.build_properties(pairs, last_separator=True) if pairs else b""
        mark = f"{UNKNOWN_KEY}\x01{unknown}".encode()
        left = room - len(text) - len(mark) - (not ends_open)
        if left >= 0:
            return text + mark + b" " * left + (b"" if ends_open else b"\x02")
    return None


def _choices(message: Message, slot: QueueSlot, tags: KnownTags) -> Iterator[tuple[Mapping[str, str], str]]:
    """Yield (properties, names of what is unknown), from the most to the fewest properties."""
    found = properties.parse_properties(message.properties)
    for name in (properties.CRC32, UNKNOWN_KEY):
        found.pop(name, None)
    own, unknown = _tags(found.get(properties.TAGS), slot, tags)
    found.pop(properties.TAGS, None)
    for needed in needed_properties(slot):
        for kept in (found, {}):
            yield {**kept, **own, **needed}, unknown


def _tags(has: str | None, slot: QueueSlot, tags: KnownTags) -> tuple[dict[str, str], str]:
    """Return the TAGS of a message, and the names of what is unknown."""
    code = slot.tags_code
    if code is None or consumequeue.is_ext_address(code):
        return ({} if has is None else {properties.TAGS: has}), _TEXT
    if has is not None and properties.tags_code(has) == code:
        return {properties.TAGS: has}, _TEXT
    if code == 0:
        return {}, _TEXT
    known = tags.of(slot.topic, code)
    if known is not None:
        return {properties.TAGS: known}, _TEXT
    made = tag_with_code(code, _MADE_TAG)
    return ({} if made is None else {properties.TAGS: made}), f"{_TEXT} {_TAGS}"
