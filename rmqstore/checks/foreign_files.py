"""Queues and log files of different stores, from a wrongly assembled backup, or from another broker.

One finding about the file, or about all queues, replaces those about single units.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.misplaced_files import LEAST, QueueReader, count_fitting, in_files, messages_of
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import split_queue_label
from rmqstore.formats.message import host_text


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
    for held in pointing.held:
        at = int(held.finding.facts["commitlog_offset"] or 0)
        if (held.file if held.file >= 0 else logs.file_start(at)) in foreign:
            start = int(held.finding.facts["queue_offset"] or 0)
            stop = start + int(held.finding.facts.get("units") or 1)
            logs.witnesses.replaced.setdefault(split_queue_label(held.finding.queue), []).append((start, stop))
    findings.extend(held.finding for held in pointing.held if held.file not in foreign)
    pointing.held.clear()


def _foreign_beside_rows(store: Store, logs: Logs) -> list[Finding]:
    """Return the result of `_foreign_files` for queues in RocksDB; nothing if that cannot be read."""
    from rmqstore.files.rocksdb.database import CannotRead

    try:
        return list(_foreign_files(store, logs))
    except CannotRead:
        return []


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
