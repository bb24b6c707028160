"""A table of messages without their offsets: the input of `append`, and the result of reading an import file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.formats.message import MAGIC_V2_U32
from rmqstore.messages.cells import Spans
from rmqstore.messages.fields import raw_hosts
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool, u64

NUMBERS = (
    *("queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    "prepared_transaction_offset",
)


@dataclass(frozen=True, slots=True)
class MessageTable:
    """Messages as columns.

    `numbers`: the columns of `NUMBERS`, and `version` (1 or 2; 0: the length of the topic decides). `topic` indexes
    `topics`, which may contain duplicates. `born_host` and `store_host` index `hosts`, which are in stored form.
    Shape: all columns (n,).
    """

    numbers: Mapping[str, I64]
    topics: list[bytes]
    topic: I64
    hosts: list[bytes]
    born_host: I64
    store_host: I64
    properties: Spans
    body: Spans

    def __len__(self) -> int:
        return len(self.topic)

    @classmethod
    def of(cls, columns: Columns, queues: QueueTable) -> MessageTable:
        """Return the records of a chunk, whose bytes must not change. `queues` is shared by all chunks."""
        body_at = columns.body_at
        topic = queues.of(columns)
        hosts, host = _hosts(columns)
        return cls(
            {name: getattr(columns, name) for name in NUMBERS}
            | {"version": np.where(columns.magic == MAGIC_V2_U32, np.int64(2), np.int64(0))},
            *(queues.topics, topic, hosts, host[: len(columns)], host[len(columns) :]),
            Spans(columns.buf, columns.properties_at, columns.properties_at + columns.properties_length),
            Spans(columns.buf, body_at, body_at + np.maximum(columns.body_length, 0)),
        )

    def take(self, index: I64 | Bool | slice) -> MessageTable:
        """Return the messages that an index array, mask or slice selects."""
        return replace(
            self,
            numbers={name: column[index] for name, column in self.numbers.items()},
            topic=self.topic[index],
            born_host=self.born_host[index],
            store_host=self.store_host[index],
            properties=self.properties.take(index),
            body=self.body.take(index),
        )


def _hosts(columns: Columns) -> tuple[list[bytes], I64]:
    """Return the distinct hosts in stored form, and indexes: the born hosts of all records, then the store hosts."""
    places = [raw_hosts(columns, name) for name in ("born_host", "store_host")]
    if not columns.moved:
        words, numbers = np.unique(u64(columns.buf)[np.concatenate([p.starts for p in places])], return_inverse=True)
        return [int(word).to_bytes(8, "big") for word in words.tolist()], numbers
    found: dict[bytes, int] = {}
    order = [found.setdefault(host, len(found)) for place in places for host in place.raw()]
    return list(found), np.array(order, dtype=np.int64)
