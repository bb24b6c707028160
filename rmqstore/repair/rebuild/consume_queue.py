"""Rebuilds the files of one consume queue; only units that differ are written.

Units of expired messages stay, since the log does not have them. Pre-blanks occur only before the first unit. After the
last unit there are only zeros, and no further file.

A queue offset without a message, between others, gets the unit of the message before it: consumers get that message
twice. A pre-blank there would lose good messages in every version. When its address 0 cannot be read, a pull continues
after the log's first file (CommitLog#rollNextFile in DefaultMessageStore#getMessage) and skips all messages in it.
Brokers from 5.0 on find the queue's minimum by a binary search, which requires ascending addresses.

Sound units of the extension stay. A bitmap depends on the filters of consumers at the time of the dispatch, so a lost
one cannot be rebuilt: a unit whose address has no sound unit gets its tags code instead, and brokers filter by the
properties of the message.

The units of a BatchCQ follow each other from the first file on, regardless of their queue offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path

import numpy as np

from rmqstore.checks.log.delay_levels import due_by_another_table
from rmqstore.checks.queues.consumequeue import ext_units
from rmqstore.documents.content import Literal, Reencoded
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import UNIT_SIZE
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.unit_buffer import BufferedUnits
from rmqstore.scan.dispatch import BatchRow
from rmqstore.scan.kernels import I64, U8, Bool, false_runs, leading
from rmqstore.scan.units import UnitArray, last_nonzero_in, unit_chunks
from rmqstore.texts import Text, first_few, many

WHY = Text("rebuilt from the log: its messages, at their queue offsets")
BATCH_UNIT = consumequeue.BATCH_UNIT.size
_COMPACTED = -1


def plan_batch_queue(draft: PlanBuilder, files: ConsumeQueueFiles, units: Sequence[BatchRow], min_offset: int) -> None:
    """Add the steps after which the queue's files have the expired units and then those of the log's messages."""
    queue, size = files.queue, files.queue.file_size
    per_file = size // BATCH_UNIT
    wanted = _expired(files, min_offset) + b"".join(_build(u) for u in sorted(units, key=lambda u: u.offset))
    start = queue.start
    existing = {f.start: f for f in queue.files}
    for n, at in enumerate(range(0, len(wanted), per_file * BATCH_UNIT)):
        begin = start + n * size
        part = wanted[at : at + per_file * BATCH_UNIT]
        file = existing.pop(begin, None)
        if file is not None and file.length == size and draft.path(file.path) not in draft.gone:
            stored = np.frombuffer(queue.pread(size, begin), dtype=np.uint8)
            new = np.frombuffer(part.ljust(size, b"\0"), dtype=np.uint8)
            differ = np.flatnonzero(stored != new)
            if len(differ):
                a, b = int(differ[0]), int(differ[-1]) + 1
                draft.overwrite(file.path, a, new[a:b].tobytes(), WHY)
            continue
        if file is not None:
            draft.discard(file.path, WHY)
        path = queue.directories[0] / offset_to_file_name(begin)
        draft.create(path, size, Literal(part), WHY, queue.files[0].path if queue.files else None)
    for file in existing.values():
        draft.discard(file.path, WHY)


def _expired(files: ConsumeQueueFiles, min_offset: int) -> bytes:
    """Return the bytes of the units at the beginning whose messages have expired."""
    out = bytearray()
    for chunk in unit_chunks(files.queue, consumequeue.BATCH_UNIT):
        for unit in chunk.units:
            offset, size = int(unit["commitlog_offset"]), int(unit["size"])
            if not consumequeue.is_batch_unit(offset, size, int(unit["base_offset"]), int(unit["batch_size"])):
                return bytes(out)
            if offset >= min_offset:
                return bytes(out)
            out += unit.tobytes()
    return bytes(out)


def _build(unit: BatchRow) -> bytes:
    return consumequeue.BATCH_UNIT.build(
        commitlog_offset=unit.offset,
        size=unit.size,
        tags_code=unit.tags_code,
        store_timestamp=unit.store_timestamp,
        base_offset=unit.base,
        batch_size=unit.count,
        compacted_offset=_COMPACTED,
    )


class Extension:
    """The sound units of one queue's extension; `breaks` are the files with other units, and where those begin."""

    def __init__(self, files: ConsumeQueueFiles) -> None:
        self.files = files
        self.breaks: list[tuple[MappedFile, int]] = []
        rows = np.array(list(ext_units(files, self._broken)), dtype=np.int64).reshape(-1, 2)
        order = np.argsort(rows[:, 0], kind="stable")
        self._starts, self._tags = rows[order, 0], rows[order, 1]

    @staticmethod
    def of(store: Store, topic: str, queue_id: int) -> Extension:
        """Return the extension of a queue, which may have no files."""
        return Extension(store.consume_queue(topic, queue_id, QueueKind.EXT))

    def _broken(self, file: MappedFile, at: int, _size: int) -> None:
        self.breaks.append((file, at))

    def holds(self, address: I64, tags: I64) -> Bool:
        """Tell for each address whether it is that of a sound unit with the same tags code."""
        if not len(self._starts):
            return np.zeros(len(address), dtype=np.bool_)
        place = consumequeue.ext_offset(address.astype(np.int64))
        i = np.minimum(np.searchsorted(self._starts, place), len(self._starts) - 1)
        held: Bool = (self._starts[i] == place) & (self._tags[i] == tags)
        return held

    def _strays(self, queue: ConsumeQueueFiles) -> int:
        """Count the units of the queue whose address is not that of a sound unit."""
        if not self.files.queue.files:
            return 0
        count = 0
        for chunk in unit_chunks(queue.queue, consumequeue.UNIT):
            tags: I64 = chunk.units["tags_code"].astype(np.int64)
            rows = consumequeue.is_ext_address(tags) & (chunk.units["size"] > 0)
            count += int((rows & ~np.isin(consumequeue.ext_offset(tags), self._starts)).sum()) if rows.any() else 0
        return count

    def plan(self, draft: PlanBuilder, queue: ConsumeQueueFiles) -> None:
        """Zero the bytes after the last sound unit of each file, and note which bitmaps are lost."""
        for file, at in self.breaks:
            draft.zero_from(file, at, Text("not a unit of the extension"))
        strays = self._strays(queue)
        if strays:
            draft.notes.append(
                Text(
                    "{label}: the tags code replaces an address where the extension holds nothing, in {strays}; "
                    "brokers filter those messages by their properties",
                    label=queue.label,
                    strays=many(strays, "unit"),
                )
            )
        elif self.files.queue.files and not queue.queue.files:
            draft.notes.append(
                Text(
                    "{label}: its units get plain tags codes, since nothing tells which bitmap belongs to which "
                    "message; brokers filter those messages by their properties",
                    label=queue.label,
                )
            )


CHUNK = 1 << 16  # units
_FAR = 1 << 16
"""A gap of more units than this, and than ten times the number of messages, is due to a damaged queue offset."""
_MOST = (1 << 62) // UNIT_SIZE
"""Maximum queue offset: positions in a queue are numbers of 63 bits."""
_BEHIND = 1 << 10
"""Number of units that are read at a time after a queue's last message."""
_SMALL = 1 << 15
"""Maximum size of content that is part of a step, bytes."""
NO_MESSAGE = Text("units of messages missing from the log")
_FAKE = consumequeue.UNIT.build(size=1)
"""A unit of an expired message: it preserves the end of a queue that has no unit left."""


@dataclass(frozen=True, slots=True)
class KeptCodes:
    """The units that keep their tags code although it differs from the message's.

    `extension` tells which of its addresses are valid; `delay` (ms) is the longest delay of the queue's delay level;
    `messages`: by offset of a message whose tags may be wrong, the tags code of its unit, here or in a replica.
    """

    extension: Extension
    delay: int
    messages: Mapping[int, int] = field(default_factory=dict)


class QueueImage:
    """The units that the files of a queue should have, for queue offsets [low, high).

    `empty`: the log has no message of the queue; `low` is then 0. `units` are those of the log's messages. Units before
    `min_offset`, the log's first byte, are expired. `damaged` tells whether a byte of the log is damaged and will not
    be repaired. `gone` are files that the plan moves away. `gaps` are ranges of queue offsets without a message between
    the first and the last one; `strays` are ranges so far from all others that the queue offset in the record must be
    wrong.
    """

    def __init__(
        self,
        files: ConsumeQueueFiles,
        units: BufferedUnits,
        min_offset: int,
        damaged: Callable[[int], bool],
        codes: KeptCodes,
        gone: Collection[Path] = (),
    ) -> None:
        self.codes = codes
        self.files = files
        self.queue = files.queue
        self.units = units
        self.min_offset = min_offset
        self.damaged = damaged
        self.usable = [f for f in self.queue.files if f.path not in gone]
        self._starts = [f.start for f in self.usable]
        self.ranges, self.strays = _one_cluster(units.ranges())
        self.empty = not self.ranges
        self.low = 0 if self.empty else self.ranges[0][0]
        self.high = self._end_with_damage(self.ranges[-1][1]) if self.ranges else self._kept_end()
        self.front = self._front()
        self.gaps: list[tuple[int, int]] = []
        self._find_gaps()

    def _front(self) -> int:
        """Return the start (bytes) of the first file to keep: expired files, unless one after them is missing."""
        size = self.queue.file_size
        if self.empty:
            return self.usable[0].start if self.usable else 0
        front = consumequeue.first_file(self.low, size)
        starts = set(self._starts)
        while front - size in starts:
            front -= size
        return front

    def _kept_end(self) -> int:
        """Return the end of the expired units at the beginning of a queue without a message in the log, in units."""
        at = self.usable[0].start // UNIT_SIZE if self.usable else 0
        for file in self.usable:
            for a in range(file.start // UNIT_SIZE, file.stop // UNIT_SIZE, CHUNK):
                units = self._stored(a, min(CHUNK, file.stop // UNIT_SIZE - a))
                keep = self._expired(units)
                n = leading(keep)
                at = a + n
                if n < len(keep):
                    return at
        return at

    def _expired(self, units: UnitArray) -> Bool:
        offset, size = units["commitlog_offset"], units["size"]
        before_log = (offset < self.min_offset) | consumequeue.is_pre_blank(offset, size)
        keep: Bool = consumequeue.is_unit(offset, size) & before_log
        return keep

    def _stored(self, start: int, count: int) -> UnitArray:
        return consumequeue.UNIT.array(self.stored(start * UNIT_SIZE, count * UNIT_SIZE))

    def stored(self, at: int, length: int) -> bytes:
        """Return the bytes on disk, zeros where a file is missing or too short."""
        i = bisect_right(self._starts, at) - 1
        if i < 0 or at >= self.usable[i].stop:
            return bytes(length)
        file = self.usable[i]
        return file.read_at(min(length, file.stop - at), at - file.start).ljust(length, b"\0")

    def _find_gaps(self) -> None:
        for (_, a), (b, _) in zip(self.ranges, self.ranges[1:], strict=False):
            for start in range(a, b, CHUNK):
                stop = min(b, start + CHUNK)
                for x, y in false_runs(self._points_to_damage(self._stored(start, stop - start))):
                    self.gaps.append((start + x, start + y))

    def _end_with_damage(self, high: int) -> int:
        """Return the end of the units after the last message that point, in order, to unrepaired damage.

        They are the only evidence of those messages, which a later recovery with --accept-fillers needs.
        """
        last = int(consumequeue.UNIT.parse(self._unit_before(high))["commitlog_offset"])
        while True:
            units = self._stored(high, _BEHIND)
            offset = units["commitlog_offset"].astype(np.int64)
            good = self._points_to_damage(units) & (np.diff(offset, prepend=last) > 0)
            n = leading(good)
            high += n
            if n < len(good):
                return high
            last = int(offset[-1])

    def _points_to_damage(self, units: UnitArray) -> Bool:
        """Select the units that point to a damaged record: they may be right, and stay."""
        offset, size = units["commitlog_offset"], units["size"]
        keep: Bool = consumequeue.is_message_unit(offset, size) & (offset >= self.min_offset)
        for i in np.flatnonzero(keep).tolist():
            keep[i] = self.damaged(int(units["commitlog_offset"][i]))
        return keep

    def wanted(self, start: int, count: int) -> bytearray:
        """Return units [start, start + count) as they should be; all of them are in one file."""
        stored = self.stored(start * UNIT_SIZE, count * UNIT_SIZE)
        out = bytearray(stored)
        index = np.arange(start, start + count)
        if not self.empty:
            head = index < self.low
            if head.any():
                self._fill(out, head & ~self._expired(consumequeue.UNIT.array(stored)), consumequeue.PRE_BLANK)
            if self.gaps and index[-1] >= self.gaps[0][0]:
                near = bisect_right(self.gaps, start, key=lambda gap: gap[1])
                for a, b in takewhile(lambda gap: gap[0] <= index[-1], self.gaps[near:]):
                    self._fill(out, (index >= a) & (index < b), self._unit_before(a))
            self.units.fill(out, start)
            self._keep_codes(stored, out)
        elif start <= self.high - 1 < start + count and self.only_pre_blanks():
            at = (self.high - 1 - start) * UNIT_SIZE
            out[at : at + UNIT_SIZE] = _FAKE
        if index[-1] >= self.high:
            at = max(0, self.high - start) * UNIT_SIZE
            out[at:] = bytes(len(out) - at)
        return out

    def _unit_before(self, index: int) -> bytes:
        """Return the unit of the last message before a gap."""
        last = self.ranges[bisect_right(self.ranges, index, key=lambda one: one[1]) - 1][1] - 1
        out = bytearray(self.stored(last * UNIT_SIZE, UNIT_SIZE))
        stored = bytes(out)
        self.units.fill(out, last)
        self._keep_codes(stored, out)
        return bytes(out)

    def only_pre_blanks(self) -> bool:
        """Return whether all units are pre-blanks, which is the case if the last one is."""
        last = self._stored(self.high - 1, 1)
        return bool(consumequeue.is_pre_blank(last["commitlog_offset"], last["size"])[0])

    @staticmethod
    def _fill(out: bytearray, where: Bool, unit: bytes) -> None:
        _rows(out)[where] = np.frombuffer(unit, dtype=np.uint8)

    def _keep_codes(self, stored: bytes, out: bytearray) -> None:
        """Restore the third field of units of the right message: see `KeptCodes`.

        It may be an address of the extension; the deliver time of an earlier messageDelayLevel, at which the broker
        will deliver the message; or a tags code that is the only trace of damage to its message.
        """
        old, new = consumequeue.UNIT.array(stored), consumequeue.UNIT.array(out)
        there = (old["commitlog_offset"] == new["commitlog_offset"]) & (old["size"] == new["size"])
        same = there.copy()
        if self.files.topic == SCHEDULE_TOPIC:
            was_due, due = (units["tags_code"].astype(np.int64) for units in (old, new))
            same &= due_by_another_table(was_due, due, self.codes.delay)
        else:
            same &= old["tags_code"] != new["tags_code"]
            addresses = same & consumequeue.is_ext_address(old["tags_code"])
            if addresses.any():
                addresses &= self.codes.extension.holds(old["tags_code"], new["tags_code"])
            doubtful = np.isin(new["commitlog_offset"], sorted(self.codes.messages))
            for i in np.flatnonzero(doubtful & ~there).tolist():
                new["tags_code"][i] = self.codes.messages[int(new["commitlog_offset"][i])]
            same &= doubtful
            same |= addresses
        _rows(out)[same] = _rows(stored)[same]

    def keeps_end(self) -> bool:
        """Return whether there are expired units, which preserve the queue's end."""
        return self.high > (self.usable[0].start // UNIT_SIZE if self.usable else 0)


def _rows(raw: bytes | bytearray) -> U8:
    """View units as an array with a row of bytes for each; writable for a bytearray."""
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, UNIT_SIZE)


def _one_cluster(ranges: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the largest group of ranges without a wide gap, and all other ranges."""
    impossible = [one for one in ranges if one[1] > _MOST]
    ranges = [one for one in ranges if one[1] <= _MOST]
    clusters: list[list[tuple[int, int]]] = []
    met = sum(b - a for a, b in ranges)
    for one in ranges:
        if clusters and one[0] - clusters[-1][-1][1] <= max(_FAR, 10 * met):
            clusters[-1].append(one)
        else:
            clusters.append([one])
    if not clusters:
        return [], impossible
    main = max(clusters, key=lambda c: sum(b - a for a, b in c))
    return main, [*(one for c in clusters if c is not main for one in c), *impossible]


def plan_queue(draft: PlanBuilder, image: QueueImage) -> None:
    """Add the steps that make a queue's files equal to its image."""
    queue, size = image.queue, image.queue.file_size
    if image.empty and (not image.keeps_end() or (image.min_offset <= 1 and image.only_pre_blanks())):
        for unused in image.usable:
            draft.discard(unused.path, NO_MESSAGE)
        return
    existing = {f.start: f for f in image.usable}
    stop = -(-image.high * UNIT_SIZE // size) * size
    for start in range(image.front, max(stop, image.front), size):
        file = existing.get(start)
        first, last = start // UNIT_SIZE, min(image.high, (start + size) // UNIT_SIZE)
        if file is None or file.length != size:
            if file is not None:
                draft.discard(file.path, WHY)
            path = queue.directories[0] / offset_to_file_name(start)
            content = _produced(image, first, last)
            draft.create(path, size, content, WHY, image.usable[-1].path if image.usable else None)
        else:
            _overwrite_differences(draft, image, file)
    for left in existing.values():
        if not image.front <= left.start < stop:
            draft.discard(left.path, NO_MESSAGE)


def _produced(image: QueueImage, first: int, last: int) -> Reencoded:
    """Return units [first, last) of an image as a content; all of them are in one file."""
    return Reencoded((last - first) * UNIT_SIZE, partial(_stream, image, first, last), partial(_part, image, first))


def _part(image: QueueImage, first: int, size: int, at: int) -> bytes:
    """Return a range of the bytes of an image's units from `first` on."""
    start, stop = at // UNIT_SIZE, -(-(at + size) // UNIT_SIZE)
    units = b"".join(_stream(image, first + start, first + stop))
    return units[at - start * UNIT_SIZE : at - start * UNIT_SIZE + size]


def _stream(image: QueueImage, first: int, last: int) -> Iterator[bytes]:
    for start in range(first, last, CHUNK):
        yield bytes(image.wanted(start, min(CHUNK, last - start)))


def _overwrite_differences(draft: PlanBuilder, image: QueueImage, file: MappedFile) -> None:
    """Overwrite the units of one file that differ from the image, adjacent ones in one step."""
    end = last_nonzero_in(file, UNIT_SIZE)
    top = max(image.high, (file.start + end) // UNIT_SIZE + 1 if end is not None else 0)
    stop = min(top, file.stop // UNIT_SIZE)
    runs: list[tuple[int, int]] = []
    for start in range(file.start // UNIT_SIZE, stop, CHUNK):
        count = min(CHUNK, stop - start)
        old, new = _rows(image.stored(start * UNIT_SIZE, count * UNIT_SIZE)), _rows(image.wanted(start, count))
        for a, b in false_runs((old == new).all(axis=1)):
            first = runs.pop()[0] if runs and runs[-1][1] == start + a else start + a
            runs.append((first, start + b))
    for first, last in runs:
        _overwrite(draft, image, file, first, last)


def _overwrite(draft: PlanBuilder, image: QueueImage, file: MappedFile, first: int, last: int) -> None:
    at, size = first * UNIT_SIZE - file.start, (last - first) * UNIT_SIZE
    if first >= image.high:
        draft.zero(file.path, at, size, NO_MESSAGE)
    elif size <= _SMALL:
        draft.overwrite(file.path, at, bytes(image.wanted(first, last - first)), WHY)
    else:
        draft.overwrite(file.path, at, _produced(image, first, last), WHY)


def gaps_text(label: str, gaps: Iterable[tuple[int, int]]) -> str:
    """Return the text of the decision, or the note, for queue offsets without a message."""
    listed = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in gaps]
    return Text(
        "{label}: no message in the log has queue offset {listed}; consumers get the message before it again",
        label=label,
        listed=first_few(listed, 5),
    )
