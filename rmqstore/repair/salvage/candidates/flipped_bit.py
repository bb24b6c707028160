"""Candidates with one flipped bit or wrong byte, which a CRC locates, so that the original bytes are restored."""

from __future__ import annotations

from rmqstore.formats.bodies import BodyError, compression, decompress
from rmqstore.formats.crcbits import BYTES, WrongByte, flip_bits, odds_of_false_match, wrong_bytes
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
from rmqstore.repair.salvage.candidates.edit import Mended, changed_fields, restored
from rmqstore.texts import Text

ACCEPTED_ODDS = 1e-4
"""Maximum probability that a correction is wrong, unless the operator accepts more (--accept-odds)."""


def unflip_body(raw: bytes, message: Message, *, accept_odds: bool = False) -> Mended | None:
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
    if not _agrees(record, message, body_at):
        return None
    return Mended(
        record, ("body",), (Text("body CRC"),), restored=restored(message, head + body_at, mask, odds, "body")
    )


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


def unflip_beside_body(raw: bytes, message: Message, *, accept_odds: bool = False) -> Mended | None:
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
    fits: list[Mended] = []
    for at, mask in found:
        record = flip_bits(raw, at, mask)
        mended, _ = parse_message(record)
        if mended is not None and check_message(mended, message.physical_offset) is Fault.NONE:
            what = restored(mended, at, mask, odds, "record")
            fits.append(Mended(record, changed_fields(raw, record), (Text("record CRC"),), restored=what))
    return fits[0] if len(fits) == 1 else None


def _agrees(record: bytes, damaged: Message, at: int) -> bool:
    """Return whether no witness contradicts the mended body; `at` is the position of the changed byte in it."""
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
    """Return whether a body consists of printable ASCII and white space."""
    return body.isascii() and not any(byte < 0x20 and byte not in b"\t\n\r" for byte in body)
