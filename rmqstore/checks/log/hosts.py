"""BORNHOST and STOREHOST: records that no client can read, since a host has an invalid port.

A port has 4 bytes where 2 would do. One flipped bit in the upper two makes `new InetSocketAddress` throw:
MessageDecoder gives null, and a pull ends there, so that clients lose the good messages behind it too. No checksum
covers a host where records have no `__CRC32#`. What is wrong in the lower two bytes, nothing can tell and no reader
minds.
Source: MessageDecoder#decode, MessageDecoder#decodes (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.record_findings import record_finding
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats.message import MAX_PORT
from rmqstore.scan.columns import Columns

CODE = codes.CL_HOST


def host_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Records of a chunk with an invalid port."""
    if not columns.port_tops.any():
        return
    for i in np.flatnonzero(columns.port_tops).tolist():
        ports = {"born_port": int(columns.born_port[i]), "store_port": int(columns.store_port[i])}
        facts: dict[str, Fact] = {name: port for name, port in ports.items() if port & ~MAX_PORT}
        yield record_finding(CODE, columns, i, file, facts)
