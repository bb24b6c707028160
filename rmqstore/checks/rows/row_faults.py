"""Judge rows of rocksdbstore/ by the log: what is wrong with the record that a row names.

A broker reads the record at the offset and of the size that a row has, and takes what it finds: with a wrong offset it
delivers another message, or logs an error and drops the row.

Source: TimerMessageRocksDBStore#getMessageByCommitOffset and #convertMessage,
TransactionalMessageRocksDBService#checkTransRecordsStatus, MessageRocksDBStorage#queryOffsetForIndex (RocketMQ 5.4.0
and 5.5.1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol

from rmqstore.formats import properties
from rmqstore.formats.message import HEADS_BY_FLAG, MAGIC_V1, MAGIC_V2, MIN_SIZE, SYS_FLAG_AT, Message, parse_message
from rmqstore.formats.properties import parse_properties
from rmqstore.formats.rocksdbstore import (
    HOUR,
    INDEX_FAMILY,
    TIMER_FAMILY,
    TRANS_FAMILY,
    IndexRow,
    TimerRow,
    TransRow,
    parse_index_row,
    parse_timer_row,
    parse_trans_row,
)

_HEAD = max(layout.size for layout in HEADS_BY_FLAG.values())
_MOST = 64 << 20  # bytes of a record


class RowFault(StrEnum):
    """Why a row does not fit the log; NONE if it does."""

    NONE = ""
    FORM = "no valid key or value"
    BEYOND = "beyond the end of the log"
    BEFORE = "before the begin of the log"
    RECORD = "no record starts there"
    SIZE = "another size"
    TOPIC = "another topic"
    TIME = "another time"
    ID = "another unique id"


class LogView(Protocol):
    """A log, as it is or as a plan will leave it: `start` and `end` are its first and last global offsets (bytes)."""

    start: int
    end: int

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes at a global offset; the result is short where the log has none."""


Row = TimerRow | TransRow | IndexRow
Judged = tuple[Row | None, RowFault]


def parse_row(family: str, key: bytes, value: bytes) -> Row | None:
    """Parse a row of a family; None if it has no valid form."""
    return _PARSERS[family](key, value)


def judged_rows(family: str, keys: list[bytes], values: list[bytes], log: LogView) -> Iterator[Judged]:
    """Yield each row of a family (None: it has no valid form) and what is wrong with it, in order."""
    seen: dict[int, tuple[int, RowFault]] = {}
    for key, value in zip(keys, values, strict=True):
        row = parse_row(family, key, value)
        yield row, RowFault.FORM if row is None else judge_row(row, log, seen)


def judge_row(row: Row, log: LogView, seen: dict[int, tuple[int, RowFault]] | None = None) -> RowFault:
    """Return what is wrong with a row; `seen` keeps what index rows need of records, by offset."""
    if isinstance(row, IndexRow):
        return _index_fault(row, log, {} if seen is None else seen)
    return _message_fault(row, log)


_PARSERS: Mapping[str, Callable[[bytes, bytes], Row | None]] = {
    TIMER_FAMILY: parse_timer_row,
    TRANS_FAMILY: parse_trans_row,
    INDEX_FAMILY: parse_index_row,
}


def _place_fault(offset: int, size: int, log: LogView) -> RowFault:
    if offset < log.start:
        return RowFault.BEFORE if offset >= 0 else RowFault.RECORD
    return RowFault.BEYOND if offset + size > log.end else RowFault.NONE


def _message_fault(row: TimerRow | TransRow, log: LogView) -> RowFault:
    fault = _place_fault(row.commitlog_offset, max(row.size, 1), log)
    if fault:
        return fault
    if not MIN_SIZE <= row.size <= _MOST:
        return RowFault.SIZE
    raw = log.read(row.size, row.commitlog_offset)
    message, _ = parse_message(raw)
    if message is None:
        size = int.from_bytes(raw[:4], "big", signed=True)
        magic = int.from_bytes(raw[4:8], "big", signed=True)
        return RowFault.SIZE if magic in (MAGIC_V1, MAGIC_V2) and size > row.size else RowFault.RECORD
    if message.physical_offset != row.commitlog_offset:
        return RowFault.RECORD
    if message.size != row.size:
        return RowFault.SIZE
    return _timer_fault(row, message) if isinstance(row, TimerRow) else _trans_fault(row, message)


def _timer_fault(row: TimerRow, message: Message) -> RowFault:
    found = parse_properties(message.properties)
    if message.topic_text != properties.TIMER_TOPIC:
        return RowFault.TOPIC
    if found.get(properties.TIMER_OUT_MS) != str(row.deliver_time):
        return RowFault.TIME
    return RowFault.NONE if found.get(properties.UNIQ_KEY) == row.unique_id else RowFault.ID


def _trans_fault(row: TransRow, message: Message) -> RowFault:
    found = parse_properties(message.properties)
    if message.topic_text != properties.ROCKSDB_HALF_TOPIC or found.get(properties.REAL_TOPIC) != row.topic:
        return RowFault.TOPIC
    return RowFault.NONE if found.get(properties.TRANSACTION_ID) == row.unique_id else RowFault.ID


def _index_fault(row: IndexRow, log: LogView, seen: dict[int, tuple[int, RowFault]]) -> RowFault:
    fault = _place_fault(row.commitlog_offset, 1, log)
    if fault:
        return fault
    if row.hour != row.store_timestamp // HOUR * HOUR:
        return RowFault.TIME
    found = seen.get(row.commitlog_offset)
    if found is None:
        found = seen[row.commitlog_offset] = _head_at(row.commitlog_offset, log)
    stored, fault = found
    return fault or (RowFault.NONE if stored == row.store_timestamp else RowFault.TIME)


def _head_at(offset: int, log: LogView) -> tuple[int, RowFault]:
    """Return the store time (ms) in the fixed part of the record at an offset."""
    raw = log.read(_HEAD, offset)
    flag = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & 0x30
    layout = HEADS_BY_FLAG[flag]
    if len(raw) < layout.size:
        return 0, RowFault.RECORD
    head = layout.unpack(raw)
    if head["magic"] not in (MAGIC_V1, MAGIC_V2) or head["physical_offset"] != offset:
        return 0, RowFault.RECORD
    return int(head["store_timestamp"]), RowFault.BEYOND if offset + head["size"] > log.end else RowFault.NONE
