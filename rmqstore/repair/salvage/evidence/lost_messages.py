"""What is known of lost messages: units of consume queues that point into the damage, and gaps in queue offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import UNIT, QueuePart
from rmqstore.checks.queues.queue_check import complement
from rmqstore.checks.verify import Verified
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, properties
from rmqstore.repair.salvage.evidence.filler_records import QueueSlot
from rmqstore.scan.units import unit_chunks

Name = tuple[str, int]
_Gap = tuple[str, int, int, int]  # topic, queue id, and the good records around what the queue misses
_BESIDE = 4  # units of a light message queue that are looked at on both sides
_ROOMY = 256  # bytes that a visible filler finds enough in


@dataclass(frozen=True, slots=True)
class Lost:
    """A lost queue offset. `offset` (global) and `size` of its record in bytes, None where nothing says them.

    `store_timestamp` in ms where its unit has it.
    """

    seat: QueueSlot
    offset: int | None = None
    size: int | None = None
    store_timestamp: int | None = None


@dataclass(slots=True)
class Known:
    """Lost messages by the offset of their record, those without a place, and offsets that cannot be placed.

    `by_offset`: what units say is at a global offset. `floating`: (before, at, seat): somewhere between the good
    records at two global offsets.
    """

    by_offset: dict[int, Lost] = field(default_factory=dict)
    floating: list[tuple[int, int, QueueSlot]] = field(default_factory=list)
    light: dict[int, Lost] = field(default_factory=dict)  # only light message queues point there; the seat is theirs
    lent: set[int] = field(default_factory=set)  # offsets in by_offset that no unit of the queue itself told
    notes: list[str] = field(default_factory=list)


class Ranges:
    """Sorted, disjoint ranges; asked whether points lie in them."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self.starts = [a for a, _ in ordered]
        self.stops = [b for _, b in ordered]
        self._a = np.array(self.starts, dtype=np.int64)
        self._b = np.array(self.stops, dtype=np.int64)

    def __contains__(self, point: int) -> bool:
        i = bisect_right(self.starts, point) - 1
        return i >= 0 and point < self.stops[i]

    def mask(self, points: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which points lie in a range."""
        if not self.starts:
            return np.zeros(len(points), dtype=np.bool_)
        at = np.searchsorted(self._a, points, side="right") - 1
        found = np.maximum(at, 0)
        inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (at >= 0) & (points < self._b[found])
        return inside


def find_known(store: Store, verified: Verified, spans: Sequence[tuple[int, int]]) -> Known:
    """Everything that units and gaps tell about the spans (global offsets of records, half-open)."""
    known = Known()
    logs = verified.logs
    ranges = Ranges(spans)
    units: dict[int, list[tuple[QueueSlot, int, int]]] = {}
    for files in store.consume_queues(QueueKind.SIMPLE):
        for index, offset, size, tags in _units_into(files, logs, ranges):
            seat = QueueSlot(files.topic, files.queue_id, index, tags)
            units.setdefault(offset, []).append((seat, size, -1))
    for files in store.consume_queues(QueueKind.BATCH):
        _batches_into(files, ranges, units)
    for offset, found in sorted(units.items()):
        _one_offset(known, offset, found)
    _gaps(known, logs, ranges)
    _seat_light(known, ranges, store, logs)
    return known


def _units_into(files: ConsumeQueueFiles, logs: Logs, ranges: Ranges) -> Iterator[tuple[int, int, int, int]]:
    """(queue offset, offset, size, tags code) of the units that no good message owns and that point into the ranges.

    They count where they are in order between units that their messages own.
    """
    part = logs.queues.get((files.topic, files.queue_id))
    accounted = part.accounted if part is not None else []
    queue = files.queue
    for a, b in complement(accounted, queue.start // UNIT, queue.stop // UNIT):
        low, high = _unit_offset(files, a - 1), _unit_offset(files, b)
        for chunk in unit_chunks(queue, consumequeue.UNIT, start=a * UNIT, stop=b * UNIT):
            offset = chunk.units["commitlog_offset"].astype(np.int64)
            size = chunk.units["size"].astype(np.int64)
            hit = ranges.mask(offset) & (size > 0) & (size != consumequeue.PRE_BLANK_SIZE)
            for i in np.flatnonzero(hit).tolist():
                index, at = chunk.number + i, int(offset[i])
                in_order = (low is None or low < at) and (high is None or at < high)
                if in_order if part is None or not part.shifted else fits_queue(part, index, at):
                    yield index, at, int(size[i]), int(chunk.units["tags_code"][i])


def _unit_offset(files: ConsumeQueueFiles, index: int) -> int | None:
    """Where a unit points to; None without a unit."""
    raw = files.queue.pread(UNIT, index * UNIT) if index >= 0 else b""
    if len(raw) < UNIT:
        return None
    unit = consumequeue.UNIT.parse(raw)
    size = int(unit["size"])
    return int(unit["commitlog_offset"]) if 0 < size != consumequeue.PRE_BLANK_SIZE else None


def fits_queue(part: QueuePart, index: int, offset: int) -> bool:
    """Whether a queue offset is one that the queue's good messages leave open, at a place in the log."""
    if index < part.first:
        return offset < part.first_at
    if index >= part.next:
        return offset > part.last_at
    return any(g.expected <= index < g.got and g.before < offset < g.at for g in part.gaps)


def _batches_into(files: ConsumeQueueFiles, ranges: Ranges, units: dict[int, list[tuple[QueueSlot, int, int]]]) -> None:
    for chunk in unit_chunks(files.queue, consumequeue.BATCH_UNIT):
        offset = chunk.units["commitlog_offset"].astype(np.int64)
        hit = ranges.mask(offset) & (chunk.units["size"] > 0) & (chunk.units["batch_size"] > 0)
        for i in np.flatnonzero(hit).tolist():
            unit = chunk.units[i]
            seat = QueueSlot(
                files.topic,
                files.queue_id,
                int(unit["base_offset"]),
                int(unit["tags_code"]),
                count=int(unit["batch_size"]),
            )
            units.setdefault(int(offset[i]), []).append((seat, int(unit["size"]), int(unit["store_timestamp"])))


def _one_offset(known: Known, offset: int, found: list[tuple[QueueSlot, int, int]]) -> None:
    """What is at one offset: one message of a topic, perhaps fanned out to light message queues."""
    light = [(seat, size) for seat, size, _ in found if properties.is_lmq(seat.topic)]
    own = [row for row in found if not properties.is_lmq(row[0].topic)]
    if not own:
        first, size = light[0]
        pairs = tuple((s.topic, s.queue_offset) for s, _ in light)
        known.light[offset] = Lost(QueueSlot("", 0, -1, first.tags_code, 1, pairs), offset, size)
        return
    if len(own) > 1:
        names = ", ".join(f"{seat.topic}/{seat.queue_id}" for seat, _, _ in own)
        known.notes.append(f"several queues point to {offset:,} ({names}); the first one is used")
    seat, size, time = own[0]
    if light:
        pairs = tuple((s.topic, s.queue_offset) for s, _ in light)
        seat = QueueSlot(seat.topic, seat.queue_id, seat.queue_offset, seat.tags_code, seat.count, pairs)
    known.by_offset[offset] = Lost(seat, offset, size, time if time > 0 else None)


def _seat_light(known: Known, ranges: Ranges, store: Store, logs: Logs) -> None:
    """Messages that only light message queues point to belong to a queue that misses messages there.

    They get its last missing queue offsets, and the others come before them, if they fit. Where
    several queues do, every choice is as good for readers: all that these queues miss becomes fillers in the same
    damage. The queue of a topic that the light queue's other messages have is taken, then the one whose gap ends first.
    """
    spare = Counter((s.topic, s.queue_id, before, at) for before, at, s in known.floating)
    gaps: dict[_Gap, list[int]] = {}
    several: list[tuple[int, list[_Gap]]] = []
    for offset in sorted(known.light):
        found = [gap for gap in spare if gap[2] < offset < gap[3]]
        if len(found) == 1:
            gaps.setdefault(found[0], []).append(offset)
        elif found:
            several.append((offset, found))
    spare.subtract({gap: len(offsets) for gap, offsets in gaps.items()})
    for offset, found in several:
        fits = [gap for gap in found if spare[gap] > 0]
        if fits:
            topics = _topics_of(known.light[offset], store, logs)
            best = min(fits, key=lambda gap: (gap[0] not in topics, gap[3], -spare[gap], gap))
            spare[best] -= 1
            gaps.setdefault(best, []).append(offset)
    chosen = {offset for offset, _ in several}
    for (topic, queue_id, before, at), offsets in gaps.items():
        offsets.sort()
        own = (topic, queue_id, before, at)
        rows = [row for row in known.floating if (row[2].topic, row[2].queue_id, row[0], row[1]) == own]
        missing = sorted(row[2].queue_offset for row in rows)
        left = len(missing) - len(offsets)
        if left < 0 or left * _ROOMY > _free(known, ranges, before, offsets[0]):
            continue
        known.floating = [row for row in known.floating if row not in rows]
        known.floating += [(before, offsets[0], QueueSlot(topic, queue_id, index)) for index in missing[:left]]
        for offset, index in zip(offsets, missing[left:], strict=True):
            light = known.light.pop(offset)
            seat = QueueSlot(topic, queue_id, index, light.seat.tags_code, 1, light.seat.fan_out)
            known.by_offset[offset] = Lost(seat, offset, light.size)
            known.lent.add(offset)
            if offset in chosen:
                known.notes.append(
                    f"only light message queues point to {offset:,}, and several queues miss a message there: its "
                    f"filler keeps {topic}/{queue_id} {index}"
                )
    for offset in sorted(known.light):
        known.notes.append(
            f"only light message queues point to {offset:,}: the queue of that message is not known, it gets no filler"
        )


def _topics_of(light: Lost, store: Store, logs: Logs) -> frozenset[str]:
    """Topics of the good messages beside this one in its light message queues."""
    found: set[str] = set()
    for name, index in light.seat.fan_out:
        queue = store.consume_queue(name, 0).queue
        for number in range(max(0, index - _BESIDE), index + _BESIDE + 1):
            raw = queue.pread(UNIT, number * UNIT)
            unit = consumequeue.UNIT.parse(raw) if len(raw) == UNIT else {"size": 0}
            message = logs.record(unit["commitlog_offset"], unit["size"]) if unit["size"] > 0 else None
            if message is not None:
                found.add(message.topic_text)
    return frozenset(found)


def _free(known: Known, ranges: Ranges, before: int, at: int) -> int:
    """Damaged bytes between two places that no unit accounts for."""
    spans = zip(ranges.starts, ranges.stops, strict=True)
    total = sum(max(0, min(stop, at) - max(start, before)) for start, stop in spans)
    return total - sum(lost.size or 0 for offset, lost in known.by_offset.items() if before < offset < at)


def _gaps(known: Known, logs: Logs, ranges: Ranges) -> None:
    """Queue offsets that neither a record nor a unit has, in queues with damage where they should be."""
    placed: dict[Name, set[int]] = {}
    for lost in known.by_offset.values():
        for name, index in (
            ((lost.seat.topic, lost.seat.queue_id), lost.seat.queue_offset),
            *(((queue, 0), offset) for queue, offset in lost.seat.fan_out),
        ):
            placed.setdefault(name, set()).add(index)
    origin = logs.min_offset == 0
    for (topic, queue_id), part in sorted(logs.queues.items()):
        if properties.is_lmq(topic):
            continue  # a light message queue has no records of its own
        have = placed.get((topic, queue_id), set())
        holes = [(g.expected, g.got, g.before, g.at) for g in part.gaps]
        believed = part.messages > 1 and part.first_at not in logs.misfiled.offsets
        if origin and believed and 0 < part.first <= room(ranges, -1, part.first_at):
            holes.append((0, part.first, -1, part.first_at))
        for expected, got, before, at in holes:
            if got - expected > room(ranges, before, at) + len(have):
                if room(ranges, before, at):
                    known.notes.append(
                        f"{topic}/{queue_id} misses {got - expected:,} queue offsets from {expected} on, more than the "
                        "damage there can have held; they get no filler"
                    )
                continue
            for index in range(expected, got):
                if index not in have and not _misfiled(logs, topic, queue_id, index):
                    known.floating.append((before, at, QueueSlot(topic, queue_id, index)))


def room(ranges: Ranges, before: int, at: int) -> int:
    """Most records that the damage between two places can have held."""
    i = bisect_right(ranges.starts, before)
    total = 0
    while i < len(ranges.starts) and ranges.starts[i] < at:
        total += ranges.stops[i] - ranges.starts[i]
        i += 1
    return total // 92


def _misfiled(logs: Logs, topic: str, queue_id: int, index: int) -> bool:
    return (topic, queue_id, index) in logs.misfiled.units
