"""Byte ranges of files as Spark partitions: planned by bytes, and cut where a scan of the whole file has a border.

A piece owns the records that a scan of the whole file would find to start in it. The position of the first one is
not taken from the first thing that looks like a record: the reader goes back by more than a message can be long and
walks from there, so that neither a record inside of a body nor old bytes behind a BLANK are taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.scan.records import scan_file
from rmqstore.scan.resync import resync
from rmqstore.scan.window import ScanOptions, Window

SPLIT_SIZE = 64 << 20
LOOK_BACK = 5 << 20  # more than the greatest message that a broker takes by default (4 MiB), with its properties
FILE_COST = 1 << 20  # bytes that opening a file is worth when small ones are packed together
_WALK = ScanOptions(crc=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, stop) of a file, positions in the file.

    `store` is the label, `queue` the name of the log or `TOPIC/ID`; `lead` bytes precede every message. `exact`:
    a record (or the file) is known to begin at `start`.
    """

    store: str
    queue: str
    lead: int
    file: MappedFile
    start: int
    stop: int
    exact: bool = False

    @property
    def cost(self) -> int:
        """What reading it is worth, in bytes."""
        return max(0, min(self.stop, self.file.length) - self.start) + FILE_COST


def log_pieces(
    store: str,
    name: str,
    queue: MappedFileQueue,
    lead: int,
    size: int,
    *,
    low: int | None = None,
    high: int | None = None,
) -> Iterator[Piece]:
    """The files of a log cut into pieces of about `size` bytes; `low` and `high` leave out what lies outside of them.

    Units: bytes; `low`, `high` are global offsets.
    """
    size = max(size, 4096)
    for file in queue.files:
        if (low is not None and file.stop <= low) or (high is not None and file.start >= high):
            continue
        length = min(file.length, file.file_size)
        count = max(1, round(length / size))
        step = -(-length // count)
        for i in range(count):
            start, stop = i * step, file.file_size if i == count - 1 else (i + 1) * step
            if low is not None and file.start + stop + LOOK_BACK <= low:
                continue  # no record that starts in it can reach to `low`
            if high is not None and file.start + start >= high:
                break
            yield Piece(store, name, lead, file, start, stop, exact=i == 0)


def packed(pieces: Iterable[Piece], size: int) -> list[tuple[Piece, ...]]:
    """Pieces in groups of about `size` bytes, in order: thousands of small files become few tasks."""
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
    """Position in the file from which a piece is to be read: a border of the whole file's scan, at or behind its start.

    None when no record and no damage begins in it. Errors: OSError when the file cannot be opened.
    """
    if piece.exact or piece.start == 0:
        return piece.start
    file = piece.file
    at = max(0, piece.start - LOOK_BACK)
    if at:
        window = Window(file, _WALK)
        try:
            found, _ = resync(window, at, file.start, window.end, piece.lead)
        finally:
            window.close()
        if found is None:
            return None  # nothing but damage from there on: the piece before goes over it
        at = found
    if at >= piece.start:
        return at if at < piece.stop else None
    for run in scan_file(file, start=at, stop=piece.start, lead=piece.lead, exact=True, options=_WALK):
        at = run.stop - file.start
    return at if at < piece.stop else None


def spread(items: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Cut costs into at most `parts` neighbouring stretches of about the same sum; half-open index ranges."""
    out: list[tuple[int, int]] = []
    total, start, done = sum(items), 0, 0
    for i, cost in enumerate(items):
        done += cost
        if done * parts >= total * (len(out) + 1) or i == len(items) - 1:
            out.append((start, i + 1))
            start = i + 1
    return out
