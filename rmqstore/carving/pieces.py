"""Find pieces: stretches of the source in which proven records follow one another, as they do in the log.

The search looks for the magic of a record. A record there counts if its place fits (`fits`), and if it proves itself
(`proven`); then the size fields lead from record to record. A BLANK or zeros after the last one end the piece as they
end a log file. Where a head fits and its record does not prove itself, because its rest is in another block or gone, a
piece without records marks the place: `joining` needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from rmqstore.carving.documents import DocumentFinder, FoundDocument
from rmqstore.carving.source import SECTOR, RawSource, SourceSegment
from rmqstore.files.mapped_file_queue import MAX_OFFSET
from rmqstore.formats import dledger
from rmqstore.formats.message import (
    BLANK_MAGIC_U32,
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    HEAD,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    MIN_SIZE,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_V6,
)
from rmqstore.scan import native
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, Bool, leading
from rmqstore.scan.records import Frames
from rmqstore.scan.resync import frame_size
from rmqstore.scan.window import SLACK, ScanOptions, Window

LONGEST = 64 << 20
"""Bytes of the longest record: brokers refuse messages of more than 4 MiB unless maxMessageSize is raised."""
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1_U32, MAGIC_V2_U32)))
_MAGIC_AT = HEAD.at("magic")
_ENTRY = dledger.ENTRY
_OWN_PLACE_STOP = PHYSICAL_OFFSET_AT + 8
_LEAD = _ENTRY.size + _MAGIC_AT
_STORE_HOST_AT = HEAD.at("store_host")
_CHUNK = 8 << 20
_LEAST_REACH, _MOST_REACH = 16 << 10, 1 << 40
_LONGEST_PIECE = 256 << 20
_STEP = 64 << 20
_UNUSED = 64
_DIGITS = np.arange(len(CRC32_PROPERTY) - CRC32_RESERVED_LEN, -1)
_REST = 1 << 44
"""Largest number of bytes that a BLANK can close; anything more is no BLANK."""


class Follows(IntEnum):
    """What follows the last record of a piece."""

    UNKNOWN = 0
    OWN = 1  # the head of the record that belongs there, or a BLANK: the block of the end belongs to the log
    FOREIGN = 2  # the head of a record with another place
    ZEROS = 3  # as after the end of a log


@dataclass(slots=True)
class LogPiece:
    """Records that follow one another in the source. Without bytes, it is the border of a record at `start`.

    `body_offset`: 48 for DLedger entries, else 0. `source`: position of the first byte. `start`, `stop`, `last_at`:
    offsets of the first byte, of the end, and of the last record. `proven`: offset up to which a CRC covers the last
    record. `file_end`: the end of the log file that a BLANK names, 0 without one. Times in ms. `first_index`: of the
    first entry, `term`: of the last one. `number`: in the state.
    A record over the border of two pieces is a piece for each of its parts; those after the first have `count` 0.
    """

    body_offset: int
    source: int
    start: int
    stop: int
    count: int
    host: bytes = b""
    first_time: int = 0
    last_time: int = 0
    last_at: int = 0
    proven: int = 0
    follows: int = Follows.UNKNOWN
    file_end: int = 0
    first_index: int = 0
    term: int = 0
    number: int = 0

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self.first_index + self.count - 1

    def at(self, offset: int) -> int:
        """Return the position in the source of a byte of the log, which may be before or after the piece."""
        return self.source + offset - self.start


COLUMNS = tuple(field.name for field in fields(LogPiece))


def fits(source: int, offset: int) -> bool:
    """Return whether a record of this offset can be at a position of the source.

    Files begin with a sector, and the size of log files is a multiple of it.
    """
    return 0 <= offset < MAX_OFFSET - LONGEST and (source - offset) % SECTOR == 0


def proven(columns: Columns) -> Bool:
    """Return which framed records prove themselves: CRCs, place and topic; in DLedger data, also the entry header."""
    wrong = columns.wrong_crc | columns.wrong_record_crc | columns.elsewhere | (columns.topic_length <= 0)
    wrong |= (columns.body_length < 0) | (columns.port_tops != 0) | _has_half_tail(columns)
    if columns.body_offset:
        index, term = columns.entry_index, columns.entry_term
        wrong |= (columns.entry_magic != dledger.MAGIC) | (columns.entry_pos != columns.offset - columns.body_offset)
        wrong |= columns.entry_body_length != columns.size
        wrong |= (index < 0) | (term < 0) | (index != index[0] + np.arange(len(index)))
        wrong[1:] |= term[1:] < term[:-1]
    return ~wrong


def file_end(raw: bytes, offset: int, body_offset: int) -> int:
    """Return the end of the log file that a BLANK at an offset names; 0 if these bytes are none."""
    first, second = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
    magic, left = (first, second) if body_offset else (second, first)
    if len(raw) < dledger.BLANK.size or magic != (0xFFFFFFFF if body_offset else BLANK_MAGIC_U32):
        return 0
    return offset + left if left < _REST and (offset + left) % SECTOR == 0 else 0


def _is_unused(raw: bytes, at: int) -> bool:
    """Return whether these bytes at a position are zeros to the end of a sector, and enough of them to be no field."""
    left = -at % SECTOR
    zeros = left if left >= _UNUSED else left + SECTOR
    return len(raw) >= zeros and not any(raw[:zeros])


def records_in(body_offset: int, data: bytes, offset: int) -> Columns | None:
    """Return the records that together are exactly these bytes of a log; None unless all of them prove themselves."""
    frames = Frames(body_offset, crc=True, buffer=len(data))
    columns, _ = frames.read(bytearray(data + bytes(SLACK)), len(data), offset, 0, len(data))
    if not len(columns) or int(columns.offset[-1] + columns.size[-1]) != offset + len(data):
        return None
    return columns if proven(columns).all() else None


@dataclass(frozen=True, slots=True)
class ScanFindings:
    """What was found. `done`: the position of the source from which to go on."""

    pieces: list[LogPiece]
    documents: list[FoundDocument]
    done: int


def _has_half_tail(columns: Columns) -> Bool:
    """Return which records seem to end with the property __CRC32#, and do not."""
    half = columns.has_tail.copy()
    rows = np.flatnonzero(half)
    if len(rows):
        stop = columns.at[rows] + columns.size[rows]
        digits = columns.buf[stop[:, None] + _DIGITS] - np.uint8(ord("0"))
        whole = (digits <= 9).all(axis=1) & (columns.buf[stop - 1] == 2)
        whole &= columns.buf[stop - CRC32_RESERVED_LEN + len(CRC32_PROPERTY) - 1] == 1
        half[rows] = ~whole
    return half


def find_pieces(source: RawSource, segment: SourceSegment, at: int) -> Iterator[ScanFindings]:
    """Yield what a segment has from a position of the source on, every few megabytes and at its end.

    Errors: OSError if it cannot be opened.
    """
    window = _WatchedWindow(source.mapped(segment), ScanOptions(chunk=_CHUNK))
    window.documents = DocumentFinder(window, segment.start)
    try:
        for pieces, done in _Finder(window, segment.start).run(at - segment.start):
            found, window.documents.found = window.documents.found, []
            yield ScanFindings(pieces, found, done)
    finally:
        window.close()


class _WatchedWindow(Window):
    """A window that shows to another search what it reads."""

    documents: DocumentFinder

    def fill(self, at: int) -> None:
        super().fill(at)
        self.documents.look()


@dataclass(frozen=True, slots=True)
class _Head:
    """A head whose place fits. `at`: position of the record, or of its entry, in the segment; `offset`: in the log."""

    at: int
    offset: int
    body_offset: int


class _Finder:
    """Finds the pieces of one segment. Positions are those in the segment; `first` is its own in the source."""

    def __init__(self, window: Window, first: int) -> None:
        self.window = window
        self.first = first
        self.found: list[LogPiece] = []
        self.piece: LogPiece | None = None
        self._frames = {size: Frames(size, crc=True, buffer=_LEAST_REACH) for size in (0, dledger.BODY_OFFSET)}
        self._reach = _LEAST_REACH

    def run(self, at: int) -> Iterator[tuple[list[LogPiece], int]]:
        """Yield pieces and the position after them, every few megabytes and at the end."""
        told = at
        while at < self.window.end:
            at = self._step(at)
            if at - told >= _STEP:
                told = at
                resume = self.first + at if self.piece is None else self.piece.source
                yield self._taken(), resume
        self._close(self.window.end)
        yield self._taken(), self.first + self.window.end

    def _taken(self) -> list[LogPiece]:
        found, self.found = self.found, []
        return found

    def _step(self, at: int) -> int:
        """Go on from a position, behind which everything is known; return the next such position."""
        piece = self.piece
        if piece is not None:
            length = self._walk(_Head(at, piece.stop, piece.body_offset))
            if length:
                return at + length
            at = self._close(at)
        head = self._next_head(at)
        if head is None:
            return self.window.end
        length = self._walk(head)
        if length:
            return head.at + length
        self._mark(head)
        return head.at + head.body_offset + 1

    # --- the search -----------------------------------------------------------------------------------------------

    def _next_head(self, at: int) -> _Head | None:
        """Return the next head whose place fits, of a record that begins at `at` or later; None if there is none."""
        window = self.window
        begin = at
        while begin < window.end:
            begin = max(begin, window.data_from(begin) - _LEAD)  # the zeros at the start of a record may be in a hole
            if not window.base <= begin < window.base + window.have - _LEAD:
                window.fill(begin)
            last = window.base + window.have >= window.end
            found = _next_magic(window.buf, begin - window.base + _MAGIC_AT, window.have)
            if found < 0:
                if last:
                    return None
                begin = max(begin + 1, window.base + window.have - _LEAD)
                continue
            start = window.base + found - _MAGIC_AT
            if not last and start + _OWN_PLACE_STOP > window.base + window.have:
                window.fill(max(at, start - _ENTRY.size))
            head = self._head_at(start, at)
            if head is not None:
                return head
            begin = start + 1
        return None

    def _head_at(self, start: int, floor: int) -> _Head | None:
        """Return the head of a record at a position if its place fits; its entry begins at `floor` or later."""
        raw = self.window.pread(_OWN_PLACE_STOP, start)
        if len(raw) < _OWN_PLACE_STOP:
            return None
        size = int.from_bytes(raw[:4], "big", signed=True)
        offset = int.from_bytes(raw[PHYSICAL_OFFSET_AT:], "big", signed=True)
        if not MIN_SIZE <= size <= LONGEST or not fits(start, offset):
            return None
        at = start - _ENTRY.size
        if at >= floor and self._entry_at(at) == (offset - _ENTRY.size, size):
            return _Head(at, offset - _ENTRY.size, _ENTRY.size)
        if self._entry_at(start + size, offset + size):
            self._mark(_Head(start + size, offset + size, _ENTRY.size))  # the header of its entry is in another block
            return None
        return _Head(start, offset, 0)

    def _entry_at(self, at: int, offset: int | None = None) -> tuple[int, int] | None:
        """Return position in the log and body length of the entry header at a position; None if there is none.

        `offset`: the position that it must name.
        """
        raw = self.window.pread(_ENTRY.size, at)
        if len(raw) < _ENTRY.size or int.from_bytes(raw[:4], "big") != dledger.MAGIC:
            return None
        entry = _ENTRY.parse(raw)
        sound = entry["size"] == _ENTRY.size + entry["body_length"] and entry["index"] >= 0 and entry["term"] >= 0
        if not sound or offset not in (None, entry["pos"]):
            return None
        return entry["pos"], entry["body_length"]

    def _mark(self, head: _Head) -> None:
        """Note the border of a record that does not prove itself."""
        source = self.first + head.at
        if fits(source, head.offset):
            self.found.append(LogPiece(head.body_offset, source, head.offset, head.offset, 0))

    # --- from record to record ------------------------------------------------------------------------------------

    def _walk(self, head: _Head) -> int:
        """Add the proven records from a head on to the pieces, as far as the buffer goes; return their length."""
        window, frames = self.window, self._frames[head.body_offset]
        if not self._read_whole(head, frames):
            return 0
        lo = head.at - window.base
        stop = min(window.have, lo + self._reach)
        columns, _ = frames.read(window.buf, window.have, head.offset - lo, lo, stop)
        count = leading(proven(columns)) if len(columns) else 0
        if count and self._skips(columns, head):
            count = 0
        self._reach = min(self._reach * 2, _MOST_REACH) if count and count == len(columns) else _LEAST_REACH
        if not count:
            return 0
        self._add(columns.slice(0, count), head)
        last = count - 1
        return int(columns.at[last] + columns.size[last]) - lo

    def _skips(self, columns: Columns, head: _Head) -> bool:
        """Return whether the index of an entry does not follow that of the piece, or its term is lower."""
        piece = self.piece
        if piece is None or not head.body_offset:
            return False
        return int(columns.entry_index[0]) != piece.last_index + 1 or int(columns.entry_term[0]) < piece.term

    def _read_whole(self, head: _Head, frames: Frames) -> bool:
        """Read the record at a head into the buffer; return whether it can be a record, by its frame."""
        window = self.window
        raw = window.pread(4, head.at + frames.size_at)
        size = int.from_bytes(raw, "big") if len(raw) == 4 else 0
        if not frames.least <= size <= LONGEST or head.at + size > window.end:
            return False
        if window.base <= head.at and head.at + size <= window.base + window.have:
            return True
        message = head.at + head.body_offset
        if frame_size(window, message, 0, window.end, check_offset=False) != size - head.body_offset:
            return False
        if size > len(window.buf) - SLACK:
            window.grow(size)
        window.fill(head.at)
        return head.at + size <= window.base + window.have

    def _add(self, columns: Columns, head: _Head) -> None:
        """Add proven records to the piece; another store host begins a new one."""
        hosts = _host_changes(columns)
        for lo, hi in zip([0, *hosts], [*hosts, len(columns)], strict=True):
            rows = columns.slice(lo, hi)
            piece, host = self.piece, host_of(rows)
            start = int(rows.offset[0]) - rows.body_offset
            if piece is None or piece.host != host or piece.size >= _LONGEST_PIECE:
                if piece is not None:
                    piece.follows = Follows.OWN
                    self.found.append(piece)
                source = self.first + head.at + start - head.offset
                first_time = int(rows.store_timestamp[0])
                piece = self.piece = LogPiece(head.body_offset, source, start, start, 0, host, first_time)
                if head.body_offset:
                    piece.first_index = int(rows.entry_index[0])
            last = len(rows) - 1
            piece.stop = int(rows.offset[last] + rows.size[last])
            piece.count += len(rows)
            piece.last_at = int(rows.offset[last]) - rows.body_offset
            piece.last_time = int(rows.store_timestamp[last])
            body_stop = int(rows.body_at[last] + max(0, int(rows.body_length[last])) - rows.at[last])
            piece.proven = piece.stop if rows.has_tail[last] else int(rows.offset[last]) + body_stop
            if head.body_offset:
                piece.term = int(rows.entry_term[last])

    def _close(self, at: int) -> int:
        """End the piece, whose last record ends at `at`, and return where the search goes on.

        That is within the last record if its end may be in a block of another file: see `doubts`.
        """
        piece, self.piece = self.piece, None
        if piece is None:
            return at
        raw = self.window.pread(2 * SECTOR, at)
        second = int.from_bytes(raw[4:8], "big")
        piece.file_end = file_end(raw, piece.stop, piece.body_offset)
        if piece.file_end:
            piece.follows = Follows.OWN
        elif _is_unused(raw, at):
            piece.follows = Follows.ZEROS
        elif piece.body_offset:
            entry = self._entry_at(at)
            if entry is not None:
                piece.follows = Follows.OWN if entry[0] == piece.stop else Follows.FOREIGN
        elif second in (MAGIC_V1_U32, MAGIC_V2_U32) and len(raw) >= _OWN_PLACE_STOP:
            own = int.from_bytes(raw[PHYSICAL_OFFSET_AT:_OWN_PLACE_STOP], "big", signed=True)
            piece.follows = Follows.OWN if own == piece.stop else Follows.FOREIGN
        self.found.append(piece)
        if piece.follows == Follows.OWN:
            return at
        last = at - (piece.stop - piece.last_at)
        return min(at, last // SECTOR * SECTOR + SECTOR)


def _next_magic(buf: bytearray, at: int, have: int) -> int:
    """Return the position of the first magic of a record from `at` on; -1 if there is none."""
    return native.load().find_either(np.frombuffer(buf, np.uint8), have, at, (MAGIC_V1_U32, MAGIC_V2_U32))


def _host_at(columns: Columns) -> I64:
    return columns.at + _STORE_HOST_AT + columns.born_growth


def _host_changes(columns: Columns) -> list[int]:
    """Return the records whose store host differs from that of the record before."""
    at = _host_at(columns)
    address, family = columns.i64(at), columns.sys_flag & STORE_HOST_V6
    differs = (address[1:] != address[:-1]) | (family[1:] != family[:-1])
    if family.any():
        rest = np.where(family != 0, 8, 0)
        low, port = columns.i64(at + rest), columns.i32(at + 2 * rest)
        differs |= (low[1:] != low[:-1]) | ((port[1:] != port[:-1]) & (family[1:] != 0))
    changes: list[int] = (np.flatnonzero(differs) + 1).tolist()
    return changes


def host_of(columns: Columns) -> bytes:
    """Return the stored form of the first record's store host."""
    at = int(_host_at(columns)[0])
    size = 20 if int(columns.sys_flag[0]) & STORE_HOST_V6 else 8
    return columns.buf[at : at + size].tobytes()
