"""Job `export`: writes messages to Parquet by topic and day, restartable without duplicates.

The log of every store is cut into segments of whole files. Each segment has directories of its own
(`topic=…/day=…/segment=…`), which a write replaces as a whole. `_rmqstore/` lists the finished segments, with a
signature of their files and their damaged spans. Another run writes only segments that are missing or have changed; it
reports the damage of the whole export.
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
from rmqstore.scan.workers import Mapper
from rmqstore.spark.hadoop import Folder
from rmqstore.spark.jobs.jobs import JobResult, Paths, finish, lost_store, store_around
from rmqstore.spark.jobs.parquet_files import PARTITIONS, STAGING, move_files, write_files
from rmqstore.spark.jobs.passed_over import LISTED, Stretch, passed_over
from rmqstore.spark.jobs.task_groups import Progress, Watch, spark_mapper
from rmqstore.spark.sources.sources import message_options, plan_messages
from rmqstore.spark.sources.streaming import end_of
from rmqstore.views.tables.message_rows import digest_of, segment_name
from rmqstore.views.tables.stores import StoreRef, logs_of, store_refs, unreadable_files

STATE = "_rmqstore"
_DAMAGE = ("damaged_messages", "damaged_spans")


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What to export, and in which portions.

    `body`: "" for none, "raw" as stored, "plain" decompressed. `since`, `until`: ms. `segment_bytes` of the log share a
    directory, `batch_bytes` a Spark job, `split_bytes` a task.
    """

    body: str = ""
    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    segment_bytes: int = 16 << 30
    batch_bytes: int = 64 << 30
    split_bytes: int = 256 << 20

    def options(self, config: Path | None) -> dict[str, str]:
        """The options of the source `rmqstore.commitlog`."""
        options = {
            "body": self.body or "false",
            "properties": "true",
            "topics": ",".join(sorted(self.topics)),
            "splitSize": str(self.split_bytes),
            "segmentBytes": str(self.segment_bytes),
            "missing": "skip",
        }
        times = {"since": self.since, "until": self.until, "config": config}
        return options | {name: str(value) for name, value in times.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of whole files of one log; `signature` changes with the files. `live`: a broker writes to the store."""

    name: str
    label: str
    bytes: int
    signature: str
    stretch: Stretch
    live: bool


def segments_of(ref: StoreRef, store: Store, segment_bytes: int, settings: str) -> Iterator[Segment]:
    """Yield the segments of a store's logs in address order."""
    live = store.lock_state().held
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
            stretch = Stretch(log, queue, lead, files[0].start, files[-1].stop, end)
            yield Segment(name, ref.label, sum(f.length for f in files), signature, stretch, live)


def export(
    spark: Any,
    paths: Paths,
    output: str | Path,
    job: ExportJob | None = None,
    *,
    config: Path | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Write the messages of all stores below `output`.

    A row with a wrong CRC has `crc_ok` false; a damaged span has no row. The result counts both, over the whole
    output. Exit code 1 if there are any, 4 if a store or a file could not be read.
    Errors: OutputExists for a directory with something else in it; UsageError for an output inside a store.
    """
    started = time.monotonic()
    refs = store_refs(paths, config)
    around = store_around(output, refs)
    if around is not None:
        raise UsageError(f"the output {output} lies inside the store {around.path}", "write it elsewhere")
    folder = Folder(spark, str(output))
    names = folder.names()
    if names and STATE not in names:
        raise OutputExists(f"{output} already exists and is not an export", "choose another output")
    job = job or ExportJob()
    options = job.options(config)
    settings = json.dumps({k: v for k, v in options.items() if k not in ("splitSize", "missing")}, sort_keys=True)
    stores, segments = _plan(refs, job.segment_bytes, settings)
    done = _done(folder)
    todo = [s for s in segments if done.get(s.name, {}).get("signature") != s.signature]
    _clear(folder, names, [s.name for s in todo if s.name in done])
    for batch in _batches(todo, job.batch_bytes):
        labels = {s.label for s in batch}
        chosen = {ref.label: str(ref.path) for ref in refs if ref.label in labels}
        done |= _write(spark, folder, {**options, "stores": json.dumps(chosen)}, batch, progress)
        _mark(folder, {s.name: done[s.name] for s in batch})
    for segment in todo:
        stores[segment.label]["segments_written"] += 1
    _add_counts(stores, segments, done, _rows(spark, str(output), folder, done, stores))
    result = _result(stores, {"output": str(output), "segments": len(segments), "written": len(todo)})
    unread = any(s.get("unchecked") for s in stores.values())
    damaged = any(result.more[name] for name in _DAMAGE)
    return finish(result, started, [1] if damaged else [4] if unread else [])


def _result(stores: dict[str, dict[str, Any]], more: dict[str, Any]) -> JobResult:
    sums = {name: sum(s.get(name, 0) for s in stores.values()) for name in _DAMAGE}
    return JobResult("export", list(stores.values()), more=more | sums)


def _clear(folder: Folder, names: list[str], old: list[str]) -> None:
    """Remove leftovers of a killed run, and all directories of segments to be rewritten: some may not be replaced."""
    for name in names:
        if name.startswith((".spark-staging", STAGING)):
            folder.delete(name)
    if old:
        _mark(folder, {name: {} for name in old})
    for name in old:
        folder.delete_matching(f"topic=*/day=*/segment={name}")


def _add_counts(
    stores: dict[str, dict[str, Any]],
    segments: list[Segment],
    done: dict[str, dict[str, Any]],
    rows: dict[str, tuple[int, int]],
) -> None:
    """Add rows, damaged rows and damaged spans to the entry of each store."""
    for segment in segments:
        store, over = stores[segment.label], done[segment.name]["passed_over"]
        store["damaged_spans"] += over["spans"]
        store["damaged_bytes"] += over["bytes"]
        store["spans"] = (store["spans"] + over["first"])[:LISTED]
    for label, store in stores.items():
        if "error" not in store:
            store["messages"], store["damaged_messages"] = rows.get(label, (0, 0))
            store["clean"] = not (store["damaged_messages"] or store["damaged_spans"] or store["unchecked"])


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
        entry = {"store": ref.label, "clean": True, "messages": 0, "segments": len(own), "segments_written": 0}
        damage = {"damaged_messages": 0, "damaged_spans": 0, "damaged_bytes": 0, "spans": []}
        stores[ref.label] = entry | damage | {"unchecked": unchecked}
        segments += own
    return stores, segments


def _done(folder: Folder) -> dict[str, dict[str, Any]]:
    """Read the list of finished segments: signature and damaged spans of each."""
    out: dict[str, dict[str, Any]] = {}
    for name in folder.names(STATE):
        if name.endswith(".json"):
            out |= folder.read_json(f"{STATE}/{name}") or {}
    return {name: entry for name, entry in out.items() if entry}


def _mark(folder: Folder, segments: dict[str, dict[str, Any]]) -> None:
    """Add a file to the list. A later file overrides earlier ones; an empty entry means that a segment is not done."""
    numbers = [int(n[:8]) for n in folder.names(STATE) if n[:8].isdigit()]
    folder.write_json(f"{STATE}/{max(numbers, default=0) + 1:08d}.json", segments)


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
    folder: Folder,
    options: dict[str, str],
    batch: list[Segment],
    progress: Progress | None,
) -> dict[str, dict[str, Any]]:
    """Write the rows of a batch of segments to the output; return the list entry of each segment.

    The executors cannot reach all file systems themselves: to others than mounted ones, Spark writes.
    """
    mapper = spark_mapper(spark)
    entries = {s.name: {"signature": s.signature} | _passed_over(s, mapper, int(options["splitSize"])) for s in batch}
    options = {**options, "segments": json.dumps([s.name for s in batch])}
    if folder.local is None:
        frame = spark.read.format("rmqstore.commitlog").options(**options).load()
        with Watch(spark, progress):
            writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
            writer.partitionBy(*PARTITIONS).option("compression", "zstd").parquet(str(folder.path))
        return entries
    settings = {name.lower(): value for name, value in options.items()}
    how = message_options(settings, entry=False)
    with Watch(spark, progress):
        files = write_files(spark, folder.local, plan_messages(settings, how, "messages"), how)
    for segment in batch:
        folder.delete_matching(f"topic=*/day=*/segment={segment.name}")
    move_files(folder.local, files)
    folder.delete(STAGING)
    for segment in batch:
        own = [file for file in files if file.segment == segment.name]
        entries[segment.name]["messages"] = sum(file.messages for file in own), sum(file.damaged for file in own)
    return entries


def _passed_over(segment: Segment, mapper: Mapper, split_size: int) -> dict[str, Any]:
    try:
        found = passed_over(segment.stretch, mapper, live=segment.live, split_size=split_size)
    except OSError:  # a file that cannot be opened is reported as unchecked
        found = {"spans": 0, "bytes": 0, "first": []}
    return {"passed_over": found}


def read_export(spark: Any, output: str | Path) -> Any:
    """Return the exported messages as a DataFrame; topics that look like numbers stay text."""
    key = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "false")
    try:
        return spark.read.parquet(str(output))
    finally:
        spark.conf.set(key, before)


def _rows(
    spark: Any, output: str, folder: Folder, done: dict[str, dict[str, Any]], labels: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Count the messages of every store in the whole export, and the damaged ones among them.

    Segments that Spark wrote have no count in their entry (`done`); then all are counted in the files.
    """
    if all("messages" in entry for entry in done.values()):
        counts = {
            label: [e["messages"] for name, e in done.items() if name.startswith(digest_of(label))] for label in labels
        }
        return {label: (sum(n for n, _ in found), sum(d for _, d in found)) for label, found in counts.items()}
    from pyspark.sql import functions as f

    if not any(name.startswith("topic=") for name in folder.names()):
        return {}
    counted = read_export(spark, output).groupBy("store")
    counted = counted.agg(f.count(f.lit(1)).alias("n"), f.count_if(~f.col("crc_ok")).alias("damaged"))
    return {row["store"]: (int(row["n"]), int(row["damaged"])) for row in counted.collect()}
