"""Damaged spans too short for a record: a BLANK behind takes them in, or a good message beside them has to go. Pure.

A filler needs `SMALLEST` bytes (with DLedger's header in front). Shorter damage between good messages can only be
covered together with one of them. That costs a message, so it is done when the operator asks for it and never else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.records import message_at
from rmqstore.formats import message as records
from rmqstore.formats import properties
from rmqstore.formats.message import Message
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.filler_records import SMALLEST, QueueSlot
from rmqstore.repair.salvage.evidence.lost_messages import Lost
from rmqstore.repair.salvage.evidence.spans import Damage
from rmqstore.repair.salvage.layout import Cell
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions

NO_UNIT = (records.TRANSACTION_PREPARED, records.TRANSACTION_ROLLBACK)
"""Types of records that no queue gets."""


@dataclass(frozen=True, slots=True)
class _Side:
    """A good record beside a span; in DLedger data `start` is its entry's."""

    start: int
    stop: int
    message: Message


def seat_of(message: Message, levels: properties.DelayLevels) -> QueueSlot | None:
    """The place in a queue that a record says itself; None for one that no queue gets."""
    if message.transaction_type in NO_UNIT or message.queue_offset < 0 or message.queue_id < 0:
        return None
    topic = message.topic_text
    found = properties.parse_properties(message.properties)
    sound = not properties.property_faults(message.properties)
    code = properties.dispatch_tags_code(topic, found, message.store_timestamp, levels) if sound else None
    batch = properties.inner_batch(found) if message.sys_flag & records.INNER_BATCH else None
    fan_out = tuple(properties.lmq_queues(found)) if sound and properties.dispatches_to_lmq(topic) else ()
    return QueueSlot(topic, message.queue_id, message.queue_offset, code, batch[1] if batch and sound else 0, fan_out)


def take_in_blanks(damages: Sequence[Damage]) -> list[Damage]:
    """Short spans right before a BLANK reach to their file's end: the BLANK is written again in front of them."""
    return [_with_blank(d) if _short(d) else d for d in damages]


def take_in_neighbours(
    damages: Sequence[Damage], audience: ConsumerProgress, levels: properties.DelayLevels
) -> list[Damage]:
    """Short spans with the good record beside them that costs least; those that touch each other then are one."""
    out: list[Damage] = []
    for i, damage in enumerate(damages):
        if out and _touch(out[-1], damage):
            damage = _one(out.pop(), damage)
        elif _short(damage):
            after = damages[i + 1].start if i + 1 < len(damages) else None
            damage = _with_neighbour(damage, after, audience, levels)
            if out and _touch(out[-1], damage):
                damage = _one(out.pop(), damage)
        out.append(damage)
    return out


def _short(damage: Damage) -> bool:
    return not damage.at_end and damage.length < SMALLEST + damage.log.lead


def _touch(one: Damage, other: Damage) -> bool:
    return one.log is other.log and one.file is other.file and one.stop == other.start and not one.at_end


def _one(first: Damage, second: Damage) -> Damage:
    return replace(
        second,
        start=first.start,
        runs=first.runs + second.runs,
        short=first.short + second.short,
        taken=first.taken + second.taken,
    )


def _with_blank(damage: Damage) -> Damage:
    run = damage.log.tiling.find(damage.stop)
    size = damage.log.queue.file_size
    if run is None or run.kind is not Kind.BLANK or run.start != damage.stop or damage.start % size == 0:
        return damage
    if run.stop % size or damage.stop // size != (run.stop - 1) // size:
        return damage
    return replace(damage, stop=run.stop, runs=(*damage.runs, run), at_end=True)


def _with_neighbour(
    damage: Damage, after: int | None, audience: ConsumerProgress, levels: properties.DelayLevels
) -> Damage:
    """A neighbour that no queue misses goes first, then one that all groups have consumed; a broker's own goes last.

    `after` is where the next damage starts: a neighbour of both would make one large span of two.
    """
    sides = [side for side in (_before(damage), _behind(damage)) if side is not None]
    if not sides:
        return damage

    def cost(side: _Side) -> tuple[bool, bool, bool, int]:
        seat = seat_of(side.message, levels)
        shared = side.stop == after
        if seat is None:
            return False, False, shared, 0
        return True, properties.is_system_topic(seat.topic), shared, len(audience.groups(seat))

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
    offset = _last_record(log, file, max(run.start, file.start), damage.start)
    message = message_at(log.queue, offset) if offset is not None else None
    if offset is None or message is None or offset + message.size != damage.start:
        return None
    return _Side(offset - log.lead, damage.start, message)


def _last_record(log: LogResult, file: MappedFile, start: int, stop: int) -> int | None:
    """Global offset of the last record of a run of good ones (behind DLedger's header)."""
    last = None
    options = ScanOptions(crc=False)
    for run in scan_file(
        file, start=start - file.start, stop=stop - file.start, lead=log.lead, exact=True, options=options
    ):
        if run.kind is Kind.RECORDS and run.columns is not None and len(run.columns):
            last = int(run.columns.offset[-1])
    return last


def taken_cells(damage: Damage, levels: properties.DelayLevels) -> list[Cell]:
    """The good records that a span has taken in, unchanged."""
    out: list[Cell] = []
    lead = damage.log.lead
    for start in damage.taken:
        message = message_at(damage.log.queue, start + lead)
        if message is None:
            continue
        seat = seat_of(message, levels)
        lost = None if seat is None else Lost(seat, start + lead, message.size, message.store_timestamp)
        raw = damage.log.queue.pread(message.size, start + lead)
        out.append(Cell(start, lead + message.size, lost, message, kept=raw))
    return out
