"""Compare two replicas: each record of one with the record at the same offset of the other.

A record differs for one of four reasons: the other side is damaged there, has other content there, has the message at
another offset, or does not have the message. Memory: 72 bytes per differing record.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rmqstore.brokers.replicas import SLAVE, replica_role, seed_command
from rmqstore.checks.beside.dledger import committed_index
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.errors import NotAStore
from rmqstore.files.store import Store, StoreKind
from rmqstore.formats.message import CRC32_PROPERTY, CRC32_RESERVED_LEN, HEAD, HEADS_BY_FLAG, crc32
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool, consecutive, u64
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Mapper
from rmqstore.texts import Text
from rmqstore.views.dump.old_records import read_logs

SCHEMA = "rmqstore.compare/1"
_DAMAGE = ("damaged", "missing-file", "zeros")


@dataclass(frozen=True, slots=True)
class ComparedRecord:
    """One record of one side. `offset`: of the record or DLedger entry. Units: bytes, ms."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    index: int
    term: int

    def to_json(self) -> dict[str, int | str | None]:
        return asdict(self) | ({"index": None, "term": None} if self.index < 0 else {})


@dataclass(frozen=True, slots=True)
class Side:
    """One store in numbers: global offsets, number of messages, number of damaged ranges, DLedger indexes or None.

    `divided_offset`: the offset where DLedger starts, or in a plain store, where it would start after a conversion.
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
    replica_role: str = SLAVE

    @property
    def seed_command(self) -> str:
        """The command that makes a replica of this store."""
        return seed_command(self.path, self.replica_role)


State = Literal["message", "damaged", "missing-file", "zeros", "blank", "other-record", "ended"]


@dataclass(slots=True)
class Divergence:
    """The lowest offset where the two stores differ, and the record that starts there on each side.

    `store_state` and `other_state`: what each side has at the offset.
    """

    log: str
    offset: int
    store: ComparedRecord | None
    other: ComparedRecord | None
    store_state: State = "message"
    other_state: State = "message"

    def to_json(self) -> dict[str, Any]:
        sides = {"store": self.store, "other": self.other}
        return asdict(self) | {name: None if one is None else one.to_json() for name, one in sides.items()}


@dataclass(slots=True)
class Messages:
    """Some messages: number, bytes, the first ones, and per queue, number and ranges of queue offsets (inclusive)."""

    messages: int = 0
    bytes: int = 0
    queues: dict[str, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    listed: list[ComparedRecord] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "queues": {
                name: {"first": ranges[0][0], "messages": n, "ranges": [list(r) for r in ranges]}
                for name, (n, ranges) in sorted(self.queues.items())
            },
            "listed": [place.to_json() for place in self.listed],
        }


@dataclass(frozen=True, slots=True)
class BothDamaged:
    """Bytes [offset, until) that are damaged on both sides, and whether the bytes are the same."""

    offset: int
    until: int
    same_bytes: bool


@dataclass(slots=True)
class Comparison:
    """The result of a comparison.

    `equal_messages` are equal at the same offset on both sides; the first `leading_messages` of them, up to
    `common_stop` (bytes), precede the first difference. `changed`: same offset, queue and queue offset, other content.
    `damaged_in_*`: missing on this side because the bytes at their offset are damaged. `only_*`: on one side only, for
    another reason. `moved`: on both sides, at different offsets. `equal_index`: the last DLedger index before the first
    difference, or -1.
    """

    store: Side
    other: Side
    common_start: int
    common_stop: int
    leading_messages: int
    equal_messages: int
    divergence: Divergence | None = None
    changed: Messages = field(default_factory=Messages)
    damaged_in_store: Messages = field(default_factory=Messages)
    damaged_in_other: Messages = field(default_factory=Messages)
    only_store: Messages = field(default_factory=Messages)
    only_other: Messages = field(default_factory=Messages)
    moved: int = 0
    damaged_in_both: list[BothDamaged] = field(default_factory=list)
    equal_index: int = -1

    @property
    def equal(self) -> bool:
        """Whether no record differs, from the first offset for which both stores have files."""
        return self.divergence is None

    @property
    def earlier(self) -> tuple[int, int]:
        """Messages of STORE and of OTHER before the begin of the other side's log, where nothing is compared."""
        if not self.equal:
            return 0, 0
        counts = [
            side.messages - self.equal_messages if side.min_offset < self.common_start else 0
            for side in (self.store, self.other)
        ]
        return counts[0], counts[1]

    @property
    def relation(self) -> str:
        """`equal`, `store-is-prefix`, `other-is-prefix`, `moved` (same messages, other offsets), or `diverged`."""
        first = self.divergence
        if first is None:
            return "equal"
        if first.store_state == "ended":
            return "store-is-prefix"
        if first.other_state == "ended":
            return "other-is-prefix"
        bytes_differ = any(not both.same_bytes for both in self.damaged_in_both)
        return "diverged" if bytes_differ or any(part.messages for part in self._parts) else "moved"

    @property
    def heal_commands(self) -> list[str]:
        """Commands that replace what is damaged or missing on one side from the other; none without equal messages."""
        if not self.equal_messages:
            return []  # not replicas of each other: recover would refuse
        sides = (
            (self.store, self.other, self.damaged_in_store, "store_state"),
            (self.other, self.store, self.damaged_in_other, "other_state"),
        )
        out: list[str] = []
        for broken, good, damaged, name in sides:
            state = getattr(self.divergence, name, "")
            earlier = self.earlier[0 if good is self.store else 1]
            words = f"rmqstore recover {shlex.quote(broken.path)} --replica {shlex.quote(good.path)}"
            if damaged.messages or state in _DAMAGE:
                out.append(words)
            elif state == "ended" or earlier:
                out.append(f"{words} --extend")
        return out

    @property
    def seed_commands(self) -> list[str]:
        """Commands that make one side again from the other, if both have messages of their own; none otherwise."""
        first = self.divergence
        states = () if first is None else (first.store_state, first.other_state)
        forked = self.changed.messages or (self.only_store.messages and self.only_other.messages)
        if not self.equal_messages or not forked or "ended" in states:
            return []
        return [self.store.seed_command, self.other.seed_command]

    @property
    def _parts(self) -> tuple[Messages, ...]:
        return self.changed, self.damaged_in_store, self.damaged_in_other, self.only_store, self.only_other

    def to_json(self) -> dict[str, Any]:
        """Return the object of `compare --json`."""
        return {
            "schema": SCHEMA,
            "store": asdict(self.store),
            "other": asdict(self.other),
            "equal": self.equal,
            "relation": self.relation,
            "earlier": {"store": self.earlier[0], "other": self.earlier[1]},
            "common": {"start": self.common_start, "stop": self.common_stop, "messages": self.leading_messages},
            "equal_messages": self.equal_messages,
            "first_divergence": None if self.divergence is None else self.divergence.to_json(),
            "queues": {name: {"first_divergence": low} for name, low in sorted(self.queue_divergence.items())},
            "changed": self.changed.to_json(),
            "damaged_in_store": self.damaged_in_store.to_json(),
            "damaged_in_other": self.damaged_in_other.to_json(),
            "damaged_in_both": [asdict(both) for both in self.damaged_in_both],
            "only_in_store": self.only_store.to_json(),
            "only_in_other": self.only_other.to_json(),
            "moved": self.moved,
            "heal": self.heal_commands,
            "seed": self.seed_commands,
        }

    @property
    def queue_divergence(self) -> dict[str, int]:
        """The lowest queue offset of each queue whose message differs."""
        out: dict[str, int] = {}
        for part in self._parts:
            for queue, (_, ranges) in part.queues.items():
                out[queue] = min(ranges[0][0], out.get(queue, ranges[0][0]))
        return out


_CRC32_NAME = int.from_bytes(CRC32_PROPERTY[:8], "big")
_BEHIND_ADDRESS = HEAD.at("sys_flag")


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Some consecutive records.

    `start`, `size`: offset and length of the record or DLedger entry, bytes; `whole`: CRC of these bytes.
    `content`: CRC of what does not change if a record gets another offset: everything after PHYSICALOFFSET except
    PREPAREDTXOFFSET and the record CRC. `index` and `term` are -1 in a commitlog.
    Shape: (n,)
    """

    start: I64
    size: I64
    whole: I64
    queue: I64
    queue_offset: I64
    content: I64
    time: I64
    index: I64
    term: I64

    def __len__(self) -> int:
        return len(self.start)

    def slice(self, low: int, high: int) -> RecordRows:
        """Return the rows [low, high)."""
        return RecordRows(*(getattr(self, name)[low:high] for name in RecordRows.__slots__))

    def where(self, which: Bool) -> RecordRows:
        """Return the rows where a mask is true."""
        return RecordRows(*(getattr(self, name)[which] for name in RecordRows.__slots__))


class LogRows:
    """The rows of a store's logs, the legacy commitlog first. First of all, a pass over the logs finds their ends."""

    def __init__(
        self,
        store: Store,
        table: QueueTable,
        *,
        jobs: int | None = None,
        mapper: Mapper | None = None,
    ) -> None:
        if store.kind is StoreKind.PART and store.commitlog is None and store.dledger is None:
            raise NotAStore(
                Text("{path} has no log to compare", path=store.path),
                Text("give a store, commitlog/ or dledger-*/ directory"),
            )
        self.store = store
        self.table = table
        self.options = ScanOptions(drop_cache=store.lock_state().held)
        self.results = read_logs(store, self.options, jobs=jobs, mapper=mapper)
        if not self.results:
            raise NotAStore(Text("{path} has no file of a log", path=store.path))

    @property
    def min_offset(self) -> int:
        """The start of the first file of the first log."""
        return self.results[0].queue.start

    @property
    def wrote(self) -> int:
        """The end of the last sound record."""
        return max((r.wrote for r in self.results if r.messages), default=self.results[0].queue.start)

    @property
    def messages(self) -> int:
        return sum(r.messages for r in self.results)

    @property
    def damaged(self) -> int:
        """The number of damaged ranges and missing files before the end."""
        bad = (Kind.DIRTY, Kind.HOLE)
        return sum(1 for r in self.results for run in r.tiling if run.kind in bad and run.start < r.wrote)

    @property
    def end(self) -> int:
        """The end of the log's content: includes damage after the last sound record, but not stale records."""
        return max((_end(r) for r in self.results if r.messages), default=self.results[0].queue.start)

    def damage(self) -> list[tuple[int, int]]:
        """Return the damaged bytes and zeros before the end as sorted spans [start, stop), without missing files."""
        bad = (Kind.DIRTY, Kind.ZERO)
        return [
            (run.start, run.stop) for r in self.results for run in r.tiling if run.kind in bad and run.start < _end(r)
        ]

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the log that contains an offset; fewer at the end of a file."""
        for result in self.results:
            if result.queue.start <= offset < result.queue.stop:
                return result.queue.pread(length, offset)
        return b""

    def log_of(self, offset: int) -> str:
        """Return the log that contains an offset: `commitlog` or `dledger`."""
        last = self.results[-1]
        return "dledger" if last.body_offset and offset >= last.queue.start else "commitlog"

    def rows(self, since: int = 0) -> Iterator[RecordRows]:
        """Yield the rows of all sound records that start at `since` or later, in address order."""
        for result in self.results:
            for file in result.queue.files:
                if file.stop <= since or file.start >= result.wrote:
                    continue
                for run in scan_file(file, body_offset=result.body_offset, options=self.options):
                    if run.kind is Kind.RECORDS and run.columns is not None and run.start < result.wrote:
                        rows = rows_of(run.columns, self.table)
                        low = int(np.searchsorted(rows.start, since))
                        high = int(np.searchsorted(rows.start, result.wrote))
                        if high > low:
                            yield rows.slice(low, high)


def _end(result: LogResult) -> int:
    if result.stale_from is not None:
        return result.reaches
    content = (Kind.RECORDS, Kind.INTERNAL, Kind.DIRTY)
    return max([result.wrote, *(run.stop for run in result.tiling.tail() if run.kind in content)])


def rows_of(columns: Columns, table: QueueTable) -> RecordRows:
    """Return the rows of a chunk, with the table's queue numbers."""
    raw = columns.raw
    stops = columns.at + columns.size
    starts = columns.at - columns.body_offset
    entry = bool(columns.body_offset)
    none = np.full(len(columns), -1, dtype=np.int64)
    return RecordRows(
        columns.offset - columns.body_offset,
        columns.size + columns.body_offset,
        native.load().body_crcs(raw, starts, stops),
        table.of(columns),
        columns.queue_offset.copy(),
        _content(columns, raw, stops),
        columns.store_timestamp.copy(),
        columns.entry_index.copy() if entry else none,
        columns.entry_term.copy() if entry else none,
    )


def _content(columns: Columns, raw: bytearray, stops: I64) -> I64:
    """Return the CRC of what does not change if a record gets another offset (see `RecordRows`)."""
    out = native.load().body_crcs(raw, columns.at + _BEHIND_ADDRESS, stops)
    signed = u64(columns.buf)[stops - CRC32_RESERVED_LEN] == _CRC32_NAME
    moved = (columns.prepared_transaction_offset != 0) | signed
    for i in np.flatnonzero(moved).tolist():
        at, stop = int(columns.at[i]), int(stops[i])
        layout = HEADS_BY_FLAG[int(columns.sys_flag[i]) & 0x30]
        prepared = at + layout.at("prepared_transaction_offset")
        body = at + layout.at("body_length")
        end = stop - CRC32_RESERVED_LEN if signed[i] else stop
        crc = crc32(raw[at + _BEHIND_ADDRESS : prepared])
        out[i] = crc32(raw[body:end], crc) & 0x7FFFFFFF
    return out


LISTED = 100
DLEDGER_NUMBERS = ("first_index", "last_index", "term", "committed_index")
U64 = npt.NDArray[np.uint64]
_MIX = [np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]
_STATES: dict[Kind, State] = {
    Kind.DIRTY: "damaged",
    Kind.HOLE: "missing-file",
    Kind.ZERO: "zeros",
    Kind.BLANK: "blank",
}


def compare(store: Store, other: Store, *, jobs: int | None = None) -> Comparison:
    """Compare the logs of two stores, from the first offset that both have files for.

    Errors: NotAStore without a log.
    """
    table = QueueTable()
    left = LogRows(store, table, jobs=jobs)
    right = LogRows(other, table, jobs=jobs)
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


def messages_gone(store: Store, then: Store, left_out: frozenset[int] = frozenset()) -> Messages:
    """Return the messages of a store that it will not have any more, in whatever queue and wherever in the log.

    `then`: the same store later, read in this process. `left_out`: offsets of records that are no messages.
    Errors: none for a store without a log; it has no messages.
    """
    table = QueueTable()
    try:
        left = LogRows(store, table, jobs=1)
    except NotAStore:
        return Messages()
    try:
        right: LogRows | None = LogRows(then, table, jobs=1)
    except NotAStore:  # nothing is left of the log
        right = None
    a, b = _Cursor(left.rows()), _Cursor(iter(()) if right is None else right.rows())
    found = Unequal(0)
    while a.more() and b.more():
        until = min(int(a.rows.start[-1]), int(b.rows.start[-1]))
        found.add(a.take(until), b.take(until))
    while a.more():
        found.add(a.take(int(a.rows.start[-1])), _EMPTY)
    while b.more():
        found.add(_EMPTY, b.take(int(b.rows.start[-1])))
    before, after = found.rows()
    gone = before.where(~np.isin(_contents(before), _contents(after)))
    gone = gone.where(~np.isin(gone.start, np.array(sorted(left_out), dtype=np.int64)))
    return _messages(gone, table)


def _contents(rows: RecordRows) -> U64:
    """Return a hash of each message that a change of its queue or its queue offset does not alter."""
    return mix(rows.size, rows.content)


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
        replica_role(log.store),
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
    out = Messages(len(rows), int(rows.size.sum()))
    for queue in np.unique(rows.queue).tolist():
        offsets = np.unique(rows.queue_offset[rows.queue == queue])
        ranges = [(int(offsets[a]), int(offsets[b - 1])) for a, b in consecutive(offsets)]
        out.queues[table.label(queue)] = (int(np.count_nonzero(rows.queue == queue)), ranges)
    out.listed = [place_of(rows, i, table) for i in range(min(len(rows), LISTED))]
    return out
