"""Append records to a commitlog: reserve space, then write; close a file with a BLANK if a record does not fit.

`RecordLog` is the interface of a store's log; `append.dledger` has the implementation for DLedger.
Source: CommitLog.DefaultAppendMessageCallback#doAppend, CommitLog#rollNextFile (RocketMQ 5.4.0)
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rmqstore.append.encoder import refuse_oversize
from rmqstore.append.mapped_files import WritableMappedFile, WritableMappedFileQueue
from rmqstore.formats.message import BLANK_SIZE, build_blank
from rmqstore.scan.kernels import I64
from rmqstore.texts import Text


class RecordLog(Protocol):
    """A log of records; `body_offset` bytes precede each record (0, or 48 for the header of a DLedger entry)."""

    body_offset: int
    queue: WritableMappedFileQueue

    def reserve(self, *sizes: int) -> int:
        """Return the physical offset of the next record, in a file that has room for records of all these sizes.

        Units: bytes. Errors: MessageRefused if they do not fit into any file; NoSpace.
        """
        ...

    def write(self, record: bytes, store_timestamp: int) -> None:
        """Append a record at the reserved offset; `store_timestamp` in ms.

        Errors: NoSpace and others.
        """
        ...

    def commit(self) -> None:
        """Write everything appended so far to the operating system, so that it survives the death of this process.

        Errors: NoSpace and others.
        """
        ...

    def close(self) -> None:
        """Commit and close."""
        ...


class CommitLog:
    """The commitlog of a plain store."""

    body_offset = 0

    def __init__(self, queue: WritableMappedFileQueue, start: int = 0) -> None:
        self.queue = queue
        self._start = start
        self._file: WritableMappedFile | None = None

    def reserve(self, *sizes: int) -> int:
        """Return the physical offset of the next record; closes the current file if records of these sizes do not fit.

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
        """Append one or more consecutive records at the reserved offset."""
        file = self._file
        if file is None or not file.append(record):
            raise ValueError(Text("no space is reserved for this record"))
        file.store_timestamp = store_timestamp

    def fitting(self, sizes: I64) -> tuple[int, int]:
        """Return the physical offset of the first of these records, and how many of them fit into the same file.

        Units: bytes. Errors: MessageRefused, NoSpace.
        """
        offset = self.reserve(int(sizes[0]))
        assert self._file is not None
        return offset, int(np.searchsorted(np.cumsum(sizes), self._file.left - BLANK_SIZE, side="right"))

    def commit(self) -> None:
        if self._file is not None:
            self._file.commit(0)

    def close(self) -> None:
        self.queue.close()
