"""Batches of rows, stored as columns: an array per column, or a constant for a column of one value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from rmqstore.formats.layout import Layout
from rmqstore.messages.cells import dumps, valid_text
from rmqstore.views.dump.selection import Selection

Array = npt.NDArray[Any]
Batch = Mapping[str, "Array | str | int"]


UNPARSED = "key_hex"
"""Column of batches of rows that could not be parsed."""


def unparsed_rows(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[Batch]:
    """Yield the keys and values that could not be parsed. No filter leaves them out: what it compares is unknown."""
    cells = [(key.hex(), value.hex()) for key, value in rows]
    if cells:
        table = np.array(cells, dtype=object)
        yield {UNPARSED: table[:, 0], "value_hex": table[:, 1]}


def batch_length(batch: Batch) -> int:
    """Return the number of rows; a batch of only constants has one."""
    return next((len(v) for v in batch.values() if isinstance(v, np.ndarray)), 1)


def batch_rows(batch: Batch) -> list[dict[str, Any]]:
    """Return the rows as dicts."""
    n = batch_length(batch)
    cells: list[Iterable[Any]] = [v.tolist() if isinstance(v, np.ndarray) else repeat(v, n) for v in batch.values()]
    return [dict(zip(batch, row, strict=True)) for row in zip(*cells, strict=True)]


def batch_lines(batch: Batch) -> list[str]:
    """Return the rows as JSON lines."""
    n = batch_length(batch)
    cells: list[Iterable[str]] = []
    for value in batch.values():
        if isinstance(value, np.ndarray) and value.dtype.kind in "Ob":
            cells.append([dumps(valid_text(cell) if isinstance(cell, str) else cell) for cell in value.tolist()])
        elif isinstance(value, np.ndarray):
            column = np.ascontiguousarray(value.astype(np.int64))
            text = orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode()
            cells.append(text.split(",") if n else [])
        else:
            cells.append(repeat(dumps(valid_text(value) if isinstance(value, str) else value), n))
    form = "{{" + ",".join(f'"{name}":{{}}' for name in batch) + "}}"
    return [form.format(*row) for row in zip(*cells, strict=True)]


def fields_of(units: Array, layout: Layout) -> Batch:
    """Return the fields of units as columns."""
    return {field.name: units[field.name] for field in layout}


def wanted_rows(batch: Batch, wanted: Array, selection: Selection) -> Iterator[Batch]:
    """Yield the rows of a batch where a mask is true, in the selected order; nothing without one."""
    rows = selection.ordered(np.flatnonzero(wanted))
    if len(rows):
        yield {k: v[rows] if isinstance(v, np.ndarray) else v for k, v in batch.items()}


def within(values: Array, low: int | None, high: int | None) -> Array:
    """Return the mask of the values in [low, high); None: unbounded."""
    out = np.ones(len(values), dtype=np.bool_)
    if low is not None:
        out &= values >= low
    if high is not None:
        out &= values < high
    return out
