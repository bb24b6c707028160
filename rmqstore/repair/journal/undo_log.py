"""Reads and writes `undo.log`: the bytes and metadata that each batch of steps replaces, durable before it begins.

A frame is a header and a payload. A batch is the META and before-image frames of its steps, closed by a READY frame.
Bytes after the last READY are a batch that a crash interrupted before any of its steps had begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path

from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.content import CHUNK
from rmqstore.repair.plan.fingerprints import opened

_MAGIC = b"RMQU"
_HEADER = struct.Struct("<4sBIQI")  # magic, kind, step, at, length
_CRC = struct.Struct("<I")  # over header and payload; written between them
_OVERHEAD = _HEADER.size + _CRC.size


class FrameKind(IntEnum):
    """The kind of a frame's payload."""

    META = 1
    """A Meta as JSON."""
    BYTES = 2
    """The old `length` bytes at `at`."""
    ZEROS = 3
    """The old `length` bytes at `at` are zeros; no payload."""
    READY = 4
    """The batch is complete; `step` is the batch's number."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata of a step's file before the step, the times of its directory, and the hash of the new bytes."""

    step: int
    after: str | None = None
    size: int = 0
    uid: int = -1
    gid: int = -1
    mode: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    folder_atime_ns: int = 0
    folder_mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """A before-image; `log_at` is the position of its payload in undo.log, -1 for zeros."""

    at: int
    length: int
    log_at: int


@dataclass(slots=True)
class Batch:
    """One complete batch of the log; `stop` is the position after its READY frame."""

    metas: dict[int, Meta] = field(default_factory=dict)
    images: dict[int, list[Image]] = field(default_factory=dict)
    stop: int = 0


class UndoLogWriter:
    """Appends frames from position `at` on; `ready` closes a batch and makes it durable."""

    def __init__(self, disk: Disk, descriptor: int, at: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._at = at

    def meta(self, meta: Meta) -> None:
        self._append(FrameKind.META, meta.step, 0, json.dumps(asdict(meta)).encode())

    def image(self, step: int, at: int, data: bytes) -> None:
        if data.count(0) == len(data):
            self._append(FrameKind.ZEROS, step, at, b"", len(data))
        else:
            self._append(FrameKind.BYTES, step, at, data)

    def ready(self, batch: int) -> None:
        self._append(FrameKind.READY, batch, 0, b"")
        self._disk.fsync(self._descriptor)

    def _append(self, kind: FrameKind, step: int, at: int, payload: bytes, length: int | None = None) -> None:
        header = _HEADER.pack(_MAGIC, kind, step, at, len(payload) if length is None else length)
        frame = header + _CRC.pack(zlib.crc32(payload, zlib.crc32(header))) + payload
        self._disk.write_at(self._descriptor, frame, self._at)
        self._at += len(frame)


class UndoLog:
    """The complete batches of the log, in order; before-images are read on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[Batch] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the batches that were added since the last call."""
        with contextlib.suppress(FileNotFoundError), opened(self.path) as descriptor:
            self._read(descriptor)

    @property
    def stop(self) -> int:
        """Position of the next batch, bytes."""
        return self.batches[-1].stop if self.batches else 0

    def _read(self, descriptor: int) -> None:
        at = self.stop
        batch = Batch()
        while True:
            head = os.pread(descriptor, _OVERHEAD, at)
            if len(head) < _OVERHEAD:
                return
            magic, kind, step, position, length = _HEADER.unpack_from(head)
            has_payload = kind in (FrameKind.META, FrameKind.BYTES)
            if magic != _MAGIC or length > CHUNK:
                return
            payload = os.pread(descriptor, length, at + _OVERHEAD) if has_payload else b""
            crc = zlib.crc32(payload, zlib.crc32(head[: _HEADER.size]))
            if crc != _CRC.unpack_from(head, _HEADER.size)[0] or (has_payload and len(payload) != length):
                return
            if kind == FrameKind.META:
                meta = _meta(payload)
                if meta is None:
                    return
                batch.metas[step] = meta
            elif kind in (FrameKind.BYTES, FrameKind.ZEROS):
                log_at = at + _OVERHEAD if kind == FrameKind.BYTES else -1
                batch.images.setdefault(step, []).append(Image(position, length, log_at))
            at += _OVERHEAD + len(payload)
            if kind == FrameKind.READY:
                if step != len(self.batches):
                    return
                batch.stop = at
                self.batches.append(batch)
                batch = Batch()

    def before(self, images: Iterable[Image]) -> Iterator[tuple[int, bytes]]:
        """Yield before-images as `(at, bytes)`, one frame (at most 1 MiB) at a time. Errors: OSError."""
        with opened(self.path) as descriptor:
            for image in images:
                if image.log_at < 0:
                    yield image.at, bytes(image.length)
                else:
                    yield image.at, os.pread(descriptor, image.length, image.log_at)


def _meta(payload: bytes) -> Meta | None:
    try:
        row = json.loads(payload)
        return Meta(**row) if isinstance(row, Mapping) else None
    except (ValueError, TypeError):
        return None
