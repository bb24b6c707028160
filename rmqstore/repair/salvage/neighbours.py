"""Damaged spans too short for a record: a BLANK behind takes them in, or a good message beside them has to go.

A filler needs `SMALLEST` bytes (with DLedger's header in front). Shorter damage between good messages can only be
covered together with one of them. That costs a message, so it is done only when the operator asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqstore.files.records import message_at
from rmqstore.formats import message as records
from rmqstore.formats import properties
from rmqstore.formats.message import Message
from rmqstore.repair.salvage.candidates.edit import Keep
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.places import Damage
from rmqstore.repair.salvage.evidence.values import Expected, QueueSlot
from rmqstore.repair.salvage.fillers import SMALLEST
from rmqstore.repair.salvage.layout import Cell
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions


class _Side(NamedTuple):
    """A good record beside a span; in DLedger data `start` is its entry's."""

    start: int
    stop: int
    message: Message


def slot_of(message: Message, levels: properties.DelayLevels) -> QueueSlot | None:
    """The place in a queue that a record says itself; None for one that no queue gets."""
    if not message.is_dispatched or message.queue_offset < 0 or message.queue_id < 0:
        return None
    topic = message.topic_text
    if properties.property_faults(message.properties):
        return QueueSlot(topic, message.queue_id, message.queue_offset)
    found = properties.parse_properties(message.properties)
    code = properties.dispatch_tags_code(topic, found, message.store_timestamp, levels)
    batch = properties.inner_batch(found) if message.sys_flag & records.INNER_BATCH else None
    fan_out = tuple(properties.lmq_queues(found)) if properties.dispatches_to_lmq(topic) else ()
    return QueueSlot(topic, message.queue_id, message.queue_offset, code, batch[1] if batch else 0, fan_out)


def take_in_blanks(damages: Sequence[Damage]) -> list[Damage]:
    """Short spans right before a BLANK reach to their file's end: the BLANK is written again in front of them."""
    return [_with_blank(d) if _short(d) else d for d in damages]


def take_in_neighbours(
    damages: Sequence[Damage], progress: ConsumerProgress, levels: properties.DelayLevels
) -> list[Damage]:
    """Short spans with the good record beside them that costs least; those that touch each other then are one."""
    out: list[Damage] = []
    for i, damage in enumerate(damages):
        if not (out and _touch(out[-1], damage)) and _short(damage):
            after = damages[i + 1].start if i + 1 < len(damages) else None
            damage = _with_neighbour(damage, after, progress, levels)
        if out and _touch(out[-1], damage):
            first = out.pop()
            runs, taken = first.runs + damage.runs, first.taken + damage.taken
            damage = replace(damage, start=first.start, runs=runs, short=first.short + damage.short, taken=taken)
        out.append(damage)
    return out


def _short(damage: Damage) -> bool:
    return not damage.at_end and damage.length < SMALLEST + damage.log.lead


def _touch(one: Damage, other: Damage) -> bool:
    return one.log is other.log and one.file is other.file and one.stop == other.start and not one.at_end


def _with_blank(damage: Damage) -> Damage:
    run = damage.log.tiling.find(damage.stop)
    size = damage.log.queue.file_size
    if run is None or run.kind is not Kind.BLANK or run.start != damage.stop or damage.start % size == 0:
        return damage
    if run.stop % size or damage.stop // size != (run.stop - 1) // size:
        return damage
    return replace(damage, stop=run.stop, runs=(*damage.runs, run), at_end=True)


def _with_neighbour(
    damage: Damage, after: int | None, progress: ConsumerProgress, levels: properties.DelayLevels
) -> Damage:
    """A neighbour that no queue misses goes first, then one that all groups have consumed; a broker's own goes last.

    `after` is where the next damage starts: a neighbour of both would make one large span of two.
    """
    sides = [side for side in (_before(damage), _behind(damage)) if side is not None]
    if not sides:
        return damage

    def cost(side: _Side) -> tuple[bool, bool, bool, int]:
        slot = slot_of(side.message, levels)
        shared = side.stop == after
        if slot is None:
            return False, False, shared, 0
        return True, properties.is_system_topic(slot.topic), shared, len(progress.groups(slot))

    side = min(sides, key=cost)
    piece = Run(Kind.RECORDS, side.start, side.stop, 1)
    runs = (piece, *damage.runs) if side.start < damage.start else (*damage.runs, piece)
    start, stop = min(side.start, damage.start), max(side.stop, damage.stop)
    return replace(damage, start=start, stop=stop, runs=runs, taken=(side.start,))


def _behind(damage: Damage) -> _Side | None:
    """The good record that starts where a span ends, in the same file."""
    log = damage.log
    run = log.tiling.find(damage.stop)
    if run is None or run.kind is not Kind.RECORDS or damage.stop % log.queue.file_size == 0:
        return None
    message = message_at(log.queue, damage.stop + log.lead)
    return None if message is None else _Side(damage.stop, damage.stop + log.lead + message.size, message)


def _before(damage: Damage) -> _Side | None:
    """The good record that ends where a span starts, in the same file."""
    log, file = damage.log, damage.file
    run = log.tiling.find(damage.start - 1)
    if file is None or run is None or run.kind is not Kind.RECORDS or damage.start == file.start:
        return None
    start, stop, last = max(run.start, file.start) - file.start, damage.start - file.start, -1
    for part in scan_file(file, start=start, stop=stop, lead=log.lead, exact=True, options=ScanOptions(crc=False)):
        if part.kind is Kind.RECORDS and part.columns is not None and len(part.columns):
            last = int(part.columns.offset[-1])
    message = message_at(log.queue, last) if last >= 0 else None
    if message is None or last + message.size != damage.start:
        return None
    return _Side(last - log.lead, damage.start, message)


def taken_cells(damage: Damage, levels: properties.DelayLevels) -> list[Cell]:
    """The good records that a span has taken in, unchanged."""
    out: list[Cell] = []
    lead = damage.log.lead
    for start in damage.taken:
        message = message_at(damage.log.queue, start + lead)
        if message is not None:
            slot = slot_of(message, levels)
            at = start + lead
            expected = None if slot is None else Expected(slot, at, message.size, message.store_timestamp)
            raw = damage.log.queue.pread(message.size, at)
            out.append(Cell(start, lead + message.size, expected, message, kept=Keep(raw)))
    return out
