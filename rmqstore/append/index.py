"""Index files being built, many entries at a time: the rules of IndexService and IndexFile, vectorised.

`IndexFileBuilder` is pure (rows in, bytes out; a planner can use it alone), `IndexService` keeps it on the disk.
Source: IndexService#buildIndex, IndexFile#putKey, IndexHeader (RocketMQ 5.4.0).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rmqstore.append.disk import create_file, explain, make_directories, write_all
from rmqstore.append.mapped_file import Clock, now_ms
from rmqstore.errors import Refused
from rmqstore.formats import index
from rmqstore.formats.javatext import java_string_hash, java_text
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
PENDING = 4096  # entries that wait before they are hashed and written together
_PAGE_SLOTS = 1024  # slots whose change is noted together: a page of 4096 bytes
_INT_MIN = -(1 << 31)
_INT_MAX = (1 << 31) - 1


def java_hashes(texts: Sequence[bytes]) -> I32:
    """String.hashCode of many UTF-8 texts at once.

    Shape: (n,)
    """
    joined = b"".join(texts)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    out: npt.NDArray[np.uint32] = np.zeros(len(texts), dtype=np.uint32)
    raw = np.frombuffer(joined + b"\0", dtype=np.uint8)
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")  # the longest first: those still going on are a prefix
    starts, ordered = starts[order], lengths[order]
    value: npt.NDArray[np.uint32] = np.zeros(len(texts), dtype=np.uint32)
    going = len(texts)
    for k in range(int(ordered[0]) if len(texts) else 0):
        while going and ordered[going - 1] <= k:
            going -= 1
        value[:going] = value[:going] * np.uint32(31) + raw[starts[:going] + k]
    out[order] = value
    signed: I32 = out.view(np.int32)
    if not joined.isascii():
        for i, text in enumerate(texts):
            if not text.isascii():
                signed[i] = java_string_hash(java_text(text))
    return signed


def key_hashes(texts: Sequence[bytes]) -> I64:
    """Key hash of many key texts (`topic#key`) at once.

    Shape: (n,). Source: IndexFile#indexKeyHashMethod
    """
    hashes = np.abs(java_hashes(texts).astype(np.int64))
    return np.where(hashes > _INT_MAX, 0, hashes)


class IndexFileBuilder:
    """One index file in memory: header values and the slot table; units are handed out as they are made.

    `previous` is (end phy offset, end timestamp) of the file before it: a new file starts with them, and its first
    unit's time difference is counted from there.
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
        """Entries that still go in."""
        return max(0, self.units - self.index_count)

    @property
    def full(self) -> bool:
        """IndexFile#isWriteFull"""
        return self.index_count >= self.units

    def header(self) -> bytes:
        """The 40 bytes; the count stays 0 on the disk until there is an entry."""
        return index.HEADER.build(
            begin_timestamp=self.begin_timestamp,
            end_timestamp=self.end_timestamp,
            begin_phy_offset=self.begin_phy_offset,
            end_phy_offset=self.end_phy_offset,
            hash_slot_count=self.hash_slot_count,
            index_count=self.index_count if self.index_count > 1 else 0,
        )

    def load(self, header: bytes, table: bytes) -> None:
        """Go on with a file that is there.

        Source: IndexHeader#load
        """
        values = index.HEADER.parse(header)
        self.begin_timestamp, self.end_timestamp = values["begin_timestamp"], values["end_timestamp"]
        self.begin_phy_offset, self.end_phy_offset = values["begin_phy_offset"], values["end_phy_offset"]
        self.hash_slot_count = values["hash_slot_count"]
        self.index_count = max(1, values["index_count"])
        got: I32 = np.frombuffer(table, dtype=">i4").astype(np.int32)
        got[(got < 0) | (got > self.index_count)] = index.INVALID_INDEX
        self.table = got

    def add(self, offsets: I64, timestamps: I64, hashes: I64) -> bytes:
        """Add rows in order; the bytes of their units, which stand behind those made before.

        Units: bytes, ms. Shape: all (n,), n ≤ room.
        Source: IndexFile#putKey
        """
        n = len(offsets)
        if not n:
            return b""
        first = self.index_count
        numbers = np.arange(first, first + n, dtype=np.int64)
        slot = hashes % self.slots
        order = np.argsort(slot, kind="stable")
        sorted_slot = slot[order]
        same = np.zeros(n, dtype=np.bool_)
        same[1:] = sorted_slot[1:] == sorted_slot[:-1]
        previous = np.empty(n, dtype=np.int64)
        previous[order[1:]] = np.where(same[1:], numbers[order[:-1]], 0)
        heads = order[~same]
        previous[heads] = self.table[slot[heads]]
        units = np.zeros(n, dtype=index.UNIT.dtype)
        units["key_hash"], units["phy_offset"], units["prev_index"] = hashes, offsets, previous
        units["time_diff"] = self._time_diffs(timestamps, first)
        self.hash_slot_count += int(np.count_nonzero(previous[heads] == index.INVALID_INDEX))
        last = np.append(~same[1:], True)
        self.table[sorted_slot[last]] = numbers[order[last]]
        self.changed[np.unique(sorted_slot // _PAGE_SLOTS)] = True
        if first <= 1:
            self.begin_phy_offset, self.begin_timestamp = int(offsets[0]), int(timestamps[0])
        self.end_phy_offset, self.end_timestamp = int(offsets[-1]), int(timestamps[-1])
        self.index_count += n
        return units.tobytes()

    def _time_diffs(self, timestamps: I64, first: int) -> I64:
        """Seconds after the header's begin; the first entry of a file still meets the begin of the file before."""
        begin = np.full(len(timestamps), self.begin_timestamp, dtype=np.int64)
        if first <= 1:
            begin[1:] = timestamps[0]
        diff = timestamps - begin
        seconds = np.where(diff >= 0, diff, 0) // 1000
        seconds = np.minimum(seconds, _INT_MAX)
        return np.where(begin <= 0, 0, seconds)

    def changed_slots(self) -> Iterator[tuple[int, bytes]]:
        """(first slot, bytes) of the parts of the table that changed since the last call."""
        pages = np.flatnonzero(self.changed)
        self.changed[:] = False
        if not len(pages):
            return
        for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
            first = int(run[0]) * _PAGE_SLOTS
            yield first, self.table[first : (int(run[-1]) + 1) * _PAGE_SLOTS].astype(">i4").tobytes()


class IndexFile:
    """An index file on the disk and its builder."""

    def __init__(self, path: Path, builder: IndexFileBuilder, descriptor: int) -> None:
        self.path = path
        self.builder = builder
        self._descriptor = descriptor
        self._unsaved = False

    @classmethod
    def create(cls, path: Path, builder: IndexFileBuilder) -> IndexFile:
        """A new file with its starting header.

        Errors: OutputExists, NoSpace, NotReadable.
        """
        file = cls(path, builder, create_file(path, index.file_size(builder.slots, builder.units)))
        file._unsaved = True
        file.commit()
        return file

    @classmethod
    def open(cls, path: Path, slots: int, units: int) -> IndexFile:
        """A file that is there; a short one is made as long as it should be, as a mapping makes it.

        Errors: NotReadable, NoSpace; Refused when it is longer: it has other numbers of slots and units.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            size = index.file_size(slots, units)
            length = os.fstat(descriptor).st_size
            if length > size:
                os.close(descriptor)
                raise Refused(
                    f"{path} has {length} bytes, {slots} slots and {units} units make {size}",
                    "give the maxHashSlotNum and maxIndexNum of the store",
                )
            if length < size:
                os.ftruncate(descriptor, size)
            builder = IndexFileBuilder(slots, units)
            builder.load(
                os.pread(descriptor, index.HEADER.size, 0),
                os.pread(descriptor, slots * index.SLOT.size, index.slot_at(0)),
            )
        except OSError as error:
            raise explain(error, path) from error
        return cls(path, builder, descriptor)

    def add(self, offsets: I64, timestamps: I64, hashes: I64) -> None:
        """Add rows; units go to the system at once, slots and header with `commit`. Errors: NoSpace."""
        at = index.unit_at(self.builder.index_count, self.builder.slots)
        self._write(self.builder.add(offsets, timestamps, hashes), at)
        self._unsaved = True

    def commit(self) -> None:
        """Give slots and header to the system. Errors: NoSpace."""
        if self._unsaved:
            for slot, data in self.builder.changed_slots():
                self._write(data, index.slot_at(slot))
            self._write(self.builder.header(), 0)
            self._unsaved = False

    def flush(self) -> None:
        """Bring it to the disk. Errors: NoSpace and others."""
        self.commit()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise explain(error, self.path) from error

    def _write(self, data: bytes, at: int) -> None:
        try:
            write_all(self._descriptor, data, at)
        except OSError as error:
            raise explain(error, self.path) from error

    def close(self) -> None:
        """Let go of the file; nothing is written."""
        os.close(self._descriptor)


class IndexService:
    """The index of a store: entries go to the last file, a new one is made when it is full.

    `full_flushed` is called with the end timestamp (ms) of every file that is full and on the disk.
    """

    def __init__(
        self,
        directory: Path,
        slots: int,
        units: int,
        *,
        clock: Clock = now_ms,
        full_flushed: Callable[[int], None] = lambda timestamp: None,
    ) -> None:
        self.directory = directory
        self.slots = slots
        self.units = units
        self._clock = clock
        self._full_flushed = full_flushed
        self._file: IndexFile | None = None
        self._last_name = ""
        self._room = 0
        self._end = 0
        self._keys: list[bytes] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []

    @property
    def end_phy_offset(self) -> int:
        """Address of the last message that was indexed, -1 before the first (bytes)."""
        return self._end if self._file is not None and self._file.builder.index_count > 1 else -1

    def load(self, *, last_exit_ok: bool, index_msg_timestamp: int) -> None:
        """Open the last file; after an abnormal exit files that end behind the checkpoint are deleted first.

        Errors: NotReadable. Source: IndexService#load
        """
        if not self.directory.is_dir():
            return
        names = sorted(p.name for p in self.directory.iterdir() if p.name.isdigit() and p.is_file())
        for name in list(names) if not last_exit_ok else []:
            path = self.directory / name
            with path.open("rb") as file:
                raw = file.read(index.HEADER.size).ljust(index.HEADER.size, b"\0")
            if index.HEADER.parse(raw)["end_timestamp"] > index_msg_timestamp:
                path.unlink()
                names.remove(name)
        if names:
            self._last_name = names[-1]
            self._take(IndexFile.open(self.directory / names[-1], self.slots, self.units))

    def _take(self, file: IndexFile) -> None:
        self._file = file
        self._room = file.builder.room
        self._end = file.builder.end_phy_offset

    def build(self, offset: int, store_timestamp: int, sys_flag: int, topic: bytes, keys: Sequence[bytes]) -> None:
        """Note a message; `keys` in the order of their entries, without the topic.

        A file is made also for a message without keys, when there is none or the last one is full.
        Units: bytes, ms. Errors: NoSpace. Source: IndexService#buildIndex
        """
        if self._room <= 0:
            self.drain()
            if self._room <= 0:
                self._next_file()
        if offset < self._end or sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        for key in keys:
            self._keys.append(topic + b"#" + key)
            self._offsets.append(offset)
            self._timestamps.append(store_timestamp)
        if keys:
            self._end = offset
        self._room -= len(keys)
        if len(self._keys) >= PENDING:
            self.drain()

    def drain(self) -> None:
        """Hash and write what waits. Errors: NoSpace."""
        if not self._keys:
            return
        hashes = key_hashes(self._keys)
        offsets, timestamps = np.array(self._offsets, dtype=np.int64), np.array(self._timestamps, dtype=np.int64)
        self._keys, self._offsets, self._timestamps = [], [], []
        at = 0
        while at < len(hashes):
            if self._file is None or self._file.builder.full:
                self._next_file()
            assert self._file is not None
            stop = at + self._file.builder.room
            self._file.add(offsets[at:stop], timestamps[at:stop], hashes[at:stop])
            at = stop
        assert self._file is not None
        self._room = self._file.builder.room

    def _next_file(self) -> None:
        previous = (0, 0)
        if self._file is not None:
            builder = self._file.builder
            previous = (builder.end_phy_offset, builder.end_timestamp)
            self._file.flush()
            self._file.close()
            self._full_flushed(builder.end_timestamp)
        make_directories(self.directory)
        time = self._clock()
        name = index.file_name(time)
        while name <= self._last_name:  # two files of one millisecond: a broker would open the first one twice
            time += 1
            name = index.file_name(time)
        self._last_name = name
        end = self._end
        self._take(IndexFile.create(self.directory / name, IndexFileBuilder(self.slots, self.units, previous)))
        self._end = max(end, self._end)

    def commit(self) -> None:
        """Write what waits, slots and header included. Errors: NoSpace."""
        self.drain()
        if self._file is not None:
            self._file.commit()

    def flush(self) -> None:
        """Bring the last file to the disk. Errors: NoSpace and others."""
        self.drain()
        if self._file is not None:
            self._file.flush()
            if self._file.builder.full:
                self._full_flushed(self._file.builder.end_timestamp)

    def close(self) -> None:
        """Let go; what was not committed is lost."""
        if self._file is not None:
            self._file.close()
            self._file = None
