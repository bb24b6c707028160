"""Streams messages of stores that brokers write to: new records and files up to the last good record.

An offset is {label of the store: {log: global offset}}; Spark stores it. A record that is still being written is not
good yet and comes with the next batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqstore.errors import UsageError
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE
from rmqstore.spark.sources.options import size_of
from rmqstore.spark.sources.partitions import Pieces
from rmqstore.texts import Text
from rmqstore.views.stores import Piece, logs_of, opened, packed, refs_of_options
from rmqstore.views.tables import ReadOptions, read_messages

Offsets = dict[str, dict[str, int]]


class GrowingLogReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark has no types here
    """Reads micro-batches of messages from growing stores.

    Options: startingOffset (earliest, latest), maxBytesPerTrigger (per log; 0 for no limit), splitSize.
    """

    def __init__(self, settings: Mapping[str, str], options: ReadOptions, what: str) -> None:
        self.settings = dict(settings)
        self.options = options
        self.what = what if what == "dledger" else settings.get("what", what)
        self.starting = settings.get("startingoffset", "earliest").lower()
        if self.starting not in ("earliest", "latest"):
            raise UsageError(Text("startingOffset={starting} is neither earliest nor latest", starting=self.starting))
        self.most = size_of(settings, "maxbytespertrigger", 0)
        self.known: Offsets = {}

    def _logs(self) -> Iterator[tuple[str, str, MappedFileQueue, int]]:
        for ref, store in opened(refs_of_options(self.settings), skip=True):
            for name, queue, body_offset in logs_of(store, self.what):
                yield ref.label, name, queue, body_offset

    def initialOffset(self) -> Offsets:
        """Return where a new query begins."""
        out: Offsets = {}
        for label, name, queue, body_offset in self._logs():
            at = queue.start if self.starting == "earliest" else end_of(queue, body_offset, None)
            out.setdefault(label, {})[name] = at
        return out

    def latestOffset(self, start: Offsets | None = None, limit: object = None) -> Offsets:
        """Return where the next batch ends; never before its start, even if a log was truncated."""
        out: Offsets = {label: dict(logs) for label, logs in (start or {}).items()}
        for label, name, queue, body_offset in self._logs():
            known = self.known.get(label, {}).get(name)
            begun = out.get(label, {}).get(name, known)
            if begun is None and start is not None:
                begun = queue.start
            end = end_of(queue, body_offset, begun, self.most if start is not None else 0)
            out.setdefault(label, {})[name] = max(end, begun or 0)
        self.known = out
        return out

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Split the bytes between two offsets as in a batch load."""
        size = size_of(self.settings, "splitsize", SPLIT_SIZE)
        pieces = []
        for label, name, queue, body_offset in self._logs():
            stop = end.get(label, {}).get(name, 0)
            pieces += list(
                pieces_between(label, name, queue, body_offset, start.get(label, {}).get(name, 0), stop, size)
            )
        return [Pieces(group) for group in packed(pieces, size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        return read_messages(getattr(partition, "pieces", ()), self.options)

    def commit(self, end: Offsets) -> None:
        """Do nothing: Spark stores the offsets."""


def pieces_between(
    label: str, name: str, queue: MappedFileQueue, body_offset: int, start: int, stop: int, size: int
) -> Iterator[Piece]:
    """Yield the pieces between two record boundaries of a log, given as global offsets."""
    for file in queue.files:
        low, high = max(start - file.start, 0), min(stop - file.start, file.file_size)
        at = low
        while at < high:
            end = min(at + max(size, 4096), high)
            yield Piece(label, name, body_offset, file, at, end, exact=at == low)
            at = end


def end_of(queue: MappedFileQueue, body_offset: int, start: int | None, most: int = 0) -> int:
    """Return the end of the last good record at or after the record boundary `start`, as a global offset.

    `start` None means the last file with data. `most` limits the bytes to read, 0 for no limit. Errors: none.
    """
    files = queue.files
    if start is None:
        start = next((f.start for f in reversed(files) if any(f.read_at(8, 0))), queue.start)
    end = start
    for file in files:
        if file.stop <= start:
            continue
        if most and end > start and file.start >= start + most:
            break
        at = max(start - file.start, 0)
        stop = file.file_size if not most else min(file.file_size, max(at + 1, start + most - file.start))
        end = max(end, _good_until(file, body_offset, at, stop))
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
