"""Records that repairs wrote, as the journals of a store tell. What they tell must also be in the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqstore.files.journals import repairs
from rmqstore.files.mapped_file_queue import file_name_to_offset, message_at
from rmqstore.files.store import Store
from rmqstore.formats.message import Message
from rmqstore.formats.times import parse_stamp
from rmqstore.scan.columns import NOTHING, Repaired

RecordOf = Callable[[int, int], Message | None]
"""Returns the record at a global offset with a size, None without one."""


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
        fillers.update(unmarked_fillers(plan, record))
        made = parse_stamp(name) or 0
        written += [(start, stop, made) for start, stop in written_ranges(store, plan, homes) if start < stop]
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


def written_ranges(store: Store, plan: Mapping[str, Any], homes: Collection[Path]) -> Iterator[tuple[int, int]]:
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


def unmarked_fillers(plan: Mapping[str, Any], record: RecordOf) -> Iterator[int]:
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
