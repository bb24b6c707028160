"""The evidence: what each witness says about the places where the log is damaged. Read once per recovery.

A place is either the start of one record, to which a consume queue unit points (`Evidence.units`), or the range between
two good messages of a queue, in which a gap in the queue offsets (`missed`) or the progress of a consumer (`consumed`)
shows that messages are missing. Two kinds of witnesses are read where they are needed: index entries, of which there
may be millions (`Evidence.indexed`), and header and checksums of a damaged record, which test candidates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.witnesses import outside_records
from rmqstore.checks.progress import ConsumerProgress
from rmqstore.checks.queues.consumequeue import complement
from rmqstore.checks.verified import Verified
from rmqstore.files.config import queue_numbers
from rmqstore.files.mapped_file_queue import MAX_RECORD
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store, StoreKind
from rmqstore.formats import consumequeue, index, properties
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.formats.javatext import parse_int
from rmqstore.formats.message import MIN_SIZE, Message
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.formats.services import one_bit_apart
from rmqstore.repair.salvage.known_tags import KnownTags
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text, many


@dataclass(frozen=True, slots=True)
class QueueSlot:
    """A queue offset of a queue, with the contents of its unit.

    `tags_code` is None if no unit has one. `count` is the number of messages in the batch, 0 outside BatchCQ topics.
    `fan_out` are (light message queue, queue offset) pairs that share the message.
    """

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int | None = None
    count: int = 0
    fan_out: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> QueueName:
        return self.topic, self.queue_id

    @property
    def key(self) -> tuple[str, int, int]:
        return self.topic, self.queue_id, self.queue_offset

    @property
    def places(self) -> list[tuple[str, int, int]]:
        """The queue offsets from which consumers get the message: that of its queue, and those of light queues."""
        return [self.key, *((queue, 0, at) for queue, at in self.fan_out)]

    def fits_tags(self, tags: str | None) -> bool:
        """Return whether TAGS give the unit's tags code, as far as that code is a hash of TAGS."""
        code = self.tags_code
        if code is None or self.topic == properties.SCHEDULE_TOPIC or consumequeue.is_ext_address(code):
            return True
        return properties.tags_code(tags) == code

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id} {self.queue_offset}"


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that witnesses expect, with what they say about it; None if no witness says it.

    `offset` is global, `size` of its record in bytes, `store_timestamp` in ms. `inferred`: its slot
    follows from a gap of its queue, which has no unit for it; only light message queues point to it.
    """

    slot: QueueSlot
    offset: int | None = None
    size: int | None = None
    store_timestamp: int | None = None
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class MissedOffsets:
    """Queue offsets of lost messages, which were between the records at two global offsets (-1: the log's start)."""

    topic: str
    queue_id: int
    numbers: range
    start: int
    stop: int

    @property
    def name(self) -> QueueName:
        return self.topic, self.queue_id


def key_of(message: Message) -> tuple[str, int, int]:
    """Return topic, queue id and queue offset in a record's header, comparable with `QueueSlot.key`."""
    return message.topic_text, message.queue_id, message.queue_offset


_FAR_ABOVE = 64  # times the number of queues of a topic: no queue has such an id
_MOST_ALONE = 1000  # queues; if more than these begin so, the log does not begin with their first messages


def strangers(logs: Logs, numbers: Mapping[str, int]) -> dict[int, QueueSlot | None]:
    """Return the slot where each such record belongs by its global offset; None if nothing shows it.

    The log begins at 0, so its first record of a queue has queue offset 0, but this one has another; or its topic has
    no queue of its id by `numbers`, the configured numbers of queues, or by the ids of its other queues. No unit points
    to it in its own queue. Just one queue has a gap there: of the same topic, or of one from which damage can have made
    it. It may also continue a queue: of a topic that its index entries or `numbers` prove to be the right one; or, if
    its queue id is impossible, any of its topic, before which it may be too. A delayed message can only be of the queue
    of its level.
    """
    if logs.min_offset != 0:
        return {}
    queues = _QueueTables(logs, numbers)
    alone = [
        (name, part)
        for name, part in sorted(logs.queues.items())
        if part.messages == 1 and not part.accounted and part.first_at not in logs.misfiled.offsets
        if part.first > 0 or name[1] not in queues.possible(name[0])
    ]
    if len(alone) > _MOST_ALONE:
        return {}
    found: dict[int, QueueSlot | None] = {}
    for (topic, queue_id), part in alone:
        number, at = part.first, part.first_at
        is_right = partial(_is_right_topic, logs, at, topic, known=topic in numbers)
        by_level = _queue_of_level(logs, topic, at)
        if by_level == queue_id:
            continue
        impossible = queue_id not in queues.possible(topic)
        if by_level is not None:
            other = logs.queues.get((topic, by_level))
            owners = [(topic, by_level)] if other is not None and fits_queue(other, number, at) else []
        else:
            owners = queues.lacking(topic, queue_id, number, at, is_right)
            if owners and not impossible and queues.may_begin_in_damage(logs, topic, part, owners):
                continue
            if not owners and impossible:
                owners = queues.beside(topic, number, at)
        if len(owners) == 1:
            found[at] = QueueSlot(*owners[0], number)
        elif impossible:
            found[at] = None
    times = Counter(slot.key for slot in found.values() if slot is not None)
    return {at: slot if slot is not None and times[slot.key] == 1 else None for at, slot in found.items()}


class _QueueTables:
    """The queues of the log, except light ones, by what a record with a damaged TOPIC or QUEUEID can have in common."""

    def __init__(self, logs: Logs, numbers: Mapping[str, int]) -> None:
        self.parts = logs.queues
        self.numbers = numbers
        self.of_topic: dict[str, list[QueueName]] = {}
        self.most: dict[str, int] = {}
        """Topic → the highest id of its queues with several messages, plus one."""
        self.with_gaps: dict[tuple[int, int], list[QueueName]] = {}
        """(queue id, length of the topic) → queues with gaps."""
        self.ends: dict[tuple[int, int, int], list[QueueName]] = {}
        """(queue id, length of the topic, next queue offset) → queues."""
        for (topic, queue_id), part in logs.queues.items():
            if properties.is_lmq(topic):
                continue
            self.of_topic.setdefault(topic, []).append((topic, queue_id))
            if part.messages > 1:
                self.most[topic] = max(self.most.get(topic, 0), queue_id + 1)
            self.ends.setdefault((queue_id, len(topic), part.next), []).append((topic, queue_id))
            if part.gaps:
                self.with_gaps.setdefault((queue_id, len(topic)), []).append((topic, queue_id))

    def possible(self, topic: str) -> range:
        """Return the queue ids that a topic can have: those configured, or else up to far above the others."""
        return range(self.numbers.get(topic, 0) or _FAR_ABOVE * self.most.get(topic, 0) or 1 << 31)

    def lacking(
        self, topic: str, queue_id: int, number: int, at: int, is_right: Callable[[str], bool]
    ) -> list[QueueName]:
        """Return the queues with a gap where a record is, and those of the right topic that it would continue."""
        similar = (name for name in self.with_gaps.get((queue_id, len(topic)), ()) if name[0] != topic)
        similar = (name for name in similar if one_bit_apart(topic, name[0]) or is_right(name[0]))
        out = [name for name in (*self.of_topic.get(topic, ()), *similar) if in_gap(self.parts[name], number, at)]
        ending = self.ends.get((queue_id, len(topic), number), ())
        return out + [name for name in ending if self.parts[name].last_at < at and is_right(name[0])]

    def may_begin_in_damage(self, logs: Logs, topic: str, part: QueuePart, owners: Sequence[QueueName]) -> bool:
        """Return whether a queue's only record may be its own: damage explains all that this queue and `owners` lack.

        Units show queues that lost messages, so there is only a doubt without any.
        """
        if len(self.of_topic.get(topic, ())) < 2 or any(other.accounted for other in self.parts.values()):
            return False
        gaps = (gap for name in owners for gap in self.parts[name].gaps if gap.before < part.first_at < gap.at)
        return logs.loses_between(0, part.first_at) and all(logs.loses_between(gap.before, gap.at) for gap in gaps)

    def beside(self, topic: str, number: int, at: int) -> list[QueueName]:
        """Return the queues of a topic of which a record would be the next message, or one before the first."""
        possible = self.possible(topic)
        rows = ((name, self.parts[name]) for name in self.of_topic.get(topic, ()) if name[1] in possible)
        return [
            name
            for name, part in rows
            if (part.next == number and part.last_at < at) or (number < part.first and at < part.first_at)
        ]


def _is_right_topic(logs: Logs, at: int, has: str, topic: str, *, known: bool) -> bool:
    """Return whether a record was of another topic than it has, which is of the same length.

    `known`: the topic that it has is configured. Otherwise, one damaged character explains it. Index entries of the
    message that are not its own, and fit the topic, prove it in any case.
    """
    if not known and sum(a != b for a, b in zip(has, topic, strict=True)) == 1:
        return True
    log = logs.at(at)
    one = log.index.contradicted.get(at) if log is not None else None
    keys = (one.unique_key, *one.keys.split(" ")) if one is not None else ()
    return one is not None and any(key and index.key_hash(index.key_text(topic, key)) in one.hashes for key in keys)


def _queue_of_level(logs: Logs, topic: str, at: int) -> int | None:
    """Return the queue id of the delayed message at a global offset by its level; None if it has none.

    Source: ScheduleMessageService#delayLevel2QueueId
    """
    message = logs.record(at, MAX_RECORD) if topic == SCHEDULE_TOPIC else None
    found = properties.parse_properties(message.properties) if message is not None else {}
    level = parse_int(found.get(properties.DELAY, ""))
    return level - 1 if level is not None else None


_ROOMY = 256  # bytes that are enough for a visible filler
_CONTRADICTING = 2  # units that contradict good messages; a single one may be damaged

_Gap = tuple[str, int, int, int]
"""Topic, queue id, and the global offsets of the records around a gap in the queue."""
Between = tuple[int, int, QueueSlot]
"""A lost message somewhere between the records at two global offsets (-1: the start of the log)."""


class OffsetRanges:
    """Sorted, disjoint ranges of global offsets, with fast tests for points."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self.starts = [a for a, _ in ordered]
        self.stops = [b for _, b in ordered]
        self._arrays = np.array(ordered, dtype=np.int64).reshape(-1, 2).T

    def __contains__(self, point: int) -> bool:
        i = bisect_right(self.starts, point) - 1
        return i >= 0 and point < self.stops[i]

    def mask(self, points: I64) -> Bool:
        """Return which points are in a range."""
        if not self.starts:
            return np.zeros(len(points), dtype=np.bool_)
        starts, stops = self._arrays
        at = np.searchsorted(starts, points, side="right") - 1
        inside: Bool = (at >= 0) & (points < stops[np.maximum(at, 0)])
        return inside

    def bytes_between(self, low: int, high: int) -> int:
        """Return how many bytes of the ranges are between two offsets."""
        i, k = bisect_right(self.stops, low), bisect_left(self.starts, high)
        return sum(max(0, min(b, high) - max(a, low)) for a, b in zip(self.starts[i:k], self.stops[i:k], strict=True))

    def room(self, before: int, after: int) -> int:
        """Return the maximum number of records that can have been in the ranges between two offsets."""
        return self.bytes_between(before, after) // (MIN_SIZE + 1)


@dataclass(slots=True)
class Known:
    """What the evidence says about some spans.

    `ranges` are the spans; `at` are the messages expected at global offsets, `between` messages without an exact place.
    `light` are messages to which only light message queues point, with a slot of these queues. `contested` are the
    queues that point to a message of another one. `corrected` are the slots (`QueueSlot.key`) of records whose header a
    plan corrects: no message with these slots is lost.
    """

    ranges: OffsetRanges
    corrected: frozenset[tuple[str, int, int]] = frozenset()
    at: dict[int, Expected] = field(default_factory=dict)
    between: list[Between] = field(default_factory=list)
    light: dict[int, Expected] = field(default_factory=dict)
    contested: set[QueueName] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def slots(self) -> list[QueueSlot]:
        """The slots of all messages: first of those with an exact place."""
        return [*(expected.slot for expected in self.at.values()), *(slot for _, _, slot in self.between)]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence in one store.

    `mends_end`: messages after the last good record of the log are kept where they are proved.
    """

    store: Store
    verified: Verified
    mends_end: bool = True

    @property
    def logs(self) -> Logs:
        """The logs of the store."""
        return self.verified.logs

    @cached_property
    def progress(self) -> ConsumerProgress:
        """Return the consumer progress, which also tells which groups will get a filler."""
        return ConsumerProgress(self.store)

    @cached_property
    def tags(self) -> KnownTags:
        """Return the TAGS of the messages in the log."""
        return KnownTags(self.store, self.logs)

    @cached_property
    def strangers(self) -> dict[int, QueueSlot | None]:
        """Return records with a damaged TOPIC or QUEUEID by global offset, with the slot where they belong."""
        return strangers(self.logs, self._queue_numbers or {})

    @cached_property
    def _queue_numbers(self) -> dict[str, int] | None:
        """Return the configured number of queues of every topic; None without a usable topics.json."""
        return queue_numbers(self.store.files, self.store.root)

    @cached_property
    def _outside(self) -> OffsetRanges:
        """Return all ranges of the logs without good records, and files that are missing between two logs."""
        runs = (run for log in self.logs.results for run in log.tiling if run.kind is not Kind.RECORDS)
        between = ((a.tiling.stop, b.tiling.start) for a, b in pairwise(self.logs.results))
        return OffsetRanges([*((r.start, r.stop) for r in runs), *((a, b) for a, b in between if a < b)])

    def about(
        self, spans: Sequence[tuple[int, int]], corrected: frozenset[tuple[str, int, int]] = frozenset()
    ) -> Known:
        """Return what is known about half-open spans of global offsets without a good record."""
        known = Known(OffsetRanges(spans), corrected)
        if not spans:
            return known
        for offset in sorted(self.units):
            if offset in known.ranges:
                _merge(known, offset, self.units[offset])
        self._add_gaps(known)
        self._assign_light(known)
        return known

    def add_ends(self, known: Known, *, without: Collection[QueueName] = ()) -> None:
        """Add messages after the last good one of a queue that a consumer has read, and that are therefore lost."""
        ranges = known.ranges
        end = max(self.logs.wrote, *ranges.stops) if ranges.stops else self.logs.wrote
        names = set(self.open_ends(known)).difference(without)
        for row in self.consumed if names else ():
            if row.name not in names:
                continue
            topic, queue_id, read = row.topic, row.queue_id, row.numbers
            there = {n for *name, n in known.corrected if name == [topic, queue_id] and n in read}
            label, count = f"{topic}/{queue_id}", len(read) - len(there)  # `read` may be of garbage, and long
            if count > ranges.room(row.start, end):
                known.notes.append(
                    Text(
                        "{label} ends at {start:,} in the log, its consumers are at {stop:,}: more messages than the "
                        "damage there can have contained",
                        label=label,
                        start=read.start,
                        stop=read.stop,
                    )
                )
                continue
            if not count:
                continue
            words = many(count, "message")
            known.notes.append(
                Text(
                    "{label} lost {words} at its end: its consumers are at {stop:,}",
                    label=label,
                    words=words,
                    stop=read.stop,
                )
            )
            lost = (number for number in read if number not in there)
            known.between += [(row.start, row.stop, QueueSlot(topic, queue_id, number)) for number in lost]

    def open_ends(self, known: Known) -> tuple[QueueName, ...]:
        """Return queues of unknown end: with damage after their last good message, and no unit that points there."""
        named = {e.slot.name for e in known.at.values() if not e.inferred}
        last = known.ranges.starts[-1] if known.ranges.starts else -1
        return tuple(
            name
            for name, part in sorted(self.logs.queues.items())
            if part.messages
            and name not in named
            and not properties.is_lmq(name[0])
            and part.units_end < part.next
            and name not in self.logs.pointing.homes
            and part.last_at < last
        )

    def indexed(self, start: int, stop: int) -> set[int]:
        """Return the offsets within a span of the log that index entries contain, without those of garbage."""
        low, high = np.searchsorted(self._indexed, (start, stop)).tolist()
        return set(self._indexed[low:high].tolist())

    @cached_property
    def _indexed(self) -> I64:
        catalog = self.verified.index
        wanted = outside_records(self.logs.results)
        return np.zeros(0, dtype=np.int64) if catalog is None else catalog.offsets_within(wanted)

    def open_offsets(self, part: QueuePart, offset: int) -> range:
        """Return the queue offsets that a record at an offset outside good records can have, if it is of a queue."""
        if offset > part.last_at:
            return range(part.next, part.next + 1 + self._outside.room(part.last_at, offset))
        if offset < part.first_at:
            return range(max(0, part.first - 1 - self._outside.room(offset, part.first_at)), part.first)
        gap = next((g for g in part.gaps if g.before < offset < g.at), None)
        return range(gap.expected, gap.got) if gap is not None else range(0)

    # --- units, and queue offsets without a message ---------------------------------------------------------------

    @cached_property
    def _from_units(self) -> tuple[dict[int, list[Expected]], list[MissedOffsets]]:
        """Return `units`, and the queue offsets with damaged units between them."""
        found: dict[int, list[Expected]] = {}
        missing: list[MissedOffsets] = []
        logs, outside = self.logs, self._outside
        if not outside.starts:
            return found, missing
        for files in self.simple_queues():
            units = list(_units_into(files, logs, outside))
            for number, offset, size, tags in units:
                slot = QueueSlot(files.topic, files.queue_id, number, tags)
                found.setdefault(offset, []).append(Expected(slot, offset, size))
            if not properties.is_lmq(files.topic):
                missing += _between_units(files, logs, units)
                missing += _before_units(files, logs, units)
        for files in self.store.consume_queues(QueueKind.BATCH):
            for offset, expected in _batch_units(files, outside):
                found.setdefault(offset, []).append(expected)
        for rows in found.values():  # a queue without a good message may be a copy of another one
            rows.sort(key=lambda one: one.slot.name not in logs.queues)
        return found, missing

    @property
    def units(self) -> dict[int, list[Expected]]:
        """The messages to which units point outside good records, by global offset."""
        return self._from_units[0]

    @cached_property
    def missed(self) -> list[MissedOffsets]:
        """The queue offsets that a queue lacks before its last message; those between units have narrower ranges."""
        logs, out = self.logs, list(self._from_units[1])
        for (topic, queue_id), part in self._own_queues():
            holes = [(g.expected, g.got, g.before, g.at) for g in part.gaps]
            known = part.first_at in logs.misfiled.offsets or part.first_at in self.strangers
            if logs.min_offset == 0 and part.messages and not known:
                holes.append((0, part.first, -1, part.first_at))
            out += [MissedOffsets(topic, queue_id, range(a, b), *around) for a, b, *around in holes if a < b]
        return out

    @cached_property
    def consumed(self) -> list[MissedOffsets]:
        """The queue offsets after the last message of a queue that a consumer has read."""
        out = []
        for (topic, queue_id), part in self._own_queues():
            reached = self.progress.furthest(topic, queue_id)
            if reached > part.next:
                out.append(MissedOffsets(topic, queue_id, range(part.next, reached), part.last_at, self.logs.wrote))
        return out

    def _own_queues(self) -> Iterator[tuple[QueueName, QueuePart]]:
        """Yield the queues of the log without light message queues, which share the records of others."""
        return (row for row in sorted(self.logs.queues.items()) if not properties.is_lmq(row[0][0]))

    def _add_gaps(self, known: Known) -> None:
        """Add queue offsets that neither a record nor a unit has, in queues with damage where they should be."""
        placed: dict[QueueName, set[int]] = {}
        elsewhere = self.logs.misfiled.units | known.corrected
        added: set[tuple[str, int, int]] = set()
        for expected in known.at.values():
            slot = expected.slot
            placed.setdefault(slot.name, set()).add(slot.queue_offset)
            for queue, number in slot.fan_out:
                placed.setdefault((queue, 0), set()).add(number)
        for row in self.missed:
            topic, queue_id, numbers = row.topic, row.queue_id, row.numbers
            have, room = placed.get(row.name, set()), known.ranges.room(row.start, row.stop)
            if len(numbers) > room + (len(have) if row.start >= 0 else 0):
                if room and row.start >= 0:
                    known.notes.append(
                        Text(
                            "{topic}/{queue_id} lacks {count} from {start} on, more than the damage "
                            "there can have contained; they get no filler",
                            topic=topic,
                            queue_id=queue_id,
                            count=many(len(numbers), "queue offset"),
                            start=numbers.start,
                        )
                    )
                continue
            for number in numbers:
                slot = QueueSlot(topic, queue_id, number)
                if number in have or slot.key in added or slot.key in elsewhere:
                    continue
                added.add(slot.key)
                known.between.append((row.start, row.stop, slot))

    # --- light message queues -------------------------------------------------------------------------------------

    def _assign_light(self, known: Known) -> None:
        """Assign each message to which only light message queues point to a queue that lacks messages there.

        They get its last missing queue offsets, and the others come before them, if they fit. If several queues lack
        messages, every choice is equally good for readers, because all missing messages become fillers in the same
        damage. The preferred queue is the one whose gap ends first.
        """
        chosen, taken = self._choose_gaps(known)
        for (topic, queue_id, before, after), offsets in taken.items():
            gap = topic, queue_id, before, after
            own = [row for row in known.between if (*row[2].name, *row[:2]) == gap]
            missing = sorted(slot.queue_offset for _, _, slot in own)
            left = len(missing) - len(offsets)
            free = known.ranges.bytes_between(before, offsets[0])
            free -= sum(e.size or 0 for at, e in known.at.items() if before < at < offsets[0])
            if left < 0 or left * _ROOMY > free:
                continue
            known.between = [row for row in known.between if row not in own]
            known.between += [(before, offsets[0], QueueSlot(topic, queue_id, number)) for number in missing[:left]]
            for offset, number in zip(offsets, missing[left:], strict=True):
                light = known.light.pop(offset)
                slot = QueueSlot(topic, queue_id, number, light.slot.tags_code, 1, light.slot.fan_out)
                known.at[offset] = Expected(slot, offset, light.size, inferred=True)
                if offset in chosen:
                    known.notes.append(
                        Text(
                            "only light message queues point to {offset:,}, and several queues lack a message there: "
                            "its filler keeps {topic}/{queue_id} {number}",
                            offset=offset,
                            topic=topic,
                            queue_id=queue_id,
                            number=number,
                        )
                    )
        for offset in sorted(known.light):
            known.notes.append(
                Text(
                    "only light message queues point to {offset:,}: the queue of that message is unknown, so it "
                    "gets no filler",
                    offset=offset,
                )
            )

    def _choose_gaps(self, known: Known) -> tuple[set[int], dict[_Gap, list[int]]]:
        """Return the offsets with a choice of gaps, and for each gap the offsets that get its slots."""
        spare = Counter((*slot.name, before, after) for before, after, slot in known.between)
        around = {at: [gap for gap in spare if gap[2] < at < gap[3]] for at in sorted(known.light)}
        several = {at for at, gaps in around.items() if len(gaps) > 1}
        taken: dict[_Gap, list[int]] = {}
        for at, gaps in sorted(around.items(), key=lambda item: item[0] in several):
            fits = [gap for gap in gaps if spare[gap] > 0 or at not in several]
            if fits:
                best = min(fits, key=lambda gap: (gap[3], -spare[gap], gap))
                spare[best] -= 1
                taken.setdefault(best, []).append(at)
        for offsets in taken.values():
            offsets.sort()
        return several, taken

    # --- consume queues -------------------------------------------------------------------------------------------

    def simple_queues(self) -> Iterator[ConsumeQueueFiles]:
        """Yield every queue except those of BatchCQ topics, from files, or from RocksDB as far as it is readable.

        A directory with the units of another queue is that queue, unless that one has units of its own. One with units
        of another log proves nothing.
        """
        if self.store.kind is not StoreKind.ROCKSDB:
            for files in self.store.consume_queues(QueueKind.SIMPLE):
                owner = self.logs.pointing.queue_in((files.topic, files.queue_id))
                if owner is not None:
                    yield files._replace(topic=owner[0], queue_id=owner[1])
        elif self._database is not None:
            with suppress(CannotRead):
                yield from self._database.seen()

    @cached_property
    def _database(self) -> RocksDBQueues | None:
        if self.store.kind is not StoreKind.ROCKSDB:
            return None
        try:
            return RocksDBQueues(self.store)
        except CannotRead:
            return None

    # --- single records and units -------------------------------------------------------------------------------------

    def any_unit(self, topic: str, queue_id: int, number: int) -> dict[str, int] | None:
        """Return the unit at a queue offset, including zeros and pre-blanks; None beyond the ends of the queue."""
        if self._database is not None:
            return self._database.queue(topic, queue_id).unit(consumequeue.UNIT, number)
        if not consumequeue.is_directory_name(topic.encode("utf-8", "surrogatepass")):
            return None
        directory = self.logs.pointing.directory_of((topic, queue_id))
        if directory is None:
            return None
        return self.store.consume_queue(*directory).queue.unit(consumequeue.UNIT, number)

    def ends_at(self, topic: str, queue_id: int, number: int) -> bool:
        """Return whether a queue ends for consumers at a queue offset that no message has.

        A unit of zeros ends it. In RocksDB, a start adds rows for messages only, so that a queue offset at or after the
        end gets none, and no consumer gets past it.
        """
        unit = self.any_unit(topic, queue_id, number)
        return self._database is not None if unit is None else not any(unit.values())

    def unit(self, topic: str, queue_id: int, number: int) -> dict[str, int] | None:
        """Return the unit of a message at a queue offset; None if there is none, or only a repetition.

        No broker writes two units with one address. A repair does where no message has the second queue offset: such a
        unit proves nothing about the message.
        """
        unit = _of_message(self.any_unit(topic, queue_id, number))
        before = self.any_unit(topic, queue_id, number - 1) if unit is not None and number > 0 else None
        if unit is None or before is None:
            return unit
        return None if all(unit[name] == before[name] for name in ("commitlog_offset", "size")) else unit


def _unit_of(files: ConsumeQueueFiles, number: int) -> dict[str, int] | None:
    return _of_message(files.queue.unit(consumequeue.UNIT, number))


def _of_message(unit: dict[str, int] | None) -> dict[str, int] | None:
    """Return the unit if it can point to a message; None for zeros and pre-blanks."""
    message = unit is not None and consumequeue.is_message_unit(unit["commitlog_offset"], unit["size"])
    return unit if message else None


def _merge(known: Known, offset: int, units: Sequence[Expected]) -> None:
    """Add the message at one offset, which light message queues may share."""
    own = [one for one in units if not properties.is_lmq(one.slot.topic)]
    light = tuple((one.slot.topic, one.slot.queue_offset) for one in units if properties.is_lmq(one.slot.topic))
    if len(own) > 1:
        known.contested.update(one.slot.name for one in own[1:])
        names = ", ".join(f"{one.slot.topic}/{one.slot.queue_id}" for one in own)
        known.notes.append(
            Text("several queues point to {offset:,} ({names}): the first one is used", offset=offset, names=names)
        )
    if own:
        known.at[offset] = replace(own[0], slot=replace(own[0].slot, fan_out=light))
    else:
        slot = QueueSlot("", 0, -1, units[0].slot.tags_code, 1, light)
        known.light[offset] = Expected(slot, offset, units[0].size)


def _units_into(files: ConsumeQueueFiles, logs: Logs, ranges: OffsetRanges) -> Iterator[tuple[int, int, int, int]]:
    """Yield (queue offset, offset, size, tags code) of units that point into the ranges and have no good message.

    Only those count for which the good messages of the queue leave room. If the queue offsets of these messages are in
    doubt, those that are in order between units that agree with their messages. After several units that contradict
    good messages, the queue is that of another log, which had the same beginning; which units in the directory of
    another queue agree is not known.
    """
    name = files.topic, files.queue_id
    part = logs.queues.get(name)
    accounted = part.accounted if part is not None else []
    is_moved = name in logs.pointing.homes
    in_doubt = part is None or (not part.shifted and any((part.outliers, part.repeats, part.restarts)))
    queue = files.queue
    for a, b in complement(accounted, queue.start // UNIT_SIZE, queue.stop // UNIT_SIZE):
        below, above = _unit_of(files, a - 1), _unit_of(files, b)
        contradicting = 0
        for chunk in unit_chunks(queue, consumequeue.UNIT, start=a * UNIT_SIZE, stop=b * UNIT_SIZE):
            offset = chunk.units["commitlog_offset"].astype(np.int64)
            size = chunk.units["size"].astype(np.int64)
            real = consumequeue.is_message_unit(offset, size)
            hit = ranges.mask(offset) & real
            if part is not None and not in_doubt and not part.shifted and not is_moved:
                stop = chunk.number + len(offset)
                against = real & ~hit & _with_message(part, chunk.number, stop)
                hit &= contradicting + np.cumsum(against) < _CONTRADICTING
                contradicting += int(against.sum())
            previous = _unit_of(files, chunk.number - 1)
            before = previous["commitlog_offset"] if previous is not None else -1
            hit &= offset != np.concatenate(([before], offset[:-1]))  # see `Evidence.unit`
            for i in np.flatnonzero(hit).tolist():
                number, at = chunk.number + i, int(offset[i])
                in_order = (below is None or below["commitlog_offset"] < at) and (
                    above is None or at < above["commitlog_offset"]
                )
                if in_order if part is None or in_doubt else fits_queue(part, number, at):
                    yield number, at, int(size[i]), int(chunk.units["tags_code"][i])


def _between_units(
    files: ConsumeQueueFiles, logs: Logs, units: Sequence[tuple[int, int, int, int]]
) -> Iterator[MissedOffsets]:
    """Yield lost queue offsets with a damaged unit: their messages were between those of the units on both sides.

    `units` are those that point into damage; units of good messages beside them also count.
    """
    part = logs.queues.get((files.topic, files.queue_id))
    if not units or (part is not None and part.shifted):
        return
    queue, known = files.queue, sorted((number, offset) for number, offset, _, _ in units)
    accounted = part.accounted if part is not None else []
    for a, b in complement(accounted, queue.start // UNIT_SIZE, queue.stop // UNIT_SIZE):
        inside = known[bisect_left(known, (a, -1)) : bisect_left(known, (b, -1))]
        if not inside:
            continue
        beside = ((number, _unit_of(files, number)) for number in (a - 1, b))
        owned = [(number, unit["commitlog_offset"]) for number, unit in beside if unit is not None]
        places = sorted((*owned, *inside))
        for (before, start), (after, stop) in pairwise(places):
            if after - before == 1 or start >= stop:
                continue
            for low, high in part.without_message(before + 1, after) if part is not None else [(before + 1, after)]:
                least, most = (start, stop) if part is None else _narrowed(part, low, start, stop)
                if least < most:
                    yield MissedOffsets(files.topic, files.queue_id, range(low, high), least, most)


def _narrowed(part: QueuePart, number: int, start: int, stop: int) -> tuple[int, int]:
    """Return the part of [start, stop) of the log in which the good messages of a queue leave a queue offset open."""
    if part.outliers or part.repeats or part.restarts:
        return start, stop
    if number >= part.next:
        return max(start, part.last_at), stop
    gap = next((g for g in part.gaps if g.expected <= number < g.got), None)
    if gap is not None:
        return max(start, gap.before), min(stop, gap.at)
    return start, min(stop, part.first_at)


def _before_units(
    files: ConsumeQueueFiles, logs: Logs, units: Sequence[tuple[int, int, int, int]]
) -> Iterator[MissedOffsets]:
    """Yield the queue offsets before a queue's first unit, if the log has no good message before it.

    `units` are those that point into damage. A queue begins at 0 in a log that begins at 0, unless a broker wrote
    pre-blanks there (ConsumeQueue#fillPreBlank).
    """
    part = logs.queues.get((files.topic, files.queue_id))
    if not units or logs.min_offset > 0 or (part is not None and part.shifted):
        return
    first, offset = min((number, offset) for number, offset, _, _ in units)
    if part is not None and part.messages and first >= part.first:
        return
    before = files.queue.unit(consumequeue.UNIT, first - 1) if first else None
    if first == 0 or (before is not None and consumequeue.is_pre_blank(before["commitlog_offset"], before["size"])):
        return
    yield MissedOffsets(files.topic, files.queue_id, range(first), -1, offset)


def _with_message(part: QueuePart, start: int, stop: int) -> Bool:
    """Return of which queue offsets within [start, stop) the log has a good message."""
    out = np.ones(stop - start, dtype=np.bool_)
    for low, high in part.without_message(start, stop):
        out[low - start : high - start] = False
    return out


def _batch_units(files: ConsumeQueueFiles, ranges: OffsetRanges) -> Iterator[tuple[int, Expected]]:
    """Yield the messages to which units of a BatchCQ point in the ranges, with their global offsets."""
    names = ("commitlog_offset", "size", "tags_code", "store_timestamp", "base_offset", "batch_size")
    for chunk in unit_chunks(files.queue, consumequeue.BATCH_UNIT):
        offset = chunk.units["commitlog_offset"].astype(np.int64)
        hit = ranges.mask(offset) & (chunk.units["size"] > 0) & (chunk.units["batch_size"] > 0)
        for i in np.flatnonzero(hit).tolist():
            at, size, tags, time, base, count = (int(chunk.units[i][name]) for name in names)
            slot = QueueSlot(files.topic, files.queue_id, base, tags, count)
            yield at, Expected(slot, at, size, time if time > 0 else None)


def fits_queue(part: QueuePart, number: int, offset: int) -> bool:
    """Return whether the good messages of a queue leave a queue offset open at an offset of the log."""
    if number < part.first:
        return offset < part.first_at
    if number >= part.next:
        return offset > part.last_at
    return in_gap(part, number, offset)


def in_gap(part: QueuePart, number: int, offset: int) -> bool:
    """Return whether a queue lacks a queue offset between two good messages around an offset of the log."""
    return any(g.expected <= number < g.got and g.before < offset < g.at for g in part.gaps)
