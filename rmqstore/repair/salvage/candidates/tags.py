"""TAGS that a consume queue unit contradicts: no checksum covers them, so the unit's tags code is the witness. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.records import message_at
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.message import Message, parse_message
from rmqstore.repair.log.redispatch import Name
from rmqstore.repair.salvage.candidates.fields import Mended, mend_properties
from rmqstore.repair.salvage.evidence.spans import carries_crc

_SEARCHED = 1024  # bytes of a property text that are searched for one flipped bit
_INT = 1 << 31
_TAG = codes.CQ_WRONG_TAG
_MOST = 1000  # more of them are no single bits: queues that somebody made, or made from other messages


@dataclass(frozen=True, slots=True)
class ProvedTags:
    """A record whose unit, with its tags code, proves that one bit of its TAGS is flipped; `new` has it right.

    `start`: of the record, global offset.
    """

    log: LogResult
    start: int
    queue: Name
    code: int
    old: bytes
    new: bytes


def proved_records(verified: Verified) -> Iterator[ProvedTags]:
    """All of them. Where one bit of the unit explains the difference as well, the unit is taken to be wrong."""
    logs = verified.logs
    wrong = [f for f in verified.report.findings.listed if f.code == _TAG]
    for finding in wrong[:_MOST]:
        topic, _, queue_id = finding.queue.rpartition("/")
        start, code, expected = (finding.facts.get(name) for name in ("commitlog_offset", "tags_code", "expected"))
        if not (isinstance(start, int) and isinstance(code, int) and isinstance(expected, int)):
            continue
        log = next((log for log in logs.results if log.queue.find(start) is not None), None)
        if (
            log is None
            or topic == properties.SCHEDULE_TOPIC
            or consumequeue.one_bit_apart(code, expected)
            or logs.damaged(start)
        ):
            continue
        message = message_at(log.queue, start)
        if message is None:
            continue
        raw = log.queue.pread(message.size, start)
        new = proved_tags(raw, message, code)
        if new is not None:
            yield ProvedTags(log, start, (topic, int(queue_id)), code, raw, new)


def proved_tags(raw: bytes, message: Message, code: int) -> bytes | None:
    """The record with the one bit of its property text flipped back that makes its TAGS those of a unit's tags code.

    A code is 32 bits and some thousand bits are tried: that a wrong unit meets one of them is out of the question. None
    without exactly one answer, where a record CRC covers the text, and for codes that are not the hash of a text.
    """
    text = message.properties
    if not -_INT <= code < _INT or code == 0 or carries_crc(message) or len(text) > _SEARCHED:
        return None
    found: set[bytes] = set()
    for at in _places(text):
        for bit in range(8):
            candidate = text[:at] + bytes([text[at] ^ (1 << bit)]) + text[at + 1 :]
            tags = properties.parse_properties(candidate).get(properties.TAGS)
            if tags and properties.tags_code(tags) == code and not properties.property_faults(candidate):
                found.add(candidate)
    return raw[: len(raw) - len(text)] + found.pop() if len(found) == 1 else None


def with_tags(record: bytes, code: int | None) -> bytes:
    """The record with the TAGS that its unit proves, where they are not."""
    message, _ = parse_message(record)
    if message is None or code is None or message.topic_text == properties.SCHEDULE_TOPIC:
        return record
    has = properties.tags_code(properties.parse_properties(message.properties).get(properties.TAGS))
    proved = None if code == has or consumequeue.one_bit_apart(code, has) else proved_tags(record, message, code)
    return record if proved is None else proved


def mended_text(record: bytes, code: int | None) -> Mended | None:
    """The record with a sound property text; its TAGS may be damaged besides."""
    mended = mend_properties(record, code)
    if code is None or mended is None or not mended.unproved:
        return mended
    other = mend_properties(record, None)
    if other is None or other.unproved:
        return mended
    both = with_tags(other.record, code)
    return replace(other, record=both) if both != other.record else mended


def _places(text: bytes) -> Iterable[int]:
    """Where the flipped bit can be: in the TAGS with their separators; anywhere in a text without TAGS."""
    at = 0
    for part in text.split(b"\x02"):
        if part.startswith(properties.TAGS.encode() + b"\x01"):
            return range(max(0, at - 1), min(len(text), at + len(part) + 1))
        at += len(part) + 1
    return range(len(text))
