"""A writable store, which keeps log, consume queues, index, checkpoint, lock and abort file like a broker.

    with MessageStore.create(Path("store"), StoreOptions(flush=FlushPolicy.SYNC)) as store:
        store.put(NewMessage("TopicTest", b"hello"))

Source: DefaultMessageStore, CommitLog#asyncPutMessage, #asyncPutMessages, PutMessageResult (RocketMQ 5.4.0)
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType

import numpy as np

from rmqstore.append.bulk import BulkDispatch, DispatchChunk, EncodedTable, discontinued, encode, queue_offsets
from rmqstore.append.commitlog import CommitLog, RecordLog
from rmqstore.append.disk import explained, make_directories, open_or_create, replace_file, sync_directory, write_all
from rmqstore.append.dispatch import Dispatcher, OpenQueue, WrittenRecord, messages_in, property_value
from rmqstore.append.dledger import DLedgerLog, DLedgerMmapFileStore, EntryFiles, MemberState
from rmqstore.append.encoder import NewMessage, Prepared, RowRefused, messages_of, place_records, prepare
from rmqstore.append.flush import CheckpointFile, FlushPolicy, StoreFlush
from rmqstore.append.index import IndexService
from rmqstore.append.mapped_files import Clock, WritableMappedFileQueue, now_ms
from rmqstore.append.recovery import recover
from rmqstore.append.store_options import StoreOptions, options_of_store
from rmqstore.append.topics import add_topics, read_topics
from rmqstore.errors import MessageRefused, OutputExists, Refused, RmqStoreError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.lock import LOCK_NAME, HeldLock, take_lock
from rmqstore.files.private import make_private_directories
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import TRANSACTION_MASK, is_dispatched
from rmqstore.formats.messageid import offset_message_id
from rmqstore.messages.table import MessageTable
from rmqstore.scan.kernels import I64
from rmqstore.texts import Text

__all__ = ["MessageStore", "PutResult", "PutStatus", "StoreOptions"]


CONTENT = b"lock"


def lock_store(root: Path) -> HeldLock:
    """Take the broker's lock (a POSIX record lock on byte 0 of `lock`); like a broker, its release leaves the file.

    Errors: StoreIsLive if another process, or another writer in this process, holds it; NotReadable, NoSpace.
    """
    path = root / LOCK_NAME
    make_directories(root)
    with explained(path):
        held = take_lock(path, open_or_create)
        try:
            write_all(held.descriptor, CONTENT, 0)
        except BaseException:
            held.release()
            raise
    return held


def mark_running(root: Path) -> None:
    """Create `abort` with this process's id; it remains if the store is not closed cleanly.

    Errors: NoSpace, NotReadable. A new `abort` is then removed, because nothing was written that needs a recovery.
    """
    path = root / "abort"
    new = not os.path.lexists(path)
    try:
        replace_file(path, str(os.getpid()).encode())
    except RmqStoreError:
        if new:
            path.unlink(missing_ok=True)
        raise


def mark_clean(root: Path) -> None:
    """Remove `abort`, after everything is on disk."""
    with contextlib.suppress(FileNotFoundError):
        (root / "abort").unlink()
    sync_directory(root)


class PutStatus(StrEnum):
    """The status of a message that was appended to the log. Source: PutMessageStatus"""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The message was not on disk after syncFlushTimeout."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """The offsets of an appended message; `offset` and `size` in bytes, `queue_offset` in units, times in ms."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    store_host: bytes
    status: PutStatus = PutStatus.PUT_OK

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return offset_message_id(self.store_host, self.offset)


def waits(message: NewMessage) -> bool:
    """Return whether a synchronous put waits until the message is on disk. Source: Message#isWaitStoreMsgOK"""
    value = property_value(message.properties, b"WAIT")
    return not value or value.lower() == b"true"


class MessageStore:
    """A store open for appending: a plain store, or the only member of a DLedger group, which leads itself.

    The lock allows one writer at a time; it may use any number of threads. After a write error the store accepts no
    more messages, closes as after a crash, and is recovered when it is opened again.
    """

    def __init__(self, root: Path, options: StoreOptions, lock: HeldLock, clock: Clock = now_ms) -> None:
        self.root = root
        self.options = options
        self._clock = clock
        self._lock = lock
        self._guard = threading.RLock()
        self._failed: RmqStoreError | None = None
        self._closed = False
        self._usable = True
        self._error_raised = False
        self.appended = 0
        """The number of messages appended since the store was opened."""
        self._known: dict[QueueName, int] = {}
        """The queues that had messages when the store was opened, with their next offsets."""
        try:
            self.checkpoint = CheckpointFile.open(root / "checkpoint")
        except BaseException:
            lock.release()
            raise
        self.index = IndexService(
            root / "index", options.index_slots, options.index_units, clock=clock, full_flushed=self._index_full
        )
        self.dispatcher = Dispatcher(root, options.dispatch, self.index, in_order=options.dledger is not None)
        self._bulk = BulkDispatch(self.dispatcher)
        self.log = self._make_log()
        self._flush = StoreFlush(self.log, self.dispatcher, self.checkpoint, options.intervals, self._guard, clock)

    def _make_log(self) -> RecordLog:
        options = self.options
        if (own := options.dledger) is not None:
            member = MemberState(own, term=options.term, leader_id=own, vote_leader=own)
            data, start = options.directories, options.start
            files = EntryFiles(options.commitlog_file_size, data=data, start=start, warm=options.warm)
            home = self.root / f"dledger-{own}"
            # no hook: records are encoded with their final PHYSICALOFFSET
            return DLedgerLog(DLedgerMmapFileStore(home, files, member=member, hook=None, clock=self._clock))
        directories = options.directories or (self.root / "commitlog",)
        queue = WritableMappedFileQueue(directories, options.commitlog_file_size, clock=self._clock, warm=options.warm)
        return CommitLog(queue, options.start)

    @classmethod
    def create(cls, root: Path, options: StoreOptions | None = None, *, clock: Clock = now_ms) -> MessageStore:
        """Create a store in an empty or new directory; a new one is private, and files have the rights of theirs.

        Errors: OutputExists, StoreIsLive, NoSpace, NotReadable.
        """
        if root.exists() and any(root.iterdir()):
            raise OutputExists(Text("{root} is not empty", root=root))
        make_private_directories(root)
        store = cls(root, (options or StoreOptions()).with_defaults(), lock_store(root), clock)
        try:
            store._start()
        except BaseException:
            store.crash()
            raise
        return store

    @classmethod
    def open(
        cls,
        root: Path,
        options: StoreOptions | None = None,
        *,
        config: BrokerConfig | None = None,
        clock: Clock = now_ms,
        limit: int | None = None,
    ) -> MessageStore:
        """Open and recover an existing store; new messages are appended after its last one, or at the offset `limit`.

        Settings that `options` and `config` (broker.conf) do not give are read from the store. Recovery reads the whole
        log, so that no message stays without its consume queue unit. The self id of a DLedger member is the name of its
        directory; only the caller can know that its group has no other member.
        Errors: Refused, before anything is opened for writing, if options contradict the store, if the log is a
        replica, or if some broker cannot read topics.json. Refused also if good records follow damage (run `rmqstore
        recover`), if consume queues lack units that cannot be appended (run `rmqstore rebuild`), or if the load of
        `options.version` fails; then queues, index and a plain log are unchanged, and a DLedger log is truncated as at
        a real start. StoreIsLive, NotAStore, NotReadable, NoSpace.
        """
        complete = options_of_store(root, options or StoreOptions(), config)
        read_topics(root)  # refuse before anything is written
        store = cls(root, complete, lock_store(root), clock)
        try:
            values = store.checkpoint.values()
            latest = recover(store.root, store.log, store.dispatcher, values, store.options.version, limit)
            store.checkpoint.limit(latest, store.log.queue.max_offset)
            store._flush.index_timestamp = store.checkpoint.index_msg_timestamp
            store._start()
        except BaseException:
            store.crash()
            raise
        return store

    def _start(self) -> None:
        mark_running(self.root)
        self._known = {name: state.next_offset for name, state in self.dispatcher.queues.items()}
        self.checkpoint.flush()
        if isinstance(self.log, DLedgerLog):
            self.log.store.persist_term()
        self._flush.start(self.options.flush, self._thread_failed)

    # --- appending -----------------------------------------------------------------------------------------------

    def put(self, message: NewMessage) -> PutResult:
        """Append a message; with synchronous flush, return when it is on disk.

        For a message with the property WAIT=false, a flush is requested but not waited for. `status` says whether the
        wait exceeded syncFlushTimeout.
        Errors: MessageRefused (nothing is written), Refused if the store is closed, NoSpace and others, which close it.
        Source: CommitLog#handleDiskFlush
        """
        prepared = prepare(message, self.options.limits)
        with self._guard:
            result = self._put(prepared)
            self._commit()
        return self._acknowledged([result], [waits(message)])[0]

    def put_many(self, messages: Iterable[NewMessage]) -> list[PutResult]:
        """Append messages one by one, and wait once for all of them.

        Errors: as `put`; messages before a refused one are appended.
        """
        results: list[PutResult] = []
        waiting: list[bool] = []
        try:
            with self._guard:
                try:
                    for message in messages:
                        results.append(self._put(prepare(message, self.options.limits)))
                        waiting.append(waits(message))
                finally:
                    if self._usable:
                        self._commit()
        finally:
            if self._usable:
                results = self._acknowledged(results, waiting)
        return results

    def encode(self, table: MessageTable) -> EncodedTable:
        """Check the messages of a table against the limits of the store, and encode them; may run in any thread.

        Errors: RowRefused for the first refused message.
        """
        return encode(table, self.options, self.log)

    def put_table(self, encoded: EncodedTable, *, renumber: bool = False) -> None:
        """Append all messages of a table, and wait for the flush if `put` would.

        `renumber` assigns each queue's next offsets; otherwise the messages' own offsets must be these.
        Consume queues and index get the messages during the next call, or before the store is flushed or closed.
        Errors: RowRefused for the first refused message (nothing of the table is written); else as `put`.
        """
        if encoded.one_by_one is not None:
            before = self.appended
            try:
                self.put_many(messages_of(encoded.one_by_one, renumber=renumber))
            except MessageRefused as error:
                raise RowRefused(min(self.appended - before, len(encoded) - 1), error) from error
            return
        with self._guard:
            if not self._usable:
                self._refuse()
            numbers, queue_offset, ends = queue_offsets(self._bulk, encoded, renumber, {})
            given = encoded.given["store_timestamp"]
            store_timestamp = np.where(given == 0, self._clock(), given)
            encoded.columns.set(queue_offset=queue_offset, store_timestamp=store_timestamp)
            try:
                self._bulk.write(lambda: self._write_records(encoded, numbers))
            except RmqStoreError as error:
                self._fail(error)
            for key, end in ends.items():
                state = self.dispatcher.queue(*key)
                state.next_offset, state.started = end, True
            self.appended += len(encoded)
            self._commit()
            stop = self.log.queue.max_offset
        if self.options.flush is FlushPolicy.SYNC:
            self._flush.group.wait(lambda: self.log.queue.flushed_where >= stop, self.options.intervals.sync_timeout)

    def _write_records(self, encoded: EncodedTable, numbers: I64) -> DispatchChunk:
        assert isinstance(self.log, CommitLog)
        columns = encoded.columns
        offsets = np.empty(len(columns), dtype=np.int64)
        sizes, low = columns.size, 0
        while low < len(columns):
            offset, count = self.log.fitting(sizes[low:])
            part = columns.slice(low, low + count)
            ends = np.cumsum(part.size)
            offsets[low : low + count] = offset + ends - part.size
            first = int(part.at[0])
            place_records(part, offsets[low : low + count])
            self.log.write(memoryview(columns.raw)[first : first + int(ends[-1])], int(part.store_timestamp[-1]))
            low += count
        return DispatchChunk(columns, offsets, numbers, encoded.texts)

    def check_table(self, encoded: EncodedTable, ends: dict[QueueName, int], *, renumber: bool = False) -> None:
        """Check a table as `put_table` does, without writing it.

        `ends` maps queues to their next offset after the tables that were checked before, and is updated.
        Errors: RowRefused.
        """
        ends |= queue_offsets(self._bulk, encoded, renumber, ends)[2]

    def index_entries(self, encoded: EncodedTable) -> int:
        """Return the number of index entries that a table needs at most."""
        return self._bulk.entries(encoded.columns, encoded.texts) if self.options.dispatch.index else 0

    def put_batch(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Append a client's batch: messages of one queue, with consecutive queue offsets and all in one file.

        Errors: MessageRefused for a mixed or delayed batch; else as `put`.
        Source: CommitLog#asyncPutMessages, DefaultAppendMessageCallback#doAppend(MessageExtBatch)
        """
        if not messages:
            return []
        first = messages[0]
        if any((m.topic, m.queue_id) != (first.topic, first.queue_id) for m in messages):
            raise MessageRefused(Text("all messages of a batch must be of one queue of one topic"))
        if any(m.sys_flag & TRANSACTION_MASK or property_value(m.properties, b"DELAY") for m in messages):
            raise MessageRefused(Text("a batch must not contain transactions or delayed messages"))
        prepared = [prepare(message, self.options.limits) for message in messages]
        with self._guard:
            if not self._usable:
                self._refuse()
            try:
                self.log.reserve(*(p.size for p in prepared))
            except MessageRefused:
                raise
            except RmqStoreError as error:
                self._fail(error)
            results = [self._put(p) for p in prepared]
            self._commit()
        return self._acknowledged(results, [waits(message) for message in messages])

    def _put(self, prepared: Prepared) -> PutResult:
        if not self._usable:
            self._refuse()
        m = prepared.message
        topic = prepared.topic
        state = self.dispatcher.queue(topic.text, m.queue_id)
        queued = is_dispatched(m.sys_flag)
        queue_offset = self._queue_offset(m, state) if queued else 0
        batched = topic.text in self.options.dispatch.batch_topics
        if batched or self.options.dispatch.lmq:
            prepared = self._with_offsets(prepared, queue_offset, batched)
            m = prepared.message
        timestamp = m.store_timestamp or self._clock()
        try:
            if self._bulk.written is not None:
                self._bulk.settle()
            offset = self.log.reserve(prepared.size)
            self.log.write(prepared.record(offset, queue_offset, timestamp), timestamp)
            if self.dispatcher.in_order:  # dispatch commits units at once, which must not precede their record
                self._commit()
            written = WrittenRecord(offset, prepared.size, queue_offset, timestamp, m.sys_flag, m.properties)
            self.dispatcher.dispatch(topic, state, written)
        except MessageRefused:
            raise
        except RmqStoreError as error:
            self._fail(error)
        self.appended += 1
        if queued:
            state.next_offset = queue_offset + (messages_in(m.sys_flag, m.properties) if batched else 1)
            state.started = True
        return PutResult(offset, prepared.size, queue_offset, timestamp, m.store_host)

    def _queue_offset(self, m: NewMessage, state: OpenQueue) -> int:
        """Return the queue's next offset, or the message's own one if it continues the queue.

        With any other offset a broker would write the unit to the wrong position. Errors: MessageRefused.
        """
        own = m.queue_offset
        if own is None:
            return state.next_offset
        if own < 0 or (state.started and own != state.next_offset):
            raise discontinued(state, own, state.next_offset)
        return own

    def _with_offsets(self, prepared: Prepared, queue_offset: int, batched: bool) -> Prepared:
        """Return the message with the properties that the store adds."""
        m = prepared.message
        added = self.dispatcher.own_properties(m.topic, m.queue_id, m.sys_flag, m.properties, queue_offset, batched)
        if not added:
            return prepared
        text = m.properties
        text += (b"\x02" if text and not text.endswith(b"\x02") else b"") + added
        return prepare(replace(m, properties=text), self.options.limits)

    # --- commit and flush ----------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """With `write_through`, commit the log before messages are acknowledged."""
        if self.options.write_through:
            try:
                self.log.commit()
            except RmqStoreError as error:
                self._fail(error)

    def _acknowledged(self, results: list[PutResult], waiting: Sequence[bool]) -> list[PutResult]:
        """Wait until the messages that require it are on disk, and return the results with their status."""
        if self.options.flush is not FlushPolicy.SYNC or not results:
            return results
        last = max((i for i, wait in enumerate(waiting) if wait), default=-1)
        if last < 0:
            self._flush.group.request()
            return results
        stop = results[last].offset + results[last].size
        queue = self.log.queue
        try:
            if self._flush.group.wait(lambda: queue.flushed_where >= stop, self.options.intervals.sync_timeout):
                return results
        except RmqStoreError as error:
            with self._guard:
                self._fail(error)
        flushed = queue.flushed_where
        late = [wait and put.offset + put.size > flushed for put, wait in zip(results, waiting, strict=True)]
        return [
            replace(put, status=PutStatus.FLUSH_DISK_TIMEOUT) if is_late else put
            for put, is_late in zip(results, late, strict=True)
        ]

    def flush(self) -> None:
        """Flush everything including the checkpoint; the log first, so that no unit refers to a missing message.

        Errors: NoSpace and others.
        """
        with self._guard:
            self._bulk.settle()
        self._flush.flush_log(True)
        self._flush.flush_queues(True)

    def _index_full(self, timestamp: int) -> None:
        self._flush.index_timestamp = timestamp

    # --- errors and closing --------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        """Raise Refused, with the reason why the store is closed."""
        self._error_raised = True
        if self._failed is not None:
            raise Refused(
                Text("the store was closed by an error: {message}", message=self._failed.message), self._failed.advice
            )
        raise Refused(Text("{root} is closed", root=self.root), Text("open it again"))

    def _thread_failed(self, error: RmqStoreError) -> None:
        self._failed = self._failed or error
        self._usable = False

    def _fail(self, error: RmqStoreError) -> None:
        self._thread_failed(error)
        self._error_raised = True
        raise error

    def close(self) -> None:
        """Flush everything, update the checkpoint, add new topics to topics.json, remove `abort`, release the lock.

        Errors: NoSpace and others, also an error of a flush thread that no call has raised yet; then `abort` stays, and
        the next start recovers the store.
        """
        if self._closed:
            return
        self._flush.stop()
        try:
            if self._failed is None:
                self.flush()
                self._add_topics()
        except BaseException:
            self._abandon()
            raise
        if self._failed is not None:
            self._abandon()
            if not self._error_raised:
                raise self._failed
            return
        try:
            self._bulk.close()
            self.log.close()
            for consume_queue in self.dispatcher.files():
                consume_queue.queue.close()
            self.index.close()
            self.checkpoint.close()
            mark_clean(self.root)
        finally:
            self._lock.release()
            self._closed, self._usable = True, False

    def _add_topics(self) -> None:
        """Add the topics of new messages to topics.json, if there is one."""
        appended = {q for q, state in self.dispatcher.queues.items() if state.next_offset != self._known.get(q, 0)}
        if appended and read_topics(self.root) is not None:
            add_topics(self.root, appended, self.options.dispatch.batch_topics)

    def _abandon(self) -> None:
        """Close all files without writing, which leaves the store as after a crash."""
        self._bulk.close()
        for queue in self._flush.queues():
            queue.abandon()
        for consume_queue in self.dispatcher.files():
            consume_queue.queue.abandon()
        self.index.close()
        self.checkpoint.close()
        self._lock.release()
        self._closed, self._usable = True, False

    def crash(self) -> None:
        """Close without flushing and without removing `abort`, as if the process were killed."""
        if not self._closed:
            self._flush.stop()
            self._abandon()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.crash()


def open_writable(
    path: Path | str, options: StoreOptions | None = None, *, create: bool = False, config: BrokerConfig | None = None
) -> MessageStore:
    """Open a store for appending; use it in a `with` statement.

    Settings that are not given are read from the store. `create` makes a new store in an empty or new directory.
    Errors: as `MessageStore.open` and `MessageStore.create`.
    """
    if create:
        return MessageStore.create(Path(path), options)
    return MessageStore.open(Path(path), options, config=config)
