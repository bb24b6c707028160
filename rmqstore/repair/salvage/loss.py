"""The ledger of loss, the only place that counts the messages that a repair loses.

A message can be lost in a damaged span, after the end of a log that was cut or is missing, in a missing file, or with
the only consume queue that had its place. A message with a known queue is counted by queue, any other as of an unknown
queue. If damage may have contained more messages than the evidence shows, the loss is a lower bound, and a note says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from rmqstore.checks.beside.checkpoint import LAST_TIME, read_checkpoint
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.documents.plan import Loss
from rmqstore.files.mapped_file_queue import MAX_RECORD, OddKind, file_name_to_offset
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, StoreKind
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import BLANK_SIZE, HEAD, MAGIC_V1, MAGIC_V2, MIN_SIZE, Fault
from rmqstore.repair.plan.plan_builder import PlanBuilder, first_few
from rmqstore.repair.salvage.evidence import Evidence, Known, OffsetRanges, QueueSlot
from rmqstore.repair.salvage.layout import SpanLayout
from rmqstore.repair.salvage.places import Damage, find_damage, framed_records
from rmqstore.repair.salvage.solve import reach
from rmqstore.scan.dispatch import BatchRow, DispatchedRows
from rmqstore.scan.kernels import I64, Bool, leading
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import UnitArray, unit_chunks
from rmqstore.texts import Text, many

_UNITS_GONE = (codes.CQ_MISSING_UNIT, codes.CQ_MISSING_QUEUE, codes.CQ_MISSING_FILE, codes.CQ_PARTLY_REBUILT)
_CHUNK = 1 << 16  # bytes of units
_FAR = 1 << 40  # bytes after the end; no log extends so far
_FILES = 2  # files after the end in which consumed messages can have been
Slot = tuple[str, int, int]
Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(slots=True)
class Ledger:
    """Lost messages by queue, lost messages of unknown queues, and bytes; `at_least` if the loss is a lower bound."""

    queues: Counter[QueueName] = field(default_factory=Counter)
    unknown: int = 0
    bytes: int = 0
    at_least: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """Return the number of all lost messages."""
        return sum(self.queues.values()) + self.unknown

    def add(self, slot: QueueSlot) -> None:
        """Count the message of a slot, or the messages of its batch."""
        self.queues[slot.name] += max(1, slot.count)

    def bound(self, why: str) -> None:
        """Note that the loss is a lower bound: there may have been messages that are not counted."""
        self.at_least = True
        self.notes.append(Text("the loss is a lower bound: {why}", why=why))

    def loss(self) -> Loss:
        """Return the loss in the form of a plan, by `TOPIC/ID`."""
        more = {"at_least": True} if self.at_least else {}
        return Loss(self.messages, self.bytes, {f"{t}/{q}": n for (t, q), n in self.queues.items()}, more)

    def book(self, draft: PlanBuilder) -> None:
        """Add everything to a plan."""
        loss = self.loss()
        draft.lose(loss.queues, self.bytes, self.unknown)
        draft.more.update(loss.more)
        draft.notes.extend(self.notes)

    # `repaired_log.Sink`: good records that are cut off are dispatched into the ledger

    def rows(self, names: list[QueueName], rows: DispatchedRows) -> None:
        found, counts = np.unique(rows.number, return_counts=True)
        for n, count in zip(found.tolist(), counts.tolist(), strict=True):
            self.queues[names[n]] += count
        self.bytes += int(rows.size.sum())

    def batch(self, name: QueueName, row: BatchRow) -> None:
        self.queues[name] += row.count
        self.bytes += row.size


# --- damaged spans ----------------------------------------------------------------------------------------------------


def count_unnamed(
    ledger: Ledger, evidence: Evidence, layouts: Sequence[SpanLayout], queues: tuple[QueueName, ...], unplaced: int
) -> None:
    """Count messages that may have been in unknown cells.

    `queues` are those of unknown end, `unplaced` the number of lost messages without a cell.

    Cells of messages that are only known from a gap in their queue are of unknown length: others may have been there,
    if a whole file is missing, or if the index has more messages there. At least one was in each span within a file. If
    units are missing, messages may have been in every cell, also where a BLANK will be. The index also shows messages
    whose units are lost without a trace, as at the zeroed end of a queue.
    """
    size = roomy = entries = held = hidden = spans = 0
    floating = unplaced
    for layout in layouts:
        if layout.refused:
            continue
        hides = _may_hide_queues(evidence, layout.damage)
        unsure = hides or bool(queues)
        cells = [c for c in layout.cells if c.kept is None and not c.blank]
        unknown = [c for c in cells if c.expected is None and (c.message is None or c.message.is_dispatched)]
        blanks = [c for c in layout.cells if c.blank and c.length > MIN_SIZE]  # a BLANK, or a message
        gaps = [c for c in cells if c.expected is not None and c.expected.offset is None]
        placed = {c.start for c in cells if c.expected is not None and c.expected.offset is not None}
        if queues:
            size += sum(c.length for c in (*unknown, *blanks))
            roomy += sum(c.length for c in gaps)
            size += sum(c.length for c in gaps) if layout.damage.file is None else 0
        if layout.body_offset:  # every entry is a message
            lost = unsure or bool(evidence.verified.report.findings.counts.get(codes.CQ_MISSING_QUEUE))
            entries += len(unknown) * lost
            hidden += sum(c.length for c in unknown) * lost
            continue
        # a message known only from a gap may have been in any span: its index entry must not count it again
        floating += len(gaps)
        if unknown or gaps or blanks:
            kept = {c.start for c in layout.cells if c.kept is not None}
            more = len(evidence.indexed(layout.damage.start, layout.damage.stop) - kept - placed)
            held += more
            hidden += sum(c.length for c in (*unknown, *blanks)) if more and not hides else 0
        if hides:
            roomier = [c for c in (*gaps, *blanks) if c.length >= 2 * MIN_SIZE]
            hidden += sum(c.length for c in (*unknown, *roomier))
        ends = layout.damage.at_end  # all of it can have been a BLANK
        spans += unsure and not ends and not placed and sum(c.length for c in (*unknown, *gaps)) >= MIN_SIZE
    count = max(0, entries + max(0, held - floating), spans - floating)
    if queues and (size or held > floating):
        _bound_by_ends(ledger, size or roomy, count, queues)
    elif hidden or count:
        ledger.unknown += count
        ledger.bound(
            Text(
                "{hidden} may have contained messages that no consume queue shows{counted}",
                hidden=many(hidden, "damaged byte"),
                counted=_of_unknown_queues(count),
            )
        )


def _may_hide_queues(evidence: Evidence, damage: Damage) -> bool:
    """Return whether damage may have contained messages of queues without any unit, or of queues behind the log.

    They can have been behind it from the damage on, if the record after that is the first without a unit.
    """
    counts, store = evidence.verified.report.findings.counts, evidence.store
    if counts.get(codes.CQ_PARTLY_REBUILT):
        return True
    if store.kind is StoreKind.ROCKSDB and counts.get(codes.CQ_MISSING_UNIT):
        return True
    if counts.get(codes.CQ_MISSING_QUEUE) and evidence.hidden_queues:
        return True
    if not (counts.get(codes.CQ_BEHIND) or counts.get(codes.CQ_LEFT_BEHIND)):
        return False
    parts = evidence.logs.queues.values()
    after = [m.first_at for part in parts for m in part.missing if m.stop >= part.next]
    return bool(after) and min(after) - damage.log.body_offset <= damage.stop


def count_missing(ledger: Ledger, evidence: Evidence, spans: Sequence[tuple[int, int]], known: set[Slot]) -> None:
    """Count the messages in missing files that a plan leaves missing, except those that are `known` already."""
    about = evidence.about(spans)
    evidence.add_ends(about)
    new = {slot.key: slot for slot in about.slots if slot.key not in known}
    for slot in new.values():
        ledger.add(slot)
    if queues := evidence.open_ends(about):
        held = sum(len(evidence.indexed(a, b)) for a, b in spans)
        _bound_by_ends(ledger, sum(b - a for a, b in spans), max(0, held - len(new)), queues)


def _of_unknown_queues(count: int) -> str:
    if not count:
        return ""
    return Text("; certainly lost: {messages} of unknown queues", messages=many(count, "message"))


def _bound_by_ends(ledger: Ledger, size: int, count: int, queues: tuple[QueueName, ...]) -> None:
    """Note that damaged bytes may have contained the last messages of queues, of which the index proves `count`."""
    ledger.unknown += count
    ledger.bound(
        Text(
            "{size} may have contained the last messages of queues whose consume queues are missing too "
            "({names}){counted}. New messages of these queues get queue offsets that were used before",
            size=many(size, "damaged byte"),
            names=first_few([f"{topic}/{queue_id}" for topic, queue_id in queues]),
            counted=_of_unknown_queues(count),
        )
    )


def damage_after(evidence: Evidence, log: LogResult, cut: int) -> Ledger:
    """Count the messages in damage after a cut (global offset), and after the end of the log."""
    end = min(reach(evidence, log), log.tiling.stop)
    ledger = after_end(evidence, log) if log is evidence.logs.results[-1] else Ledger()
    spans = [(d.start, d.stop) for d in find_damage(log, end=end) if d.stop > cut]
    if not spans:
        return ledger
    known = evidence.about(spans)
    evidence.add_ends(known)
    slots = {at: expected.slot for at, expected in known.at.items()}
    for at, slot in _framed(log, cut).items():
        if at < end:
            slots.setdefault(at, slot)
    placed = {slot.key for slot in slots.values()}
    for slot in (*slots.values(), *(slot for _, _, slot in known.between if slot.key not in placed)):
        ledger.add(slot)
    ledger.at_least |= bool(evidence.open_ends(known))
    return ledger


def missing_between(evidence: Evidence, spans: Sequence[tuple[int, int]]) -> Ledger:
    """Count the messages of files that are missing between a legacy commitlog and DLedger's data."""
    ledger, known = Ledger(), evidence.about(spans)
    for slot in known.slots:
        ledger.add(slot)
    ledger.bytes = sum(expected.size or 0 for expected in known.at.values())
    first, last = spans[0][0], spans[-1][1]
    ledger.notes.append(
        Text(
            "no file of the log contains {first:,} to {last:,}: their content cannot be recovered",
            first=first,
            last=last,
        )
    )
    return ledger


def before_begin(evidence: Evidence, log: LogResult) -> Ledger:
    """Count the messages between an empty file far before a log and the log, according to consume queue units.

    A broker deletes expired files and leaves none empty. So the log began with the empty file when it was cut.
    """
    ledger, queue = Ledger(), log.queue
    starts = [file_name_to_offset(o.path.name) for o in queue.odd if o.kind is OddKind.EMPTY]
    cut = [at for at in starts if at is not None and at % queue.file_size == 0 and at < queue.begin]
    if not cut or not queue.files:
        return ledger
    for files in evidence.simple_queues():
        if properties.is_lmq(files.topic):
            continue
        for chunk in unit_chunks(files.queue, consumequeue.UNIT, chunk=_CHUNK):
            offset, size = (chunk.units[name].astype(np.int64) for name in ("commitlog_offset", "size"))
            inside = (
                (offset >= min(cut)) & (offset < queue.begin) & ~consumequeue.is_pre_blank(offset, size) & (size > 0)
            )
            if count := int(inside.sum()):
                ledger.queues[files.topic, files.queue_id] += count
                ledger.bytes += int(size[inside].sum())
    ledger.bound(
        Text(
            "{queue} began at {cut:,}, where an empty file is, and now begins at {begin:,}; the files between are "
            "missing",
            queue=queue.name,
            cut=min(cut),
            begin=queue.begin,
        )
    )
    return ledger


def _framed(log: LogResult, start: int) -> dict[int, QueueSlot]:
    """Return framed but damaged records from an offset on, by global offset: they count as lost like good ones."""
    out: dict[int, QueueSlot] = {}
    for run in log.tiling:
        if run.kind is Kind.DIRTY and run.count and run.start >= start and run.cause is not Fault.PHYSICAL_OFFSET:
            for at, message in framed_records(log, run.start, run.stop):
                if message.is_dispatched:
                    out[at + log.body_offset] = QueueSlot(message.topic_text, message.queue_id, message.queue_offset)
    return out


# --- after the end of the log -----------------------------------------------------------------------------------------
#
# A unit counts if it follows its queue's good units without a gap, and points to a higher offset than the unit before
# it: then a broker wrote it. The index and consumers show messages without a unit; bytes without any evidence make the
# loss a lower bound. Units that overlap are from two histories of the log: those that continue the log count.


def after_end(evidence: Evidence, log: LogResult) -> Ledger:
    """Count the messages after the end of the store's last log.

    Old records that a truncation left after the end, and their units, do not count: they were lost before.
    """
    ledger, floor = Ledger(), reach(evidence, log)
    if log.stale_from is not None:
        _count_after_stale(ledger, evidence, log)
        return ledger
    names, units = _units_after(evidence, log, floor)
    light = np.array([properties.is_lmq(topic) for topic, _ in names], dtype=np.bool_)[units[0]]
    own, doubtful = _one_life(units[:, ~light])
    numbers, offsets, sizes, counts = own.tolist()
    if doubtful:
        ledger.notes.append(
            Text(
                "not counted, because they are left over from an earlier log and overlap others: {units} after the "
                "end of the log",
                units=many(doubtful, "unit"),
            )
        )
    for number, count in zip(numbers, counts, strict=True):
        ledger.queues[names[number]] += count
    ledger.bytes = sum(sizes)
    framed = _framed(log, floor)
    for at in framed.keys() - set(offsets):  # units that point to it take precedence over its own header
        ledger.add(framed[at])
    gone = _units_gone(evidence, floor)
    named = OffsetRanges(zip(offsets, (own[1] + own[2]).tolist(), strict=True))
    indexed = {at for at in evidence.indexed(floor, _indexed_up_to(evidence)) - framed.keys() if at not in named}
    places = set(units[1, light].tolist()) | _entries_after(evidence, log)
    places = {at for at in places - framed.keys() if at >= floor and at not in named}
    if gone:
        places |= indexed
    consumed = _consumed(ledger, evidence, log, floor) if gone else 0
    ledger.unknown = max(0, len(places) - consumed)
    unnamed = _unnamed_bytes(log, floor, offsets, sizes)
    _bound(ledger, evidence, floor, unnamed, gone=gone, later=bool(places), indexed=bool(indexed - places))
    if unnamed and not ledger.messages and not ledger.at_least and (torn := _torn(log)) is not None:
        ledger.bound(
            Text(
                "a message begins at {torn:,} and was not written completely; its producer may count it as sent",
                torn=torn,
            )
        )
    return ledger


def _torn(log: LogResult) -> int | None:
    """Return the offset after the log's end at which the header of an incomplete record says that it belongs there."""
    for run in log.tiling.tail():
        at = run.start + log.body_offset
        head = log.queue.pread(HEAD.size, at) if run.kind is Kind.DIRTY and not run.count else b""
        values = HEAD.unpack(head) if len(head) == HEAD.size else {}
        if values.get("magic") in (MAGIC_V1, MAGIC_V2) and values["physical_offset"] == at:
            return run.start
    return None


def _count_after_stale(ledger: Ledger, evidence: Evidence, log: LogResult) -> None:
    """Count the indexed messages after old records, which are not old: they begin at no record, and have no unit."""
    if not _units_gone(evidence, log.wrote):
        return
    old = [(run.start, run.stop) for run in log.tiling if run.kind is Kind.RECORDS and run.start >= log.wrote]
    entries, ranges = evidence.indexed(log.wrote, _indexed_up_to(evidence)), OffsetRanges(old)
    ledger.unknown = sum(at not in ranges for at in entries)
    if ledger.unknown:
        ledger.bound(
            Text(
                "{messages} after the log's end at {wrote:,} are in the index, and no consume queue shows whether a "
                "broker had removed them before",
                messages=many(ledger.unknown, "message"),
                wrote=log.wrote,
            )
        )


def _units_gone(evidence: Evidence, floor: int) -> bool:
    """Return whether queues that may have had messages after the end of the log lack the units that would show it."""
    counts = evidence.verified.report.findings.counts
    if not any(counts.get(code) for code in _UNITS_GONE):
        # units that a killed broker has not written yet are normal, unless something else knows later messages
        later = _checkpoint_knows_more(evidence) or evidence.indexed(floor, _indexed_up_to(evidence))
        if not later or evidence.logs.grows:
            return False
    return bool(evidence.open_ends(Known(OffsetRanges([(floor, floor + _FAR)]))))


def _indexed_up_to(evidence: Evidence) -> int:
    """Return the end of the range of global offsets in the headers of the index files."""
    index = evidence.verified.index
    return max((file.end_phy_offset for file in index.files), default=-1) + 1 if index is not None else 0


def _bound(
    ledger: Ledger, evidence: Evidence, floor: int, unnamed: int, *, gone: bool, later: bool, indexed: bool
) -> None:
    """Note whether there may have been more messages than counted.

    `gone`: the units of some queues are. `later`: messages after the log's end are known. `indexed`: there are entries
    without a unit, of this log or of an earlier one.
    """
    why = ""
    if unnamed and (ledger.messages or gone or _only_the_checkpoint_knows(evidence)):
        why = Text(
            "{unnamed} after the log's end at {floor:,} may have contained more messages",
            unnamed=many(unnamed, "byte"),
            floor=floor,
        )
    elif ledger.messages and evidence.logs.lag_is_normal:
        why = Text("the broker was killed, and its last messages may not have been in a queue yet")
    elif ledger.messages and indexed:
        why = Text("the index has messages after the log's end at {floor:,} that no consume queue has", floor=floor)
    elif gone and (_checkpoint_knows_more(evidence) or ledger.messages or later):
        why = Text(
            "messages were after the log's end at {floor:,}, and the consume queues with their units are missing too",
            floor=floor,
        )
    if why:
        ledger.bound(why)


def _checkpoint_knows_more(evidence: Evidence) -> bool:
    """Return whether the checkpoint has the time of a message after the log's end, and not one in the future."""
    ahead = [f for f in evidence.verified.report.findings.listed if f.code == codes.CK_AHEAD]
    return any(not f.facts.get("in_future") for f in ahead)


def _only_the_checkpoint_knows(evidence: Evidence) -> bool:
    """Return whether the log has no message, and the checkpoint has the time of one: it was flushed."""
    if any(log.messages for log in evidence.logs.results):
        return False
    return 0 < parse_checkpoint(read_checkpoint(evidence.store) or b"").physic_msg_timestamp <= LAST_TIME


def last_named(evidence: Evidence, log: LogResult) -> int:
    """Return the offset of the last message after the end of a log that has a unit or a DLedger entry; -1 if none."""
    _, units = _units_after(evidence, log, log.wrote)
    return max([-1, *units[1].tolist(), *_entries_after(evidence, log)])


def _units_after(evidence: Evidence, log: LogResult, floor: int) -> tuple[list[QueueName], Table]:
    """Return the queues, and a table of units after the end, by offset: number of the queue, offset, size, count."""
    names: list[QueueName] = []
    parts = [np.zeros((4, 0), dtype=np.int64)]
    for files in chain(evidence.simple_queues(), evidence.store.consume_queues(QueueKind.BATCH)):
        state = evidence.verified.report.queues.get(files.label)
        for units in _attached(files, evidence, log):
            after = units[units["commitlog_offset"] >= floor]
            if files.kind is QueueKind.BATCH:
                after = after[after["base_offset"] >= (state.expected_max if state is not None else 0)]
            columns = np.ones((4, len(after)), dtype=np.int64)
            columns[0], columns[1], columns[2] = len(names), after["commitlog_offset"], after["size"]
            if files.kind is QueueKind.BATCH:
                columns[3] = np.maximum(after["batch_size"], 1)
            parts.append(columns)
        names.append((files.topic, files.queue_id))
    joined = np.concatenate(parts, axis=1)
    return names, joined[:, np.argsort(joined[1], kind="stable")]


def _attached(files: ConsumeQueueFiles, evidence: Evidence, log: LogResult) -> Iterator[UnitArray]:
    """Yield the units after those of good messages, as long as their offsets rise."""
    batch = files.kind is QueueKind.BATCH
    layout = consumequeue.BATCH_UNIT if batch else consumequeue.UNIT
    part = evidence.logs.queues.get((files.topic, files.queue_id))
    owned = before = 0
    if part is not None and part.messages and not batch:
        owned, before = max(part.next, part.units_end), part.last_at
    at = max(files.queue.start, owned * layout.size)
    begun = owned > 0
    for chunk in unit_chunks(files.queue, layout, start=at, chunk=_CHUNK):
        if chunk.start != at:
            return
        units = chunk.units
        at += len(units) * layout.size
        offset, size = units["commitlog_offset"].astype(np.int64), units["size"].astype(np.int64)
        if not begun:  # skip pre-blanks, and units of expired files
            expired = (size > 0) & (offset < evidence.logs.min_offset)
            blank = np.flatnonzero(consumequeue.is_pre_blank(offset, size))
            real = ~expired
            real[: int(blank[-1]) + 1 if len(blank) else 0] = False  # also a damaged unit among them
            if not real.any():
                continue
            first = int(np.argmax(real))
            units, offset, size, begun = units[first:], offset[first:], size[first:], True
        kept = ~_damaged_units(offset, before, log.tiling.stop + _FILES * log.queue.file_size)
        units, offset, size = units[kept], offset[kept], size[kept]
        left = log.queue.file_size - offset % log.queue.file_size
        good = (size >= MIN_SIZE) & (size <= MAX_RECORD) & (size + BLANK_SIZE <= left)
        good &= (offset >= np.concatenate(([before], (offset + size)[:-1]))) & (offset < log.wrote + _FAR)
        n = leading(good)
        if n:
            yield units[:n]
            before = int(offset[n - 1] + size[n - 1])
        if n < len(good):
            return


def _damaged_units(offset: I64, before: int, limit: int) -> Bool:
    """Return which units are damaged: beyond `limit` or negative, although the next one continues the previous."""
    damaged = np.zeros(len(offset), dtype=np.bool_)
    if len(offset) > 1:
        previous = np.concatenate(([before], offset[:-2]))
        far = (offset[:-1] > limit) & (offset[1:] < offset[:-1])
        damaged[:-1] = (far | (offset[:-1] < 0)) & (offset[1:] > previous)
    return damaged


def _one_life(units: Table) -> tuple[Table, int]:
    """Return units that do not overlap, and the number of those left out."""
    keep: list[int] = []
    end = 0
    for i, (offset, size) in enumerate(zip(*units[1:3].tolist(), strict=True)):
        if offset >= end:
            keep.append(i)
            end = offset + size
    return units[:, keep], units.shape[1] - len(keep)


def _entries_after(evidence: Evidence, log: LogResult) -> set[int]:
    """Return the messages of the consecutive entries that DLedger's index has after the end of the data."""
    if not log.body_offset:
        return set()
    from rmqstore.checks.beside.dledger import entries_after

    return {pos + log.body_offset for pos, _ in entries_after(evidence.store, log)}


def _consumed(ledger: Ledger, evidence: Evidence, log: LogResult, floor: int) -> int:
    """Count consumed messages without a unit in the ledger, and return their number.

    Those of queues that may have ended in damage before the log's end count there. The number includes them, because
    they may have been after the end, so that the index has them too.
    """
    logs = evidence.logs
    spans = [(d.start, d.stop) for r in logs.results for d in find_damage(r, end=min(floor, r.tiling.stop))]
    if (hole := evidence.store.hole_before_dledger) is not None:
        spans.append(hole)
    earlier = Known(OffsetRanges(spans))
    evidence.add_ends(earlier)
    without = {*evidence.open_ends(earlier)}
    without |= {name for name, part in logs.queues.items() if part.repeats or part.outliers}  # their ends are uncertain
    # a record that is too many in a sister queue may be the last one of this queue
    repeated = {(topic, number) for (topic, _), part in logs.queues.items() for _, number in part.repeats}
    taken = {row.name for row in evidence.consumed if any(t == row.topic and n in row.numbers for t, n in repeated)}
    ledger.at_least |= bool(taken - without)
    without |= taken
    known = Known(OffsetRanges([(floor, floor + _FILES * log.queue.file_size)]))
    evidence.add_ends(known, without=without)
    for _, _, slot in known.between:
        ledger.add(slot)
    ledger.notes.extend(known.notes)
    return len(known.between) + len(earlier.between)


def _unnamed_bytes(log: LogResult, end: int, offsets: Sequence[int], sizes: Sequence[int]) -> int:
    """Count the bytes after the end without evidence: dirty ones, and those before a known message."""
    size, body_offset = log.queue.file_size, log.body_offset
    total, at = 0, end
    for start, length in zip(offsets, sizes, strict=True):
        gap = start - body_offset - at
        if (start - body_offset) % size == 0 and gap < length + body_offset + BLANK_SIZE:
            gap = 0  # the rest of a file was too short for this message
        total += gap if gap >= MIN_SIZE else 0
        at = start + length
    for run in log.tiling.tail():
        if run.kind is Kind.DIRTY and not run.count:
            total += max(0, run.stop - max(run.start, at))
    return total
