"""Messages and bytes per topic, queue, tag, producer host and day: one pass of columns, mergeable over splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from rmqstore.files.store import Store
from rmqstore.formats.message import BORN_HOST_V6, HEAD, host_text
from rmqstore.messages.properties import PropertyTexts
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, u64
from rmqstore.scan.queues import QueueTable
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE, Mapper, Split, joined, plan_splits
from rmqstore.views.dump.messages import Damage, logs_of
from rmqstore.views.dump.selection import Selection, Selector

SCHEMA = "rmqstore.du/1"
DIMENSIONS = ("topic", "queue", "tag", "host", "day")
_DAY = 86_400_000
_BORN_HOST = HEAD.at("born_host")
Table = dict[str | None, list[int]]  # label -> [messages, bytes]


@dataclass(slots=True)
class Usage:
    """Counts per dimension; `messages` and `bytes` (whole records) are the totals."""

    messages: int = 0
    bytes: int = 0
    tables: dict[str, Table] = field(default_factory=dict)

    def add(self, other: Usage) -> None:
        """Adds another's counts."""
        self.messages += other.messages
        self.bytes += other.bytes
        for name, table in other.tables.items():
            own = self.tables.setdefault(name, {})
            for label, (messages, size) in table.items():
                row = own.setdefault(label, [0, 0])
                row[0] += messages
                row[1] += size

    def rows(self, dimension: str) -> list[dict[str, Any]]:
        """{DIMENSION, "messages", "bytes"}, the biggest first; days in order of time."""
        table = self.tables.get(dimension, {})
        rows = [{dimension: k, "messages": m, "bytes": b} for k, (m, b) in table.items()]
        if dimension == "day":
            return sorted(rows, key=lambda r: str(r["day"]))
        return sorted(rows, key=lambda r: (-r["bytes"], str(r[dimension])))

    def to_json(self, store: str, top: int | None = None) -> dict[str, Any]:
        """The object of `du --json`."""
        return {
            "schema": SCHEMA,
            "store": store,
            "messages": self.messages,
            "bytes": self.bytes,
            "by": {name: self.rows(name)[: None if name == "day" else top] for name in self.tables},
            "distinct": {name: len(table) for name, table in self.tables.items()},
        }


@dataclass(slots=True)
class _Part:
    begin: int | None = None
    end: int | None = None
    usage: Usage = field(default_factory=Usage)
    runs: list[Run] = field(default_factory=list)


class _Counter:
    def __init__(self, dimensions: tuple[str, ...]) -> None:
        self.dimensions = dimensions
        self.queues = QueueTable()

    def count(self, columns: Columns) -> Usage:
        size = columns.size
        out = Usage(len(columns), int(size.sum()), {})
        if {"topic", "queue"} & set(self.dimensions):
            numbers = self.queues.of(columns)
            messages, total = _sums(numbers, size, len(self.queues))
            topics = [t.decode("utf-8", "backslashreplace") for t in self.queues.topics]
            for name, label in (
                ("topic", lambda i: topics[i]),
                ("queue", lambda i: f"{topics[i]}/{self.queues.queue_ids[i]}"),
            ):
                if name in self.dimensions:
                    _fill(out, name, map(label, range(len(topics))), messages, total)
        if "day" in self.dimensions:
            days, inverse = np.unique(columns.store_timestamp // _DAY, return_inverse=True)
            _fill(out, "day", map(_day, days.tolist()), *_sums(inverse, size, len(days)))
        if "host" in self.dimensions:
            self._hosts(columns, out)
        if "tag" in self.dimensions:
            self._tags(columns, out)
        return out

    def _hosts(self, columns: Columns, out: Usage) -> None:
        wide = (columns.sys_flag & BORN_HOST_V6) != 0
        # the producer's process has a port for each connection: hosts are counted without it
        words, inverse = np.unique(u64(columns.buf)[columns.at + _BORN_HOST] >> np.uint64(32), return_inverse=True)
        size = columns.size
        if not wide.any():
            labels = [_host(int(w).to_bytes(4, "big") + bytes(4)) for w in words.tolist()]
            _fill(out, "host", labels, *_sums(inverse, size, len(words)))
            return
        table = out.tables.setdefault("host", {})
        for i in range(len(columns)):
            at = int(columns.at[i]) + _BORN_HOST
            label = _host(columns.buf[at : at + (20 if wide[i] else 8)].tobytes())
            row = table.setdefault(label, [0, 0])
            row[0] += 1
            row[1] += int(size[i])

    @staticmethod
    def _tags(columns: Columns, out: Usage) -> None:
        table = out.tables.setdefault("tag", {})
        quoted: dict[str, list[int]] = {}
        for tag, size in zip(PropertyTexts(columns).tags, columns.size.tolist(), strict=True):
            row = quoted.get(tag)
            if row is None:
                quoted[tag] = [1, size]
            else:
                row[0] += 1
                row[1] += size
        import orjson

        for tag, row in quoted.items():
            table[orjson.loads(tag)] = row


def _sums(codes: I64, size: I64, n: int) -> tuple[list[int], list[int]]:
    messages = np.bincount(codes, minlength=n).tolist()
    # bincount's weights are float64: exact up to 2^53 bytes in one chunk
    return messages, np.bincount(codes, weights=size, minlength=n).astype(np.int64).tolist()


def _fill(out: Usage, name: str, labels: Iterable[str | None], messages: list[int], total: list[int]) -> None:
    table = out.tables.setdefault(name, {})
    for label, m, b in zip(labels, messages, total, strict=True):
        if m:
            row = table.setdefault(label, [0, 0])
            row[0] += m
            row[1] += b


def _day(number: int) -> str:
    try:
        return datetime.fromtimestamp(number * 86400, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return str(number * _DAY)


def _host(raw: bytes) -> str:
    return host_text(raw).rpartition(":")[0]


def count_split(dimensions: tuple[str, ...], selection: Selection, options: ScanOptions, split: Split) -> _Part:
    """What the good records of a split amount to, and all its runs."""
    out = _Part()
    counter, selector = _Counter(dimensions), Selector(selection)
    try:
        for run in scan_file(
            split.file, start=split.start, stop=split.stop, lead=split.lead, exact=split.exact, options=options
        ):
            if out.begin is None:
                out.begin = run.start
            out.end = run.stop
            columns = run.columns
            if columns is not None and run.kind is Kind.RECORDS:
                mask = selector.mask(columns)
                if mask is not None:
                    columns = columns.take(np.flatnonzero(mask))
                if len(columns):
                    out.usage.add(counter.count(columns))
            if not (run.kind is Kind.RECORDS and out.runs and out.runs[-1].kind is Kind.RECORDS):
                out.runs.append(Run(run.kind, run.start, run.stop, run.count, run.cause))
    except FileNotFoundError:
        pass
    return out


def usage(
    store: Store,
    dimensions: tuple[str, ...] = DIMENSIONS,
    selection: Selection | None = None,
    *,
    jobs: int = 1,
    options: ScanOptions | None = None,
    damage: Damage | None = None,
    progress: Callable[[int], None] | None = None,
    mapper: Mapper | None = None,
    split_size: int = SPLIT_SIZE,
) -> Usage:
    """Counts the good messages of a store's logs; body CRCs are not read.

    `mapper` does the work in place of `jobs` processes. `progress` gets the bytes of every split that is done.
    A tag is the whole TAGS property.
    """
    out = Usage(tables={name: {} for name in dimensions})
    options = options or ScanOptions(crc=False)
    damage = damage if damage is not None else Damage()
    work = partial(count_split, dimensions, selection or Selection(), options)
    for log in logs_of(store):
        before = None
        for split, part in joined(work, plan_splits(log.queue, lead=log.lead, size=split_size), jobs, mapper):
            if before is not None and split.file.start > before:
                damage.feed(log.name, Run(Kind.HOLE, before, split.file.start))
            before = split.file.stop
            out.add(part.usage)
            for run in part.runs:
                damage.feed(log.name, run)
            if progress is not None:
                progress(split.stop - split.start)
        damage.close()
    return out
