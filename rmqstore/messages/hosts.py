"""Store hosts in hex, as message ids have them, for all records of a chunk."""

from __future__ import annotations

import numpy as np

from rmqstore.formats.message import HEAD, STORE_HOST_V6
from rmqstore.messages.cells import KeyTable, Part, Spans, listed
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, u64


def raw_hosts(columns: Columns, name: str) -> Spans:
    """Places of `born_host` or `store_host` of every record: 8 bytes, of an IPv6 one 20."""
    born = columns.born_growth
    before: I64 | int = 0 if name == "born_host" else born
    grown = born if name == "born_host" else columns.growth - born
    at = columns.at + before + HEAD.at(name)
    return Spans(columns.buf, at, at + 8 + grown)


def host_digits_table() -> KeyTable:
    """What `host_digits` remembers."""
    return KeyTable(lambda key: b"%016X" % key)


def host_digits(columns: Columns, table: KeyTable) -> Part:
    """The store host of every record in hex, upper case."""
    hosts = raw_hosts(columns, "store_host")
    if not (columns.sys_flag & STORE_HOST_V6).any():
        return table.rows(u64(columns.buf)[hosts.starts].astype(np.uint64))
    return listed([raw.hex().upper().encode() for raw in hosts.raw()])
