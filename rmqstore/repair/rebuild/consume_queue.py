"""One consume queue as it should be, and the steps that make it so: only what differs is written.

What the log does not know of stays: units of messages that have expired, addresses of the extension. Pre-blanks are
only in front of the first unit. Behind the last unit there is nothing but zeros, and no file without a unit.

A queue offset without a message, in the middle, gets the unit of the message before it: consumers get that one twice.
A pre-blank there would cost good messages in every version. When its address 0 cannot be read, a pull goes on behind
the log's first file (CommitLog#rollNextFile in DefaultMessageStore#getMessage) and passes over all messages in it; and
brokers from 5.0 on search the queue's minimum by halves, which only finds it among addresses that rise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from rmqstore.checks.log.delay_levels import due_by_another_table
from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.store import ConsumeQueueFiles
from rmqstore.formats import consumequeue
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.repair.plan.content import Content, Literal, Reencoded, Zeros
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.extension import Extension
from rmqstore.repair.rebuild.unit_buffer import QueueUnits
from rmqstore.scan.kernels import Bool
from rmqstore.scan.units import last_nonzero_in

UNIT = consumequeue.UNIT.size
CHUNK = 1 << 16  # units
_FAR = 1 << 16  # units; a wider gap than this, and than ten times what was met, is a damaged header's
_BEHIND = 1 << 10  # units that are looked at together behind a queue's end
_SMALL = 1 << 15  # bytes that a step may hold itself
_NO_MESSAGE = "units of messages missing from the log"
_FAKE = consumequeue.UNIT.build(size=1)
"""A unit of a message that expired long ago: what a queue's end is kept with when no unit of it is left."""


@dataclass(frozen=True, slots=True)
class KeptCodes:
    """Units whose third field stays although their message says another one.

    `extension` says which of its addresses hold something (None: all do); `delay` (ms) is the longest of the queue's
    delay level; `messages` are offsets of messages whose unit may be right and their tags wrong.
    """

    extension: Extension | None = None
    delay: int = 0
    messages: Collection[int] = ()


class QueueImage:
    """What the files of a queue should hold; queue offsets are in units.

    `units` are those of the log's messages; `min_offset` the log's first byte, before which units are expired;
    `damaged` tells whether one of its bytes is damaged, and stays so; `codes` which tags codes stay. `gaps` are offsets
    between the first and the last message that nothing fills, `strays` offsets so far from all others that a header
    must be wrong.
    """

    def __init__(
        self,
        files: ConsumeQueueFiles,
        units: QueueUnits,
        min_offset: int,
        damaged: Callable[[int], bool],
        gone: Collection[Path] = (),
        codes: KeptCodes | None = None,
    ) -> None:
        self.codes = codes or KeptCodes()
        self.files = files
        self.queue = files.queue
        self.units = units
        self.min_offset = min_offset
        self.damaged = damaged
        self.usable = [f for f in self.queue.files if f.path not in gone]
        self._starts = [f.start for f in self.usable]
        self.ranges, self.strays = _one_cluster(units.ranges())
        self.low = self.ranges[0][0] if self.ranges else -1
        self.high = self._behind(self.ranges[-1][1]) if self.ranges else self._kept_end()
        self.front = self._front()
        self.gaps: list[tuple[int, int]] = []
        self._find_gaps()

    def _front(self) -> int:
        """Start (bytes) of the first file: expired files stay as long as no hole is behind them."""
        size = self.queue.file_size
        if self.low < 0:
            return self.usable[0].start if self.usable else 0
        front = consumequeue.first_file(self.low, size)
        starts = set(self._starts)
        while front - size in starts:
            front -= size
        return front

    def _kept_end(self) -> int:
        """Without a message in the log: how far the expired units in front go, in units."""
        at = self.usable[0].start // UNIT if self.usable else 0
        for file in self.usable:
            for a in range(file.start // UNIT, file.stop // UNIT, CHUNK):
                units = self._stored(a, min(CHUNK, file.stop // UNIT - a))
                keep = self._expired(units)
                n = len(keep) if keep.all() else int(np.argmin(keep))
                at = a + n
                if n < len(keep):
                    return at
        return at

    def _expired(self, units: np.ndarray[tuple[int], np.dtype[np.void]]) -> Bool:
        offset, size = units["commitlog_offset"], units["size"]
        before_log = (offset < self.min_offset) | consumequeue.is_pre_blank(offset, size)
        keep: Bool = consumequeue.is_unit(offset, size) & before_log
        return keep

    def _stored(self, start: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        return consumequeue.UNIT.array(self.stored(start * UNIT, count * UNIT))

    def stored(self, at: int, length: int) -> bytes:
        """What is there now, zeros where no file is."""
        i = bisect_right(self._starts, at) - 1
        if i < 0 or at >= self.usable[i].stop:
            return bytes(length)
        file = self.usable[i]
        return read_at(file.path, min(length, file.stop - at), at - file.start).ljust(length, b"\0")

    def _find_gaps(self) -> None:
        for (_, a), (b, _) in zip(self.ranges, self.ranges[1:], strict=False):
            for start in range(a, b, CHUNK):
                stop = min(b, start + CHUNK)
                for x, y in _false_runs(self._right(self._stored(start, stop - start))):
                    self.gaps.append((start + x, start + y))

    def _behind(self, high: int) -> int:
        """The queue's end with the units behind its last message that point, in order, to damage which stays.

        Nothing else knows of those messages: who accepts fillers later needs them.
        """
        last = int(consumequeue.UNIT.parse(self._unit_before(high))["commitlog_offset"])
        while True:
            units = self._stored(high, _BEHIND)
            offset = units["commitlog_offset"].astype(np.int64)
            good = self._right(units) & (np.diff(offset, prepend=last) > 0)
            n = len(good) if good.all() else int(np.argmin(good))
            high += n
            if n < len(good):
                return high
            last = int(offset[-1])

    def _right(self, units: np.ndarray[tuple[int], np.dtype[np.void]]) -> Bool:
        """Units in a gap that are right though their record is damaged: they stay as they are."""
        offset, size = units["commitlog_offset"], units["size"]
        keep: Bool = consumequeue.is_message_unit(offset, size) & (offset >= self.min_offset)
        for i in np.flatnonzero(keep).tolist():
            keep[i] = self.damaged(int(units["commitlog_offset"][i]))
        return keep

    def wanted(self, start: int, count: int) -> bytearray:
        """What units [start, start + count) should be; all in one file."""
        stored = self.stored(start * UNIT, count * UNIT)
        out = bytearray(stored)
        index = np.arange(start, start + count)
        if self.low >= 0:
            head = index < self.low
            if head.any():
                self._set(out, head & ~self._expired(consumequeue.UNIT.array(stored)), consumequeue.PRE_BLANK)
            if self.gaps and index[-1] >= self.gaps[0][0]:
                for a, b in self.gaps:
                    if a <= index[-1] and start < b:
                        self._set(out, (index >= a) & (index < b), self._unit_before(a))
            self.units.fill(out, start)
            self._keep_codes(stored, out)
        elif start <= self.high - 1 < start + count and self.only_pre_blanks():
            at = (self.high - 1 - start) * UNIT
            out[at : at + UNIT] = _FAKE
        if index[-1] >= self.high:
            at = max(0, self.high - start) * UNIT
            out[at:] = bytes(len(out) - at)
        return out

    def _unit_before(self, index: int) -> bytes:
        """The unit of the last message in front of a gap; only in its ranges are units known."""
        last = max(b for _, b in self.ranges if b <= index) - 1
        out = bytearray(self.stored(last * UNIT, UNIT))
        stored = bytes(out)
        self.units.fill(out, last)
        self._keep_codes(stored, out)
        return bytes(out)

    def only_pre_blanks(self) -> bool:
        """Whether the last unit that is kept is a pre-blank: then all of them are."""
        last = self._stored(self.high - 1, 1)
        return bool(consumequeue.is_pre_blank(last["commitlog_offset"], last["size"])[0])

    @staticmethod
    def _set(out: bytearray, where: Bool, unit: bytes) -> None:
        rows = np.frombuffer(out, dtype=np.uint8).reshape(-1, UNIT)
        rows[where] = np.frombuffer(unit, dtype=np.uint8)

    def _keep_codes(self, stored: bytes, out: bytearray) -> None:
        """A unit that is right stays, with an address of the extension in place of its tags code.

        So does one with the deliver time of another messageDelayLevel: it is what the broker delivers by. So does
        a tags code that may be right: it may be the only trace of its message's damage.
        """
        old, new = consumequeue.UNIT.array(stored), consumequeue.UNIT.array(out)
        same = (old["commitlog_offset"] == new["commitlog_offset"]) & (old["size"] == new["size"])
        if self.files.topic == SCHEDULE_TOPIC:
            was_due, due = (units["tags_code"].astype(np.int64) for units in (old, new))
            same &= due_by_another_table(was_due, due, self.codes.delay)
        else:
            same &= old["tags_code"] != new["tags_code"]
            addresses = same & consumequeue.is_ext_address(old["tags_code"])
            if addresses.any() and self.codes.extension is not None:
                addresses &= self.codes.extension.holds(old["tags_code"], new["tags_code"])
            same &= np.isin(old["commitlog_offset"], sorted(self.codes.messages))
            same |= addresses
        if same.any():
            rows, was = (np.frombuffer(b, dtype=np.uint8).reshape(-1, UNIT) for b in (out, stored))
            rows[same] = was[same]

    def keeps_end(self) -> bool:
        """Whether expired units in front are worth keeping: they hold the queue's end."""
        return self.high > (self.usable[0].start // UNIT if self.usable else 0)


def _one_cluster(ranges: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The ranges that belong together, and those too far away to be of this queue."""
    clusters: list[list[tuple[int, int]]] = []
    met = sum(b - a for a, b in ranges)
    for one in ranges:
        if clusters and one[0] - clusters[-1][-1][1] <= max(_FAR, 10 * met):
            clusters[-1].append(one)
        else:
            clusters.append([one])
    if not clusters:
        return [], []
    main = max(clusters, key=lambda c: sum(b - a for a, b in c))
    return main, [one for c in clusters if c is not main for one in c]


def plan_queue(draft: PlanBuilder, image: QueueImage, why: str) -> int:
    """Steps that bring a queue's files to its image; how many units change (a file made counts all of its own)."""
    queue, size = image.queue, image.queue.file_size
    if image.low < 0 and (not image.keeps_end() or (image.min_offset <= 1 and image.only_pre_blanks())):
        for unused in image.usable:
            draft.discard(unused.path, _NO_MESSAGE)
        return len(image.usable)
    changed = 0
    existing = {f.start: f for f in image.usable}
    stop = -(-image.high * UNIT // size) * size
    for start in range(image.front, max(stop, image.front), size):
        file = existing.get(start)
        first, last = start // UNIT, min(image.high, (start + size) // UNIT)
        if file is None or file.length != size:
            if file is not None:
                draft.discard(file.path, why)
            path = queue.directories[0] / offset_to_file_name(start)
            content = Reencoded((last - first) * UNIT, partial(_stream, image, first, last))
            draft.create(path, size, content, why, _neighbour(image))
            changed += last - first
        else:
            changed += _differences(draft, image, file, why)
    for left in existing.values():
        if not image.front <= left.start < stop:
            draft.discard(left.path, _NO_MESSAGE)
            changed += 1
    return changed


def _neighbour(image: QueueImage) -> Path | None:
    return image.usable[-1].path if image.usable else None


def _stream(image: QueueImage, first: int, last: int) -> Iterator[bytes]:
    for start in range(first, last, CHUNK):
        yield bytes(image.wanted(start, min(CHUNK, last - start)))


def _differences(draft: PlanBuilder, image: QueueImage, file: MappedFile, why: str) -> int:
    """Overwrite the runs of units of one file that are not as they should be."""
    changed = 0
    end = last_nonzero_in(file, UNIT)
    top = max(image.high, (file.start + end) // UNIT + 1 if end is not None else 0)
    stop = min(top, file.stop // UNIT)
    pending: tuple[int, int] | None = None
    for start in range(file.start // UNIT, stop, CHUNK):
        count = min(CHUNK, stop - start)
        old = np.frombuffer(image.stored(start * UNIT, count * UNIT), dtype=np.uint8).reshape(-1, UNIT)
        new = np.frombuffer(image.wanted(start, count), dtype=np.uint8).reshape(-1, UNIT)
        for a, b in _false_runs((old == new).all(axis=1)):
            changed += b - a
            a, b = start + a, start + b
            if pending is not None and pending[1] == a:
                pending = (pending[0], b)
                continue
            if pending is not None:
                _overwrite(draft, image, file, *pending, why)
            pending = (a, b)
    if pending is not None:
        _overwrite(draft, image, file, *pending, why)
    return changed


def _overwrite(draft: PlanBuilder, image: QueueImage, file: MappedFile, first: int, last: int, why: str) -> None:
    at = first * UNIT - file.start
    content: Content
    if first >= image.high:
        content, why = Zeros((last - first) * UNIT), _NO_MESSAGE
    elif (last - first) * UNIT <= _SMALL:
        content = Literal(bytes(image.wanted(first, last - first)))
    else:
        content = Reencoded((last - first) * UNIT, partial(_stream, image, first, last))
    draft.overwrite(file.path, at, content, why)


def _false_runs(mask: Bool) -> Iterator[tuple[int, int]]:
    """Runs where the mask is false, half-open."""
    edges = np.flatnonzero(np.diff(np.concatenate(([1], mask.astype(np.int8), [1]))))
    yield from zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True)


def gaps_text(label: str, gaps: Iterable[tuple[int, int]]) -> str:
    """The brake for queue offsets without a message."""
    listed = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in gaps]
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    text = f"{label}: no message in the log has queue offset {', '.join(listed[:5])}{more}"
    return f"{text}; consumers get the message before it again"
