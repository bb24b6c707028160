"""Queues and log files of different stores: a wrongly assembled backup, or files of another broker.

One finding about the file, or about all queues, replaces those about single units.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue
from rmqstore.formats.message import TRANSACTION_COMMIT, Message, host_text, parse_message
from rmqstore.formats.services import is_sound_topic
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions

LEAST = 5
"""Units that point to no message of a file, and messages that no unit points to, before the file counts as foreign."""
_SAMPLE = 1000  # messages of a file that are checked


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
    if not logs.grows and not store.rocksdb_consume_queue:
        for found in _foreign_files(store, logs):
            findings.add(found)
            foreign.add(found.offset)
    logs.foreign_from = min(foreign, default=None)
    findings.extend(held.finding for held in pointing.held if held.file not in foreign)
    pointing.held.clear()


def _foreign_files(store: Store, logs: Logs) -> Iterator[Finding]:
    """Yield findings for log files whose messages have no units, while units point between their messages."""
    for result in logs.results:
        for file in result.queue.files:
            units = logs.pointing.nowhere[file.start]
            if units < LEAST:
                continue
            messages, fit, host = count_fitting(store, file, result.body_offset)
            if messages < LEAST or fit * 10 > messages:
                continue
            facts: dict[str, Fact] = {"units": units, "messages_looked_at": messages, "messages_with_units": fit}
            facts["store_host"] = host
            others = {
                count_fitting(store, f, result.body_offset, most=1)[2] for f in result.queue.files if f is not file
            }
            others -= {""}
            if others and host not in others:
                facts["store_host_of_other_files"] = min(others)
            yield result.finding(codes.CL_FOREIGN_FILE, file.start, file.length, facts)


def count_fitting(store: Store, file: MappedFile, body_offset: int, most: int = _SAMPLE) -> tuple[int, int, str]:
    """Return how many of a file's first messages should have a unit, how many have it, and the store host."""
    queues: dict[tuple[str, int], MappedFileQueue] = {}
    seen = fit = 0
    host = ""
    for message in _messages(file, body_offset):
        name = (message.topic_text, message.queue_id)
        host = host or host_text(message.store_host)
        if message.transaction_type not in (0, TRANSACTION_COMMIT) or not _names_queues(message.topic):
            continue
        seen += 1
        if name not in queues:
            queues[name] = store.consume_queue(*name).queue
        unit = queues[name].unit(consumequeue.UNIT, message.queue_offset)
        fit += unit is not None and unit["commitlog_offset"] == message.physical_offset
        if seen >= most:
            break
    return seen, fit, host


def _names_queues(topic: bytes) -> bool:
    return is_sound_topic(topic) and consumequeue.is_directory_name(topic)


def _messages(file: MappedFile, body_offset: int) -> Iterator[Message]:
    """Yield the messages of a log file in order."""
    for run in scan_file(file, body_offset=body_offset, options=ScanOptions(crc=False)):
        if run.kind is not Kind.RECORDS or run.columns is None:
            continue
        for offset, size in zip(run.columns.offset.tolist(), run.columns.size.tolist(), strict=True):
            message, _ = parse_message(file.read_at(size, offset - file.start))
            if message is not None:
                yield message
