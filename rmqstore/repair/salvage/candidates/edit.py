"""Replaces single fields of a record; all candidates are built with these functions."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.formats.message import (
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V2,
    SYS_FLAG_AT,
    Fault,
    Message,
    parse_message,
    set_record_crc,
    sound_host,
)
from rmqstore.repair.salvage.evidence.places import carries_crc
from rmqstore.repair.salvage.evidence.values import QueueSlot, key_of


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
class Keep:
    """The solver's answer for a sound record beside or within damage: its bytes stay."""

    record: bytes


@dataclass(frozen=True, slots=True)
class Mended:
    """The solver's answer for a record whose original bytes are proved.

    `fields` are the names of the corrected fields, `witnesses` what proves them, `unproved` the reason if some bytes of
    the record remain unknown.
    """

    record: bytes
    fields: tuple[str, ...]
    witnesses: tuple[str, ...] = ()
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
    return set_record_crc(bytes(out)) if carries_crc(message) else bytes(out)


def set_properties(raw: bytes, message: Message, text: bytes) -> bytes:
    """Replace the property text of a record by one of the same length, and update the record CRC."""
    record = raw[: len(raw) - len(message.properties)] + text
    return set_record_crc(record) if carries_crc(message) else record


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
