"""Candidates for a damaged record: its fields set to what witnesses say, where all checksums then fit.

A candidate must frame, fit its body CRC (and record CRC, where it has one), and say the queue position that its consume
queue unit or its neighbours prove.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import (
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_V1,
    Fault,
    Message,
    body_crc,
    check_message,
    parse_message,
    record_crc,
    set_record_crc,
)
from rmqstore.repair.salvage.candidates.edit import Mended, changed_fields, put, sound_ports
from rmqstore.repair.salvage.candidates.flipped_bit import body_crc_one_bit_off, unflip_beside_body
from rmqstore.repair.salvage.candidates.sysflag import UNPROVED, dispatched_flag, is_garbage, provable_flag
from rmqstore.repair.salvage.evidence.places import Around
from rmqstore.repair.salvage.evidence.values import Expected, QueueSlot

_DAY = 86_400_000
_FAR = 1 << 40  # bytes; no record of this log, but a damaged PHYSICALOFFSET


def is_another_one(message: Message, at: int, slot: QueueSlot) -> bool:
    """Whether a framed record is a sound one of another place and of another message than the expected one: a file that
    was swapped, a misdirected write. To correct its header would give consumers the wrong message.
    """
    own = (message.topic_text, message.queue_id, message.queue_offset)
    if own == slot.key or message.physical_offset == at:
        return False
    near = 0 <= message.physical_offset < at + _FAR
    return near and check_message(message, message.physical_offset) is Fault.NONE


def _begins_another_one(raw: bytes, at: int, slot: QueueSlot) -> bool:
    """Whether another record begins there; of a longer one only its header can be asked."""
    framed, _ = parse_message(raw)
    if framed is not None and is_another_one(framed, at, slot):
        return True
    head = HEAD.parse(raw)
    elsewhere = head["physical_offset"] != at and 0 < head["physical_offset"] < at + _FAR
    other = (head["queue_id"], head["queue_offset"]) != (slot.queue_id, slot.queue_offset)
    return head["magic"] in (MAGIC_V1, MAGIC_V2) and head["size"] != len(raw) and elsewhere and other


def mend_fields(raw: bytes, at: int, expected: Expected | None, around: Around) -> Mended | None:
    """The record that `raw` (all of its bytes, at global offset `at`) once was, if that can be proved.

    Everything that the unit of an expected message says is put back. The proof is the body CRC.
    """
    if len(raw) < HEAD.size + 3 or (expected is not None and _begins_another_one(raw, at, expected.slot)):
        return None
    for candidate in _candidates(raw, at, expected):
        message, _ = parse_message(candidate)
        if message is None or message.size != len(raw) or not _agrees(message, at, expected):
            continue
        out = bytearray(candidate)
        if message.body_crc != body_crc(message.body):
            if (
                not body_crc_one_bit_off(message) or candidate != raw
            ):  # where more was changed, the body CRC is the only proof
                continue
            put(out, "body_crc", body_crc(message.body))  # one bit of the stored CRC; a body's damage changes more
        elif not message.body and (expected is None or len(changed_fields(raw, candidate)) > 1):
            continue  # zeros, too, have a body of no bytes and its CRC: that proves nothing
        _correct_times(out, message, around)
        told = not is_garbage(message.sys_flag)
        if not told or expected is not None:
            put(out, "sys_flag", dispatched_flag(message) if told else provable_flag(message))
        record = sound_ports(bytes(out))
        stored, computed = record_crc(record, 0, len(record))
        if stored in (None, computed) and not properties.property_faults(message.properties):
            witnesses = ("body CRC", *(("consume queue",) if expected is not None else ()))
            return Mended(record, changed_fields(raw, record), witnesses, "" if told else UNPROVED)
    return None


def mend_record_crc(raw: bytes, at: int, expected: Expected | None, *, accept_odds: bool = False) -> Mended | None:
    """A framed record whose body is right and whose record CRC is not: the CRC itself finds one flipped bit or byte.

    Where that fails and the unit proves queue, place and tags, the record gets a new CRC: what else is damaged in it
    (a key, a flag, a host, the CRC itself) cannot be told.
    """
    message, _ = parse_message(raw)
    if message is None or check_message(message, at) is not Fault.NONE:
        return None
    sound = sound_ports(raw)
    stored, computed = record_crc(sound, 0, len(sound))
    if stored == computed:
        found: Mended | None = Mended(sound, changed_fields(raw, sound), ("record CRC",))
    else:
        found = unflip_beside_body(sound, message, accept_odds=accept_odds)
    mended = parse_message(found.record)[0] if found is not None else None
    if found is not None and mended is not None and not properties.property_faults(mended.properties):
        byte = found.restored is not None and found.restored.bit is None
        if not byte or _agrees(mended, at, expected):
            return found
    if expected is None or not _agrees(message, at, expected) or properties.property_faults(message.properties):
        return None
    unproved = "the damage besides its CRC cannot be identified"
    return Mended(set_record_crc(sound), (), ("consume queue",), unproved)


def _candidates(raw: bytes, at: int, expected: Expected | None) -> Iterator[bytes]:
    """Records of the right length that differ from `raw` in header fields only, the likeliest first."""
    base = bytearray(raw)
    put(base, "size", len(raw))
    put(base, "physical_offset", at)
    if expected is not None:
        put(base, "queue_id", expected.slot.queue_id)
        put(base, "queue_offset", expected.slot.queue_offset)
    head = HEAD.parse(raw)
    for magic in (head["magic"],) if head["magic"] in (MAGIC_V1, MAGIC_V2) else (MAGIC_V1, MAGIC_V2):
        put(base, "magic", magic)
        for hosts in (0, 0x10, 0x20, 0x30):
            put(base, "sys_flag", head["sys_flag"] ^ hosts)
            yield bytes(base)
            if expected is not None:
                topic = expected.slot.topic.encode()
                yield from _by_topic(base, topic, magic, (head["sys_flag"] ^ hosts) & 0x30)


def _by_topic(base: bytearray, topic: bytes, magic: int, hosts: int) -> Iterator[bytes]:
    """Candidates with the known topic where the body length says, or where its text is found."""
    head = HEADS_BY_FLAG[hosts].size
    wide = 2 if magic == MAGIC_V2 else 1
    if wide == 1 and len(topic) > MAX_TOPIC_V1:
        return
    length = int.from_bytes(base[head - 4 : head], "big", signed=True)
    places = [head + max(0, length) + wide]
    found = base.find(topic, head + wide)
    while found >= 0 and len(places) < 8:
        places.append(found)
        found = base.find(topic, found + 1)
    for place in places:
        rest = len(base) - place - len(topic) - 2
        if not 0 <= rest <= 32767:
            continue
        out = bytearray(base)
        out[head - 4 : head] = (place - wide - head).to_bytes(4, "big")
        out[place - wide : place + len(topic)] = len(topic).to_bytes(wide, "big") + topic
        out[place + len(topic) : place + len(topic) + 2] = rest.to_bytes(2, "big")
        yield bytes(out)


def _agrees(message: Message, at: int, expected: Expected | None) -> bool:
    """Whether a record is where it says and agrees with its unit."""
    if message.physical_offset != at or not message.topic:
        return False
    if expected is None:
        return True
    slot, code = expected.slot, expected.slot.tags_code
    if (message.topic_text, message.queue_id, message.queue_offset) != slot.key:
        return False
    if code is None or slot.topic == properties.SCHEDULE_TOPIC or consumequeue.is_ext_address(code):
        return True
    return properties.tags_code(properties.parse_properties(message.properties).get(properties.TAGS)) == code


def _correct_times(out: bytearray, message: Message, around: Around) -> None:
    """A store time far from the next record's is damage too; so is an invalid born time."""
    store = message.store_timestamp
    if not 0 < store <= around.store_timestamp + _DAY or around.store_timestamp - store > 366 * _DAY:
        store = around.store_timestamp
        at = HEAD.at("store_timestamp") + len(message.born_host) - 8
        out[at : at + 8] = store.to_bytes(8, "big")
    if not 0 < message.born_timestamp <= store + 366 * _DAY:
        put(out, "born_timestamp", store)
