"""Records of BatchCQ topics that their unit contradicts, where the unit is proved right. Pure.

A unit of a BatchCQ says of its record all that queues need: size, tags code, store time, base offset and count. A
record is taken to be the damaged one only if one field (or the queue that it names) is wrong, and something else bears
the unit out: its tags code one flipped bit of the TAGS, the base offset what the record says a second time (QUEUEOFFSET
beside INNER_BASE) or the units around it, the count the messages in the body, the store time its neighbours'. Where
nothing does, the unit is made to fit the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.owed_units import batch_extent
from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.records import message_at
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import HEADS_BY_FLAG, INNER_BATCH, Message, parse_message
from rmqstore.repair.log.redispatch import Name, can_have_queues
from rmqstore.repair.salvage.candidates.fields import set_fields
from rmqstore.repair.salvage.candidates.tags import proved_tags
from rmqstore.repair.salvage.evidence.filler_records import QueueSlot
from rmqstore.repair.salvage.evidence.spans import carries_crc
from rmqstore.scan.units import unit_chunks

CODES = (codes.BCQ_WRONG_UNIT, codes.BCQ_DANGLING_UNIT)
_UNIT = consumequeue.BATCH_UNIT
_INNER_HEAD = 20  # bytes: total size, magic, body CRC, flag, body length
_MOST = 1000


@dataclass(frozen=True, slots=True)
class ProvedBatch:
    """A record at global offset `start` that its unit proves damaged; `new` has it right, `queues` may have it."""

    log: LogResult
    start: int
    old: bytes
    new: bytes
    queues: frozenset[Name]
    what: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit, and its neighbours in its queue (None: missing)."""

    offset: int
    size: int
    tags_code: int
    time: int
    base: int
    count: int
    before: _Unit | None = None
    behind: _Unit | None = None


def proved_batches(store: Store, verified: Verified) -> Iterator[ProvedBatch]:
    """All of them."""
    logs = verified.logs
    for finding in [f for f in verified.report.findings.listed if f.code in CODES][:_MOST]:
        topic, _, queue_id = finding.queue.rpartition("/")
        start = finding.facts.get("commitlog_offset")
        if not isinstance(start, int) or logs.damaged(start):
            continue
        log = next((log for log in logs.results if log.queue.find(start) is not None), None)
        message = message_at(log.queue, start) if log is not None else None
        if log is None or message is None or message.physical_offset != start or carries_crc(message):
            continue  # with a record CRC what fits it is whole
        name = (topic, int(queue_id))
        unit = _read(store.consume_queue(*name, QueueKind.BATCH), finding.offset)
        raw = log.queue.pread(message.size, start)
        if unit is None or (unit.offset, unit.size) != (start, message.size):
            continue
        found = _mended(store, raw, message, name, unit)
        if found is not None and _says(store, found[0]) == (name, unit.tags_code, unit.time, unit.base, unit.count):
            queues = frozenset({name, (message.topic_text, message.queue_id)})
            yield ProvedBatch(log, start, raw, found[0], queues, found[1])


def _mended(store: Store, raw: bytes, message: Message, name: Name, unit: _Unit) -> tuple[bytes, str] | None:
    """The record with the one thing put right that it says otherwise than its unit, and what that is."""
    said = _says(store, raw)
    if said is None:
        return None
    own, tags_code, time, base, count = said
    wrong = [
        what
        for what, one, other in (
            ("queue", own, name),
            ("TAGS", tags_code, unit.tags_code),
            ("STORETIMESTAMP", time, unit.time),
            ("base", base, unit.base),
            ("INNER_NUM", count, unit.count),
        )
        if one != other
    ]
    new: bytes | None = None
    match wrong:
        case ["queue"] if not _has_unit(store, own, unit.offset):  # all else agrees: it is this record's unit
            new = set_fields(raw, QueueSlot(*name, message.queue_offset))
        case ["TAGS"] if not consumequeue.one_bit_apart(tags_code, unit.tags_code):
            new = proved_tags(raw, message, unit.tags_code)
        case ["STORETIMESTAMP"] if _between(unit, unit.time) and not _between(unit, time):
            at = HEADS_BY_FLAG[message.sys_flag & 0x30].at("store_timestamp")
            new = raw[:at] + unit.time.to_bytes(8, "big", signed=True) + raw[at + 8 :]
        case ["base"] if not message.sys_flag & INNER_BATCH:
            new = set_fields(raw, QueueSlot(*name, unit.base)) if _joins(unit) else None
        case ["base"] if message.queue_offset == unit.base:
            new = _with_number(raw, message, properties.INNER_BASE, base, unit.base)
        case ["INNER_NUM"] if _messages_in(message) == unit.count:
            new = _with_number(raw, message, properties.INNER_NUM, count, unit.count)
        case _:
            pass
    return (new, wrong[0] if wrong != ["base"] else "base offset") if new is not None else None


def _says(store: Store, raw: bytes) -> tuple[Name, int, int, int, int] | None:
    """Queue, tags code, store time, base offset and count of a record."""
    message, _ = parse_message(raw)
    if message is None:
        return None
    found = properties.parse_properties(message.properties)
    code = properties.dispatch_tags_code(message.topic_text, found, message.store_timestamp, delay_levels(store))
    base, count = batch_extent(found, message.queue_offset)
    return (message.topic_text, message.queue_id), code or 0, message.store_timestamp, base, count


def _read(files: ConsumeQueueFiles, at: int) -> _Unit | None:
    """The unit at a place in its queue, with its neighbours."""
    one = _parse(files, at)
    if one is None:
        return None
    before, behind = _parse(files, at - _UNIT.size), _parse(files, at + _UNIT.size)
    return _Unit(*one, _Unit(*before) if before else None, _Unit(*behind) if behind else None)


def _parse(files: ConsumeQueueFiles, at: int) -> tuple[int, int, int, int, int, int] | None:
    raw = files.queue.pread(_UNIT.size, at) if at >= 0 else b""
    if len(raw) < _UNIT.size:
        return None
    unit = _UNIT.parse(raw)
    values = [int(unit[n]) for n in ("commitlog_offset", "size", "base_offset", "batch_size")]
    if not consumequeue.is_batch_unit(*values):
        return None
    offset, size, base, count = values
    return offset, size, int(unit["tags_code"]), int(unit["store_timestamp"]), base, count


def _between(unit: _Unit, time: int) -> bool:
    """Whether a store time (ms) lies between those of the units beside it, which are both there."""
    return unit.before is not None and unit.behind is not None and unit.before.time <= time <= unit.behind.time


def _joins(unit: _Unit) -> bool:
    """Whether it goes on where the unit before it ends, and the one behind it where it ends itself."""
    before, behind = unit.before, unit.behind
    if before is None or behind is None:
        return False
    return before.base + before.count == unit.base and unit.base + unit.count == behind.base


def _has_unit(store: Store, name: Name, offset: int) -> bool:
    """Whether a queue has a unit for the record at a global offset."""
    if not can_have_queues(name[0].encode("utf-8", "surrogatepass"), name[1]):
        return False
    for chunk in unit_chunks(store.consume_queue(*name, QueueKind.BATCH).queue, _UNIT):
        if bool(np.any((chunk.units["commitlog_offset"] == offset) & (chunk.units["size"] != 0))):
            return True
    return False


def _with_number(raw: bytes, message: Message, name: str, old: int, new: int) -> bytes | None:
    """A record with another number in a property that occurs once; None where its length would change."""
    text = message.properties
    was, now = (f"{name}\x01{number}".encode() for number in (old, new))
    parts = text.split(b"\x02")
    if parts.count(was) != 1 or len(was) != len(now):
        return None
    return raw[: len(raw) - len(text)] + b"\x02".join(now if part == was else part for part in parts)


def _messages_in(message: Message) -> int | None:
    """How many messages the body of an inner batch holds (MessageDecoder#encodeMessage); None for any other body."""
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
