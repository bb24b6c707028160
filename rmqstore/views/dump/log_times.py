"""Find the part of a log that can contain messages of a time range from some hundred records, as store times increase.

Store times decrease where a broker's clock was set back. So records all over the log are sampled, and a part over which
the times decrease by more than `SLACK` is always read. The search misses messages that were stored while the clock was
off by more than `SLACK` if all of them lie between two samples, and single records with a damaged time. Logs of up to
`WHOLE` bytes are therefore read completely.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

from rmqstore.files.log_ends import first_true, store_timestamp
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile, MappedFileQueue
from rmqstore.formats.message import HEADS_BY_FLAG, MAGIC_V1_U32, MAGIC_V2_U32
from rmqstore.scan.resync import resync
from rmqstore.scan.window import ScanOptions, Window

SLACK = 60_000
"""By how much store times may decrease, in ms, without the search missing a message."""
SAMPLES = 128
"""Number of positions in a log at which a store time is read, in addition to the start of every file."""
WHOLE = 64 << 20
"""Logs of up to this many bytes are read completely, in less than a tenth of a second."""
_GRID = 64 << 10
_LONGEST_HEAD = HEADS_BY_FLAG[0x30].size


def offsets_between(queue: MappedFileQueue, body_offset: int, since: int | None, until: int | None) -> tuple[int, int]:
    """Return global offsets [start, stop) that contain all messages stored in [since, until) (ms; None: no bound).

    See the module's docstring for brokers whose clock was set back.
    """
    start, stop = queue.start, queue.stop
    if (since is None and until is None) or queue.bytes_on_disk <= WHOLE:
        return start, stop
    wanted = [part for part in _parts(queue, body_offset) if part.can_hold(since, until)]
    if not wanted:
        return start, start
    return wanted[0].low(queue, body_offset, since), wanted[-1].high(queue, body_offset, until)


class _SampledRange:
    """Bytes [start, stop) of a log between two sampled records with their store times (ms; None at the log's ends)."""

    def __init__(self, start: int, stop: int, first: int | None, last: int | None) -> None:
        self.start, self.stop, self.first, self.last = start, stop, first, last
        self.falls = first is not None and last is not None and first > last + SLACK

    def can_hold(self, since: int | None, until: int | None) -> bool:
        too_early = since is not None and self.last is not None and self.last + SLACK < since
        too_late = until is not None and self.first is not None and self.first - SLACK >= until
        return self.falls or not (too_early or too_late)

    def low(self, queue: MappedFileQueue, body_offset: int, since: int | None) -> int:
        """Return an offset before which no record of this part was stored at `since` or later."""
        if since is None or self.falls:
            return self.start
        return max(self.start, self._first_from(queue, body_offset, since - SLACK, unknown_is_late=True) - _GRID)

    def high(self, queue: MappedFileQueue, body_offset: int, until: int | None) -> int:
        """Return an offset from which no record of this part was stored before `until`."""
        if until is None or self.falls or self.last is None:
            return self.stop
        return self._first_from(queue, body_offset, until + SLACK, unknown_is_late=False)

    def _first_from(self, queue: MappedFileQueue, body_offset: int, time: int, *, unknown_is_late: bool) -> int:
        """Return an offset between the records stored before a time and those stored at that time or later."""

        def is_late(number: int) -> bool:
            at = self.start + number * _GRID
            # every part but the last ends with a known record; after the end of the log, there may be 1 GiB of zeros
            found = record_from(queue, body_offset, at, _GRID if self.last is None else self.stop + 1 - at)
            return unknown_is_late if found is None else found[1] >= time

        count = -(-(self.stop - self.start) // _GRID)
        return min(self.stop, self.start + first_true(0, count, is_late) * _GRID)


def _parts(queue: MappedFileQueue, body_offset: int) -> Iterator[_SampledRange]:
    """Yield the whole log, cut at the sampled records."""
    known: list[tuple[int, int | None]] = [(queue.start, None), *_samples(queue, body_offset), (queue.stop, None)]
    for (start, first), (stop, last) in itertools.pairwise(known):
        yield _SampledRange(start, stop, first, last)


def _samples(queue: MappedFileQueue, body_offset: int) -> Iterator[tuple[int, int]]:
    step = max(_GRID, (queue.stop - queue.start) // SAMPLES)
    reached = -1
    for file in queue.files:
        for at in range(file.start, file.stop, step):
            if at <= reached:
                continue
            found = record_from(queue, body_offset, at)
            if found is None:
                return
            yield found
            reached = found[0]


def time_span(queue: MappedFileQueue, body_offset: int) -> tuple[int, int] | None:
    """Return the store times (ms) of the first record and of one of the last; None for a log without records."""
    start = queue.start
    first = record_from(queue, body_offset, start)
    if first is None:
        return None
    count = -(-(queue.stop - start) // _GRID)
    behind = first_true(1, count, lambda n: record_from(queue, body_offset, start + n * _GRID) is None)
    last = record_from(queue, body_offset, start + (behind - 1) * _GRID)
    return first[1], (last or first)[1]


def record_from(
    queue: MappedFileQueue, body_offset: int, offset: int, within: int = MAX_RECORD
) -> tuple[int, int] | None:
    """Return offset and store time (ms) of the first record from a global offset on, or None.

    Searches at most `within` bytes of every file.
    """
    for file in queue.files:
        if file.stop > offset:
            found = _record_in(file, max(0, offset - file.start), body_offset, within)
            if found is not None:
                return found
    return None


def _record_in(file: MappedFile, at: int, body_offset: int, within: int) -> tuple[int, int] | None:
    try:
        window = Window(file, ScanOptions(chunk=1))
    except OSError:
        return None
    with closing(window):
        found, _ = resync(window, at, file.start, window.end, body_offset, until=at + within)
        head = window.pread(_LONGEST_HEAD, found + body_offset) if found is not None else b""
    is_record = int.from_bytes(head[4:8], "big") in (MAGIC_V1_U32, MAGIC_V2_U32)  # else a BLANK
    return (file.start + (found or 0), store_timestamp(head)) if is_record else None
