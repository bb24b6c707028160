"""The extension of a consume queue in a rebuild: sound units are kept, others are removed.

A bitmap depends on the filters of consumers at the time of the dispatch, so a lost one cannot be rebuilt. A queue unit
whose address has no sound unit gets its tags code instead; brokers then filter by the properties of the message.
"""

from __future__ import annotations

import numpy as np

from rmqstore.checks.queues.consumequeue import ext_units
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.units import unit_chunks
from rmqstore.texts import Text


class Extension:
    """The sound units of one queue's extension; `breaks` are the files with other units, and where those begin."""

    def __init__(self, files: ConsumeQueueFiles) -> None:
        self.files = files
        self.breaks: list[tuple[MappedFile, int]] = []
        rows = np.array(list(ext_units(files, self._broken)), dtype=np.int64).reshape(-1, 2)
        order = np.argsort(rows[:, 0], kind="stable")
        self._starts, self._tags = rows[order, 0], rows[order, 1]

    @staticmethod
    def of(store: Store, topic: str, queue_id: int) -> Extension:
        """Return the extension of a queue, which may have no files."""
        return Extension(store.consume_queue(topic, queue_id, QueueKind.EXT))

    def _broken(self, file: MappedFile, at: int, _size: int) -> None:
        self.breaks.append((file, at))

    def holds(self, address: I64, tags: I64) -> Bool:
        """Tell for each address whether it is that of a sound unit with the same tags code."""
        if not len(self._starts):
            return np.zeros(len(address), dtype=np.bool_)
        place = consumequeue.ext_offset(address.astype(np.int64))
        i = np.minimum(np.searchsorted(self._starts, place), len(self._starts) - 1)
        held: Bool = (self._starts[i] == place) & (self._tags[i] == tags)
        return held

    def _strays(self, queue: ConsumeQueueFiles) -> int:
        """Count the units of the queue whose address is not that of a sound unit."""
        if not self.files.queue.files:
            return 0
        count = 0
        for chunk in unit_chunks(queue.queue, consumequeue.UNIT):
            tags: I64 = chunk.units["tags_code"].astype(np.int64)
            rows = consumequeue.is_ext_address(tags) & (chunk.units["size"] > 0)
            count += int((rows & ~np.isin(consumequeue.ext_offset(tags), self._starts)).sum()) if rows.any() else 0
        return count

    def plan(self, draft: PlanBuilder, queue: ConsumeQueueFiles) -> None:
        """Zero the bytes after the last sound unit of each file, and note which bitmaps are lost."""
        for file, at in self.breaks:
            draft.zero_from(file, at, Text("not a unit of the extension"))
        strays = self._strays(queue)
        if strays:
            draft.notes.append(
                Text(
                    "{label}: {strays:,} units get their tags code in place of an address where the extension "
                    "holds nothing; brokers filter those messages by their properties",
                    label=queue.label,
                    strays=strays,
                )
            )
        elif self.files.queue.files and not queue.queue.files:
            draft.notes.append(
                Text(
                    "{label}: its units get plain tags codes, since nothing tells which bitmap belongs to which "
                    "message; brokers filter those messages by their properties",
                    label=queue.label,
                )
            )
