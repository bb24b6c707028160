"""What the bytes of a damaged record may have been; checksums and witnesses decide.

A candidate must have valid framing, fit its body CRC (and its record CRC if it has one), and have the queue offset that
its consume queue unit or its neighbours prove. The kinds of candidates, in the order of this file:

* one flipped bit, or one wrong byte, which a CRC locates;
* SYSFLAG from the body, the properties and the unit;
* header fields with the values that witnesses give;
* for a damaged property text, which hardly any checksum covers: one flipped bit that the tags code of the unit or the
  name of a known property proves; otherwise a readable text;
* a record of a BatchCQ topic that its unit contradicts. A unit there has all that queues need: size, tags code, store
  time, base offset and count. The record is the damaged one only if a single field (or its queue) differs, and another
  witness agrees with the unit: for the tags code one flipped bit of the TAGS, for the base offset its second copy in
  the record (QUEUEOFFSET beside INNER_BASE) or the units around it, for the count the messages in the body, for the
  store time those of the neighbours. Otherwise the unit is rebuilt from the record.

Source: MessageSysFlag, SendMessageProcessor#sendBatchMessage, ConsumeQueue dispatch (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.problems import codes
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, properties, services
from rmqstore.formats.bodies import BodyError, Compression, compression, decompress, proved_sys_flag
from rmqstore.formats.consumequeue import QueueName, split_queue_label
from rmqstore.formats.crcbits import BYTES, WrongByte, flip, flip_bits, odds_of_false_match, wrong_bytes
from rmqstore.formats.message import (
    CRC32_RESERVED_LEN,
    HEAD,
    HEADS_BY_FLAG,
    INNER_BATCH,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_V1,
    NEED_UNWRAP,
    SYS_FLAG_AT,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Fault,
    Message,
    body_crc,
    check_message,
    fits_record_crc,
    parse_message,
    record_crc,
    set_record_crc,
    sound_host,
)
from rmqstore.formats.services import batch_extent
from rmqstore.repair.repaired_log import can_exist
from rmqstore.repair.salvage.evidence import Evidence, Expected, QueueSlot, key_of
from rmqstore.repair.salvage.places import Around
from rmqstore.scan.dispatch import BatchRow
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text, joined


@dataclass(frozen=True, slots=True)
class Restored:
    """A message in which a CRC found one flipped bit, or one wrong byte.

    `offset` is the record's, global; `at` the position of the byte in the record; `bit` 0 is the lowest, None for a
    byte with several wrong bits; `mask` has the wrong bits of the byte; `odds` is the probability that other damage
    looks like this; `crc` is "body" or "record" (`__CRC32#`), the CRC that found it.
    """

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    at: int
    bit: int | None
    mask: int
    odds: float
    crc: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A record that is kept because its original bytes are proved: as it is, or mended.

    `fields` are the names of the corrected fields, none if the record is sound; `unproved` the reason if some bytes of
    the record remain unknown.
    """

    record: bytes
    fields: tuple[str, ...] = ()
    unproved: str = ""
    restored: Restored | None = None


def put(record: bytearray, name: str, value: int) -> None:
    """Set an integer field that comes before the hosts."""
    size = next(f.size for f in HEAD if f.name == name)
    at = HEAD.at(name)
    record[at : at + size] = value.to_bytes(size, "big", signed=True)


def set_fields(raw: bytes, slot: QueueSlot | None = None, **values: int) -> bytes | None:
    """Replace header fields of a framed record, and topic, queue id and queue offset by those of a slot.

    The record CRC is updated. None if the record is not framed, or if the topic has another length.
    """
    message, fault = parse_message(raw)
    if message is None or fault is not Fault.NONE:
        return None
    out = bytearray(raw)
    if slot is not None:
        topic = slot.topic.encode()
        if len(topic) != len(message.topic):
            return None
        values = {"queue_id": slot.queue_id, "queue_offset": slot.queue_offset, **values}
        head = HEADS_BY_FLAG[message.sys_flag & 0x30].size
        at = head + max(0, message.body_length) + (2 if message.magic == MAGIC_V2 else 1)
        out[at : at + len(topic)] = topic
    for name, value in values.items():
        put(out, name, value)
    return set_record_crc(bytes(out)) if message.carries_crc else bytes(out)


def set_properties(raw: bytes, message: Message, text: bytes) -> bytes:
    """Replace the property text of a record by one of the same length, and update the record CRC."""
    record = raw[: len(raw) - len(message.properties)] + text
    return set_record_crc(record) if message.carries_crc else record


def sound_ports(raw: bytes) -> bytes:
    """Clear the upper bytes of both ports, which are 0 in every valid port; the record CRC stays."""
    message, _ = parse_message(raw)
    if message is None:
        return raw
    born = HEAD.at("born_host")
    store = born + len(message.born_host) + HEAD.at("store_host") - HEAD.at("store_timestamp")
    out = bytearray(raw)
    for at, host in ((born, message.born_host), (store, message.store_host)):
        out[at : at + len(host)] = sound_host(host)
    return bytes(out)


def restored(message: Message, at: int, mask: int, odds: float, crc: str) -> Restored:
    """Describe a mended message for the plan; `at` is the position of the corrected byte in the record."""
    bit = mask.bit_length() - 1 if mask.bit_count() == 1 else None
    return Restored(message.physical_offset, *key_of(message), at, bit, mask, odds, crc)


def changed_fields(old: bytes, new: bytes) -> tuple[str, ...]:
    """Return the names of the header fields that differ, and "text" if anything after the header does."""
    head = HEADS_BY_FLAG[int.from_bytes(new[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & 0x30]
    out = [f.name for f in head if old[head.at(f.name) :][: f.size] != new[head.at(f.name) :][: f.size]]
    return tuple(out) if old[head.size :] == new[head.size :] else (*out, "text")


ACCEPTED_ODDS = 1e-4
"""Maximum probability that a correction is wrong, unless the operator accepts more (--accept-odds)."""


def unflip_body(raw: bytes, message: Message, *, accept_odds: bool = False) -> Kept | None:
    """Correct one flipped bit, or one wrong byte, of the body; None unless exactly one correction is possible.

    Every witness must agree: the record CRC if there is one, the compression, and the text around the byte.
    """
    computed = body_crc(message.body)
    if computed == message.body_crc or body_crc_one_bit_off(message):
        return None  # the flipped bit may be in the stored CRC
    found, odds = _explanations(len(message.body), message.body_crc, computed, accept_odds=accept_odds)
    if len(found) != 1:
        return None
    (body_at, mask), head = found[0], HEADS_BY_FLAG[message.sys_flag & 0x30].size
    record = flip_bits(raw, head + body_at, mask)
    if not _body_agrees(record, message, body_at):
        return None
    return Kept(record, ("body",), restored=restored(message, head + body_at, mask, odds, "body"))


def _explanations(
    length: int, stored: int, computed: int, *, accept_odds: bool, known: range = range(0)
) -> tuple[list[WrongByte], float]:
    """Return the flipped bits, otherwise the wrong bytes, that explain a CRC over `length` bytes, and their odds.

    `known` are positions that another CRC proves right. Above `ACCEPTED_ODDS`, a flipped bit requires `accept_odds`,
    and a wrong byte is never accepted; below, a wrong byte requires `accept_odds`.
    """
    found = [one for one in wrong_bytes(length, stored, computed) if one.at not in known]
    bits = [one for one in found if one.mask.bit_count() == 1]
    unknown = length - len(known)
    odds, odds_of_byte = odds_of_false_match(unknown), odds_of_false_match(unknown, BYTES)
    if bits:
        return (bits if accept_odds or odds <= ACCEPTED_ODDS else []), odds
    accepted = accept_odds and odds_of_byte <= ACCEPTED_ODDS
    return (found if accepted else []), odds_of_byte


def body_crc_one_bit_off(message: Message) -> bool:
    """Return whether the stored body CRC differs from that of the body in one of its 32 bits."""
    return ((message.body_crc ^ body_crc(message.body)) & 0xFFFFFFFF).bit_count() == 1


def unflip_beside_body(raw: bytes, message: Message, *, accept_odds: bool = False) -> Kept | None:
    """Correct one flipped bit, or one wrong byte, of header, topic or properties, which the record CRC locates.

    The body must fit its own CRC. None unless exactly one correction is possible.
    """
    stored, computed = record_crc(raw, 0, len(raw))
    if stored is None or stored == computed:
        return None
    body_at = HEADS_BY_FLAG[message.sys_flag & 0x30].size
    body = range(body_at, body_at + len(message.body))
    length = len(raw) - CRC32_RESERVED_LEN
    found, odds = _explanations(length, stored, computed, accept_odds=accept_odds, known=body)
    fits: list[Kept] = []
    for at, mask in found:
        record = flip_bits(raw, at, mask)
        mended, _ = parse_message(record)
        if mended is not None and check_message(mended, message.physical_offset) is Fault.NONE:
            what = restored(mended, at, mask, odds, "record")
            fits.append(Kept(record, changed_fields(raw, record), restored=what))
    return fits[0] if len(fits) == 1 else None


def _body_agrees(record: bytes, damaged: Message, at: int) -> bool:
    """Return whether no witness contradicts the mended body; `at` is the position of the changed byte in it."""
    message, fault = parse_message(record)
    if message is None or fault is not Fault.NONE or body_crc(message.body) != message.body_crc:
        return False
    if not fits_record_crc(record):
        return False
    try:
        if compression(message.sys_flag) is not None:
            decompress(message.sys_flag, message.body)
            return True
    except BodyError:
        return False
    rest = damaged.body[:at] + damaged.body[at + 1 :]
    return not _is_text(rest) or _is_text(message.body)


def _is_text(body: bytes) -> bool:
    """Return whether a body consists of printable ASCII and white space."""
    return body.isascii() and not any(byte < 0x20 and byte not in b"\t\n\r" for byte in body)


_WRITTEN = 0x7FF  # all bits of SYSFLAG that any version sets; the upper three are the compression type
_HOSTS = 0x30  # the address families of both hosts
UNPROVED = Text("its other SYSFLAG bits are unknown")


def dispatched_flag(message: Message) -> int:
    """Return the SYSFLAG of a message with a consume queue unit, which cannot be a prepared or rollback record."""
    if message.is_dispatched:
        return message.sys_flag
    kind = TRANSACTION_COMMIT if message.prepared_transaction_offset else 0
    return message.sys_flag & ~TRANSACTION_MASK | kind


def provable_flag(message: Message) -> int:
    """Return the provable bits of a garbled SYSFLAG: address families, compression, inner batch, commit."""
    found = properties.parse_properties(message.properties)
    batch = INNER_BATCH | NEED_UNWRAP if properties.inner_batch(found) is not None else 0
    commit = TRANSACTION_COMMIT if message.prepared_transaction_offset else 0
    return message.sys_flag & _HOSTS | _compression_bits(message.body) | batch | commit


def _compression_bits(body: bytes) -> int:
    """Return the bits of the compression with which a body can be decompressed; 0 if there is none."""
    for kind in Compression:
        try:
            if body and decompress(kind.sys_flag, body):
                return kind.sys_flag
        except BodyError:
            continue
    return 0


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


def mend_fields(raw: bytes, at: int, expected: Expected | None, around: Around) -> Kept | None:
    """Return the original of a damaged record if the body CRC proves it; None otherwise.

    `raw` are all of its bytes, at global offset `at`. All fields that the unit of the expected message has are
    restored.
    """
    if len(raw) < HEAD.size + 3:
        return None
    if expected is not None and _begins_another_one(raw, at, expected.slot):
        return None
    if expected is not None and expected.size not in (None, len(raw)) and HEAD.parse(raw)["size"] != len(raw):
        return None  # neither its unit nor its own SIZE confirms that it ends here: the rest of its file was cut off
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
        readable = not message.sys_flag & ~_WRITTEN  # otherwise its other bits prove nothing
        put(out, "sys_flag", _sound_flag(message, expected) if readable else provable_flag(message))
        record = sound_ports(bytes(out))
        if fits_record_crc(record) and not properties.property_faults(message.properties):
            return Kept(record, changed_fields(raw, record), "" if readable else UNPROVED)
    return None


def _sound_flag(message: Message, expected: Expected | None) -> int:
    """Return the SYSFLAG without the transaction bits that its unit contradicts, and the compression that its body has.

    Garbled bits are often next to each other: where the address families were wrong, others may be.
    """
    flag = dispatched_flag(message) if expected is not None else message.sys_flag
    proved = None if message.carries_crc else proved_sys_flag(flag, message.body)
    return flag if proved is None else proved


def mend_record_crc(raw: bytes, at: int, expected: Expected | None, *, accept_odds: bool = False) -> Kept | None:
    """Correct the bit or byte that the record CRC of a framed record with a sound body finds.

    If the CRC finds none, but the unit proves queue, offset and tags, the record gets a new CRC, and the SYSFLAG that
    unit and body prove: what else is damaged in it (a key, a host, the CRC itself) cannot be determined. None if
    neither is possible.
    """
    message, _ = parse_message(raw)
    if message is None or check_message(message, at) is not Fault.NONE:
        return None
    sound = sound_ports(raw)
    stored, computed = record_crc(sound, 0, len(sound))
    if stored == computed:
        found: Kept | None = Kept(sound, changed_fields(raw, sound))
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
    flag, out = dispatched_flag(message), bytearray(sound)
    proved = proved_sys_flag(flag, message.body)
    put(out, "sys_flag", flag if proved is None else proved)
    return Kept(set_record_crc(bytes(out)), unproved=unproved)


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


_SEARCHED = 1024  # bytes of a property text that are searched for one flipped bit
_INT = 1 << 31
_NAMES = frozenset(
    value
    for name, value in vars(properties).items()
    if name.isupper() and isinstance(value, str) and value.isascii() and 1 < len(value) < 40
)


def mend_properties(raw: bytes, tags_code: int | None) -> Kept | None:
    """Give a record with a damaged property text a sound one of the same length; its TAGS may be damaged, too.

    One flipped bit is corrected if known property names, or the unit's tags code, leave only one answer. Otherwise the
    wrong bytes are replaced, so that all other properties become readable.
    """
    mended = _mend(raw, tags_code)
    if tags_code is None or mended is None or not mended.unproved:
        return mended
    other = _mend(raw, None)
    if other is None or other.unproved:
        return mended
    both = with_tags(other.record, tags_code)
    return replace(other, record=both) if both != other.record else mended


def proved_tags(raw: bytes, message: Message, code: int) -> bytes | None:
    """Correct the one flipped bit of the property text that makes its TAGS fit a unit's tags code.

    A code has 32 bits, and a few thousand bits are tried, so that a wrong unit hardly ever fits by chance. None unless
    there is exactly one answer, if a record CRC covers the text, and for codes that are not the hash of a text.
    """
    text = message.properties
    if not -_INT <= code < _INT or code == 0 or message.carries_crc or len(text) > _SEARCHED:
        return None

    def fits(candidate: bytes) -> bool:
        tags = properties.parse_properties(candidate).get(properties.TAGS)
        return bool(tags) and properties.tags_code(tags) == code and not properties.property_faults(candidate)

    new = _one_bit(text, _around_tags(text), fits)
    return set_properties(raw, message, new) if new is not None else None


def with_tags(record: bytes, code: int | None) -> bytes:
    """Correct the TAGS of a record if its unit proves others; otherwise return the same record."""
    message, _ = parse_message(record)
    if message is None or code is None or message.topic_text == properties.SCHEDULE_TOPIC:
        return record
    has = properties.tags_code(properties.parse_properties(message.properties).get(properties.TAGS))
    proved = None if code == has or consumequeue.one_bit_apart(code, has) else proved_tags(record, message, code)
    return record if proved is None else proved


def _mend(raw: bytes, tags_code: int | None) -> Kept | None:
    message, _ = parse_message(raw)
    if message is None:
        return None
    text, tail = message.properties, b""
    if message.carries_crc:
        text, tail = text[:-CRC32_RESERVED_LEN], text[-CRC32_RESERVED_LEN:]
    proved = _known_name(text, tags_code)
    new = proved if proved is not None else _sanitized(text)
    if new is None or properties.property_faults(new + tail):
        return None
    unproved = "" if proved is not None else Text("the damaged property cannot be identified")
    if missing := services.missing_in_text(message.topic_text, new):
        new, unproved = (
            _with_needed(new, missing, message.queue_id),
            Text("{missing} cannot be proved", missing=joined(missing)),
        )
    return Kept(set_properties(raw, message, new + tail), ("properties",), unproved=unproved)


def _with_needed(text: bytes, missing: list[str], queue_id: int) -> bytes:
    """Restore properties that a service needs, as far as the text allows: first their names, then their numbers.

    The number of a queue, which the service delivers to, becomes 0: every topic has this queue.
    """
    numbers = {properties.REAL_QUEUE_ID: 0, properties.DELAY: queue_id + 1}
    parts = [part.partition(b"\x01") for part in text.split(b"\x02")]
    for name in missing:
        similar = [k for k, (other, _, _) in enumerate(parts) if _is_similar(other, name.encode())]
        if len(similar) != 1:
            continue
        _, separator, value = parts[similar[0]]
        if name in numbers and not value.isdigit():
            value = b"%0*d" % (len(value), numbers[name])
        parts[similar[0]] = name.encode(), separator, value
    fixed = b"\x02".join(b"".join(part) for part in parts)
    return fixed if len(fixed) == len(text) else text


def _is_similar(other: bytes, name: bytes) -> bool:
    """Whether a property's name may be `name` after damage: no other known name, and half of its bytes are the same."""
    if other == name:
        return True
    equal = sum(a == b for a, b in zip(other, name, strict=False))
    return len(other) == len(name) <= 2 * equal and other.decode("utf-8", "replace") not in _NAMES


def _one_bit(text: bytes, places: Iterable[int], fits: Callable[[bytes], bool]) -> bytes | None:
    """Return the only text that fits with one bit flipped at one of the positions; None unless there is exactly one."""
    tried = (flip(text, at, bit) for at in places for bit in range(8))
    found = {candidate for candidate in tried if fits(candidate)}
    return found.pop() if len(found) == 1 else None


def _known_name(text: bytes, tags_code: int | None) -> bytes | None:
    """Return the only sound text with one flipped bit that has one more known name, and the unit's tags code."""
    before = len(properties.parse_properties(text).keys() & _NAMES)

    def fits(candidate: bytes) -> bool:
        if properties.property_faults(candidate):
            return False
        found = properties.parse_properties(candidate)
        if tags_code is not None and properties.tags_code(found.get(properties.TAGS)) != tags_code:
            return False
        return len(found.keys() & _NAMES) > before

    return _one_bit(text, _suspects(text), fits) if len(text) <= _SEARCHED else None


def _parts(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of each part between separators."""
    at = 0
    for part in text.split(b"\x02"):
        yield at, at + len(part)
        at += len(part) + 1


def _around_tags(text: bytes) -> Iterable[int]:
    """Return the positions of a possible flipped bit: the TAGS with their separators; without TAGS the whole text."""
    for start, stop in _parts(text):
        if text.startswith(properties.TAGS.encode() + b"\x01", start, stop):
            return range(max(0, start - 1), min(len(text), stop + 1))
    return range(len(text))


def _suspects(text: bytes) -> Iterator[int]:
    """Yield the positions in faulty parts and of the separators around them."""
    for start, stop in _parts(text):
        if _is_bad(text, start, stop):
            yield from range(max(0, start - 1), min(len(text), stop + 1))


def _is_bad(text: bytes, start: int, stop: int) -> bool:
    return start == stop or bool(properties.property_faults(text[start:stop]))


def _sanitized(text: bytes) -> bytes | None:
    """Return a valid text of the same length: invalid bytes become `?`, parts without a separator get one."""
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
        content = bytes(out)
        start, stop = next((p for p in _parts(content) if p[0] < len(content) and _is_bad(content, *p)), (-1, -1))
        if start < 0:
            return content
        if not _give_name(out, start, stop):
            return None
    return None


def _give_name(out: bytearray, start: int, stop: int) -> bool:
    """Turn a part without a name into a property, or join it to another; return whether that is possible."""
    if stop - start >= 3:  # its first character becomes the name, unless that would split a UTF-8 sequence
        plain = out[start] < 0x80 and out[start] not in (1, 2)
        name_end = next((at for at in range(start + 1, stop - 1) if plain and out[at] < 0x80), None)
        if name_end is None:
            out[start : start + 2] = b"?\x01"
        else:
            out[name_end] = 1
    elif start:
        out[start - 1] = 0x3F  # too short for a property: append it to the value before it
    elif stop < len(out):
        out[stop] = 0x3F  # the first part, too short: prepend it to the next name
    else:
        return False
    return True


CODES = (codes.BCQ_WRONG_UNIT, codes.BCQ_DANGLING_UNIT)
_UNIT = consumequeue.BATCH_UNIT
_FIELDS = ("tags_code", "store_timestamp", "base", "count")
_INNER_HEAD = 20  # bytes: total size, magic, body CRC, flag, body length
_MOST = 1000  # findings


def proved_batches(evidence: Evidence) -> Iterator[tuple[int, Kept, frozenset[QueueName]]]:
    """Yield (global offset of the record, its mended bytes, queues that may contain it)."""
    store, logs = evidence.store, evidence.logs
    for finding in [f for f in evidence.verified.report.findings.listed if f.code in CODES][:_MOST]:
        name = split_queue_label(finding.queue)
        start = finding.facts.get("commitlog_offset")
        if not isinstance(start, int) or logs.damaged(start):
            continue
        log = logs.at(start)
        message = message_at(log.queue, start) if log is not None else None
        if log is None or message is None or message.physical_offset != start or message.carries_crc:
            continue  # a record that fits its record CRC is sound
        mended = _mend_by_unit(store, log.queue.pread(message.size, start), message, name, finding.offset)
        if mended is not None:
            yield start, mended, frozenset({name, (message.topic_text, message.queue_id)})


def _mend_by_unit(store: Store, raw: bytes, message: Message, name: QueueName, at: int) -> Kept | None:
    """Correct the one field that differs from the unit at byte `at` of a queue; None without a proof."""
    files = store.consume_queue(*name, QueueKind.BATCH)
    before, unit, after = (_unit_at(files, place) for place in (at - _UNIT.size, at, at + _UNIT.size))
    own = _unit_of(store, raw)
    if unit is None or own is None or (unit.offset, unit.size) != (own[1].offset, own[1].size):
        return None
    new: bytes | None = None
    what = ""
    different = [] if own[0] == name else ["queue"]
    different += [field for field in _FIELDS if getattr(own[1], field) != getattr(unit, field)]
    match different:
        case ["queue"] if not _has_unit(store, own[0], unit.offset):  # all else agrees: the unit is of this record
            what, new = "queue", set_fields(raw, QueueSlot(*name, message.queue_offset))
        case ["tags_code"] if not consumequeue.one_bit_apart(own[1].tags_code, unit.tags_code):
            what, new = "TAGS", proved_tags(raw, message, unit.tags_code)
        case ["store_timestamp"] if _between(before, unit, after) and not _between(before, own[1], after):
            where, time = HEADS_BY_FLAG[message.sys_flag & 0x30].at("store_timestamp"), unit.store_timestamp
            what, new = "STORETIMESTAMP", raw[:where] + time.to_bytes(8, "big", signed=True) + raw[where + 8 :]
        case ["base"] if not message.sys_flag & INNER_BATCH:
            slot = QueueSlot(*name, unit.base)
            what, new = "base offset", set_fields(raw, slot) if _joins(before, unit, after) else None
        case ["base"] if message.queue_offset == unit.base:
            what, new = "base offset", _with_number(raw, message, properties.INNER_BASE, own[1].base, unit.base)
        case ["count"] if _messages_in(message) == unit.count:
            what, new = "INNER_NUM", _with_number(raw, message, properties.INNER_NUM, own[1].count, unit.count)
    if new is None or _unit_of(store, new) != (name, unit):
        return None
    return Kept(new, (what,))


def _unit_of(store: Store, raw: bytes) -> tuple[QueueName, BatchRow] | None:
    """Return the queue of a record, and the unit that it should have."""
    message, _ = parse_message(raw)
    if message is None:
        return None
    found = properties.parse_properties(message.properties)
    time = message.store_timestamp
    code = properties.dispatch_tags_code(message.topic_text, found, time, delay_levels(store))
    extent = batch_extent(found, message.queue_offset)
    row = BatchRow(message.physical_offset, message.size, code or 0, time, *extent)
    return (message.topic_text, message.queue_id), row


def _unit_at(files: ConsumeQueueFiles, at: int) -> BatchRow | None:
    unit = files.queue.unit(_UNIT, at // _UNIT.size)
    if unit is None:
        return None
    names = ("commitlog_offset", "size", "tags_code", "store_timestamp", "base_offset", "batch_size")
    row = BatchRow(*(int(unit[name]) for name in names))
    return row if consumequeue.is_batch_unit(row.offset, row.size, row.base, row.count) else None


def _between(before: BatchRow | None, one: BatchRow, after: BatchRow | None) -> bool:
    """Return whether a store time (ms) is between those of the two units beside it."""
    if before is None or after is None:
        return False
    return before.store_timestamp <= one.store_timestamp <= after.store_timestamp


def _joins(before: BatchRow | None, one: BatchRow, after: BatchRow | None) -> bool:
    """Return whether a batch begins where the one before it ends, and ends where the next one begins."""
    if before is None or after is None:
        return False
    return before.base + before.count == one.base and one.base + one.count == after.base


def _has_unit(store: Store, name: QueueName, offset: int) -> bool:
    """Return whether a queue has a unit for the record at a global offset."""
    if not can_exist(name):
        return False
    chunks = unit_chunks(store.consume_queue(*name, QueueKind.BATCH).queue, _UNIT)
    return any(np.any((c.units["commitlog_offset"] == offset) & (c.units["size"] != 0)) for c in chunks)


def _with_number(raw: bytes, message: Message, name: str, old: int, new: int) -> bytes | None:
    """Replace the number in a property that occurs once; None if the length would change."""
    was, now = (f"{name}\x01{number}".encode() for number in (old, new))
    parts = message.properties.split(b"\x02")
    if parts.count(was) != 1 or len(was) != len(now):
        return None
    return set_properties(raw, message, b"\x02".join(now if part == was else part for part in parts))


def _messages_in(message: Message) -> int | None:
    """Count the messages in the body of an inner batch (MessageDecoder#encodeMessage); None for any other body."""
    try:
        body = decompress(message.sys_flag, message.body)
    except BodyError:
        return None
    at = count = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big", signed=True)
        if not _INNER_HEAD < size <= len(body) - at:
            return None
        at, count = at + size, count + 1
    return count
