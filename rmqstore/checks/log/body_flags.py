"""SYSFLAG against the body: records whose bits say another compression than their body has.

No checksum covers SYSFLAG where records have no `__CRC32#`; a flipped bit makes clients fail to unpack the body, or
take packed bytes for it. Only what is sure is said: a body that does not begin as its bits say cannot be unpacked so;
and where the COMPRESSED bit is missing beside a type, the body must unpack by that type, all of it.
Source: MessageDecoder#decode, MessageSysFlag, CompressorFactory (RocketMQ 5.4.0)
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
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool

_BITS = COMPRESSED | COMPRESSION_TYPE_MASK


def flag_findings(columns: Columns, file: str) -> Iterator[Finding]:
    """Records of a chunk whose compression bits are not true of their body."""
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
            continue  # a body of a sender who packs it himself, and a type bit that nobody reads
        facts: dict[str, Fact] = {"sys_flag": f"0x{flag:X}", "says": compression_words(flag)}
        if proved is not None:
            facts |= {"expected": f"0x{proved:X}", "body": compression_words(proved)}
        yield record_finding(codes.CL_SYSFLAG, columns, row, file, facts)


def _begins(word: I64, kind: I64) -> Bool:
    """Whether bodies, by their first four bytes, begin as a compression type (0 to 7) does."""
    method, check, block = word >> 24, word >> 16 & 0xFF, word >> 8 & 0xFF
    zlib: Bool = (method & 15 == 8) & (method >> 4 < 8) & (((method << 8) + check) % 31 == 0)
    zlib &= (check & 0x20 == 0) & (block & 6 != 6)  # no dictionary; block type 3 does not exist
    lz4: Bool = (kind == Compression.LZ4) & (word == LZ4_MAGIC)
    zstd: Bool = (kind == Compression.ZSTD) & (word == ZSTD_MAGIC)
    return lz4 | zstd | (((kind == 0) | (kind == Compression.ZLIB)) & zlib)
