"""Job `rebuild`: builds consume queue files from the log; executors write them into a new directory.

The units that the log requires are shuffled by queue. The planner of `rmqstore rebuild` then plans each queue, and the
files are written as that plan would leave them. The store itself is not changed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqstore.append.disk import create_file, replace_file
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.documents.content import Content
from rmqstore.documents.steps import Create, Discard, Overwrite
from rmqstore.errors import OutputExists, Refused, RmqStoreError
from rmqstore.files.files import LOCAL
from rmqstore.files.private import make_private_directories
from rmqstore.files.sources import LOG_ONLY
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.formats.consumequeue import QueueName
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.consume_queues import (
    LogFacts,
    MessageUnits,
    RebuildChoices,
    plan_files_of_queue,
    size_decision,
)
from rmqstore.repair.rebuild.unit_buffer import UnitBuffer
from rmqstore.repair.rebuild_parts import proved_log
from rmqstore.repair.repaired_log import Redispatch, RepairedLog, Span
from rmqstore.scan.dispatch import BatchRow, DispatchedRows
from rmqstore.spark import register_source
from rmqstore.spark.jobs import JobResult, Paths, Progress, Watch, finish, lost_store, spark_mapper, store_around
from rmqstore.spark.sources import Gatherer, Source, dispatched_schema, spark_schema
from rmqstore.spark.views import load
from rmqstore.texts import Text
from rmqstore.views.stores import StoreRef, store_refs

MARK = "rmqstore-rebuild.json"


@dataclass(frozen=True, slots=True)
class StoreWork:
    """What the writers of a store's queues need.

    `ends`: start and end of each log (global offsets). `replaced`: offsets of the damaged records that other parts of
    the store prove, `proved`: the units of their original records, as rows of `dispatched_schema`.
    """

    ref: StoreRef
    output: Path
    facts: LogFacts
    ends: tuple[Span, ...]
    replaced: tuple[int, ...]
    proved: tuple[dict[str, Any], ...]


def rebuild(
    spark: Any,
    paths: Paths,
    output: Path,
    *,
    config: Path | None = None,
    progress: Progress | None = None,
    split_size: int | None = None,
) -> JobResult:
    """Write `output/consumequeue/…` (one store) or `output/NUMBER/consumequeue/…` (several, in their order).

    The files equal those that `rmqstore rebuild STORE cq --apply` leaves, byte for byte. After a kill, run it again
    with the same directory.
    Errors: OutputExists for a directory that is neither empty nor from an unfinished run; Refused for a log without a
    good message.
    """
    started = time.monotonic()
    refs, output = store_refs(paths, config), output.absolute()
    _check_output(output, refs)
    work: dict[str, StoreWork] = {}
    stores: list[dict[str, Any]] = []
    for number, ref in enumerate(refs):
        target = output if len(refs) == 1 else output / f"{number:04d}"
        try:
            work[ref.label] = _examine(spark, ref, target, progress, split_size)
        except (RmqStoreError, OSError) as e:
            stores.append(lost_store(ref, e))
            continue
        entry = {"store": ref.label, "output": str(target), "queues": 0, "files": 0, "units": 0}
        stores.append(entry | {"notes": _assumed(ref, work[ref.label].facts.batch_topics)})
    make_private_directories(output)
    replace_file(output / MARK, b'{"state": "unfinished"}\n')
    by_label = {s["store"]: s for s in stores}
    for row in _write(spark, work, output, config, progress, split_size) if work else ():
        store = by_label[row["store"]]
        store["queues"] += 1 if row["files"] else 0
        store["files"] += row["files"]
        store["units"] += row["units"]
        store["notes"] += row["notes"]
    replace_file(output / MARK, b'{"state": "done"}\n')
    return finish(JobResult("rebuild", stores, more={"output": str(output)}), started, [])


def _assumed(ref: StoreRef, batch_topics: frozenset[str]) -> list[str]:
    """Return notes about file sizes that had to be assumed: the local command asks before it uses the default."""
    store = ref.open(LOG_ONLY)
    kinds = (QueueKind.SIMPLE, QueueKind.BATCH) if batch_topics else (QueueKind.SIMPLE,)
    return [note for kind in kinds if (note := size_decision(store, kind)) is not None]


def _check_output(output: Path, refs: list[StoreRef]) -> None:
    around = store_around(output, refs)
    if around is not None:
        raise Refused(
            Text("the output {output} lies inside the store {path}", output=output, path=around.path),
            Text("write it elsewhere"),
        )
    entries = {e.path.name: e for e in LOCAL.list(output)}
    if not entries:
        return
    mark = entries.get(MARK)
    if mark is None or b"unfinished" not in mark.path.read_bytes():
        raise OutputExists(Text("{output} already exists", output=output))


def _examine(spark: Any, ref: StoreRef, output: Path, progress: Progress | None, split_size: int | None) -> StoreWork:
    """Examine a store's log on executors. Errors: Refused for a log without a good message, and for RocksDB queues."""
    store = ref.open(LOG_ONLY)
    verified = examine(store, VerifyOptions(jobs=1, split_size=split_size), spark_mapper(spark, progress))
    if not any(r.messages for r in verified.results):
        raise Refused(Text("the log has no good message from which to rebuild"), Text("run `rmqstore verify` on it"))
    if store.kind is StoreKind.ROCKSDB:
        raise Refused(
            Text("the consume queues are in RocksDB"), Text("run `rmqstore rebuild STORE cq`, which writes them")
        )
    if any(store.reads_rows(topic) for topic, _ in verified.logs.queues):
        raise Refused(Text("light queues are in RocksDB"), Text("run `rmqstore rebuild STORE cq`, which writes them"))
    _, views = proved_log(PlanBuilder(store), verified)
    return StoreWork(
        ref,
        output,
        LogFacts.of(verified, views),
        tuple((view.queue.start, view.end) for view in views),
        tuple(at for view in views for at in view.originals),
        tuple(_units_of_originals(ref, store, verified.batch_topics, views)),
    )


def _units_of_originals(
    ref: StoreRef, store: Store, batch_topics: frozenset[str], views: Iterable[RepairedLog]
) -> Iterator[dict[str, Any]]:
    sink = Gatherer(ref.label)
    dispatcher = Redispatch(store, sink, batch_topics)
    for view in views:
        for at, raw in view.originals.items():
            for columns in view.records(at - view.body_offset, at + len(raw)):
                dispatcher.columns(columns)
    for batch in sink.take():
        yield from batch.to_pylist()


def _write(
    spark: Any,
    work: dict[str, StoreWork],
    output: Path,
    config: Path | None,
    progress: Progress | None,
    split_size: int | None,
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    register_source(spark, QueueSink)
    named = {label: str(one.ref.path) for label, one in work.items()}
    units = load(spark, "dispatched", named, config=config, splitSize=split_size)
    inside, offset = f.lit(False), f.col("commitlog_offset")
    for label, one in work.items():
        for start, end in one.ends:
            of_log = (f.col("store") == label) & (offset >= start) & (offset < end)
            inside = inside | (of_log & ~offset.isin(*one.replaced))
    # a row without an offset for every queue on disk, so that queues without messages are planned too
    more: list[dict[str, Any]] = [
        {"store": label, "topic": topic, "queue_id": queue_id}
        for label, one in work.items()
        for topic, queue_id in sorted(_on_disk(one.ref))
    ]
    more += [row for one in work.values() for row in one.proved]
    frame = units.where(inside).union(spark.createDataFrame(more, spark_schema(dispatched_schema())))
    key = ("store", "topic", "queue_id")
    frame = frame.repartition(*key).sortWithinPartitions(*key, offset.asc_nulls_first())
    pickled = base64.b64encode(pickle.dumps(work)).decode("ascii")
    with Watch(spark, progress):
        writer = frame.write.format(QueueSink.name()).mode("append").option("work", pickled)
        writer.option("output", str(output)).save()
    return list(json.loads((output / MARK).read_text("utf-8"))["queues"])


def _on_disk(ref: StoreRef) -> set[QueueName]:
    store = ref.open()
    return {(t, q) for kind in (QueueKind.SIMPLE, QueueKind.BATCH) for t, q, _ in store.queue_directories(kind)}


# --- in an executor --------------------------------------------------------------------------------------------------


class Written(WriterCommitMessage):  # type: ignore[misc]  # PySpark has no types here
    """The counts of each queue that one task has written."""

    def __init__(self, queues: list[dict[str, Any]]) -> None:
        self.queues = queues


class QueueSink(Source):
    """`rmqstore.queues`: a sink that takes units sorted by queue and offset, and writes queue files."""

    @classmethod
    def name(cls) -> str:
        return "rmqstore.queues"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        settings = self.settings()
        return QueueWriter(pickle.loads(base64.b64decode(settings["work"])), Path(settings["output"]))


class QueueWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes queue files in executors, and the list of all queues in the driver."""

    def __init__(self, work: dict[str, StoreWork], output: Path) -> None:
        self.work = work
        self.output = output

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the units of one task."""
        return Written(list(write_queues(iterator, self.work)))

    def commit(self, messages: list[Written | None]) -> None:
        """Save the counts of all tasks in the mark file."""
        queues = [queue for message in messages if message is not None for queue in message.queues]
        replace_file(self.output / MARK, json.dumps({"state": "unfinished", "queues": queues}).encode())

    def abort(self, messages: list[Written | None]) -> None:
        """Keep the files that were written: another run replaces them."""


def write_queues(batches: Iterator[Any], work: Mapping[str, StoreWork]) -> Iterator[dict[str, Any]]:
    """Write the files of every queue in the rows, one queue after the other; yield the counts of each."""
    groups = (group for batch in batches for group in _groups(batch))
    for label, of_store in itertools.groupby(groups, key=itemgetter(0)):
        store = work[label].ref.open()
        for name, of_queue in itertools.groupby(of_store, key=itemgetter(1)):
            yield {"store": label} | _write_queue(work[label], store, name, (rows for _, _, rows in of_queue))


def _groups(batch: Any) -> Iterator[tuple[str, QueueName, Any]]:
    """Yield the label of a store, a queue, and adjacent rows of this queue."""
    import pyarrow.compute as pc

    n = batch.num_rows
    if not n:
        return
    changed = np.zeros(n, dtype=np.bool_)
    for name in ("store", "topic", "queue_id"):
        column = batch.column(name)
        changed[1:] |= pc.not_equal(column.slice(1), column.slice(0, n - 1)).to_numpy(zero_copy_only=False)
    starts = [0, *np.flatnonzero(changed).tolist(), n]
    for a, b in itertools.pairwise(starts):
        part = batch.slice(a, b - a)
        store, topic, queue_id = (part.column(name)[0].as_py() for name in ("store", "topic", "queue_id"))
        yield store, (topic, queue_id), part


def _write_queue(work: StoreWork, store: Store, name: QueueName, parts: Iterable[Any]) -> dict[str, Any]:
    """Plan a queue, write its files as the plan would leave them, and return its counts.

    `parts`: its units in log order; a row without an offset only marks that the queue exists on disk.
    """
    buffer, count = UnitBuffer(None, work.facts.parts), 0
    for part in parts:
        rows = part.filter(part.column("commitlog_offset").is_valid())
        count += rows.num_rows
        if name[0] in work.facts.batch_topics:
            for row in rows.to_pylist():
                values = (row["commitlog_offset"], row["size"], row["tags_code"], row["store_timestamp"])
                buffer.batch(name, BatchRow(*values, row["queue_offset"], row["batch_size"]))
            continue
        columns = ("queue_offset", "commitlog_offset", "size", "tags_code")
        at, offset, size, tags = (rows.column(n).to_numpy(zero_copy_only=False).astype(np.int64) for n in columns)
        none = np.zeros(rows.num_rows, dtype=np.int64)
        buffer.rows([name], DispatchedRows(none, at, offset, size, tags, none))
    buffer.flush()
    draft = PlanBuilder(store)
    existing = plan_files_of_queue(MessageUnits(draft, work.facts, buffer, RebuildChoices(allow_gaps=True)), name)
    files = write_planned(draft, [file.path for file in existing], work.output)
    return {"topic": name[0], "queue_id": name[1], "files": files, "units": count, "notes": draft.notes}


def write_planned(draft: PlanBuilder, existing: Iterable[Path], output: Path) -> int:
    """Write existing and new files as the steps of a draft would leave them; return their number."""
    discarded = {step.path for step in draft.steps if isinstance(step, Discard)}
    changes: dict[str, list[Overwrite]] = {}
    for step in draft.steps:
        if isinstance(step, Overwrite):
            changes.setdefault(step.path, []).append(step)
    count = 0
    for path in existing:
        name = draft.path(path)
        if name in discarded:
            continue
        with draft.store.files.open(path) as file:
            raw = bytearray(file.read(file.length, 0))
        for step in changes.get(name, ()):
            _insert(raw, step.at, step.content)
        _write_file(output / name, raw)
        count += 1
    for step in draft.steps:
        if isinstance(step, Create):
            raw = bytearray(step.size)
            _insert(raw, 0, step.content)
            _write_file(output / step.path, raw)
            count += 1
    return count


def _insert(raw: bytearray, at: int, content: Content) -> None:
    for piece in content.pieces():
        if isinstance(piece, int):
            raw[at : at + piece] = bytes(piece)
            at += piece
        else:
            raw[at : at + len(piece)] = piece
            at += len(piece)


def _write_file(path: Path, raw: bytearray) -> None:
    """Write a file with trailing zeros as a hole; replace one that a failed attempt left."""
    content = bytes(raw.rstrip(b"\0"))
    try:
        descriptor = create_file(path, len(raw), content)
    except OutputExists:
        replace_file(path, bytes(raw))
        return
    os.close(descriptor)
