"""Detect what `writeWithoutMmap` leaves after the last record: the rest of a page, from a buffer that is used again.

A broker with this setting encodes each message at the start of a shared buffer, and writes it together with the bytes
that follow it in the buffer, up to the end of the page in the file. These are the ends of earlier, longer messages:
no damage, and never a message; the next message overwrites them.
Source: DefaultMappedFile#appendMessagesInner ("commitlog can contain dirty data at the end"), RocketMQ 5.5.1
"""

from __future__ import annotations

import re

import numpy as np

from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.formats.message import HEAD, MAGIC_V1_U32, MAGIC_V2_U32, MIN_SIZE
from rmqstore.scan.arrays import I64, U8

_PAGE = 1 << 16  # the largest page of a system on which a broker runs
_SEARCHED = 64 << 20  # bytes before the end of the log in which the earlier messages are searched for
_IN_ONE_WRITE = 32  # messages of a batch are written together
_PER_PIECE = 64  # shorter pieces on average prove nothing
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1_U32, MAGIC_V2_U32)))
_MAGIC_AT = HEAD.at("magic")
_OFFSET_AT = HEAD.at("physical_offset")


def are_remains(file: MappedFile, at: int, stop: int) -> bool:
    """Whether the bytes [at, stop) of a commitlog file are the ends of earlier messages in the buffer of the last one.

    True only if each byte follows from an earlier record that is longer than the last write: at the same distance from
    its start as the byte is from the start of the last write. `at` is the end of the last record.
    Units:  positions in the file, in bytes.
    """
    if not 0 < at < stop <= -(-at // _PAGE) * _PAGE:
        return False
    log, base = _before(file, at)
    starts, sizes = _records(log, base)
    left = np.frombuffer(file.read_at(stop - at, at), dtype=np.uint8)
    if len(left) < stop - at:
        return False
    end = len(log)
    writes = []
    for start, size in zip(starts[::-1][:_IN_ONE_WRITE].tolist(), sizes[::-1].tolist(), strict=False):
        if start + size != end:
            break
        end = start
        writes.append(len(log) - start)
    data = np.frombuffer(log, dtype=np.uint8)
    for wrote in writes:
        longer = sizes > wrote
        if _is_covered(left, data, starts[longer] + wrote, (starts + sizes)[longer]):
            return True
    return False


def _before(file: MappedFile, at: int) -> tuple[bytes, int]:
    """Return the bytes before a position, if need be from the file before too, and the global offset of the first."""
    first = max(0, at - _SEARCHED)
    log, base = file.read_at(at - first, first), file.start + first
    earlier = file.path.with_name(offset_to_file_name(file.start - file.file_size)) if file.start else None
    if first == 0 and earlier is not None and file.files.is_file(earlier):
        more = min(_SEARCHED - at, file.file_size)
        before = file.files.read_at(earlier, more, file.file_size - more)
        if len(before) == more:
            return before + log, base - more
    return log, base


def _records(log: bytes, base: int) -> tuple[I64, I64]:
    """Return starts and sizes of the records that name their own place; `base`: global offset of the first byte."""
    found = [match.start() - _MAGIC_AT for match in _MAGIC.finditer(log)]
    at = np.array([one for one in found if 0 <= one <= len(log) - MIN_SIZE], dtype=np.int64)
    data = np.frombuffer(log, dtype=np.uint8)
    sizes = data[at[:, None] + np.arange(4)].copy().view(">i4").astype(np.int64)[:, 0]
    offsets = data[at[:, None] + np.arange(_OFFSET_AT, _OFFSET_AT + 8)].copy().view(">i8").astype(np.int64)[:, 0]
    own = (offsets == at + base) & (sizes >= MIN_SIZE) & (sizes <= len(log) - at)
    return at[own], sizes[own]


def _is_covered(left: U8, data: U8, at: I64, stops: I64) -> bool:
    """Whether a few pieces of records, each at its own place in the buffer, together are the bytes that are left."""
    done, pieces = 0, 0
    while done < len(left):
        pieces += 1
        if pieces > 2 + len(left) // _PER_PIECE:
            return False
        begun = done
        here, ends = at + done, stops
        while done < len(left) and len(here):
            fits = here < ends
            here, ends = here[fits], ends[fits]
            fits = data[here] == left[done]
            here, ends = here[fits] + 1, ends[fits]
            done += len(here) > 0
        if done == begun:
            return False
    return True
