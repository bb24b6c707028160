"""Writes messages as Parquet files from the executors, with the writer of the local export.

Spark's own writer takes about ten times as long: it converts every value to a row, and sorts the rows. Here, a task
reads pieces of a log, and writes one file for each topic, day and segment to a staging directory. After the last task,
the driver moves the files of the tasks that succeeded to their places, so that a task that ran twice counts once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from rmqstore.messages.arrow import parquet_options, tables_of
from rmqstore.views.tables.file_splits import Piece
from rmqstore.views.tables.reading import ReadOptions, read_messages

STAGING = ".rmqstore-staging"
PARTITIONS = ("topic", "day", "segment")
_ALL = 1 << 62  # rows
_SIZE = 64 << 20  # bytes of a table that is written at once; the writer holds up to three times as much
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class Written(NamedTuple):
    """One file of one segment with its number of messages, and of the damaged ones among them."""

    path: Path
    segment: str
    messages: int
    damaged: int


def write_files(spark: Any, output: Path, tasks: Sequence[tuple[Piece, ...]], options: ReadOptions) -> list[Written]:
    """Write the messages of all tasks to a staging directory in `output`; return the files."""
    staging = output / STAGING / uuid.uuid4().hex

    def task(numbered: tuple[int, tuple[Piece, ...]]) -> list[Written]:
        number, pieces = numbered
        folder = staging / uuid.uuid4().hex  # of this attempt
        name = f"part-{number:05}"
        return [
            written
            for group, table in enumerate(tables_of(read_messages(pieces, options), _ALL, _SIZE))
            for written in write_partitions(table, folder, f"{name}-{group}.zstd.parquet")
        ]

    found = spark.sparkContext.parallelize(list(enumerate(tasks)), max(1, len(tasks))).map(task).collect()
    return [written for files in found for written in files]


def move_files(output: Path, files: Iterable[Written]) -> None:
    """Move written files to their places in the output."""
    for file in files:
        target = output.joinpath(*file.path.parts[-len(PARTITIONS) - 1 :])
        target.parent.mkdir(parents=True, exist_ok=True)
        file.path.replace(target)


def write_partitions(table: Any, folder: Path, name: str) -> Iterator[Written]:
    """Write one file for each combination of the partition columns, which are not in the files."""
    keys = [table.column(name).combine_chunks().dictionary_encode() for name in PARTITIONS]
    code = np.zeros(table.num_rows, dtype=np.int64)
    for key in keys:
        code = code * len(key.dictionary) + key.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    rows = table.drop_columns(list(PARTITIONS))
    for part in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
        values = [key.dictionary[key.indices[int(part[0])].as_py()].as_py() for key in keys]
        path = folder.joinpath(*map(_directory, PARTITIONS, values), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        own = rows.take(part)
        pq.write_table(own, path, **parquet_options(own.schema))
        damaged = sum(chunk.false_count for chunk in own.column("crc_ok").chunks)
        yield Written(path, values[-1], own.num_rows, damaged)


def _directory(name: str, value: str) -> str:
    """Return the name of a partition's directory. Source: ExternalCatalogUtils.escapePathName (Spark 4)."""
    return f"{name}={_ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', value) or _NULL}"
