"""The next plausible record after damage, or from any split point.

A record is accepted where its magic is, its PHYSICALOFFSET is its own position and its parts add up; a BLANK where
its size is exactly what is left of the file. Nothing inside a BLANK's tail is ever looked at: the caller ends a file
there.
"""

from __future__ import annotations

from typing import Protocol

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
from rmqstore.scan.kernels import u32

_PREFIX = MAGIC_V1_U32.to_bytes(4, "big")[:3]
_LAST_BYTES = (MAGIC_V1_U32 & 0xFF, MAGIC_V2_U32 & 0xFF)
_FIRST_BLOCK = 16 << 10
_BLOCK = 4 << 20
_LONGEST_HEAD = HEADS_BY_FLAG[0x30].size
ENTRY_SIZE = dledger.ENTRY.size


class Bytes(Protocol):
    """What a search reads from: positions are in the file, reads may come back short at its end."""

    def pread(self, size: int, at: int) -> bytes: ...

    def data_from(self, at: int) -> int:
        """Where data begins from `at` on: `at` itself outside of a hole of a sparse file, the end when none follows."""
        ...


def frame_size(source: Bytes, at: int, base: int, end: int, *, check_offset: bool = True) -> int | None:
    """Size of the message at `at` when it is framed and is where it says, else None.

    Reads three small pieces, however long the record claims to be. `base` is the file's global offset, `end` the
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
    source: Bytes, at: int, base: int, end: int, lead: int = 0, *, until: int | None = None
) -> tuple[int | None, int]:
    """Position of the next record (its DLedger header where `lead`) or BLANK from `at` on, and how far bytes go.

    Returns (position or None, position just past the last byte that is not zero before it).
    `until` ends the search early: whether a record is found behind it is left open.
    Units: positions in the file; `end` is where the file ends.
    """
    last_nonzero = at
    size = _FIRST_BLOCK
    lo = at
    stop = end if until is None else min(end, until)
    while lo < stop:
        lo = max(lo, source.data_from(lo) - lead - 8)  # a record may begin with zeros at a hole's edge
        if lo >= stop:
            break
        # a record's head may lie over the block's edge: blocks overlap by it
        block = source.pread(min(size + lead + 8, end - lo), lo)
        if len(block) < 8:
            tail = block.rstrip(b"\0")
            return None, lo + len(tail) if tail else last_nonzero
        own = min(size, len(block))
        found = _in_block(source, block, lo, own, base, end, lead)
        used = block[: own if found is None else found - lo]
        stripped = len(used.rstrip(b"\0")) if used else 0
        if stripped:
            last_nonzero = lo + stripped
        if found is not None:
            return found, last_nonzero
        lo += own
        size = min(size * 4, _BLOCK)
    return None, last_nonzero


def _in_block(source: Bytes, block: bytes, lo: int, own: int, base: int, end: int, lead: int) -> int | None:
    """First acceptable record or BLANK that starts within the first `own` bytes of a block."""
    message = None
    q = block.find(_PREFIX, lead + 4)
    while q >= 0:
        start = q - 4 - lead
        if start >= own:
            break
        if q + 3 < len(block) and block[q + 3] in _LAST_BYTES and frame_size(source, lo + q - 4, base, end) is not None:
            message = lo + start
            break
        q = block.find(_PREFIX, q + 1)
    blank = _blank_in(block, lo, min(own, (message - lo) if message is not None else own), end, lead)
    if blank is not None:
        return blank
    return message


def _blank_in(block: bytes, lo: int, before: int, end: int, lead: int) -> int | None:
    words = u32(np.frombuffer(block, dtype=np.uint8))
    n = min(before, len(words) - 4)
    if n <= 0:
        return None
    first, second = words[:n], words[4 : 4 + n]
    magic, size = (first, second) if lead else (second, first)
    wanted = 0xFFFFFFFF if lead else BLANK_MAGIC_U32
    hits = np.flatnonzero(magic == np.uint32(wanted))
    for i in hits.tolist():
        if int(size[i]) == end - lo - i:
            return int(lo + i)
    return None
