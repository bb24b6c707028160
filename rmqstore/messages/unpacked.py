"""The messages of batch records (BatchCQ) as records of their own, so that they can be listed one by one."""

from __future__ import annotations

import numpy as np

from rmqstore.formats.bodies import InnerMessage, messages_in
from rmqstore.formats.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    INNER_BATCH,
    MAGIC_V2_U32,
    NEED_UNWRAP,
    Message,
    build_message,
)
from rmqstore.formats.properties import inner_batch, parse_properties
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64

_OF_BATCH = INNER_BATCH | NEED_UNWRAP | COMPRESSED | COMPRESSION_TYPE_MASK


def message_counts(columns: Columns) -> I64:
    """Return the number of messages in each record: INNER_NUM of a batch record, else 1.

    Shape: (n,)
    """
    counts = np.ones(len(columns), dtype=np.int64)
    for i in np.flatnonzero(columns.sys_flag & INNER_BATCH).tolist():
        batch = inner_batch(parse_properties(columns.properties(i)))
        counts[i] = max(1, batch[1]) if batch is not None else 1
    return counts


def unpacked(columns: Columns) -> Columns:
    """Return the records with a record for each message of a batch; a batch whose body is damaged stays one record.

    The new records have the place of their batch in the log, and the queue offsets that consumers see.
    """
    flagged = np.flatnonzero(columns.sys_flag & INNER_BATCH).tolist()
    batches = {i: inner for i in flagged if (inner := messages_in(columns.message(i)))}
    if not batches:
        return columns
    raw, at, origin = bytearray(), [], []
    for i in range(len(columns)):
        start, size = int(columns.at[i]), int(columns.size[i])
        records = [_record(columns.message(i), n, one) for n, one in enumerate(batches.get(i, ()))]
        for record in records or [bytes(columns.buf.data[start : start + size])]:
            at.append(len(raw))
            origin.append(i)
            raw += record
    source = np.array(origin, dtype=np.int64)
    out = Columns(raw, 0, np.array(at, dtype=np.int64))
    known = {
        "properties_length": out.properties_length,
        "has_tail": out.has_tail,
    }  # they need the sizes of these records
    out.set(offset=columns.offset[source], size=columns.size[source], **known)
    return out


def _record(batch: Message, number: int, one: InnerMessage) -> bytes:
    return build_message(
        topic=batch.topic,
        body=one.body,
        properties=one.properties,
        queue_id=batch.queue_id,
        queue_offset=batch.queue_offset + number,
        physical_offset=batch.physical_offset,
        flag=one.flag,
        sys_flag=batch.sys_flag & ~_OF_BATCH,
        born_timestamp=batch.born_timestamp,
        born_host=batch.born_host,
        store_timestamp=batch.store_timestamp,
        store_host=batch.store_host,
        reconsume_times=batch.reconsume_times,
        prepared_transaction_offset=batch.prepared_transaction_offset,
        v2=batch.magic & 0xFFFFFFFF == MAGIC_V2_U32,
    )
