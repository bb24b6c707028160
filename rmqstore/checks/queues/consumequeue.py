"""Consume queues against the log: what has no unit, what no message owns, and where a queue really ends.

The messages' side was compared during the pass (`queues.py`): which units are accounted for, which messages have
none. Here the units' side is judged: everything that no message accounts for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rmqstore.checks.log.logs import Logs, Name
from rmqstore.checks.log.queue_parts import UNIT, Missing, QueuePart
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.checks.queues.foreign_files import say_loose_units
from rmqstore.checks.queues.queue_check import QueueCheck
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import properties


def check_consume_queues(
    store: Store,
    logs: Logs,
    findings: Findings,
    queues: Iterable[ConsumeQueueFiles] | None = None,
    judge: Callable[..., QueueCheck] | None = None,
) -> dict[str, QueueState]:
    """All simple consume queues; returns their state for the report.

    `queues` and `judge` replace the files of consumequeue/ where units are kept in another way.
    """
    states: dict[str, QueueState] = {}
    seen: set[Name] = set()
    dispatched = -1
    held: list[tuple[Name, QueuePart, MappedFileQueue]] = []
    for files in store.consume_queues(QueueKind.SIMPLE) if queues is None else queues:
        name = (files.topic, files.queue_id)
        seen.add(name)
        part = logs.queues.get(name, QueuePart(0, 0, 0, 0))
        check = (judge or QueueCheck)(store, files, part, logs, findings)
        check.units()
        check.shifted()
        states[files.label] = check.state()
        dispatched = max(dispatched, check.dispatched())
        if part.missing:
            held.append((name, replace(part, missing=list(check.still_missing())), files.queue))
    for name, part in sorted(logs.queues.items()):
        if name not in seen and part.missing:
            held.append((name, part, MappedFileQueue(name[0], [], UNIT, [])))
            states[f"{name[0]}/{name[1]}"] = QueueState(0, 0, part.next)
    say_loose_units(store, logs, findings)
    _missing(held, dispatched, logs, findings)
    return states


def _missing(
    held: list[tuple[Name, QueuePart, MappedFileQueue]], dispatched: int, logs: Logs, findings: Findings
) -> None:
    """Messages without unit. What lies behind everything dispatched is lag where that is normal."""
    behind = 0
    first_behind = -1
    for (topic, queue_id), part, queue in held:
        label = f"{topic}/{queue_id}"
        rest: list[Missing] = []
        for m in part.missing:
            if m.stop - m.start == 1 and m.first_at in logs.misfiled.offsets:
                continue  # its header is damaged: said there
            waits = logs.lag_is_normal or (logs.committed is not None and m.first_at >= logs.committed)
            if waits and m.first_at >= dispatched:
                behind += m.stop - m.start
                first_behind = m.first_at if first_behind < 0 else min(first_behind, m.first_at)
            else:
                rest.append(m)
        if not rest:
            continue
        messages = sum(m.stop - m.start for m in rest)
        if not queue.files:
            facts: dict[str, Fact] = {
                "messages": messages,
                "first_offset": rest[0].first_at,
                "last_offset": rest[-1].last_at,
            }
            known = logs.topics is None or topic in logs.topics or not _deletable(topic)
            code = codes.CQ_MISSING_QUEUE if known else codes.CQ_DELETED_TOPIC
            findings.add(Finding(code, label, "", rest[0].start * UNIT, messages * UNIT, facts))
            continue
        for m in rest:
            file = queue.find(m.start * UNIT)
            facts = {"messages": m.stop - m.start, "queue_offset": m.start}
            places = {"first_offset": m.first_at, "last_offset": m.last_at}
            facts |= {name: at for name, at in places.items() if at >= 0}
            length = (m.stop - m.start) * UNIT
            findings.add(
                Finding(codes.CQ_MISSING_UNIT, label, file.name if file else "", m.start * UNIT, length, facts)
            )
    if behind:
        findings.add(
            Finding(
                codes.CQ_BEHIND, "consumequeue", "", max(0, first_behind), 0, {"messages": behind, "from": first_behind}
            )
        )


def _deletable(topic: str) -> bool:
    """Whether a topic that topics.json does not know can be one that was deleted."""
    return not (properties.is_system_topic(topic) or properties.is_lmq(topic))


def check_queues_alone(store: Store, findings: Findings) -> dict[str, QueueState]:
    """Simple consume queues without their log: what units say by themselves.

    Invalid units in the middle, offsets that do not rise, pre-blanks behind real units or alone, ghosts behind the end,
    files that are missing or all zero.
    """
    states: dict[str, QueueState] = {}
    for files in store.consume_queues(QueueKind.SIMPLE):
        part = QueuePart(0, 0, 0, 0)
        check = QueueCheck(store, files, part, Logs([], grows=True), findings)
        check.alone()
        states[files.label] = check.state()
    return states
