"""The messages of a store as rows that can be imported again, in address order, selected and in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from rmqstore.append.messages.exchange import Row, row_of
from rmqstore.files.store import Store
from rmqstore.formats.bodies import BodyError, decompress
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK, HEADS_BY_FLAG, MAGIC_V2
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Split, joined, plan_splits
from rmqstore.views.dump.messages import Damage, logs_of
from rmqstore.views.dump.selection import Selection, Selector

SPLIT = 4 << 20
_UNPACK = {flags: layout.packer for flags, layout in HEADS_BY_FLAG.items()}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What rows hold.

    `body` False leaves bodies out; `decode` unpacks compressed ones (SYSFLAG then says so); `text` gives them as text
    where they are UTF-8; `positions` adds offset, size and message id, which another store will not have.
    """

    body: bool = True
    decode: bool = False
    text: bool = False
    positions: bool = False
    scan: ScanOptions = field(default_factory=ScanOptions)


@dataclass(slots=True)
class _Part:
    begin: int | None = None
    end: int | None = None
    rows: list[Row] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


@lru_cache(maxsize=4)
def _selector(selection: Selection) -> Selector:
    return Selector(selection)


def export_messages(
    store: Store,
    selection: Selection | None = None,
    options: ExportOptions | None = None,
    *,
    damage: Damage | None = None,
    jobs: int = 1,
) -> Iterator[list[Row]]:
    """Rows of the selected good records, some thousand at a time; `damage` is filled with what was passed over.

    Errors: OSError only for files that cannot be opened.
    """
    selection, options = selection or Selection(), options or ExportOptions()
    damage = damage if damage is not None else Damage()
    left = selection.limit
    for log in logs_of(store):
        splits = plan_splits(log.queue, lead=log.lead, size=SPLIT)
        reached: int | None = None
        for split, part in joined(partial(_export_split, selection, options), splits, jobs if left is None else 1):
            if reached is not None and split.file.start > reached:
                damage.feed(log.name, Run(Kind.HOLE, reached, split.file.start))
            reached = split.file.stop
            for run in part.runs:
                damage.feed(log.name, run)
            rows = part.rows if left is None else part.rows[:left]
            left = None if left is None else left - len(rows)
            if rows:
                yield rows
            if left == 0:
                return
        damage.close()


def _export_split(selection: Selection, options: ExportOptions, split: Split) -> _Part:
    out = _Part()
    selector = _selector(selection)
    try:
        for run in scan_file(
            split.file, start=split.start, stop=split.stop, lead=split.lead, exact=split.exact, options=options.scan
        ):
            out.begin = run.start if out.begin is None else out.begin
            out.end = run.stop
            columns = run.columns
            if run.kind is Kind.RECORDS and columns is not None:
                mask = selector.mask(columns)
                wanted = columns if mask is None else columns.take(np.flatnonzero(mask))
                out.rows.extend(_rows(wanted, options))
            if run.kind is not Kind.RECORDS or not out.runs or out.runs[-1].kind is not Kind.RECORDS:
                out.runs.append(replace(run, columns=None))
    except FileNotFoundError:  # expired by a live broker meanwhile
        pass
    return out


def _body(stored: bytes, sys_flag: int, decode: bool) -> tuple[bytes, int]:
    """A body as it is exported, with the SYSFLAG that says how it is; one that cannot be decompressed stays."""
    if decode and sys_flag & COMPRESSED:
        with suppress(BodyError):
            return decompress(sys_flag, stored), sys_flag & ~(COMPRESSED | COMPRESSION_TYPE_MASK)
    return stored, sys_flag


def _rows(columns: Columns, options: ExportOptions) -> Iterator[Row]:
    view = columns.buf.data
    flags = (columns.sys_flag & 0x30).tolist()
    places = zip(
        columns.at.tolist(),
        flags,
        columns.body_at.tolist(),
        columns.topic_at.tolist(),
        columns.topic_length.tolist(),
        columns.properties_at.tolist(),
        (columns.properties_at + columns.properties_length).tolist(),
        strict=True,
    )
    for at, family, body_at, topic_at, topic_length, text_at, text_stop in places:
        (
            size,
            magic,
            _,
            queue_id,
            flag,
            queue_offset,
            offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared,
            body_length,
        ) = _UNPACK[family].unpack_from(view, at)
        body: bytes | None = None
        if options.body:
            body, sys_flag = _body(bytes(view[body_at : body_at + max(0, body_length)]), sys_flag, options.decode)
        row = row_of(
            bytes(view[topic_at : topic_at + topic_length]),
            queue_id,
            queue_offset,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared,
            body,
            bytes(view[text_at:text_stop]),
            text_body=options.text,
            v2=magic == MAGIC_V2,
        )
        if options.positions:
            row["offset"], row["size"] = offset, size
            row["msg_id"] = (store_host + offset.to_bytes(8, "big", signed=True)).hex().upper()
        yield row
