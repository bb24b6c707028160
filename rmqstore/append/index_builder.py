"""Index files in memory: many entries at a time are placed by the rules of IndexFile.

Source: IndexFile#putKey, IndexHeader (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rmqstore.formats import index
from rmqstore.formats.javatext import java_string_hash, java_text
from rmqstore.scan import native

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Units = np.ndarray[tuple[int], np.dtype[np.void]]
_PAGE_SLOTS = 1024  # slots per page of 4096 bytes; changes are tracked by page
_INT_MAX = (1 << 31) - 1


def java_hashes(texts: Sequence[bytes]) -> I32:
    """Compute String.hashCode of many UTF-8 texts at once.

    Shape: (n,)
    """
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    joined = np.frombuffer(b"".join(texts) + b"\0", dtype=np.uint8)
    codes, is_ascii = native.load().hashes(joined, np.cumsum(lengths) - lengths, lengths)
    signed: I32 = codes.astype(np.uint32).view(np.int32)
    for i in np.flatnonzero(~is_ascii).tolist():
        signed[i] = java_string_hash(java_text(texts[i]))
    return signed


def key_hashes(texts: Sequence[bytes]) -> I64:
    """Compute the key hashes of many key texts (`topic#key`) at once.

    Shape: (n,). Source: IndexFile#indexKeyHashMethod
    """
    hashes = np.abs(java_hashes(texts).astype(np.int64))
    return np.where(hashes > _INT_MAX, 0, hashes)


class IndexFileBuilder:
    """The header and the slot table of one index file; `add` returns the bytes of new units.

    `previous` is (end phy offset, end timestamp) of the previous file: a new file starts with these values, and the
    time difference of its first unit is relative to them.
    """

    def __init__(self, slots: int, units: int, previous: tuple[int, int] = (0, 0)) -> None:
        self.slots = slots
        self.units = units
        self.table: I32 = np.zeros(slots, dtype=np.int32)
        self.changed: npt.NDArray[np.bool_] = np.zeros(-(-slots // _PAGE_SLOTS), dtype=np.bool_)
        self.begin_phy_offset = self.end_phy_offset = max(previous[0], 0)
        self.begin_timestamp = self.end_timestamp = max(previous[1], 0)
        self.hash_slot_count = 0
        self.index_count = 1

    @property
    def room(self) -> int:
        """The number of entries that can still be added."""
        return max(0, self.units - self.index_count)

    @property
    def full(self) -> bool:
        """Whether no entry can be added (IndexFile#isWriteFull)."""
        return self.index_count >= self.units

    def header(self) -> bytes:
        """Return the 40 bytes of the header; the stored count is 0 until there is an entry."""
        return index.HEADER.build(
            begin_timestamp=self.begin_timestamp,
            end_timestamp=self.end_timestamp,
            begin_phy_offset=self.begin_phy_offset,
            end_phy_offset=self.end_phy_offset,
            hash_slot_count=self.hash_slot_count,
            index_count=self.index_count if self.index_count > 1 else 0,
        )

    def load(self, header: bytes, table: bytes) -> None:
        """Continue an existing file from its header and slot table.

        Source: IndexHeader#load
        """
        values = index.HEADER.parse(header)
        self.begin_timestamp, self.end_timestamp = values["begin_timestamp"], values["end_timestamp"]
        self.begin_phy_offset, self.end_phy_offset = values["begin_phy_offset"], values["end_phy_offset"]
        self.hash_slot_count = values["hash_slot_count"]
        self.index_count = max(1, values["index_count"])
        self.table = np.frombuffer(table, dtype=">i4").astype(np.int32)
        self.table[(self.table < 0) | (self.table > self.index_count)] = index.INVALID_INDEX

    def add(self, offsets: I64, timestamps: I64, hashes: I64) -> bytes:
        """Add entries in order, and return the bytes of their units, which follow the existing units.

        Units: bytes, ms. Shape: all (n,), n ≤ room.
        Source: IndexFile#putKey
        """
        n = len(offsets)
        if not n:
            return b""
        first = self.index_count
        units = np.empty(n, dtype=index.UNIT.dtype)
        self.hash_slot_count += self._chain(offsets, self._time_diffs(timestamps, first), hashes, units)
        if first <= 1:
            self.begin_phy_offset, self.begin_timestamp = int(offsets[0]), int(timestamps[0])
        self.end_phy_offset, self.end_timestamp = int(offsets[-1]), int(timestamps[-1])
        self.index_count += n
        return units.tobytes()

    def _chain(self, offsets: I64, seconds: I64, hashes: I64, units: Units) -> int:
        """Fill `units`, and make each of them the newest of its slot; return the number of slots that were empty."""
        pages = _PAGE_SLOTS, self.changed
        return native.load().put_keys((hashes, offsets, seconds), self.index_count, self.table, pages, units)

    def _time_diffs(self, timestamps: I64, first: int) -> I64:
        """Return the seconds since the header's begin time, which the first entry of a file still has to set."""
        begin = np.full(len(timestamps), self.begin_timestamp, dtype=np.int64)
        if first <= 1:
            begin[1:] = timestamps[0]
        diff = timestamps - begin
        seconds = np.where(diff >= 0, diff, 0) // 1000
        seconds = np.minimum(seconds, _INT_MAX)
        return np.where(begin <= 0, 0, seconds)

    def changed_slots(self) -> Iterator[tuple[int, bytes]]:
        """Yield (first slot, bytes) of the parts of the slot table that changed since the last call."""
        pages = np.flatnonzero(self.changed)
        self.changed[:] = False
        if not len(pages):
            return
        for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
            first = int(run[0]) * _PAGE_SLOTS
            yield first, self.table[first : (int(run[-1]) + 1) * _PAGE_SLOTS].astype(">i4").tobytes()
