"""Records with other bytes in single fields: what all candidates are made with."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.formats.message import (
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V2,
    Fault,
    Message,
    parse_message,
    set_record_crc,
    sound_host,
)
from rmqstore.repair.salvage.evidence.places import carries_crc
from rmqstore.repair.salvage.evidence.values import QueueSlot


@dataclass(frozen=True, slots=True)
class Restored:
    """A message whose one flipped bit, or one wrong byte, was found by a CRC.

    `offset`: of the record, global; `at`: byte of the record; `bit`: 0 is the lowest, None for a byte with several
    wrong bits; `mask`: the wrong bits of the byte; `odds`: probability that other damage looks like this one;
    `crc`: which CRC found it, that of the body or that of the record (`__CRC32#`).
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
class Keep:
    """The solver's answer for a sound record: its bytes stay, whatever is around them."""

    record: bytes


@dataclass(frozen=True, slots=True)
class Mended:
    """The solver's answer for a record whose original bytes are proved, or nearly so.

    `fields` names what differs from the damaged bytes, `witnesses` what proves it, `unproved` what of the record nobody
    can tell.
    """

    record: bytes
    fields: tuple[str, ...]
    witnesses: tuple[str, ...] = ()
    unproved: str = ""
    restored: Restored | None = None


def put(record: bytearray, name: str, value: int) -> None:
    """Set an integer field of the fixed part before the hosts."""
    size = next(f.size for f in HEAD if f.name == name)
    at = HEAD.at(name)
    record[at : at + size] = value.to_bytes(size, "big", signed=True)


def set_fields(raw: bytes, slot: QueueSlot | None = None, **values: int) -> bytes | None:
    """A framed record with header fields (and the topic, if its length stays) replaced, CRCs made to fit."""
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
    return set_record_crc(bytes(out)) if carries_crc(message) else bytes(out)


def set_properties(raw: bytes, message: Message, text: bytes) -> bytes:
    """A record with another property text of the same length, its record CRC made to fit."""
    record = raw[: len(raw) - len(message.properties)] + text
    return set_record_crc(record) if carries_crc(message) else record


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


def restored(message: Message, at: int, mask: int, odds: float, crc: str) -> Restored:
    """What a plan says of a mended message; `at`: the corrected byte of its record."""
    slot = message.topic_text, message.queue_id, message.queue_offset
    bit = mask.bit_length() - 1 if mask.bit_count() == 1 else None
    return Restored(message.physical_offset, *slot, at, bit, mask, odds, crc)


def changed_fields(old: bytes, new: bytes) -> tuple[str, ...]:
    """Names of the header fields that differ, and "text" for anything behind them."""
    out = [f.name for f in HEAD if old[HEAD.at(f.name) :][: f.size] != new[HEAD.at(f.name) :][: f.size]]
    return tuple(out) if old[HEAD.size :] == new[HEAD.size :] else (*out, "text")
