"""The data sources `rmqstore.*`: their options; the driver plans, executors read.

Options of all sources (names are case-insensitive):
  path, paths     the argument of `load()`: a store, a list of stores, a glob, @FILE with a path in each line
  stores          instead of path, as JSON: {label: path, …} or [path, …]
  config          a broker.conf for all stores
  missing         for a path that is not a store and a file that cannot be opened: fail (default) or skip
  splitSize       bytes of a partition, such as 64m
Options of commitlog and dledger: what, body, properties, tags, crc, columns, topics, queues, since, until, from, to,
maxRate, fillers (true: also records that repairs put in the place of lost messages).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmqstore.checks.filler_notes import repaired_records
from rmqstore.errors import UsageError
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.store import Store
from rmqstore.scan.workers import SPLIT_SIZE
from rmqstore.spark.sources.options import flag, number, offset, selection_of, size_of, words
from rmqstore.spark.sources.partitions import OneFile, Pieces
from rmqstore.texts import Text
from rmqstore.views.stores import Piece, StoreRef, log_pieces, logs_of, opened, packed, refs_of_options
from rmqstore.views.tables import (
    KEPT_FINDINGS,
    MessageOptions,
    ReadOptions,
    arrow_schema,
    findings_schema,
    index_schema,
    message_columns,
    queue_pieces,
    read_findings,
    read_index,
    read_messages,
    read_units,
    segment_name,
    unit_schema,
)

_WHOLE = 1 << 62  # a piece size greater than any file


def spark_schema(schema: Any) -> Any:
    """Convert an Arrow schema to a Spark schema with the same types and order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def message_options(options: Mapping[str, str], *, entry: bool) -> ReadOptions:
    """Parse how messages are to be read. Errors: UsageError"""
    body = options.get("body", "false").lower()
    if body not in ("false", "true", "raw", "plain", "", "none"):
        raise UsageError(Text("body={body} must be one of false, raw, plain", body=body))
    message = MessageOptions(
        body={"true": "plain", "plain": "plain", "raw": "raw"}.get(body, ""),
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
        raise UsageError(str(e)) from None
    return ReadOptions(
        message=message,
        selection=replace(selection_of(options), fillers=flag(options, "fillers", False)),
        max_rate=size_of(options, "maxrate", 0),
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
    """Base of the readers: `skip` stores and files that cannot be opened?"""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.skip = skips(settings)


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
        from rmqstore.spark.sources.streaming import GrowingLogReader

        settings = self.settings()
        return GrowingLogReader(settings, message_options(settings, entry=self.entry), self.what)


class DLedgerSource(CommitLogSource):
    """`rmqstore.dledger`: DLedger entries with their messages."""

    kind = "rmqstore.dledger"
    entry = True
    what = "dledger"


class MessageReader(DataSourceReader):  # type: ignore[misc]
    """Plans pieces of logs and reads messages."""

    def __init__(self, settings: Mapping[str, str], *, entry: bool, what: str) -> None:
        self.settings = dict(settings)
        self.options = message_options(settings, entry=entry)
        self.what = what if what == "dledger" else settings.get("what", what)
        if self.what not in ("messages", "commitlog", "dledger"):
            raise UsageError(Text("what={what} must be one of messages, commitlog, dledger", what=self.what))

    def partitions(self) -> list[InputPartition]:
        return [Pieces(group) for group in plan_messages(self.settings, self.options, self.what)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_messages(getattr(partition, "pieces", ()), self.options)


def plan_messages(settings: Mapping[str, str], options: ReadOptions, what: str) -> list[tuple[Piece, ...]]:
    """Return groups of pieces, one group per task."""
    size = size_of(settings, "splitsize", SPLIT_SIZE)
    low, high = offset(settings, "from"), offset(settings, "to")
    segments = frozenset(json.loads(settings["segments"])) if "segments" in settings else None
    segment_bytes = options.message.segment_bytes

    def pieces() -> Iterator[Piece]:
        for ref, store in opened(refs_of_options(settings), skip=options.skip_unreadable):
            repaired = repaired_records(store)
            for name, queue, body_offset in logs_of(store, what):
                for piece in log_pieces(ref.label, name, queue, body_offset, size, low=low, high=high):
                    segment = segments and segment_name(ref.label, name, piece.file.start, segment_bytes)
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

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, OneFile):  # its queues are derived by the process that reads them
            pieces: Iterable[Piece] = self._pieces(partition.ref, partition.ref.open(), _WHOLE)
        else:
            pieces = getattr(partition, "pieces", ())
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

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, OneFile):
            return
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

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, OneFile):
            return iter(())
        return read_findings(partition.ref, quick=self.quick, keep=self.keep)


class FindingsSource(Source):
    """`rmqstore.findings`: the findings of `verify`, one task per store; the job `verify` also splits large stores."""

    kind = "rmqstore.findings"
    columns = staticmethod(findings_schema)
    reads = FindingsReader


SOURCES = (CommitLogSource, ConsumeQueueSource, DLedgerSource, IndexSource, FindingsSource)
