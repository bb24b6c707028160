"""Records of one chunk as columns: gathered from the raw bytes when somebody asks for them, never before."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.message import (
    BORN_HOST_V6,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    STORE_HOST_V6,
    Message,
    parse_message,
)
from rmqstore.scan.kernels import I64, U8, Bool, i16, i32, i64, u32

_HOST_GROWTH = HEADS_BY_FLAG[BORN_HOST_V6].size - HEAD.size
_AT = {f.name: HEAD.at(f.name) for f in HEAD}
_ENTRY_AT = {f.name: dledger.ENTRY.at(f.name) for f in dledger.ENTRY}
ENTRY_SIZE = dledger.ENTRY.size


class Columns:
    """Message records at `at` in a chunk, as arrays; the chunk's bytes are valid until the next run is asked for.

    `base` is the global offset of the chunk's first byte, `lead` the bytes of the DLedger header before each message
    (0 in a commitlog). All columns are of shape (n,), 64-bit signed.
    """

    def __init__(self, raw: bytearray, base: int, at: I64, lead: int = 0) -> None:
        self.raw = raw
        self.buf: U8 = np.frombuffer(raw, dtype=np.uint8)
        self.base = base
        self.at = at
        self.lead = lead

    def __len__(self) -> int:
        return len(self.at)

    def slice(self, start: int, stop: int) -> Columns:
        """The records [start, stop) of these; columns that were gathered already are sliced, not gathered again."""
        if start == 0 and stop == len(self.at):
            return self
        part = Columns(self.raw, self.base, self.at[start:stop], self.lead)
        whole = len(self.at)
        for name, value in self.__dict__.items():
            if (
                name not in ("raw", "buf", "base", "at", "lead")
                and isinstance(value, np.ndarray)
                and len(value) == whole
            ):
                part.__dict__[name] = value[start:stop]
        return part

    def take(self, index: I64 | Bool) -> Columns:
        """The records of an index array or mask."""
        return Columns(self.raw, self.base, self.at[index], self.lead)

    def i32(self, position: I64) -> I64:
        """Signed 32-bit numbers at positions of the chunk."""
        return i32(self.buf)[position].astype(np.int64)

    def i64(self, position: I64) -> I64:
        """Signed 64-bit numbers at positions of the chunk."""
        return i64(self.buf)[position].astype(np.int64)

    @cached_property
    def offset(self) -> I64:
        """Global offset of the message (in DLedger data: entry position + 48), bytes."""
        offset: I64 = self.at + self.base
        return offset

    @cached_property
    def size(self) -> I64:
        """TOTALSIZE, bytes."""
        return self.i32(self.at + _AT["size"])

    @cached_property
    def magic(self) -> I64:
        """Magic code, unsigned."""
        return u32(self.buf)[self.at + _AT["magic"]].astype(np.int64)

    @cached_property
    def body_crc(self) -> I64:
        """BODYCRC as stored."""
        return self.i32(self.at + _AT["body_crc"])

    @cached_property
    def queue_id(self) -> I64:
        return self.i32(self.at + _AT["queue_id"])

    @cached_property
    def flag(self) -> I64:
        return self.i32(self.at + _AT["flag"])

    @cached_property
    def queue_offset(self) -> I64:
        return self.i64(self.at + _AT["queue_offset"])

    @cached_property
    def physical_offset(self) -> I64:
        return self.i64(self.at + _AT["physical_offset"])

    @cached_property
    def sys_flag(self) -> I64:
        return self.i32(self.at + _AT["sys_flag"])

    @cached_property
    def born_timestamp(self) -> I64:
        return self.i64(self.at + _AT["born_timestamp"])

    @cached_property
    def born_growth(self) -> I64:
        """Bytes by which an IPv6 born host moves what follows it."""
        return self._growth_by(BORN_HOST_V6)

    @cached_property
    def growth(self) -> I64:
        """Bytes by which IPv6 hosts move what follows both."""
        return self.born_growth + self._growth_by(STORE_HOST_V6)

    def _growth_by(self, flag: int) -> I64:
        flags = self.sys_flag & flag
        return (flags != 0) * np.int64(_HOST_GROWTH) if flags.any() else np.zeros(len(flags), dtype=np.int64)

    @cached_property
    def store_timestamp(self) -> I64:
        return self.i64(self.at + self.born_growth + _AT["store_timestamp"])

    @cached_property
    def reconsume_times(self) -> I64:
        return self.i32(self.at + self.growth + _AT["reconsume_times"])

    @cached_property
    def prepared_transaction_offset(self) -> I64:
        return self.i64(self.at + self.growth + _AT["prepared_transaction_offset"])

    @cached_property
    def body_length(self) -> I64:
        return self.i32(self.at + self.growth + _AT["body_length"])

    @cached_property
    def body_at(self) -> I64:
        """Position of the body in the chunk."""
        return self.at + self.growth + HEAD.size

    @cached_property
    def wide(self) -> I64:
        """Bytes of the topic length field: 1, or 2 in V2."""
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

    # --- the DLedger entry around the message -------------------------------------------------------------------

    @cached_property
    def entry_at(self) -> I64:
        return self.at - ENTRY_SIZE

    @cached_property
    def entry_magic(self) -> I64:
        return self.i32(self.entry_at + _ENTRY_AT["magic"])

    @cached_property
    def entry_size(self) -> I64:
        return self.i32(self.entry_at + _ENTRY_AT["size"])

    @cached_property
    def entry_body_length(self) -> I64:
        return self.i32(self.entry_at + _ENTRY_AT["body_length"])

    @cached_property
    def entry_index(self) -> I64:
        return self.i64(self.entry_at + _ENTRY_AT["index"])

    @cached_property
    def entry_term(self) -> I64:
        return self.i64(self.entry_at + _ENTRY_AT["term"])

    @cached_property
    def entry_pos(self) -> I64:
        return self.i64(self.entry_at + _ENTRY_AT["pos"])

    def message(self, i: int) -> Message:
        """Record i decoded.

        Errors: ValueError when the record is not framed.
        """
        message, fault = parse_message(self.buf.data, int(self.at[i]))
        if message is None:
            raise ValueError(f"record {i} is not framed: {fault.name}")
        return message

    def topic(self, i: int) -> bytes:
        """Topic of record i, raw."""
        at = int(self.topic_at[i])
        return self.buf[at : at + int(self.topic_length[i])].tobytes()


def _topic_length(buf: U8, topic_at: I64, wide: I64) -> I64:
    is_wide = wide == 2
    one: I64 = buf[topic_at - 1].astype(np.int8).astype(np.int64)
    return np.where(is_wide, i16(buf)[topic_at - 2], one) if is_wide.any() else one


def framed(columns: Columns, stops: I64) -> Bool:
    """Which records have a V1 or V2 magic and parts that add up to their size, within [at, stops).

    Shape: (n,). Every gather is clamped into the chunk, so that any bytes may be asked about.
    Source: CommitLog#checkMessageAndReturnSize, RocketMQ 5.4.0
    """
    top = len(columns.buf) - 8
    size = stops - columns.at
    # size and magic lie side by side: one comparison tells what nearly all chunks are, V1 only
    if (i64(columns.buf)[columns.at] == (size << 32 | MAGIC_V1_U32)).all():
        columns.__dict__["size"] = size
        columns.__dict__["magic"] = np.full(len(size), MAGIC_V1_U32, dtype=np.int64)
        ok = np.ones(len(size), dtype=np.bool_)
    else:
        ok = (columns.magic == MAGIC_V1_U32) | (columns.magic == MAGIC_V2_U32)
        ok &= columns.size == size
    body_length = columns.body_length
    topic_at = columns.topic_at
    ok &= (body_length <= size) & (topic_at + 2 <= stops)
    if not ok.all():
        topic_at = np.clip(topic_at, 2, top)
        columns.__dict__["topic_at"] = topic_at
    length = _topic_length(columns.buf, topic_at, columns.wide)
    columns.__dict__["topic_length"] = length
    ok &= (length >= 0) & (topic_at + length + 2 <= stops)
    properties_at = topic_at + length + 2
    if not ok.all():
        properties_at = np.clip(properties_at, 2, top)
    stored = i16(columns.buf)[properties_at - 2].astype(np.int64)
    ok &= properties_at + np.maximum(stored, 0) == stops
    return ok
