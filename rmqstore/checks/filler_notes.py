"""Fillers of earlier repairs: how many records replace lost messages, and which repair wrote them.

The pass over the log finds most fillers by their mark. Those without room for a mark are listed in the plan in the
journal of their repair. A journal is not trusted: a filler that it lists must also be in the log.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.checks.beside.directory import journal_state
from rmqstore.checks.problems.report import Fillers
from rmqstore.files.mapped_file_queue import file_name_to_offset, message_at
from rmqstore.files.store import Store
from rmqstore.formats.message import Message
from rmqstore.formats.times import parse_stamp
from rmqstore.scan.columns import NOTHING, Repaired

if TYPE_CHECKING:
    from rmqstore.checks.log.logs import Logs

_LIMIT = 256 << 20  # bytes; a plan keeps large contents in separate files
_DONE = "done"
RecordOf = Callable[[int, int], Message | None]


def find_fillers(store: Store, logs: Logs) -> list[Fillers]:
    """Return the fillers of a store by repair, the oldest repair first, and those of unknown repairs last."""
    unknown = sorted(at for result in logs.results for at in result.fillers)
    homes = {directory for result in logs.results for directory in result.queue.directories}
    found = []
    for name, plan in reversed(list(repairs(store)) if logs.results else []):
        own = {
            at
            for low, high in _written(store, plan, homes)
            for at in unknown[bisect_left(unknown, low) : bisect_left(unknown, high)]
        }
        own.update(_unmarked(plan, _undamaged(logs)))
        unknown = [at for at in unknown if at not in own]
        if own:
            found.append(Fillers(len(own), name))
    found.reverse()
    return [*found, Fillers(len(unknown))] if unknown else found


def filler_offsets(store: Store, logs: Logs) -> list[int]:
    """Return the sorted global offsets of the fillers that earlier repairs wrote."""
    found = {at for result in logs.results for at in result.fillers}
    for _, plan in repairs(store) if logs.results else ():
        found.update(_unmarked(plan, _undamaged(logs)))
    return sorted(found)


def repaired_records(store: Store) -> Repaired:
    """Return what the journals of completed repairs tell about the records of the logs."""

    def record(offset: int, _: int) -> Message | None:
        return next((found for log, _ in store.logs if (found := message_at(log, offset)) is not None), None)

    if not store.files.has_entry(store.journal_directory):
        return NOTHING
    fillers: set[int] = set()
    written: list[tuple[int, int, int]] = []
    homes = {directory for queue, _ in store.logs for directory in queue.directories}
    for name, plan in repairs(store):
        fillers.update(_unmarked(plan, record))
        made = parse_stamp(name) or 0
        written += [(start, stop, made) for start, stop in _written(store, plan, homes) if start < stop]
    return Repaired(tuple(sorted(fillers)), tuple(_disjoint(written)))


def _disjoint(ranges: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield sorted ranges in which those that overlap are one, with the latest time."""
    low = high = time = 0
    for start, stop, made in sorted(ranges):
        if start < high:
            high, time = max(high, stop), max(time, made)
            continue
        if low < high:
            yield low, high, time
        low, high, time = start, stop, made
    if low < high:
        yield low, high, time


def _undamaged(logs: Logs) -> RecordOf:
    return lambda offset, length: None if logs.damaged(offset) else logs.record(offset, length)


def repairs(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name of the journal, plan) of every completed repair, oldest first."""
    for entry in sorted(store.files.list(store.journal_directory), key=lambda e: e.path.name):
        if not entry.directory:
            continue
        journal, state = journal_state(store.files, entry.path)
        if state != _DONE:
            continue
        try:
            plan = json.loads(store.files.read_at(journal / "plan.json", _LIMIT, 0))
        except (ValueError, RecursionError):
            continue
        if isinstance(plan, dict):
            yield entry.path.name, plan


def _written(store: Store, plan: Mapping[str, Any], homes: Collection[Path]) -> Iterator[tuple[int, int]]:
    """Yield the ranges [start, stop) (global offsets) that a plan's steps wrote in the directories of the logs."""
    steps = plan.get("steps")
    for step in steps if isinstance(steps, list) else []:
        path = step.get("path") if isinstance(step, dict) else None
        file = store.root / path if isinstance(path, str) and "\0" not in path else Path()
        start = file_name_to_offset(file.name)
        if start is None or file.parent not in homes:
            continue
        first, size = {
            "overwrite": (step.get("at"), step.get("length")),
            "create": (0, step.get("size")),
            "extend": (step.get("from"), step.get("to")),
        }.get(str(step.get("do")), (None, None))
        if isinstance(first, int) and isinstance(size, int):
            yield start + first, start + (size if step["do"] == "extend" else first + size)


def _unmarked(plan: Mapping[str, Any], record: RecordOf) -> Iterator[int]:
    """Yield the offsets of a plan's fillers without a mark that are still in the log, as `record` reads it."""
    facts = plan.get("facts")
    rows = facts.get("fillers") if isinstance(facts, dict) else None
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or row.get("marked") == "property":
            continue
        offset, length = row.get("offset"), row.get("length")
        if isinstance(offset, int) and isinstance(length, int) and offset >= 0:
            message = record(offset, length)
            place = (row.get("topic"), row.get("queue_id"), row.get("queue_offset"))
            if message is not None and (message.topic_text, message.queue_id, message.queue_offset) == place:
                yield offset
