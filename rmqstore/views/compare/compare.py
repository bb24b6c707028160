"""compare: two replicas record by record: where they part, and which messages are on one side only.

While the two are equal, only a chunk of each is in memory; behind the first difference 40 bytes per message are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.mapped_file_queue import read_at
from rmqstore.files.store import Store
from rmqstore.formats.dledger import parse_dledger_checkpoint
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.queues import U64, QueueTable
from rmqstore.views.compare.rows import LogRows, Rows

SCHEMA = "rmqstore.compare/1"
LISTED = 100
DLEDGER_NUMBERS = ("first_index", "last_index", "term", "committed_index")
_MIX = [np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]


@dataclass(frozen=True, slots=True)
class Place:
    """One record of one side. Units: bytes for `offset` (of the record or entry) and `size`, ms for the time."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    index: int
    term: int

    def to_json(self) -> dict[str, int | str | None]:
        entry = self.index >= 0
        return {
            "offset": self.offset,
            "size": self.size,
            "index": self.index if entry else None,
            "term": self.term if entry else None,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "store_timestamp": self.store_timestamp,
        }


@dataclass(frozen=True, slots=True)
class Side:
    """One store in numbers: global offsets, messages, damaged stretches; DLedger's indexes or None.

    `divided_offset`: where DLedger begins, in a plain store where it would begin.
    """

    path: str
    kind: str
    min_offset: int
    wrote: int
    next_append: int
    divided_offset: int
    messages: int
    damaged: int
    dledger: dict[str, int] | None = None
    unreadable: bool = False


@dataclass(slots=True)
class Divergence:
    """Where the two part: `log`, the offset, and the record that each side has there (None: it has ended)."""

    log: str
    offset: int
    store: Place | None
    other: Place | None


@dataclass(slots=True)
class OneSided:
    """Messages that only one side has: how many, per queue the lowest queue offset and how many, the first ones."""

    messages: int = 0
    queues: dict[str, tuple[int, int]] = field(default_factory=dict)
    listed: list[Place] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "queues": {name: {"first": low, "messages": n} for name, (low, n) in sorted(self.queues.items())},
            "listed": [place.to_json() for place in self.listed],
        }


@dataclass(slots=True)
class Comparison:
    """The answer. `equal_messages` are at the same place on both sides, `moved` on both sides at different places."""

    store: Side
    other: Side
    common_start: int
    common_stop: int
    equal_messages: int
    divergence: Divergence | None
    only_store: OneSided
    only_other: OneSided
    moved: int

    @property
    def equal(self) -> bool:
        """No record differs from where both have files on."""
        return self.divergence is None

    @property
    def relation(self) -> str:
        """`equal`, `store-is-prefix`, `other-is-prefix`, `moved` (same messages elsewhere), or `diverged`."""
        if self.divergence is None:
            return "equal"
        if self.divergence.store is None:
            return "store-is-prefix"
        if self.divergence.other is None:
            return "other-is-prefix"
        return "diverged" if self.only_store.messages or self.only_other.messages else "moved"

    def to_json(self) -> dict[str, Any]:
        """The object of `compare --json`."""
        first = self.divergence
        return {
            "schema": SCHEMA,
            "store": asdict(self.store),
            "other": asdict(self.other),
            "equal": self.equal,
            "relation": self.relation,
            "common": {"start": self.common_start, "stop": self.common_stop, "messages": self.equal_messages},
            "first_divergence": None
            if first is None
            else {
                "log": first.log,
                "offset": first.offset,
                "store": None if first.store is None else first.store.to_json(),
                "other": None if first.other is None else first.other.to_json(),
            },
            "queues": {name: {"first_divergence": low} for name, low in sorted(self.queue_divergence.items())},
            "only_in_store": self.only_store.to_json(),
            "only_in_other": self.only_other.to_json(),
            "moved": self.moved,
        }

    @property
    def queue_divergence(self) -> dict[str, int]:
        """Per queue the lowest queue offset that only one side has."""
        out: dict[str, int] = {}
        for side in (self.only_store, self.only_other):
            for queue, (low, _) in side.queues.items():
                out[queue] = min(low, out.get(queue, low))
        return out


def compare(store: Store, other: Store, *, jobs: int | None = None, max_rate: int = 0) -> Comparison:
    """Compare the logs of two stores, from the first offset that both have files for.

    Errors: NotAStore when there is no log.
    """
    table = QueueTable()
    left = LogRows(store, table, jobs=jobs, max_rate=max_rate)
    right = LogRows(other, table, jobs=jobs, max_rate=max_rate)
    start = max(left.min_offset, right.min_offset)
    a, b = _Cursor(left.rows(start)), _Cursor(right.rows(start))
    equal = 0
    stop = start
    while a.more() and b.more():
        n = min(len(a.rows), len(b.rows))
        same = _same(a.rows.slice(0, n), b.rows.slice(0, n))
        good = n if same.all() else int(np.argmin(same))
        if good:
            equal += good
            stop = int(a.rows.start[good - 1] + a.rows.size[good - 1])
            a.skip(good)
            b.skip(good)
        if good < n:
            break
    divergence = None
    only_store, only_other, moved = OneSided(), OneSided(), 0
    if a.more() or b.more():
        first_a = place_of(a.rows, 0, table) if a.more() else None
        first_b = place_of(b.rows, 0, table) if b.more() else None
        offset = min(p.offset for p in (first_a, first_b) if p is not None)
        divergence = Divergence((left if first_a else right).log_of(offset), offset, first_a, first_b)
        tail_a, tail_b = a.rest(), b.rest()
        keys_a, keys_b = _keys(tail_a), _keys(tail_b)
        lone_a = ~np.isin(keys_a, keys_b)
        moved = int(np.count_nonzero(~lone_a))
        only_store = _one_sided(tail_a, lone_a, table)
        only_other = _one_sided(tail_b, ~np.isin(keys_b, keys_a), table)
    return Comparison(side_of(left), side_of(right), start, stop, equal, divergence, only_store, only_other, moved)


def side_of(log: LogRows) -> Side:
    """A store in numbers."""
    last = log.results[-1]
    entries = None
    if last.lead and log.store.dledger is not None:
        tally = last.entries
        text = read_at(log.store.dledger.directory / "checkpoint", 1 << 16, 0)
        committed = parse_dledger_checkpoint(text).committed_index if text else None
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
    """Start of the first DLedger file; in a commitlog the end of the file that is written to."""
    if last.lead:
        return last.queue.start
    file = last.queue.find(last.next_append)
    return last.queue.stop if file is None else file.stop


def place_of(rows: Rows, i: int, table: QueueTable) -> Place:
    """Row i in words."""
    queue = int(rows.queue[i])
    return Place(
        int(rows.start[i]),
        int(rows.size[i]),
        table.topics[queue].decode("utf-8", "backslashreplace"),
        table.queue_ids[queue],
        int(rows.queue_offset[i]),
        int(rows.time[i]),
        int(rows.index[i]),
        int(rows.term[i]),
    )


class _Cursor:
    """Rows of one side, taken from the front."""

    def __init__(self, source: Iterator[Rows]) -> None:
        self._source = source
        self.rows = _EMPTY

    def more(self) -> bool:
        while not len(self.rows):
            rows = next(self._source, None)
            if rows is None:
                return False
            self.rows = rows
        return True

    def skip(self, count: int) -> None:
        self.rows = self.rows.slice(count, len(self.rows))

    def rest(self) -> Rows:
        """Everything that is left, as one."""
        parts = [self.rows, *self._source]
        self.rows = _EMPTY
        return Rows(*(np.concatenate([getattr(p, name) for p in parts]) for name in Rows.__slots__))


_NOTHING: I64 = np.empty(0, dtype=np.int64)
_EMPTY = Rows(*(_NOTHING for _ in Rows.__slots__))


def _same(a: Rows, b: Rows) -> Bool:
    same: Bool = (a.start == b.start) & (a.size == b.size) & (a.whole == b.whole) & (a.index == b.index)
    return same


def mix(queue_offset: I64, content: I64) -> U64:
    """One number per message of a queue that does not depend on where it lies.

    Shape: (n,)
    """
    h = queue_offset.astype(np.uint64) * _MIX[1]
    h = (h ^ (h >> np.uint64(29))) * _MIX[2] + content.astype(np.uint64)
    mixed: U64 = (h ^ (h >> np.uint64(32))) * _MIX[0]
    return mixed


def _keys(rows: Rows) -> U64:
    """The same with the queue in it."""
    keys: U64 = mix(rows.queue_offset, rows.content) ^ (rows.queue.astype(np.uint64) * _MIX[0])
    return keys


def _one_sided(rows: Rows, lone: Bool, table: QueueTable) -> OneSided:
    out = OneSided(int(np.count_nonzero(lone)))
    which = np.flatnonzero(lone)
    for queue in np.unique(rows.queue[which]).tolist():
        mine = which[rows.queue[which] == queue]
        label = f"{table.topics[queue].decode('utf-8', 'backslashreplace')}/{table.queue_ids[queue]}"
        out.queues[label] = (int(rows.queue_offset[mine].min()), len(mine))
    out.listed = [place_of(rows, i, table) for i in which[:LISTED].tolist()]
    return out
