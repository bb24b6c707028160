"""Queues in a split of the log: their queue offsets with gaps and repeats, and the messages that have their unit.

Messages are collected in windows of some hundred thousand, grouped by queue, and compared with the units of the
consume queue in bulk. Only what differs is examined one by one. The result consists of intervals and exceptions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from rmqstore.checks.log.delay_levels import due_by_another_table
from rmqstore.checks.log.stored_units import UnitFiles, WatchedReads
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.formats.message import INNER_BATCH, MIN_SIZE, Message
from rmqstore.formats.properties import SCHEDULE_TOPIC, DelayLevels, parse_properties
from rmqstore.formats.services import batch_extent
from rmqstore.scan.dispatch import DispatchedRows
from rmqstore.scan.kernels import I64, Bool, consecutive
from rmqstore.scan.units import Laid, Rows, UnitArray, lay_out
from rmqstore.texts import Text

WINDOW = 1 << 18
KEPT = 10_000
_MANY = 1000  # exceptions in a queue, from which on no record is known to continue it
EDGE = 64  # records of a stretch whose log offsets are kept
SHIFT = 4096  # units: how far from its index a unit is searched
T = TypeVar("T")


StoredUnits = UnitFiles | WatchedReads
"""The units of consume queues in the store."""


@dataclass(slots=True)
class QueueGap:
    """Queue offsets [expected, got) are missing between the records at `before` and `at` (global offsets)."""

    expected: int
    got: int
    before: int
    at: int


@dataclass(slots=True)
class Outlier:
    """A record at `at` (global offset) with queue offset `got`, which its neighbours in the queue exclude.

    `expected`: the only queue offset that they leave; None if they leave none, so that it belongs elsewhere.
    """

    expected: int | None
    got: int
    at: int


@dataclass(slots=True)
class Missing:
    """Messages with queue offsets [start, stop) that have no unit; `first_at`, `last_at` are offsets in the log."""

    start: int
    stop: int
    first_at: int
    last_at: int

    @property
    def count(self) -> int:
        return self.stop - self.start


@dataclass(slots=True)
class Shifted:
    """Units [start, stop) that belong to the messages with queue offsets `by` lower."""

    start: int
    stop: int
    by: int


@dataclass(slots=True)
class QueueRun:
    """Records of a queue with the consecutive queue offsets [first, stop).

    `at`: global offsets of the first `EDGE` records, `last_at` of the last.
    """

    first: int
    stop: int
    at: Sequence[int]  # an array, because there may be many queues
    last_at: int


def _longer(known: Sequence[T], more: Sequence[T]) -> Sequence[T]:
    """Return `known` with more elements; a list is extended in place."""
    if not more:
        return known
    out = known if isinstance(known, list) else list(known)
    out.extend(more)
    return out


class Witness(NamedTuple):
    """What confirms or denies the queue offsets of one queue's records.

    `unit_at`: the commitlog offset that the unit of a queue offset points to; None without a unit. `bad_between`:
    whether there is damage between two global offsets, so that messages may be missing there. `file_size` of the log in
    bytes: records of another file may be of another log.
    """

    unit_at: Callable[[int], int | None]
    bad_between: Callable[[int, int], bool]
    file_size: int

    def confirms(self, one: QueueRun) -> bool:
        """Return whether the unit at a record's queue offset points to it."""
        return self.unit_at(one.first) == one.at[0]

    def in_one_file(self, at: int, other: int) -> bool:
        """Return whether two records are in one file of the log."""
        return at // self.file_size == other // self.file_size


class WrongSize(NamedTuple):
    """A unit that points to its message, at a queue offset and a log offset, with a wrong size (bytes)."""

    queue_offset: int
    offset: int
    size: int
    expected: int


@dataclass(slots=True)
class QueuePart:
    """One queue in a part of the log.

    `first`, `next`: queue offsets; `first_at`, `last_at`: global offsets of the first and last record. `accounted`:
    half-open intervals of unit indexes whose units belong to a message of this queue (correct, or reported as wrong).
    `missing`: messages without a unit. `repeats`: records whose queue offset occurred before. `stretches`: records
    whose queue offsets are not judged yet, because a split does not know what precedes it. `first_is_alone`: the queue
    seems to restart at 0 after its first record.
    """

    first: int
    next: int
    first_at: int
    last_at: int
    messages: int = 0
    stretches: list[QueueRun] = field(default_factory=list)
    accounted: list[tuple[int, int]] = field(default_factory=list)
    # most queues have nothing of these: empty lists of 20,000 queues would be 7 MB
    outliers: Sequence[Outlier] = ()
    restarts: Sequence[int] = ()  # offsets of records where the queue restarted at 0
    gaps: Sequence[QueueGap] = ()
    repeats: Sequence[tuple[int, int]] = ()  # (offset of the record, queue offset)
    repeat_count: int = 0
    missing: Sequence[Missing] = ()
    shifted: Sequence[Shifted] = ()
    wrong_sizes: Sequence[WrongSize] = ()
    first_is_alone: bool = False

    @property
    def first_unit(self) -> int:
        """The index of the first unit that belongs to a message; -1 without one."""
        return min((a for a, _ in self.accounted), default=-1)

    @property
    def units_end(self) -> int:
        """The index after the last unit that belongs to a message; 0 without one."""
        return max((b for _, b in self.accounted), default=0)

    def has_unit(self, queue_offset: int) -> bool:
        """Return whether the unit at a queue offset belongs to a message."""
        return any(a <= queue_offset < b for a, b in self.accounted)

    def without_message(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of queue offsets within [start, stop) that no record has."""
        for low, high in ((start, self.first), *((gap.expected, gap.got) for gap in self.gaps), (self.next, stop)):
            if max(low, start) < min(high, stop):
                yield max(low, start), min(high, stop)

    def is_odd(self, at: int) -> bool:
        """Return whether a record does not continue its queue. If many do not, any record may be one of them."""
        if len(self.outliers) + len(self.repeats) > _MANY:
            return True
        return any(at == one.at for one in self.outliers) or any(at == offset for offset, _ in self.repeats)

    @property
    def odd_records(self) -> Iterator[tuple[int, int]]:
        """Log offset and queue offset of records of the present life: another has their place, or there is none."""
        restart = max(self.restarts, default=-1)
        yield from ((at, number) for at, number in self.repeats if at >= restart)
        yield from ((one.at, one.got) for one in self.outliers if one.expected is None and one.at >= restart)

    def without_restarts(self, records: Collection[int]) -> QueuePart:
        """Return the queue as if it did not restart at these records."""
        left = [at for at in self.restarts if at not in records]
        return self if len(left) == len(self.restarts) else replace(self, restarts=left)

    def has_message(self, queue_offset: int) -> bool:
        """Return whether a record has a queue offset."""
        return bool(self.messages) and not any(self.without_message(queue_offset, queue_offset + 1))

    def add_stretch(self, new: QueueRun) -> None:
        """Append records, joined to the last stretch if their queue offsets continue it."""
        last = self.stretches[-1] if self.stretches else None
        if last is None or last.stop != new.first:
            self.stretches.append(new)
            return
        if len(last.at) == last.stop - last.first:
            last.at = array("q", [*last.at, *new.at[: EDGE - len(last.at)]])
        last.stop, last.last_at = new.stop, new.last_at

    def judge(self, witness: Witness, *, all_of_it: bool) -> None:
        """Judge stretches in order, each together with the next one; the last two only if `all_of_it`.

        Call it on the queue of a whole log. The last one may go on, so the result does not depend on how the log was
        split.
        """
        todo = self.stretches
        stop = len(todo) if all_of_it else max(0, len(todo) - 2)
        for i in range(stop):
            self._judge_one(todo[i], todo[i + 1] if i + 1 < len(todo) else None, witness)
            self.last_at = todo[i].last_at
        del todo[:stop]

    def _judge_one(self, one: QueueRun, after: QueueRun | None, witness: Witness) -> None:
        single = one.stop - one.first == 1
        if self.next < 0:  # nothing precedes it
            precedes = single and after is not None and after.first > 0 and self._precedes(one, after, witness)
            self.first = self.next = after.first - 1 if precedes and after is not None else one.first
            self.first_is_alone = single and one.first > 0 and after is not None and after.first == 0
        true = self._true_offset(one, after, witness) if single else one.first
        if true == one.first:
            self._stretch(one, restarts=true == 0 and not self._goes_on(one, after, witness))
            return
        if true is not None and true > self.next:
            self._gap(true, one.at[0])
        self._outlier(one.first, one.at[0], true)

    def exclude_first(self) -> None:
        """Take the first record for one of another queue, and the restart after it for the beginning of the queue."""
        self.outliers = [Outlier(None, self.first, self.first_at), *self.outliers]
        self.first, self.first_at, self.restarts = 0, self.restarts[0], self.restarts[1:]

    def _true_offset(self, one: QueueRun, after: QueueRun | None, witness: Witness) -> int | None:
        """Return the queue offset that a single record truly has; None if it does not belong to the queue here."""
        if one.first == self.next:
            return one.first
        near = after is not None and after.first in (self.next, self.next + 1)
        if after is not None and near and not self._is_repeated(one, after, witness):
            return None if after.first == self.next or self._is_of_another(one, after, witness) else self.next
        if self._is_the_next(one, after, witness):
            return self.next
        if after is not None and self._is_before(one, after, witness):
            return after.first - 1
        return None if after is not None and self._is_taken(one, after, witness) else one.first

    def _goes_on(self, one: QueueRun, after: QueueRun | None, witness: Witness) -> bool:
        """Return whether records from queue offset 0 on do not show that the queue restarted."""
        single = one.stop - one.first == 1
        if single and after is not None:
            return after.first > self.next  # a queue that restarted would not go on after its earlier end
        # with only one record before or after it, only a unit proves it; or earlier restarts, if both are alone, as in
        # a log whose queue offsets are all 0
        one_before = self.next <= 1
        again = single and one_before and bool(self.restarts)
        return (single or one_before) and not again and not witness.confirms(one)

    def _precedes(self, one: QueueRun, after: QueueRun, witness: Witness) -> bool:
        """Return whether the first record of a queue has the queue offset before the next stretch, not its own one."""
        return witness.unit_at(after.first - 1) == one.at[0] or self._is_denied(one, after, witness)

    def _is_the_next(self, one: QueueRun, after: QueueRun | None, witness: Witness) -> bool:
        """Return whether a record has the next queue offset, not its own one.

        The unit there says so. Or it is the queue's last record, no unit confirms its own queue offset, and more are
        missing before it than records fit in between; if it is in another file, which may be one of another log, one
        flipped bit must explain it.
        """
        if witness.unit_at(self.next) == one.at[0]:
            return True
        room = (one.at[0] - self.last_at) // (MIN_SIZE + 1)
        one_bit = one.first > 0 and (one.first ^ self.next).bit_count() == 1
        impossible = one.first - self.next > room and (witness.in_one_file(one.at[0], self.last_at) or one_bit)
        return after is None and impossible and not witness.confirms(one)

    def _is_repeated(self, one: QueueRun, after: QueueRun, witness: Witness) -> bool:
        """Return whether the next record has the queue offset of this one, and is the wrong one of both.

        A unit confirms this one; or the next is alone, too, and damage explains the messages missing before this one.
        """
        if one.first != after.first:
            return False
        explained = after.stop - after.first == 1 and witness.bad_between(self.last_at, one.at[0])
        return explained or witness.confirms(one)

    def _is_of_another(self, one: QueueRun, after: QueueRun, witness: Witness) -> bool:
        """Return whether the unit of the next queue offset points to another record, between those around this one."""
        there = witness.unit_at(self.next)
        return there is not None and there != one.at[0] and self.last_at < there < after.at[0]

    def _is_before(self, one: QueueRun, after: QueueRun, witness: Witness) -> bool:
        """Return whether a record out of order has the queue offset before the next stretch.

        Records before it are missing, otherwise it would have the next queue offset. Its unit says so; or its own queue
        offset is impossible, and there is damage before it and none after it.
        """
        if one.first in range(self.next, after.first) or after.first - 1 <= self.next:
            return False
        there = witness.unit_at(after.first - 1)
        if there is not None:
            return there == one.at[0]
        before = witness.bad_between(self.last_at, one.at[0]) and not witness.bad_between(one.at[0], after.at[0])
        return before and not 0 <= one.first <= self.next and self._is_denied(one, after, witness)

    @staticmethod
    def _is_taken(one: QueueRun, after: QueueRun, witness: Witness) -> bool:
        """Return whether the unit of a record's queue offset points to a later record that has it, too."""
        i = one.first - after.first
        return 0 <= i < len(after.at) and witness.unit_at(one.first) == after.at[i]

    @staticmethod
    def _is_denied(one: QueueRun, after: QueueRun, witness: Witness) -> bool:
        """Return whether a record cannot have its queue offset: it is negative, or too high for those after it.

        Those are of several records in the same file, because the next one may be of another log. No unit confirms it.
        """
        if one.first < 0:
            return True
        falls = after.first <= one.first and len(after.at) > 1
        return falls and witness.in_one_file(one.at[0], after.at[1]) and not witness.confirms(one)

    def extend(self, new: QueuePart) -> None:
        """Append the part of the next split."""
        for stretch in new.stretches:
            self.add_stretch(stretch)
        self.messages += new.messages
        for interval in new.accounted:
            self.add_accounted(*interval)
        for missing in new.missing:
            self.add_missing(missing)
        for shifted in new.shifted:
            self.add_shifted(shifted)
        self.wrong_sizes = _longer(self.wrong_sizes, new.wrong_sizes)

    def follow(self, new: QueuePart) -> None:
        """Append the queue's part in the next log; both have been judged."""
        self._stretch(QueueRun(new.first, new.next, array("q", [new.first_at]), new.last_at))
        self.last_at = new.last_at
        self.gaps = _longer(self.gaps, new.gaps)
        self.outliers = _longer(self.outliers, new.outliers)
        self.restarts = _longer(self.restarts, new.restarts)
        self.repeats = _longer(self.repeats, new.repeats)
        self.repeat_count += new.repeat_count
        self.extend(new)

    def _outlier(self, got: int, at: int, expected: int | None) -> None:
        """Note a record with queue offset `got`, though its neighbours leave only the next one, `expected`, or none."""
        if len(self.outliers) < KEPT:
            self.outliers = _longer(self.outliers, [Outlier(expected, got, at)])
        self.next += expected is not None

    def _gap(self, stop: int, at: int) -> None:
        """Note that the queue offsets from the next one up to `stop` are missing before the record at `at`."""
        if len(self.gaps) < KEPT:
            self.gaps = _longer(self.gaps, [QueueGap(self.next, stop, self.last_at, at)])
        self.next = stop

    def _stretch(self, new: QueueRun, *, restarts: bool = True) -> None:
        first, stop = new.first, new.stop
        if first > self.next:
            self._gap(first, new.at[0])
        elif first == 0 and self.next > 0 and restarts:
            if len(self.restarts) < KEPT:
                self.restarts = _longer(self.restarts, [new.at[0]])
            self.next = stop
        elif first < self.next:
            count = min(stop, self.next) - first
            self.repeat_count += count
            room = max(0, KEPT - len(self.repeats))
            repeats = [(at, first + i) for i, at in enumerate(new.at[: min(count, room)])]
            self.repeats = _longer(self.repeats, repeats)
        self.next = max(self.next, stop)

    def add_accounted(self, start: int, stop: int) -> None:
        """Append the units [start, stop), joined to the last ones if they touch."""
        if self.accounted and self.accounted[-1][1] == start:
            self.accounted[-1] = (self.accounted[-1][0], stop)
        else:
            self.accounted.append((start, stop))

    def add_missing(self, new: Missing) -> None:
        """Append messages without unit, joined to the last ones if they continue them."""
        last = self.missing[-1] if self.missing else None
        if last is not None and last.stop == new.start and last.last_at < new.first_at:
            last.stop, last.last_at = new.stop, new.last_at
        else:
            self.missing = _longer(self.missing, [new])

    def add_shifted(self, new: Shifted) -> None:
        """Append shifted units, joined to the last ones if they continue them with the same shift."""
        last = self.shifted[-1] if self.shifted else None
        if last is not None and last.stop == new.start and last.by == new.by:
            last.stop = new.stop
        else:
            self.shifted = _longer(self.shifted, [new])


@dataclass(frozen=True, slots=True)
class UnitRows:
    """Units that consume queues should have, grouped by queue; a row is a `consumequeue.UNIT`.

    `stretches`: (queue, first queue offset, start, stop): units [start, stop) have consecutive queue offsets.
    """

    units: UnitArray
    stretches: list[Rows]

    @staticmethod
    def of(laid: Laid, stretches: list[Rows]) -> UnitRows:
        """Make them from rows that were laid out with units."""
        if laid.units is None:
            raise ValueError(Text("rows without units"))
        return UnitRows(laid.units, stretches)


_TIME = DispatchedRows._fields.index("time")  # the columns before it make units


class QueueComparison:
    """Collects dispatched messages until a window is full, then compares them with the consume queues.

    `stored` None: do not compare. `keep`: collect the units that all messages should have in `kept`. `trusts`: every
    message has its unit.
    """

    def __init__(self, stored: StoredUnits | None, *, keep: bool, levels: DelayLevels, trusts: bool = False) -> None:
        self.stored = stored
        self.keep = keep
        self.trusts = trusts
        self.levels = levels
        self.kept: list[UnitRows] = []
        self.parts: dict[QueueName, QueuePart] = {}
        self.findings: list[Finding] = []
        self._names: list[QueueName] = []
        self._rows: list[tuple[I64, ...]] = []
        self._count = 0

    def add(self, names: list[QueueName], rows: DispatchedRows) -> None:
        """Add the rows of one chunk; `rows.number` indexes `names`, which only grows from call to call."""
        self._names = names
        self._rows.append(rows[:_TIME])  # a kept column costs page faults
        self._count += len(rows.number)
        if self._count >= WINDOW:
            self.flush()

    def flush(self) -> None:
        """Group the window by queue, and compare it."""
        if not self._count:
            return
        # size and tags code are needed for units only
        used = 5 if self.stored is not None or self.keep else 3
        number, *columns = (np.concatenate([row[i] for row in self._rows]) for i in range(used))
        self._rows.clear()
        self._count = 0
        laid = lay_out(number, len(self._names), *columns)
        stretches = laid.stretches(self._names)
        if self.keep:
            self.kept.append(UnitRows.of(laid, stretches))
        for name, first, a, b in stretches:
            at = array("q", laid.offset[a : min(b, a + EDGE)].tobytes())
            part = self.parts.get(name)
            if part is None:
                part = self.parts[name] = QueuePart(first, -1, at[0], at[0])
            part.messages += b - a
            part.add_stretch(QueueRun(first, first + b - a, at, int(laid.offset[b - 1])))
            if self.trusts:
                part.add_accounted(first, first + b - a)
        if self.stored is not None and laid.units is not None:
            for name, a, b in zip(self._names, laid.starts, laid.starts[1:], strict=False):
                if a < b:
                    comparison = _UnitComparison(self.stored, name, self.parts[name], self.levels, self.findings)
                    comparison.compare(laid.index[a:b], laid.offset[a:b], laid.units[a:b])


@dataclass(frozen=True, slots=True)
class _UnitComparison:
    """Compares messages of one queue with its units."""

    stored: StoredUnits
    name: QueueName
    part: QueuePart
    levels: DelayLevels
    findings: list[Finding]

    def compare(self, index: I64, offset: I64, units: UnitArray) -> None:
        """Compare the units that messages should have, at `index`, with those that the queue has."""
        name, part = self.name, self.part
        low, high = int(index.min()), int(index.max()) + 1
        if low < 0 or high - low > 16 * len(index) + 4096:
            # a damaged queue offset is far away: compare those that are near each other; the others have no unit
            middle = float(np.median(index.astype(np.float64)))  # floats: differences may be beyond 64 bits
            near = np.abs(index.astype(np.float64) - middle) <= 8 * len(index) + 2048
            near &= index >= 0
            far = ~near
            self._missing(index[far], offset[far])
            if near.any() and far.any():
                self.compare(index[near], offset[near], units[near])
            return
        stored = self.stored.read(*name, low, high - low)
        if (
            len(stored) == len(index)
            and bool((index[1:] - index[:-1] == 1).all())
            and stored.tobytes() == units.tobytes()
        ):
            part.add_accounted(low, high)
            return
        at = index - low
        inside = at < len(stored)
        if len(stored):
            found = stored[np.where(inside, at, 0)]
            size, code, tags = found["size"], found["tags_code"].astype(np.int64), units["tags_code"].astype(np.int64)
            points = inside & (found["commitlog_offset"] == offset)
            points &= consumequeue.is_message_unit(found["commitlog_offset"], size)
            # an extension address replaces the tags code; `check_queue_extensions` checks it
            same_tag = (code == tags) | (consumequeue.is_ext_address(code))
            if name[0] == SCHEDULE_TOPIC:
                # a broker delivers by the time in the unit, so a time from an earlier messageDelayLevel is correct
                same_tag |= due_by_another_table(code, tags, self.levels.longest(name[1] + 1))
            fits = points & (size == units["size"]) & same_tag
            if fits.all() and high - low == len(index):
                part.add_accounted(low, high)
                return
            for i in np.flatnonzero(points & ~fits).tolist():
                self._wrong(int(index[i]), int(offset[i]), found[i], units[i])
        else:
            points = np.zeros(len(index), dtype=np.bool_)
        self._elsewhere(index, offset, points)

    def _wrong(self, index: int, offset: int, unit: np.void, expected: np.void) -> None:
        """Report a unit that points to its message but has another size or tags code."""
        code, field = (
            (codes.CQ_WRONG_SIZE, "size") if unit["size"] != expected["size"] else (codes.CQ_WRONG_TAG, "tags_code")
        )
        facts: dict[str, Fact] = {"queue_offset": index, "commitlog_offset": offset}
        facts |= {field: int(unit[field]), "expected": int(expected[field])}
        if field == "size":
            new = WrongSize(index, offset, int(unit["size"]), int(expected["size"]))
            self.part.wrong_sizes = _longer(self.part.wrong_sizes, [new])
        (topic, queue_id), at = self.name, index * UNIT_SIZE
        file = self.stored.file_of(topic, queue_id, at)
        self.findings.append(Finding(code, f"{topic}/{queue_id}", file, at, UNIT_SIZE, facts))

    def _elsewhere(self, index: I64, offset: I64, points: Bool) -> None:
        """Note messages whose unit is not at their queue offset: it is shifted or missing."""
        part = self.part
        rest = ~points
        accounted = np.unique(index[points])
        if rest.any():
            low = max(0, int(index.min()) - SHIFT)
            near = self.stored.read(*self.name, low, int(index.max()) - low + 1 + SHIFT)
            real = consumequeue.is_message_unit(near["commitlog_offset"], near["size"])
            where = np.where(real, near["commitlog_offset"], -1).astype(np.int64)
            order = np.argsort(where, kind="stable")
            found = np.searchsorted(where[order], offset[rest])
            hit = found < len(where)
            hit &= where[order][np.where(hit, found, 0)] == offset[rest] if len(where) else False
            rows = np.flatnonzero(rest)
            shifted, there = rows[hit], order[found[hit]] + low
            if len(shifted):
                accounted = np.union1d(accounted, there)
                by = there - index[shifted]
                edges = np.flatnonzero((np.diff(by) != 0) | (np.diff(there) != 1)) + 1
                for a, b in zip([0, *edges.tolist()], [*edges.tolist(), len(by)], strict=True):
                    part.add_shifted(Shifted(int(there[a]), int(there[b - 1]) + 1, int(by[a])))
            lost = rows[~hit]
            self._missing(index[lost], offset[lost])
        for a, b in consecutive(accounted):
            part.add_accounted(int(accounted[a]), int(accounted[b - 1]) + 1)

    def _missing(self, index: I64, offset: I64) -> None:
        for a, b in consecutive(index):
            self.part.add_missing(Missing(int(index[a]), int(index[b - 1]) + 1, int(offset[a]), int(offset[b - 1])))


def place_of(message: Message) -> tuple[QueueName, int, int]:
    """Return the queue of a record, and the half-open interval of its queue offsets: several for an inner batch."""
    found = parse_properties(message.properties) if message.sys_flag & INNER_BATCH else {}
    base, count = batch_extent(found, message.queue_offset)
    return (message.topic_text, message.queue_id), base, base + count
