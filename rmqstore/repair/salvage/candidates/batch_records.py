"""Candidates for a BatchCQ topic's record that its unit contradicts, if another witness proves the unit right.

A BatchCQ unit has all that queues need of its record: size, tags code, store time, base offset and count. The record is
the damaged one only if a single field (or its queue) differs, and another witness agrees with the unit: for the tags
code one flipped bit of the TAGS, for the base offset its second copy in the record (QUEUEOFFSET beside INNER_BASE) or
the units around it, for the count the messages in the body, for the store time those of the neighbours. Otherwise the
unit is rebuilt from the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.problems import codes
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import HEADS_BY_FLAG, INNER_BATCH, Message, parse_message
from rmqstore.formats.services import batch_extent
from rmqstore.repair.log.redispatch import can_have_queues
from rmqstore.repair.salvage.candidates.edit import Mended, set_fields, set_properties
from rmqstore.repair.salvage.candidates.property_text import proved_tags
from rmqstore.repair.salvage.evidence.places import carries_crc
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.evidence.values import Name, QueueSlot
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text

CODES = (codes.BCQ_WRONG_UNIT, codes.BCQ_DANGLING_UNIT)
_UNIT = consumequeue.BATCH_UNIT
_INNER_HEAD = 20  # bytes: total size, magic, body CRC, flag, body length
_MOST = 1000  # findings


class _SharedFields(NamedTuple):
    """The fields that a record and its unit have in common."""

    queue: Name
    tags: int
    time: int
    base: int
    number: int


class _BatchUnit(NamedTuple):
    """The fields of a unit, and the place of its record."""

    fields: _SharedFields
    offset: int
    size: int


def proved_batches(evidence: Evidence) -> Iterator[tuple[int, Mended, frozenset[Name]]]:
    """Yield (global offset of the record, its mended bytes, queues that may contain it)."""
    store, logs = evidence.store, evidence.logs
    for finding in [f for f in evidence.verified.report.findings.listed if f.code in CODES][:_MOST]:
        topic, _, queue_id = finding.queue.rpartition("/")
        start = finding.facts.get("commitlog_offset")
        if not isinstance(start, int) or logs.damaged(start):
            continue
        log = logs.at(start)
        message = message_at(log.queue, start) if log is not None else None
        if log is None or message is None or message.physical_offset != start or carries_crc(message):
            continue  # a record that fits its record CRC is sound
        files = store.consume_queue(topic, int(queue_id), QueueKind.BATCH)
        unit = _unit_at(files, finding.offset)
        if unit is None or (unit.offset, unit.size) != (start, message.size):
            continue
        mended = _mend(store, log.queue.pread(message.size, start), message, unit, finding.offset)
        if mended is not None and _fields_of(store, mended.record) == unit.fields:
            yield start, mended, frozenset({unit.fields.queue, (message.topic_text, message.queue_id)})


def _mend(store: Store, raw: bytes, message: Message, unit: _BatchUnit, at: int) -> Mended | None:
    """Correct the one field that differs from the unit (at byte `at` of its queue); None without a proof."""
    own, fields = _fields_of(store, raw), unit.fields
    if own is None:
        return None
    files = store.consume_queue(*fields.queue, QueueKind.BATCH)
    before, behind = _unit_at(files, at - _UNIT.size), _unit_at(files, at + _UNIT.size)
    new: bytes | None = None
    name = ""
    match [field for field, one, other in zip(_SharedFields._fields, own, fields, strict=True) if one != other]:
        case ["queue"] if not _has_unit(store, own.queue, unit.offset):  # all else agrees: the unit is of this record
            name, new = "queue", set_fields(raw, QueueSlot(*fields.queue, message.queue_offset))
        case ["tags"] if not consumequeue.one_bit_apart(own.tags, fields.tags):
            name, new = "TAGS", proved_tags(raw, message, fields.tags)
        case ["time"] if _between(before, fields, behind) and not _between(before, own, behind):
            where = HEADS_BY_FLAG[message.sys_flag & 0x30].at("store_timestamp")
            name, new = "STORETIMESTAMP", raw[:where] + fields.time.to_bytes(8, "big", signed=True) + raw[where + 8 :]
        case ["base"] if not message.sys_flag & INNER_BATCH:
            slot = QueueSlot(*fields.queue, fields.base)
            name, new = "base offset", set_fields(raw, slot) if _joins(before, fields, behind) else None
        case ["base"] if message.queue_offset == fields.base:
            name, new = "base offset", _with_number(raw, message, properties.INNER_BASE, own.base, fields.base)
        case ["number"] if _messages_in(message) == fields.number:
            name, new = "INNER_NUM", _with_number(raw, message, properties.INNER_NUM, own.number, fields.number)
    return Mended(new, (name,), (Text("consume queue"),)) if new is not None else None


def _fields_of(store: Store, raw: bytes) -> _SharedFields | None:
    message, _ = parse_message(raw)
    if message is None:
        return None
    found = properties.parse_properties(message.properties)
    code = properties.dispatch_tags_code(message.topic_text, found, message.store_timestamp, delay_levels(store))
    extent = batch_extent(found, message.queue_offset)
    return _SharedFields((message.topic_text, message.queue_id), code or 0, message.store_timestamp, *extent)


def _unit_at(files: ConsumeQueueFiles, at: int) -> _BatchUnit | None:
    unit = files.queue.unit(_UNIT, at // _UNIT.size)
    if unit is None:
        return None
    offset, size, base, count = (int(unit[n]) for n in ("commitlog_offset", "size", "base_offset", "batch_size"))
    if not consumequeue.is_batch_unit(offset, size, base, count):
        return None
    fields = _SharedFields(
        (files.topic, files.queue_id), int(unit["tags_code"]), int(unit["store_timestamp"]), base, count
    )
    return _BatchUnit(fields, offset, size)


def _between(before: _BatchUnit | None, one: _SharedFields, behind: _BatchUnit | None) -> bool:
    """Return whether a store time (ms) is between those of the two units beside it."""
    return before is not None and behind is not None and before.fields.time <= one.time <= behind.fields.time


def _joins(before: _BatchUnit | None, one: _SharedFields, behind: _BatchUnit | None) -> bool:
    """Return whether a batch begins where the one before it ends, and ends where the next one begins."""
    if before is None or behind is None:
        return False
    return before.fields.base + before.fields.number == one.base and one.base + one.number == behind.fields.base


def _has_unit(store: Store, name: Name, offset: int) -> bool:
    """Return whether a queue has a unit for the record at a global offset."""
    if not can_have_queues(name[0].encode("utf-8", "surrogatepass"), name[1]):
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
