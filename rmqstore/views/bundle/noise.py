"""Replace bodies and unknown bytes by noise of the same length that checks treat in the same way.

A compressed body is replaced by noise that can be decompressed: zlib, LZ4 or Zstandard frames with uncompressed blocks.
Zero bytes between records stay, as they determine the end of a log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from rmqstore.formats.bodies import LZ4_MAGIC, ZSTD_MAGIC, is_zlib_head
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK

_RNG = np.random.default_rng()
_POOL = 1 << 20  # bytes generated at once, as calls for many small bodies are slow
_TEXT = bytes((*b"\t\n\r", *range(0x20, 0x7F)))
_AS_TEXT = bytes(0x20 + i % 95 for i in range(256))
_ZLIB_BLOCK = 0xFFFF
_ZSTD_BLOCK = 128 << 10
_LZ4_HEAD = LZ4_MAGIC.to_bytes(4, "big") + bytes.fromhex("604082")  # blocks of 64 KiB, independent, no checksums
_LZ4_BLOCK = 64 << 10
_ZSTD_HEAD = ZSTD_MAGIC.to_bytes(4, "big") + bytes.fromhex("0048")  # a window of 512 KiB, no checksum


class _Noise:
    def __init__(self) -> None:
        self._left = memoryview(b"")

    def bytes(self, size: int) -> bytes:
        if size > len(self._left):
            if size > _POOL:
                return _RNG.bytes(size)
            self._left = memoryview(_RNG.bytes(_POOL))
        out, self._left = bytes(self._left[:size]), self._left[size:]
        return out


_NOISE = _Noise()


def body_noise(body: bytes, sys_flag: int, *, sound: bool) -> bytes:
    """Return noise for a body, printable if the body is. If the body is damaged (not `sound`), its zero bytes stay."""
    if sys_flag & (COMPRESSED | COMPRESSION_TYPE_MASK):
        for head, wrap in _WRAPS:
            if head(body):
                packed = wrap(len(body))
                if packed is not None:
                    return packed if sound else _with_zeros_of(body, packed)
    if not sound:
        return byte_noise(body)
    noise = _NOISE.bytes(len(body))
    return noise.translate(_AS_TEXT) if body.isascii() and not body.translate(None, _TEXT) else noise


def byte_noise(data: bytes) -> bytes:
    """Return noise with zero bytes exactly where `data` has them."""
    old = np.frombuffer(data, dtype=np.uint8)
    new = _RNG.integers(1, 256, len(old), dtype=np.uint8)
    return np.where(old == 0, old, new).tobytes()


def _with_zeros_of(data: bytes, noise: bytes) -> bytes:
    old = np.frombuffer(data, dtype=np.uint8)
    return np.where(old == 0, old, np.frombuffer(noise, dtype=np.uint8)).tobytes()


def _zlib(size: int) -> bytes | None:
    """Return a zlib stream of uncompressed blocks, `size` bytes long; None if `size` is too small."""
    blocks = -(-(size - 6) // (_ZLIB_BLOCK + 5))
    left = size - 6 - 5 * blocks
    if blocks < 1 or left < 0:
        return None
    data = _RNG.bytes(left)
    out = [b"\x78\x01"]
    for i in range(blocks):
        part = data[i * _ZLIB_BLOCK : (i + 1) * _ZLIB_BLOCK]
        length = len(part).to_bytes(2, "little")
        out += [bytes([i == blocks - 1]), length, bytes(b ^ 0xFF for b in length), part]
    return b"".join([*out, zlib.adler32(data).to_bytes(4, "big")])


def _lz4(size: int) -> bytes | None:
    room = size - len(_LZ4_HEAD) - 4
    blocks = -(-room // (_LZ4_BLOCK + 4))
    left = room - 4 * blocks
    if blocks < 1 or left < blocks:
        return None
    out = [_LZ4_HEAD]
    for i in range(blocks):
        part = min(_LZ4_BLOCK, left - (blocks - 1 - i))
        left -= part
        out += [(part | 1 << 31).to_bytes(4, "little"), _RNG.bytes(part)]
    return b"".join([*out, bytes(4)])


def _zstd(size: int) -> bytes | None:
    room = size - len(_ZSTD_HEAD)
    blocks = -(-room // (_ZSTD_BLOCK + 3))
    left = room - 3 * blocks
    if blocks < 1 or left < 0:
        return None
    out = [_ZSTD_HEAD]
    for i in range(blocks):
        part = min(_ZSTD_BLOCK, left)
        left -= part
        out += [(part << 3 | (i == blocks - 1)).to_bytes(3, "little"), _RNG.bytes(part)]
    return b"".join(out)


_WRAPS: tuple[tuple[Callable[[bytes], bool], Callable[[int], bytes | None]], ...] = (
    (lambda body: body[:4] == _LZ4_HEAD[:4], _lz4),
    (lambda body: body[:4] == _ZSTD_HEAD[:4], _zstd),
    (is_zlib_head, _zlib),
)
