"""Join the records that go over the border of two fragments of a file.

Blocks of a file that are not beside each other in the source meet at the border of a block. The bytes of a record up to
a border follow its head; those after it lie before the next record of the log, wherever that is in the source. All
borders within the record are tried: its CRC and its frame must fit, and only one result may do so.

If a block of a record has the head of no other record, as in the middle of a long body, nothing shows where it is. Then
the blocks in the neighbourhood that belong to no record are tried. That is limited: a CRC of 32 bits proves little
against very many blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from rmqstore.carving.doubts import ENOUGH
from rmqstore.carving.pieces import LONGEST, Follows, LogPiece, file_end, host_of, records_in
from rmqstore.carving.source import RawSource
from rmqstore.carving.state import CarvingState
from rmqstore.formats import dledger
from rmqstore.formats.message import MAGIC_V1_U32, MAGIC_V2_U32, MIN_SIZE
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import SIZE_AT_IN_ENTRY

_NEAR = 64 << 20
_TRIES = 1 << 22
"""All blocks that are tried in one carving: a wrong one fits with a probability of 2 to the power of -32 each."""
_MOST_BYTES = 256 << 30
_MOST_OF_ONE = 16 << 30
"""Bytes of records that are read to try borders, of all and of one record: lengths are only claims."""
_NEXT = 8
_NEXT_WITHIN = 64 << 10
_OPEN_ENDS = (
    "file_end = 0 AND NOT EXISTS (SELECT 1 FROM pieces AS other WHERE other.body_offset = pieces.body_offset "
    "AND other.start = pieces.stop AND other.stop > other.start)"
)
# a piece that begins before a border and goes on behind it has only bytes in common: the first ones of a size are zeros
_WITHIN = (
    "DELETE FROM pieces WHERE (source > ? AND source + stop - start <= ? AND source < ?) OR (source = ? AND start != ?)"
)


@dataclass(frozen=True, slots=True)
class _RecordPart:
    """Bytes [start, stop) of the log, and where they are in the source."""

    start: int
    stop: int
    source: int


@dataclass(frozen=True, slots=True)
class _OpenEnd:
    """A record that begins at `start` in the log and at `source`; `border`: offset of the first border in it.

    `stop`: its end, 0 if its size lies after the border.
    """

    body_offset: int
    start: int
    source: int
    border: int
    stop: int


def join(source: RawSource, state: CarvingState, block: int) -> int:
    """Add the records over the borders of pieces to the state; return their number. Errors: OSError."""
    joined = 0
    budget = _Budget()
    while new := _join_once(source, state, block, budget):  # what is joined may end where another record is open
        joined += new
    return joined


@dataclass(slots=True)
class _Budget:
    """What may still be tried: blocks, and bytes of records; the records tried in vain, by position and end."""

    tries: int = _TRIES
    bytes: int = _MOST_BYTES
    in_vain: set[tuple[int, int]] = field(default_factory=set)


def _join_once(source: RawSource, state: CarvingState, block: int, budget: _Budget) -> int:
    joined, left = 0, []
    for end in _open_ends(source, state, block):
        parts = _across(source, state, end, block, budget)
        if parts:
            joined += _add(source, state, end, parts)
        elif end.stop and (end.source, end.stop) not in budget.in_vain:
            left.append(end)
    return joined or _with_lost_blocks(source, state, left, block, budget)


def _open_ends(source: RawSource, state: CarvingState, block: int) -> Iterator[_OpenEnd]:
    """Yield the records that begin where a piece ends, and whose rest is in another block."""
    seen = set()
    for piece in list(state.pieces(_OPEN_ENDS)):
        at = piece.at(piece.stop)
        nothing_there = at % block == 0 and piece.size
        if nothing_there or (at, piece.stop) in seen:
            continue
        seen.add((at, piece.stop))
        end = _head(source, piece.body_offset, piece.stop, at, block - at % block)
        if end is not None:
            yield end


def _head(source: RawSource, body_offset: int, start: int, at: int, left: int) -> _OpenEnd | None:
    """Return the record at a position, of which `left` bytes are before the border; None if there is none."""
    raw = source.read(min(left, dledger.ENTRY.size), at)
    size_at = SIZE_AT_IN_ENTRY if body_offset else 0
    magics = (dledger.MAGIC,) if body_offset else (MAGIC_V1_U32, MAGIC_V2_U32)
    magic = raw[:4] if body_offset else raw[4:8]
    if len(magic) == 4 and int.from_bytes(magic, "big") not in magics:
        return None
    size = int.from_bytes(raw[size_at : size_at + 4], "big") if len(raw) >= size_at + 4 else 0
    if size and not max(left, MIN_SIZE + body_offset) <= size <= LONGEST:
        return None
    return _OpenEnd(body_offset, start, at, start + left, start + size if size else 0)


# --- the next record shows where the rest is --------------------------------------------------------------------------


def _across(source: RawSource, state: CarvingState, end: _OpenEnd, block: int, budget: _Budget) -> list[_RecordPart]:
    """Return the parts of a record whose end lies before the next piece; empty unless exactly one border fits."""
    for piece in _next_pieces(state, end):
        segment, size = source.segment_at(piece.source), piece.start - end.start
        cost = size * (size // block + 1)
        if cost > min(budget.bytes, _MOST_OF_ONE):
            continue
        budget.bytes -= cost
        before = source.read(piece.start - end.start, end.source)
        fitting: dict[bytes, int] = {}
        for border in range(end.border, piece.start + 1, block):
            if segment is None or piece.at(border) < segment.start:
                continue
            data = before[: border - end.start] + source.read(piece.start - border, piece.at(border))
            whole = len(data) == piece.start - end.start and data not in fitting
            known = piece.start - piece.source % block
            if whole and _is_proven(end, data, known, block):
                fitting[data] = border
        if len(fitting) == 1:
            (border,) = fitting.values()
            last = _RecordPart(border, piece.start, piece.at(border))
            return [_RecordPart(end.start, border, end.source), *([last] if border < piece.start else [])]
    return []


def _is_proven(end: _OpenEnd, data: bytes, known: int, block: int) -> bool:
    """Return whether these bytes are one record, whose CRC covers some bytes of every block.

    Only the first block, and those from the offset `known` on, are known to belong to the log anyway.
    """
    columns = records_in(end.body_offset, data, end.start)
    if columns is None or len(columns) != 1:
        return False
    if columns.has_tail[0]:
        return True
    low = end.start + end.body_offset + int(columns.body_at[0] - columns.at[0])
    high = low + int(columns.body_length[0])
    borders = range(end.border, min(known, end.start + len(data)), block)
    return all(min(high, border + block) - max(low, border) >= ENOUGH for border in borders)


def _next_pieces(state: CarvingState, end: _OpenEnd) -> list[LogPiece]:
    """Return the pieces that may begin where a record ends."""
    if end.stop:
        found = state.pieces("body_offset = ? AND start = ?", (end.body_offset, end.stop))
    else:
        place = (end.body_offset, end.border, end.start + _NEXT_WITHIN)
        found = state.pieces("body_offset = ? AND start > ? AND start < ?", place)
    elsewhere = (piece for piece in found if piece.at(end.start) != end.source)
    return list(islice(elsewhere, _NEXT))


# --- nothing shows where a block is -----------------------------------------------------------------------------------


def _with_lost_blocks(source: RawSource, state: CarvingState, ends: list[_OpenEnd], block: int, budget: _Budget) -> int:
    """Join records of which one stretch of blocks has no other head, as long as there are not too many to try."""
    joined = 0
    for end in ends:
        budget.tries -= min(2 * _NEAR, source.size) // block
        if budget.tries < 0:
            return joined
        free = _free_blocks(source, state, end.source, block)
        for before, after in _frames_of(source, state, end, block):
            parts = _filled(source, end, before, after, free, block)
            if parts:
                joined += _add(source, state, end, parts)
                break
        else:
            budget.in_vain.add((end.source, end.stop))
    return joined


def _frames_of(
    source: RawSource, state: CarvingState, end: _OpenEnd, block: int
) -> Iterator[tuple[_RecordPart, _RecordPart | None]]:
    """Yield what is known of a record: its first part, and its last one if a piece begins at its end."""
    first = _RecordPart(end.start, end.border, end.source)
    for piece in _next_pieces(state, end):
        at = piece.at(end.stop)
        border = end.stop - at % block
        if border > end.border:
            yield first, _RecordPart(border, end.stop, piece.at(border))
    yield first, None


def _filled(
    source: RawSource, end: _OpenEnd, first: _RecordPart, last: _RecordPart | None, free: list[int], block: int
) -> list[_RecordPart]:
    """Return the parts of a record with a stretch of free blocks between its first and last part."""
    stop = end.stop if last is None else last.start
    head = source.read(first.stop - first.start, first.source)
    tail = b"" if last is None else source.read(last.stop - last.start, last.source)
    fitting: dict[bytes, int] = {}
    length = stop - first.stop
    needed = -(-length // block)
    for i, at in enumerate(free):
        if i + needed > len(free) or free[i + needed - 1] != at + (needed - 1) * block:
            continue
        middle = source.read(length, at)
        if middle not in fitting and _is_proven(end, head + middle + tail, stop, block):
            fitting[middle] = at
    if len(fitting) != 1:
        return []
    (found,) = fitting.values()
    return [first, _RecordPart(first.stop, stop, found), *([] if last is None else [last])]


def _free_blocks(source: RawSource, state: CarvingState, at: int, block: int) -> list[int]:
    """Return the blocks near a position that belong to no piece; of those with the same bytes, the first one."""
    segment = source.segment_at(at)
    if segment is None:
        return []
    low = max(segment.start, (at - _NEAR) // block * block)
    high = min(segment.stop, at + _NEAR) - block
    used = state.rows(
        "SELECT source, source + stop - start FROM pieces WHERE source >= ? AND source < ? ORDER BY source",
        (low - (1 << 30), high + block),
    )
    starts = [row[0] for row in used]
    free, zero_seen = [], False
    for position in range(low, high + 1, block):
        i = bisect_left(starts, position + block)
        if any(stop > position or start >= position for start, stop in used[max(0, i - 2) : i]):
            continue
        if not any(source.read(block, position)):
            if zero_seen:
                continue
            zero_seen = True
        free.append(position)
    return free


# --- the result -------------------------------------------------------------------------------------------------------


def _add(source: RawSource, state: CarvingState, end: _OpenEnd, parts: list[_RecordPart]) -> int:
    """Add the pieces of joined records, and remove what lies within them; return the number of records."""
    data = b"".join(source.read(part.stop - part.start, part.source) for part in parts)
    columns = records_in(end.body_offset, data, end.start)
    assert columns is not None
    pieces = [_piece(end.body_offset, part, columns) for part in parts]
    pieces[0].count = len(columns)
    if end.body_offset:
        pieces[0].first_index, pieces[0].term = int(columns.entry_index[0]), int(columns.entry_term[-1])
    last = parts[-1]
    at = last.source + last.stop - last.start
    pieces[-1].file_end = file_end(source.read(dledger.BLANK.size, at), last.stop, end.body_offset)
    with state.transaction():
        for part in parts:
            stop = part.source + part.stop - part.start
            state.change(_WITHIN, (part.source, stop, stop, part.source, part.start))
    state.add(pieces)
    return len(columns)


def _piece(body_offset: int, part: _RecordPart, columns: Columns) -> LogPiece:
    times = columns.store_timestamp
    piece = LogPiece(
        body_offset, part.source, part.start, part.stop, 0, host_of(columns), int(times[0]), int(times[-1])
    )
    piece.last_at = int(columns.offset[-1]) - body_offset
    piece.proven, piece.follows = part.stop, Follows.OWN
    return piece
