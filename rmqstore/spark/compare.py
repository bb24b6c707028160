"""Job `compare`: finds where replicas diverge from the first store, and which messages only one of them has.

The rows are those of the local `compare` (`views/compare.py`). A join finds the rows that differ; the driver
evaluates them with `views/compare.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.errors import RmqStoreError, UsageError, reason
from rmqstore.files.sources import LOG_ONLY
from rmqstore.repair.replica.heal import find_offers
from rmqstore.repair.replica.replica import Replica
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.spark import register_source
from rmqstore.spark.jobs import JobResult, Paths, Progress, Watch, each_whole, finish, lost_store, spark_mapper
from rmqstore.spark.sources import Pieces, Reader, Source, plan_messages
from rmqstore.spark.views import load
from rmqstore.texts import Text
from rmqstore.views.compare import Comparison, LogRows, RecordRows, Unequal, comparison, rows_of
from rmqstore.views.stores import Piece, StoreRef, runs_of, store_refs
from rmqstore.views.tables import ReadOptions, merged

_NUMBERS = ("start", "size", "whole", "queue_offset", "content", "time", "index", "term")
_MARKS = ["start", "size", "whole", "index"]


def row_schema() -> Any:
    """Return what `compare` needs of a record: its place, the CRC of its bytes, and of those that a move keeps."""
    head = [("store", pa.string()), ("topic", pa.string()), ("queue_id", pa.int32())]
    return pa.schema([*head, *((n, pa.int64()) for n in _NUMBERS)])


class RowReader(Reader):
    """Plans as `rmqstore.commitlog` does, and reads rows."""

    def partitions(self) -> list[InputPartition]:
        options = ReadOptions(skip_unreadable=self.skip)
        return [Pieces(group) for group in plan_messages(self.settings, options, "messages")]

    def batches(self, partition: Pieces) -> Iterator[Any]:
        return merged(read_rows(partition.pieces))


class RowSource(Source):
    """`rmqstore.rows`: the rows by which replicas are compared."""

    kind = "rmqstore.rows"
    columns = staticmethod(row_schema)
    reads = RowReader


def read_rows(pieces: Iterable[Piece]) -> Iterator[Any]:
    """Yield batches of the rows of good records. Errors: OSError for a file that cannot be opened."""
    schema = row_schema()
    table = QueueTable()
    for piece in pieces:
        for run in runs_of(piece, ScanOptions(chunk=4 << 20)):
            if run.kind is not Kind.RECORDS or run.columns is None:
                continue
            rows = rows_of(run.columns, table)
            names = [t.decode("utf-8", "backslashreplace") for t in table.topics]
            ids = np.array(table.queue_ids, dtype=np.int32)
            arrays = [
                pa.repeat(pa.scalar(piece.store, pa.string()), len(rows)),
                pa.array(names, pa.string()).take(pa.array(rows.queue)),
                pa.array(ids[rows.queue]),
                *(pa.array(getattr(rows, n).astype(np.int64)) for n in _NUMBERS),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def compare(
    spark: Any,
    paths: Paths,
    *,
    config: Path | None = None,
    progress: Progress | None = None,
    split_size: int | None = None,
) -> JobResult:
    """Compare the first store with each of the others; return an entry for each, as of `rmqstore compare`.

    `heal` in the result has an object for each damaged store, with the stores that have its original bytes.
    Exit code 0: all equal; 1: some differ.
    Errors: UsageError for a single store; NotAStore, NotReadable for the first one.
    """
    started = time.monotonic()
    first, *others = store_refs(paths, config)
    if not others:
        raise UsageError(Text("compare needs at least two stores"))
    register_source(spark, RowSource)
    side = partial(_side, spark, config=config, progress=progress, split_size=split_size)
    left, frame = side(first)
    frame = frame.persist()
    stores, codes = [], []
    damaged = {first} if _is_damaged(left) else set()
    for ref in others:
        try:
            right, other = side(ref)
            with Watch(spark, progress):
                found = _compared(left, frame, right, other.persist())
        except (RmqStoreError, OSError) as e:
            stores.append(lost_store(ref, e))
            continue
        damaged |= {ref} if _is_damaged(right) else set()
        answer = found.to_json()
        del answer["schema"]
        answer["first"] = asdict(found.store)
        stores.append(answer | {"store": ref.label, "with": first.label, "clean": found.equal})
        codes.append(0 if found.equal else 1)
        other.unpersist()
    frame.unpersist()
    read = [first, *(ref for ref, store in zip(others, stores, strict=True) if "error" not in store)]
    sizes = [(ref, 0) for ref in read if ref in damaged]
    heal = [answer for answer, _ in each_whole(spark, sizes, partial(_offers, stores=read), 1)]
    return finish(JobResult("compare", stores, more={"first": first.label, "heal": heal}), started, codes)


def _is_damaged(logs: LogRows) -> bool:
    bad = (Kind.DIRTY, Kind.ZERO, Kind.HOLE)
    return any(run.kind in bad and run.start < log.wrote for log in logs.results for run in log.tiling)


def _offers(ref: StoreRef, stores: Sequence[StoreRef]) -> tuple[dict[str, Any], int]:
    """Return which of the other stores have the original bytes of a damaged one."""
    try:
        store = ref.open(LOG_ONLY)
        verified = examine(store, VerifyOptions(jobs=1))
        found = find_offers(store, verified, [Replica(str(o.path), o.open(LOG_ONLY), 1) for o in stores if o != ref])
    except (RmqStoreError, OSError) as e:
        return {"store": ref.label, "places": 0, "replicas": [], "refused": {}, "note": reason(e)}, 0
    offers = [asdict(offer) for offer in found.offers]
    return {"store": ref.label, "places": found.places, "replicas": offers, "refused": found.refused}, 0


def _side(
    spark: Any, ref: StoreRef, *, config: Path | None, progress: Progress | None, split_size: int | None
) -> tuple[LogRows, Any]:
    """Return a store's log summary, and its rows up to the last good record of each log."""
    from pyspark.sql import functions as f

    logs = LogRows(ref.open(), QueueTable(), jobs=1, mapper=spark_mapper(spark, progress))
    rows = load(spark, "rows", {ref.label: str(ref.path)}, config=config, splitSize=split_size)
    inside = f.lit(False)
    for result in logs.results:
        inside = inside | ((f.col("start") >= result.queue.start) & (f.col("start") < result.wrote))
    return logs, rows.where(inside).drop("store")


def _compared(left: LogRows, a: Any, right: LogRows, b: Any) -> Comparison:
    from pyspark.sql import functions as f

    start = max(left.min_offset, right.min_offset)
    a, b = a.where(f.col("start") >= start), b.where(f.col("start") >= start)
    table = QueueTable()
    unequal = [_rows(one.join(two.select(*_MARKS), _MARKS, "left_anti"), table) for one, two in ((a, b), (b, a))]
    found = Unequal(start)
    found.keep(*unequal)
    found.first = min((int(rows.start[0]) for rows in unequal if len(rows)), default=None)
    head = a if found.first is None else a.where(f.col("start") < found.first)
    row = head.agg(f.count(f.lit(1)), f.max(f.col("start") + f.col("size")), f.max("index")).first()
    found.leading = int(row[0])
    if found.leading:
        found.stop, found.last_index = int(row[1]), int(row[2])
    found.equal = int(a.count()) - len(unequal[0])
    return comparison(left, right, found, table)


def _rows(frame: Any, table: QueueTable) -> RecordRows:
    """Collect a frame's rows in address order, at 72 bytes each: only for rows that differ."""
    columns = frame.orderBy("start").toArrow()
    names, ids = columns.column("topic").to_pylist(), columns.column("queue_id").to_pylist()
    queues = [table.number(name.encode("utf-8", "backslashreplace"), i) for name, i in zip(names, ids, strict=True)]
    arrays = {name: columns.column(name).to_numpy().astype(np.int64) for name in _NUMBERS}
    return RecordRows(queue=np.array(queues, dtype=np.int64), **arrays)
