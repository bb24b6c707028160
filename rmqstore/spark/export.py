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
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from rmqstore.errors import OutputExists, RmqStoreError, UsageError
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import Store
from rmqstore.messages.repaired import repaired_records
from rmqstore.spark.jobs import JobResult, Paths, Progress, Watch, finish, lost_store, store_around
from rmqstore.spark.output_files import PARTITIONS, STAGING, Folder, PieceResult, move_files, read_pieces
from rmqstore.spark.sources import end_of, message_options
from rmqstore.texts import Text
from rmqstore.views.dump.messages import Skipped, logs_of
from rmqstore.views.stores import Piece, StoreRef, log_pieces, open_each, packed, store_refs, unreadable_files
from rmqstore.views.tables import MessageOptions, digest_of, segment_name

STATE = "_rmqstore"
_DAMAGE = ("damaged_messages", "damaged_spans")
_LISTED = 20  # spans


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What to export, and in which portions.

    `body`: "" for none, "raw" as stored, "plain" decompressed. `since`, `until`: ms. `fillers`: include records that
    repairs put in the place of lost messages. `segment_bytes` of the log share a
    directory, `batch_bytes` a Spark job, `split_bytes` a task.
    """

    body: str = ""
    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    fillers: bool = False
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
        if self.fillers:  # an export without them continues one of an earlier version
            options["fillers"] = "true"
        return options | {name: str(value) for name, value in times.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A range of whole files of one log; `signature` changes with the files.

    `before`: the file before them. `followed`: good records follow in later segments. `live`: a broker writes to the
    store.
    """

    name: str
    ref: StoreRef
    bytes: int
    signature: str
    pieces: tuple[Piece, ...]
    before: MappedFile | None
    followed: bool
    live: bool


def segments_of(ref: StoreRef, store: Store, job: ExportJob, settings: str = "") -> Iterator[LogSegment]:
    """Yield the segments of a store's logs in address order."""
    live, repaired = store.lock_state().held, repaired_records(store)
    for log in logs_of(store):
        end = end_of(log, None)
        before = None
        pieces = (replace(piece, repaired=repaired) for piece in log_pieces(ref.label, log, job.split_bytes))
        for _, group in groupby(pieces, lambda piece: piece.file.start // job.segment_bytes):
            own = tuple(group)
            files = [piece.file for piece in own if piece.start == 0]
            last = files[-1].stop >= end > files[0].start
            text = json.dumps([[(f.name, f.length, f.mtime_ns) for f in files], end if last else 0, settings])
            signature = hashlib.sha256(text.encode()).hexdigest()[:16]
            size = sum(f.length for f in files)
            name = segment_name(ref.label, log.name, files[0].start, job.segment_bytes)
            yield LogSegment(name, ref, size, signature, own, before, end > files[-1].stop, live)
            before = files[-1]


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
        raise UsageError(
            Text("the output {output} lies inside the store {path}", output=output, path=around.path),
            Text("write it elsewhere"),
        )
    folder = Folder(spark, str(output))
    names = folder.names()
    if names and STATE not in names:
        raise OutputExists(
            Text("{output} already exists and is not an export", output=output), Text("choose another output")
        )
    job = job or ExportJob()
    options = job.options(config)
    settings = json.dumps({k: v for k, v in options.items() if k not in ("splitSize", "missing")}, sort_keys=True)
    stores, segments = _plan(refs, job, settings)
    done = _done(folder)
    todo = [s for own in segments.values() for s in own if done.get(s.name, {}).get("signature") != s.signature]
    _clear(folder, names, [s.name for s in todo], done)
    with Watch(spark, progress):
        for batch in _batches(todo, job.batch_bytes):
            written = _write(spark, folder, options, batch)
            _mark(folder, written)
            done |= written
    new = {s.name for s in todo}
    for label, own in segments.items():
        stores[label]["segments_written"] = sum(s.name in new for s in own)
        stores[label] |= _counts(label, [done[s.name] for s in own], done)
        stores[label]["clean"] = not any(stores[label][name] for name in (*_DAMAGE, "unchecked"))
    sums = {name: sum(s.get(name, 0) for s in stores.values()) for name in _DAMAGE}
    more = {"output": str(output), "segments": sum(map(len, segments.values())), "written": len(todo)} | sums
    unread = any(s.get("unchecked") for s in stores.values())
    result = JobResult("export", list(stores.values()), more=more)
    return finish(result, started, [1] if any(sums.values()) else [4] if unread else [])


def _plan(
    refs: list[StoreRef], job: ExportJob, settings: str
) -> tuple[dict[str, dict[str, Any]], dict[str, list[LogSegment]]]:
    """Return the result entries of the stores, without counts, and the segments of those that can be read."""
    stores: dict[str, dict[str, Any]] = {}
    segments: dict[str, list[LogSegment]] = {}
    for ref, found in open_each(refs):
        try:
            if not isinstance(found, Store):
                raise found
            own, unchecked = list(segments_of(ref, found, job, settings)), unreadable_files(found)
        except (RmqStoreError, OSError) as e:
            stores[ref.label] = lost_store(ref, e)
            continue
        segments[ref.label] = own
        stores[ref.label] = {"store": ref.label, "clean": True, "segments": len(own), "unchecked": unchecked}
    return stores, segments


def _clear(folder: Folder, names: list[str], todo: list[str], done: Container[str]) -> None:
    """Remove leftovers of a killed run, and all directories of segments to be written: some may not be replaced."""
    for name in names:
        if name.startswith((".spark-staging", STAGING)):
            folder.delete(name)
    old: dict[str, dict[str, Any]] = {name: {} for name in todo if name in done}
    if old:
        _mark(folder, old)
    if todo:
        folder.delete_matching(f"topic=*/day=*/segment={{{','.join(todo)}}}")


def _counts(label: str, own: list[dict[str, Any]], done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of all exported messages, and the damaged spans of the segments (`own`) still in the store."""
    exported = [entry for name, entry in done.items() if name.startswith(digest_of(label))]
    out: dict[str, Any] = {n: sum(e[n] for e in exported) for n in ("messages", "damaged_messages")}
    out |= {n: sum(e[n] for e in own) for n in ("damaged_spans", "damaged_bytes")}
    return out | {"spans": [span for entry in own for span in entry["spans"]][:_LISTED]}


def _done(folder: Folder) -> dict[str, dict[str, Any]]:
    """Read the list of finished segments: signature, numbers of messages and damaged spans of each."""
    out: dict[str, dict[str, Any]] = {}
    for name in folder.names(STATE):
        if name.endswith(".json"):
            out |= folder.read_json(f"{STATE}/{name}") or {}
    return {name: entry for name, entry in out.items() if "spans" in entry}


def _mark(folder: Folder, segments: dict[str, dict[str, Any]]) -> None:
    """Add a file to the list. A later file overrides earlier ones; an empty entry means that a segment is not done."""
    numbers = [int(n[:8]) for n in folder.names(STATE) if n[:8].isdigit()]
    folder.write_json(f"{STATE}/{max(numbers, default=0) + 1:08d}.json", segments)


def _batches(segments: list[LogSegment], size: int) -> Iterator[list[LogSegment]]:
    batch: list[LogSegment] = []
    for segment in segments:
        if batch and sum(s.bytes for s in batch) + segment.bytes > size:
            yield batch
            batch = []
        batch.append(segment)
    if batch:
        yield batch


def _write(spark: Any, folder: Folder, options: dict[str, str], batch: list[LogSegment]) -> dict[str, dict[str, Any]]:
    """Write the rows of a batch of segments to the output; return the list entry of each segment.

    The executors cannot reach all file systems themselves: to others than mounted ones, Spark writes, and reads again
    what has been counted.
    """
    how = message_options({name.lower(): value for name, value in options.items()}, entry=False)
    if folder.local is None:
        how = replace(how, message=MessageOptions(only=("crc_ok",)))
    tasks = packed((piece for segment in batch for piece in segment.pieces), int(options["splitSize"]))
    reports, files = read_pieces(spark, tasks, how, {s.ref.label for s in batch if s.live}, folder.local)
    entries = {segment.name: _entry(segment, reports) for segment in batch}
    if folder.local is not None:
        move_files(folder.local, files)
        folder.delete(STAGING)
        return entries
    some = {"stores": json.dumps({s.ref.label: str(s.ref.path) for s in batch}), "segments": json.dumps([*entries])}
    writer = spark.read.format("rmqstore.commitlog").options(**options, **some).load().write.mode("overwrite")
    writer = writer.option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
    writer.partitionBy(*PARTITIONS).parquet(str(folder.path))
    return entries


def _entry(segment: LogSegment, reports: Iterator[PieceResult]) -> dict[str, Any]:
    """Join the reports on a segment's pieces, which come next; count damaged spans as `rmqstore du` does."""
    damage, messages, damaged = Skipped(live=segment.live), 0, 0
    if segment.before is not None:
        damage.at_file(segment.pieces[0].queue, segment.before)
    for piece in segment.pieces:
        report = next(reports)
        damage.at_file(piece.queue, piece.file)
        for run, has_row in report.head:
            damage.feed(piece.queue, run, has_row)
        damage.take(report.rest)
        messages, damaged = messages + report.messages, damaged + report.damaged
    damage.close(records_follow=segment.followed)
    rows = {"signature": segment.signature, "messages": messages, "damaged_messages": damaged}
    spans = [list(span) for span in damage.spans[:_LISTED]]
    return rows | {"damaged_spans": damage.count, "damaged_bytes": damage.bytes, "spans": spans}
