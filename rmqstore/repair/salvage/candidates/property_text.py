"""Candidates for a damaged property text: one flipped bit that a witness proves, otherwise a readable text.

Most records have no checksum over their properties. The proof of a candidate is the tags code of the record's consume
queue unit, or the name of a property that brokers use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from rmqstore.formats import consumequeue, properties, services
from rmqstore.formats.crcbits import flip
from rmqstore.formats.message import CRC32_RESERVED_LEN, Message, parse_message
from rmqstore.repair.salvage.candidates.edit import Mended, set_properties
from rmqstore.repair.salvage.evidence.places import carries_crc
from rmqstore.texts import Text, joined

_SEARCHED = 1024  # bytes of a property text that are searched for one flipped bit
_INT = 1 << 31
_NAMES = frozenset(
    value
    for name, value in vars(properties).items()
    if name.isupper() and isinstance(value, str) and value.isascii() and 1 < len(value) < 40
)


def mend_properties(raw: bytes, tags_code: int | None) -> Mended | None:
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
    if not -_INT <= code < _INT or code == 0 or carries_crc(message) or len(text) > _SEARCHED:
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


def _mend(raw: bytes, tags_code: int | None) -> Mended | None:
    message, _ = parse_message(raw)
    if message is None:
        return None
    text, tail = message.properties, b""
    if carries_crc(message):
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
    return Mended(set_properties(raw, message, new + tail), ("properties",), unproved=unproved)


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
