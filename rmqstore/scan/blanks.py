"""Detect a false BLANK, which does not really end its file.

A broker trusts the magic of a BLANK and checks nothing else, so eight damaged bytes, or a page of 0xFF in DLedger data,
can hide good records. The size in a real BLANK is exactly the number of bytes left in the file, and a broker writes one
only if the next record does not fit into these.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.formats import dledger
from rmqstore.formats.message import BLANK, HEAD, HEADS_BY_FLAG, MAGIC_V1_U32, MAGIC_V2_U32, SYS_FLAG_AT
from rmqstore.scan.resync import frame_size, resync
from rmqstore.scan.window import Window

GoodBefore = Callable[[int], int | None]


def is_contradicted(window: Window, at: int, claimed: int, body_offset: int, good_before: GoodBefore) -> bool:
    """Whether the bytes after the BLANK at `at`, or the start of the next file, prove that it is false.

    With a wrong size, any nonzero byte after it proves that. With the right size, it takes a good record after it that
    a truncation by a broker cannot have left behind: one that is no older than the last good record before the BLANK,
    while the first record of the next file would have fit here. `good_before` returns the position of the last good
    record before a position; None without one.
    Units: `at` is a position in the file, `claimed` the size in bytes that the BLANK states.
    Source: DefaultAppendMessageCallback#doAppend, MmapFileList#preAppend
    """
    base, end = window.file.start, window.end
    blank_end = at + BLANK.size
    if window.zeros_until(blank_end) >= end:
        return False
    if claimed not in (end - at, window.file.file_size - at):
        return True
    found, _ = resync(window, blank_end, base, end, body_offset)
    if found is None or frame_size(window, found + body_offset, base, end) is None:
        return False
    if not _next_fits(window, window.file.file_size - at, body_offset):
        return False
    before = good_before(at)
    return before is None or _store_time(window, found + body_offset) >= _store_time(window, before + body_offset)


def _store_time(window: Window, at: int) -> int:
    sys_flag = int.from_bytes(window.pread(4, at + SYS_FLAG_AT), "big")
    field_at = HEADS_BY_FLAG[sys_flag & 0x30].at("store_timestamp")
    return int.from_bytes(window.pread(8, at + field_at), "big", signed=True)


def _next_fits(window: Window, left: int, body_offset: int) -> bool:
    """Whether the first record of the next file would have fit into `left` bytes, with a BLANK after it."""
    path = window.file.path.with_name(offset_to_file_name(window.file.stop))
    head = window.file.files.read_at(path, body_offset + HEAD.size, 0)
    if len(head) < body_offset + HEAD.size or int.from_bytes(head[body_offset + 4 : body_offset + 8], "big") not in (
        MAGIC_V1_U32,
        MAGIC_V2_U32,
    ):
        return False
    size = int.from_bytes(head[dledger.ENTRY.at("size") :][:4] if body_offset else head[:4], "big", signed=True)
    return 0 < size + BLANK.size <= left
