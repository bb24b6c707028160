"""Which of the bytes that arrive are whole, sound records: by frame, place and CRC, as a scan of a file decides it.

Only proven bytes are written. A record that is framed and fails its CRC is damaged on the master: it is kept as it is
and named. After bytes that are no record, the next border of records that is sure is the next file of the log: up to
there, the bytes are kept without a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rmqstore.formats.message import BLANK_MAGIC_U32, BLANK_SIZE, MAGIC_V1_U32, MAGIC_V2_U32, MIN_SIZE
from rmqstore.scan.records import Frames
from rmqstore.scan.window import SLACK

LONGEST = 64 << 20
"""Bytes of the longest record that is waited for; a broker refuses messages over 4 MiB (maxMessageSize)."""
_ROOM = 1 << 20
_SMALLEST_HEAD = BLANK_SIZE


@dataclass(slots=True)
class Proven:
    """Bytes to keep. `damaged`: (start, stop) of records whose CRC or place is wrong; `unproven`: of no records.

    `last_time`: greatest store time of the records (ms); `last_record`: where the last sound one begins; both else -1.
    """

    data: bytes = b""
    messages: int = 0
    last_time: int = -1
    last_record: int = -1
    damaged: list[tuple[int, int]] = field(default_factory=list)
    unproven: list[tuple[int, int]] = field(default_factory=list)

    @property
    def faults(self) -> list[tuple[int, int]]:
        """All that is no sound record."""
        return [*self.damaged, *self.unproven]


class Prover:
    """Takes the bytes of a log from the global offset `at` on, a border of records unless `unproven`.

    `file_size`: bytes of a file of the log.
    """

    def __init__(self, at: int, file_size: int, *, unproven: bool = False) -> None:
        self.at = at
        """The offset up to which bytes were given out."""
        self._size = file_size
        self._frames = Frames(0, crc=True, buffer=_ROOM)
        self._buffer = bytearray()
        self._free_until = self._file_stop if unproven else at
        """Up to here, no byte has to prove itself: after a BLANK, and after what is no record."""
        self._after_blank = False

    @property
    def waiting(self) -> int:
        """Bytes that have arrived and are not yet a whole record."""
        return len(self._buffer)

    @property
    def unproven(self) -> bool:
        """Whether the next byte is kept without a proof."""
        return self.at < self._free_until and not self._after_blank

    @property
    def _file_stop(self) -> int:
        return (self.at // self._size + 1) * self._size

    def feed(self, data: bytes) -> Proven:
        """Take the next bytes, and return those that are to be kept now."""
        self._buffer += data
        found, parts = Proven(), []
        while self._buffer:
            count = self._free(found) or self._records(found) or self._other(found)
            if not count:
                break
            parts.append(bytes(self._buffer[:count]))
            del self._buffer[:count]
            self.at += count
        found.data = b"".join(parts)
        return found

    def _free(self, found: Proven) -> int:
        """Return how many bytes need no proof."""
        count = min(len(self._buffer), self._free_until - self.at)
        if count > 0 and not self._after_blank:
            _extend(found.unproven, self.at, self.at + count)
        return max(0, count)

    def _records(self, found: Proven) -> int:
        """Return the length of the whole records that follow, all in one file."""
        have = min(len(self._buffer), self._file_stop - self.at)
        if int.from_bytes(self._buffer[:4], "big") > have:
            return 0  # a long record may arrive in many pieces: none of them copies all those before it
        padded = self._buffer + bytes(SLACK)
        columns, _ = self._frames.read(padded, have, self.at, 0, have)
        if not len(columns):
            return 0
        sizes = columns.size
        bad = columns.wrong_crc | columns.wrong_record_crc | columns.elsewhere
        for i in np.flatnonzero(bad).tolist():
            start = int(columns.offset[i])
            _extend(found.damaged, start, start + int(sizes[i]))
        found.messages += len(columns)
        found.last_time = max(found.last_time, int(columns.store_timestamp.max()))
        if not bad.all():
            found.last_record = int(columns.offset[~bad][-1])
        return int(columns.offset[-1] + sizes[-1]) - self.at

    def _other(self, found: Proven) -> int:
        """Return 0 to wait for the rest of a record; otherwise let the rest of the file need no proof."""
        left = self._file_stop - self.at
        size, magic = (int.from_bytes(self._buffer[low : low + 4], "big") for low in (0, 4))
        if len(self._buffer) < min(_SMALLEST_HEAD, left):
            return 0
        blank = magic == BLANK_MAGIC_U32 and size == left
        if not blank:
            framed = magic in (MAGIC_V1_U32, MAGIC_V2_U32) and MIN_SIZE <= size <= min(left, LONGEST)
            if framed and len(self._buffer) < size:
                return 0
        self._free_until, self._after_blank = self._file_stop, blank
        return self._free(found)


def _extend(ranges: list[tuple[int, int]], start: int, stop: int) -> None:
    """Add a range, and join it to the last one if it follows it."""
    if ranges and ranges[-1][1] == start:
        start = ranges.pop()[0]
    ranges.append((start, stop))
