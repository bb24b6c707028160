"""Candidates for a damaged record: header fields with the values that witnesses give, if all checksums then fit.

A candidate must have valid framing, fit its body CRC (and its record CRC if it has one), and have the queue offset that
its consume queue unit or its neighbours prove.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.formats import properties
from rmqstore.formats.bodies import proved_sys_flag
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
from rmqstore.repair.salvage.evidence.places import Around, carries_crc
from rmqstore.repair.salvage.evidence.values import Expected, QueueSlot, key_of
from rmqstore.texts import Text

_DAY = 86_400_000  # ms
_FAR = 1 << 40  # bytes; a PHYSICALOFFSET this far away is damaged


def is_another_one(message: Message, at: int, slot: QueueSlot) -> bool:
    """Return whether a framed record is a sound one of another offset and of another message than the expected one.

    Swapped files and misdirected writes leave such records; a corrected header would give consumers the wrong message.
    """
    if key_of(message) == slot.key or message.physical_offset == at:
        return False
    possible = is_possible(message.physical_offset, at)
    return possible and check_message(message, message.physical_offset) is Fault.NONE


def is_possible(physical_offset: int, at: int) -> bool:
    """Return whether a record at global offset `at` can have come from a PHYSICALOFFSET."""
    return 0 <= physical_offset < at + _FAR


def _begins_another_one(raw: bytes, at: int, slot: QueueSlot) -> bool:
    """Return whether another record begins there; only the header of a record longer than `raw` can be compared."""
    framed, _ = parse_message(raw)
    if framed is not None and is_another_one(framed, at, slot):
        return True
    head = HEAD.parse(raw)
    elsewhere = head["physical_offset"] != at and 0 < head["physical_offset"] < at + _FAR
    other = (head["queue_id"], head["queue_offset"]) != (slot.queue_id, slot.queue_offset)
    return head["magic"] in (MAGIC_V1, MAGIC_V2) and head["size"] != len(raw) and elsewhere and other


def _is_cut_off(raw: bytes, expected: Expected) -> bool:
    """Return whether the record had another length: neither its unit nor its own SIZE confirms that it ends here.

    A file that is cut short leaves such a record at the end of the log. The rest of its properties is unknown.
    """
    return expected.size not in (None, len(raw)) and HEAD.parse(raw)["size"] != len(raw)


def mend_fields(raw: bytes, at: int, expected: Expected | None, around: Around) -> Mended | None:
    """Return the original of a damaged record if the body CRC proves it; None otherwise.

    `raw` are all of its bytes, at global offset `at`. All fields that the unit of the expected message has are
    restored.
    """
    if len(raw) < HEAD.size + 3:
        return None
    if expected is not None and (_begins_another_one(raw, at, expected.slot) or _is_cut_off(raw, expected)):
        return None
    for candidate in _candidates(raw, at, expected):
        message, _ = parse_message(candidate)
        if message is None or message.size != len(raw) or not _agrees(message, at, expected):
            continue
        out = bytearray(candidate)
        if message.body_crc != body_crc(message.body):
            if not body_crc_one_bit_off(message) or candidate != raw:
                continue  # if more was changed, the body CRC is the only proof
            put(out, "body_crc", body_crc(message.body))  # one bit of the stored CRC; a body's damage changes more
        elif not message.body and (expected is None or len(changed_fields(raw, candidate)) > 1):
            continue  # zeros also look like an empty body with its CRC, which proves nothing
        _correct_times(out, message, around)
        readable = not is_garbage(message.sys_flag)
        put(out, "sys_flag", _sound_flag(message, expected) if readable else provable_flag(message))
        record = sound_ports(bytes(out))
        stored, computed = record_crc(record, 0, len(record))
        if stored in (None, computed) and not properties.property_faults(message.properties):
            witnesses = (Text("body CRC"), *((Text("consume queue"),) if expected is not None else ()))
            return Mended(record, changed_fields(raw, record), witnesses, "" if readable else UNPROVED)
    return None


def _sound_flag(message: Message, expected: Expected | None) -> int:
    """Return the SYSFLAG without the transaction bits that its unit contradicts, and the compression that its body has.

    Garbled bits are often next to each other: where the address families were wrong, others may be.
    """
    flag = dispatched_flag(message) if expected is not None else message.sys_flag
    proved = None if carries_crc(message) else proved_sys_flag(flag, message.body)
    return flag if proved is None else proved


def mend_record_crc(raw: bytes, at: int, expected: Expected | None, *, accept_odds: bool = False) -> Mended | None:
    """Correct the bit or byte that the record CRC of a framed record with a sound body finds.

    If the CRC finds none, but the unit proves queue, offset and tags, the record gets a new CRC: what else is damaged
    in it (a key, a flag, a host, the CRC itself) cannot be determined. None if neither is possible.
    """
    message, _ = parse_message(raw)
    if message is None or check_message(message, at) is not Fault.NONE:
        return None
    sound = sound_ports(raw)
    stored, computed = record_crc(sound, 0, len(sound))
    if stored == computed:
        found: Mended | None = Mended(sound, changed_fields(raw, sound), (Text("record CRC"),))
    else:
        found = unflip_beside_body(sound, message, accept_odds=accept_odds)
    mended = parse_message(found.record)[0] if found is not None else None
    if found is not None and mended is not None and not properties.property_faults(mended.properties):
        byte = found.restored is not None and found.restored.bit is None
        if not byte or _agrees(mended, at, expected):
            return found
    if expected is None or not _agrees(message, at, expected) or properties.property_faults(message.properties):
        return None
    unproved = Text("the damage besides its CRC cannot be identified")
    return Mended(set_record_crc(sound), (), (Text("consume queue"),), unproved)


def _candidates(raw: bytes, at: int, expected: Expected | None) -> Iterator[bytes]:
    """Yield records of the right length that differ from `raw` only in header fields, the likeliest first."""
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
    """Yield candidates with the known topic: after the body according to its length, and where its text is found."""
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
    """Return whether a record has the right PHYSICALOFFSET and agrees with its unit."""
    if message.physical_offset != at or not message.topic:
        return False
    if expected is None:
        return True
    tags = properties.parse_properties(message.properties).get(properties.TAGS)
    return key_of(message) == expected.slot.key and expected.slot.fits_tags(tags)


def _correct_times(out: bytearray, message: Message, around: Around) -> None:
    """Correct a store time that its neighbours and its own born time contradict, and an invalid born time.

    The times of a record and of its neighbours may be years apart, if the broker was stopped in between.
    """
    store = message.store_timestamp
    low = around.earliest - _DAY if around.earliest else around.store_timestamp - 366 * _DAY
    fits = low <= store <= around.store_timestamp + _DAY or abs(store - message.born_timestamp) <= _DAY
    if store <= 0 or not fits:
        store = around.store_timestamp
        at = HEAD.at("store_timestamp") + len(message.born_host) - 8
        out[at : at + 8] = store.to_bytes(8, "big")
    if not 0 < message.born_timestamp <= store + 366 * _DAY:
        put(out, "born_timestamp", store)
