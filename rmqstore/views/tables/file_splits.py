"""Byte ranges of files as Spark partitions, which together yield the same records as a scan of the whole files.

A piece owns the records that a scan of the whole file finds to start in it. To find the first one, a reader starts
farther back than the length of any message and scans from there. So it mistakes neither a record inside a body nor old
bytes after a BLANK for a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.scan.columns import NOTHING, Repaired
from rmqstore.scan.records import scan_file
from rmqstore.scan.resync import resync
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.scan.workers import plan_splits

LOOK_BACK = 5 << 20  # more than the largest message that a broker accepts by default (4 MiB) with its properties
FILE_COST = 1 << 20  # the time to open a file, in bytes that could be read meanwhile
_NO_CRC = ScanOptions(crc=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, stop) of a file (positions in the file).

    `store`: label of the store. `queue`: name of the log, or `TOPIC/ID`. `body_offset`: bytes before every message.
    `exact`: a record is known to start at `start`. `repaired`: what journals tell about the log.
    """

    store: str
    queue: str
    body_offset: int
    file: MappedFile
    start: int
    stop: int
    exact: bool = False
    repaired: Repaired = NOTHING

    @property
    def cost(self) -> int:
        """The cost of reading it, in bytes."""
        return max(0, min(self.stop, self.file.length) - self.start) + FILE_COST


def log_pieces(
    store: str,
    name: str,
    queue: MappedFileQueue,
    body_offset: int,
    size: int,
    *,
    low: int | None = None,
    high: int | None = None,
) -> Iterator[Piece]:
    """Yield pieces of about `size` bytes of a log, except those without a record in [low, high) (global offsets)."""
    for split in plan_splits(queue, body_offset=body_offset, size=max(size, 4096)):
        file = split.file
        if low is not None and min(file.stop, file.start + split.stop + LOOK_BACK) <= low:
            continue  # no record that starts in it can extend to `low`
        if high is not None and file.start + split.start >= high:
            continue
        yield Piece(store, name, body_offset, file, split.start, split.stop, split.exact)


def packed(pieces: Iterable[Piece], size: int) -> list[tuple[Piece, ...]]:
    """Group adjacent pieces to about `size` bytes, so that thousands of small files become few tasks."""
    out: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    cost = 0
    for piece in pieces:
        if group and cost + piece.cost > size + FILE_COST:
            out.append(tuple(group))
            group, cost = [], 0
        group.append(piece)
        cost += piece.cost
    if group:
        out.append(tuple(group))
    return out


def first_border(piece: Piece) -> int | None:
    """Return the first run border of the whole file's scan in a piece: the position from which to read the piece.

    None if no run starts in it. Errors: OSError if the file cannot be opened.
    """
    if piece.exact or piece.start == 0:
        return piece.start
    file = piece.file
    at = max(0, piece.start - LOOK_BACK)
    if at:
        with closing(Window(file, _NO_CRC)) as window:
            found, _ = resync(window, at, file.start, window.end, piece.body_offset)
        if found is None:
            return None  # only damage follows, which the piece before reads
        at = found
    if at >= piece.start:
        return at if at < piece.stop else None
    for run in scan_file(file, start=at, stop=piece.start, body_offset=piece.body_offset, exact=True, options=_NO_CRC):
        at = run.stop - file.start
    return at if at < piece.stop else None


def spread(items: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Divide costs into at most `parts` ranges of indexes [start, stop) with about the same sum."""
    out: list[tuple[int, int]] = []
    total, start, done = sum(items), 0, 0
    for i, cost in enumerate(items):
        done += cost
        if done * parts >= total * (len(out) + 1) or i == len(items) - 1:
            out.append((start, i + 1))
            start = i + 1
    return out
