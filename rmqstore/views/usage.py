"""Count messages and bytes per topic, queue, tag, producer host, and day, hour, minute or second in one pass.

Dimensions can be combined (`topic,hour`); the labels of a combination are tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from rmqstore.files.store import Store
from rmqstore.formats.message import BORN_HOST_V6, HEAD, host_text
from rmqstore.formats.times import utc
from rmqstore.messages.fields import PropertySpans
from rmqstore.messages.repaired import repaired_records
from rmqstore.messages.unpacked import message_counts
from rmqstore.scan.columns import Columns, filler_mask
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, u64
from rmqstore.scan.records import scan_split
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SplitPart, Workers, joined
from rmqstore.views.dump.messages import Skipped, logs_of, own_log, splits_for
from rmqstore.views.dump.selection import Selection, Selector

SCHEMA = "rmqstore.du/1"
DIMENSIONS = ("topic", "queue", "tag", "host", "day")
TIMES = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}
"""Dimensions of time, with their length in ms."""
_LABELS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H:00Z", "minute": "%Y-%m-%dT%H:%MZ", "second": "%Y-%m-%dT%H:%M:%SZ"}
_BORN_HOST = HEAD.at("born_host")
Label = str | None | tuple[str | None, ...]
Table = dict[Label, list[int]]  # label → [messages, bytes]


@dataclass(slots=True)
class Usage:
    """Counts per dimension; `messages` (those of a batch one by one) and `bytes` (whole records) are the totals.

    `fillers`: records that repairs put in the place of lost messages. They are in the other counts only if asked for.
    """

    messages: int = 0
    bytes: int = 0
    tables: dict[str, Table] = field(default_factory=dict)
    fillers: int = 0

    def add(self, other: Usage) -> None:
        """Add the counts of another part."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.fillers += other.fillers
        for name, table in other.tables.items():
            own = self.tables.setdefault(name, {})
            for label, counts in table.items():
                _add(own, label, *counts)

    def rows(self, dimension: str) -> list[dict[str, Any]]:
        """Return rows {DIMENSION, "messages", "bytes"}, the largest first; those of a time in order of time.

        A combination of dimensions has a field for each.
        """
        names = dimension.split(",")
        rows = []
        for label, (messages, size) in self.tables.get(dimension, {}).items():
            labels = label if isinstance(label, tuple) else (label,)
            rows.append({**dict(zip(names, labels, strict=True)), "messages": messages, "bytes": size})
        times = [name for name in names if name in TIMES]
        return sorted(rows, key=lambda r: (*(str(r[t]) for t in times), -r["bytes"], *(str(r[n]) for n in names)))

    def to_json(self, store: str, top: int | None = None) -> dict[str, Any]:
        """Return the object of `du --json`."""
        return {
            "schema": SCHEMA,
            "store": store,
            "messages": self.messages,
            "bytes": self.bytes,
            "fillers": self.fillers,
            "by": {name: self.rows(name)[: None if TIMES.keys() & {*name.split(",")} else top] for name in self.tables},
            "distinct": {name: len(table) for name, table in self.tables.items()},
        }


@dataclass(slots=True)
class _UsagePart(SplitPart):
    usage: Usage = field(default_factory=Usage)
    runs: list[Run] = field(default_factory=list)


_Codes = tuple[I64, Sequence[str | None]]


class _Counter:
    def __init__(self, dimensions: tuple[str, ...]) -> None:
        self.dimensions = dimensions
        self.queues = QueueTable()

    def count(self, columns: Columns) -> Usage:
        size, counts = columns.size, message_counts(columns)
        out = Usage(int(counts.sum()), int(size.sum()))
        known: dict[str, _Codes] = {}
        for dimension in self.dimensions:
            names = dimension.split(",")
            for name in names:
                if name not in known:
                    known[name] = self._codes(name, columns)
            codes, labels = known[dimension] if len(names) == 1 else _combined([known[name] for name in names])
            # bincount's weights are float64: exact up to 2^53 bytes in one chunk
            messages, sizes = (np.bincount(codes, weights, len(labels)).astype(np.int64) for weights in (counts, size))
            table = out.tables.setdefault(dimension, {})
            for label, *numbers in zip(labels, messages.tolist(), sizes.tolist(), strict=True):
                if numbers[0]:
                    _add(table, label, *numbers)
        return out

    def _codes(self, name: str, columns: Columns) -> _Codes:
        """Return the label of every record as a number in a list of labels, which may contain duplicates."""
        if name in ("topic", "queue"):
            numbers = self.queues.of(columns)
            text = self.queues.topic if name == "topic" else self.queues.label
            return numbers, [text(number) for number in range(len(self.queues))]
        if name in TIMES:
            unit = TIMES[name]
            times, inverse = np.unique(columns.store_timestamp // unit, return_inverse=True)
            return inverse, [_time(n * unit, name) for n in times.tolist()]
        return self._hosts(columns) if name == "host" else self._tags(columns)

    @staticmethod
    def _hosts(columns: Columns) -> _Codes:
        wide = (columns.sys_flag & BORN_HOST_V6) != 0
        if not wide.any():
            # a producer has a port per connection, so hosts are counted without it
            words, inverse = np.unique(u64(columns.buf)[columns.at + _BORN_HOST] >> np.uint64(32), return_inverse=True)
            return inverse, [_host(int(w).to_bytes(4, "big") + bytes(4)) for w in words.tolist()]
        raw = (columns.buf[at : at + (20 if w else 8)] for at, w in zip(columns.at + _BORN_HOST, wide, strict=True))
        return _numbered(_host(data.tobytes()) for data in raw)

    @staticmethod
    def _tags(columns: Columns) -> _Codes:
        import orjson

        codes, quoted = _numbered(PropertySpans(columns).tags.texts())
        return codes, [orjson.loads(tag) for tag in quoted if isinstance(tag, str)]


def _numbered(texts: Iterable[str]) -> _Codes:
    """Return texts as numbers in a list of the distinct texts."""
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)
    return codes, list(known)


def _combined(parts: Sequence[_Codes]) -> tuple[I64, list[Label]]:
    """Combine several labels of every record into one."""
    codes = np.zeros(len(parts[0][0]), dtype=np.int64)
    for own, labels in parts:
        codes = codes * max(1, len(labels)) + own
    found, inverse = np.unique(codes, return_inverse=True)
    labels_of: list[Label] = []
    for code in found.tolist():
        one: list[str | None] = []
        for _, labels in reversed(parts):
            code, i = divmod(code, max(1, len(labels)))
            one.append(labels[i])
        labels_of.append(tuple(reversed(one)))
    return inverse, labels_of


def _add(table: Table, label: Label, messages: int, size: int) -> None:
    row = table.setdefault(label, [0, 0])
    row[0] += messages
    row[1] += size


def _time(ms: int, name: str) -> str:
    try:
        when = utc(ms)
    except OverflowError:
        return str(ms)
    return f"{when:{_LABELS[name]}}"


def _host(raw: bytes) -> str:
    return host_text(raw).rpartition(":")[0]


def count_split(dimensions: tuple[str, ...], selection: Selection, options: ScanOptions, split: Split) -> _UsagePart:
    """Count the sound records of a split, and return all its runs."""
    out = _UsagePart()
    counter, selector = _Counter(dimensions), Selector(replace(selection, fillers=True))
    for run in scan_split(split, options):
        out.extend(run.start, run.stop)
        columns = run.columns
        if columns is not None and run.kind is Kind.RECORDS:
            mask = selector.mask(columns)
            if mask is not None:
                columns = columns.take(np.flatnonzero(mask))
            fillers = filler_mask(columns, selection.repaired)
            if fillers is not None:
                out.usage.fillers += int(fillers.sum())
                columns = columns if selection.fillers else columns.take(~fillers)
            if len(columns):
                out.usage.add(counter.count(columns))
        if not (run.kind is Kind.RECORDS and out.runs and out.runs[-1].kind is Kind.RECORDS):
            out.runs.append(replace(run, columns=None))
    return out


def usage(
    store: Store,
    dimensions: tuple[str, ...] = DIMENSIONS,
    selection: Selection | None = None,
    *,
    fillers: bool = False,
    workers: Workers | None = None,
    options: ScanOptions | None = None,
    damage: Skipped | None = None,
) -> Usage:
    """Count the sound messages of a store's logs; by default without checking body CRCs.

    `fillers`: count also the records that repairs put in the place of lost messages. Fills in `damage`. A tag is the
    whole TAGS property.
    """
    out = Usage(tables={name: {} for name in dimensions})
    workers = workers or Workers()
    damage = damage if damage is not None else Skipped()
    selection = replace(selection or Selection(), fillers=fillers, repaired=repaired_records(store))
    count = partial(count_split, dimensions, selection, options or ScanOptions(crc=False))
    for log in (own_log(log) for log in logs_of(store)):
        splits = list(splits_for(log, selection, workers.split_size))
        for split, part in joined(count, splits, workers.jobs, workers.mapper):
            damage.at_file(log.name, split.file)
            out.add(part.usage)
            for run in part.runs:
                damage.feed(log.name, run)
            if workers.progress is not None:
                workers.progress(split.stop - split.start)
        damage.close()
    return out


_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
_STEPS = (
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 7, 14, 28, 91, 365)),
)
_LONGEST = 366 * 10_000 * _D  # what is longer comes from damaged times


@dataclass(frozen=True, slots=True)
class Timeline:
    """`count` steps of `step` ms each, the first of which begins at `start` (ms, a multiple of `step` in UTC)."""

    start: int
    step: int
    count: int

    @classmethod
    def of(cls, first: int, last: int, most: int, *, least: int = _S) -> Timeline:
        """Return at most `most` steps of at least `least` ms that cover the times from `first` to `last` (ms)."""
        for step in _STEPS:
            if step >= least and last // step - first // step < most:
                return cls(first // step * step, step, last // step - first // step + 1)
        days = max(365, (last - first) // _D // most + 1)
        step = days * _D
        return cls(first // step * step, step, last // step - first // step + 1)

    @property
    def stop(self) -> int:
        """The end of the last step (ms)."""
        return self.start + self.count * self.step

    @property
    def unit(self) -> str:
        """The coarsest dimension of time that divides the steps."""
        return next(name for name, length in TIMES.items() if self.step % length == 0)

    def sums(self, rows: Iterable[tuple[int, int]]) -> list[int]:
        """Return the sum of the values in each step, from rows (time in ms, value)."""
        out = [0] * self.count
        for time, value in rows:
            out[(time - self.start) // self.step] += value
        return out


def unit_for(span: tuple[int, int] | None, most: int) -> str:
    """Return the dimension of time by which to count messages of a span (ms), to show them in `most` steps."""
    if span is None or not 0 <= span[1] - span[0] < _LONGEST:
        return "hour"
    return Timeline.of(*span, most).unit


def label_time(label: object) -> int:
    """Return the time (ms) of the label of a time in a table of usage; times out of range are labels in ms."""
    text = str(label)
    if text.lstrip("-").isdigit():
        return int(text)
    when = datetime.fromisoformat(text)
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def timed(rows: Iterable[Mapping[str, Any]], unit: str, value: str) -> list[tuple[int, int]]:
    """Return (time in ms, value) of rows of usage by a unit of time."""
    return [(label_time(row[unit]), int(row[value])) for row in rows]
