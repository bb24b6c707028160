"""Recover an existing store: find the end of its log, and dispatch messages that lack units or index entries.

This differs from a broker's recovery in three ways. Truncated bytes are zeroed, so that they do not reappear. A store
with good records after damage is refused and not truncated. And every message in the log has its unit afterwards.
Source: CommitLog#recoverNormally, #recoverAbnormally, DefaultMessageStore#recover (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.append.commitlog import RecordLog
from rmqstore.append.consumequeue import BatchConsumeQueue, ConsumeQueue
from rmqstore.append.dispatch import Dispatcher, WrittenRecord, messages_in
from rmqstore.append.dledger import DLedgerLog
from rmqstore.append.encoder import TopicName
from rmqstore.append.mapped_files import WritableMappedFile, WritableMappedFileQueue
from rmqstore.errors import Refused
from rmqstore.files.config import configured_types
from rmqstore.files.files import LOCAL
from rmqstore.files.mapped_file_queue import MappedFile as FileToRead
from rmqstore.files.store import QueueKind, open_store
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.message import is_dispatched, parse_message
from rmqstore.formats.properties import is_lmq, is_system_topic
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import grouped
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.texts import Text

LAST_FILES = 3
_REBUILD = Text("run `rmqstore verify`, then `rmqstore rebuild STORE cq`")
_HEAD = 4096
_AFTER_ALL = 1 << 62


def recover(
    root: Path,
    log: RecordLog,
    dispatcher: Dispatcher,
    checkpoint: StoreCheckpoint,
    version: str | None = None,
    limit: int | None = None,
) -> int:
    """Load log, consume queues and index; truncate the log after its last good record; dispatch missing messages.

    `limit`: truncate it at this offset (bytes), whatever follows. The CRC of a record does not cover its properties.

    Returns the latest store time of the log (ms), 0 without messages, which no checkpoint may exceed.

    This reads the whole log. A broker reads only the last files: an earlier message that lacks its unit is never
    served again, because the units of later messages follow pre-blanks in its place.
    Errors: Refused, NotReadable, NoSpace.
    """
    last_exit_ok = not (root / "abort").exists()
    legacy: list[FileToRead] = []
    if isinstance(log, DLedgerLog):
        log.store.load()
        commitlog = open_store(root).commitlog
        legacy = list(commitlog.files) if commitlog is not None else []
    else:
        log.queue.load(version)
    _load_queues(root, dispatcher, version)
    first = _start_file(log.queue, log.body_offset, checkpoint.min_timestamp(), last_exit_ok)
    limit = _AFTER_ALL if limit is None else limit
    while first and log.queue.files[first].start >= limit:
        first -= 1
    end = _end_of(log, first, limit)
    walk = _LogWalk(legacy, log, end)
    first_start = log.queue.files[first].start if log.queue.files else 0
    types = configured_types(LOCAL, root)
    topics = None if types is None else frozenset(types)
    deleted_before = end if last_exit_ok else first_start
    known = _DispatchedMessages(dispatcher, topics, deleted_before)
    missing = known.first_missing(walk)
    if isinstance(log, DLedgerLog):
        log.store.cut(end)  # DLedger's own recovery does not check the bodies of entries
    else:
        log.queue.truncate_dirty_files(end, blank=True)
        log.queue.set_where(end)
    truncated = False
    for consume_queue in dispatcher.files():
        consume_queue.settle()
        if consume_queue.max_physic_offset >= end or end == 0:
            consume_queue.truncate(end)
            truncated = True
        dispatcher.limit_descriptors()
    if truncated:
        known = _DispatchedMessages(dispatcher, topics, deleted_before)
        missing = known.first_missing(walk)
    not_indexed = dispatcher.index.load(
        last_exit_ok=last_exit_ok, index_msg_timestamp=checkpoint.index_msg_timestamp, log_end=end
    )
    index_end = dispatcher.index.end_phy_offset
    begin = min(missing, end, end if not_indexed is None else not_indexed)
    if dispatcher.options.index:
        begin = min(begin, index_end if index_end >= 0 or any(dispatcher.index.files()) else 0)
    for columns in walk.records(begin, crc=True):
        _dispatch(columns, known, dispatcher, index_end)
    for state in dispatcher.queues.values():
        files: ConsumeQueue | BatchConsumeQueue | None = state.simple or state.batch
        if files is not None and files.max_offset:
            state.next_offset, state.started = max(state.next_offset, files.max_offset), True
    return known.latest


class _LogWalk:
    """The good records of a store in order of their physical offsets: those of the legacy log, then those of the log.

    `end` is the global offset after the last record.
    """

    def __init__(self, legacy: Sequence[FileToRead], log: RecordLog, end: int) -> None:
        self.end = end
        self._files = [(file, 0) for file in legacy] + [(_to_read(file), log.body_offset) for file in log.queue.files]

    def records(self, begin: int, *, crc: bool) -> Iterator[Columns]:
        """Yield chunks of records, starting with the file that contains `begin`."""
        for file, body_offset in self._files:
            if not begin < file.stop or file.start >= self.end:
                continue
            for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=crc)):
                if run.kind is Kind.RECORDS and run.columns is not None and run.start < self.end:
                    yield run.columns


class _QueueBefore(NamedTuple):
    """The state of a queue before recovery.

    `reached` is the physical offset after the last dispatched message (-1: none); `first` and `next` are queue offsets
    (next -1: any). `known` is False for a deleted topic, `numbered` False for a BatchCQ, whose units are not addressed
    by queue offset.
    """

    reached: int
    first: int = 0
    next: int = -1
    known: bool = True
    numbered: bool = True


class _DispatchedMessages:
    """The dispatched messages by queue, in arrays, so that whole chunks of them can be skipped.

    `topics` are those in topics.json, None if it is unreadable. A message below `deleted_before` whose topic is not in
    it and has no queue belongs to a deleted topic and gets no unit, as in a broker.
    """

    def __init__(self, dispatcher: Dispatcher, topics: frozenset[str] | None, deleted_before: int) -> None:
        self.table = QueueTable()
        self.dispatcher = dispatcher
        self.topics = topics
        self.deleted_before = deleted_before
        self.reached = np.zeros(0, dtype=np.int64)
        self.first = np.zeros(0, dtype=np.int64)
        self.known = np.zeros(0, dtype=np.bool_)
        self.next: list[int] = []
        self.latest = 0
        """The latest store time (ms) seen by `first_missing`."""
        self.numbered: list[bool] = []

    def lacks_unit(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Return which records lack their unit, judged by the end of their queue."""
        numbers = self._numbers(columns)
        queued = is_dispatched(columns.sys_flag) & (self.known[numbers] | (columns.offset >= self.deleted_before))
        lacks: npt.NDArray[np.bool_] = queued & (columns.offset + columns.size > self.reached[numbers])
        return lacks

    def first_missing(self, walk: _LogWalk) -> int:
        """Return the physical offset of the first record that lacks its unit, else the end of the log; writes nothing.

        Errors: Refused if units are missing that cannot be appended to the existing ones.
        """
        first = walk.end
        for consume_queue in self.dispatcher.files():
            for stop, start in consume_queue.queue.check_self():
                missing = Text("{folder}: the file with the units in [{stop}, {start}) is missing")
                folder = consume_queue.queue.directories[0]
                raise Refused(missing.format(folder=folder, stop=stop, start=start), _REBUILD)
        for columns in walk.records(0, crc=False):
            if len(columns):
                self.latest = max(self.latest, int(columns.store_timestamp.max()))
            lacks = self.lacks_unit(columns)
            rows = np.flatnonzero(lacks)
            if len(rows):
                first = min(first, int(columns.offset[rows[0]]))
                self._refuse_gaps(columns, rows)
            if self._fans_out(columns):
                first = min(first, int(columns.offset[0]))
            numbers = self._numbers(columns)
            hidden = np.flatnonzero(~lacks & self.known[numbers] & (columns.queue_offset < self.first[numbers]))
            hidden = hidden[is_dispatched(columns.sys_flag[hidden])]
            if len(hidden):
                i = int(hidden[0])
                cut = Text(
                    "{label}: the log has message {at} of this queue at {offset}, but its consume queue begins at "
                    "{first}"
                )
                label, first_unit = self.table.label(int(numbers[i])), self.first[numbers[i]]
                at, offset = columns.queue_offset[i], columns.offset[i]
                raise Refused(cut.format(label=label, at=at, offset=offset, first=first_unit), _REBUILD)
        return first

    def _refuse_gaps(self, columns: Columns, rows: npt.NDArray[np.int64]) -> None:
        """Refuse records without units that do not continue their queue. Errors: Refused."""
        numbers = self._numbers(columns)[rows]
        for group in grouped(numbers):
            number = int(numbers[group[0]])
            if not self.numbered[number]:
                continue
            offsets = columns.queue_offset[rows[group]]
            expected = self.next[number] if self.next[number] >= 0 else int(offsets[0])
            wrong = np.flatnonzero(offsets != expected + np.arange(len(offsets)))
            if len(wrong):
                i = int(wrong[0])
                gap = Text(
                    "{label}: the log has message {at} of this queue at {offset}, but the next one of its consume "
                    "queue is {next}"
                )
                label, offset = self.table.label(number), columns.offset[rows[group[i]]]
                raise Refused(gap.format(label=label, at=offsets[i], offset=offset, next=expected + i), _REBUILD)
            self.next[number] = expected + len(offsets)

    def missing(self, columns: Columns, index_end: int) -> list[int]:
        """List the records of a chunk that lack a unit or an index entry; all of them if any may be in light queues."""
        if self._fans_out(columns):
            return list(range(len(columns)))
        # including the last indexed message, some of whose keys may lack an entry because its file was full
        end = index_end if self.dispatcher.options.index else _AFTER_ALL
        return np.flatnonzero(self.lacks_unit(columns) | (columns.offset >= end)).tolist()

    def _fans_out(self, columns: Columns) -> bool:
        return self.dispatcher.options.lmq and b"INNER_MULTI_DISPATCH" in columns.raw

    def _numbers(self, columns: Columns) -> npt.NDArray[np.int64]:
        """Return the queue number of every record, after adding new queues to the arrays."""
        numbers = self.table.of(columns)
        new = [self._queue(number) for number in range(len(self.next), len(self.table))]
        if new:
            self.reached = np.append(self.reached, [queue.reached for queue in new])
            self.first = np.append(self.first, [queue.first for queue in new])
            self.known = np.append(self.known, [queue.known for queue in new])
            self.next += [queue.next for queue in new]
            self.numbered += [queue.numbered for queue in new]
        return numbers

    def _queue(self, number: int) -> _QueueBefore:
        topic = self.table.topics[number].decode("utf-8", "surrogateescape")
        state = self.dispatcher.queues.get((topic, self.table.queue_ids[number]))
        if state is not None and state.simple is not None and state.simple.queue.files:
            simple = state.simple
            if simple.end > 0:
                return _QueueBefore(
                    simple.max_physic_offset, simple.min_logic_offset // UNIT.size, simple.end // UNIT.size
                )
        elif state is not None and state.batch is not None and state.batch.queue.files:
            return _QueueBefore(state.batch.max_physic_offset + 1, numbered=False)
        known = self.topics is None or topic in self.topics or is_system_topic(topic) or is_lmq(topic)
        return _QueueBefore(-1, known=known, numbered=topic not in self.dispatcher.options.batch_topics)


def _dispatch(columns: Columns, known: _DispatchedMessages, dispatcher: Dispatcher, index_end: int) -> None:
    """Dispatch the records of a chunk that lack units or index entries."""
    view = columns.buf.data
    options = dispatcher.options
    lacks = known.lacks_unit(columns)
    for i in known.missing(columns, index_end):
        topic = TopicName.of(columns.topic(i).decode("utf-8", "surrogateescape"), auto_v2=True)
        state = dispatcher.queue(topic.text, int(columns.queue_id[i]))
        offset, sys_flag, queue_offset = int(columns.offset[i]), int(columns.sys_flag[i]), int(columns.queue_offset[i])
        at = int(columns.properties_at[i])
        text = bytes(view[at : at + int(columns.properties_length[i])])
        dispatcher.dispatch(
            topic,
            state,
            WrittenRecord(offset, int(columns.size[i]), queue_offset, int(columns.store_timestamp[i]), sys_flag, text),
            to_queue=bool(lacks[i]) or options.lmq,
            to_index=offset >= index_end,
        )
        if lacks[i] and is_dispatched(sys_flag):
            count = messages_in(sys_flag, text) if topic.text in options.batch_topics else 1
            state.next_offset = max(state.next_offset, queue_offset + count)
            state.started = True


def _load_queues(root: Path, dispatcher: Dispatcher, version: str | None) -> None:
    """Open the consume queues and find their ends, without writing."""
    store = open_store(root)
    options = dispatcher.options
    for topic, queue_id, path in store.queue_directories(QueueKind.SIMPLE):
        state = dispatcher.queue(topic, queue_id)
        state.simple = ConsumeQueue(path, options.consume_queue_file_size, dispatcher.shared)
        state.simple.load(version)
        dispatcher.limit_descriptors()
    for topic, queue_id, path in store.queue_directories(QueueKind.BATCH):
        state = dispatcher.queue(topic, queue_id)
        state.batch = BatchConsumeQueue(path, options.batch_file_size, dispatcher.shared)
        state.batch.load(version)
        dispatcher.limit_descriptors()


def _start_file(queue: WritableMappedFileQueue, body_offset: int, before: int, last_exit_ok: bool) -> int:
    """Return the index of the file where recovery begins: the third last, or by checkpoint after an abnormal exit."""
    if last_exit_ok:
        return max(0, len(queue.files) - LAST_FILES)
    for i in range(len(queue.files) - 1, -1, -1):
        message, _ = parse_message(_first_record(queue.files[i], body_offset))
        if message is not None and 0 < message.store_timestamp <= before:
            return i
    return 0


def _first_record(file: WritableMappedFile, body_offset: int) -> bytes:
    raw = file.read(body_offset, _HEAD)
    size = int.from_bytes(raw[:4], "big", signed=True)
    return raw if size <= len(raw) else file.read(body_offset, min(size, file.file_size - body_offset))


def _to_read(file: WritableMappedFile) -> FileToRead:
    return FileToRead(file.path, file.start, file.file_size, file.file_size)


def _end_of(log: RecordLog, first: int, limit: int) -> int:
    """Return the global offset after the last good record before any damage, at most `limit`.

    Errors: Refused if good records follow the damage.
    """
    queue = log.queue
    end, stopped = queue.files[0].start if queue.files else 0, False
    for file in queue.files[first:]:
        if file.start >= limit:
            break
        if not stopped:
            end = file.start
        for run in scan_file(_to_read(file), body_offset=log.body_offset):
            if run.start >= limit:
                break
            if run.kind is Kind.RECORDS:
                if stopped:
                    good = Text("{path}: good records at {start} after damage at {end}")
                    raise Refused(
                        good.format(path=file.path, start=run.start, end=end),
                        Text("run `rmqstore recover` on it first"),
                    )
                end = min(run.stop, limit)
            elif run.kind is Kind.BLANK and not stopped:
                # like a broker, overwrite the BLANK of the last commitlog file
                end = run.stop if file is not queue.files[-1] or log.body_offset else run.start
            else:
                stopped = True
    return end
