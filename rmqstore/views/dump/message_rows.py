"""Rows of rocksdbstore/ for `dump`: timed messages, half messages, the index, and the positions of each family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from rmqstore.files.rocksdb.rows import MessageRows
from rmqstore.files.store import Store
from rmqstore.formats.rocksdbstore import (
    INDEX_FAMILY,
    POSITION_KEYS,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
    IndexRow,
    TimerRow,
    TransRow,
    parse_index_row,
    parse_timer_row,
    parse_trans_row,
)
from rmqstore.views.dump.batches import Array, Batch, pick, within
from rmqstore.views.dump.selection import Selection

Parse = Callable[[bytes, bytes], TimerRow | TransRow | IndexRow | None]


def timer_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the positions of the family `timer`, then its rows; `pending`: not yet delivered.

    `selection.since` and `until` are due times. Errors: CannotRead, after all readable rows.
    """
    rows = MessageRows.of(store)
    delivered = (rows.position(TIMER_FAMILY, TIMELINE) or 0) if rows is not None else 0
    for batch in _rows(rows, TIMER_FAMILY, parse_timer_row, TimerRow, selection, time="deliver_time"):
        due = batch.get("deliver_time")
        yield batch if due is None else {**batch, "pending": np.asarray(due) >= delivered}


def trans_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the position of the family `trans`, then its rows. Errors: CannotRead, after all readable rows."""
    yield from _rows(MessageRows.of(store), TRANS_FAMILY, parse_trans_row, TransRow, selection)


def index_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the positions of the family `default`, then its rows. Errors: CannotRead, after all readable rows."""
    found = _rows(MessageRows.of(store), INDEX_FAMILY, parse_index_row, IndexRow, selection, time="store_timestamp")
    yield from found


def _rows(
    rows: MessageRows | None,
    family: str,
    parse: Parse,
    kind: type[TimerRow] | type[TransRow] | type[IndexRow],
    selection: Selection,
    time: str = "",
) -> Iterator[Batch]:
    if rows is None:
        return
    for key in POSITION_KEYS[family]:
        value = rows.position(family, key)
        if value is not None and selection.limit is None:
            yield {"key": key.decode(), "position": value}
    names = [field.name for field in fields(kind)]
    for keys, values in rows.rows(family):
        parsed = [row for key, value in zip(keys, values, strict=True) if (row := parse(key, value)) is not None]
        batch: dict[str, Array] = {name: _column([getattr(row, name) for row in parsed]) for name in names}
        if not parsed:
            continue
        wanted = within(batch["commitlog_offset"], selection.start, selection.stop)
        if time:
            wanted &= within(batch[time], selection.since, selection.until)
        numbers = np.flatnonzero(wanted)
        if len(numbers):
            yield pick(batch, numbers)


def _column(cells: list[int] | list[str]) -> Array:
    return np.array(cells, dtype=object if cells and isinstance(cells[0], str) else np.int64)
