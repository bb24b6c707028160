"""Files that jobs write: Parquet files of messages, by the executors, and small files on the file system of the output.

Spark's own writer takes about ten times as long: it converts every value to a row, and sorts the rows. Here, a task
reads pieces of a log, and writes one file for each topic, day and segment to a staging directory. After the last task,
the driver moves the files of the tasks that succeeded to their places, so that a task that ran twice counts once.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmqstore.files.disk import explained
from rmqstore.files.private import create_private, make_private_directories
from rmqstore.messages.arrow import parquet_options
from rmqstore.scan.tiling import Run
from rmqstore.views.dump.messages import WRONG_CRC, Skipped
from rmqstore.views.stores import Piece
from rmqstore.views.tables import ReadOptions, read_messages

STAGING = ".rmqstore-staging"
PARTITIONS = ("topic", "day", "segment")
_SIZE = 64 << 20  # bytes of the rows that a task holds until it writes them
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class PieceResult:
    """What a task found in one piece of a log: how many messages, how many damaged ones, and damaged spans.

    `head` are the runs up to the first record: whether zeros among them are damage depends on the pieces before.
    `rest` is the damage after them. So a report takes a few kilobytes, no matter how much is damaged.
    """

    def __init__(self, *, live: bool) -> None:
        self.head: list[tuple[Run, bool]] = []
        self.rest = Skipped(live=live)
        self.messages = self.damaged = 0

    def read(self, piece: Piece, options: ReadOptions) -> Iterator[Any]:
        """Yield the messages of the piece as batches."""
        for batch in read_messages([piece], options, self.see):
            self.messages += batch.num_rows
            self.damaged += batch.column("crc_ok").false_count
            yield batch

    def see(self, queue: str, run: Run, _: bool) -> None:
        """Add the next run. A record with a wrong CRC is a damaged message, every other fault a damaged span."""
        has_row = run.cause in WRONG_CRC
        if self.head and self.head[-1][0].count:
            self.rest.feed(queue, run, has_row)
        else:
            self.head.append((replace(run, columns=None), has_row))


def read_pieces(
    spark: Any, tasks: Sequence[tuple[Piece, ...]], options: ReadOptions, live: Container[str], output: Path | None
) -> tuple[Iterator[PieceResult], list[Path]]:
    """Read all pieces; return a report on each, and the files with their messages in a staging directory of `output`.

    `output`: None to write nothing. `live`: labels of the stores to which a broker writes.
    """
    staging = output and output / STAGING / uuid.uuid4().hex

    def task(numbered: tuple[int, tuple[Piece, ...]]) -> tuple[list[PieceResult], list[Path]]:
        number, pieces = numbered
        reports = [PieceResult(live=piece.store in live) for piece in pieces]
        batches = chain.from_iterable(map(PieceResult.read, reports, pieces, repeat(options)))
        if staging is None:
            deque(batches, maxlen=0)
            return reports, []
        attempt = staging / uuid.uuid4().hex
        return reports, list(write_partitions(batches, attempt, f"part-{number:05}"))

    found = spark.sparkContext.parallelize(list(enumerate(tasks)), len(tasks)).map(task).collect()
    return (report for reports, _ in found for report in reports), [file for _, files in found for file in files]


def move_files(output: Path, files: Iterable[Path]) -> None:
    """Move written files to their places in the output."""
    for file in files:
        target = output.joinpath(*file.parts[-len(PARTITIONS) - 1 :])
        make_private_directories(target.parent, durable=False)
        file.replace(target)


def write_partitions(batches: Iterable[Any], folder: Path, name: str) -> Iterator[Path]:
    """Write files for each combination of the partition columns, which are not in the files."""
    held: dict[tuple[str, ...], list[Any]] = {}
    size = group = 0
    for batch in batches:
        rows = batch.select([name for name in batch.schema.names if name not in PARTITIONS])
        keys = [batch.column(name) for name in PARTITIONS]
        start = 0
        for stop in sorted({end for key in keys for end in pc.run_end_encode(key).run_ends.tolist()}):
            held.setdefault(tuple(key[start].as_py() for key in keys), []).append(rows.slice(start, stop - start))
            start = stop
        size += batch.nbytes
        if size >= _SIZE:
            yield from _write(held, folder, f"{name}-{group}.zstd.parquet")
            held, size, group = {}, 0, group + 1
    yield from _write(held, folder, f"{name}-{group}.zstd.parquet")


def _write(held: dict[tuple[str, ...], list[Any]], folder: Path, name: str) -> Iterator[Path]:
    for values, batches in held.items():
        path = folder.joinpath(*map(_directory, PARTITIONS, values), name)
        make_private_directories(path.parent, durable=False)
        with explained(path), os.fdopen(create_private(path, os.O_EXCL), "wb") as file:
            pq.write_table(pa.Table.from_batches(batches), file, **parquet_options(batches[0].schema))
        yield path


def _directory(name: str, value: str) -> str:
    """Return the name of a partition's directory. Source: ExternalCatalogUtils.escapePathName (Spark 4)."""
    return f"{name}={_ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', value) or _NULL}"


class Folder:
    """A directory that Spark can write to. Errors: Py4JJavaError, which wraps Hadoop's exceptions."""

    def __init__(self, spark: Any, path: str) -> None:
        context = spark.sparkContext
        self._jvm = context._jvm
        self.path = self._jvm.org.apache.hadoop.fs.Path(path)
        settings = self._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        settings.set("fs.permissions.umask-mode", "077")
        # the cached file system has the settings of the session
        self._system = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self.path.toUri(), settings)

    @property
    def local(self) -> Path | None:
        """The path of the directory if it is on a file system that is mounted here, otherwise None."""
        if self._system.getScheme() != "file":
            return None
        return Path(self._system.makeQualified(self.path).toUri().getPath())

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path, name)

    def names(self, folder: str = "") -> list[str]:
        """Names in the directory, or in a folder of it; none if it does not exist."""
        path = self._at(folder) if folder else self.path
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def read_json(self, name: str) -> Any:
        """Return the value in a JSON file; None if the file is not valid JSON, as after a kill."""
        stream = self._system.open(self._at(name))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        try:
            return json.loads(text)
        except ValueError:
            return None

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file under another name, then rename it, so that it is never seen incomplete."""
        beside, target = self._at(f"{name}.part"), self._at(name)
        stream = self._system.create(beside, True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self._system.delete(target, False)
        self._system.rename(beside, target)

    def delete(self, name: str) -> None:
        """Delete a file or a directory with its contents, if it exists."""
        self._system.delete(self._at(name), True)

    def matching(self, pattern: str) -> list[str]:
        """Paths below the directory that match a glob."""
        found = self._system.globStatus(self._at(pattern))
        return [status.getPath().toString() for status in found or ()]

    def delete_matching(self, pattern: str) -> int:
        """Delete everything that matches a glob; return how many paths that were."""
        paths = self.matching(pattern)
        for path in paths:
            self._system.delete(self._jvm.org.apache.hadoop.fs.Path(path), True)
        return len(paths)
