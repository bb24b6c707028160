"""Job `export`: messages to Parquet by topic and day, restartable without duplicates.

The log of every store is cut into segments (stretches of whole files). A segment's rows stand in directories of its
own (`topic=…/day=…/segment=…`), which a write replaces as a whole; a segment is done when the list in `_rmqstore/`
says so, with what its files looked like. A second run does what is missing and what has grown since, and only that.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqstore.errors import OutputExists, RmqStoreError, UsageError
from rmqstore.files.store import Store
from rmqstore.spark.hadoop import Folder
from rmqstore.spark.jobs import JobResult, Paths, finish, lost_store
from rmqstore.spark.message_rows import segment_name
from rmqstore.spark.spread import Progress, Watch
from rmqstore.spark.stores import StoreRef, logs_of, store_refs, unreadable_files
from rmqstore.spark.streaming import end_of

STATE = "_rmqstore"
SEGMENT = 16 << 30
BATCH = 64 << 30
SPLIT = 256 << 20


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one log: `signature` changes when its files do."""

    name: str
    label: str
    bytes: int
    signature: str


def segments_of(ref: StoreRef, store: Store, segment_bytes: int, settings: str) -> Iterator[Segment]:
    """The segments of a store's logs, in address order."""
    for log, queue, lead in logs_of(store):
        end = end_of(queue, lead, None)
        groups: dict[str, list[Any]] = {}
        for file in queue.files:
            groups.setdefault(segment_name(ref.label, log, file.start, segment_bytes), []).append(file)
        for name, files in groups.items():
            last = files[-1].stop >= end > files[0].start
            seen = [(f.name, f.length, f.mtime_ns) for f in files]
            text = json.dumps([seen, end if last else 0, settings])
            signature = hashlib.sha256(text.encode()).hexdigest()[:16]
            yield Segment(name, ref.label, sum(f.length for f in files), signature)


def export(
    spark: Any,
    paths: Paths,
    output: str | Path,
    *,
    config: Path | None = None,
    body: str = "",
    properties: bool = True,
    topics: Iterable[str] = (),
    since: int | None = None,
    until: int | None = None,
    segment_bytes: int = SEGMENT,
    batch_bytes: int = BATCH,
    split_bytes: int = SPLIT,
    progress: Progress | None = None,
) -> JobResult:
    """Write the messages of all stores below `output`; `body`: "" for none, "raw" as stored, "plain" decompressed.

    Rows carry `crc_ok`; a damaged span is no row. Exit code 1 when rows are damaged, 4 when a store or a file could
    not be read. Units: bytes; `since`, `until` ms.
    Errors: OutputExists for a directory with something else in it; UsageError for an output inside of a store.
    """
    started = time.monotonic()
    refs = store_refs(paths, config)
    _keep_out(output, refs)
    folder = Folder(spark, str(output))
    names = folder.names()
    if names and STATE not in names:
        raise OutputExists(f"{output} is there already, and holds no export", "choose another output")
    options = {
        "body": body or "false",
        "properties": str(properties).lower(),
        "topics": ",".join(sorted(topics)),
        "splitSize": str(split_bytes),
        "segmentBytes": str(segment_bytes),
        "missing": "skip",
    }
    options |= {k: str(v) for k, v in (("since", since), ("until", until)) if v is not None}
    if config is not None:
        options["config"] = str(config)
    settings = json.dumps({k: v for k, v in options.items() if k not in ("splitSize", "missing")}, sort_keys=True)
    stores, segments = _plan(refs, segment_bytes, settings)
    done = _done(folder)
    todo = [s for s in segments if done.get(s.name) != s.signature]
    for name in names:
        if name.startswith(".spark-staging"):  # of a run that was killed
            folder.delete(name)
    old = [s.name for s in todo if done.get(s.name)]
    if old:  # what they held before may be more than what they hold now
        _mark(folder, dict.fromkeys(old, ""))
        for name in old:
            folder.delete_matching(f"topic=*/day=*/segment={name}")
    damaged = 0
    for batch in _batches(todo, batch_bytes):
        labels = {s.label for s in batch}
        chosen = {ref.label: str(ref.path) for ref in refs if ref.label in labels}
        damaged += _write(spark, str(output), options, chosen, batch, progress)
        _mark(folder, {s.name: s.signature for s in batch})
    for label, rows in _rows(spark, str(output), folder).items():
        if label in stores:
            stores[label]["messages"] = rows
    for segment in todo:
        stores[segment.label]["segments_written"] += 1
    more = {"output": str(output), "segments": len(segments), "written": len(todo), "damaged_messages": damaged}
    result = JobResult("export", list(stores.values()), more=more)
    unread = any(s.get("unchecked") for s in stores.values())
    return finish(result, started, [1] if damaged else [4] if unread else [])


def _keep_out(output: str | Path, refs: list[StoreRef]) -> None:
    if "://" in str(output):
        return
    target = Path(output).absolute().resolve()
    for ref in refs:
        root = ref.path.absolute().resolve()
        if target == root or root in target.parents:
            raise UsageError(f"the output {output} lies inside the store {ref.path}", "write it elsewhere")


def _plan(refs: list[StoreRef], segment_bytes: int, settings: str) -> tuple[dict[str, dict[str, Any]], list[Segment]]:
    stores: dict[str, dict[str, Any]] = {}
    segments: list[Segment] = []
    for ref in refs:
        try:
            store = ref.open()
            own = list(segments_of(ref, store, segment_bytes, settings))
            unchecked = unreadable_files(store)
        except (RmqStoreError, OSError) as e:
            stores[ref.label] = lost_store(ref, e)
            continue
        stores[ref.label] = {"store": ref.label, "messages": 0, "segments": len(own), "segments_written": 0}
        stores[ref.label]["unchecked"] = unchecked
        segments += own
    return stores, segments


def _done(folder: Folder) -> dict[str, str]:
    out: dict[str, str] = {}
    for name in folder.names(STATE):
        if name.endswith(".json"):
            out |= folder.read_json(f"{STATE}/{name}") or {}
    return out


def _mark(folder: Folder, signatures: dict[str, str]) -> None:
    """Another file of the list; what a later one says of a segment counts."""
    numbers = [int(n[:8]) for n in folder.names(STATE) if n[:8].isdigit()]
    folder.write_json(f"{STATE}/{max(numbers, default=0) + 1:08d}.json", signatures)


def _batches(segments: list[Segment], size: int) -> Iterator[list[Segment]]:
    batch: list[Segment] = []
    for segment in segments:
        if batch and sum(s.bytes for s in batch) + segment.bytes > size:
            yield batch
            batch = []
        batch.append(segment)
    if batch:
        yield batch


def _write(
    spark: Any,
    output: str,
    options: dict[str, str],
    stores: dict[str, str],
    batch: list[Segment],
    progress: Progress | None,
) -> int:
    """One batch of segments; how many of its rows are damaged."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    reader = spark.read.format("rmqstore.commitlog").options(**options)
    frame = reader.option("stores", json.dumps(stores)).option("segments", json.dumps([s.name for s in batch])).load()
    seen = Observation()
    frame = frame.observe(seen, f.count_if(~f.col("crc_ok")).alias("damaged"))
    with Watch(spark, progress):
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("topic", "day", "segment").option("compression", "zstd").parquet(output)
    return int(seen.get["damaged"] or 0)


def read_export(spark: Any, output: str | Path) -> Any:
    """The exported messages as a DataFrame; topics that look like numbers stay text."""
    key = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "false")
    try:
        return spark.read.parquet(str(output))
    finally:
        spark.conf.set(key, before)


def _rows(spark: Any, output: str, folder: Folder) -> dict[str, int]:
    """Messages of every store in the whole export."""
    if not any(name.startswith("topic=") for name in folder.names()):
        return {}
    return {row["store"]: int(row["count"]) for row in read_export(spark, output).groupBy("store").count().collect()}
