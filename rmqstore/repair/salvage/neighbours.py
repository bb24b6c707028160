"""Extends damaged spans that are too short for a filler: by a BLANK after them, or by a good message beside them.

A filler needs `SMALLEST` bytes, plus DLedger's header. Shorter damage between good messages can only be replaced
together with one of them. That loses a message, so it is done only on request (--merge-neighbours).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqstore.files.mapped_file_queue import message_at
from rmqstore.formats import message as records
from rmqstore.formats import properties
from rmqstore.formats.message import Message
from rmqstore.formats.services import light_queues
from rmqstore.repair.log.records_near import first_behind, last_before
from rmqstore.repair.salvage.candidates.edit import Keep
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.places import Damage
from rmqstore.repair.salvage.evidence.values import Expected, QueueSlot
from rmqstore.repair.salvage.fillers import SMALLEST
from rmqstore.repair.salvage.layout import Cell
from rmqstore.scan.tiling import Kind, Run


class _Side(NamedTuple):
    """A good record beside a span; in DLedger data `start` is the start of its entry."""

    start: int
    stop: int
    message: Message


def slot_of(message: Message, levels: properties.DelayLevels) -> QueueSlot | None:
    """Return the queue offset in a record's header; None if no queue contains the record."""
    if not message.is_dispatched or message.queue_offset < 0 or message.queue_id < 0:
        return None
    topic = message.topic_text
    if properties.property_faults(message.properties):
        return QueueSlot(topic, message.queue_id, message.queue_offset)
    found = properties.parse_properties(message.properties)
    code = properties.dispatch_tags_code(topic, found, message.store_timestamp, levels)
    batch = properties.inner_batch(found) if message.sys_flag & records.INNER_BATCH else None
    fan_out = tuple((name, at) for name, _, at in light_queues(topic, message.queue_id, found))
    return QueueSlot(topic, message.queue_id, message.queue_offset, code, batch[1] if batch else 0, fan_out)


def take_in_blanks(damages: Sequence[Damage]) -> list[Damage]:
    """Extend short spans directly before a BLANK to the end of their file: a new BLANK replaces both."""
    return [_with_blank(d) if _short(d) else d for d in damages]


def take_in_neighbours(
    damages: Sequence[Damage], progress: ConsumerProgress, levels: properties.DelayLevels
) -> list[Damage]:
    """Extend short spans by the good record beside them whose loss costs least, and merge spans that then touch."""
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
    return not damage.at_end and damage.length < SMALLEST + damage.log.body_offset


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
    """Extend a span by one neighbour: preferably one in no queue, else one that most groups have consumed.

    Messages of system topics are the last choice. `after` is the start of the next damage: the record between both
    would merge two spans into a large one.
    """
    sides = list(_sides(damage))
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


def _sides(damage: Damage) -> Iterator[_Side]:
    """Yield the good records that touch a span, in the same file."""
    log, size = damage.log, damage.log.queue.file_size
    before = last_before(log, damage.start)[-1:] if damage.start % size else ()
    behind = first_behind(log, damage.stop)[:1] if damage.stop % size else ()
    for start, stop in (*before, *behind):
        message = (
            message_at(log.queue, start + log.body_offset) if damage.start == stop or damage.stop == start else None
        )
        if message is not None:
            yield _Side(start, stop, message)


def taken_cells(damage: Damage, levels: properties.DelayLevels) -> list[Cell]:
    """Return the good records by which a span was extended, as cells."""
    out: list[Cell] = []
    body_offset = damage.log.body_offset
    for start in damage.taken:
        message = message_at(damage.log.queue, start + body_offset)
        if message is not None:
            slot = slot_of(message, levels)
            at = start + body_offset
            expected = None if slot is None else Expected(slot, at, message.size, message.store_timestamp)
            raw = damage.log.queue.pread(message.size, at)
            out.append(Cell(start, body_offset + message.size, expected, message, kept=Keep(raw)))
    return out
