"""The fields of a chunk's records as columns, gathered lazily from the raw bytes; which records repairs wrote.

A repair leaves fillers (`formats.message`) and mended messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.formats import dledger, message
from rmqstore.formats.message import (
    BORN_HOST_V6,
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Message,
    NewerRecords,
    parse_message,
    record_crc,
)
from rmqstore.scan import kernels, native
from rmqstore.scan.kernels import I64, U8, Bool, i16, i32, i64
from rmqstore.texts import Text

_HOST_GROWTH = HEADS_BY_FLAG[BORN_HOST_V6].size - HEAD.size
_AT = {f.name: HEAD.at(f.name) for f in HEAD}
_AT |= {"born_port": HEAD.at("born_host") + 4, "store_port": HEAD.at("store_host") + 4}
_ENTRY_AT = {f.name: dledger.ENTRY.at(f.name) for f in dledger.ENTRY}
ENTRY_SIZE = dledger.ENTRY.size
_CRC32_NAME = int.from_bytes(CRC32_PROPERTY[:8], "big")
_DIGITS_AT = np.arange(len(CRC32_PROPERTY), CRC32_RESERVED_LEN - 1)  # in the property, least significant first
_DIGIT_WORTH = 10 ** np.arange(len(_DIGITS_AT))
# `struct layout` of loops/records.c
LAYOUT = np.array(
    [
        *(_AT[name] for name in ("size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset")),
        *(_AT[name] for name in ("sys_flag", "born_port", "store_timestamp", "store_port", "body_length")),
        *(HEAD.size, _HOST_GROWTH, BORN_HOST_V6, STORE_HOST_V6, MAGIC_V1_U32, MAGIC_V2_U32),
        *(CRC32_RESERVED_LEN, _CRC32_NAME),
    ],
    dtype=np.int64,
)


class Columns:
    """The message records at positions `at` of a chunk, as columns of signed 64-bit numbers of shape (n,).

    `base` is the global offset of the chunk's first byte, `body_offset` the size of the DLedger entry header before
    each message (0 in a commitlog). The scan reuses the buffer `raw`: gather columns before you fetch the next run.
    """

    def __init__(self, raw: bytearray, base: int, at: I64, body_offset: int = 0) -> None:
        self.raw = raw
        self.buf: U8 = np.frombuffer(raw, dtype=np.uint8)
        self.base = base
        self.at = at
        self.body_offset = body_offset

    @classmethod
    def of(cls, raw: bytearray, base: int, body_offset: int, found: native.Framed) -> Columns:
        """Make columns from the results of the compiled loops."""
        columns = cls(raw, base, found.columns["at"], body_offset)
        columns.__dict__.update(found.columns)
        columns.__dict__.update(elsewhere=found.elsewhere, has_tail=found.has_tail, port_tops=found.odd_port)
        if found.wrong_crc is not None:
            columns.__dict__["wrong_crc"] = found.wrong_crc
        return columns

    def __len__(self) -> int:
        return len(self.at)

    def set(self, **columns: npt.NDArray[Any]) -> None:
        """Set columns that the caller knows, so that they need not be gathered."""
        self.__dict__.update(columns)

    def slice(self, start: int, stop: int) -> Columns:
        """Return the records [start, stop); columns that are gathered already are sliced, not gathered again."""
        n = len(self.at)
        if start == 0 and stop == n:
            return self
        part = Columns(self.raw, self.base, self.at[start:stop], self.body_offset)
        part.__dict__.update((name, column[start:stop]) for name, column in self._gathered())
        return part

    def copied(self) -> Columns:
        """Return the records with a copy of the chunk, which the scan does not change; gathered columns are kept."""
        copy = Columns(bytearray(self.raw), self.base, self.at, self.body_offset)
        copy.__dict__.update(self._gathered())
        return copy

    def _gathered(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Yield the names and values of the columns that were gathered so far."""
        n = len(self.at)
        for name, value in self.__dict__.items():
            if (
                name not in ("raw", "buf", "base", "at", "body_offset")
                and isinstance(value, np.ndarray)
                and len(value) == n
            ):
                yield name, value

    def take(self, index: I64 | Bool) -> Columns:
        """Return the records selected by an index array or a mask."""
        return Columns(self.raw, self.base, self.at[index], self.body_offset)

    def i32(self, position: I64) -> I64:
        """Read signed 32-bit numbers at positions in the chunk."""
        return i32(self.buf)[position].astype(np.int64)

    def i64(self, position: I64) -> I64:
        """Read signed 64-bit numbers at positions in the chunk."""
        return i64(self.buf)[position].astype(np.int64)

    @cached_property
    def offset(self) -> I64:
        """Physical offset of the message in bytes (in DLedger data: entry position + 48)."""
        offset: I64 = self.at + self.base
        return offset

    @cached_property
    def head(self) -> U8:
        """The records' heads, with the entry header in DLedger data, copied from the chunk into one array.

        Shape: (n, lead + 88)
        """
        width = self.body_offset + HEAD.size
        at_every_byte = np.ndarray((len(self.buf) - width + 1,), dtype=f"V{width}", buffer=self.buf, strides=(1,))
        return at_every_byte[self.at - self.body_offset].view(np.uint8).reshape(len(self.at), width)

    def _field(self, code: str, at: int) -> I64:
        """Return a field of all heads; `at` is its position in the message."""
        return self._raw_field(code, at).astype(np.int64)

    def _raw_field(self, code: str, at: int) -> npt.NDArray[Any]:
        """Return a field of all heads as a view, in the stored type."""
        head = self.head
        if not len(head):
            return np.empty(0, dtype=code)
        return np.ndarray((len(head),), dtype=code, buffer=head, offset=self.body_offset + at, strides=(head.shape[1],))

    @cached_property
    def moved(self) -> bool:
        """Whether any record has an IPv6 host, which moves the fields after it."""
        return bool((self.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)).any())

    @property
    def newer(self) -> NewerRecords:
        """Kinds of records here that old brokers do not read."""
        found = NewerRecords.IPV6 if self.moved else NewerRecords.NONE
        return found | NewerRecords.V2 if bool((self.wide > 1).any()) else found

    def _after_hosts(self, code: str, name: str, *, born: bool = False) -> I64:
        """Return a field that follows both hosts, or with `born` only the born host."""
        if not self.moved:
            return self._field(code, _AT[name])
        at = self.at + (self.born_growth if born else self.growth) + _AT[name]
        return (self.i32 if code == ">i4" else self.i64)(at)

    @cached_property
    def size(self) -> I64:
        """TOTALSIZE, bytes."""
        return self._field(">i4", _AT["size"])

    @cached_property
    def magic(self) -> I64:
        """MAGICCODE, unsigned."""
        return self._field(">u4", _AT["magic"])

    @cached_property
    def size_and_magic(self) -> I64:
        """TOTALSIZE and MAGICCODE, which are adjacent, as one 64-bit number."""
        return self._field(">i8", _AT["size"])

    @cached_property
    def body_crc(self) -> I64:
        return self._field(">i4", _AT["body_crc"])

    @cached_property
    def queue_id(self) -> I64:
        return self._field(">i4", _AT["queue_id"])

    @cached_property
    def flag(self) -> I64:
        return self._field(">i4", _AT["flag"])

    @cached_property
    def queue_offset(self) -> I64:
        return self._field(">i8", _AT["queue_offset"])

    @cached_property
    def physical_offset(self) -> I64:
        return self._field(">i8", _AT["physical_offset"])

    @cached_property
    def sys_flag(self) -> I64:
        return self._field(">i4", _AT["sys_flag"])

    @cached_property
    def born_timestamp(self) -> I64:
        return self._field(">i8", _AT["born_timestamp"])

    @cached_property
    def born_growth(self) -> I64:
        """The number of bytes by which an IPv6 born host moves the fields after it."""
        return self._growth_by(BORN_HOST_V6)

    @cached_property
    def growth(self) -> I64:
        """The number of bytes by which IPv6 hosts move the fields after both hosts."""
        return self.born_growth + self._growth_by(STORE_HOST_V6)

    def _growth_by(self, flag: int) -> I64:
        flags = self.sys_flag & flag
        return (flags != 0) * np.int64(_HOST_GROWTH) if flags.any() else np.zeros(len(flags), dtype=np.int64)

    @cached_property
    def born_port(self) -> I64:
        """The last 4 bytes of BORNHOST, signed as in Java."""
        return self._after_hosts(">i4", "born_port", born=True)

    @cached_property
    def store_timestamp(self) -> I64:
        return self._after_hosts(">i8", "store_timestamp", born=True)

    @cached_property
    def store_port(self) -> I64:
        """The last 4 bytes of STOREHOST, signed as in Java."""
        return self._after_hosts(">i4", "store_port")

    @cached_property
    def port_tops(self) -> npt.NDArray[Any]:
        """The upper two bytes of both ports, or-ed: 0 if both ports are valid; other values may be byte-swapped."""
        if not self.moved:
            return self._raw_field("u2", _AT["born_port"]) | self._raw_field("u2", _AT["store_port"])
        return (self.born_port | self.store_port) >> 16

    @cached_property
    def reconsume_times(self) -> I64:
        return self._after_hosts(">i4", "reconsume_times")

    @cached_property
    def prepared_transaction_offset(self) -> I64:
        return self._after_hosts(">i8", "prepared_transaction_offset")

    @cached_property
    def body_length(self) -> I64:
        return self._after_hosts(">i4", "body_length")

    @cached_property
    def body_at(self) -> I64:
        """Position of the body in the chunk."""
        body_at: I64 = self.at + HEAD.size
        return body_at + self.growth if self.moved else body_at

    @cached_property
    def wide(self) -> I64:
        """The size of the topic length field: 1 byte in V1, 2 in V2."""
        wide: I64 = (self.magic == MAGIC_V2_U32).astype(np.int64) + 1
        return wide

    @cached_property
    def topic_at(self) -> I64:
        """Position of the topic in the chunk."""
        return self.body_at + np.maximum(self.body_length, 0) + self.wide

    @cached_property
    def topic_length(self) -> I64:
        return _topic_length(self.buf, self.topic_at, self.wide)

    @cached_property
    def properties_at(self) -> I64:
        """Position of the property text in the chunk."""
        return self.topic_at + self.topic_length + 2

    @cached_property
    def properties_length(self) -> I64:
        return self.at + self.size - self.properties_at

    @cached_property
    def wrong_crc(self) -> Bool:
        """Which records have a body that does not match BODYCRC; an empty body always matches.

        Source: CommitLog#checkMessageAndReturnSize, RocketMQ 5.4.0
        """
        start, length = self.body_at, self.body_length
        computed = native.load().body_crcs(self.raw, start, start + np.maximum(length, 0))
        wrong: Bool = computed != self.body_crc
        return wrong & (length > 0) if wrong.any() else wrong

    @cached_property
    def elsewhere(self) -> Bool:
        """Which records have a PHYSICALOFFSET that differs from their position."""
        elsewhere: Bool = self.physical_offset != self.offset
        return elsewhere

    @cached_property
    def has_tail(self) -> Bool:
        """Which records seem to end with the property __CRC32#, by its name."""
        has_tail: Bool = kernels.u64(self.buf)[self.at + self.size - CRC32_RESERVED_LEN] == _CRC32_NAME
        has_tail &= self.properties_length >= CRC32_RESERVED_LEN
        return has_tail

    @cached_property
    def wrong_record_crc(self) -> Bool:
        """Which records end with the property __CRC32# and do not match it."""
        wrong = np.zeros(len(self), dtype=np.bool_)
        rows = np.flatnonzero(self.has_tail)
        if not len(rows):
            return wrong
        at = self.at[rows]
        tail_at = at + self.size[rows] - CRC32_RESERVED_LEN
        digits = self.buf[tail_at[:, None] + _DIGITS_AT].astype(np.int64) - ord("0")
        differs = (digits * _DIGIT_WORTH).sum(axis=1) != native.load().body_crcs(self.raw, at, tail_at)
        view = memoryview(self.raw)
        for i in rows[differs | ((digits < 0) | (digits > 9)).any(axis=1)].tolist():
            stored, computed = record_crc(view, int(self.at[i]), int(self.size[i]))
            wrong[i] = stored is not None and stored != computed
        return wrong

    # --- the DLedger entry around the message -------------------------------------------------------------------

    @cached_property
    def entry_at(self) -> I64:
        return self.at - ENTRY_SIZE

    @cached_property
    def entry_magic(self) -> I64:
        return self._field(">i4", _ENTRY_AT["magic"] - ENTRY_SIZE)

    @cached_property
    def entry_size(self) -> I64:
        return self._field(">i4", _ENTRY_AT["size"] - ENTRY_SIZE)

    @cached_property
    def entry_body_length(self) -> I64:
        return self._field(">i4", _ENTRY_AT["body_length"] - ENTRY_SIZE)

    @cached_property
    def entry_index(self) -> I64:
        return self._field(">i8", _ENTRY_AT["index"] - ENTRY_SIZE)

    @cached_property
    def entry_term(self) -> I64:
        return self._field(">i8", _ENTRY_AT["term"] - ENTRY_SIZE)

    @cached_property
    def entry_pos(self) -> I64:
        return self._field(">i8", _ENTRY_AT["pos"] - ENTRY_SIZE)

    def message(self, i: int) -> Message:
        """Decode record i.

        Errors: ValueError if the record is not framed.
        """
        message, fault = parse_message(self.buf.data, int(self.at[i]))
        if message is None:
            raise ValueError(Text("record {i} is not framed: {fault}", i=i, fault=fault.name))
        return message

    def topic(self, i: int) -> bytes:
        """Return the topic of record i as raw bytes."""
        at = int(self.topic_at[i])
        return self.buf[at : at + int(self.topic_length[i])].tobytes()

    def properties(self, i: int) -> bytes:
        """Return the property text of record i as raw bytes."""
        at = int(self.properties_at[i])
        return self.buf[at : at + int(self.properties_length[i])].tobytes()


def _topic_length(buf: U8, topic_at: I64, wide: I64 | None) -> I64:
    """Return the lengths of the topics at `topic_at`; `wide` None means that all length fields have one byte."""
    narrow: I64 = buf[topic_at - 1].view(np.int8).astype(np.int64)
    if wide is None:
        return narrow
    is_wide = wide == 2
    return np.where(is_wide, i16(buf)[topic_at - 2], narrow) if is_wide.any() else narrow


def framed(columns: Columns, stops: I64) -> Bool:
    """Return which records are framed: a V1 or V2 magic, and parts that add up to TOTALSIZE, within [at, stops).

    Shape: (n,). Positions are clamped to the chunk before they are used, so that arbitrary bytes are safe.
    Source: CommitLog#checkMessageAndReturnSize, RocketMQ 5.4.0
    """
    top = len(columns.buf) - 8
    size = stops - columns.at
    # nearly all chunks have only V1 records, which a single comparison shows
    all_v1 = bool((columns.size_and_magic == (size << 32 | MAGIC_V1_U32)).all())
    if all_v1:
        columns.__dict__["size"] = size
        columns.__dict__["wide"] = np.ones(len(size), dtype=np.int64)
    body_length, topic_at = columns.body_length, columns.topic_at
    ok = (body_length <= size) & (topic_at + 2 <= stops)
    if not all_v1:
        ok &= (columns.magic == MAGIC_V1_U32) | (columns.magic == MAGIC_V2_U32)
        ok &= columns.size == size
    if not ok.all():
        topic_at = np.clip(topic_at, 2, top)
        columns.__dict__["topic_at"] = topic_at
    length = _topic_length(columns.buf, topic_at, None if all_v1 else columns.wide)
    columns.__dict__["topic_length"] = length
    properties_at = topic_at + length + 2
    ok &= (length >= 0) & (properties_at <= stops)
    if ok.all():
        columns.__dict__["properties_at"] = properties_at
    else:
        properties_at = np.clip(properties_at, 2, top)
    stored = i16(columns.buf)[properties_at - 2].astype(np.int64)
    ok &= properties_at + np.maximum(stored, 0) == stops
    return ok


_OP_LENGTHS = tuple({len(topic) for topic in message.OP_TOPICS})
_OP_BODY = message.OP_BODY[0]
NONE: I64 = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What the journals of completed repairs tell about the records of a store's logs. All offsets are global.

    `message`: sorted offsets of fillers without a mark. `written`: ranges (start, stop, time of the repair in ms) that
    repairs wrote, sorted and disjoint.
    """

    fillers: tuple[int, ...] = ()
    written: tuple[tuple[int, int, int], ...] = ()

    def wrote(self, start: int, stop: int, store_timestamp: int) -> bool:
        """Return whether a repair wrote bytes of the record [start, stop) after it was stored (ms)."""
        first, after = bisect_right(self.written, start, key=_stop), bisect_left(self.written, (stop,))
        return any(store_timestamp <= time for _, _, time in self.written[first:after])


def _stop(one: tuple[int, int, int]) -> int:
    return one[1]


NOTHING = Repaired()


def filler_mask(columns: Columns, repaired: Repaired = NOTHING) -> Bool | None:
    """Return which records are fillers; None if none is.

    Shape: (n,)
    """
    found = [i for i in _candidates(columns).tolist() if message.is_filler(columns.message(i))]
    if repaired.fillers:
        found += np.flatnonzero(np.isin(columns.offset, np.array(repaired.fillers, dtype=np.int64))).tolist()
    if not found:
        return None
    mask: Bool = np.zeros(len(columns), dtype=np.bool_)
    mask[found] = True
    return mask


def mended_mask(columns: Columns, repaired: Repaired, fillers: Bool | None) -> Bool | None:
    """Return which messages have bytes that a repair wrote; None if none has. `message`: see `filler_mask`.

    A message that was stored after the repair is not mended: the broker has used the space again.
    Shape: (n,)
    """
    if not repaired.written or not len(columns):
        return None
    low, high = int(columns.offset.min()), int((columns.offset + columns.size).max())
    mask: Bool = np.zeros(len(columns), dtype=np.bool_)
    first, after = bisect_right(repaired.written, low, key=_stop), bisect_left(repaired.written, (high,))
    for start, stop, time in repaired.written[first:after]:
        touched = (columns.offset < stop) & (columns.offset + columns.size > start)
        mask |= touched & (columns.store_timestamp <= time)
    if fillers is not None:
        mask &= ~fillers
    return mask if mask.any() else None


def _candidates(columns: Columns) -> I64:
    """Return the records that may be fillers."""
    if not len(columns):
        return NONE
    masks = [_mentions(columns)]
    rollback = (columns.sys_flag & TRANSACTION_MASK) == TRANSACTION_ROLLBACK
    masks.append(rollback if rollback.any() else None)
    for length in _OP_LENGTHS:
        in_op_topic = columns.topic_length == length
        if in_op_topic.any():
            masks.append(in_op_topic & (columns.body_length > 0) & (columns.buf[columns.body_at] == _OP_BODY))
    given = [mask for mask in masks if mask is not None]
    return np.flatnonzero(np.logical_or.reduce(given)) if given else NONE


def _mentions(columns: Columns) -> Bool | None:
    """Return which property texts contain `message.WORD`; None if none does."""
    return native.load().mentions(columns.buf, columns.properties_at, columns.properties_length, message.WORD)
