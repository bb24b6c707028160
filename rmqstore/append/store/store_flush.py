"""Flush a store to disk: the log first, then consume queues and index, the checkpoint last.

Source: FlushRealTimeService, FlushConsumeQueueService, DefaultMessageStore#flush, StoreCheckpoint (RocketMQ 5.4.0)
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqstore.append.dledger.dledger_log import DLedgerLog
from rmqstore.append.files.flush import FlushIntervals, FlushPolicy, GroupCommit, IntervalFlusher
from rmqstore.append.files.mapped_file import PAGE, Clock
from rmqstore.append.files.mapped_file_queue import WritableMappedFileQueue
from rmqstore.append.store.checkpoint import CheckpointFile
from rmqstore.append.store.commitlog import RecordLog
from rmqstore.append.store.dispatch import OPEN_QUEUES, Dispatcher
from rmqstore.errors import RmqStoreError


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
            GroupCommit(batch.copy, self._guard).flush()
            if self.dispatcher.too_many_open:
                with self._guard:
                    for queue in batch:
                        queue.release_descriptors()
        if thorough:
            checkpoint = self.checkpoint
            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, timestamp)
            checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, log.store_timestamp)
            checkpoint.index_msg_timestamp = index_timestamp
            checkpoint.flush()
