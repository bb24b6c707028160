"""The hosts and offset message ids of all records of a chunk, as text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmqstore.formats.message import HEAD, STORE_HOST_V6, host_text
from rmqstore.messages.cells import KeyTable, Part, Spans, hexadecimal, listed
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, u64


def raw_hosts(columns: Columns, name: str) -> Spans:
    """Return the bytes of `born_host` or `store_host` of every record: 8, or 20 for IPv6."""
    born = columns.born_growth
    before: I64 | int = 0 if name == "born_host" else born
    grown = born if name == "born_host" else columns.growth - born
    at = columns.at + before + HEAD.at(name)
    return Spans(columns.buf, at, at + 8 + grown)


class HostTexts:
    """Hosts as text, such as 10.0.0.1:10911, encoded by `write`; caches the texts."""

    def __init__(self, write: Callable[[str], bytes] = str.encode) -> None:
        self._write = write
        self._table = KeyTable(lambda key: write(host_text(key.to_bytes(8, "big"))))

    def of(self, columns: Columns, name: str) -> Part:
        """Return `born_host` or `store_host` of every record. `columns` must not be empty."""
        hosts = raw_hosts(columns, name)
        if not columns.moved:
            return self._table.rows(u64(columns.buf)[hosts.starts].astype(np.uint64))
        raw = hosts.raw()
        texts = {host: self._write(host_text(host)) for host in {*raw}}
        return listed([texts[host] for host in raw])


class MessageIds:
    """Offset message ids as text: store host and physical offset in hex; caches the hosts."""

    def __init__(self) -> None:
        self._table = KeyTable(lambda key: b"%016X" % key)

    def of(self, columns: Columns, offsets: I64) -> list[Part]:
        """Return the ids of all records for these physical offsets. `columns` must not be empty."""
        hosts = raw_hosts(columns, "store_host")
        if not (columns.sys_flag & STORE_HOST_V6).any():
            return [self._table.rows(u64(columns.buf)[hosts.starts].astype(np.uint64)), hexadecimal(offsets)]
        return [listed([raw.hex().upper().encode() for raw in hosts.raw()]), hexadecimal(offsets)]
