"""Build a plain store from the messages of another: write the records at new offsets, then build all other files.

The caller builds the store in a directory beside its final path and renames it at the end (`files.building`).
Source: CommitLog.DefaultAppendMessageCallback#doAppend (when a record does not fit), DLedgerCommitLog (how DLedger
changes a record); RocketMQ has no such tool (RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqstore.append.files.disk import make_directories, replace_file, sync_directory
from rmqstore.append.files.mapped_file_queue import WritableMappedFileQueue
from rmqstore.append.readdress.files import IdMap, Progress, copy_file
from rmqstore.append.store.bulk import BulkDispatch, DispatchChunk, Known
from rmqstore.append.store.commitlog import CommitLog
from rmqstore.append.store.dispatch import Dispatcher, DispatchOptions
from rmqstore.append.store.index import IndexService
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import properties
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.message import (
    CRC32_PROPERTY,
    CRC32_RESERVED_LEN,
    HEADS_BY_FLAG,
    PHYSICAL_OFFSET_AT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    set_record_crc,
)
from rmqstore.messages.cells import Spans
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, i64, u64
from rmqstore.scan.properties import PropertyTexts

_CRC32_NAME = int.from_bytes(CRC32_PROPERTY[:8], "big")
HALF_TOPICS = (properties.HALF_TOPIC.encode(), b"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
WHEEL_TOPIC = properties.TIMER_TOPIC.encode()


@dataclass(frozen=True, slots=True)
class ReaddressOptions:
    """The settings of the new store.

    `start`: physical offset of the first record that gets a new offset; `known`: whether a queue gets units.
    Units: bytes.
    """

    file_size: int
    start: int
    dispatch: DispatchOptions
    index_slots: int
    index_units: int
    known: Known = lambda topic, queue_id: True


class Readdressing:
    """The new store while it is built: first the unchanged files of the legacy log, then records at new offsets.

    `messages` counts the records with new offsets, `unmapped` the references to messages that are not in the store.
    """

    def __init__(self, root: Path, options: ReaddressOptions, ids: IdMap | None = None) -> None:
        self.root = root
        self.options = options
        self.messages = 0
        self.unmapped = 0
        self.last_time = 0
        self.last_offset = 0
        self._ids = ids
        self._log = CommitLog(WritableMappedFileQueue([root / "commitlog"], options.file_size), options.start)
        self._index_time = 0
        index = IndexService(root / "index", options.index_slots, options.index_units, full_flushed=self._index_full)
        self._dispatcher = Dispatcher(root, options.dispatch, index)
        self._queues = BulkDispatch(self._dispatcher, options.known)
        self._old = array("q")  # offsets of half and timer messages, to which other records and files refer
        self._new = array("q")
        make_directories(root / "commitlog")
        make_directories(root / "consumequeue")

    # --- records ---------------------------------------------------------------------------------------------------

    def copy_legacy(self, file: MappedFile, progress: Progress | None = None) -> None:
        """Copy a file of the legacy log unchanged."""
        copy_file(file.path, self.root / "commitlog" / file.name, progress)

    def keep(self, columns: Columns) -> None:
        """Dispatch records of a copied file to queues and index."""
        numbers, _ = self._queues.states(columns)
        self._queues.settle()
        self._queues.dispatch(DispatchChunk(columns, columns.offset, numbers))
        self._learn_last(columns, columns.offset)

    def add(self, columns: Columns) -> None:
        """Append records at new offsets; only PHYSICALOFFSET, PREPAREDTXOFFSET and the record CRC change.

        Errors: NoSpace and others.
        """
        numbers, _ = self._queues.states(columns)
        self._queues.write(lambda: self._append(columns, numbers))

    def _append(self, columns: Columns, numbers: I64) -> DispatchChunk:
        offsets = np.empty(len(columns), dtype=np.int64)
        sizes, low = columns.size, 0
        while low < len(columns):
            first, count = self._log.fitting(sizes[low:])
            part, high = columns.slice(low, low + count), low + count
            data, ends = Spans(part.buf, part.at, part.at + part.size).joined()
            offsets[low:high] = first + ends - part.size
            self._remember(part, numbers[low:high], offsets[low:high])
            i64(data)[ends - part.size + PHYSICAL_OFFSET_AT] = offsets[low:high]
            self._patch(part, data.data, ends - part.size)
            self._log.write(data.data, int(part.store_timestamp[-1]))
            low = high
        self.messages += len(columns)
        self._learn_last(columns, offsets)
        return DispatchChunk(columns, offsets, numbers, PropertyTexts(columns))

    @property
    def position(self) -> int:
        """The physical offset of the next record (bytes)."""
        return self._log.queue.max_offset if self._log.queue.files else self.options.start

    def _patch(self, columns: Columns, data: memoryview, at: I64) -> None:
        """Set PREPAREDTXOFFSET, and then the record CRC, of the records at positions `at` of `data`."""
        prepared = columns.prepared_transaction_offset
        ends = columns.at + columns.size
        has_crc = u64(columns.buf)[ends - CRC32_RESERVED_LEN] == _CRC32_NAME
        has_crc &= columns.properties_length >= CRC32_RESERVED_LEN
        for i in np.flatnonzero((prepared != 0) | has_crc).tolist():
            start, size = int(at[i]), int(columns.size[i])
            if prepared[i]:
                layout = HEADS_BY_FLAG[int(columns.sys_flag[i]) & 0x30]
                field_at = start + layout.at("prepared_transaction_offset")
                data[field_at : field_at + 8] = self.new_address(int(prepared[i])).to_bytes(8, "big", signed=True)
            if has_crc[i]:
                data[start : start + size] = set_record_crc(bytes(data[start : start + size]))

    def _remember(self, columns: Columns, numbers: I64, offsets: I64) -> None:
        """Record the new offsets in the id map, and those of half and timer messages for `find_address`.

        `numbers`: the number of every record's queue.
        """
        if self._ids is not None:
            self._ids.add(columns, offsets)
        topics = self._queues.table.topics
        referred = [n for n, topic in enumerate(topics) if topic in HALF_TOPICS or topic == WHEEL_TOPIC]
        wanted = np.isin(numbers, referred) | ((columns.sys_flag & TRANSACTION_MASK) == TRANSACTION_PREPARED)
        for i in np.flatnonzero(wanted).tolist():
            self._old.append(int(columns.offset[i]))
            self._new.append(int(offsets[i]))

    def new_address(self, old: int) -> int:
        """Return the new physical offset of a half or timer message; `old` itself if it did not get a new one."""
        found = self.find_address(old)
        if found is None:
            if old >= self.options.start:
                self.unmapped += 1
            return old
        return found

    def find_address(self, old: int) -> int | None:
        """Return the new physical offset of a half or timer message; None if it did not get a new one."""
        at = np.searchsorted(np.frombuffer(self._old, dtype=np.int64), old) if self._old else 0
        if at < len(self._old) and self._old[int(at)] == old:
            return self._new[int(at)]
        return None

    def _learn_last(self, columns: Columns, offsets: I64) -> None:
        self.last_time = max(self.last_time, int(columns.store_timestamp.max()))
        self.last_offset = int(offsets[-1])

    # --- finish ----------------------------------------------------------------------------------------------------

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last unit of a queue; 0 without units."""
        state = self._dispatcher.queues.get((topic, queue_id))
        return state.simple.max_offset if state is not None and state.simple is not None else 0

    def _index_full(self, timestamp: int) -> None:
        self._index_time = timestamp

    def finish(self) -> None:
        """Flush and close all files, and write the checkpoint last.

        Errors: NoSpace and others.
        """
        self._queues.settle()
        self._queues.close()
        for queue in self._files():
            queue.flush()
            queue.close()
        index = self._dispatcher.index
        index.flush()
        index.close()
        index_time = self._index_time
        values = StoreCheckpoint(self.last_time, self.last_time, index_time, 0, self.last_offset)
        replace_file(self.root / "checkpoint", values.build())
        for folder, _, _ in os.walk(self.root):
            sync_directory(Path(folder))

    def _files(self) -> Iterator[WritableMappedFileQueue]:
        yield self._log.queue
        yield from (files.queue for files in self._dispatcher.files())

    def abandon(self) -> None:
        """Close all files without flushing."""
        self._queues.close()
        for queue in self._files():
            queue.abandon()
        self._dispatcher.index.close()
