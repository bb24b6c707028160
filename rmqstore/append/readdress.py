"""Build a plain store from the messages of another: write the records at new offsets, then build all other files.

The caller builds the store in a directory beside its final path (`files.private.building`).
Source: CommitLog.DefaultAppendMessageCallback#doAppend (when a record does not fit), DLedgerCommitLog (how DLedger
changes a record); RocketMQ has no such tool (RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqstore.append.bulk import BulkDispatch, DispatchChunk, Known
from rmqstore.append.commitlog import CommitLog
from rmqstore.append.disk import (
    at_the_same_time,
    create_file,
    explain,
    explained,
    make_directories,
    replace_file,
    sync_directories,
    sync_directory,
    write_all,
)
from rmqstore.append.dispatch import Dispatcher, DispatchOptions
from rmqstore.append.index import IndexService
from rmqstore.append.mapped_files import WritableMappedFileQueue
from rmqstore.errors import OutputExists
from rmqstore.files.files import LOCAL
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.private import PrivateFile, make_private_directories
from rmqstore.files.reading import data_extents, open_regular
from rmqstore.files.walk import entries_on_disk, walk
from rmqstore.formats import properties, timer
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.message import (
    BLANK_MAGIC,
    HEADS_BY_FLAG,
    PHYSICAL_OFFSET_AT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    set_record_crc,
)
from rmqstore.messages.cells import Spans, assemble
from rmqstore.messages.fields import MessageIds
from rmqstore.scan.columns import Columns
from rmqstore.scan.kernels import I64, i64
from rmqstore.scan.properties import PropertyTexts
from rmqstore.texts import Text

_COPY = 1 << 20
_ID_TEXT = 1 << 16


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its holes, mode and mtime, and fsync the copy.

    Errors: NoSpace, NotReadable, OutputExists.
    """
    with explained(source):
        status = source.stat()
        target_fd = create_file(target, status.st_size)
        source_fd = open_regular(source)
    try:
        for low, high in data_extents(source_fd, 0, status.st_size):
            while low < high and (block := os.pread(source_fd, min(_COPY, high - low), low)):
                if any(block):
                    write_all(target_fd, block, low)
                low += len(block)
        os.fchmod(target_fd, status.st_mode & 0o7777 | 0o200)
        os.fsync(target_fd)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        raise explain(error, target) from error
    finally:
        os.close(source_fd)
        os.close(target_fd)


def copy_tree(source: Path, target: Path) -> int:
    """Copy a directory tree without links and special files, and return the number of files.

    Errors: as `copy_file`.
    """
    make_directories(target)
    count = 0
    for entry in walk(LOCAL, source):
        copy = target / entry.path.relative_to(source)
        if entry.directory and entry.link is None:
            make_directories(copy)
        elif entry.regular and entry.link is None:
            copy_file(entry.path, copy)
            count += 1
    return count


class IdMap:
    """A CSV file that maps old to new offset message ids, sorted by the old offset; it appears when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = bytearray(b"old_msg_id,new_msg_id\n")
        self._ids = MessageIds()
        self._at = 0
        make_private_directories(path.absolute().parent)
        with explained(path):
            self._file = PrivateFile(path)

    def add(self, columns: Columns, new: I64) -> None:
        """Add messages; `new` are their new physical offsets."""
        parts = [*self._ids.of(columns, columns.offset), b",", *self._ids.of(columns, new), b"\n"]
        self._text += assemble(len(columns), parts)[0].data
        if len(self._text) >= _ID_TEXT:
            self._write()

    def _write(self) -> None:
        with explained(self.path):
            write_all(self._file.descriptor, self._text, self._at)
        self._at += len(self._text)
        self._text.clear()

    def finish(self) -> None:
        """fsync the file and give it its name. Errors: NoSpace, OutputExists."""
        self._write()
        if os.path.lexists(self.path):
            raise OutputExists(Text("{path} already exists", path=self.path))
        with explained(self.path):
            self._file.finish()
            sync_directory(self.path.parent)

    def discard(self) -> None:
        """Close and delete the unfinished file."""
        self._file.close()


HALF_TOPICS = (properties.HALF_TOPIC.encode(), properties.ROCKSDB_HALF_TOPIC.encode())
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

    def copy_legacy(self, file: MappedFile) -> None:
        """Copy a file of the legacy log unchanged."""
        copy_file(file.path, self.root / "commitlog" / file.name)

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
        for i in np.flatnonzero((prepared != 0) | columns.has_tail).tolist():
            start, size = int(at[i]), int(columns.size[i])
            if prepared[i]:
                layout = HEADS_BY_FLAG[int(columns.sys_flag[i]) & 0x30]
                field_at = start + layout.at("prepared_transaction_offset")
                data[field_at : field_at + 8] = self.new_address(int(prepared[i])).to_bytes(8, "big", signed=True)
            if columns.has_tail[i]:
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
        self._log.queue.flush()
        self._log.queue.close()
        at_the_same_time(_flush_and_close, [files.queue for files in self._dispatcher.files()])
        index = self._dispatcher.index
        index.flush()
        index.close()
        index_time = self._index_time
        values = StoreCheckpoint(self.last_time, self.last_time, index_time, 0, self.last_offset)
        replace_file(self.root / "checkpoint", values.build())
        below = (Path(entry.path) for entry, status in entries_on_disk(self.root) if stat.S_ISDIR(status.st_mode))
        sync_directories([self.root, *below])

    def _files(self) -> Iterator[WritableMappedFileQueue]:
        yield self._log.queue
        yield from (files.queue for files in self._dispatcher.files())

    def abandon(self) -> None:
        """Close all files without flushing."""
        self._queues.close()
        for queue in self._files():
            queue.abandon()
        self._dispatcher.index.close()


def _flush_and_close(queue: WritableMappedFileQueue) -> None:
    queue.flush()
    queue.close()


_UNIT = timer.LOG_UNIT
_OFFSET_AT = _UNIT.at("commitlog_offset")
_BLANK_MAGIC_AT = timer.LOG_BLANK.at("magic")


def relay_timer_log(
    queue: MappedFileQueue, root: Path, address: Callable[[int], int | None], moved_from: int
) -> int | None:
    """Copy the timer log with new physical offsets, up to the unit of the first dropped message.

    `address` maps an old physical offset to the new one, or to None for a dropped message; offsets below `moved_from`
    do not change. The wheel and `timercheck` refer to units by position, which does not change. Returns the timer log
    position (bytes) of the first dropped unit; None without one: from there on the log is zeroed, and a broker reads
    the timer queue again (`fix_timercheck`).
    Errors: NoSpace and others. Source: TimerMessageStore#recover, #recoverAndRevise (RocketMQ 5.4.0)
    """
    for file in queue.files:
        target = root / "timerlog" / file.name
        copy_file(file.path, target)
        cut = _readdress(target, file.start, address, moved_from)
        if cut is not None:
            return cut
    return None


def _readdress(path: Path, start: int, address: Callable[[int], int | None], moved_from: int) -> int | None:
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        at = 0
        while at + _UNIT.size <= size:
            raw = os.pread(descriptor, _UNIT.size, at)
            length = int.from_bytes(raw[:4], "big", signed=True)
            magic = int.from_bytes(raw[_BLANK_MAGIC_AT : _BLANK_MAGIC_AT + 4], "big", signed=True)
            if length != _UNIT.size or magic == BLANK_MAGIC:
                break
            old = int.from_bytes(raw[_OFFSET_AT : _OFFSET_AT + 8], "big", signed=True)
            new = address(old) if old >= moved_from else old
            if new is None:
                os.ftruncate(descriptor, at)  # shrink and extend: the bytes from here on become zero
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
                return start + at
            if new != old:
                write_all(descriptor, new.to_bytes(8, "big"), at + _OFFSET_AT)
            at += _UNIT.size
        os.fsync(descriptor)
        return None
    except OSError as error:
        raise explain(error, path) from error
    finally:
        os.close(descriptor)


def fix_timercheck(path: Path, cut: int, queue_offset: int) -> None:
    """Reset timercheck to the end `cut` of the shortened timer log (bytes) and to the `queue_offset` to continue at."""
    if not path.is_file():
        return
    values = timer.TIMERCHECK.parse(path.read_bytes().ljust(timer.TIMERCHECK.size, b"\0"))
    values["last_timer_log_flush_pos"] = min(values["last_timer_log_flush_pos"], cut)
    values["last_timer_queue_offset"] = min(values["last_timer_queue_offset"], queue_offset)
    values["master_timer_queue_offset"] = min(values["master_timer_queue_offset"], queue_offset)
    replace_file(path, timer.TIMERCHECK.build(**values).ljust(timer.TIMERCHECK_FILE_SIZE, b"\0"))
