"""Damaged fields whose true value can be proved: the record is mended in place and nothing is lost.

A mended record must frame, fit its body CRC (and record CRC, where it has one), and say the queue position that its
consume queue unit or its neighbours prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import (
    CRC32_RESERVED_LEN,
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
    sound_host,
)
from rmqstore.repair.salvage.candidates.flipped_bit import unflip_beside_body
from rmqstore.repair.salvage.candidates.sysflag import UNPROVED, borne_out, dispatched_flag, is_garbage
from rmqstore.repair.salvage.evidence.filler_records import Around, QueueSlot
from rmqstore.repair.salvage.evidence.lost_messages import Lost
from rmqstore.repair.salvage.evidence.spans import carries_crc

_SEARCHED = 1024  # bytes of a property text that are searched for one flipped bit
_DAY = 86_400_000
_FAR = 1 << 40  # bytes; no record of this log, but a damaged PHYSICALOFFSET
_NAMES = frozenset(
    value
    for name, value in vars(properties).items()
    if name.isupper() and isinstance(value, str) and value.isascii() and 1 < len(value) < 40
)


@dataclass(frozen=True, slots=True)
class Mended:
    """A record's bytes with its fields put right; `fields` names them, `unproved` what could not be told."""

    record: bytes
    fields: tuple[str, ...]
    unproved: str = ""


def is_another_one(message: Message, at: int, seat: QueueSlot) -> bool:
    """Whether a framed record is a sound one of another place and of another message than the lost one: a file that
    was swapped, a misdirected write. To put its header right would give consumers the wrong message.
    """
    own = (message.topic_text, message.queue_id, message.queue_offset)
    if own == (seat.topic, seat.queue_id, seat.queue_offset) or message.physical_offset == at:
        return False
    near = 0 <= message.physical_offset < at + _FAR
    return near and check_message(message, message.physical_offset) is Fault.NONE


def _begins_another_one(raw: bytes, at: int, seat: QueueSlot) -> bool:
    """Whether another record begins there; of a longer one only its header can be asked."""
    framed, _ = parse_message(raw)
    if framed is not None and is_another_one(framed, at, seat):
        return True
    head = HEAD.parse(raw)
    elsewhere = head["physical_offset"] != at and 0 < head["physical_offset"] < at + _FAR
    other = (head["queue_id"], head["queue_offset"]) != (seat.queue_id, seat.queue_offset)
    return head["magic"] in (MAGIC_V1, MAGIC_V2) and head["size"] != len(raw) and elsewhere and other


def put(record: bytearray, name: str, value: int) -> None:
    """Set an integer field of the fixed part before the hosts."""
    size = next(f.size for f in HEAD if f.name == name)
    at = HEAD.at(name)
    record[at : at + size] = value.to_bytes(size, "big", signed=True)


def set_fields(raw: bytes, seat: QueueSlot | None = None, **values: int) -> bytes | None:
    """A framed record with header fields (and the topic, if its length stays) replaced, CRCs made to fit."""
    message, fault = parse_message(raw)
    if message is None or fault is not Fault.NONE:
        return None
    out = bytearray(raw)
    if seat is not None:
        topic = seat.topic.encode()
        if len(topic) != len(message.topic):
            return None
        values = {"queue_id": seat.queue_id, "queue_offset": seat.queue_offset, **values}
        at = _topic_at(message)
        out[at : at + len(topic)] = topic
    for name, value in values.items():
        put(out, name, value)
    return set_record_crc(bytes(out)) if carries_crc(message) else bytes(out)


def sound_ports(raw: bytes) -> bytes:
    """A framed record with the bytes of both ports cleared that are 0 in every port; its record CRC is left."""
    message, _ = parse_message(raw)
    if message is None:
        return raw
    born = HEAD.at("born_host")
    store = born + len(message.born_host) + HEAD.at("store_host") - HEAD.at("store_timestamp")
    out = bytearray(raw)
    for at, host in ((born, message.born_host), (store, message.store_host)):
        out[at : at + len(host)] = sound_host(host)
    return bytes(out)


def mend(raw: bytes, at: int, lost: Lost | None, around: Around) -> Mended | None:
    """The record that `raw` (all of its bytes, at global offset `at`) once was, if that can be proved.

    With `lost`, its unit, everything that the unit knows is put back. The proof is the body CRC.
    """
    if len(raw) < HEAD.size + 3:
        return None
    if lost is not None and _begins_another_one(raw, at, lost.seat):
        return None
    for candidate in _candidates(raw, at, lost):
        message, _ = parse_message(candidate)
        if message is None or message.size != len(raw) or not _plausible(message, at, lost):
            continue
        out = bytearray(candidate)
        if message.body_crc != body_crc(message.body):
            one_bit = (message.body_crc ^ body_crc(message.body)).bit_count() == 1
            if not one_bit or candidate != raw:  # where more was changed, the body CRC is the only proof
                continue
            put(out, "body_crc", body_crc(message.body))  # one bit of the stored CRC; a body's damage changes more
        elif not message.body and (lost is None or len(_changed(raw, candidate)) > 1):
            continue  # zeros, too, have a body of no bytes and its CRC: that proves nothing
        _times(out, message, around)
        told = not is_garbage(message.sys_flag)
        if not told or lost is not None:
            put(out, "sys_flag", dispatched_flag(message) if told else borne_out(message))
        sealed = _sealed(sound_ports(bytes(out)), message)
        if sealed is not None:
            return Mended(sealed, _changed(raw, sealed), "" if told else UNPROVED)
    return None


def mend_record_crc(raw: bytes, at: int, lost: Lost | None) -> Mended | None:
    """A framed record whose body is right and whose record CRC is not: one flipped bit is found by the CRC itself.

    Where that fails and the unit proves queue, place and tags, the record gets a new CRC: what else is damaged in it
    (a key, a flag, a host, the CRC itself) cannot be told.
    """
    message, _ = parse_message(raw)
    if message is None or check_message(message, at) is not Fault.NONE:
        return None
    sound = sound_ports(raw)
    stored, computed = record_crc(sound, 0, len(sound))
    unflipped = unflip_beside_body(sound, message)
    found = sound if stored == computed else unflipped.record if unflipped else None
    if found is not None and not _property_faults(found):
        return Mended(found, _changed(raw, found))
    if lost is None or not _plausible(message, at, lost) or properties.property_faults(message.properties):
        return None
    return Mended(set_record_crc(sound), (), "the damage besides its CRC cannot be identified")


def mend_properties(raw: bytes, tags_code: int | None) -> Mended | None:
    """A record whose property text is damaged, with a text of the same length that is sound.

    One wrong byte is put right where names that brokers know, or the unit's tags code, leave only one answer; else
    the wrong bytes are replaced, so that all other properties can be read.
    """
    message, _ = parse_message(raw)
    if message is None:
        return None
    text = message.properties
    tail = b""
    if carries_crc(message):
        text, tail = text[:-CRC32_RESERVED_LEN], text[-CRC32_RESERVED_LEN:]
    proved = _one_byte(text, tags_code)
    new = proved if proved is not None else _sanitized(text)
    if new is None or properties.property_faults(new + tail):
        return None
    start = len(raw) - len(message.properties)
    record = raw[:start] + new + tail
    if tail:
        record = set_record_crc(record)
    return Mended(record, ("properties",), "" if proved is not None else "the damaged property cannot be identified")


# --- candidates -------------------------------------------------------------------------------------------------------


def _candidates(raw: bytes, at: int, lost: Lost | None) -> Iterator[bytes]:
    """Records of the right length that differ from `raw` in header fields only, the likeliest first."""
    base = bytearray(raw)
    put(base, "size", len(raw))
    put(base, "physical_offset", at)
    if lost is not None:
        put(base, "queue_id", lost.seat.queue_id)
        put(base, "queue_offset", lost.seat.queue_offset)
    stored = int.from_bytes(raw[4:8], "big", signed=True)
    magics = (stored,) if stored in (MAGIC_V1, MAGIC_V2) else (MAGIC_V1, MAGIC_V2)
    flags = int.from_bytes(base[HEAD.at("sys_flag") : HEAD.at("sys_flag") + 4], "big", signed=True)
    for magic in magics:
        put(base, "magic", magic)
        for hosts in (0, 0x10, 0x20, 0x30):
            put(base, "sys_flag", flags ^ hosts)
            yield bytes(base)
            if lost is not None:
                yield from _by_topic(base, lost.seat.topic.encode(), magic, (flags ^ hosts) & 0x30)


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


def _plausible(message: Message, at: int, lost: Lost | None) -> bool:
    """Whether a record is where it says and agrees with its unit."""
    if message.physical_offset != at or not message.topic:
        return False
    if lost is None:
        return True
    seat = lost.seat
    if (message.topic_text, message.queue_id, message.queue_offset) != (seat.topic, seat.queue_id, seat.queue_offset):
        return False
    code = seat.tags_code
    if code is None or seat.topic == properties.SCHEDULE_TOPIC or code <= consumequeue.EXT_MAX_ADDRESS:
        return True
    return properties.tags_code(properties.parse_properties(message.properties).get(properties.TAGS)) == code


def _property_faults(record: bytes) -> list[str]:
    message, _ = parse_message(record)
    return ["no message"] if message is None else properties.property_faults(message.properties)


def _times(out: bytearray, message: Message, around: Around) -> None:
    """A store time far from the next record's is damage too; so is an invalid born time."""
    store = message.store_timestamp
    if not 0 < store <= around.store_timestamp + _DAY or around.store_timestamp - store > 366 * _DAY:
        store = around.store_timestamp
        at = HEAD.at("store_timestamp") + len(message.born_host) - 8
        out[at : at + 8] = store.to_bytes(8, "big")
    if not 0 < message.born_timestamp <= store + 366 * _DAY:
        put(out, "born_timestamp", store)


def _sealed(record: bytes, message: Message) -> bytes | None:
    """The record, if its properties are sound and its record CRC fits or can only be wrong for what was mended."""
    if properties.property_faults(message.properties):
        return None
    if not carries_crc(message):
        return record
    stored, computed = record_crc(record, 0, len(record))
    return record if stored == computed else None


def _changed(old: bytes, new: bytes) -> tuple[str, ...]:
    """Names of the header fields that differ, and "text" for anything behind them."""
    out = [f.name for f in HEAD if old[HEAD.at(f.name) :][: f.size] != new[HEAD.at(f.name) :][: f.size]]
    return tuple(out) if old[HEAD.size :] == new[HEAD.size :] else (*out, "text")


def _topic_at(message: Message) -> int:
    head = HEADS_BY_FLAG[message.sys_flag & 0x30].size
    return head + max(0, message.body_length) + (2 if message.magic == MAGIC_V2 else 1)


# --- property text ----------------------------------------------------------------------------------------------------


def _one_byte(text: bytes, tags_code: int | None) -> bytes | None:
    """The only text with one byte changed that is sound, has only known names in it, and gives the unit's tags code."""
    before = _names_of(properties.parse_properties(text))
    found: set[bytes] = set()
    if len(text) > _SEARCHED:
        return None
    for at in _suspects(text):
        for bit in range(8):
            candidate = text[:at] + bytes([text[at] ^ (1 << bit)]) + text[at + 1 :]
            if properties.property_faults(candidate):
                continue
            names = properties.parse_properties(candidate)
            if tags_code is not None and properties.tags_code(names.get(properties.TAGS)) != tags_code:
                continue
            if len(_names_of(names)) > len(before):  # the change makes a name that brokers know
                found.add(candidate)
    return found.pop() if len(found) == 1 else None


def _names_of(found: Mapping[str, str]) -> frozenset[str]:
    return frozenset(found) & _NAMES


def _suspects(text: bytes) -> Iterator[int]:
    """Positions in the parts that are wrong, with the separators around them."""
    at = 0
    for part in text.split(b"\x02"):
        stop = at + len(part)
        if properties.property_faults(part) or not part:
            yield from range(max(0, at - 1), min(len(text), stop + 1))
        at = stop + 1


def _sanitized(text: bytes) -> bytes | None:
    """A valid text of the same length: invalid bytes become `?`, parts without a separator get one."""
    out = bytearray(text)
    for at in properties.wrong_controls(text):
        out[at] = 0x3F
    for _ in range(len(text) + 1):
        try:
            bytes(out).decode()
            break
        except UnicodeDecodeError as e:
            out[e.start] = 0x3F
    for _ in range(4 * properties.MAX_FAULTS):
        fault = _first_fault(bytes(out))
        if fault is None:
            return bytes(out)
        start, stop = fault
        if stop - start >= 3:  # its first character becomes a name, unless that would split a letter
            for name_end in range(start + 1, stop - 1):
                if out[name_end] < 0x80 and out[start] not in (1, 2) and out[start] < 0x80:
                    out[name_end] = 1
                    break
            else:
                out[start : start + 2] = b"?\x01"
            if out[start] == 1:
                out[start] = 0x3F
        elif start:
            out[start - 1] = 0x3F  # too short to stand alone: it belongs to the value before it
        elif stop < len(out):
            out[stop] = 0x3F  # the first part, too short: it belongs to the next name
        else:
            return None
    return None


def _first_fault(text: bytes) -> tuple[int, int] | None:
    """[start, stop) of the first part that is not name 0x01 value."""
    at = 0
    while at < len(text):
        stop = text.find(b"\x02", at)
        stop = len(text) if stop < 0 else stop
        if properties.property_faults(text[at:stop]) or stop == at:
            return at, stop
        at = stop + 1
    return None
