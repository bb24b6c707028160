"""Opening a store that was written before: where its log ends, and what consume queues and index lack.

As a broker's recovery, with two differences: what is cut is zeroed, so that nothing comes back; and where good records
follow damage nothing is cut at all, the store is refused instead.
Source: CommitLog#recoverNormally, #recoverAbnormally, DefaultMessageStore#recover (RocketMQ 5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rmqstore.append.files.mapped_file import MappedFile
from rmqstore.append.files.mapped_file_queue import MappedFileQueue
from rmqstore.append.store.commitlog import RecordLog
from rmqstore.append.store.consumequeue import BatchConsumeQueue, ConsumeQueue
from rmqstore.append.store.dispatch import Dispatcher, messages_in
from rmqstore.append.store.dledger_log import DLedgerLog
from rmqstore.append.store.encoder import TopicName
from rmqstore.errors import Refused
from rmqstore.files.mapped_file_queue import MappedFile as FileToRead
from rmqstore.files.store import QueueKind, open_store
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, parse_message
from rmqstore.scan.columns import Columns
from rmqstore.scan.queues import QueueTable
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run

LAST_FILES = 3
_HEAD = 4096
_EVERYTHING = 1 << 62


def recover(
    root: Path,
    log: RecordLog,
    dispatcher: Dispatcher,
    checkpoint: StoreCheckpoint,
    version: str | None = None,
) -> None:
    """Load log, consume queues and index; cut the log at its end; dispatch what is missing.

    Errors: Refused, NotReadable, NoSpace.
    """
    last_exit_ok = not (root / "abort").exists()
    if isinstance(log, DLedgerLog):
        log.store.load()
    else:
        log.queue.load(version)
    _load_queues(root, dispatcher, version)
    first = _start_file(log.queue, log.lead, checkpoint.min_timestamp(), last_exit_ok)
    end = _end_of(log, first)
    if isinstance(log, DLedgerLog):
        log.store.cut(end)  # DLedger itself does not look into bodies
    else:
        log.queue.truncate_dirty_files(end, blank=True)
        log.queue.set_where(end)
    for consume_queue in dispatcher.files():
        if consume_queue.max_physic_offset >= end or end == 0:
            consume_queue.truncate(end)
    lost = dispatcher.index.load(
        last_exit_ok=last_exit_ok, index_msg_timestamp=checkpoint.index_msg_timestamp, log_end=end
    )
    if lost is not None:  # a broker leaves what was only in these files without entries
        first = min([first, *(i for i, file in enumerate(log.queue.files) if file.start <= lost < file.stop)])
    index_end = dispatcher.index.end_phy_offset
    known = _Known(dispatcher, index_end)
    for run in _runs(log.queue.files[first:], log.lead, end):
        if run.columns is not None:
            _dispatch(run.columns, known, dispatcher, index_end)
    for state in dispatcher.queues.values():
        files: ConsumeQueue | BatchConsumeQueue | None = state.simple or state.batch
        if files is not None and files.max_offset:
            state.next_offset, state.started = max(state.next_offset, files.max_offset), True


class _Known:
    """What is dispatched already, per queue, so that whole chunks are passed over without a look at each record."""

    def __init__(self, dispatcher: Dispatcher, index_end: int) -> None:
        self.table = QueueTable()
        self.dispatcher = dispatcher
        self.index_end = index_end if dispatcher.options.index else _EVERYTHING
        self.reached = np.zeros(0, dtype=np.int64)

    def missing(self, columns: Columns) -> list[int]:
        """Records of a chunk that lack a unit or an index entry; all of them where messages are fanned out."""
        if self.dispatcher.options.lmq:
            return list(range(len(columns)))
        numbers = self.table.of(columns)
        for number in range(len(self.reached), len(self.table)):
            topic = self.table.topics[number].decode("utf-8", "surrogateescape")
            state = self.dispatcher.queues.get((topic, self.table.queue_ids[number]))
            at = -1
            if state is not None and state.simple is not None:
                at = state.simple.max_physic_offset
            elif state is not None and state.batch is not None:
                at = state.batch.max_physic_offset + 1
            self.reached = np.append(self.reached, at)
        # the last message in the index, too: a file may have been full in the middle of its keys
        wanted = (columns.offset + columns.size > self.reached[numbers]) | (columns.offset >= self.index_end)
        return np.flatnonzero(wanted).tolist()


def _dispatch(columns: Columns, known: _Known, dispatcher: Dispatcher, index_end: int) -> None:
    """Bring what is missing of a chunk into queues and index."""
    view = columns.buf.data
    options = dispatcher.options
    for i in known.missing(columns):
        topic = TopicName.of(columns.topic(i).decode("utf-8", "surrogateescape"), auto_v2=True)
        state = dispatcher.queue(topic.text, int(columns.queue_id[i]))
        offset, sys_flag, queue_offset = int(columns.offset[i]), int(columns.sys_flag[i]), int(columns.queue_offset[i])
        at = int(columns.properties_at[i])
        text = bytes(view[at : at + int(columns.properties_length[i])])
        dispatcher.dispatch(
            topic,
            state,
            offset,
            int(columns.size[i]),
            queue_offset,
            int(columns.store_timestamp[i]),
            sys_flag,
            text,
            to_index=offset >= index_end,
        )
        if sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            count = messages_in(sys_flag, text) if topic.text in options.batch_topics else 1
            state.next_offset = max(state.next_offset, queue_offset + count)
            state.started = True


def _load_queues(root: Path, dispatcher: Dispatcher, version: str | None) -> None:
    store = open_store(root)
    if store.rocksdb_consume_queue:
        raise Refused(f"{root / 'consumequeue'} is a RocksDB", "rmqstore appends to stores with consume queue files")
    options = dispatcher.options
    for topic, queue_id, path in store.queue_directories(QueueKind.SIMPLE):
        state = dispatcher.queue(topic, queue_id)
        state.simple = ConsumeQueue(path, options.consume_queue_file_size)
        state.simple.load(version)
    for topic, queue_id, path in store.queue_directories(QueueKind.BATCH):
        state = dispatcher.queue(topic, queue_id)
        state.batch = BatchConsumeQueue(path, options.batch_file_size)
        state.batch.load(version)


def _start_file(queue: MappedFileQueue, lead: int, before: int, last_exit_ok: bool) -> int:
    """Index of the file where the walk begins: the third from the end, or by the checkpoint after a crash."""
    if last_exit_ok:
        return max(0, len(queue.files) - LAST_FILES)
    for i in range(len(queue.files) - 1, -1, -1):
        message, _ = parse_message(_first_record(queue.files[i], lead))
        if message is not None and 0 < message.store_timestamp <= before:
            return i
    return 0


def _first_record(file: MappedFile, lead: int) -> bytes:
    raw = file.read(lead, _HEAD)
    size = int.from_bytes(raw[:4], "big", signed=True)
    return raw if size <= len(raw) else file.read(lead, min(size, file.file_size - lead))


def _to_read(file: MappedFile) -> FileToRead:
    return FileToRead(file.path, file.start, file.file_size, file.file_size)


def _end_of(log: RecordLog, first: int) -> int:
    """Global offset behind the last good record; later files may hold nothing but zeros.

    Errors: Refused.
    """
    queue = log.queue
    end, stopped = queue.files[0].start if queue.files else 0, False
    for file in queue.files[first:]:
        if not stopped:
            end = file.start
        for run in scan_file(_to_read(file), lead=log.lead):
            if run.kind is Kind.RECORDS:
                if stopped:
                    raise Refused(
                        f"{file.path}: good records at {run.start} behind damage at {end}",
                        "run `rmqstore recover` on it first",
                    )
                end = run.stop
            elif run.kind is Kind.BLANK and not stopped:
                # the BLANK of the last commitlog file is written over, as a broker does
                end = run.stop if file is not queue.files[-1] or log.lead else run.start
            else:
                stopped = True
    return end


def _runs(files: list[MappedFile], lead: int, end: int) -> Iterator[Run]:
    for file in files:
        if file.start >= end:
            return
        yield from (run for run in scan_file(_to_read(file), lead=lead) if run.kind is Kind.RECORDS)
