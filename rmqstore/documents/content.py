"""The contents that steps write (literal bytes, zeros, or bytes produced on demand), their hashes and their JSON.

A content is a stream of *pieces*: `bytes`, or an `int` for that many zeros. This module does no I/O.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from rmqstore.errors import PlanStale, UsageError
from rmqstore.texts import Text

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def objects(value: Json) -> list[Mapping[str, Json]]:
    """Return the objects of a list, and nothing of any other JSON: the facts of a saved plan may hold anything."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


CHUNK = 1 << 20
"""Maximum size of a chunk of a content or a before-image in memory, bytes."""

MAX_FILE_SIZE = 1 << 34
"""Maximum size of a file in a plan, bytes; mapped files of a broker are below 2 GiB."""

_BLOCK = 1 << 16
_SMALL_BLOCK = 1 << 12
_ZEROS = bytes(CHUNK)
_FINGERPRINT = re.compile(r"(sha256|blake2b|runs):[0-9a-f]{64}")


class Content(Protocol):
    """Bytes of a known size that can be produced any number of times."""

    @property
    def size(self) -> int: ...

    def pieces(self) -> Iterator[bytes | int]: ...

    def read(self, size: int, at: int) -> bytes:
        """Return up to `size` bytes from position `at` on; short only at the content's end."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that are part of the plan."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def pieces(self) -> Iterator[bytes | int]:
        if self.data:
            yield self.data

    def read(self, size: int, at: int) -> bytes:
        return self.data[at : at + size]


@dataclass(frozen=True, slots=True)
class Zeros:
    """A run of zeros."""

    size: int

    def pieces(self) -> Iterator[bytes | int]:
        if self.size:
            yield self.size

    def read(self, size: int, at: int) -> bytes:
        return bytes(max(0, min(size, self.size - at)))


@dataclass(frozen=True, slots=True)
class Parts:
    """Contents, one after the other."""

    parts: tuple[Content, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def pieces(self) -> Iterator[bytes | int]:
        for part in self.parts:
            yield from part.pieces()

    def read(self, size: int, at: int) -> bytes:
        out = []
        for part in self.parts:
            if size <= 0:
                break
            if at < part.size:
                out.append(part.read(size, at))
                size -= len(out[-1])
            at = max(0, at - part.size)
        return b"".join(out)


@dataclass(frozen=True, slots=True)
class Reencoded:
    """Bytes that `source` produces again each time they are read; only one chunk is in memory.

    `part(size, at)` produces any of them; without it, a read produces all bytes before its position too.
    Errors: PlanStale if the source produces more or fewer than `size` bytes, because its input has changed.
    """

    size: int
    source: Callable[[], Iterable[bytes]] = field(compare=False)
    part: Callable[[int, int], bytes] | None = field(default=None, compare=False)

    def pieces(self) -> Iterator[bytes | int]:
        given = 0
        for chunk in self.source():
            given += len(chunk)
            if given > self.size:
                break
            if chunk:
                yield bytes(chunk)
        if given != self.size:
            raise PlanStale(
                Text("content announced with {size} bytes turned out to have {given}", size=self.size, given=given)
            )

    def read(self, size: int, at: int) -> bytes:
        size = max(0, min(size, self.size - at))
        if self.part is not None:
            return self.part(size, at)
        reader = ContentReader(self)
        reader.skip(at)
        return reader.take(size)


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Bytes that differ each time they are produced but are equivalent, such as RocksDB files with the same rows.

    `identity` (64 hex digits) is the hash of their meaning. A plan's digest uses it instead of the hash of the bytes,
    so that planning twice gives the same digest.
    """

    content: Content
    identity: str

    @property
    def size(self) -> int:
        return self.content.size

    def pieces(self) -> Iterator[bytes | int]:
        return self.content.pieces()

    def read(self, size: int, at: int) -> bytes:
        return self.content.read(size, at)


def chunks(content: Content) -> Iterator[bytes]:
    """Yield the bytes of a content, zeros included, at most 1 MiB at a time."""
    for piece in content.pieces():
        if isinstance(piece, int):
            full, rest = divmod(piece, CHUNK)
            for _ in range(full):
                yield _ZEROS
            if rest:
                yield bytes(rest)
        elif len(piece) <= CHUNK:
            yield piece
        else:
            for start in range(0, len(piece), CHUNK):
                yield piece[start : start + CHUNK]


class ContentReader:
    """Reads a content in order: `take(n)` returns the next n bytes, `skip(n)` passes over them."""

    __slots__ = ("_chunks", "_rest")

    def __init__(self, content: Content) -> None:
        self._chunks = chunks(content)
        self._rest = b""

    def take(self, size: int) -> bytes:
        parts = []
        while size > 0:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    break
            part, self._rest = self._rest[:size], self._rest[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        while size > 0 and (passed := len(self.take(min(size, CHUNK)))):
            size -= passed


def is_fingerprint(text: str) -> bool:
    """Return whether a text has the form of a fingerprint: name of the hash, colon, 64 hex digits."""
    return _FINGERPRINT.fullmatch(text) is not None


class RunningFingerprint:
    """A running hash of the same kind as the fingerprint `like`; `text` has the form of a step's `expect`.

    `runs:` counts zeros instead of hashing them, for files that are mostly holes.
    """

    __slots__ = ("_kind", "_running")

    def __init__(self, like: str = "sha256:") -> None:
        self._kind = like.partition(":")[0]
        self._running: Any = RunHash()
        if self._kind != "runs":
            self._running = hashlib.blake2b(digest_size=32) if self._kind == "blake2b" else hashlib.sha256()

    def update(self, piece: bytes | int) -> None:
        """Add bytes, or a number of zeros."""
        if self._kind == "runs" or isinstance(piece, bytes):
            self._running.update(piece)
            return
        for chunk in chunks(Zeros(piece)):
            self._running.update(chunk)

    @property
    def text(self) -> str:
        return f"{self._kind}:{self._running.hexdigest()}"


def fingerprint(pieces: bytes | Iterable[bytes | int], like: str = "sha256:") -> str:
    """Return the fingerprint of bytes, or of a stream of pieces."""
    running = RunningFingerprint(like)
    for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
        running.update(piece)
    return running.text


class RunHash:
    """A running hash that counts blocks of zeros instead of hashing them, so that holes of a file cost nothing.

    The hash depends on the bytes alone, not on how they are divided into updates.
    """

    __slots__ = ("_block", "_running", "_total", "_zeros")

    def __init__(self) -> None:
        self._running = hashlib.sha256()
        self._block = bytearray()
        self._zeros = 0
        self._total = 0

    def update(self, data: bytes | int, /) -> None:
        """Add bytes, or a number of zeros."""
        if isinstance(data, int):
            self._total += data
            if self._block:
                take = min(data, _BLOCK - len(self._block))
                self._block += bytes(take)
                data -= take
                self._emit_full()
            self._zeros += data // _BLOCK
            self._block += bytes(data % _BLOCK)
            return
        self._total += len(data)
        view = memoryview(data)
        while view:
            take = min(len(view), _BLOCK - len(self._block))
            self._block += view[:take]
            view = view[take:]
            self._emit_full()

    def _emit_full(self) -> None:
        if len(self._block) == _BLOCK:
            if self._block.count(0) == _BLOCK:
                self._zeros += 1
            else:
                self._running.update(b"Z%d:B%d:" % (self._zeros, _BLOCK) + self._block)
                self._zeros = 0
            self._block.clear()

    def hexdigest(self) -> str:
        rest = self._running.copy()
        rest.update(b"Z%d:B%d:" % (self._zeros, len(self._block)) + self._block + b"E%d" % self._total)
        return rest.hexdigest()


def content_digest(content: Content) -> str:
    """Hash the bytes of a content, or return the identity of an `Equivalent`; long runs of zeros cost nothing."""
    if isinstance(content, Equivalent):
        return content.identity
    running = RunHash()
    for piece in content.pieces():
        running.update(piece)
    return running.hexdigest()


def content_to_json(content: Content) -> dict[str, Json]:
    """Convert a content to JSON: `{"zeros": n}`, `{"base64": "…"}`, or `{"parts": […]}` of these.

    For an `Equivalent`, keys `identity` and `hash` (of the bytes) are added.
    """
    if isinstance(content, Zeros):
        return {"zeros": content.size}
    if isinstance(content, Literal) and content.size <= CHUNK:
        return _base64(content.data)
    return {"parts": list(content_parts_json(content)), **content_marks(content)}


def content_marks(content: Content) -> dict[str, Json]:
    """Return the keys that the JSON form of a content has in addition to `parts`."""
    if not isinstance(content, Equivalent):
        return {}
    return {"identity": content.identity, "hash": content_digest(content.content)}


def content_parts_json(content: Content) -> Iterator[dict[str, Json]]:
    """Yield the parts of a content's JSON form; blocks of zeros become `{"zeros": n}`."""
    zeros = 0
    pending = bytearray()
    for block in _blocks(content):
        if isinstance(block, int):
            if pending:
                yield _base64(pending)
                pending.clear()
            zeros += block
            continue
        if zeros:
            yield {"zeros": zeros}
            zeros = 0
        pending += block
        if len(pending) >= CHUNK:
            yield _base64(pending)
            pending.clear()
    if pending:
        yield _base64(pending)
    if zeros:
        yield {"zeros": zeros}


def _blocks(content: Content) -> Iterator[bytes | int]:
    """Yield a content in blocks of at most 4 KiB, or any number of zeros."""
    for piece in content.pieces():
        if isinstance(piece, int):
            yield piece
            continue
        for start in range(0, len(piece), _SMALL_BLOCK):
            block = piece[start : start + _SMALL_BLOCK]
            yield len(block) if block.count(0) == len(block) else block


def _base64(data: bytes | bytearray) -> dict[str, Json]:
    return {"base64": base64.b64encode(data).decode("ascii")}


def content_from_json(value: object) -> Content:
    """Parse a content from a plan file.

    Accepts the forms of `content_to_json`, and `{"hex": "…"}`. Errors: UsageError for anything else.
    """
    if isinstance(value, dict) and value.keys() == {"parts", "identity", "hash"}:
        content, identity = content_from_json({"parts": value["parts"]}), value["identity"]
        if isinstance(identity, str) and is_fingerprint(f"sha256:{identity}"):
            if content_digest(content) != value["hash"]:
                raise UsageError(
                    Text("plan: a content does not match its hash"), Text("make a new plan; do not edit plan files")
                )
            return Equivalent(content, identity)
    if isinstance(value, dict) and len(value) == 1:
        [(form, inner)] = value.items()
        if form == "parts" and isinstance(inner, list):
            parts = Parts(tuple(_part_from_json(part) for part in inner))
            if parts.size <= MAX_FILE_SIZE:
                return parts
        elif form in ("zeros", "base64", "hex"):
            return _part_from_json(value)
    raise UsageError(Text("plan: content must be one of zeros, base64, hex, parts"))


def _part_from_json(value: object) -> Literal | Zeros:
    if isinstance(value, dict) and len(value) == 1:
        [(form, inner)] = value.items()
        if form == "zeros" and type(inner) is int and 0 <= inner <= MAX_FILE_SIZE:
            return Zeros(inner)
        try:
            if form == "base64" and isinstance(inner, str):
                return Literal(base64.b64decode(inner, validate=True))
            if form == "hex" and isinstance(inner, str):
                return Literal(bytes.fromhex(inner))
        except (binascii.Error, ValueError) as error:
            raise UsageError(Text("plan: content is not valid {form}: {error}", form=form, error=error)) from error
    raise UsageError(Text("plan: content must be one of zeros, base64, hex, parts"))
