"""Find the next plausible record after damage or after a split point.

A record is accepted if its magic is right, its PHYSICALOFFSET is its position, and its parts add up. A BLANK is
accepted if its size is exactly the number of bytes left in the file. The caller ends the file at a BLANK, so the bytes
after it are never searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.message import (
    BLANK_MAGIC_U32,
    HEAD,
    HEADS_BY_FLAG,
    MAGIC_V1_U32,
    MAGIC_V2_U32,
    MIN_SIZE,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
)
from rmqstore.scan.columns import Columns, framed
from rmqstore.scan.kernels import I64, u32

if TYPE_CHECKING:
    from rmqstore.scan.window import Window

_PREFIX = MAGIC_V1_U32.to_bytes(4, "big")[:3]
_LAST_BYTES = (MAGIC_V1_U32 & 0xFF, MAGIC_V2_U32 & 0xFF)
_FIRST_BLOCK = 16 << 10
_BLOCK = 4 << 20
_LONGEST_HEAD = HEADS_BY_FLAG[0x30].size
ENTRY_SIZE = dledger.ENTRY.size


class Bytes(Protocol):
    """A source of bytes for a search; positions are in the file, and reads may be short at its end."""

    def pread(self, size: int, at: int) -> bytes: ...

    def data_from(self, at: int) -> int:
        """Return the first position from `at` on that is not in a hole of a sparse file; the end if there is none."""
        ...


def frame_size(source: Bytes, at: int, base: int, end: int, *, check_offset: bool = True) -> int | None:
    """Return the size of the message at `at` if it is framed and PHYSICALOFFSET is its position, else None.

    Reads only three small pieces, whatever size the record claims. `base` is the file's global offset, `end` the
    position in the file that no record may cross.
    """
    head = source.pread(_LONGEST_HEAD, at)
    if len(head) < HEAD.size:
        return None
    size = int.from_bytes(head[:4], "big", signed=True)
    magic = int.from_bytes(head[4:8], "big")
    if magic not in (MAGIC_V1_U32, MAGIC_V2_U32) or size < MIN_SIZE or at + size > end:
        return None
    own = int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
    if check_offset and own != base + at:
        return None
    layout = HEADS_BY_FLAG[int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & 0x30]
    body_length = max(0, int.from_bytes(head[layout.size - 4 : layout.size], "big", signed=True))
    wide = 2 if magic == MAGIC_V2_U32 else 1
    topic_at = layout.size + body_length + wide
    if topic_at + 2 > size:
        return None
    length = int.from_bytes(source.pread(wide, at + topic_at - wide), "big", signed=True)
    properties_at = topic_at + length + 2
    if length < 0 or properties_at > size:
        return None
    stored = int.from_bytes(source.pread(2, at + properties_at - 2), "big", signed=True)
    return size if properties_at + max(0, stored) == size else None


def resync(
    source: Bytes, at: int, base: int, end: int, body_offset: int = 0, *, until: int | None = None
) -> tuple[int | None, int]:
    """Find the next record or BLANK from `at` on; with `body_offset`, a record starts with its DLedger entry header.

    Returns its position or None, and the position after the last nonzero byte before it. `until` ends the search early;
    a record after `until` may still be found.
    Units: positions in the file; `end` is the end of the file.
    """
    last_nonzero = at
    size = _FIRST_BLOCK
    lo = at
    stop = end if until is None else min(end, until)
    while lo < stop:
        lo = max(lo, source.data_from(lo) - body_offset - 8)  # the zeros at the start of a record may be part of a hole
        if lo >= stop:
            break
        # blocks overlap by the start of a head, which may cross the end of a block
        block = source.pread(min(size + body_offset + 8, end - lo), lo)
        if len(block) < 8:
            tail = block.rstrip(b"\0")
            return None, lo + len(tail) if tail else last_nonzero
        own = min(size, len(block))
        if block != bytes(len(block)):  # zeros contain nothing, and are compared much faster than searched
            found = _in_block(source, block, lo, own, base, end, body_offset)
            stripped = len(block[: own if found is None else found - lo].rstrip(b"\0"))
            if stripped:
                last_nonzero = lo + stripped
            if found is not None:
                return found, last_nonzero
        lo += own
        size = min(size * 4, _BLOCK)
    return None, last_nonzero


def _in_block(source: Bytes, block: bytes, lo: int, own: int, base: int, end: int, body_offset: int) -> int | None:
    """Return the first acceptable record or BLANK that starts within the first `own` bytes of a block."""
    message = None
    hit = block.find(_PREFIX, body_offset + 4)
    while hit >= 0:
        start = hit - 4 - body_offset
        if start >= own:
            break
        is_magic = hit + 3 < len(block) and block[hit + 3] in _LAST_BYTES
        if is_magic and frame_size(source, lo + hit - 4, base, end) is not None:
            message = lo + start
            break
        hit = block.find(_PREFIX, hit + 1)
    blank = _blank_in(block, lo, min(own, (message - lo) if message is not None else own), end, body_offset)
    if blank is not None:
        return blank
    return message


def _blank_in(block: bytes, lo: int, before: int, end: int, body_offset: int) -> int | None:
    words = u32(np.frombuffer(block, dtype=np.uint8))
    n = min(before, len(words) - 4)
    if n <= 0:
        return None
    first, second = words[:n], words[4 : 4 + n]
    magic, size = (first, second) if body_offset else (second, first)
    blank_magic = 0xFFFFFFFF if body_offset else BLANK_MAGIC_U32
    hits = np.flatnonzero(magic == np.uint32(blank_magic))
    for i in hits.tolist():
        if int(size[i]) == end - lo - i:
            return int(lo + i)
    return None


def proven_records(window: Window, start: int, stop: int) -> Iterator[Columns]:
    """Yield the records that start in [start, stop) of a file and prove themselves, whatever position they name.

    A record proves itself by its frame and its CRCs; of overlapping frames the first one counts. In DLedger data, only
    the messages are recognised, without their entries. The columns are valid until the next iteration.
    Units: `start` and `stop` are positions in the file.
    """
    at = start
    while at < min(stop, window.end):
        at = max(at, window.data_from(at) - 8)  # the zeros at the start of a record may be part of a hole
        if at >= min(stop, window.end):
            return
        window.fill(at)
        frames, cut_off = _frames(window, stop - at)
        if cut_off is not None and not cut_off:  # the record at `at` is longer than the buffer
            window.grow(int.from_bytes(window.view[:4], "big"))
            continue
        if len(frames):
            proven = frames.take(~(frames.wrong_crc | frames.wrong_record_crc))
            if len(proven):
                yield proven
        if cut_off is not None:
            at += cut_off
        elif at + window.have >= window.end:
            return
        else:
            end = int(frames.at[-1] + frames.size[-1]) if len(frames) else 0
            at += max(end, window.have - MIN_SIZE + 1)


def _frames(window: Window, before: int) -> tuple[Columns, int | None]:
    """Return the frames of records that start before `before` in the buffer, without overlaps.

    In addition, return where in the buffer a frame starts that extends beyond it; all other frames are before it.
    """
    lo, have, end = window.base, window.have, window.end - window.base
    base = window.file.start + lo
    starts = _after_magic(window.buf, min(have, before + 8)) - 8
    starts = starts[(starts >= 0) & (starts < before) & (starts <= have - MIN_SIZE)]
    sizes = u32(np.frombuffer(window.buf, dtype=np.uint8))[starts].astype(np.int64)
    fits = (sizes >= MIN_SIZE) & (starts + sizes <= have)
    columns = Columns(window.buf, base, starts[fits])
    if len(columns):
        columns = columns.take(framed(columns, starts[fits] + sizes[fits]))
    columns = columns.take(_apart(columns.at, columns.at + columns.size))
    ends = columns.at + columns.size
    for i in np.flatnonzero((sizes >= MIN_SIZE) & ~fits & (starts + sizes <= end)).tolist():
        at = int(starts[i])
        earlier = int(np.searchsorted(columns.at, at))
        inside = earlier > 0 and int(ends[earlier - 1]) > at
        if not inside and frame_size(window, lo + at, 0, window.end, check_offset=False) is not None:
            return columns.slice(0, earlier), at
    return columns, None


def _after_magic(buf: bytearray, stop: int) -> I64:
    """Return the positions after each magic of a record in the buffer."""
    if buf.find(_PREFIX, 0, stop) < 0:
        return np.empty(0, dtype=np.int64)
    words = u32(np.frombuffer(buf, dtype=np.uint8))[: max(0, stop - 3)]
    found: I64 = np.flatnonzero((words == np.uint32(MAGIC_V1_U32)) | (words == np.uint32(MAGIC_V2_U32))) + 4
    return found


def _apart(starts: I64, ends: I64) -> I64:
    """Return which of some ranges, sorted by their start, remain if each one excludes those that overlap it."""
    if (starts[1:] >= ends[:-1]).all():
        return np.arange(len(starts))
    kept, reached = [], 0
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start >= reached:
            kept.append(i)
            reached = end
    return np.array(kept, dtype=np.int64)
