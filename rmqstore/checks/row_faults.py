"""Judge rows of rocksdbstore/ by the log: what is wrong with the record that a row names.

A broker reads the record at the offset and of the size that a row has, and takes what it finds: with a wrong offset it
delivers another message, or logs an error and drops the row.

Source: TimerMessageRocksDBStore#getMessageByCommitOffset and #convertMessage,
TransactionalMessageRocksDBService#checkTransRecordsStatus, MessageRocksDBStorage#queryOffsetForIndex (RocketMQ 5.4.0
and 5.5.1)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol

import numpy as np

from rmqstore.formats.message import (
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE,
    SYS_FLAG_AT,
    Message,
    parse_message,
)
from rmqstore.formats.properties import (
    REAL_TOPIC,
    ROCKSDB_HALF_TOPIC,
    TIMER_OUT_MS,
    TIMER_TOPIC,
    TRANSACTION_ID,
    UNIQ_KEY,
    parse_properties,
)
from rmqstore.formats.rocksdbstore import (
    HOUR,
    INDEX_FAMILY,
    INDEX_VALUE,
    TIMER_FAMILY,
    TIMER_KEY,
    TIMER_VALUE,
    TRANS_FAMILY,
    TRANS_KEY,
    TRANS_VALUE,
    IndexRow,
    TimerRow,
    TransRow,
    parse_index_row,
    parse_timer_row,
    parse_trans_row,
)
from rmqstore.scan.kernels import I64, Bool
from rmqstore.texts import Text

_HEAD = max(layout.size for layout in HEADS_BY_FLAG.values())
_MOST = 64 << 20  # bytes of a record


class RowFault(StrEnum):
    """Why a row does not fit the log; NONE if it does."""

    NONE = ""
    FORM = Text("no valid key or value")
    BEYOND = Text("beyond the end of the log")
    BEFORE = Text("before the begin of the log")
    RECORD = Text("no record starts there")
    SIZE = Text("another size")
    TOPIC = Text("another topic")
    TIME = Text("another time")
    ID = Text("another unique id")


class LogView(Protocol):
    """A log, as it is or as a plan will leave it: `start` and `end` are its first and last global offsets (bytes)."""

    start: int
    end: int

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes at a global offset; the result is short where the log has none."""


Row = TimerRow | TransRow | IndexRow
Faulty = tuple[int, Row | None, RowFault]


def parse_row(family: str, key: bytes, value: bytes) -> Row | None:
    """Parse a row of a family; None if it has no valid form."""
    return _PARSERS[family](key, value)


def faulty_rows(family: str, keys: list[bytes], values: list[bytes], log: LogView) -> Iterator[Faulty]:
    """Yield (number, row, fault) of the rows that do not fit the log; the row is None if it has no valid form.

    Index entries of messages before the begin of the log are left out: a broker deletes them by their hour.
    """
    if family == INDEX_FAMILY:
        numbers: Iterable[int] = _doubtful_entries(keys, values, log)
    else:
        fits = _timer_fits if family == TIMER_FAMILY else _trans_fits
        numbers = (i for i, (key, value) in enumerate(zip(keys, values, strict=True)) if not fits(key, value, log))
    for i in numbers:
        row = parse_row(family, keys[i], values[i])
        fault = RowFault.FORM if row is None else judge_row(row, log)
        if fault:
            yield i, row, fault


def judge_row(row: Row, log: LogView) -> RowFault:
    """Return what is wrong with a row."""
    return _index_fault(row, log) if isinstance(row, IndexRow) else _message_fault(row, log)


def have_valid_form(family: str, keys: list[bytes], values: list[bytes]) -> Bool:
    """Return which rows of `timer` or `default` (the index) `parse_row` can parse; fast, because almost all can."""
    form, size = _FORMS[family]
    found = (form.match(key) is not None and len(value) == size for key, value in zip(keys, values, strict=True))
    return np.fromiter(found, dtype=np.bool_, count=len(keys))


def first_numbers(keys: list[bytes]) -> I64:
    """Return the number at the start of each key: due time, offset or hour; 0 for a key that is too short."""
    return _numbers([key[:8] for key in keys])


def _numbers(parts: list[bytes]) -> I64:
    if set(map(len, parts)) - {8}:
        parts = [part if len(part) == 8 else bytes(8) for part in parts]
    return np.frombuffer(b"".join(parts), dtype=">i8").astype(np.int64)


def _doubtful_entries(keys: list[bytes], values: list[bytes], log: LogView) -> Iterable[int]:
    """Return the numbers of index rows whose offset, hour or store time does not fit; reads each record head once."""
    hours, times, offsets = first_numbers(keys), _numbers(values), _numbers([key[-8:] for key in keys])
    valid = have_valid_form(INDEX_FAMILY, keys, values)
    kept = (offsets >= log.start) | ~valid
    right = kept & valid & (offsets < log.end) & (hours == times // HOUR * HOUR)
    found = np.unique(offsets[right])
    stored = np.array([_head_at(at, log)[0] for at in found.tolist()], dtype=np.int64)
    right[right] = stored[np.searchsorted(found, offsets[right])] == times[right] if len(found) else True
    return np.flatnonzero(kept & ~right).tolist()


def _timer_fits(key: bytes, value: bytes, log: LogView) -> bool:
    """Return whether a row certainly fits its record; fast, because almost all rows do."""
    if len(key) <= TIMER_KEY.size or len(value) != TIMER_VALUE.size:
        return False
    size, offset = TIMER_VALUE.packer.unpack(value)
    due = int.from_bytes(key[: TIMER_KEY.size], "big", signed=True)
    return _has(
        _record(size, offset, log), TIMER_TOPIC, TIMER_OUT_MS, str(due).encode(), UNIQ_KEY, key[TIMER_KEY.size :]
    )


def _trans_fits(key: bytes, value: bytes, log: LogView) -> bool:
    words = key[TRANS_KEY.size :].split(b"@")
    if len(words) != 3 or words[0] or len(value) != TRANS_VALUE.size:
        return False
    _, size = TRANS_VALUE.packer.unpack(value)
    offset = int.from_bytes(key[: TRANS_KEY.size], "big", signed=True)
    return _has(_record(size, offset, log), ROCKSDB_HALF_TOPIC, REAL_TOPIC, words[1], TRANSACTION_ID, words[2])


def _record(size: int, offset: int, log: LogView) -> bytes:
    """Return the record at an offset; no bytes if its size, magic or own position differs."""
    if not MIN_SIZE <= size <= _MOST or offset < log.start or offset + size > log.end:
        return b""
    raw = log.read(size, offset)
    if len(raw) != size:
        return b""
    head = HEAD.unpack(raw)
    sound = head["size"] == size and head["magic"] in (MAGIC_V1, MAGIC_V2) and head["physical_offset"] == offset
    return raw if sound else b""


def _has(record: bytes, topic: str, name: str, value: bytes, other: str, text: bytes) -> bool:
    """Return whether a record has a topic, and two properties with these values, each followed by another one."""
    wanted = (topic.encode(), b"%s\1%s\2" % (name.encode(), value), b"%s\1%s\2" % (other.encode(), text))
    return all(part in record for part in wanted)


_PARSERS: Mapping[str, Callable[[bytes, bytes], Row | None]] = {
    TIMER_FAMILY: parse_timer_row,
    TRANS_FAMILY: parse_trans_row,
    INDEX_FAMILY: parse_index_row,
}
_FORMS: Mapping[str, tuple[re.Pattern[bytes], int]] = {
    TIMER_FAMILY: (re.compile(rb"(?s).{8}."), TIMER_VALUE.size),
    INDEX_FAMILY: (re.compile(rb"(?s).{8}@[^@]*@(?:U|[KT]@.*)@[^@]*@.{8}\Z"), INDEX_VALUE.size),
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
    if message.topic_text != TIMER_TOPIC:
        return RowFault.TOPIC
    if found.get(TIMER_OUT_MS) != str(row.deliver_time):
        return RowFault.TIME
    return RowFault.NONE if found.get(UNIQ_KEY) == row.unique_id else RowFault.ID


def _trans_fault(row: TransRow, message: Message) -> RowFault:
    found = parse_properties(message.properties)
    if message.topic_text != ROCKSDB_HALF_TOPIC or found.get(REAL_TOPIC) != row.topic:
        return RowFault.TOPIC
    return RowFault.NONE if found.get(TRANSACTION_ID) == row.unique_id else RowFault.ID


def _index_fault(row: IndexRow, log: LogView) -> RowFault:
    fault = _place_fault(row.commitlog_offset, 1, log)
    if fault:
        return fault
    if row.hour != row.store_timestamp // HOUR * HOUR:
        return RowFault.TIME
    stored, fault = _head_at(row.commitlog_offset, log)
    return fault or (RowFault.NONE if stored == row.store_timestamp else RowFault.TIME)


def _head_at(offset: int, log: LogView) -> tuple[int, RowFault]:
    """Return the store time (ms) in the fixed part of the record at an offset; -1 if none starts there."""
    raw = log.read(_HEAD, offset)
    flag = int.from_bytes(raw[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & 0x30
    layout = HEADS_BY_FLAG[flag]
    if len(raw) < layout.size:
        return -1, RowFault.RECORD
    head = layout.unpack(raw)
    if head["magic"] not in (MAGIC_V1, MAGIC_V2) or head["physical_offset"] != offset:
        return -1, RowFault.RECORD
    if offset + head["size"] > log.end:
        return -1, RowFault.BEYOND
    return int(head["store_timestamp"]), RowFault.NONE
