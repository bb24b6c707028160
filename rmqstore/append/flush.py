"""Flush a store to disk: the log first, then consume queues and index, the checkpoint last.

The log is flushed by synchronous group commit, or at intervals in a thread. Units: intervals in ms, pages of 4096
bytes.
Source: GroupCommitService, FlushRealTimeService, FlushConsumeQueueService, DefaultMessageStore#flush (RocketMQ 5.4.0),
StoreCheckpoint (RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rmqstore.append.commitlog import RecordLog
from rmqstore.append.disk import at_the_same_time, create_file, explained, sync_directories, write_all
from rmqstore.append.dispatch import OPEN_QUEUES, Dispatcher
from rmqstore.append.dledger import DLedgerLog
from rmqstore.append.mapped_files import PAGE, Clock, WritableMappedFile, WritableMappedFileQueue, now_ms
from rmqstore.errors import RmqStoreError
from rmqstore.formats.checkpoint import FILE_SIZE, StoreCheckpoint, parse_checkpoint


class FlushPolicy(StrEnum):
    """flushDiskType: with SYNC_FLUSH a put returns when its message is on disk, with ASYNC_FLUSH before."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class FlushIntervals:
    """Flush intervals, with the defaults of MessageStoreConfig; `sync_timeout` is syncFlushTimeout."""

    commitlog: int = 500
    commitlog_least_pages: int = 4
    commitlog_thorough: int = 10_000
    consume_queue: int = 1000
    consume_queue_least_pages: int = 2
    consume_queue_thorough: int = 60_000
    dledger_checkpoint: int = 3000
    sync_timeout: int = 5000


class GroupCommit:
    """Group commit: one flush, in a thread, for all callers that wait for their offset.

    `guard` is the append lock: buffers are committed under it, and the fsync runs without it.
    Without `in_order`, many files are flushed at the same time.
    Source: GroupCommitService
    """

    def __init__(
        self, queues: Callable[[], list[WritableMappedFileQueue]], guard: threading.RLock, *, in_order: bool = True
    ) -> None:
        self._queues = queues
        self._in_order = in_order
        self._guard = guard
        self._turn = threading.Condition()
        self._wanted = False
        self._stopping = False
        self._error: RmqStoreError | None = None
        self._thread: threading.Thread | None = None
        self.flushes = 0

    def start(self, flush: Callable[[], None], failed: Callable[[RmqStoreError], None]) -> None:
        """Start the thread, which calls `flush` on request; its first error goes to `failed` and ends the thread."""
        self._thread = threading.Thread(target=self._run, args=(flush, failed), name="groupcommit", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Request a flush without waiting for it."""
        with self._turn:
            self._wanted = True
            self._turn.notify_all()

    def wait(self, reached: Callable[[], bool], timeout: int) -> bool:
        """Request a flush and wait until `reached` returns True; False after `timeout` ms.

        Errors: NoSpace and others; every caller gets the error that ended the thread.
        """
        deadline = time.monotonic() + timeout / 1000
        with self._turn:
            self._wanted = True
            self._turn.notify_all()
            while not reached():
                if self._error is not None:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0 or not self._turn.wait(left):
                    return reached()
        return True

    def _run(self, flush: Callable[[], None], failed: Callable[[RmqStoreError], None]) -> None:
        while True:
            with self._turn:
                while not self._wanted and not self._stopping:
                    self._turn.wait()
                if not self._wanted:
                    return
                self._wanted = False
            try:
                flush()
            except RmqStoreError as error:
                failed(error)
                with self._turn:
                    self._error = error
                    self._turn.notify_all()
                return
            with self._turn:
                self._turn.notify_all()

    def stop(self) -> None:
        """End the thread after it has done the requested flushes."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()

    def flush(self) -> None:
        """Flush everything appended so far to disk, while other threads continue to append.

        Errors: NoSpace and others.
        """
        with self._guard:
            work = []
            for queue in self._queues():
                files = queue.unflushed()
                for file in files:
                    file.commit(0)
                if files:
                    work.append((queue, [(file, file.committed_position, file.store_timestamp) for file in files]))
        self.flushes += 1
        if self._in_order:
            for queue, committed in work:
                self._sync(queue, committed)
        else:
            at_the_same_time(lambda one: self._sync(*one), work)

    def _sync(self, queue: WritableMappedFileQueue, committed: list[tuple[WritableMappedFile, int, int]]) -> None:
        """Sync the files of a queue up to their committed positions. Errors: NoSpace and others."""
        for file, position, timestamp in committed:
            if file.hold():
                try:
                    file.sync(position)
                finally:
                    file.release()
            with self._guard:
                queue.flushed_where = max(queue.flushed_where, file.start + position)
                queue.committed_where = max(queue.committed_where, queue.flushed_where)
                queue.store_timestamp = timestamp or queue.store_timestamp


class IntervalFlusher:
    """A thread that calls `flush(thorough)` every `interval` ms, with True at least `thorough` ms apart.

    The first error goes to `failed` and ends the thread.
    """

    def __init__(
        self,
        flush: Callable[[bool], None],
        failed: Callable[[RmqStoreError], None],
        interval: int,
        thorough: int,
        clock: Clock = now_ms,
        name: str = "flush",
    ) -> None:
        self._failed = failed
        self._flush = flush
        self._interval = interval
        self._thorough = thorough
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last_thorough = self._clock()
        while not self._stop.wait(self._interval / 1000):
            now = self._clock()
            thorough = now - last_thorough >= self._thorough
            if thorough:
                last_thorough = now
            try:
                self._flush(thorough)
            except RmqStoreError as error:
                self._failed(error)
                return

    def stop(self) -> None:
        """End the thread without a last flush."""
        self._stop.set()
        self._thread.join()


class CheckpointFile:
    """The file `checkpoint`; fields and units as in `formats.checkpoint`."""

    def __init__(self, path: Path, descriptor: int, values: StoreCheckpoint) -> None:
        self.path = path
        self.physic_msg_timestamp = values.physic_msg_timestamp
        self.logics_msg_timestamp = values.logics_msg_timestamp
        self.index_msg_timestamp = values.index_msg_timestamp
        self.master_flushed_offset = values.master_flushed_offset
        self.confirm_phy_offset = values.confirm_phy_offset
        self.logics_physical_offset = values.logics_physical_offset
        self._descriptor = descriptor
        self._written = b""

    @classmethod
    def open(cls, path: Path) -> CheckpointFile:
        """Open the file, or create one of zeros.

        Errors: NotReadable, NoSpace.
        """
        if not path.exists():
            return cls(path, create_file(path, FILE_SIZE), StoreCheckpoint())
        with explained(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            raw = os.pread(descriptor, FILE_SIZE, 0)
            if len(raw) < FILE_SIZE:
                os.ftruncate(descriptor, FILE_SIZE)
        return cls(path, descriptor, parse_checkpoint(raw))

    def values(self) -> StoreCheckpoint:
        """Return the values that the next flush writes."""
        return StoreCheckpoint(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        )

    def limit(self, latest: int, end: int) -> None:
        """Limit all times to `latest` (ms), that of the last message, because later messages were truncated.

        A logicsPhysicalOffset at or after the end of the log (bytes) becomes 0: unknown. An earlier one stays true.
        """
        if self.logics_physical_offset >= end:
            self.logics_physical_offset = 0
        self.physic_msg_timestamp = min(self.physic_msg_timestamp, latest)
        self.logics_msg_timestamp = min(self.logics_msg_timestamp, latest)
        self.index_msg_timestamp = min(self.index_msg_timestamp, latest)

    def flush(self) -> None:
        """Write the file if it changed, and flush it to disk. Errors: NoSpace and others."""
        data = self.values().build()
        if data == self._written:
            return
        with explained(self.path):
            write_all(self._descriptor, data, 0)
            os.fdatasync(self._descriptor)
        self._written = data

    def close(self) -> None:
        """Close the file without writing."""
        os.close(self._descriptor)


class StoreFlush:
    """Flushes log, consume queues, index and checkpoint of a store, also at intervals in threads.

    `guard` is the append lock.
    """

    def __init__(
        self,
        log: RecordLog,
        dispatcher: Dispatcher,
        checkpoint: CheckpointFile,
        intervals: FlushIntervals,
        guard: threading.RLock,
        clock: Clock,
    ) -> None:
        self.log = log
        self.dispatcher = dispatcher
        self.checkpoint = checkpoint
        self.group = GroupCommit(self.queues, guard)
        self.index_timestamp = checkpoint.index_msg_timestamp
        """End timestamp (ms) of the last index file that is full and on disk; goes to the checkpoint after the log."""
        self._intervals = intervals
        self._guard = guard
        self._clock = clock
        self._checkpointed = clock()
        self._threads: list[IntervalFlusher] = []

    def queues(self) -> list[WritableMappedFileQueue]:
        """Return the mapped file queues of the log: the commitlog, or DLedger's data and index."""
        return [self.log.queue, *([self.log.store.index] if isinstance(self.log, DLedgerLog) else [])]

    def start(self, policy: FlushPolicy, failed: Callable[[RmqStoreError], None]) -> None:
        """Start the threads, which flush at intervals and on request; the first error of each goes to `failed`."""
        ms, clock = self._intervals, self._clock
        if policy is FlushPolicy.SYNC:
            self.group.start(self._flush_requested, failed)
        else:
            thorough = ms.commitlog_thorough
            self._threads.append(IntervalFlusher(self.flush_log, failed, ms.commitlog, thorough, clock, "commitlog"))
        thorough = ms.consume_queue_thorough
        self._threads.append(
            IntervalFlusher(self.flush_queues, failed, ms.consume_queue, thorough, clock, "consumequeue")
        )

    def stop(self) -> None:
        """End the threads without a last flush."""
        self.group.stop()
        for thread in self._threads:
            thread.stop()

    def flush_log(self, thorough: bool) -> None:
        """Flush the log if enough pages are dirty, or in any case if `thorough`. Errors: NoSpace and others."""
        queue = self.log.queue
        if not thorough:
            with self._guard:
                pages = (queue.max_offset - queue.flushed_where) // PAGE
            if pages < self._intervals.commitlog_least_pages:
                return
        self._flush_group()
        self.checkpoint.physic_msg_timestamp = max(self.checkpoint.physic_msg_timestamp, queue.store_timestamp)

    def _flush_requested(self) -> None:
        if self.log.queue.flushed_where < self.log.queue.max_offset:
            self.flush_log(True)

    def _flush_group(self) -> None:
        """Flush the log; this commits DLedger entries, because the member is a majority by itself."""
        log = self.log
        if not isinstance(log, DLedgerLog):
            self.group.flush()
            return
        with self._guard:
            end = log.store.end_index
        self.group.flush()
        with self._guard:
            log.store.update_committed_index(log.store.member.term, end)
            now = self._clock()
            if now - self._checkpointed >= self._intervals.dledger_checkpoint:
                self._checkpointed = now
                log.store.persist_checkpoint()

    def flush_queues(self, thorough: bool) -> None:
        """Flush the consume queues with enough dirty pages; if `thorough`, all of them, the index and the checkpoint.

        Errors: NoSpace and others.
        """
        least = 0 if thorough else self._intervals.consume_queue_least_pages
        log = self.log.queue
        with self._guard:
            timestamp, index_timestamp = self.dispatcher.timestamp, self.index_timestamp
            log_end = log.max_offset
        if log.flushed_where < log_end:
            self._flush_group()
        with self._guard:
            due = [files.queue for files in self.dispatcher.files() if files.queue.behind // PAGE >= least]
            if thorough:
                self.dispatcher.index.flush()
                if log.flushed_where >= log.max_offset:
                    index_timestamp = self.index_timestamp
        for first in range(0, len(due), OPEN_QUEUES):
            batch = due[first : first + OPEN_QUEUES]
            GroupCommit(batch.copy, self._guard, in_order=False).flush()
            if self.dispatcher.too_many_open:
                with self._guard:
                    for queue in batch:
                        queue.release_descriptors()
        if thorough:
            self._sync_directories()
            checkpoint = self.checkpoint
            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, timestamp)
            checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, log.store_timestamp)
            checkpoint.index_msg_timestamp = index_timestamp
            checkpoint.flush()

    def _sync_directories(self) -> None:
        """Flush the directories of new queues, before the checkpoint says that their units are on disk."""
        unsynced = self.dispatcher.shared.unsynced
        with self._guard:
            directories = list(unsynced)
            unsynced.clear()
        sync_directories(directories)
