"""RDB-*: the rows of rocksdbstore/ (timed messages, half messages, index), compared with log and queues.

They are checked whenever the database has rows, whether or not broker.conf names the feature: a broker with the feature
reads them, and it is the broker's setting at its next start that counts.

Not a problem: rows of timed messages that are delivered, which stay for 30 minutes and more; index entries of messages
in log files that were deleted; rows that an unclean shutdown or a running broker has not written yet.

Source: MessageRocksDBStorage, TimerMessageRocksDBStore, Timeline, TransMessageRocksDBStore, IndexRocksDBStore
(RocketMQ 5.4.0 and 5.5.1)

Missing rows: those that a broker wrote, as the log proves, and has not deleted. A position says up to where a broker
has written rows: `sys_topic_scan_offset_checkpoint` (timer), `lastOffsetPy` (half messages, index). A row after it is
not missing, because the next start continues there; only half messages get no row then if the rows were lost as a
whole. Before the position, a row is missing unless the broker may have deleted it:

    timer    a row stays until 30 minutes after `timeline_checkpoint` has passed its time, or a recall deletes it; a
             message that was due when the broker read it has no row, but is in its real queue
    trans    a row stays until a commit or rollback, or until the broker has asked `transactionCheckMax` times: then
             older half messages have no row either
    default  rows are deleted by whole hours

Source: Timeline, TimerSysTopicScanService#scanSysTimerTopic, MessageRocksDBStorage, IndexRocksDBStore#buildIndex,
#deleteExpiredIndex, TransactionalMessageRocksDBService#checkTransRecordsStatus (RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqstore.checks.beside.timer import good_units
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, QueueRange, Report
from rmqstore.checks.row_faults import (
    LogView,
    Row,
    RowFault,
    faulty_rows,
    first_numbers,
    have_valid_form,
    judge_row,
    parse_row,
)
from rmqstore.files.log_ends import OpenQueues
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile
from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, is_readable, missing_extra
from rmqstore.files.rocksdb.queues import simple_queue
from rmqstore.files.rocksdb.rows import DIRECTORY, MessageRows
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue, properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.javatext import parse_long
from rmqstore.formats.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, Message
from rmqstore.formats.properties import parse_properties
from rmqstore.formats.rocksdbstore import (
    FAMILIES,
    HOUR,
    INDEX_FAMILY,
    INDEX_KEY,
    LAST_OFFSET,
    POSITION_KEYS,
    SCAN_OFFSET,
    TIMELINE,
    TIMER_FAMILY,
    TRANS_FAMILY,
    IndexRow,
    TimerRow,
    TransRow,
    build_timer_row,
    build_trans_row,
    is_unique_id_row,
    parse_position,
)
from rmqstore.formats.text import many
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.properties import PropertyTexts
from rmqstore.scan.records import good_records
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text

_DUE = re.compile(rb"TIMER_OUT_MS\x01(\d{1,19})(?:\x02|\Z)")


# --- half messages --------------------------------------------------------------------------------------------------


def missing_halves(store: Store, logs: Logs, rows: MessageRows, log: LogView) -> Iterator[TransRow]:
    """Yield the rows that open half messages lack, in log order. Errors: CannotRead."""
    last = rows.position(TRANS_FAMILY, LAST_OFFSET)
    oldest = _oldest_half(rows, log, logs)
    low = 0 if last is None else last + 1 if oldest is None else oldest.physical_offset + 1
    found = list(_messages(store, logs, properties.ROCKSDB_HALF_TOPIC, low=low))
    ended = {half for _, half in ended_halves(store, logs, found[0].physical_offset)} if found else set()
    for message in found:
        given = parse_properties(message.properties)
        topic, unique_id = given.get(properties.REAL_TOPIC), given.get(properties.TRANSACTION_ID)
        if not topic or not unique_id or message.physical_offset in ended:
            continue
        row = TransRow(message.physical_offset, topic, unique_id, message.size, 0)
        if last is None or row.commitlog_offset > last:
            lacks = not logs.lag_is_normal  # after a kill, a start may write the row
        else:
            lacks = oldest is not None and _outlives(message, oldest)
            lacks = lacks and rows.database.value(TRANS_FAMILY, build_trans_row(row)[0]) is None
            lacks = lacks and not logs.loses_between(row.commitlog_offset, logs.wrote)  # its commit may be lost
        if lacks:
            yield row


def ended_halves(store: Store, logs: Logs, low: int) -> Iterator[tuple[int, int]]:
    """Yield (offset of the record, offset of the half message) for each commit or rollback at or after `low`.

    Source: TransMessageRocksDBStore#buildTransIndex (RocketMQ 5.4.0 and 5.5.1)
    """
    for message in _messages(store, logs, properties.ROCKSDB_OP_HALF_TOPIC, low=low):
        found = parse_long(parse_properties(message.properties).get(properties.TRANS_OFFSET, ""))
        if found is not None and found >= 0:
            yield message.physical_offset, found


def _oldest_half(rows: MessageRows, log: LogView, logs: Logs) -> Message | None:
    """Return the first half message with a sound row; the broker has asked for no later one more often."""
    for keys, values in rows.rows(TRANS_FAMILY):
        for key, value in zip(keys, values, strict=True):
            row = parse_row(TRANS_FAMILY, key, value)
            if row is not None and judge_row(row, log) is RowFault.NONE:
                return logs.record(row.commitlog_offset, MAX_RECORD)
    return None


def _outlives(message: Message, oldest: Message) -> bool:
    """Return whether the broker began to ask for a message no earlier than for an older one, so its row exists too."""
    own_time = properties.CHECK_IMMUNITY_TIME.encode()
    default = own_time not in message.properties and own_time not in oldest.properties
    return default and message.born_timestamp >= oldest.born_timestamp


# --- timed messages -------------------------------------------------------------------------------------------------


def missing_timers(store: Store, logs: Logs, rows: MessageRows, log: LogView) -> list[TimerRow]:
    """Return the rows that pending timed messages lack, in log order: a broker never delivers these messages.

    Errors: CannotRead.
    """
    scanned, timeline = rows.position(TIMER_FAMILY, SCAN_OFFSET), rows.position(TIMER_FAMILY, TIMELINE)
    now = round(time.time() * 1000)
    if not scanned or scanned < 0:
        return []
    found = _unwritten_timers(store, logs, rows, log, scanned, now if timeline is None else timeline)
    in_wheel = np.isin([one.row.commitlog_offset for one in found], _timer_log_offsets(store))
    found = [one for one, known in zip(found, in_wheel.tolist(), strict=True) if not known]
    overdue = [one for one in found if one.row.deliver_time <= now]
    delivered = _delivered(store, logs, overdue)
    return [
        one.row
        for one in found
        if one.row.deliver_time > now
        or (one.row not in delivered and not logs.loses_between(one.row.commitlog_offset, logs.wrote))
    ]


@dataclass(frozen=True, slots=True)
class _Timed:
    """A timed message without a row, and the queue to which the broker delivers it."""

    row: TimerRow
    topic: str
    queue_id: int


def _unwritten_timers(
    store: Store, logs: Logs, rows: MessageRows, log: LogView, scanned: int, since: int
) -> list[_Timed]:
    """Return the timed messages due from `since` on (ms) before queue offset `scanned` that have no row."""
    found: dict[bytes, _Timed] = {}
    recalled: set[bytes] = set()
    for message, given, due in _timer_messages(store, logs, log, since):
        if message.queue_offset >= scanned:
            continue
        if recall := given.get(properties.TIMER_DEL_UNIQKEY):
            # TimelineIndexBuildService#extractUniqKey
            recalled_id = recall.partition("+")[2] if "+" in recall else recall
            recalled.add(build_timer_row(TimerRow(due, recalled_id, 0, 0))[0])
            continue
        topic, queue_id = given.get(properties.REAL_TOPIC), parse_long(given.get(properties.REAL_QUEUE_ID, ""))
        unique_id = given.get(properties.UNIQ_KEY)
        # a recall of a message that was rolled may have expired with its log file
        certain = properties.TIMER_ROLL_LABEL not in given or logs.min_offset == 0
        if not topic or not unique_id or queue_id is None or not certain:
            continue
        row = TimerRow(due, unique_id, message.physical_offset, message.size)
        key, _ = build_timer_row(row)
        if rows.database.value(TIMER_FAMILY, key) is None:
            found[key] = _Timed(row, topic, queue_id)
    return [one for key, one in found.items() if key not in recalled]


def _timer_messages(
    store: Store, logs: Logs, log: LogView, since: int
) -> Iterator[tuple[Message, Mapping[str, str], int]]:
    """Yield (message, its properties, when it is due) of the timer queue, for those due from `since` on (ms)."""
    for offsets, sizes in places_of(store, logs, properties.TIMER_TOPIC, 0):
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
            if all(int(due) < since for due in _DUE.findall(log.read(min(size, MAX_RECORD), offset))):
                continue  # parses only the few messages that may be pending
            message = logs.record(offset, MAX_RECORD)
            if message is None or message.topic_text != properties.TIMER_TOPIC:
                continue
            given = parse_properties(message.properties)
            due = parse_long(given.get(properties.TIMER_OUT_MS, ""))
            if due is not None and due >= since:
                yield message, given, due


def _timer_log_offsets(store: Store) -> I64:
    """Return the offsets of all messages that the timer wheel was given."""
    units = good_units(store.timer_log) if store.timer_log is not None else ()
    return np.concatenate([np.empty(0, np.int64), *(part["commitlog_offset"].astype(np.int64) for _, part in units)])


def _delivered(store: Store, logs: Logs, timed: Sequence[_Timed]) -> set[TimerRow]:
    """Return the rows whose messages are in their real queues."""
    done: set[TimerRow] = set()
    queues: dict[QueueName, dict[str, TimerRow]] = {}
    for one in timed:
        queues.setdefault((one.topic, one.queue_id), {})[one.row.unique_id] = one.row
    for (topic, queue_id), wanted in queues.items():
        low = min(row.commitlog_offset for row in wanted.values())
        for message in _messages(store, logs, topic, queue_id, low):
            row = wanted.get(parse_properties(message.properties).get(properties.UNIQ_KEY, ""))
            if row is not None:
                done.add(row)
    return done


def _messages(store: Store, logs: Logs, topic: str, queue_id: int = 0, low: int = 0) -> Iterator[Message]:
    """Yield the messages of a queue that start at or after `low` (global offset)."""
    for offsets, _ in places_of(store, logs, topic, queue_id):
        for offset in offsets[offsets >= low].tolist():
            message = logs.record(offset, MAX_RECORD)
            if message is not None and message.topic_text == topic:
                yield message


def places_of(store: Store, logs: Logs, topic: str, queue_id: int) -> Iterator[tuple[I64, I64]]:
    """Yield offsets and sizes of the messages of a queue, by its units, or from the log if units are missing.

    Errors: CannotRead.
    """
    part = logs.queues.get((topic, queue_id))
    if part is None or not part.missing:
        for chunk in unit_chunks(simple_queue(store, topic, queue_id), consumequeue.UNIT):
            units = chunk.units[chunk.units["size"] > 0]
            yield units["commitlog_offset"].astype(np.int64), units["size"].astype(np.int64)
        return
    table = QueueTable()
    number = table.number(topic.encode(), queue_id)
    for result in logs.results:
        for file in result.queue.files:
            for columns in good_records(file, result.body_offset):
                own = table.of(columns) == number
                yield columns.offset[own], columns.size[own]


# --- the index ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class IndexCounts:
    """The rows of unique ids per log file: each indexed message has one. `first`: the least offset of all."""

    files: list[MappedFile]
    starts: I64
    counts: I64
    first: int | None = None

    @staticmethod
    def of(logs: Logs) -> IndexCounts:
        """Return counts without rows for the files of the logs."""
        files = [file for result in logs.results for file in result.queue.files]
        starts = np.array([file.start for file in files], dtype=np.int64)
        return IndexCounts(files, starts, np.zeros(len(files), dtype=np.int64))

    def add(self, keys: list[bytes]) -> None:
        """Count rows by their keys."""
        offsets = _offsets_of_unique_ids(keys)
        if not len(self.files) or not len(offsets := offsets[offsets >= self.starts[0]]):
            return
        number = np.searchsorted(self.starts, offsets, side="right") - 1
        self.counts += np.bincount(number, minlength=len(self.counts))
        low = int(offsets.min())
        self.first = low if self.first is None else min(self.first, low)


def missing_index_rows(logs: Logs, rows: MessageRows, counts: IndexCounts) -> Iterator[IndexRow]:
    """Yield the rows that messages between the first and the last indexed one lack, in log order.

    Only files with fewer rows than records are read. Errors: CannotRead.
    """
    last = rows.position(INDEX_FAMILY, LAST_OFFSET)
    if last is None or counts.first is None:
        return
    records = np.zeros(len(counts.files), dtype=np.int64)
    for result in logs.results:
        for run in result.tiling:
            if run.kind is Kind.RECORDS:
                records[np.searchsorted(counts.starts, run.start, side="right") - 1] += run.count
    for number in np.flatnonzero(counts.counts < records).tolist():
        file = counts.files[number]
        if file.stop > counts.first and file.start <= last:
            body_offset = next(r.body_offset for r in logs.results if file in r.queue.files)
            yield from _missing_of_file(rows, file, body_offset, counts.first, last)


def _missing_of_file(rows: MessageRows, file: MappedFile, body_offset: int, low: int, high: int) -> Iterator[IndexRow]:
    indexed: list[tuple[I64, I64]] = []
    for columns in good_records(file, body_offset):
        chosen = _indexed(columns) & (columns.offset >= low) & (columns.offset <= high)
        indexed.append((columns.offset[chosen], columns.store_timestamp[chosen]))
    if not any(len(found) for found, _ in indexed):
        return
    offsets, times = map(np.concatenate, zip(*indexed, strict=True))
    have, hours = _rows_between(rows, int(times.min()) // HOUR * HOUR, (int(times.max()) // HOUR + 1) * HOUR)
    missing = offsets[~np.isin(offsets, have) & np.isin(times // HOUR * HOUR, hours)]
    if not len(missing):
        return
    for columns in good_records(file, body_offset):
        for i in np.flatnonzero(np.isin(columns.offset, missing)).tolist():
            yield from _index_rows(columns, i)


def _indexed(columns: Columns) -> Bool:
    """Return which records get rows. Source: IndexRocksDBStore#buildIndex (RocketMQ 5.4.0 and 5.5.1)"""
    found = np.zeros(len(columns), dtype=np.bool_)
    texts = PropertyTexts(columns)
    numbers, _, length = texts.values(properties.UNIQ_KEY.encode())
    found[numbers[length > 0]] = True
    rollback = columns.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
    return found & ~rollback & (columns.store_timestamp > 0)


def _rows_between(rows: MessageRows, low: int, high: int) -> tuple[I64, I64]:
    """Return the offsets of the unique ids' rows in the hours [low, high) (ms), and the hours that have rows."""
    offsets, hours = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    span = INDEX_KEY.build(hour=low), INDEX_KEY.build(hour=high)
    for keys, _ in rows.database.chunks(INDEX_FAMILY, *span):
        keys = [key for key in keys if is_unique_id_row(key)]
        offsets.append(_offsets_of_unique_ids(keys))
        hours.append(np.unique(np.frombuffer(b"".join(key[:8] for key in keys), dtype=">i8")).astype(np.int64))
    return np.concatenate(offsets), np.unique(np.concatenate(hours))


def _offsets_of_unique_ids(keys: list[bytes]) -> I64:
    tails = b"".join([key[-8:] for key in keys if is_unique_id_row(key)])
    return np.frombuffer(tails, dtype=">i8").astype(np.int64)


def _index_rows(columns: Columns, i: int) -> Iterator[IndexRow]:
    given = parse_properties(columns.properties(i))
    topic, unique_id = columns.topic(i).decode("utf-8", "replace"), given.get(properties.UNIQ_KEY, "")
    stored, offset = int(columns.store_timestamp[i]), int(columns.offset[i])
    hour = stored // HOUR * HOUR
    for key in dict.fromkeys(given.get(properties.KEYS, "").split(" ")):
        if key:
            yield IndexRow(hour, topic, "K", key, unique_id, offset, stored)
    if tag := given.get(properties.TAGS):
        yield IndexRow(hour, topic, "T", tag, unique_id, offset, stored)
    yield IndexRow(hour, topic, "U", "", unique_id, offset, stored)


_PAST = 10_000  # ms before its start from which a broker without `timeline_checkpoint` delivers


@dataclass(slots=True)
class MessageRowFacts:
    """What rocksdbstore/ contains.

    `readable`: all rows were read. `counts`: rows per column family. `positions`: the position keys of each family,
    None for one that is too short. `pending_timers`: rows of timed messages that are still to be delivered.
    """

    readable: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[bytes, int | None]] = field(default_factory=dict)
    pending_timers: int = 0


def check_message_rows(
    store: Store, logs: Logs, report: Report, *, queue_range: QueueRange | None = None
) -> MessageRowFacts | None:
    """Check the rows of rocksdbstore/; None if it cannot hold any, and the log has no half message that needs one.

    `queue_range` None: do not compare with the timer queue. Errors: none; see `unchecked` of the report.
    """
    has_halves = queue_range is not None and queue_range(properties.ROCKSDB_HALF_TOPIC, 0) is not None
    if not (store.may_have_message_rows or has_halves):
        return None
    facts = MessageRowFacts()
    if store.may_have_message_rows and not is_readable():
        facts.readable = False
        report.unchecked.append(
            Text(
                "{directory}/: rows of timed messages, half messages and the index are not checked: that "
                "{missing_extra}",
                directory=DIRECTORY,
                missing_extra=missing_extra(),
            )
        )
        return facts
    try:
        rows = MessageRows.open(store)
        with LogAsItIs(logs) as log:
            _Check(store, logs, log, report, rows, facts, queue_range, IndexCounts.of(logs)).run()
    except DamagedDatabase as e:
        facts.readable = False
        if report.live:
            report.unchecked.append(Text("{directory}/: this RocksDB cannot be read: {e}", directory=DIRECTORY, e=e))
        else:
            report.findings.add(Finding(codes.RDB_DAMAGED, DIRECTORY, facts={"reason": str(e)}))
    except CannotRead as e:
        facts.readable = False
        report.unchecked.append(Text("{directory}/: this RocksDB cannot be read: {e}", directory=DIRECTORY, e=e))
    return facts


class LogAsItIs(OpenQueues):
    """The log on disk, as a `LogView`; its files stay open until the end of the block."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(result.queue for result in logs.results)
        self.start, self.end = logs.min_offset, logs.wrote


@dataclass(slots=True)
class _Tally:
    """Rows with a problem, or messages without a row: how many, the first, and how often each fault occurs."""

    count: int = 0
    first: Row | None = None
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row | None, fault: str = "") -> None:
        self.count += 1
        self.first = self.first or row
        self.faults[fault] += 1

    def facts(self, counted: str = "rows") -> dict[str, Fact]:
        found: dict[str, Fact] = {counted: self.count}
        if self.first is not None:
            found["commitlog_offset"] = self.first.commitlog_offset
            found["unique_id"] = self.first.unique_id
        return found


@dataclass(slots=True)
class _Check:
    """The check of all rows; `wrong` and `beyond`: the log, by family."""

    store: Store
    logs: Logs
    log: LogAsItIs
    report: Report
    rows: MessageRows
    facts: MessageRowFacts
    queue_range: QueueRange | None
    indexed: IndexCounts
    wrong: dict[str, _Tally] = field(default_factory=lambda: {family: _Tally() for family in FAMILIES})
    beyond: dict[str, _Tally] = field(default_factory=lambda: {family: _Tally() for family in FAMILIES})
    expired: _Tally = field(default_factory=_Tally)
    halves: list[I64] = field(default_factory=list)
    due: list[I64] = field(default_factory=list)

    def run(self) -> None:
        for family in self.rows.unknown_families:
            self.report.unchecked.append(
                Text("{directory}/: no known broker has its column family {family}", directory=DIRECTORY, family=family)
            )
        for family in FAMILIES:
            for name in self.rows.unknown_names(family):
                self.report.unchecked.append(
                    Text(
                        "{directory}/: no known broker has its key {key} (family {family})",
                        directory=DIRECTORY,
                        key=name.decode(),
                        family=family,
                    )
                )
        for family in FAMILIES:
            found = ((key, self.rows.stored(family, key)) for key in POSITION_KEYS[family])
            positions = {key: parse_position(value) for key, value in found if value is not None}
            self.facts.positions[family] = positions
        for family in FAMILIES:
            self.facts.counts[family] = 0
            for keys, values in self.rows.rows(family):
                self.facts.counts[family] += len(keys)
                self._chunk(family, keys, values)
        self.facts.pending_timers = sum(len(due) for due in self.due)
        if self.report.live or self.logs.grows:  # rows and log were not read at the same time
            return
        self._report_rows()
        self._report_positions()
        self._report_timeline()
        self._report_stale()
        self._report_missing()

    def _chunk(self, family: str, keys: list[bytes], values: list[bytes]) -> None:
        first = first_numbers(keys)
        if family == TIMER_FAMILY:
            valid = have_valid_form(family, keys, values)
            pending = first >= (self.facts.positions[family].get(TIMELINE) or 0)
            self.due.append(first[pending & valid])
            wanted = np.flatnonzero(pending | ~valid)
            if len(wanted) < len(keys):
                keys, values = [keys[i] for i in wanted], [values[i] for i in wanted]
        right = np.ones(len(keys), dtype=np.bool_)
        lacking = []
        for number, row, fault in faulty_rows(family, keys, values, self.log):
            right[number] = False
            if row is not None and (fault is RowFault.BEYOND or self.logs.damaged(row.commitlog_offset)):
                lacking.append(row.commitlog_offset)
            if fault is RowFault.BEFORE:
                self.expired.add(row)
            elif fault is RowFault.BEYOND:
                self.beyond[family].add(row)
            elif row is None or not self.logs.damaged(row.commitlog_offset):
                self.wrong[family].add(row, fault.value)
        self.logs.witnesses.add_offsets(np.array(lacking, dtype=np.int64))
        if family == TRANS_FAMILY:
            self.halves.append(first[right])
        elif family == INDEX_FAMILY:
            self.indexed.add(keys)

    def _add(self, code: str, family: str, facts: dict[str, Fact]) -> None:
        self.report.findings.add(Finding(code, DIRECTORY, family, facts={"family": family} | facts))

    def _report_rows(self) -> None:
        for family in FAMILIES:
            if self.beyond[family].count:
                self._add(codes.RDB_DANGLING_ROW, family, self.beyond[family].facts() | {"wrote": self.log.end})
            if self.wrong[family].count:
                ((reason, _),) = self.wrong[family].faults.most_common(1)
                self._add(codes.RDB_WRONG_ROW, family, self.wrong[family].facts() | {"reason": reason})
        if self.expired.count:
            self.report.notes.append(
                Text(
                    "{directory}/: {rows} of timed or half messages in log files that were deleted: a broker "
                    "drops them",
                    directory=DIRECTORY,
                    rows=many(self.expired.count, "row"),
                )
            )

    def _report_positions(self) -> None:
        top = self.queue_range(properties.TIMER_TOPIC, 0) if self.queue_range is not None else None
        for family, found in self.facts.positions.items():
            for key, value in found.items():
                name = key.decode()
                if value is None:
                    self._add(codes.RDB_POSITION, family, {"key": name, "reason": Text("shorter than 8 bytes")})
                elif value < 0:
                    self._add(codes.RDB_POSITION, family, {"key": name, "value": value, "reason": "negative"})
                elif key == LAST_OFFSET and value >= self.log.end and value > 0:
                    about: dict[str, Fact] = {"key": name, "value": value, "reason": Text("beyond the log")}
                    self._add(codes.RDB_POSITION, family, about | {"wrote": self.log.end})
                elif key == SCAN_OFFSET and top is not None and value > top[1]:
                    about = {"key": name, "value": value, "reason": Text("beyond the timer queue"), "end": top[1]}
                    self._add(codes.RDB_POSITION, family, about)

    def _report_timeline(self) -> None:
        """Report rows of timed messages without the time from which a start delivers: it begins with the present."""
        if not self.facts.pending_timers or TIMELINE in self.facts.positions[TIMER_FAMILY]:
            return
        due = np.concatenate(self.due)
        overdue = int(np.count_nonzero(due < time.time() * 1000 - _PAST))
        about: dict[str, Fact] = {"rows": len(due), "first_due_time": int(due.min()), "last_due_time": int(due.max())}
        self._add(codes.RDB_NO_TIMELINE, TIMER_FAMILY, about | ({"messages": overdue} if overdue else {}))

    def _report_stale(self) -> None:
        """Report half messages with a row although a later record says that they were committed or rolled back."""
        halves = np.unique(np.concatenate(self.halves)) if self.halves else np.empty(0, dtype=np.int64)
        if not len(halves):
            return
        last = self.facts.positions[TRANS_FAMILY].get(LAST_OFFSET) or 0
        stale = set()
        for at, half in ended_halves(self.store, self.logs, int(halves[0])):
            if self.logs.lag_is_normal and at >= last:  # the next start may dispatch it again
                continue
            number = int(np.searchsorted(halves, half))
            if number < len(halves) and int(halves[number]) == half:
                stale.add(half)
        if stale:
            self._add(codes.RDB_STALE_HALF, TRANS_FAMILY, {"rows": len(stale), "commitlog_offset": min(stale)})

    def _report_missing(self) -> None:
        """Report rows that should be there."""
        store, logs, rows = self.store, self.logs, self.rows
        self._report_lacking(codes.RDB_MISSING_HALF, TRANS_FAMILY, missing_halves(store, logs, rows, self.log))
        timers = missing_timers(store, logs, rows, self.log)
        self._report_lacking(codes.RDB_MISSING_TIMER, TIMER_FAMILY, timers, "messages")
        entries = (entry for entry in missing_index_rows(logs, rows, self.indexed) if entry.kind == "U")
        self._report_lacking(codes.RDB_NOT_INDEXED, INDEX_FAMILY, entries)

    def _report_lacking(self, code: str, family: str, rows: Iterable[Row], counted: str = "rows") -> None:
        tally = _Tally()
        for row in rows:
            tally.add(row)
        if tally.count:
            self._add(code, family, tally.facts(counted))
