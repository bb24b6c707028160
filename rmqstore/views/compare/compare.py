"""Compare two replicas: each record of one with the record at the same offset of the other.

A record differs for one of four reasons: the other side is damaged there, has other content there, has the message at
another offset, or does not have the message. Memory: 72 bytes per differing record.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.checks.beside.dledger import committed_index
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.store import Store
from rmqstore.scan.dispatch import U64, QueueTable
from rmqstore.scan.kernels import I64, Bool, consecutive
from rmqstore.scan.tiling import Kind
from rmqstore.views.compare.comparison import BothDamaged, ComparedRecord, Comparison, Divergence, Messages, Side, State
from rmqstore.views.compare.rows import LogRows, RecordRows

LISTED = 100
DLEDGER_NUMBERS = ("first_index", "last_index", "term", "committed_index")
_MIX = [np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]
_STATES: dict[Kind, State] = {
    Kind.DIRTY: "damaged",
    Kind.HOLE: "missing-file",
    Kind.ZERO: "zeros",
    Kind.BLANK: "blank",
}


def compare(store: Store, other: Store, *, jobs: int | None = None, max_rate: int = 0) -> Comparison:
    """Compare the logs of two stores, from the first offset that both have files for.

    Errors: NotAStore without a log.
    """
    table = QueueTable()
    left = LogRows(store, table, jobs=jobs, max_rate=max_rate)
    right = LogRows(other, table, jobs=jobs, max_rate=max_rate)
    start = max(left.min_offset, right.min_offset)
    a, b = _Cursor(left.rows(start)), _Cursor(right.rows(start))
    found = Unequal(start)
    while a.more() and b.more():
        until = min(int(a.rows.start[-1]), int(b.rows.start[-1]))
        found.add(a.take(until), b.take(until))
    for cursor in (a, b):
        while cursor.more():
            rows = cursor.take(int(cursor.rows.start[-1]))
            found.add(*((rows, _EMPTY) if cursor is a else (_EMPTY, rows)))
    return comparison(left, right, found, table)


class Unequal:
    """Collects the records that differ at the same offset, from rows of both sides in address order.

    `equal` counts the equal records; the first `leading` of them, up to `stop` (bytes), precede the first difference.
    `first`: offset of the first difference. `last_index`: DLedger index of the last leading record, or -1.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.stop = start
        self.equal = 0
        self.leading = 0
        self.first: int | None = None
        self.last_index = -1
        self._a: list[RecordRows] = []
        self._b: list[RecordRows] = []

    def add(self, a: RecordRows, b: RecordRows) -> None:
        """Add the next rows: all rows of both sides up to some offset."""
        same_a, same_b = _equal_at(a, b), _equal_at(b, a)
        self.equal += int(np.count_nonzero(same_a))
        unequal = [int(rows.start[int(np.argmin(same))]) for rows, same in ((a, same_a), (b, same_b)) if not same.all()]
        if self.first is None:
            head = a.slice(0, int(np.searchsorted(a.start, min(unequal)))) if unequal else a
            if len(head):
                self.leading += len(head)
                self.stop = int(head.start[-1] + head.size[-1])
                self.last_index = int(head.index[-1])
            self.first = min(unequal) if unequal else None
        if unequal:
            self.keep(a.where(~same_a), b.where(~same_b))

    def keep(self, a: RecordRows, b: RecordRows) -> None:
        """Add unequal rows of both sides."""
        self._a.append(a)
        self._b.append(b)

    def rows(self) -> tuple[RecordRows, RecordRows]:
        """Return the unequal rows of both sides."""
        return _joined(self._a), _joined(self._b)


def _equal_at(a: RecordRows, b: RecordRows) -> Bool:
    """Return the mask of the rows of `a` that `b` has at the same offset with the same bytes.

    Shape: (len(a),)
    """
    if not len(b):
        return np.zeros(len(a), dtype=np.bool_)
    at = np.minimum(np.searchsorted(b.start, a.start), len(b) - 1)
    same: Bool = (b.start[at] == a.start) & (b.size[at] == a.size) & (b.whole[at] == a.whole) & (b.index[at] == a.index)
    return same


def comparison(left: LogRows, right: LogRows, found: Unequal, table: QueueTable) -> Comparison:
    """Classify the unequal records by the reason for the difference."""
    a, b = found.rows()
    changed_a, changed_b = _changed(a, b), _changed(b, a)
    out = Comparison(side_of(left), side_of(right), found.start, found.stop, found.leading, found.equal)
    out.equal_index = found.last_index
    out.changed = _messages(a.where(changed_a), table)
    lone_a, lone_b = a.where(~changed_a), b.where(~changed_b)
    keys_a, keys_b = _keys(lone_a), _keys(lone_b)
    moved_a, moved_b = np.isin(keys_a, keys_b), np.isin(keys_b, keys_a)
    out.moved = int(np.count_nonzero(moved_a))
    damage_a, damage_b = left.damage(), right.damage()
    lone_a, lone_b = lone_a.where(~moved_a), lone_b.where(~moved_b)
    hit_a, hit_b = _overlaps(lone_a, damage_b), _overlaps(lone_b, damage_a)
    out.damaged_in_other, out.only_store = (_messages(lone_a.where(which), table) for which in (hit_a, ~hit_a))
    out.damaged_in_store, out.only_other = (_messages(lone_b.where(which), table) for which in (hit_b, ~hit_b))
    out.damaged_in_both = list(_both_damaged(left, right, damage_a, damage_b, found.start))
    offsets = [both.offset for both in out.damaged_in_both if not both.same_bytes]
    offsets += [] if found.first is None else [found.first]
    if offsets:
        out.divergence = _divergence(left, right, min(offsets), (a, b), table)
    return out


def _changed(a: RecordRows, b: RecordRows) -> Bool:
    """Return the mask of the rows of `a` that have the offset, queue and queue offset of a row of `b`.

    A commitlog record never matches a DLedger entry.
    """
    if not len(b):
        return np.zeros(len(a), dtype=np.bool_)
    at = np.minimum(np.searchsorted(b.start, a.start), len(b) - 1)
    same: Bool = (b.start[at] == a.start) & ((b.index[at] < 0) == (a.index < 0))
    same &= (b.queue[at] == a.queue) & (b.queue_offset[at] == a.queue_offset)
    return same


def _overlaps(rows: RecordRows, spans: list[tuple[int, int]]) -> Bool:
    """Return the mask of the rows with bytes in one of the spans, which are sorted and do not overlap."""
    if not spans:
        return np.zeros(len(rows), dtype=np.bool_)
    starts, stops = np.array(spans, dtype=np.int64).T
    last = np.searchsorted(starts, rows.start + rows.size) - 1  # the last span that starts before the row ends
    hit: Bool = (last >= 0) & (stops[np.maximum(last, 0)] > rows.start)
    return hit


def _both_damaged(
    left: LogRows, right: LogRows, a: list[tuple[int, int]], b: list[tuple[int, int]], since: int
) -> Iterator[BothDamaged]:
    i = j = 0
    while i < len(a) and j < len(b):
        start, stop = max(a[i][0], b[j][0], since), min(a[i][1], b[j][1])
        if start < stop:
            step = 1 << 20
            pieces = ((at, min(step, stop - at)) for at in range(start, stop, step))
            yield BothDamaged(start, stop, all(left.read(at, n) == right.read(at, n) for at, n in pieces))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1


def _divergence(
    left: LogRows, right: LogRows, offset: int, unequal: tuple[RecordRows, RecordRows], table: QueueTable
) -> Divergence:
    places: list[ComparedRecord | None] = []
    states: list[State] = []
    for log, rows in ((left, unequal[0]), (right, unequal[1])):
        i = int(np.searchsorted(rows.start, offset))
        here = i < len(rows) and int(rows.start[i]) == offset
        places.append(place_of(rows, i, table) if here else None)
        states.append("message" if here else _state(log, offset))
    name = (right if states[0] == "ended" else left).log_of(offset)
    return Divergence(name, offset, places[0], places[1], states[0], states[1])


def _state(log: LogRows, offset: int) -> State:
    """Return what a side has at an offset where no record starts."""
    if offset >= log.end:
        return "ended"
    for result in log.results:
        run = result.tiling.find(offset)
        if run is not None:
            return _STATES.get(run.kind, "other-record")
    return "missing-file"


def side_of(log: LogRows) -> Side:
    """Return the summary of a store."""
    last = log.results[-1]
    entries = None
    if last.body_offset and log.store.dledger is not None:
        tally = last.entries
        committed = committed_index(log.store.dledger)
        entries = {"first_index": tally.first_index, "last_index": tally.last_index, "term": tally.last_term}
        entries["committed_index"] = -1 if committed is None else committed
    return Side(
        str(log.store.path),
        log.store.kind.value,
        log.min_offset,
        log.wrote,
        last.next_append,
        _divided_offset(last),
        log.messages,
        log.damaged,
        entries,
        any(result.unreadable for result in log.results),
    )


def _divided_offset(last: LogResult) -> int:
    """Return the start of the first DLedger file; for a commitlog, the end of the file that is being written."""
    if last.body_offset:
        return last.queue.start
    file = last.queue.find(last.next_append)
    return last.queue.stop if file is None else file.stop


def place_of(rows: RecordRows, i: int, table: QueueTable) -> ComparedRecord:
    """Return the place of row i."""
    queue = int(rows.queue[i])
    return ComparedRecord(
        int(rows.start[i]),
        int(rows.size[i]),
        table.topic(queue),
        table.queue_ids[queue],
        int(rows.queue_offset[i]),
        int(rows.time[i]),
        int(rows.index[i]),
        int(rows.term[i]),
    )


class _Cursor:
    """The rows of one side, consumed in order."""

    def __init__(self, source: Iterator[RecordRows]) -> None:
        self._source = source
        self.rows = _EMPTY

    def more(self) -> bool:
        while not len(self.rows):
            rows = next(self._source, None)
            if rows is None:
                return False
            self.rows = rows
        return True

    def take(self, until: int) -> RecordRows:
        """Remove and return the rows that start at or before an offset."""
        count = int(np.searchsorted(self.rows.start, until, side="right"))
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count, len(self.rows))
        return taken


_NOTHING: I64 = np.empty(0, dtype=np.int64)
_EMPTY = RecordRows(*(_NOTHING for _ in RecordRows.__slots__))


def _joined(parts: list[RecordRows]) -> RecordRows:
    return RecordRows(
        *(np.concatenate([_NOTHING, *(getattr(p, name) for p in parts)]) for name in RecordRows.__slots__)
    )


def mix(queue_offset: I64, content: I64) -> U64:
    """Return a hash of each message that does not depend on its log offset and queue.

    Shape: (n,)
    """
    h = queue_offset.astype(np.uint64) * _MIX[1]
    h = (h ^ (h >> np.uint64(29))) * _MIX[2] + content.astype(np.uint64)
    mixed: U64 = (h ^ (h >> np.uint64(32))) * _MIX[0]
    return mixed


def _keys(rows: RecordRows) -> U64:
    """Return a hash of each message and its queue that does not depend on its log offset."""
    keys: U64 = mix(rows.queue_offset, rows.content) ^ (rows.queue.astype(np.uint64) * _MIX[0])
    return keys


def _messages(rows: RecordRows, table: QueueTable) -> Messages:
    out = Messages(len(rows))
    for queue in np.unique(rows.queue).tolist():
        offsets = np.unique(rows.queue_offset[rows.queue == queue])
        ranges = [(int(offsets[a]), int(offsets[b - 1])) for a, b in consecutive(offsets)]
        out.queues[table.label(queue)] = (int(np.count_nonzero(rows.queue == queue)), ranges)
    out.listed = [place_of(rows, i, table) for i in range(min(len(rows), LISTED))]
    return out
