"""Candidates with one flipped bit: the CRC itself tells which one, and the original bytes come back."""

from __future__ import annotations

from rmqstore.formats import properties
from rmqstore.formats.bodies import BodyError, compression, decompress
from rmqstore.formats.crcbits import flipped_bits, odds_of_false_match
from rmqstore.formats.message import (
    CRC32_RESERVED_LEN,
    HEADS_BY_FLAG,
    Fault,
    Message,
    body_crc,
    check_message,
    parse_message,
    record_crc,
)
from rmqstore.repair.salvage.candidates.edit import Mended, Restored, flip

ACCEPTED_ODDS = 1e-4
"""A mended record may be wrong with this probability unless the operator accepts more (--accept-odds)."""


def unflip_body(raw: bytes, message: Message, *, accept_odds: bool = False) -> Mended | None:
    """The record with the one flipped bit of its body corrected; None unless exactly one bit fits.

    Every witness must agree: the record CRC where there is one, the compression, and the text around the bit.
    """
    computed = body_crc(message.body)
    odds = odds_of_false_match(len(message.body))
    if computed == message.body_crc or (odds > ACCEPTED_ODDS and not accept_odds):
        return None
    if body_crc_one_bit_off(message):
        return None  # the flipped bit may be in the stored CRC
    found = flipped_bits(len(message.body), message.body_crc, computed)
    if len(found) != 1:
        return None
    at, bit = HEADS_BY_FLAG[message.sys_flag & 0x30].size + found[0].at, found[0].bit
    record = flip(raw, at, bit)
    if not _agrees(record, message, found[0].at):
        return None
    slot = message.topic_text, message.queue_id, message.queue_offset
    restored = Restored(message.physical_offset, *slot, at, bit, odds)
    return Mended(record, ("body",), ("body CRC",), restored=restored)


def body_crc_one_bit_off(message: Message) -> bool:
    """Whether the stored body CRC differs from that of the body in one bit (of the 32 that are stored)."""
    return ((message.body_crc ^ body_crc(message.body)) & 0xFFFFFFFF).bit_count() == 1


def unflip_beside_body(raw: bytes, message: Message) -> bytes | None:
    """The record with the one flipped bit of its header, topic or properties corrected, found by its record CRC."""
    stored, computed = record_crc(raw, 0, len(raw))
    if stored is None or stored == computed:
        return None
    body_at = HEADS_BY_FLAG[message.sys_flag & 0x30].size
    body = range(body_at, body_at + len(message.body))
    fits: list[tuple[bytes, Message]] = []
    for at, bit in flipped_bits(len(raw) - CRC32_RESERVED_LEN, stored, computed):
        candidate = flip(raw, at, bit)
        found, _ = parse_message(candidate)
        if at not in body and found is not None and check_message(found, message.physical_offset) is Fault.NONE:
            fits.append((candidate, found))
    return fits[0][0] if len(fits) == 1 and not properties.property_faults(fits[0][1].properties) else None


def _agrees(record: bytes, damaged: Message, at: int) -> bool:
    """Whether no witness contradicts the mended body; `at` is the changed byte of the body."""
    message, fault = parse_message(record)
    if message is None or fault is not Fault.NONE or body_crc(message.body) != message.body_crc:
        return False
    stored, computed = record_crc(record, 0, len(record))
    if stored not in (None, computed):
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
    """Whether all of it is printable ASCII, with white space."""
    return body.isascii() and not any(byte < 0x20 and byte not in b"\t\n\r" for byte in body)
