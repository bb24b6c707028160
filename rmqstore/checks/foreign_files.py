"""Queues and log files of different stores, from a wrongly assembled backup, or from another broker.

One finding about the file, or about all queues, replaces those about single units.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.misplaced_files import LEAST, QueueReader, count_fitting, in_files, messages_of
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MAX_RECORD, MappedFile
from rmqstore.files.store import Store
from rmqstore.files.topics import queue_names
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import host_text
from rmqstore.scan.kernels import consecutive
from rmqstore.scan.records import good_records
from rmqstore.scan.units import unit_chunks


def report_held(store: Store, logs: Logs, findings: Findings) -> None:
    """Report the findings held back in `Pointing`, or one in their place if a file or all queues are foreign."""
    pointing = logs.pointing
    foreign: set[int] = set()
    if pointing.foreign and not logs.grows:
        facts: dict[str, Fact] = {"units": pointing.loose, "units_that_fit": pointing.fit}
        facts["queues"] = len({held.finding.queue for held in pointing.held})
        findings.add(Finding(codes.CQ_FOREIGN, "consumequeue", facts=facts))
        pointing.held.clear()
        return
    if not logs.grows:
        named = _foreign_beside_rows(store, logs) if store.rocksdb_consume_queue else _foreign_files(store, logs)
        for found in named:
            findings.add(found)
            foreign.add(found.offset)
    logs.foreign_from = min(foreign, default=None)
    for start in foreign:
        for name, spans in _replaced_by(store, logs, start):
            logs.witnesses.replaced.setdefault(name, []).extend(spans)
    findings.extend(held.finding for held in pointing.held if held.file not in foreign)
    pointing.held.clear()


def _foreign_beside_rows(store: Store, logs: Logs) -> list[Finding]:
    """Return the result of `_foreign_files` for queues in RocksDB; nothing if that cannot be read."""
    from rmqstore.files.rocksdb.database import CannotRead

    try:
        return list(_foreign_files(store, logs))
    except CannotRead:
        return []


def _replaced_by(store: Store, logs: Logs, start: int) -> Iterator[tuple[QueueName, list[tuple[int, int]]]]:
    """Yield the queue offsets whose unit points into the log file at `start`, and not to its own message, by queue.

    It reads all consume queues again. Errors: CannotRead.
    """
    result = logs.result_at(start)
    file = result.queue.find(start)
    if file is None:
        return
    found = [columns.offset.copy() for columns in good_records(file, result.body_offset)]
    records = np.concatenate([np.zeros(0, dtype=np.int64), *found])
    queue_of = _queue_reader(store)
    for topic, queue_id in sorted(queue_names(store)):
        spans: list[tuple[int, int]] = []
        for chunk in unit_chunks(queue_of(topic, queue_id), consumequeue.UNIT):
            offset, size = (chunk.units[name].astype(np.int64) for name in ("commitlog_offset", "size"))
            there = consumequeue.is_message_unit(offset, size) & (offset >= file.start) & (offset < file.stop)
            for i in np.flatnonzero(there & np.isin(offset, records)).tolist():
                message = logs.record(int(offset[i]), MAX_RECORD)
                place = message and (message.topic_text, message.queue_id, message.queue_offset)
                there[i] = place != (topic, queue_id, chunk.number + i)
            rows = np.flatnonzero(there) + chunk.number
            spans += [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in consecutive(rows)]
        if spans:
            yield (topic, queue_id), spans


def _foreign_files(store: Store, logs: Logs) -> Iterator[Finding]:
    """Yield findings for log files whose messages have no units, while units point between their messages."""
    for result in logs.results:
        for file in result.queue.files:
            units = logs.pointing.nowhere[file.start]
            if units < LEAST:
                continue
            messages, fit = count_fitting(file, result.body_offset, _queue_reader(store))
            if messages < LEAST or fit * 2 > messages:
                continue
            host = _store_host(file, result.body_offset)
            others = {_store_host(f, result.body_offset) for f in result.queue.files if f is not file} - {""}
            of_another_host = bool(others) and host not in others
            # records of a broker with a similar load can be at the same offsets
            if fit * 10 > messages and not of_another_host:
                continue
            facts: dict[str, Fact] = {"units": units, "messages_looked_at": messages, "messages_with_units": fit}
            facts["store_host"] = host
            if of_another_host:
                facts["store_host_of_other_files"] = min(others)
            yield result.finding(codes.CL_FOREIGN_FILE, file.start, file.length, facts)


def _store_host(file: MappedFile, body_offset: int) -> str:
    """Return the store host of a file's first message; "" without one."""
    return next((host_text(message.store_host) for message in messages_of(file, body_offset)), "")


def _queue_reader(store: Store) -> QueueReader:
    """Errors: CannotRead for queues in a RocksDB that cannot be read."""
    if store.rocksdb_consume_queue:
        from rmqstore.files.rocksdb.queues import RocksDBQueues

        return RocksDBQueues(store).queue
    return in_files(store)
