"""Records with one flipped bit: the CRC itself tells which one, and the original bytes come back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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

ACCEPTED_ODDS = 1e-4
"""A mended record may be wrong with this probability unless the operator accepts more (--accept-odds)."""


@dataclass(frozen=True, slots=True)
class Unflipped:
    """A record with the flipped bit put right.

    `at`: byte of the record, `bit` 0 is the lowest. `odds`: probability that other damage looks like this flipped bit.
    """

    record: bytes
    at: int
    bit: int
    odds: float


def unflip_body(raw: bytes, message: Message, *, accept_odds: bool = False) -> Unflipped | None:
    """The record with the one flipped bit of its body put right; None unless exactly one bit fits.

    Every witness must agree: the record CRC where there is one, the compression, and the text around the bit.
    """
    computed = body_crc(message.body)
    odds = odds_of_false_match(len(message.body))
    if computed == message.body_crc or (odds > ACCEPTED_ODDS and not accept_odds):
        return None
    if (computed ^ message.body_crc).bit_count() == 1:
        return None  # the flipped bit may be in the stored CRC
    body_at = HEADS_BY_FLAG[message.sys_flag & 0x30].size
    found = flipped_bits(len(message.body), message.body_crc, computed)
    if len(found) != 1:
        return None
    at, bit = body_at + found[0].at, found[0].bit
    record = _flip(raw, at, bit)
    return Unflipped(record, at, bit, odds) if _agrees(record, message, found[0].at) else None


def unflip_beside_body(raw: bytes, message: Message) -> Unflipped | None:
    """The record with the one flipped bit of its header, topic or properties put right, found by its record CRC."""
    stored, computed = record_crc(raw, 0, len(raw))
    if stored is None or stored == computed:
        return None
    body_at = HEADS_BY_FLAG[message.sys_flag & 0x30].size
    body = range(body_at, body_at + len(message.body))
    covered = len(raw) - CRC32_RESERVED_LEN
    fits: list[Unflipped] = []
    for at, bit in flipped_bits(covered, stored, computed):
        candidate = _flip(raw, at, bit)
        found, _ = parse_message(candidate)
        if at in body or found is None or check_message(found, message.physical_offset) is not Fault.NONE:
            continue
        fits.append(Unflipped(candidate, at, bit, odds_of_false_match(covered)))
    if len(fits) != 1:
        return None
    mended, _ = parse_message(fits[0].record)
    return fits[0] if mended is not None and not properties.property_faults(mended.properties) else None


def _flip(raw: bytes, at: int, bit: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


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
