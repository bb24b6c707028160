"""What is written of the pieces of a life: each byte of its log once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqstore.carving.lives import bytes_of
from rmqstore.carving.pieces import LogPiece
from rmqstore.carving.source import RawSource
from rmqstore.carving.state import CarvingState
from rmqstore.scan.records import Frames
from rmqstore.scan.window import SLACK

_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """A piece, or the part of it that no piece before has: what is written of it."""

    piece: LogPiece
    start: int
    stop: int


def places(state: CarvingState, life: int, body_offset: int) -> Iterator[WrittenPiece]:
    """Yield what is written of a life's log, in order and without overlaps."""
    at = 0
    for piece in state.pieces("life = ? AND body_offset = ? AND stop > start", (life, body_offset)):
        if piece.stop > at:
            yield WrittenPiece(piece, max(at, piece.start), piece.stop)
            at = piece.stop


def count_records(source: RawSource, place: WrittenPiece) -> int:
    """Return the number of records that begin in what is written of a piece."""
    piece = place.piece
    if place.start == piece.start:
        return piece.count
    frames = Frames(piece.body_offset, crc=False, buffer=_BLOCK)
    at, before = piece.start, 0
    while at < place.start:
        data = bytes_of(source, piece, at, min(place.start, at + _BLOCK))
        columns, _ = frames.read(bytearray(data + bytes(SLACK)), len(data), at, 0, len(data))
        if not len(columns):  # the last one is written in part, or it is longer than the buffer
            at += int.from_bytes(data[frames.size_at : frames.size_at + 4], "big") or place.start
            before += 1
            continue
        before += len(columns)
        at = int(columns.offset[-1] + columns.size[-1])
    return piece.count - before
