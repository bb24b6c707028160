"""Compress bodies like RocketMQ's clients."""

from __future__ import annotations

import zlib

import lz4.frame

from rmqstore.formats.bodies import Compression

try:
    from compression import zstd
except ImportError:
    from backports import zstd


def compress(kind: Compression, body: bytes) -> bytes:
    """Return the compressed body; the matching SYSFLAG bits are `kind.sys_flag`."""
    if kind is Compression.ZLIB:
        return zlib.compress(body, 5)
    if kind is Compression.LZ4:
        return bytes(lz4.frame.compress(body))
    return bytes(zstd.compress(body))
