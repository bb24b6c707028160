"""Messages behind the log's end: their records are gone or unreadable, and the consume queues still name them. Pure.

A unit counts where it follows its queue's good units without a gap, and points behind what the unit before it points
to: so a broker wrote it. What no unit names is told by the index and by consumers; what nothing names makes the loss
a lower bound. Units that contradict each other are of two lives of the log: the ones that follow on are believed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.records import MAX_RECORD
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue, dledger, properties
from rmqstore.formats.message import BLANK_SIZE, MIN_SIZE
from rmqstore.repair.salvage.evidence.consumer_progress import ConsumerProgress
from rmqstore.repair.salvage.evidence.filler_records import QueueSlot
from rmqstore.repair.salvage.evidence.lost_messages import Known, Name, Ranges
from rmqstore.repair.salvage.evidence.spans import find_damage
from rmqstore.repair.salvage.queue_ends import indexed_in, open_ends, take_ends
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import unit_chunks

_UNITS_GONE = (codes.CQ_MISSING_UNIT, codes.CQ_MISSING_QUEUE, codes.CQ_MISSING_FILE, codes.CQ_PARTLY_REBUILT)
_CHUNK = 1 << 16  # bytes of units
_FAR = 1 << 40  # bytes; what is farther behind the end was never a place of this log
_FILES = 2  # as far behind the end as consumers are believed, in files


@dataclass(slots=True)
class Behind:
    """What stood behind the end of the log.

    `counts` messages per queue, `unknown` messages of queues that nothing names, `size` bytes of those that are named.
    `at_least`: there may have been more.
    """

    counts: Counter[Name] = field(default_factory=Counter)
    unknown: int = 0
    size: int = 0
    at_least: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """All that is known of."""
        return sum(self.counts.values()) + self.unknown

    def labels(self) -> Counter[str]:
        """The same counts by `TOPIC/ID`."""
        return Counter({f"{topic}/{queue_id}": n for (topic, queue_id), n in self.counts.items()})


@dataclass(frozen=True, slots=True)
class _Rows:
    """Units in the order of their offsets; `name` numbers `names`, `count` is the messages of each."""

    names: list[Name]
    name: I64
    offset: I64
    size: I64
    count: I64

    def take(self, keep: Bool | I64) -> _Rows:
        return _Rows(self.names, self.name[keep], self.offset[keep], self.size[keep], self.count[keep])


def lost_behind(store: Store, verified: Verified, result: LogResult, framed: dict[int, QueueSlot]) -> Behind:
    """What stood behind the last good record of the store's last log.

    `framed`: global offset → what a damaged record there says of itself; units that name it take precedence.
    Records of a truncated log behind the end, and their units, are of an earlier life: nothing of them is lost now.
    """
    out = Behind()
    if result.stale_from is not None:
        return out
    floor = result.wrote
    rows = _units(store, verified, result, floor)
    light = np.array([properties.is_lmq(name[0]) for name in rows.names], dtype=np.bool_)
    fanned = light[rows.name] if len(rows.name) else np.zeros(0, dtype=np.bool_)
    own, copies = rows.take(~fanned), rows.take(fanned)
    own, doubtful = _one_life(own)
    if doubtful:
        out.notes.append(
            f"{doubtful:,} units behind the end of the log overlap others: left over from an earlier log, not counted"
        )
    totals = np.zeros(len(own.names), dtype=np.int64)
    np.add.at(totals, own.name, own.count)
    out.counts.update({own.names[number]: int(totals[number]) for number in np.unique(own.name).tolist()})
    out.size = int(own.size.sum())
    named = set(own.offset.tolist())
    for at, seat in framed.items():
        if at not in named:
            out.counts[seat.topic, seat.queue_id] += max(1, seat.count)
    ends = (own.offset + own.size).tolist()
    starts = own.offset.tolist()
    gone = _units_gone(verified, floor)
    places = set(copies.offset.tolist()) | _entries(store, result)
    if gone:
        places |= _indexed(verified, floor)
    places = {at for at in places - framed.keys() if not _inside(at, starts, ends)}
    consumed = _consumed(out, store, verified, result) if gone else 0
    out.unknown = max(0, len(places) - consumed)
    _bound(out, verified, floor, _bare(result, own), gone=gone)
    return out


def _units_gone(verified: Verified, floor: int) -> bool:
    """Whether queues that may have had messages behind the end of the log have lost units that would say so."""
    counts = verified.report.findings.counts
    if not any(counts.get(code) for code in _UNITS_GONE):
        return False
    return bool(open_ends(verified.logs, Known(), Ranges([(floor, floor + _FAR)])))


def _indexed(verified: Verified, floor: int) -> set[int]:
    """Places behind the end where the index has a message, as far as its own headers reach."""
    files = verified.index.files if verified.index is not None else ()
    stop = max((file.end_phy_offset for file in files), default=0) + 1
    return indexed_in(verified, floor, stop) if stop > floor else set()


def _bound(out: Behind, verified: Verified, floor: int, bare: int, *, gone: bool) -> None:
    """Whether there may have been more messages than are counted, and what says so."""
    if bare and (out.messages or gone):
        out.at_least = True
        out.notes.append(
            f"the loss is a lower bound: {bare:,} bytes behind the log's end at {floor:,} may have held more messages, "
            "and nothing names them"
        )
    elif out.messages and verified.logs.lag_is_normal:
        out.at_least = True
        out.notes.append(
            "the loss is a lower bound: the broker was killed, and its last messages may not have been in a queue yet"
        )
    elif gone and (_told_by_checkpoint(verified) or out.messages):
        out.at_least = True
        out.notes.append(
            f"the loss is a lower bound: messages were behind the log's end at {floor:,}, and consume queues that "
            "would name them are missing too"
        )


def _told_by_checkpoint(verified: Verified) -> bool:
    """Whether the checkpoint knows of messages behind the log's end: no broker wrote a time that is yet to come."""
    ahead = [f for f in verified.report.findings.listed if f.code == codes.CK_AHEAD]
    return any(not f.facts.get("in_future") for f in ahead)


def _units(store: Store, verified: Verified, result: LogResult, floor: int) -> _Rows:
    names: list[Name] = []
    parts: list[np.ndarray[tuple[int, int], np.dtype[np.int64]]] = []
    for files in store.consume_queues(QueueKind.SIMPLE, QueueKind.BATCH):
        layout = consumequeue.BATCH_UNIT if files.kind is QueueKind.BATCH else consumequeue.UNIT
        for units in _attached(files, verified, result, layout.size):
            behind = units[units["commitlog_offset"] >= floor]
            if files.kind is QueueKind.BATCH:
                state = verified.report.queues.get(files.label)
                behind = behind[behind["base_offset"] >= (state.expected_max if state is not None else 0)]
            if not len(behind):
                continue
            columns = np.zeros((4, len(behind)), dtype=np.int64)
            columns[0], columns[1], columns[2], columns[3] = len(names), behind["commitlog_offset"], behind["size"], 1
            if files.kind is QueueKind.BATCH:
                columns[3] = np.maximum(behind["batch_size"], 1)
            parts.append(columns)
        names.append((files.topic, files.queue_id))
    columns = np.concatenate([np.zeros((4, 0), dtype=np.int64), *parts], axis=1)
    number, offset, size, count = columns[:, np.argsort(columns[1], kind="stable")]
    return _Rows(names, number, offset, size, count)


def _attached(
    files: ConsumeQueueFiles, verified: Verified, result: LogResult, unit: int
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.void]]]:
    """Units behind those that good messages own or are owed, as long as each points behind the one before it."""
    batch = files.kind is QueueKind.BATCH
    layout = consumequeue.BATCH_UNIT if batch else consumequeue.UNIT
    part = verified.logs.queues.get((files.topic, files.queue_id))
    owned = before = 0
    if part is not None and part.messages and not batch:
        owned, before = max((b for _, b in part.accounted), default=0), part.last_at
        owned = max(owned, part.next)
    start = max(files.queue.start, owned * unit)
    at, begun = start, owned > 0
    for chunk in unit_chunks(files.queue, layout, start=start, chunk=_CHUNK):
        if chunk.start != at:
            return
        units = chunk.units
        at += len(units) * unit
        offset, size = units["commitlog_offset"].astype(np.int64), units["size"].astype(np.int64)
        if not begun:  # pre-blanks, and units of expired files, come first
            real = (size != consumequeue.PRE_BLANK_SIZE) & ~((size > 0) & (offset < verified.logs.min_offset))
            if not real.any():
                continue
            first = int(np.argmax(real))
            units, offset, size, begun = units[first:], offset[first:], size[first:], True
        left = result.queue.file_size - offset % result.queue.file_size
        good = (size >= MIN_SIZE) & (size <= MAX_RECORD) & (size + BLANK_SIZE <= left)
        good &= (offset >= np.concatenate(([before], (offset + size)[:-1]))) & (offset < result.wrote + _FAR)
        n = len(good) if good.all() else int(np.argmin(good))
        if n:
            yield units[:n]
            before = int(offset[n - 1] + size[n - 1])
        if n < len(good):
            return


def _one_life(rows: _Rows) -> tuple[_Rows, int]:
    """Rows of which none overlaps another, and how many were left out."""
    if len(rows.offset) < 2 or bool((rows.offset[1:] >= (rows.offset + rows.size)[:-1]).all()):
        return rows, 0
    keep: list[int] = []
    end = 0
    for i, (offset, size) in enumerate(zip(rows.offset.tolist(), rows.size.tolist(), strict=True)):
        if offset >= end:
            keep.append(i)
            end = offset + size
    return rows.take(np.array(keep, dtype=np.int64)), len(rows.offset) - len(keep)


def _inside(at: int, starts: Sequence[int], ends: Sequence[int]) -> bool:
    i = bisect_right(starts, at) - 1
    return i >= 0 and at < ends[i]


def _entries(store: Store, result: LogResult) -> set[int]:
    """Messages of entries that DLedger's index still names, one right behind the other from the end of the data on."""
    out: set[int] = set()
    if store.dledger is None or not result.lead or not result.messages:
        return out
    size, end, number = result.queue.file_size, result.wrote, result.entries.last_index + 1
    for chunk in unit_chunks(store.dledger.index, dledger.INDEX_UNIT, start=dledger.index_at(number), chunk=_CHUNK):
        for unit in chunk.units:
            pos, length, index = int(unit["pos"]), int(unit["size"]), int(unit["index"])
            fresh = pos % size == 0 and 0 <= pos - end < size
            if index != number or not (pos == end or fresh) or not result.lead < length <= size:
                return out
            out.add(pos + result.lead)
            end, number = pos + length, number + 1
    return out


def _consumed(out: Behind, store: Store, verified: Verified, result: LogResult) -> int:
    """Count what consumers have passed and no unit names, in queues that do not end in damage before the log's end."""
    logs, floor = verified.logs, result.wrote
    spans = [(d.start, d.stop) for log in logs.results for d in find_damage(log, end=min(floor, log.tiling.stop))]
    within = {*open_ends(logs, Known(), Ranges(spans))}
    within |= {name for name, part in logs.queues.items() if part.repeats or part.outliers}  # their ends are not sure
    known = Known()
    ranges = Ranges([(floor, floor + _FILES * result.queue.file_size)])
    take_ends(known, logs, ranges, ConsumerProgress(store), without=within)
    out.counts.update((seat.topic, seat.queue_id) for _, _, seat in known.floating)
    out.notes.extend(known.notes)
    return len(known.floating)


def _bare(result: LogResult, rows: _Rows) -> int:
    """Bytes behind the end that are not zero or lie before a message that stood there, and that nothing names."""
    starts, ends = rows.offset.tolist(), (rows.offset + rows.size).tolist()
    size, lead = result.queue.file_size, result.lead
    total, at = 0, result.wrote
    for start, end in zip(starts, ends, strict=True):
        gap = start - lead - at
        if (start - lead) % size == 0 and gap < end - start + lead + BLANK_SIZE:
            gap = 0  # the rest of a file, too short for this message
        total += gap if gap >= MIN_SIZE else 0
        at = end
    for run in result.tiling.tail():
        if run.kind is Kind.DIRTY and not run.count:
            total += max(0, run.stop - max(run.start, at))
    return total
