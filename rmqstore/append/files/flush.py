"""Flush data to disk by synchronous group commit, or at intervals in a thread.

Units: intervals in ms, pages of 4096 bytes.
Source: GroupCommitService, FlushRealTimeService, FlushConsumeQueueService (RocketMQ 5.4.0)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rmqstore.append.files.mapped_file import Clock, now_ms
from rmqstore.append.files.mapped_file_queue import WritableMappedFileQueue
from rmqstore.errors import RmqStoreError


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
    Source: GroupCommitService
    """

    def __init__(self, queues: Callable[[], list[WritableMappedFileQueue]], guard: threading.RLock) -> None:
        self._queues = queues
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
        for queue, committed in work:
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
