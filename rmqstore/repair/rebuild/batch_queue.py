"""Rebuilds a BatchCQ: its units follow each other from the first file on, regardless of their queue offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.files.store import ConsumeQueueFiles
from rmqstore.formats import consumequeue
from rmqstore.repair.plan.content import Literal
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.scan.dispatch import BatchRow
from rmqstore.scan.units import unit_chunks

UNIT = consumequeue.BATCH_UNIT.size
_COMPACTED = -1


def plan_batch_queue(
    draft: PlanBuilder, files: ConsumeQueueFiles, units: Sequence[BatchRow], min_offset: int, why: str
) -> None:
    """Add the steps after which the queue's files have the expired units and then those of the log's messages."""
    queue, size = files.queue, files.queue.file_size
    per_file = size // UNIT
    wanted = _expired(files, min_offset) + b"".join(_build(u) for u in sorted(units, key=lambda u: u.offset))
    start = queue.start
    existing = {f.start: f for f in queue.files}
    for n, at in enumerate(range(0, len(wanted), per_file * UNIT)):
        begin = start + n * size
        part = wanted[at : at + per_file * UNIT]
        file = existing.pop(begin, None)
        if file is not None and file.length == size and draft.path(file.path) not in draft.gone:
            stored = np.frombuffer(queue.pread(size, begin), dtype=np.uint8)
            new = np.frombuffer(part.ljust(size, b"\0"), dtype=np.uint8)
            differ = np.flatnonzero(stored != new)
            if len(differ):
                a, b = int(differ[0]), int(differ[-1]) + 1
                draft.overwrite(file.path, a, new[a:b].tobytes(), why)
            continue
        if file is not None:
            draft.discard(file.path, why)
        path = queue.directories[0] / offset_to_file_name(begin)
        draft.create(path, size, Literal(part), why, queue.files[0].path if queue.files else None)
    for file in existing.values():
        draft.discard(file.path, why)


def _expired(files: ConsumeQueueFiles, min_offset: int) -> bytes:
    """Return the bytes of the units at the beginning whose messages have expired."""
    out = bytearray()
    for chunk in unit_chunks(files.queue, consumequeue.BATCH_UNIT):
        for unit in chunk.units:
            offset, size = int(unit["commitlog_offset"]), int(unit["size"])
            if not consumequeue.is_batch_unit(offset, size, int(unit["base_offset"]), int(unit["batch_size"])):
                return bytes(out)
            if offset >= min_offset:
                return bytes(out)
            out += unit.tobytes()
    return bytes(out)


def _build(unit: BatchRow) -> bytes:
    return consumequeue.BATCH_UNIT.build(
        commitlog_offset=unit.offset,
        size=unit.size,
        tags_code=unit.tags_code,
        store_timestamp=unit.store_timestamp,
        base_offset=unit.base,
        batch_size=unit.count,
        compacted_offset=_COMPACTED,
    )
