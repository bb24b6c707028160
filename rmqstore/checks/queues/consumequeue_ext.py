"""Consume queue extensions: units form a chain by their sizes, and addresses in consume queues point to units.

Source: ConsumeQueueExt#recover, #get (RocketMQ 5.4.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.scan.kernels import I64
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text

_LISTED = 1000
_BLOCK = 1 << 20
_SIZE_AT = consumequeue.EXT_UNIT.fields[0].size  # the size field comes first


Broken = Callable[[MappedFile, int, int], None]
"""Takes a file, a position in it, and the invalid size of the unit there."""


def check_queue_extensions(store: Store, findings: Findings) -> None:
    """Check every queue of consumequeue_ext/, and the addresses in its consume queue."""
    for files in store.consume_queues(QueueKind.EXT):

        def report(file: MappedFile, at: int, size: int, label: str = files.label) -> None:
            facts: dict[str, Fact] = {"size": size, "reason": Text("unit size")}
            length = consumequeue.EXT_UNIT.size
            findings.add(Finding(codes.CQ_EXT, label, file.name, file.start + at, length, facts))

        starts = np.fromiter((at for at, _ in ext_units(files, report)), dtype=np.int64)
        _addresses(store, files, starts, findings)


def ext_units(files: ConsumeQueueFiles, broken: Broken) -> Iterator[tuple[int, int]]:
    """Yield (global offset, tags code) of every unit, and call `broken` where the chain of a file breaks."""
    for file in files.queue.files:
        at = 0
        buffer, base = b"", 0
        end = min(file.length, file.file_size)
        while at + _SIZE_AT <= end:
            if not base <= at <= base + len(buffer) - consumequeue.EXT_UNIT.size:
                buffer, base = file.read_at(_BLOCK, at), at
            head = buffer[at - base : at - base + consumequeue.EXT_UNIT.size]
            size = int.from_bytes(head[:_SIZE_AT], "big", signed=True)
            if size in (0, -1):  # -1 closes the file, 0 is its end
                break
            fits = size >= consumequeue.EXT_UNIT.size == len(head) and at + size <= end
            unit = consumequeue.EXT_UNIT.unpack(head) if fits else None
            if unit is None or unit["bitmap_size"] + consumequeue.EXT_UNIT.size != size:
                broken(file, at, size)
                break
            yield file.start + at, int(unit["tags_code"])
            at += size


def _addresses(store: Store, files: ConsumeQueueFiles, starts: I64, findings: Findings) -> None:
    """Report addresses in the consume queue that are not the start of a unit."""
    queue: MappedFileQueue = store.consume_queue(files.topic, files.queue_id).queue
    low = files.queue.start
    for chunk in unit_chunks(queue, consumequeue.UNIT):
        tags: I64 = chunk.units["tags_code"].astype(np.int64)
        rows = np.flatnonzero(consumequeue.is_ext_address(tags) & (chunk.units["size"] > 0))
        if not len(rows):
            continue
        real = consumequeue.ext_offset(tags[rows])
        missing = ~np.isin(real, starts) & (real >= low)
        for i in rows[missing][:_LISTED].tolist():
            at = chunk.start + i * consumequeue.UNIT_SIZE
            facts: dict[str, Fact] = {
                "queue_offset": chunk.number + i,
                "address": int(tags[i]),
                "reason": Text("no unit there"),
            }
            findings.add(Finding(codes.CQ_EXT, files.label, chunk.file.name, at, consumequeue.UNIT_SIZE, facts))
