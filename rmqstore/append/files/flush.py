"""When data is brought to the disk: synchronous group commit, or at intervals by a thread.

Source: GroupCommitService, FlushRealTimeService, FlushConsumeQueueService (RocketMQ 5.4.0). Intervals in ms, pages of
4096 bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rmqstore.append.files.mapped_file import Clock, now_ms
from rmqstore.append.files.mapped_file_queue import MappedFileQueue
from rmqstore.errors import RmqStoreError


class FlushPolicy(StrEnum):
    """flushDiskType: SYNC_FLUSH, where a caller returns when its message is on the disk, or ASYNC_FLUSH."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class FlushIntervals:
    """Defaults of MessageStoreConfig."""

    commitlog: int = 500
    commitlog_least_pages: int = 4
    commitlog_thorough: int = 10_000
    consume_queue: int = 1000
    consume_queue_least_pages: int = 2
    consume_queue_thorough: int = 60_000
    dledger_checkpoint: int = 3000


class GroupCommit:
    """Callers wait for their offset; one of them flushes for all that are waiting.

    `guard` is the appenders' lock: buffers are given to the system under it, the fsync is done without it.
    """

    def __init__(self, queues: Callable[[], list[MappedFileQueue]], guard: threading.RLock) -> None:
        self._queues = queues
        self._guard = guard
        self._turn = threading.Condition()
        self._flushing = False
        self.flushes = 0

    def wait(self, reached: Callable[[], bool]) -> None:
        """Return when `reached` says that the caller's data is on the disk.

        Errors: NoSpace and others; every caller that tries gets its own.
        """
        while not reached():
            with self._turn:
                if self._flushing:
                    self._turn.wait()
                    continue
                self._flushing = True
            try:
                self.flush()
            finally:
                with self._turn:
                    self._flushing = False
                    self._turn.notify_all()

    def flush(self) -> None:
        """Everything appended so far to the disk, while others go on appending.

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
        for queue, files_at in work:
            for file, position, timestamp in files_at:
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
    """A thread that calls `flush(thorough)` at an interval, thoroughly every now and then.

    The first error ends the thread and is given to `failed`: the next append raises it.
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
        last = self._clock()
        while not self._stop.wait(self._interval / 1000):
            now = self._clock()
            thorough = now - last >= self._thorough
            if thorough:
                last = now
            try:
                self._flush(thorough)
            except RmqStoreError as error:
                self._failed(error)
                return

    def stop(self) -> None:
        """End the thread; what is left is the caller's to flush."""
        self._stop.set()
        self._thread.join()
