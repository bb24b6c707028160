"""Log files of a bundle: records keep their places and damage, with pseudonyms and noise in place of their contents.

Noise has the length of the bytes before, and checks treat it in the same way. A wrong CRC differs from the right one in
the same bits as before, and CRC-32 is linear, so a repair concludes the same. A compressed body is replaced by noise
that can be decompressed: zlib, LZ4 or Zstandard frames with uncompressed blocks. Zero bytes between records stay, as
they determine the end of a log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import dledger
from rmqstore.formats.bodies import LZ4_MAGIC, ZSTD_MAGIC, is_zlib_head
from rmqstore.formats.crcbits import flip, flipped_bits
from rmqstore.formats.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    MIN_SIZE,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
    body_crc,
    crc32,
    record_crc,
)
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.window import ScanOptions
from rmqstore.views.bundle.names import Pseudonyms, property_text

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


Read = Callable[[int, int], bytes]
Piece = tuple[int, bytes]
"""(position in the file, bytes)"""
_MAGIC_AT = HEAD.at("magic")
_CRC_AT = HEAD.at("body_crc")
_DAMAGED_BITS = 4  # a magic with up to this many wrong bits is recognized
_BLOCK = 1 << 20
_HOSTS_AT = {
    flag: ((at("born_host"), at("store_timestamp")), (at("store_host"), at("reconsume_times")))
    for flag, at in ((flag, layout.at) for flag, layout in HEADS_BY_FLAG.items())
}


def log_pieces(file: MappedFile, body_offset: int, names: Pseudonyms, *, check_offset: bool = True) -> Iterator[Piece]:
    """Yield a converted log file, in order; bytes between the pieces are zeros.

    `body_offset`: bytes before every message. Errors: OSError if the file cannot be read.
    """
    with file.open() as source:

        def read(start: int, stop: int) -> bytes:
            return source.read(stop - start, start)

        end = min(file.length, file.file_size)
        for run in scan_file(file, body_offset=body_offset, options=ScanOptions(check_offset=check_offset)):
            start, stop = run.start - file.start, min(run.stop - file.start, file.length)
            if run.columns is not None:
                yield start, _records(run, names)
            elif run.kind is Kind.INTERNAL:
                raw = read(start, stop)
                yield start, raw[: dledger.ENTRY.size] + byte_noise(raw[dledger.ENTRY.size :])
            elif run.kind is Kind.BLANK:
                yield start, read(start, min(start + 8, stop))
                yield from _raw(read, start + 8, stop)
            elif run.kind is Kind.DIRTY:
                yield from _dirty(read, start, stop, file.start, body_offset, names)
        yield from _raw(read, end, file.length)  # a file longer than the file size of its queue


def _records(run: Run, names: Pseudonyms) -> bytes:
    """Return the converted records of a run, with their DLedger entry headers."""
    columns = run.columns
    assert columns is not None
    first = int(columns.at[0]) - columns.body_offset
    out = bytearray(columns.raw[first : first + run.stop - run.start])
    for lo, size in zip((columns.at - first).tolist(), columns.size.tolist(), strict=True):
        out[lo : lo + size] = record(bytes(out[lo : lo + size]), names)
    return bytes(out)


def record(data: bytes, names: Pseudonyms) -> bytes:
    """Return a framed record with pseudonyms and noise."""
    out = bytearray(data)
    sys_flag = int.from_bytes(data[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    _hosts(out, sys_flag & 0x30, names)
    body_at = HEADS_BY_FLAG[sys_flag & 0x30].size
    length = max(0, int.from_bytes(data[body_at - 4 : body_at], "big", signed=True))
    body = data[body_at : body_at + length]
    if body:
        stored, computed = int.from_bytes(data[_CRC_AT : _CRC_AT + 4], "big"), body_crc(body)
        error = stored ^ computed
        bits = flipped_bits(length, stored, computed) if error else []
        if len(bits) == 1:  # a repair flips this bit back; afterwards, the body can be decompressed, or is text
            body = flip(body_noise(flip(body, *bits[0]), sys_flag, sound=True), *bits[0])
        else:
            body = body_noise(body, sys_flag, sound=not error)
        out[body_at : body_at + length] = body
        out[_CRC_AT : _CRC_AT + 4] = (error ^ body_crc(body)).to_bytes(4, "big")
    wide = 2 if int.from_bytes(data[_MAGIC_AT : _MAGIC_AT + 4], "big") == MAGIC_V2_U32 else 1
    topic_at = body_at + length + wide
    topic_stop = topic_at + int.from_bytes(data[topic_at - wide : topic_at], "big")
    out[topic_at:topic_stop] = names.topic(data[topic_at:topic_stop])
    out[topic_stop + 2 :] = property_text(data[topic_stop + 2 :], names)
    stored_crc, computed = record_crc(data, 0, len(data)) if CRC32_PROPERTY in data[topic_stop:] else (None, 0)
    if stored_crc is not None:
        new = int(crc32(out[:-CRC32_RESERVED_LEN])) & 0x7FFFFFFF
        out[-11:-1] = f"{stored_crc ^ computed ^ new:010d}".encode()[::-1]
    return bytes(out)


def _hosts(out: bytearray, flag: int, names: Pseudonyms) -> None:
    """Replace the hosts in the head of a record; `flag`: which of them are IPv6."""
    for start, stop in _HOSTS_AT[flag]:
        out[start:stop] = names.host(bytes(out[start:stop]))


# --- between records --------------------------------------------------------------------------------------------------


def _raw(read: Read, start: int, stop: int) -> Iterator[Piece]:
    for at in range(start, stop, _BLOCK):
        yield at, byte_noise(read(at, min(at + _BLOCK, stop)))


def _dirty(read: Read, start: int, stop: int, base: int, body_offset: int, names: Pseudonyms) -> Iterator[Piece]:
    """Yield damaged bytes as noise, except heads of records: a bundle must show what is wrong with them."""
    for at in range(start, stop, _BLOCK):
        data = read(at, min(at + _BLOCK, stop))
        out = bytearray(byte_noise(data))
        for lo in _heads(data, base + at, body_offset):
            head = lo + body_offset
            flag = int.from_bytes(data[head + SYS_FLAG_AT : head + SYS_FLAG_AT + 4], "big") & 0x30
            size = HEADS_BY_FLAG[flag].size
            kept = bytearray(data[lo : head + size])
            if len(kept) == body_offset + size:
                fixed = kept[body_offset:]
                _hosts(fixed, flag, names)
                kept[body_offset:] = fixed
            out[lo : lo + len(kept)] = kept
        yield at, bytes(out)


def _heads(data: bytes, base: int, body_offset: int) -> Iterator[int]:
    """Yield the positions of damaged records whose heads can be recognized."""
    at = 0
    while 0 <= at < len(data):
        if not _is_head(data, at, base, body_offset):
            at = _next(data, at + 1, body_offset)
            continue
        yield at
        size = int.from_bytes(data[at + body_offset : at + body_offset + 4], "big")
        follows = size >= MIN_SIZE and _is_head(data, at + body_offset + size, base, body_offset)
        at = at + body_offset + size if follows else _next(data, at + 1, body_offset)


def _next(data: bytes, at: int, body_offset: int) -> int:
    found = data.find(MAGIC_V1_U32.to_bytes(4, "big")[:3], at + body_offset + 4)
    return found - body_offset - 4 if found >= 0 else -1


def _is_head(data: bytes, at: int, base: int, body_offset: int) -> bool:
    head = at + body_offset
    magic = int.from_bytes(data[head + 4 : head + 8], "big")
    near = min((magic ^ known).bit_count() for known in (MAGIC_V1_U32, MAGIC_V2_U32)) <= _DAMAGED_BITS
    own = int.from_bytes(data[head + PHYSICAL_OFFSET_AT : head + PHYSICAL_OFFSET_AT + 8], "big")
    return near or own == base + head
