"""Write the index files of a store.

Source: IndexService#buildIndex, #load (RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rmqstore.append.disk import create_file, explained, make_directories, replace_link, write_all
from rmqstore.append.index_builder import I64, IndexFileBuilder, key_hashes
from rmqstore.append.mapped_files import Clock, now_ms
from rmqstore.errors import Refused
from rmqstore.files.files import LOCAL
from rmqstore.files.index import index_unit
from rmqstore.formats import index
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqstore.texts import Text

PENDING = 4096  # number of buffered entries from which they are hashed and written


class IndexFileWriter:
    """An index file, with the builder of its contents."""

    def __init__(self, path: Path, builder: IndexFileBuilder, descriptor: int) -> None:
        self.path = path
        self.builder = builder
        self._descriptor = descriptor
        self._unsaved = False

    @classmethod
    def create(cls, path: Path, builder: IndexFileBuilder) -> IndexFileWriter:
        """Create a file and write its initial header.

        Errors: OutputExists, NoSpace, NotReadable.
        """
        file = cls(path, builder, create_file(path, index.file_size(builder.slots, builder.units)))
        file._unsaved = True
        file.commit()
        return file

    @classmethod
    def open(cls, path: Path, slots: int, units: int) -> IndexFileWriter:
        """Open an existing file; an empty one, left by a killed process, is extended to its full length.

        Errors: NotReadable, NoSpace; Refused for any other length, which means other numbers of slots and units.
        """
        replace_link(path)
        with explained(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            size = index.file_size(slots, units)
            length = os.fstat(descriptor).st_size
            if length not in (0, size):
                os.close(descriptor)
                differs = Text("{path} has {length} bytes, but {slots} slots and {units} units need {size}")
                raise Refused(
                    differs.format(path=path, length=length, slots=slots, units=units, size=size),
                    Text("give the maxHashSlotNum and maxIndexNum of the store"),
                )
            if not length:
                os.ftruncate(descriptor, size)
            builder = IndexFileBuilder(slots, units)
            builder.load(
                os.pread(descriptor, index.HEADER.size, 0),
                os.pread(descriptor, slots * index.SLOT.size, index.slot_at(0)),
            )
        return cls(path, builder, descriptor)

    def add(self, offsets: I64, timestamps: I64, hashes: I64) -> None:
        """Add entries and write their units; `commit` writes slots and header. Errors: NoSpace."""
        at = index.unit_at(self.builder.index_count, self.builder.slots)
        self._write(self.builder.add(offsets, timestamps, hashes), at)
        self._unsaved = True

    def commit(self) -> None:
        """Write slots and header to the operating system. Errors: NoSpace."""
        if self._unsaved:
            for slot, data in self.builder.changed_slots():
                self._write(data, index.slot_at(slot))
            self._write(self.builder.header(), 0)
            self._unsaved = False

    def flush(self) -> None:
        """Flush the file to disk. Errors: NoSpace and others."""
        self.commit()
        with explained(self.path):
            os.fdatasync(self._descriptor)

    def _write(self, data: bytes, at: int) -> None:
        with explained(self.path):
            write_all(self._descriptor, data, at)

    def close(self) -> None:
        """Close the file without writing."""
        os.close(self._descriptor)


class IndexService:
    """The index of a store: entries go to the last file, and to a new one if that is full.

    `full_flushed` is called with the end timestamp (ms) of every file that is full and on disk.
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
        self._file: IndexFileWriter | None = None
        self._last_name = ""
        self._room = 0
        self._end = 0
        self._last_hash: int | None = None
        self._pending: list[tuple[bytes, int, int]] = []
        """Entries to be hashed and written: key, offset of the message (bytes), store time (ms)."""

    @property
    def end_phy_offset(self) -> int:
        """The physical offset of the last indexed message; -1 without one."""
        if self._file is None or (self._file.builder.index_count <= 1 and not self._file.builder.end_timestamp):
            return -1
        return self._end  # in a file without entries, this is the value of the previous file

    def load(self, *, last_exit_ok: bool, index_msg_timestamp: int, log_end: int) -> int | None:
        """Open the last file; after an abnormal exit, first delete files that end after the checkpoint or the log.

        Deletes all files after the first of them too, even if they end earlier, as with imported messages: entries
        cannot be added between those of two files.
        Returns the physical offset of the first message in the deleted files; None if none was deleted.
        Units: ms, bytes. Errors: NotReadable. Source: IndexService#load, which ignores the end of the log
        """
        names = self.files()
        deleted_begins: list[int] = []
        for name in list(names) if not last_exit_ok else []:
            header = self._header(name)
            late = header["end_timestamp"] > index_msg_timestamp or header["end_phy_offset"] >= max(log_end, 1)
            if late or deleted_begins:
                (self.directory / name).unlink()
                names.remove(name)
                deleted_begins.append(header["begin_phy_offset"])
        if names:
            self._last_name = names[-1]
            self._use(IndexFileWriter.open(self.directory / names[-1], self.slots, self.units))
            self._last_hash = self._hash_of_last_entry(names)
        return min(deleted_begins, default=None)

    def files(self) -> list[str]:
        """Return the names of the index files, in order."""
        if not self.directory.is_dir():
            return []
        return sorted(p.name for p in self.directory.iterdir() if p.name.isdigit() and p.is_file())

    def _header(self, name: str) -> dict[str, int]:
        with (self.directory / name).open("rb") as file:
            return index.HEADER.parse(file.read(index.HEADER.size).ljust(index.HEADER.size, b"\0"))

    def _hash_of_last_entry(self, names: Sequence[str]) -> int | None:
        for name in reversed(names):
            last = self._header(name)["index_count"] - 1
            if last > 0:
                unit = index_unit(LOCAL, self.directory / name, self.slots, last)
                return int(unit["key_hash"]) if unit is not None else None
        return None

    def _missing_keys(self, topic: bytes, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Return the keys of the last indexed message that have no entry yet, because its file was full.

        A broker adds entries for all keys of that message again.
        """
        hashes = key_hashes([topic + b"#" + key for key in keys]).tolist()
        return keys[hashes.index(self._last_hash) + 1 :] if self._last_hash in hashes else keys

    def _use(self, file: IndexFileWriter) -> None:
        self._file = file
        self._room = file.builder.room
        self._end = file.builder.end_phy_offset

    def build(self, offset: int, store_timestamp: int, sys_flag: int, topic: bytes, keys: Sequence[bytes]) -> None:
        """Add the entries of a message; `keys` are without the topic, in the order of their entries.

        Even a message without keys creates a new file if there is none or the last one is full.
        Units: bytes, ms. Errors: NoSpace. Source: IndexService#buildIndex
        """
        if self._room <= 0:
            self.drain()
            if self._room <= 0:
                self._next_file()
        if offset <= self._end and keys and self._last_hash is not None:
            keys = self._missing_keys(topic, keys) if offset == self._end else ()
        if offset < self._end or sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return
        self._pending += [(topic + b"#" + key, offset, store_timestamp) for key in keys]
        if keys:
            self._end = offset
        self._room -= len(keys)
        if len(self._pending) >= PENDING:
            self.drain()

    def drain(self) -> None:
        """Hash and write the buffered entries. Errors: NoSpace."""
        if not self._pending:
            return
        keys, offsets, timestamps = zip(*self._pending, strict=True)
        self._pending = []
        self._write(np.array(offsets, dtype=np.int64), np.array(timestamps, dtype=np.int64), key_hashes(keys))

    def add(self, offsets: I64, timestamps: I64, hashes: I64, last: int) -> None:
        """Add entries of new messages, in order, with the same result as `build` for each message.

        `last` is the physical offset of the last message, even if it has no entries.
        Units: bytes, ms. Errors: NoSpace.
        """
        self.drain()
        if self._room <= 0:
            self._next_file()
        if len(offsets):
            self._write(offsets, timestamps, hashes)
            self._end = int(offsets[-1])
        if self._room <= 0 and (not len(offsets) or last > offsets[-1]):
            self._next_file()

    def _write(self, offsets: I64, timestamps: I64, hashes: I64) -> None:
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
            self._file = None
            self._full_flushed(builder.end_timestamp)
        make_directories(self.directory)
        time = self._clock()
        name = index.file_name(time)
        while name <= self._last_name:  # never two files in one millisecond: a broker would open the first one twice
            time += 1
            name = index.file_name(time)
        self._last_name = name
        end = self._end
        self._use(IndexFileWriter.create(self.directory / name, IndexFileBuilder(self.slots, self.units, previous)))
        self._end = max(end, self._end)

    def commit(self) -> None:
        """Write buffered entries, slots and header to the operating system. Errors: NoSpace."""
        self.drain()
        if self._file is not None:
            self._file.commit()

    def flush(self) -> None:
        """Flush the last file to disk. Errors: NoSpace and others."""
        self.drain()
        if self._file is not None:
            self._file.flush()
            if self._file.builder.full:
                self._full_flushed(self._file.builder.end_timestamp)

    def close(self) -> None:
        """Close the last file without writing buffered entries."""
        if self._file is not None:
            self._file.close()
            self._file = None
