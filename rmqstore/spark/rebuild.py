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
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqstore.append.disk import create_file, make_directories, replace_file
from rmqstore.backup.snapshot_store import LOG_ONLY
from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.verify import Verified, VerifyOptions, examine
from rmqstore.errors import OutputExists, Refused, RmqStoreError
from rmqstore.files.files import LOCAL
from rmqstore.files.store import QueueKind, StoreKind
from rmqstore.repair.plan.content import Content
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.steps import Create, Discard, Overwrite
from rmqstore.repair.rebuild.consume_queue import Extension, KeptCodes, QueueImage, plan_batch_queue, plan_queue
from rmqstore.repair.rebuild.consume_queues import WHY, known_topic, queue_files, size_decision
from rmqstore.repair.rebuild.unit_buffer import BufferedUnits, UnitBuffer
from rmqstore.repair.repaired_log import can_have_queues
from rmqstore.scan.dispatch import BatchRow, DispatchedRows, Name
from rmqstore.scan.tiling import Kind
from rmqstore.spark.jobs import JobResult, Paths, Progress, Watch, finish, lost_store, spark_mapper, store_around
from rmqstore.spark.sources import Source
from rmqstore.spark.views import load
from rmqstore.texts import Text, many
from rmqstore.views.stores import StoreRef, store_refs

MARK = "rmqstore-rebuild.json"


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What the writer of a queue needs to know about the log. Units: bytes, global offsets.

    `ends`: (start, end of the last good record) of each log. `bad_starts`, `bad_stops`: spans in it that are not
    records. `parts`: queues whose offsets restart, or that have single wrong offsets.
    """

    ref: StoreRef
    output: Path
    batch: frozenset[str]
    min_offset: int
    ends: tuple[tuple[int, int], ...]
    bad_starts: tuple[int, ...]
    bad_stops: tuple[int, ...]
    topics: frozenset[str] | None
    parts: dict[Name, QueuePart]

    def damaged(self, offset: int) -> bool:
        """Return whether the byte at an offset of the log is damaged."""
        i = bisect_right(self.bad_stops, offset)
        return i < len(self.bad_stops) and self.bad_starts[i] <= offset


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
    refs = store_refs(paths, config)
    _check_output(output, refs)
    facts: dict[str, LogFacts] = {}
    stores: list[dict[str, Any]] = []
    for number, ref in enumerate(refs):
        target = output if len(refs) == 1 else output / f"{number:04d}"
        try:
            facts[ref.label] = _facts(spark, ref, target, progress, split_size)
        except (RmqStoreError, OSError) as e:
            stores.append(lost_store(ref, e))
            continue
        entry = {"store": ref.label, "output": str(target), "queues": 0, "files": 0, "units": 0}
        stores.append(entry | {"notes": _assumed(facts[ref.label])})
    make_directories(output)
    replace_file(output / MARK, b'{"state": "unfinished"}\n')
    by_label = {s["store"]: s for s in stores}
    for row in _write(spark, facts, output, progress, split_size) if facts else ():
        store = by_label[row["store"]]
        store["queues"] += 1 if row["files"] else 0
        store["files"] += row["files"]
        store["units"] += row["units"]
        store["notes"] += row["notes"]
    replace_file(output / MARK, b'{"state": "done"}\n')
    return finish(JobResult("rebuild", stores, more={"output": str(output)}), started, [])


def _assumed(facts: LogFacts) -> list[str]:
    """Return notes about file sizes that had to be assumed: the local command asks before it uses the default."""
    store = facts.ref.open(LOG_ONLY)
    kinds = (QueueKind.SIMPLE, QueueKind.BATCH) if facts.batch else (QueueKind.SIMPLE,)
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


def _facts(spark: Any, ref: StoreRef, output: Path, progress: Progress | None, split_size: int | None) -> LogFacts:
    """Examine a store's log on executors. Errors: Refused for a log without a good message, and for RocksDB queues."""
    store = ref.open(LOG_ONLY)
    options = VerifyOptions(jobs=1, keep=0, split_size=split_size)
    verified: Verified = examine(store, options, spark_mapper(spark, progress))
    results = verified.results
    if not any(r.messages for r in results):
        raise Refused(Text("the log has no good message from which to rebuild"), Text("run `rmqstore verify` on it"))
    if store.kind is StoreKind.ROCKSDB:
        raise Refused(
            Text("the consume queues are in RocksDB"), Text("run `rmqstore rebuild STORE cq`, which writes them")
        )
    if any(store.reads_rows(topic) for topic, _ in verified.logs.queues):
        raise Refused(Text("light queues are in RocksDB"), Text("run `rmqstore rebuild STORE cq`, which writes them"))
    bad = [r for x in results for r in x.tiling if r.kind is not Kind.RECORDS and r.start < x.wrote]
    gaps = tuple(r.start for r in bad), tuple(r.stop for r in bad)
    parts = {name: part for name, part in verified.logs.queues.items() if part.restarts or part.outliers}
    ends = tuple((r.queue.start, r.wrote) for r in results)
    topics = verified.logs.topics
    return LogFacts(ref, output, verified.batch_topics, verified.logs.min_offset, ends, *gaps, topics, parts)


def _write(
    spark: Any, facts: dict[str, LogFacts], output: Path, progress: Progress | None, split_size: int | None
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    spark.dataSource.register(QueueSink)
    named = {label: str(one.ref.path) for label, one in facts.items()}
    options = {"splitSize": str(split_size)} if split_size else {}
    units = load(spark, "dispatched", named, **options)
    inside = f.lit(False)
    for label, one in facts.items():
        for start, end in one.ends:
            offset = f.col("commitlog_offset")
            inside = inside | ((f.col("store") == label) & (offset >= start) & (offset < end))
    # a row without an offset for every queue on disk, so that queues without messages are planned too
    on_disk = [(label, t, q) for label, one in facts.items() for t, q in sorted(_on_disk(one.ref))]
    marks = spark.createDataFrame(on_disk, "store string, topic string, queue_id int")
    frame = units.where(inside).unionByName(marks, allowMissingColumns=True)
    key = ("store", "topic", "queue_id")
    frame = frame.repartition(*key).sortWithinPartitions(*key, f.col("commitlog_offset").asc_nulls_first())
    packed = base64.b64encode(pickle.dumps(facts)).decode("ascii")
    with Watch(spark, progress):
        writer = frame.write.format(QueueSink.name()).mode("append").option("facts", packed)
        writer.option("output", str(output)).save()
    return list(json.loads((output / MARK).read_text("utf-8"))["queues"])


def _on_disk(ref: StoreRef) -> set[Name]:
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
        return QueueWriter(pickle.loads(base64.b64decode(settings["facts"])), Path(settings["output"]))


class QueueWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes queue files in executors, and the list of all queues in the driver."""

    def __init__(self, facts: dict[str, LogFacts], output: Path) -> None:
        self.facts = facts
        self.output = output

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the units of one task."""
        return Written(write_queues(iterator, self.facts))

    def commit(self, messages: list[Written | None]) -> None:
        """Save the counts of all tasks in the mark file."""
        queues = [queue for message in messages if message is not None for queue in message.queues]
        replace_file(self.output / MARK, json.dumps({"state": "unfinished", "queues": queues}).encode())

    def abort(self, messages: list[Written | None]) -> None:
        """Keep the files that were written: another run replaces them."""


def write_queues(batches: Iterator[Any], facts: dict[str, LogFacts]) -> list[dict[str, Any]]:
    """Write the files of every queue in the rows, one queue after the other; return the counts of each."""
    current: tuple[str, str, int] | None = None
    queue: _QueueCollector | None = None
    out: list[dict[str, Any]] = []
    for batch in batches:
        for key, rows in _groups(batch):
            if key != current:
                if queue is not None:
                    out.append(queue.write())
                current, queue = key, _QueueCollector(facts[key[0]], key)
            assert queue is not None
            queue.take(rows)
    if queue is not None:
        out.append(queue.write())
    return out


def _groups(batch: Any) -> Iterator[tuple[tuple[str, str, int], Any]]:
    """Yield adjacent rows of the same queue together, with the queue's key."""
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
        yield (store, topic, queue_id), part


class _QueueCollector:
    """Collects the units of one queue, then writes its files."""

    def __init__(self, facts: LogFacts, key: tuple[str, str, int]) -> None:
        self.facts = facts
        self.key = key
        self.name: Name = (key[1], key[2])
        self.spill = UnitBuffer(None, facts.parts)
        self.units = 0

    def take(self, rows: Any) -> None:
        """Add rows in log order; a row without an offset only marks that the queue exists on disk."""
        rows = rows.filter(rows.column("commitlog_offset").is_valid())
        if not rows.num_rows:
            return
        self.units += rows.num_rows
        if self.name[0] in self.facts.batch:
            for row in rows.to_pylist():
                values = (row["commitlog_offset"], row["size"], row["tags_code"], row["store_timestamp"])
                self.spill.batch(self.name, BatchRow(*values, row["queue_offset"], row["batch_size"]))
            return
        names = ("queue_offset", "commitlog_offset", "size", "tags_code")
        at, offset, size, tags = (rows.column(n).to_numpy(zero_copy_only=False).astype(np.int64) for n in names)
        none = np.zeros(rows.num_rows, dtype=np.int64)
        self.spill.rows([self.name], DispatchedRows(none, at, offset, size, tags, none))

    def write(self) -> dict[str, Any]:
        """Plan the queue, write its files as the plan would leave them, and return its counts."""
        facts, (label, topic, queue_id) = self.facts, self.key
        answer = {"store": label, "topic": topic, "queue_id": queue_id, "files": 0, "units": self.units, "notes": []}
        if not can_have_queues(topic.encode("utf-8", "surrogatepass"), queue_id):
            return answer
        self.spill.flush()
        units = self.spill.queues.get(self.name, BufferedUnits(self.spill.spill))
        store = facts.ref.open()
        kind = QueueKind.BATCH if topic in facts.batch else QueueKind.SIMPLE
        files = queue_files(store, self.name, kind)
        if not files.queue.files and not known_topic(Logs([], facts.topics), topic):
            return answer
        draft = PlanBuilder(store)
        if kind is QueueKind.BATCH:
            plan_batch_queue(draft, files, units.batches, facts.min_offset, WHY)
        else:
            extension = Extension.of(store, topic, queue_id)
            delay = delay_levels(store).longest(queue_id + 1)
            image = QueueImage(files, units, facts.min_offset, facts.damaged, KeptCodes(extension, delay))
            plan_queue(draft, image, WHY)
            if image.gaps:
                gaps = Text("{label}: {count}: no message has these queue offsets")
                answer["notes"] = [gaps.format(label=files.label, count=many(len(image.gaps), "gap"))]
        answer["files"] = write_planned(draft, [f.path for f in files.queue.files], facts.output)
        return answer


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
