"""Walk the size fields of a buffer from record to record, and check all frames at once."""

from __future__ import annotations

import numpy as np

from rmqstore.formats import dledger
from rmqstore.formats.message import MIN_SIZE
from rmqstore.scan import kernels, native
from rmqstore.scan.columns import LAYOUT, Columns, framed
from rmqstore.scan.kernels import leading

SIZE_AT_IN_ENTRY = dledger.ENTRY.at("size")
_UNLIMITED = 1 << 40
_USUAL_SIZE = 256  # bytes: record size that sets the initial capacity of the compiled loops' arrays
_LEAST_ROOM = 64


class Frames:
    """Reads framed records from buffers, in C if the library was built.

    `body_offset`: bytes before each message, 0 in a commitlog and 48 in DLedger data; `crc`: check bodies; `buffer`:
    length of the buffers in bytes. `size_at`: position of the size in a record or entry; `least`: its smallest size.
    """

    def __init__(self, body_offset: int, *, crc: bool, buffer: int) -> None:
        self.body_offset = body_offset
        self.size_at = SIZE_AT_IN_ENTRY if body_offset else 0
        self.least = MIN_SIZE + body_offset
        self._crc = crc
        self._loops = native.load()
        self._limit = _UNLIMITED
        self._room = buffer // _USUAL_SIZE + 1

    def read(self, buf: bytearray, have: int, base: int, lo: int, stop: int) -> tuple[Columns, bool]:
        """Return the framed records that start in [lo, stop) of a buffer, and whether a bad record ends them.

        They follow one another without gaps. `have`: number of valid bytes; `base`: global offset of the first one.
        """
        if self._loops is not None:
            found = self._loops.read(
                (np.frombuffer(buf, np.uint8), have, base),
                (lo, stop),
                (self.body_offset, self.size_at, self.least),
                LAYOUT,
                crc=self._crc and self._loops.has_crcs,
                room=self._room,
            )
            n = len(found.columns["at"])
            self._room = 2 * n if n == self._room else max(n + n // 4, _LEAST_ROOM)
            return Columns.of(buf, base, self.body_offset, found), found.odd
        borders = kernels.walk(memoryview(buf), lo, have, self.size_at, self.least, self._limit)
        starts, stops = borders[:-1], borders[1:]
        if len(starts) and int(starts[-1]) >= stop:
            count = int(np.searchsorted(starts, stop))
            starts, stops = starts[:count], stops[:count]
        columns = Columns(buf, base, starts + self.body_offset, self.body_offset)
        if not len(starts):
            return columns, False
        ok = framed(columns, stops)
        n = leading(ok)
        # after damage walk only a few records: with dense damage, each bad record would cost a walk of the whole chunk
        self._limit = _UNLIMITED if n == len(ok) else 64
        return columns.slice(0, n), n < len(ok)
