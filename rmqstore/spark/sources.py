"""The data sources `rmqstore.*`: the driver plans, executors read.

Options of all sources (names are case-insensitive, values are text):
  path, paths     the argument of `load()`: a store, a list of stores, a glob, @FILE with a path in each line
  stores          instead of path, as JSON: {label: path, …} or [path, …]
  config          a broker.conf for all stores
  missing         for a path that is not a store and a file that cannot be opened: fail (default) or skip
  splitSize       bytes of a partition, such as 64m
Options of commitlog and dledger: what, body, properties, tags, crc, columns, topics, queues, since, until, from, to,
maxRate (bytes per second of each task that runs), fillers (true: also records that repairs put in the place of lost
messages).

`commitlog` and `dledger` can stream messages of stores that brokers write to: new records and files up to the last
good record. An offset is {label of the store: {log: global offset}}; Spark stores it. A record that is still being
written is not good yet and comes with the next batch. `dispatched` has the consume queue units that a broker would
write for the messages of a log, which `crosscheck` compares with the real ones, and `rebuild` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from rmqstore.checks.beside.config import check_config
from rmqstore.checks.problems.report import Findings
from rmqstore.errors import UsageError, reason
from rmqstore.files import pace
from rmqstore.files.config import batch_topics
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName, parse_queue_id, parse_queue_label
from rmqstore.messages.repaired import repaired_records
from rmqstore.repair.repaired_log import Redispatch
from rmqstore.scan.dispatch import BatchRow, DispatchedRows
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE
from rmqstore.texts import Text
from rmqstore.views.dump.messages import Log, logs_of
from rmqstore.views.dump.selection import Selection
from rmqstore.views.stores import Piece, StoreRef, log_pieces, opened, packed, refs_of_options, runs_of
from rmqstore.views.tables import (
    KEPT_FINDINGS,
    MessageOptions,
    ReadOptions,
    arrow_schema,
    findings_schema,
    index_schema,
    merged,
    message_columns,
    queue_pieces,
    read_findings,
    read_index,
    read_messages,
    read_units,
    segment_name,
    unit_schema,
)

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_BODIES = {"": "", "false": "", "none": "", "true": "plain", "plain": "plain", "raw": "raw"}
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Parse true or false. Errors: UsageError"""
    value = options.get(name, "").strip().lower()
    if not value:
        return default
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise UsageError(Text("{name}={value} is neither true nor false", name=name, value=value))


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """Parse a whole number. Errors: UsageError"""
    value = options.get(name, "").strip()
    try:
        return int(value) if value else default
    except ValueError:
        raise UsageError(Text("{name}={value} is not a number", name=name, value=value)) from None


def offset(options: Mapping[str, str], name: str) -> int | None:
    """Parse a whole number; None if the option is not given. Errors: UsageError"""
    return number(options, name, 0) if options.get(name, "").strip() else None


def size_of(options: Mapping[str, str], name: str, default: int) -> int:
    """Parse a size such as 65536, 64k, 256m or 1g into bytes. Errors: UsageError"""
    value = options.get(name, "").strip().lower().removesuffix("ib").removesuffix("b")
    if not value:
        return default
    digits, scale = (value[:-1], value[-1]) if value[-1] in _SCALE else (value, "")
    try:
        out = int(digits) * _SCALE[scale]
    except ValueError:
        raise UsageError(Text("{name}={options} is not a size", name=name, options=options[name])) from None
    if out < 0:
        raise UsageError(Text("{name}={options} is negative", name=name, options=options[name]))
    return out


def words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Parse comma-separated names."""
    return tuple(w.strip() for w in options.get(name, "").split(",") if w.strip())


def selection_of(options: Mapping[str, str]) -> Selection:
    """Parse the filters topics, queues (ids or TOPIC/ID), since and until (ms), from and to (offsets).

    Errors: UsageError
    """
    ids, pairs = set(), set()
    for text in words(options, "queues"):
        if name := parse_queue_label(text):
            pairs.add(name)
        elif (queue_id := parse_queue_id(text)) is not None:
            ids.add(queue_id)
        else:
            raise UsageError(Text("queues={text} is neither a queue id nor TOPIC/ID", text=text))
    return Selection(
        topics=frozenset((*words(options, "topics"), *words(options, "topic"))),
        queue_ids=frozenset(ids),
        queues=frozenset(pairs),
        since=offset(options, "since"),
        until=offset(options, "until"),
        start=offset(options, "from"),
        stop=offset(options, "to"),
    )


class Pieces(InputPartition):  # type: ignore[misc]  # PySpark has no types here
    """Pieces of files that one task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


class OneFile(InputPartition):  # type: ignore[misc]
    """One index file, or one store to verify."""

    def __init__(self, ref: StoreRef, path: Path) -> None:
        super().__init__(None)
        self.ref = ref
        self.path = path


_WHOLE = 1 << 62  # a piece size greater than any file


def spark_schema(schema: Any) -> Any:
    """Convert an Arrow schema to a Spark schema with the same types and order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def message_options(options: Mapping[str, str], *, entry: bool) -> ReadOptions:
    """Parse how messages are to be read. Errors: UsageError"""
    body = options.get("body", "").lower()
    if body not in _BODIES:
        raise UsageError(Text("body={body} must be one of false, raw, plain", body=body))
    message = MessageOptions(
        body=_BODIES[body],
        tags=flag(options, "tags", True),
        properties=flag(options, "properties", False),
        entry=entry,
        crc=flag(options, "crc", True),
        segment_bytes=size_of(options, "segmentbytes", 0),
        only=words(options, "columns"),
    )
    try:
        message_columns(message)
    except ValueError as e:
        raise UsageError(reason(e)) from None
    return ReadOptions(
        message=message,
        selection=replace(selection_of(options), fillers=flag(options, "fillers", False)),
        skip_unreadable=skips(options),
        damaged=flag(options, "damaged", True),
    )


def skips(options: Mapping[str, str]) -> bool:
    """Return whether to skip stores and files that cannot be opened. Errors: UsageError"""
    missing = options.get("missing", "fail").lower()
    if missing not in ("fail", "skip"):
        raise UsageError(Text("missing={missing} is neither fail nor skip", missing=missing))
    return missing == "skip"


class Reader(DataSourceReader):  # type: ignore[misc]
    """Base of the readers, which plan `partitions` and read the `batches` of each.

    `skip` stores and files that cannot be opened?
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.skip = skips(settings)

    def batches(self, partition: Any) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        raise NotImplementedError

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if type(partition) is not InputPartition:  # where a reader has planned none, Spark reads one of its own
            with pace.at_most(size_of(self.settings, "maxrate", 0)):
                yield from self.batches(partition)


class Source(DataSource):  # type: ignore[misc]
    """Base of all sources: `columns` returns the Arrow schema of the rows, `reads` is the class that reads them."""

    kind: ClassVar[str]
    columns: ClassVar[staticmethod[[], Any]]
    reads: ClassVar[type[Reader]]

    @classmethod
    def name(cls) -> str:
        return cls.kind

    def settings(self) -> dict[str, str]:
        """Return the options with lower-case names."""
        return {str(k).lower(): str(v) for k, v in dict(self.options).items()}

    def schema(self) -> Any:
        return spark_schema(self.columns())

    def reader(self, schema: Any) -> DataSourceReader:
        return self.reads(self.settings())


class CommitLogSource(Source):
    """`rmqstore.commitlog`: messages of commitlog and DLedger; `what` (messages, commitlog, dledger) limits them."""

    kind = "rmqstore.commitlog"
    entry = False
    what = "messages"

    def schema(self) -> Any:
        return spark_schema(arrow_schema(message_columns(message_options(self.settings(), entry=self.entry).message)))

    def reader(self, schema: Any) -> DataSourceReader:
        return MessageReader(self.settings(), entry=self.entry, what=self.what)

    def streamReader(self, schema: Any) -> Any:
        return GrowingLogReader(self.settings(), entry=self.entry, what=self.what)


class DLedgerSource(CommitLogSource):
    """`rmqstore.dledger`: DLedger entries with their messages."""

    kind = "rmqstore.dledger"
    entry = True
    what = "dledger"


def _logs_to_read(settings: Mapping[str, str], what: str) -> str:
    """Return which messages to read; `what` is the default. Errors: UsageError"""
    chosen = what if what == "dledger" else settings.get("what", what)
    if chosen not in ("messages", "commitlog", "dledger"):
        raise UsageError(Text("what={what} must be one of messages, commitlog, dledger", what=chosen))
    return chosen


class MessageReader(Reader):
    """Plans pieces of logs and reads messages."""

    def __init__(self, settings: Mapping[str, str], *, entry: bool, what: str) -> None:
        super().__init__(settings)
        self.options = message_options(settings, entry=entry)
        self.what = _logs_to_read(settings, what)

    def partitions(self) -> list[InputPartition]:
        return [Pieces(group) for group in plan_messages(self.settings, self.options, self.what)]

    def batches(self, partition: Pieces) -> Iterator[Any]:
        return read_messages(partition.pieces, self.options)


def plan_messages(settings: Mapping[str, str], options: ReadOptions, what: str) -> list[tuple[Piece, ...]]:
    """Return groups of pieces, one group per task."""
    size = size_of(settings, "splitsize", SPLIT_SIZE)
    low, high = offset(settings, "from"), offset(settings, "to")
    segments = frozenset(json.loads(settings["segments"])) if "segments" in settings else None
    segment_bytes = options.message.segment_bytes

    def pieces() -> Iterator[Piece]:
        for ref, store in opened(refs_of_options(settings), skip=options.skip_unreadable):
            repaired = repaired_records(store)
            for log in logs_of(store, what):
                for piece in log_pieces(ref.label, log, size, low=low, high=high):
                    segment = segments and segment_name(ref.label, log.name, piece.file.start, segment_bytes)
                    if segments is None or segment in segments:
                        yield replace(piece, repaired=repaired)

    return packed(pieces(), size)


def _batch_units(settings: Mapping[str, str]) -> bool:
    kind = settings.get("kind", "simple").lower()
    if kind not in ("simple", "batch"):
        raise UsageError(Text("kind={kind} is neither simple nor batch", kind=kind))
    return kind == "batch"


class UnitReader(Reader):
    """Plans pieces of consume queue files and reads units."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self.batch = _batch_units(settings)
        self.selection = selection_of(settings)

    def partitions(self) -> list[InputPartition]:
        size = size_of(self.settings, "splitsize", SPLIT_SIZE)
        snapshots: list[InputPartition] = []

        def pieces() -> Iterator[Piece]:
            for ref, store in opened(refs_of_options(self.settings), skip=self.skip):
                if store.files.derives:
                    snapshots.append(OneFile(ref, ref.path))
                else:
                    yield from self._pieces(ref, store, size)

        return [*(Pieces(group) for group in packed(pieces(), size)), *snapshots]

    def _pieces(self, ref: StoreRef, store: Store, size: int) -> Iterator[Piece]:
        return queue_pieces(ref.label, store, self.selection, size, batch_units=self.batch)

    def batches(self, partition: Pieces | OneFile) -> Iterator[Any]:
        if isinstance(partition, OneFile):  # its queues are derived by the process that reads them
            pieces: Iterable[Piece] = self._pieces(partition.ref, partition.ref.open(), _WHOLE)
        else:
            pieces = partition.pieces
        return read_units(pieces, batch_units=self.batch, skip_unreadable=self.skip)


class ConsumeQueueSource(Source):
    """`rmqstore.consumequeue`: units of consume queues (`kind`: simple, batch)."""

    kind = "rmqstore.consumequeue"
    reads = UnitReader

    def schema(self) -> Any:
        return spark_schema(unit_schema(batch_units=_batch_units(self.settings())))


class IndexReader(Reader):
    """Reads each index file, or all of those that are derived for a snapshot, in one task."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self.selection = selection_of(settings)

    def partitions(self) -> list[InputPartition]:
        return [
            OneFile(ref, path)
            for ref, store in opened(refs_of_options(self.settings), skip=self.skip)
            for path in ([ref.path] if store.files.derives else [entry.path for entry in store.index_files])
        ]

    def batches(self, partition: OneFile) -> Iterator[Any]:
        ref, paths = partition.ref, [partition.path]
        files: Files = LOCAL
        if partition.path == ref.path:
            store = ref.open()
            paths, files = [entry.path for entry in store.index_files], store.files
        for path in paths:
            if not files.exists(path):
                continue
            if not self.skip and not files.may_read(path):
                raise PermissionError(13, Text("Permission denied"), str(path))
            yield from read_index(ref.label, files, path, self.selection)


class IndexSource(Source):
    """`rmqstore.index`: entries of index files."""

    kind = "rmqstore.index"
    columns = staticmethod(index_schema)
    reads = IndexReader


class FindingsReader(Reader):
    """Verifies stores in executors."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self.quick = not flag(settings, "crc", True)
        self.keep = number(settings, "keep", KEPT_FINDINGS)

    def partitions(self) -> list[InputPartition]:
        return [OneFile(ref, ref.path) for ref, _ in opened(refs_of_options(self.settings), skip=self.skip)]

    def batches(self, partition: OneFile) -> Iterator[Any]:
        return read_findings(partition.ref, quick=self.quick, keep=self.keep)


class FindingsSource(Source):
    """`rmqstore.findings`: the findings of `verify`, one task per store; the job `verify` also splits large stores."""

    kind = "rmqstore.findings"
    columns = staticmethod(findings_schema)
    reads = FindingsReader


SOURCES = (CommitLogSource, ConsumeQueueSource, DLedgerSource, IndexSource, FindingsSource)


Offsets = dict[str, dict[str, int]]


class GrowingLogReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark has no types here
    """Reads micro-batches of messages from growing stores.

    Options: startingOffset (earliest, latest), maxBytesPerTrigger (per log; 0 for no limit), splitSize.
    """

    def __init__(self, settings: Mapping[str, str], *, entry: bool, what: str) -> None:
        self.settings = dict(settings)
        self.options = message_options(settings, entry=entry)
        self.what = _logs_to_read(settings, what)
        self.starting = settings.get("startingoffset", "earliest").lower()
        if self.starting not in ("earliest", "latest"):
            raise UsageError(Text("startingOffset={starting} is neither earliest nor latest", starting=self.starting))
        self.most = size_of(settings, "maxbytespertrigger", 0)
        self.known: Offsets = {}

    def _logs(self) -> Iterator[tuple[str, Log]]:
        for ref, store in opened(refs_of_options(self.settings), skip=True):
            yield from ((ref.label, log) for log in logs_of(store, self.what))

    def initialOffset(self) -> Offsets:
        """Return where a new query begins."""
        out: Offsets = {}
        for label, log in self._logs():
            at = log.queue.start if self.starting == "earliest" else end_of(log, None)
            out.setdefault(label, {})[log.name] = at
        return out

    def latestOffset(self, start: Offsets | None = None, limit: object = None) -> Offsets:
        """Return where the next batch ends; never before its start, even if a log was truncated."""
        out: Offsets = {label: dict(logs) for label, logs in (start or {}).items()}
        for label, log in self._logs():
            known = self.known.get(label, {}).get(log.name)
            begun = out.get(label, {}).get(log.name, known)
            if begun is None and start is not None:
                begun = log.queue.start
            end = end_of(log, begun, self.most if start is not None else 0)
            out.setdefault(label, {})[log.name] = max(end, begun or 0)
        self.known = out
        return out

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Split the bytes between two offsets as in a batch load."""
        size = size_of(self.settings, "splitsize", SPLIT_SIZE)
        pieces: list[Piece] = []
        for label, log in self._logs():
            begin, stop = (offsets.get(label, {}).get(log.name, 0) for offsets in (start, end))
            pieces += pieces_between(label, log, begin, stop, size)
        return [Pieces(group) for group in packed(pieces, size)]

    def read(self, partition: Pieces) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        return read_messages(partition.pieces, self.options)

    def commit(self, end: Offsets) -> None:
        """Do nothing: Spark stores the offsets."""


def pieces_between(label: str, log: Log, start: int, stop: int, size: int) -> Iterator[Piece]:
    """Yield the pieces between two record boundaries of a log, given as global offsets."""
    for file in log.queue.files:
        low, high = max(start - file.start, 0), min(stop - file.start, file.file_size)
        at = low
        while at < high:
            end = min(at + max(size, 4096), high)
            yield Piece(label, log.name, log.body_offset, file, at, end, exact=at == low)
            at = end


def end_of(log: Log, start: int | None, most: int = 0) -> int:
    """Return the end of the last good record at or after the record boundary `start`, as a global offset.

    `start` None means the last file with data. `most` limits the bytes to read, 0 for no limit. Errors: none.
    """
    files = log.queue.files
    if start is None:
        start = next((f.start for f in reversed(files) if any(f.read_at(8, 0))), log.queue.start)
    end = start
    for file in files:
        if file.stop <= start:
            continue
        if most and end > start and file.start >= start + most:
            break
        at = max(start - file.start, 0)
        stop = file.file_size if not most else min(file.file_size, max(at + 1, start + most - file.start))
        end = max(end, _good_until(file, log.body_offset, at, stop))
    return end


def _good_until(file: MappedFile, body_offset: int, at: int, stop: int) -> int:
    end = -1
    try:
        for run in scan_file(
            file, start=at, stop=stop, body_offset=body_offset, exact=True, options=ScanOptions(chunk=4 << 20)
        ):
            if run.kind is Kind.RECORDS:
                end = run.stop
    except OSError:
        return end
    return end


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


class Gatherer:
    """Turns the rows of a dispatcher into Arrow batches."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.schema = dispatched_schema()
        self.ready: list[Any] = []

    def rows(self, names: list[QueueName], rows: DispatchedRows) -> None:
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

    def batch(self, name: QueueName, row: BatchRow) -> None:
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
            for log in logs_of(store):
                groups = packed(log_pieces(ref.label, log, size), size)
                out += [StorePieces(ref, batch, group) for group in groups]
        return out

    def batches(self, partition: StorePieces) -> Iterator[Any]:
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
    sink = Gatherer(ref.label)
    dispatcher = Redispatch(ref.open(), sink, batch)
    for piece in pieces:
        try:
            for run in runs_of(piece, options):
                if run.kind is Kind.RECORDS and run.columns is not None:
                    dispatcher.columns(run.columns)
                    yield from sink.take()
        except FileNotFoundError:
            continue
        except OSError:
            if not skip:
                raise
