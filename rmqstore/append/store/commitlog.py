"""The commitlog as a place to append records to: reserve a place, then write; BLANK where a record does not fit.

`RecordLog` is what a store appends to; the other one is in `rmqstore.append.dledger.dledger`.
Source: CommitLog.DefaultAppendMessageCallback#doAppend, CommitLog#rollNextFile (RocketMQ 5.4.0).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rmqstore.append.files.mapped_file import MappedFile
from rmqstore.append.files.mapped_file_queue import MappedFileQueue
from rmqstore.append.messages.encoder import refuse_oversize
from rmqstore.formats.message import BLANK_SIZE, build_blank
from rmqstore.scan.kernels import I64


class RecordLog(Protocol):
    """Where records go. `lead` bytes precede each record (0, or the header of a DLedger entry)."""

    lead: int
    queue: MappedFileQueue

    def reserve(self, *sizes: int) -> int:
        """Global offset that the next record will have; all records of these sizes go into one file.

        Units: bytes. Errors: MessageRefused when they fit into no file; NoSpace.
        """
        ...

    def write(self, record: bytes, store_timestamp: int) -> None:
        """Append the record for which the place was reserved.

        Units: ms. Errors: NoSpace and others.
        """
        ...

    def commit(self) -> None:
        """Give everything written so far to the operating system: it survives the death of this process.

        Errors: NoSpace and others.
        """
        ...

    def flush(self, least_pages: int = 0) -> None:
        """Bring it to the disk.

        Errors: NoSpace and others.
        """
        ...

    def close(self) -> None:
        """Commit and close; the files stay."""
        ...


class CommitLog:
    """Records of a plain store, in files named by offset."""

    lead = 0

    def __init__(self, queue: MappedFileQueue, start: int = 0) -> None:
        self.queue = queue
        self._start = start
        self._file: MappedFile | None = None

    def reserve(self, *sizes: int) -> int:
        """Where records of these sizes will go, all in one file; a file without room for them gets its BLANK.

        Units: bytes. Errors: MessageRefused, NoSpace.
        """
        file = self._file
        if file is None or file.full:
            file = self._file = self.queue.last_file(self._start)
        size = sizes[0] if len(sizes) == 1 else sum(sizes)
        left = file.file_size - file.wrote_position
        if size + BLANK_SIZE > left:
            refuse_oversize(size, file.file_size)
            file.finish(build_blank(left))
            file = self._file = self.queue.last_file(self._start)
        return file.start + file.wrote_position

    def write(self, record: bytes | bytearray | memoryview, store_timestamp: int) -> None:
        """Append a record, or several behind each other, for which the place was reserved."""
        file = self._file
        if file is None or not file.append(record):
            raise ValueError("nothing was reserved for this record")
        file.store_timestamp = store_timestamp

    def fitting(self, sizes: I64) -> tuple[int, int]:
        """Where the first of these records will go, and how many of them follow it in the same file.

        Units: bytes. Errors: MessageRefused, NoSpace.
        """
        offset = self.reserve(int(sizes[0]))
        assert self._file is not None
        return offset, int(np.searchsorted(np.cumsum(sizes), self._file.left - BLANK_SIZE, side="right"))

    def commit(self) -> None:
        if self._file is not None:
            self._file.commit(0)

    def roll(self) -> int:
        """Close the last file with a BLANK now, as a pad; where the next file will start (bytes)."""
        file = self.queue.last_file(self._start)
        file.finish(build_blank(file.left))
        self._file = None
        return file.stop

    def flush(self, least_pages: int = 0) -> None:
        self.queue.flush(least_pages)

    def close(self) -> None:
        self.queue.close()
