"""Determines from the bytes on disk whether an in-place step is done, not done, or half done."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rmqstore.repair.journal.plan_paths import status_of
from rmqstore.repair.journal.undo_log import Image, Meta, UndoLog
from rmqstore.repair.plan.content import ContentReader, Zeros, chunks, fingerprint
from rmqstore.repair.plan.fingerprints import fingerprint_range, read_runs
from rmqstore.repair.plan.steps import Extend, InPlace, Overwrite


class Status(Enum):
    """The state of a step on disk."""

    BEFORE = "before"
    AFTER = "after"
    MIXED = "mixed"
    """Every byte is either the old or the new one: the step was interrupted."""
    FOREIGN = "foreign"
    """Something other than this journal has changed it."""


@dataclass(frozen=True, slots=True)
class Touched:
    """One in-place step with its file, the file's old metadata, and the before-images."""

    step: InPlace
    path: Path
    meta: Meta
    images: list[Image]
    log: UndoLog


def probe_in_place(touched: Touched, *, torn: bool) -> Status:
    """Determine the state of an in-place step; only with `torn` may it be half done (MIXED)."""
    step, path, meta = touched.step, touched.path, touched.meta
    status = status_of(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return Status.FOREIGN
    size = status.st_size
    if isinstance(step, Overwrite):
        if size < step.at + step.length:
            return Status.FOREIGN
        found = fingerprint_range(path, step.at, step.length)
        if found == meta.after:
            return Status.AFTER
        if found == _before_hash(touched):
            return Status.BEFORE
        return Status.MIXED if torn and _is_mixture(touched, step.length) else Status.FOREIGN
    if size == step.to_size:
        if not isinstance(step, Extend):
            return Status.AFTER
        if fingerprint_range(path, step.at, step.length) == meta.after:
            return Status.AFTER
    elif size == step.from_size and (
        isinstance(step, Extend) or fingerprint_range(path, step.at, step.length, step.expect) == step.expect
    ):
        return Status.BEFORE
    low, high = sorted((step.from_size, step.to_size))
    return Status.MIXED if torn and low <= size <= high and _is_mixture(touched, size - low) else Status.FOREIGN


def _before_hash(touched: Touched) -> str:
    return fingerprint(data for _, data in touched.log.before(touched.images))


def _is_mixture(touched: Touched, length: int) -> bool:
    """Return whether each of the first `length` bytes of the range is the old or the new one (0 beyond an end)."""
    import numpy as np

    step = touched.step
    after = ContentReader(step.content) if isinstance(step, Overwrite | Extend) else None
    before = _Before(touched.log.before(touched.images))
    at, stop = step.at, step.at + length
    for piece in read_runs(touched.path, at, length):
        if isinstance(piece, int) and after is None:  # undoing a truncate extends the file with a hole first
            at += piece
            continue
        for chunk in (piece,) if isinstance(piece, bytes) else chunks(Zeros(piece)):
            new = after.take(len(chunk)) if after is not None else b""
            data, was, will = (
                np.frombuffer(part.ljust(len(chunk), b"\0"), np.uint8)
                for part in (chunk, before.take(at, len(chunk)), new)
            )
            if not bool(((data == was) | (data == will)).all()):
                return False
            at += len(chunk)
    return at == stop


class _Before:
    """Reads before-images in the order of their positions; zeros where there is none."""

    def __init__(self, frames: Iterator[tuple[int, bytes]]) -> None:
        self._frames = frames
        self._at, self._data = 0, b""

    def take(self, at: int, size: int) -> bytes:
        """Return the old bytes of [at, at + size). Positions must not decrease from call to call."""
        out = bytearray(size)
        while True:
            low, high = max(at, self._at), min(at + size, self._at + len(self._data))
            if low < high:
                out[low - at : high - at] = self._data[low - self._at : high - self._at]
            if self._at + len(self._data) >= at + size:
                break
            frame = next(self._frames, None)
            if frame is None:
                break
            self._at, self._data = frame
        return bytes(out)
