"""Header fields that no checksum covers in records without `__CRC32#`: hosts with an invalid port, and SYSFLAG.

A port has 4 bytes where 2 would do. One flipped bit in the upper two makes `new InetSocketAddress` throw:
MessageDecoder returns null and a pull ends there, so that clients also lose the good messages after it. Damage in the
lower two bytes cannot be detected, and no reader depends on them.

A flipped compression bit in SYSFLAG makes clients fail to decompress the body, or deliver it compressed. Only certain
cases are reported: a body that does not begin like its compression type cannot be decompressed; if only the COMPRESSED
bit is missing, the whole body must decompress by the type that the other bits name.

The transaction bits of a prepared or rolled back message keep it out of its queue. Brokers write queue offset 0 into
such a record, so a record with another queue offset has a flipped bit, and consumers never get it.
Source: MessageDecoder#decode, MessageDecoder#decodes (RocketMQ 4.9.7 to 5.4.0), MessageSysFlag, CompressorFactory
(5.4.0); CommitLog.DefaultAppendMessageCallback#doAppend, DLedgerCommitLog#getQueueOffsetByKey (4.9.7 to 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.record_findings import record_finding
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.formats.bodies import (
    LZ4_MAGIC,
    TYPE_SHIFT,
    ZSTD_MAGIC,
    Compression,
    compression_words,
    proved_sys_flag,
)
from rmqstore.formats.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    MAX_PORT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    is_dispatched,
)
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool
from rmqstore.texts import Text

PREPARED, ROLLED_BACK = "prepared", Text("rolled back")
"""What the transaction bits say about a message that is in no queue."""
_BITS = COMPRESSED | COMPRESSION_TYPE_MASK


def host_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record of a chunk with an invalid port."""
    if not columns.port_tops.any():
        return
    for i in np.flatnonzero(columns.port_tops).tolist():
        ports = {"born_port": int(columns.born_port[i]), "store_port": int(columns.store_port[i])}
        facts: dict[str, Fact] = {name: port for name, port in ports.items() if port & ~MAX_PORT}
        yield record_finding(codes.CL_HOST, columns, i, file, facts)


def flag_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record of a chunk whose SYSFLAG contradicts its body or its queue offset."""
    yield from _transaction_findings(columns, file)
    yield from _compression_findings(columns, file)


def _transaction_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record with a queue offset whose transaction bits keep it out of its queue."""
    for i in np.flatnonzero(~is_dispatched(columns.sys_flag) & (columns.queue_offset > 0)).tolist():
        flag = int(columns.sys_flag[i])
        facts: dict[str, Fact] = {"sys_flag": f"0x{flag:X}"}
        facts["says"] = PREPARED if flag & TRANSACTION_MASK == TRANSACTION_PREPARED else ROLLED_BACK
        yield record_finding(codes.CL_SYSFLAG, columns, i, file, facts)


def _compression_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Yield a finding for each record of a chunk whose compression bits contradict its body."""
    bits = columns.sys_flag & _BITS
    if not bits.any():
        return
    rows = np.flatnonzero((bits != 0) & (columns.body_length > 0))
    bits, at = bits[rows], columns.body_at[rows]
    fits = _begins(columns.i32(at) & 0xFFFFFFFF, bits >> TYPE_SHIFT)
    packed = (bits & COMPRESSED) != 0
    for i in np.flatnonzero(packed != fits).tolist():
        row, start = int(rows[i]), int(at[i])
        body = bytes(columns.buf[start : start + int(columns.body_length[row])])
        flag = int(columns.sys_flag[row])
        proved = proved_sys_flag(flag, body)
        if proved is None and not packed[i]:
            continue  # the producer's own compression, and a type bit that no reader uses
        facts: dict[str, Fact] = {"sys_flag": f"0x{flag:X}", "says": compression_words(flag)}
        if proved is not None:
            facts |= {"expected": f"0x{proved:X}", "body": compression_words(proved)}
        yield record_finding(codes.CL_SYSFLAG, columns, row, file, facts)


def _begins(word: I64, kind: I64) -> Bool:
    """Return which bodies begin like their compression type (0 to 7); `word` are their first four bytes."""
    method, check, block = word >> 24, word >> 16 & 0xFF, word >> 8 & 0xFF
    zlib: Bool = (method & 15 == 8) & (method >> 4 < 8) & (((method << 8) + check) % 31 == 0)
    zlib &= (check & 0x20 == 0) & (block & 6 != 6)  # no dictionary; block type 3 does not exist
    lz4: Bool = (kind == Compression.LZ4) & (word == LZ4_MAGIC)
    zstd: Bool = (kind == Compression.ZSTD) & (word == ZSTD_MAGIC)
    return lz4 | zstd | (((kind == 0) | (kind == Compression.ZLIB)) & zlib)
