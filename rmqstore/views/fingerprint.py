"""Fingerprints: small files with a hash for every range of a store's logs, to compare stores on two hosts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.brokers.replicas import ROLES
from rmqstore.errors import UsageError
from rmqstore.files.files import read_given
from rmqstore.files.store import Store
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64
from rmqstore.texts import Text
from rmqstore.views.compare import DLEDGER_NUMBERS, LogRows, RecordRows, Side, mix, side_of

SCHEMA = "rmqstore.fingerprint/1"
_MIN_STEP = 1 << 16
_MAX_RANGES = 4096
_MAX_FILE = 64 << 20
_TAIL = 1024  # number of last records that a fingerprint lists one by one


@dataclass(frozen=True, slots=True)
class Range:
    """The records that start in [start, start + step): their number, and a hash of their offsets and contents."""

    start: int
    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class QueueSum:
    """A queue: its lowest queue offset, number of messages, and a sum of hashes of queue offsets and contents."""

    first: int
    messages: int
    digest: int


@dataclass(slots=True)
class StoreFingerprint:
    """The fingerprint of a store: its summary, ranges of `step` bytes, queues by `TOPIC/ID`, and last records.

    `tail`: (start, size, CRC of all bytes) of records or DLedger entries.
    """

    side: Side
    step: int
    ranges: list[Range] = field(default_factory=list)
    queues: dict[str, QueueSum] = field(default_factory=dict)
    tail: list[tuple[int, int, int]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the contents of the fingerprint file."""
        return {
            "schema": SCHEMA,
            "side": asdict(self.side),
            "step": self.step,
            "ranges": [[r.start, r.count, r.digest] for r in self.ranges],
            "tail": [list(row) for row in self.tail],
            "queues": {name: [q.first, q.messages, str(q.digest)] for name, q in sorted(self.queues.items())},
        }


def fingerprint(
    store: Store, *, step: int | None = None, until: int | None = None, jobs: int | None = None
) -> StoreFingerprint:
    """Compute the fingerprint of a store.

    `step`: bytes per range (default: so that there are at most 4,096 ranges). `until`: ignore records from this offset
    on.
    Errors: NotAStore
    """
    table = QueueTable()
    log = LogRows(store, table, jobs=jobs)
    out = StoreFingerprint(side_of(log), step or _step(log.wrote - log.min_offset))
    ranges = _RangeHashes(out.step)
    sums: dict[int, QueueSum] = {}
    for rows in log.rows():
        if until is not None:
            rows = rows.slice(0, int(np.searchsorted(rows.start, until)))
        ranges.add(rows)
        _add_queues(sums, rows)
        recent = rows.slice(max(0, len(rows) - _TAIL), len(rows))
        numbers = (recent.start.tolist(), recent.size.tolist(), recent.whole.tolist())
        out.tail = (out.tail + list(zip(*numbers, strict=True)))[-_TAIL:]
    out.ranges = ranges.finish()
    for number, total in sums.items():
        out.queues[table.label(number)] = total
    return out


def _step(length: int) -> int:
    step = _MIN_STEP
    while length > step * _MAX_RANGES:
        step *= 2
    return step


class _RangeHashes:
    """Hashes rows, which are in address order, range by range."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._out: list[Range] = []
        self._number = -1
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, rows: RecordRows) -> None:
        if not len(rows):
            return
        number = rows.start // self.step
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(rows)]
        table: I64 = np.stack((rows.start, rows.size, rows.whole, rows.index, rows.term), axis=1)
        for low, high in pairwise(cuts):
            if int(number[low]) != self._number:
                self._close()
                self._number = int(number[low])
            self._hash.update(table[low:high].astype(">i8").tobytes())
            self._count += high - low

    def _close(self) -> None:
        if self._count:
            self._out.append(Range(self._number * self.step, self._count, self._hash.hexdigest()))
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def finish(self) -> list[Range]:
        self._close()
        return self._out


def _add_queues(sums: dict[int, QueueSum], rows: RecordRows) -> None:
    if not len(rows):
        return
    queues, inverse = np.unique(rows.queue, return_inverse=True)
    totals = np.zeros(len(queues), dtype=np.uint64)
    np.add.at(totals, inverse, mix(rows.queue_offset, rows.content))
    counts = np.bincount(inverse, minlength=len(queues))
    first = np.full(len(queues), np.iinfo(np.int64).max)
    np.minimum.at(first, inverse, rows.queue_offset)
    for i, number in enumerate(queues.tolist()):
        old = sums.get(number, QueueSum(int(first[i]), 0, 0))
        digest = (old.digest + int(totals[i])) & ((1 << 64) - 1)
        sums[number] = QueueSum(min(old.first, int(first[i])), old.messages + int(counts[i]), digest)


def read_fingerprint(path: Path) -> StoreFingerprint:
    """Parse a fingerprint file. The input is untrusted; every field is validated.

    Errors: NotReadable, UsageError.
    """
    raw = read_given(path, _MAX_FILE)
    try:
        return _from_json(json.loads(raw))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        advice = Text("create one with `rmqstore compare STORE --fingerprint-out FILE`")
        raise UsageError(Text("{path} is not a fingerprint file", path=path), advice) from error


def _from_json(document: Any) -> StoreFingerprint:
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise ValueError("schema")
    side = Side(**document["side"])
    numbers = [side.min_offset, side.wrote, side.next_append, side.divided_offset, side.messages, side.damaged]
    numbers.append(document["step"])
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers) or document["step"] < _MIN_STEP:
        raise ValueError("numbers")
    if not isinstance(side.path, str) or not isinstance(side.kind, str) or side.replica_role not in ROLES:
        raise ValueError("side")
    if side.dledger is not None and not all(type(side.dledger[k]) is int for k in DLEDGER_NUMBERS):
        raise ValueError("dledger")
    out = StoreFingerprint(side, document["step"])
    for start, count, digest in document["ranges"]:
        out.ranges.append(Range(int(start), int(count), str(digest)))
    for name, (first, messages, digest) in document["queues"].items():
        out.queues[str(name)] = QueueSum(int(first), int(messages), int(digest))
    out.tail = [(int(a), int(b), int(c)) for a, b, c in document["tail"]]
    if any(b.start <= a.start for a, b in zip(out.ranges, out.ranges[1:], strict=False)):
        raise ValueError(Text("ranges are not in order"))
    return out


@dataclass(slots=True)
class Against:
    """The result of comparing a store with a fingerprint.

    `equal_until`: all records that start before this offset are equal. `differs`: the first range that differs, or
    None. `relation`: as in `Comparison`, or `undecided`. `queues`: those whose contents differ.
    """

    store: Side
    other: Side
    equal_until: int
    differs: tuple[int, int] | None
    relation: str
    queues: list[str]

    @property
    def equal(self) -> bool:
        return self.relation == "equal"

    def to_json(self) -> dict[str, Any]:
        """Return the object of `compare --against --json`."""
        return {
            "schema": "rmqstore.compare/1",
            "store": asdict(self.store),
            "other": asdict(self.other),
            "equal": self.equal,
            "relation": self.relation,
            "equal_until": self.equal_until,
            "first_divergence": None
            if self.differs is None
            else {"offset": self.differs[0], "until": self.differs[1], "store": None, "other": None},
            "queues": self.queues,
        }


def compare_with(store: Store, other: StoreFingerprint, *, jobs: int | None = None) -> Against:
    """Compare a store with the fingerprint of another store.

    If this store is the shorter one and ends before the other's listed last records, its last range cannot be compared;
    the relation is then `undecided`.
    Errors: NotAStore
    """
    mine = fingerprint(store, step=other.step, until=other.side.wrote, jobs=jobs)
    side, step = mine.side, other.step
    start, stop = max(side.min_offset, other.side.min_offset), min(side.wrote, other.side.wrote)
    differing = sorted(n for n in mine.queues.keys() | other.queues.keys() if mine.queues.get(n) != other.queues.get(n))

    def answer(equal_until: int, differs: tuple[int, int] | None, relation: str) -> Against:
        return Against(side, other.side, equal_until, differs, relation, differing)

    a, b = ({r.start: r for r in which.ranges} for which in (mine, other))
    last = stop // step * step
    shorter = side.wrote < other.side.wrote
    for at in sorted(a.keys() | b.keys()):
        cut_at_front = at < start and side.min_offset != other.side.min_offset
        if cut_at_front or at > last or (at == last and shorter) or a.get(at) == b.get(at):
            continue
        return answer(max(at, start), (at, at + step), "diverged")
    if not shorter:
        relation = "equal" if side.wrote == other.side.wrote else "other-is-prefix"
        return answer(stop, None if relation == "equal" else (stop, side.wrote), relation)
    own, theirs = ([row for row in which.tail if row[0] >= last] for which in (mine, other))
    if not all(_tail_covers(which, last) for which in (mine, other)):
        return answer(max(last, start), (last, other.side.wrote), "undecided")
    for x, y in zip(own, theirs, strict=False):
        if x != y:
            return answer(min(x[0], y[0]), (min(x[0], y[0]), last + step), "diverged")
    if len(own) > len(theirs):
        return answer(own[len(theirs)][0], (own[len(theirs)][0], last + step), "diverged")
    return answer(stop, (stop, other.side.wrote), "store-is-prefix")


def _tail_covers(which: StoreFingerprint, offset: int) -> bool:
    """Return whether the listed last records go back to an offset, or to the first record."""
    count = sum(r.count for r in which.ranges)
    return len(which.tail) >= count or (bool(which.tail) and which.tail[0][0] <= offset)
