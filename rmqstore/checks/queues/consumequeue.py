"""Compare simple consume queues with the log: missing units, units without a message, and the end of each queue.

The pass over the log has compared the messages with their units (`queue_parts.py`). This module checks the remaining
units (`queue_check.py`), and reports the messages without a unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from rmqstore.checks.log.logs import Logs, Name
from rmqstore.checks.log.queue_parts import Missing, QueuePart
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.checks.queues.foreign_files import report_held
from rmqstore.checks.queues.queue_check import QueueCheck
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import QueueKind, Store
from rmqstore.formats import properties
from rmqstore.formats.consumequeue import UNIT_SIZE


def check_consume_queues(
    store: Store,
    logs: Logs,
    findings: Findings,
    checks: Iterable[QueueCheck] | None = None,
    without: Collection[Name] = (),
) -> dict[str, QueueState]:
    """Check all simple consume queues against the log, and return their states.

    `checks`: one for each queue; None: for the files of consumequeue/. `without`: queues of the log that need not
    exist.
    """
    if checks is None:
        checks = (QueueCheck(store, files, logs, findings) for files in store.consume_queues(QueueKind.SIMPLE))
    states: dict[str, QueueState] = {}
    seen: set[Name] = set()
    dispatched = -1
    incomplete: list[tuple[Name, QueuePart, MappedFileQueue]] = []
    for check in checks:
        check.check_units()
        check.check_shifted()
        name = (check.files.topic, check.files.queue_id)
        seen.add(name)
        states[check.label] = check.state()
        dispatched = max(dispatched, check.dispatched())
        if check.part.missing:
            incomplete.append((name, replace(check.part, missing=list(check.still_missing())), check.queue))
    for name, part in sorted(logs.queues.items()):
        if name not in seen and name not in without and part.missing:
            incomplete.append((name, part, MappedFileQueue(name[0], [], UNIT_SIZE, [])))
            states[f"{name[0]}/{name[1]}"] = QueueState(0, 0, part.next)
    report_held(store, logs, findings)
    _report_missing(incomplete, dispatched, logs, findings)
    return states


def _report_missing(
    queues: list[tuple[Name, QueuePart, MappedFileQueue]], dispatched: int, logs: Logs, findings: Findings
) -> None:
    """Report messages without a unit. Those after all dispatched messages are only waiting, if a lag is normal."""
    waiting: list[Missing] = []
    for name, part, queue in queues:
        lost: list[Missing] = []
        for m in part.missing:
            if logs.misfiled.explains(m):
                continue
            may_wait = logs.lag_is_normal or (logs.committed is not None and m.first_at >= logs.committed)
            (waiting if may_wait and m.first_at >= dispatched else lost).append(m)
        if lost:
            findings.extend(_missing_units(name, lost, queue) if queue.files else [_missing_queue(name, lost, logs)])
    if waiting:
        first = min((m.first_at for m in waiting if m.first_at >= 0), default=-1)
        facts: dict[str, Fact] = {"messages": sum(m.count for m in waiting), "from": first}
        findings.add(Finding(codes.CQ_BEHIND, "consumequeue", "", max(0, first), 0, facts))


def _missing_queue(name: Name, lost: list[Missing], logs: Logs) -> Finding:
    topic, queue_id = name
    messages = sum(m.count for m in lost)
    facts: dict[str, Fact] = {"messages": messages, "first_offset": lost[0].first_at, "last_offset": lost[-1].last_at}
    never_deleted = properties.is_system_topic(topic) or properties.is_lmq(topic)
    exists = logs.topics is None or topic in logs.topics or never_deleted
    code = codes.CQ_MISSING_QUEUE if exists else codes.CQ_DELETED_TOPIC
    return Finding(code, f"{topic}/{queue_id}", "", lost[0].start * UNIT_SIZE, messages * UNIT_SIZE, facts)


def _missing_units(name: Name, lost: list[Missing], queue: MappedFileQueue) -> Iterator[Finding]:
    for m in lost:
        facts: dict[str, Fact] = {"messages": m.count, "queue_offset": m.start}
        offsets = {"first_offset": m.first_at, "last_offset": m.last_at}
        facts |= {fact: at for fact, at in offsets.items() if at >= 0}
        at = m.start * UNIT_SIZE
        yield Finding(codes.CQ_MISSING_UNIT, f"{name[0]}/{name[1]}", queue.name_at(at), at, m.count * UNIT_SIZE, facts)


def check_queues_alone(store: Store, findings: Findings) -> dict[str, QueueState]:
    """Check simple consume queues without their log.

    It finds invalid units in the middle, commitlog offsets that do not increase, pre-blanks after real units or alone,
    units after the end, and files that are missing or all zero.
    """
    states: dict[str, QueueState] = {}
    for files in store.consume_queues(QueueKind.SIMPLE):
        check = QueueCheck(store, files, Logs([], grows=True), findings)
        check.check_without_log()
        states[files.label] = check.state()
    return states
