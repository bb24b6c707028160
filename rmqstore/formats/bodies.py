"""Bodies of messages: their compression, and the messages in the body of a batch record.

A body is compressed with zlib, LZ4 frame or ZSTD, as SYSFLAG says. The output of a decompression is bounded. The body
of a batch record (topics with queue.type=BatchCQ) has several messages of one queue, one after the other.

Source: MessageSysFlag, CompressionType#findByValue, CompressorFactory (RocketMQ 5.4.0; types since 4.9.4);
MessageDecoder#encodeMessage, #decodeMessage, #decodeMessages (RocketMQ 5.0.0 to 5.5.1)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, cast

from construct import Int16sb, Int32sb

from rmqstore.formats.layout import Field, Layout
from rmqstore.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK, INNER_BATCH, Message
from rmqstore.texts import Text, many

DEFAULT_LIMIT = 64 << 20
TYPE_SHIFT = 8
LZ4_MAGIC = 0x04224D18  # the first four bytes of a frame, as one big-endian number
ZSTD_MAGIC = 0x28B52FFD


class BodyError(ValueError):
    """A body cannot be decompressed: unknown type, damaged stream, or more output than the limit."""


class Compression(IntEnum):
    """The compression type in SYSFLAG bits 8 to 10; type 0 means ZLIB."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The SYSFLAG bits of a body with this compression type."""
        return COMPRESSED | self << TYPE_SHIFT


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _FrameDecompressor(_Decompressor, Protocol):
    needs_input: bool


def compression(sys_flag: int) -> Compression | None:
    """Return the compression type that SYSFLAG declares; None for an uncompressed body.

    Errors: BodyError for types 4 to 7, which CompressionType#findByValue rejects too.
    """
    if not sys_flag & COMPRESSED:
        return None
    kind = (sys_flag & COMPRESSION_TYPE_MASK) >> TYPE_SHIFT
    if kind == 0:
        return Compression.ZLIB
    if kind > Compression.ZLIB:
        raise BodyError(Text("unknown compression type {kind}", kind=kind))
    return Compression(kind)


def _inflater() -> tuple[_Decompressor, tuple[type[Exception], ...]]:
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return cast(_Decompressor, zlib.decompressobj()), (zlib.error,)
    return cast(_Decompressor, zlib_ng.decompressobj()), (cast(type[Exception], zlib_ng.error), zlib.error)


def _inflate(body: bytes, limit: int) -> bytes:
    stream, failures = _inflater()
    try:
        # bytes after the stream are ignored, as by java.util.zip.InflaterInputStream
        plain = bytes(stream.decompress(body, limit + 1))
    except failures as e:
        raise BodyError(f"zlib: {e}") from e
    if len(plain) > limit:
        raise BodyError(Text("body unpacks to more than {limit} bytes", limit=limit))
    if not stream.eof:
        raise BodyError(Text("zlib: stream ends too early"))
    return plain


def _frame(
    name: str, stream: _FrameDecompressor, failures: tuple[type[Exception], ...], body: bytes, limit: int
) -> bytes:
    # in pieces: with the limit as one maximum, the libraries allocate that much for every message
    parts: list[bytes] = []
    total = 0
    data = body
    try:
        while not stream.eof:
            part = stream.decompress(data, min(1 << 20, limit + 1 - total))
            parts.append(part)
            total += len(part)
            data = b""
            if total > limit:
                raise BodyError(Text("body unpacks to more than {limit} bytes", limit=limit))
            if not stream.eof and (stream.needs_input or not part):
                raise BodyError(Text("{name}: frame ends too early", name=name))
    except failures as e:
        raise BodyError(f"{name}: {e}") from e
    if stream.unused_data:
        raise BodyError(Text("{name}: {count} after the frame", name=name, count=many(len(stream.unused_data), "byte")))
    return b"".join(parts)


def decompress(sys_flag: int, body: bytes, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the body as the producer passed it in; an uncompressed body is returned unchanged.

    Units:  `limit` in bytes of output; it also bounds the memory used, even for a malicious stream.
    Errors: BodyError for unknown types, damaged streams and output longer than `limit`.
    Source: MessageDecoder#decode
    """
    kind = compression(sys_flag)
    if kind is None:
        return body
    if kind is Compression.ZLIB:
        return _inflate(body, limit)
    if kind is Compression.LZ4:
        import lz4.frame

        return _frame("lz4", lz4.frame.LZ4FrameDecompressor(), (RuntimeError, MemoryError), body, limit)
    zstd = _zstd()
    return _frame("zstd", zstd.ZstdDecompressor(), (zstd.ZstdError, MemoryError), body, limit)


class _Zstd(Protocol):
    ZstdError: type[Exception]

    def ZstdDecompressor(self) -> _FrameDecompressor: ...


def _zstd() -> _Zstd:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return cast(_Zstd, zstd)


def compression_words(sys_flag: int) -> str:
    """Describe the compression that SYSFLAG declares, for display."""
    try:
        kind = compression(sys_flag)
    except BodyError as e:
        return str(e)
    return Text("not compressed") if kind is None else kind.name


def proved_sys_flag(sys_flag: int, body: bytes) -> int | None:
    """Return the SYSFLAG with the compression bits that the body proves; None if there is no proof.

    A body that decompresses completely proves its type, of several the one that is fewest bits away. If COMPRESSED is
    set without a type and the body is not a zlib stream, COMPRESSED itself is the wrong bit. Types 0 and 3 both mean
    zlib; 3 wins, because clients write it. Without COMPRESSED, a producer may have compressed the body itself, unless
    the type is right.
    """
    kinds = range(1 << COMPRESSION_TYPE_MASK.bit_count()) if sys_flag & COMPRESSED else [sys_flag >> TYPE_SHIFT & 7]
    proved = []
    for kind in kinds:
        candidate = sys_flag & ~COMPRESSION_TYPE_MASK | kind << TYPE_SHIFT | COMPRESSED
        with suppress(BodyError):
            decompress(candidate, body)
            proved.append(candidate)
    if proved:
        return min(proved, key=lambda flag: ((flag ^ sys_flag).bit_count(), -flag))
    if sys_flag & (COMPRESSED | COMPRESSION_TYPE_MASK) == COMPRESSED and not is_zlib_head(body):
        return sys_flag & ~COMPRESSED
    return None


def is_zlib_head(body: bytes) -> bool:
    """Return whether a body begins with a valid zlib header (RFC 1950)."""
    return len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0


HEAD = Layout(
    "inner message",
    "MessageDecoder#encodeMessage, RocketMQ 5.4.0",
    Field("size", Int32sb, "Length of the inner message, with this field.", "bytes"),
    Field("magic", Int32sb, "Always 0."),
    Field("body_crc", Int32sb, "Always 0: brokers check the CRC of the whole body."),
    Field("flag", Int32sb, "Flag of the message."),
    Field("body_length", Int32sb, "Length of the body that follows.", "bytes"),
    about="Followed by the body, the length of the properties (2 bytes), and the properties.",
)
_LENGTH = Layout(
    "inner message properties",
    "MessageDecoder#encodeMessage, RocketMQ 5.4.0",
    Field("properties_length", Int16sb, "Length of the properties.", "bytes"),
)


@dataclass(frozen=True, slots=True)
class InnerMessage:
    """One message of a batch. `properties`: their text, as in a record."""

    flag: int
    properties: bytes
    body: bytes


class BatchError(ValueError):
    """The body is not a batch of messages."""


def inner_messages(body: bytes) -> list[InnerMessage]:
    """Split the body of a batch record, decompressed if it was compressed. Errors: BatchError."""
    return list(_split(body))


def messages_in(message: Message) -> list[InnerMessage]:
    """Return the messages in a batch record; none for another record, or if its body is damaged."""
    if not message.sys_flag & INNER_BATCH:
        return []
    try:
        return inner_messages(decompress(message.sys_flag, message.body))
    except (BatchError, BodyError):
        return []


def _split(body: bytes) -> Iterator[InnerMessage]:
    at = 0
    while at < len(body):
        if len(body) - at < HEAD.size:
            raise BatchError(Text("the batch ends in the head of a message"))
        head = HEAD.unpack(body, at)
        start = at + HEAD.size
        stop = start + head["body_length"]
        if head["body_length"] < 0 or stop + _LENGTH.size > len(body):
            raise BatchError(Text("a message of the batch is longer than the batch"))
        first = stop + _LENGTH.size
        after = first + _LENGTH.unpack(body, stop)["properties_length"]
        if not first <= after <= len(body) or after - at != head["size"]:
            raise BatchError(Text("a message of the batch has a wrong length"))
        yield InnerMessage(head["flag"], body[first:after], body[start:stop])
        at = after
