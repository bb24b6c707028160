"""The source `rmqstore.dispatched`: the consume queue units that a broker would write for the messages of a log.

`crosscheck` compares them with the real consume queues, `rebuild` builds queues from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqstore.checks.beside.config import check_config
from rmqstore.checks.problems.report import Findings
from rmqstore.files.config import batch_topics
from rmqstore.files.store import Store
from rmqstore.repair.repaired_log import Redispatch
from rmqstore.scan.dispatch import BatchRow, DispatchedRows, Name
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE
from rmqstore.spark.sources.options import flag, size_of
from rmqstore.spark.sources.sources import Reader, Source
from rmqstore.views.stores import Piece, StoreRef, first_border, log_pieces, logs_of, opened, packed, refs_of_options
from rmqstore.views.tables import merged


def dispatched_schema() -> Any:
    """Return the columns of a unit; store_timestamp and batch_size are set for BatchCQ topics only."""
    return pa.schema(
        [
            ("store", pa.string()),
            ("topic", pa.string()),
            ("queue_id", pa.int32()),
            ("queue_offset", pa.int64()),
            ("commitlog_offset", pa.int64()),
            ("size", pa.int32()),
            ("tags_code", pa.int64()),
            ("store_timestamp", pa.int64()),
            ("batch_size", pa.int32()),
        ]
    )


class _Gatherer:
    """Turns the rows of a dispatcher into Arrow batches."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.schema = dispatched_schema()
        self.ready: list[Any] = []

    def rows(self, names: list[Name], rows: DispatchedRows) -> None:
        n = len(rows.number)
        if not n:
            return
        topics = pa.array([_text(t) for t, _ in names], pa.string()).take(pa.array(rows.number))
        ids = np.array([q for _, q in names], dtype=np.int64)[rows.number].astype(np.int32)
        arrays = [
            pa.repeat(pa.scalar(self.label, pa.string()), n),
            topics,
            pa.array(ids),
            pa.array(rows.queue_offset.astype(np.int64)),
            pa.array(rows.offset.astype(np.int64)),
            pa.array(rows.size.astype(np.int32)),
            pa.array(rows.tags.astype(np.int64)),
            pa.nulls(n, pa.int64()),
            pa.nulls(n, pa.int32()),
        ]
        self.ready.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def batch(self, name: Name, row: BatchRow) -> None:
        place = (row.base, row.offset, row.size, row.tags_code, row.store_timestamp, row.count)
        values = (self.label, _text(name[0]), name[1], *place)
        arrays = [pa.array([value], field.type) for value, field in zip(values, self.schema, strict=True)]
        self.ready.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def take(self) -> list[Any]:
        out, self.ready = self.ready, []
        return out


def _text(topic: str) -> str:
    return topic.encode("utf-8", "backslashreplace").decode()


def topics_of_batches(store: Store) -> frozenset[str]:
    """Return the topics whose queues are BatchCQ, according to topics.json and to their directories."""
    return batch_topics(store, check_config(store, Findings(keep=0)).queue_types)


class StorePieces(InputPartition):  # type: ignore[misc]  # PySpark has no types here
    """Pieces of one store's logs; `batch` are its BatchCQ topics."""

    def __init__(self, ref: StoreRef, batch: frozenset[str], pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.ref = ref
        self.batch = batch
        self.pieces = pieces


class DispatchedReader(Reader):
    """Plans pieces store by store, because stores differ in settings and BatchCQ topics."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self.options = ScanOptions(crc=flag(settings, "crc", True), chunk=4 << 20)

    def partitions(self) -> list[InputPartition]:
        size = size_of(self.settings, "splitsize", SPLIT_SIZE)
        out: list[InputPartition] = []
        for ref, store in opened(refs_of_options(self.settings), skip=self.skip):
            batch = topics_of_batches(store)
            for name, queue, body_offset in logs_of(store):
                groups = packed(log_pieces(ref.label, name, queue, body_offset, size), size)
                out += [StorePieces(ref, batch, group) for group in groups]
        return out

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, StorePieces):
            return iter(())
        return merged(read_dispatched(partition.ref, partition.batch, partition.pieces, self.options, self.skip))


class DispatchedSource(Source):
    """`rmqstore.dispatched`: one row per unit that the messages of a log need; `crc`: only if their CRC is right."""

    kind = "rmqstore.dispatched"
    columns = staticmethod(dispatched_schema)
    reads = DispatchedReader


def read_dispatched(
    ref: StoreRef, batch: frozenset[str], pieces: Iterable[Piece], options: ScanOptions, skip: bool = False
) -> Iterator[Any]:
    """Yield batches of the units that the good records of some pieces need. Errors: as `reading.read_messages`."""
    sink = _Gatherer(ref.label)
    dispatcher = Redispatch(ref.open(), sink, batch)
    for piece in pieces:
        try:
            start = first_border(piece)
            if start is None:
                continue
            for run in scan_file(
                piece.file, start=start, stop=piece.stop, body_offset=piece.body_offset, exact=True, options=options
            ):
                if run.kind is Kind.RECORDS and run.columns is not None:
                    dispatcher.columns(run.columns)
                    yield from sink.take()
        except FileNotFoundError:
            continue
        except OSError:
            if not skip:
                raise
