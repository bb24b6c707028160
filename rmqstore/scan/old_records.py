"""Old records that directly follow the last message of a log.

A broker that truncated its log overwrites the old records, and what it has not reached yet remains. They name their
own position, so that only older times and repeated queue offsets tell them from messages. If the new end is not the
start of an old record, the rest of a torn record is between them; otherwise queue offsets repeat. Truncation deletes
the files after the new end, so all old records are in the file with the end.
Source: MappedFileQueue#truncateDirtyFiles, RocketMQ 5.4.0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.formats.message import MIN_SIZE, is_dispatched
from rmqstore.scan.columns import Columns
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.kernels import I64
from rmqstore.scan.records import good_records, scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions


@dataclass(slots=True, kw_only=True)
class StoreTimes:
    """The store times (ms) of records that are added in address order. Offsets are global, in bytes.

    `first_at`: offset of the first record (DLedger: of its entry). `back_from`: the first record after the youngest one
    (None: the last record is the youngest); `back_max`: the youngest time from there on.
    """

    max_time: int = -1
    first_time: int = -1
    first_at: int = -1
    last_time: int = -1
    back_from: int | None = None
    back_max: int = -1

    def add_times(self, columns: Columns, sound: I64 | slice) -> None:
        """Add the times of the `sound` records of a chunk."""
        times, offset = columns.store_timestamp[sound], columns.offset[sound]
        first_at, high = int(offset[0]) - columns.body_offset, int(times.max())
        if self.first_time < 0:
            self.first_time, self.first_at = int(times[0]), first_at
        self.last_time = int(times[-1])
        top = int(np.flatnonzero(times == high)[-1])
        after = times[top + 1 :]
        next_at = int(offset[top + 1]) - columns.body_offset if len(after) else None
        self.add_back(high, first_at, next_at, int(after.max()) if len(after) else -1)

    def add_back(self, high: int, first_at: int, back_from: int | None, back_max: int) -> None:
        """Add records from `first_at` on with the greatest time `high`, and `back_from`, `back_max` among them."""
        if high >= self.max_time:
            self.max_time, self.back_from, self.back_max = high, back_from, back_max
            return
        if self.back_from is None:
            self.back_from = first_at
        self.back_max = max(self.back_max, high)


def without_old_records(queue: MappedFileQueue, body_offset: int) -> MappedFileQueue:
    """Return a log without old records that directly follow its last message. Reads the last file with records."""
    for file in queue.without_oldest(len(queue.files)).files[:1]:
        times = StoreTimes()
        try:
            for columns in good_records(file, body_offset):
                times.add_times(columns, slice(None))
            end = end_before_old_records(file, times.back_from, body_offset)
        except FileNotFoundError:  # a live broker deleted it
            continue
        if end is not None:
            return queue.cut_at(end)
    return queue


def end_before_old_records(file: MappedFile, back_from: int | None, body_offset: int) -> int | None:
    """Return the end of the last message before old records (global offset); None if `back_from` starts no old ones.

    `back_from` is as in `StoreTimes`, and the file is the last one with records. Errors: as `scan_file`.
    """
    if back_from is None or back_from == file.start:  # truncation would have deleted a file with only old records
        return None
    end = torn_to = file.start
    table, expected = QueueTable(), dict[int, tuple[int, int]]()
    for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=False)):
        if run.kind is Kind.DIRTY and not run.count:
            torn_to = run.stop
        if run.kind is not Kind.RECORDS or run.columns is None:
            continue
        if run.start < back_from:
            end = min(run.stop, back_from)
        if torn_to == back_from or _repeats(run.columns, table, expected, back_from + body_offset):
            return end
    return None


def _repeats(columns: Columns, table: QueueTable, expected: dict[int, tuple[int, int]], start: int) -> bool:
    """Return whether a record from `start` on has a queue offset that its queue had before.

    `expected`: the next queue offset of each queue, and the offset of the record before it. A queue offset with more
    before it than there was room for is wrong. A queue whose topic was deleted and created again begins again with 0.
    """
    rows = np.flatnonzero(is_dispatched(columns.sys_flag))
    fields = (table.of(columns)[rows], columns.queue_offset[rows], columns.offset[rows])
    for number, queue_offset, at in zip(*(values.tolist() for values in fields), strict=True):
        following, before = expected.get(number, (queue_offset, at))
        if at >= start and 0 < queue_offset < following:
            return True
        if queue_offset - following <= (at - before) // MIN_SIZE:
            expected[number] = max(queue_offset + 1, following if queue_offset else 0), at
    return False
