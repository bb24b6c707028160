"""Which part of a log can hold messages of a time: store times rise, so that a few dozen records tell.

A clock that was set back breaks the rule: `SLACK` is what it may have been off.
"""

from __future__ import annotations

from contextlib import closing

from rmqstore.files.log_ends import first_true, store_timestamp
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.records import MAX_RECORD
from rmqstore.formats.message import HEADS_BY_FLAG, MAGIC_V1_U32, MAGIC_V2_U32
from rmqstore.scan.resync import resync
from rmqstore.scan.window import ScanOptions, Window
from rmqstore.views.dump.messages import Log

SLACK = 60_000
"""How far store times may go back, in ms, before a search by time can miss a message."""
_GRID = 64 << 10
_LONGEST_HEAD = HEADS_BY_FLAG[0x30].size


def offsets_between(log: Log, since: int | None, until: int | None) -> tuple[int, int]:
    """Global offsets [start, stop) outside of which no message is stored in [since, until) (ms, None: open)."""
    start, stop = log.queue.start, log.queue.stop
    count = -(-(stop - start) // _GRID)

    def is_late(number: int, time: int) -> bool:
        found = time_from(log, start + number * _GRID)
        return found is None or found >= time

    low, high = 0, count
    if since is not None:
        low = max(0, first_true(0, count, lambda n: is_late(n, since - SLACK)) - 1)
    if until is not None:
        high = first_true(low, count, lambda n: is_late(n, until + SLACK))
    return start + low * _GRID, min(stop, start + high * _GRID)


def time_span(log: Log) -> tuple[int, int] | None:
    """Store times (ms) of the first record and of one among the last; None for a log without records."""
    first = time_from(log, log.queue.start)
    if first is None:
        return None
    start = log.queue.start
    count = -(-(log.queue.stop - start) // _GRID)
    behind = first_true(1, count, lambda n: time_from(log, start + n * _GRID) is None)
    return first, time_from(log, start + (behind - 1) * _GRID) or first


def time_from(log: Log, offset: int) -> int | None:
    """Store time (ms) of the first record that begins at a global offset or behind it; None where none follows."""
    for file in log.queue.files:
        if file.stop <= offset:
            continue
        found = _time_in(file, max(0, offset - file.start), log.lead)
        if found is not None:
            return found
    return None


def _time_in(file: MappedFile, at: int, lead: int) -> int | None:
    try:
        window = Window(file, ScanOptions(chunk=1))
    except OSError:
        return None
    with closing(window):
        found, _ = resync(window, at, file.start, window.end, lead, until=at + MAX_RECORD)
        head = window.pread(_LONGEST_HEAD, found + lead) if found is not None else b""
    is_record = int.from_bytes(head[4:8], "big") in (MAGIC_V1_U32, MAGIC_V2_U32)  # else a BLANK
    return store_timestamp(head) if is_record else None
