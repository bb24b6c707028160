"""Rows of RocksDB as batches of columns.

Those of rocksdbstore/ (timed messages, half messages, index entries, the position of each family) and of kvStore/
(messages that POP consumers have received and not acknowledged).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import islice

import numpy as np

from rmqstore.files.rocksdb.rows import MessageRows, pop_rows
from rmqstore.files.store import Store
from rmqstore.formats.pop import PopRow
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
from rmqstore.views.dump.batches import Batch, unparsed_rows, wanted_rows, within
from rmqstore.views.dump.selection import Selection

_MOST = 1 << 15  # rows read at a time

Parse = Callable[[bytes, bytes], TimerRow | TransRow | IndexRow | None]


def timer_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the positions of the family `timer`, then its rows; `pending`: not yet delivered.

    `selection.since` and `until` are due times. Errors: CannotRead, after all readable rows.
    """
    rows = MessageRows.of(store)
    delivered = (rows.position(TIMER_FAMILY, TIMELINE) or 0) if rows is not None else 0
    for batch in _rows(rows, TIMER_FAMILY, parse_timer_row, selection, time="deliver_time"):
        due = batch.get("deliver_time")
        yield batch if due is None else {**batch, "pending": np.asarray(due) >= delivered}


def trans_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the position of the family `trans`, then its rows. Errors: CannotRead, after all readable rows."""
    yield from _rows(MessageRows.of(store), TRANS_FAMILY, parse_trans_row, selection)


def index_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the positions of the family `default`, then its rows. Errors: CannotRead, after all readable rows."""
    yield from _rows(MessageRows.of(store), INDEX_FAMILY, parse_index_row, selection, time="store_timestamp")


def _rows(rows: MessageRows | None, family: str, parse: Parse, selection: Selection, time: str = "") -> Iterator[Batch]:
    if rows is None:
        return
    for key in POSITION_KEYS[family]:
        value = rows.position(family, key)
        if value is not None and selection.limit is None:
            yield {"key": key.decode(), "position": value}
    yield from unparsed_rows(rows.unknown_names(family).items())
    for keys, values in rows.rows(family):
        found = [(key, value, parse(key, value)) for key, value in zip(keys, values, strict=True)]
        yield from unparsed_rows((key, value) for key, value, row in found if row is None)
        yield from _parsed([row for *_, row in found if row is not None], selection, "commitlog_offset", time)


def popped_rows(store: Store, selection: Selection) -> Iterator[Batch]:
    """Yield the rows of kvStore/. `selection.start` and `stop` are queue offsets, `since` and `until` visible times.

    Errors: CannotRead.
    """
    rows = pop_rows(store)
    while found := list(islice(rows, _MOST)):
        yield from unparsed_rows((key, value) for key, value, row in found if row is None)
        parsed = [row for *_, row in found if row is not None and selection.wants_queue(row.topic, row.queue_id)]
        yield from _parsed(parsed, selection, "queue_offset", "visible_time")


def _parsed(
    rows: Sequence[TimerRow | TransRow | IndexRow | PopRow], selection: Selection, offset: str, time: str
) -> Iterator[Batch]:
    """Yield rows as columns, if their `offset` and `time` (fields; "" for none) are selected."""
    if not rows:
        return
    cells = {field.name: [getattr(row, field.name) for row in rows] for field in fields(rows[0])}
    batch = {name: np.array(own, dtype=object if isinstance(own[0], str) else np.int64) for name, own in cells.items()}
    wanted = within(batch[offset], selection.start, selection.stop)
    if time:
        wanted &= within(batch[time], selection.since, selection.until)
    yield from wanted_rows(batch, wanted, selection)
