"""A new store from exported messages: built beside its place, restartable, visible all at once.

While it is being built, the store is in `.NAME.importing` beside its final place. Started again with the same files and
settings, an import goes on behind the last message that got there; every row of an export is exactly one record.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqstore.append.files.disk import make_directories, replace_file, sync_directory
from rmqstore.append.files.flush import FlushPolicy
from rmqstore.append.messages.encoder import NewMessage
from rmqstore.append.messages.exchange import Row, message_of
from rmqstore.append.store.message_store import MessageStore, StoreOptions
from rmqstore.errors import BadRow, MessageRefused, NotReadable, OutputExists, Refused, UsageError
from rmqstore.files.mapped_file_queue import MappedFile as FileToRead
from rmqstore.formats.message import INNER_BATCH
from rmqstore.formats.properties import is_lmq
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions

csv.field_size_limit(1 << 28)
BATCH = 500
MAX_LINE = 64 << 20


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What becomes of the rows.

    `renumber` gives queues new offsets from 0 on; else rows must continue their queues. `topic_map` renames topics;
    `keep_timestamps` False stamps messages with the clock.
    """

    store: StoreOptions = field(default_factory=StoreOptions)
    renumber: bool = False
    keep_timestamps: bool = True
    topic_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: messages in the new store, how many of them were there from a run before, per queue."""

    messages: int
    resumed: int
    queues: Mapping[str, int]


def rows_of(path: Path) -> Iterator[tuple[str, Row]]:
    """(where, row) of an export file: `.ndjson`, `.csv` or `.parquet`, by its name.

    Errors: BadRow with the line, NotReadable, UsageError for another kind of file.
    """
    kind = path.suffix.lower()
    reader = {".ndjson": _ndjson, ".jsonl": _ndjson, ".csv": _csv, ".parquet": _parquet}.get(kind)
    if reader is None:
        raise UsageError(f"{path}: unknown type; give a .ndjson, .csv or .parquet of `rmqstore export`, or a store")
    try:
        yield from reader(path)
    except OSError as error:
        raise NotReadable(f"{path}: {error.strerror or error}") from error


def _ndjson(path: Path) -> Iterator[tuple[str, Row]]:
    import orjson

    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE):
            number += 1
            where = f"{path}:{number}"
            if not line.endswith(b"\n") and len(line) == MAX_LINE:
                raise BadRow(f"{where}: a line of more than {MAX_LINE} bytes")
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                cut = "; the file ends in the middle of it" if not line.endswith(b"\n") else ""
                raise BadRow(f"{where}: no JSON: {error}{cut}") from error
            if not isinstance(row, dict):
                raise BadRow(f"{where}: no JSON object")
            yield where, row


def _csv(path: Path) -> Iterator[tuple[str, Row]]:
    import orjson

    with path.open("rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        reader = csv.DictReader(text, strict=True)
        try:
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    raise BadRow(f"{where}: not the number of fields that the heading has")
                out: Row = {name: value for name, value in row.items() if value != "" or name == "body_base64"}
                if out.get("properties"):
                    try:
                        out["properties"] = orjson.loads(out["properties"])
                    except orjson.JSONDecodeError as error:
                        raise BadRow(f"{where}: properties are not JSON: {error}") from error
                if "last_separator" in out:
                    out["last_separator"] = out["last_separator"].lower() != "false"
                yield where, out
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRow(f"{path}:{reader.line_num}: {error}") from error


def _parquet(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow", "pip install 'rmqstore[arrow]'") from error
    import orjson

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096):
                times = [i for i, f in enumerate(batch.schema) if pa.types.is_timestamp(f.type)]
                for i in times:
                    batch = batch.set_column(i, batch.schema.names[i], batch.column(i).cast(pa.int64()))
                for row in batch.to_pylist():
                    number += 1
                    where = f"{path}: row {number}"
                    out = {name: value for name, value in row.items() if value is not None}
                    if isinstance(out.get("properties"), list):
                        out["properties"] = dict(out["properties"])
                    if isinstance(out.get("properties"), str):
                        out["properties"] = orjson.loads(out["properties"])
                    yield where, out
    except (pa.ArrowException, orjson.JSONDecodeError) as error:
        raise BadRow(f"{path}: row {number + 1}: {error}") from error


def fingerprint(sources: Iterable[Path], options: ImportOptions) -> str:
    """Short name of exactly this import: files by name, size and time; settings."""
    parts: list[Any] = []
    for path in sources:
        try:
            status = path.stat()
        except OSError as error:
            raise NotReadable(f"{path}: {error.strerror or error}") from error
        parts.append([str(path.absolute()), status.st_size, status.st_mtime_ns])
    flushless = replace(options.store, flush=FlushPolicy.ASYNC)
    parts.append(repr(flushless))
    parts.append([options.renumber, options.keep_timestamps, sorted(options.topic_map.items())])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def building_of(output: Path) -> Path:
    """Where a store is built before it is renamed to `output`; `NAME.json` beside it says by which import."""
    return output.absolute().with_name(f".{output.name}.importing")


def import_messages(
    rows: Iterator[tuple[str, Row]],
    output: Path,
    options: ImportOptions,
    mark: str,
    *,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Build the store; `mark` is the import's `fingerprint`.

    Errors: OutputExists; BadRow, MessageRefused with file and line (nothing stays: the rows, or the options, have to
    change, and that is another import); Refused when something else is being built there; NoSpace, StoreIsLive.
    """
    if output.exists() or output.is_symlink():
        raise OutputExists(f"{output} already exists")
    first = list(itertools.islice(rows, 1))
    for where, row in first:  # of what cannot be read at all nothing is begun
        message_of(row, where)
    rows = itertools.chain(first, rows)
    make_directories(output.absolute().parent)
    building = building_of(output)
    state = building.with_name(f"{building.name}.json")
    if building.is_dir() and any(building.iterdir()):
        _refuse_other(building, state, mark)
        store = MessageStore.open(building, options.store)
        done = _count(store)
    else:
        replace_file(state, json.dumps({"import": mark}).encode())
        store = MessageStore.create(building, options.store)
        done = 0
    try:
        total = _append(store, rows, options, done, progress)
    except (BadRow, MessageRefused):
        _stop(store)
        shutil.rmtree(building, ignore_errors=True)
        state.unlink(missing_ok=True)
        raise
    except BaseException:
        _stop(store)
        raise
    store.close()
    queues = _queues(store)
    _write_topics(building, queues, options.store.dispatch.batch_topics)
    try:
        building.rename(output)
    except OSError as error:
        raise OutputExists(f"{output} appeared meanwhile", f"the store is in {building}") from error
    state.unlink(missing_ok=True)
    sync_directory(output.absolute().parent)
    return Imported(total, done, queues)


def _stop(store: MessageStore) -> None:
    """Leave a store that can be gone on with; nobody sees it yet."""
    try:
        store.close()
    except Exception:  # noqa: BLE001  # the first error is the one to be told
        store.crash()


def _refuse_other(building: Path, state: Path, mark: str) -> None:
    """Errors: Refused when the directory there is not the unfinished work of this import."""
    try:
        found = json.loads(state.read_bytes())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("import") != mark:
        raise Refused(
            f"{building} is an unfinished import of other files, or with other settings",
            "finish that one with its own command line, or remove it",
        )


def _count(store: MessageStore) -> int:
    """Records in a log that was just recovered."""
    count = 0
    end = store.log.queue.max_offset
    for file in store.log.queue.files:
        reading = FileToRead(file.path, file.start, file.file_size, file.file_size)
        for run in scan_file(reading, lead=store.log.lead, options=ScanOptions(crc=False)):
            if run.kind is Kind.RECORDS and run.start < end:
                count += run.count
    return count


def _append(
    store: MessageStore,
    rows: Iterator[tuple[str, Row]],
    options: ImportOptions,
    done: int,
    progress: Callable[[int], None] | None,
) -> int:
    total = 0
    batch: list[NewMessage] = []
    places: list[str] = []

    def put() -> None:
        before = store.appended
        try:
            store.put_many(batch)
        except MessageRefused as error:
            place = places[min(store.appended - before, len(places) - 1)]
            raise MessageRefused(f"{place}: {error.message}", error.advice) from error
        batch.clear()
        places.clear()
        if progress is not None:
            progress(total)

    for where, row in rows:
        total += 1
        if total <= done:
            continue
        message = message_of(row, where)
        renamed = options.topic_map.get(message.topic)
        if renamed is not None:
            message.topic, message.version = renamed, None
        if message.sys_flag & INNER_BATCH and message.topic not in options.store.dispatch.batch_topics:
            reason = f"{where}: a batch of messages in one record, and {message.topic} is not known for such"
            raise MessageRefused(reason, f"add --batch-topic {message.topic} (its queue.type is BatchCQ)")
        if options.renumber:
            message.queue_offset = None
        if not options.keep_timestamps:
            message.store_timestamp = 0
        batch.append(message)
        places.append(where)
        if len(batch) >= BATCH:
            put()
    put()
    return total


def _queues(store: MessageStore) -> dict[str, int]:
    return {
        f"{state.topic}/{state.queue_id}": state.next_offset
        for state in sorted(store.dispatcher.queues.values(), key=lambda s: (s.topic, s.queue_id))
        if state.started
    }


def _write_topics(root: Path, queues: Mapping[str, int], batch_topics: frozenset[str]) -> None:
    """config/topics.json with every topic, so that a broker serves what is in the store."""
    numbers: dict[str, int] = {}
    for name in queues:
        topic, _, queue_id = name.rpartition("/")
        if is_lmq(topic):
            continue
        numbers[topic] = max(numbers.get(topic, 0), int(queue_id) + 1)
    table = {
        topic: {
            "attributes": {"queue.type": "BatchCQ"} if topic in batch_topics else {},
            "order": False,
            "perm": 6,
            "readQueueNums": count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": count,
        }
        for topic, count in numbers.items()
    }
    version = {"counter": len(table), "stateVersion": 0, "timestamp": 0}
    text = json.dumps({"dataVersion": version, "topicConfigTable": table}, indent="\t", ensure_ascii=False)
    replace_file(root / "config" / "topics.json", text.encode("utf-8", "surrogatepass"))
