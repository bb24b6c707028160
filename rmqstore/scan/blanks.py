"""Whether the BLANK at a position really ends its file.

A broker believes the magic of a BLANK and nothing else. Eight damaged bytes, or a page of 0xFF in DLedger data, can
therefore hide good records. A real BLANK says exactly how many bytes the file has left, and is written only when the
next record does not fit in them.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.files.disk.reading import read_at
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.formats import dledger
from rmqstore.formats.message import BLANK, HEAD, HEADS_BY_FLAG, MAGIC_V1_U32, MAGIC_V2_U32, SYS_FLAG_AT
from rmqstore.scan.resync import frame_size, resync
from rmqstore.scan.window import Window

GoodBefore = Callable[[int], int | None]


def is_contradicted(window: Window, at: int, claimed: int, lead: int, good_before: GoodBefore) -> bool:
    """Whether the bytes behind the BLANK at `at`, or the start of the next file, prove that it is not one.

    With a wrong size, any byte behind it does. With the right size, a good record behind it counts only when it is not
    the rest of a log that a broker truncated: it is no older than the last good record before the BLANK, and the first
    record of the next file would have fit here. `good_before` gives the position of that record, None without one.
    Units: `at` is a position in the file, `claimed` is the size in bytes that the BLANK states.
    Source: DefaultAppendMessageCallback#doAppend, MmapFileList#preAppend
    """
    base, end = window.file.start, window.end
    behind = at + BLANK.size
    if window.zeros_until(behind) >= end:
        return False
    if claimed not in (end - at, window.file.file_size - at):
        return True
    found, _ = resync(window, behind, base, end, lead)
    if found is None or frame_size(window, found + lead, base, end) is None:
        return False
    if not _next_fits(window, window.file.file_size - at, lead):
        return False
    before = good_before(at)
    return before is None or _store_time(window, found + lead) >= _store_time(window, before + lead)


def _store_time(window: Window, at: int) -> int:
    flags = int.from_bytes(window.pread(4, at + SYS_FLAG_AT), "big")
    place = HEADS_BY_FLAG[flags & 0x30].at("store_timestamp")
    return int.from_bytes(window.pread(8, at + place), "big", signed=True)


def _next_fits(window: Window, left: int, lead: int) -> bool:
    """Whether the record that starts the next file would have fit in `left` bytes with a BLANK behind it."""
    path = window.file.path.with_name(offset_to_file_name(window.file.stop))
    head = read_at(path, lead + HEAD.size, 0)
    if len(head) < lead + HEAD.size or int.from_bytes(head[lead + 4 : lead + 8], "big") not in (
        MAGIC_V1_U32,
        MAGIC_V2_U32,
    ):
        return False
    size = int.from_bytes(head[dledger.ENTRY.at("size") :][:4] if lead else head[:4], "big", signed=True)
    return 0 < size + BLANK.size <= left
