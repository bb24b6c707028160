"""The extension of a consume queue, as far as a rebuild can keep it: which of its addresses hold what they should.

Bit maps come from the filters of consumers at the time of the dispatch: nothing can make a lost one again. A unit
whose address holds nothing gets its tags code instead; brokers then filter by the message's own properties.
"""

from __future__ import annotations

import numpy as np

from rmqstore.checks.queues.consumequeue_ext import ext_units
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import ConsumeQueueFiles, QueueKind, Store
from rmqstore.formats import consumequeue
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.scan.kernels import I64, Bool
from rmqstore.scan.units import last_nonzero_in, unit_chunks


class Extension:
    """The sound units of one queue's extension; `breaks` are where the units of a file stop making sense."""

    def __init__(self, files: ConsumeQueueFiles) -> None:
        self.files = files
        self.breaks: list[tuple[MappedFile, int]] = []
        rows = np.array(list(ext_units(files, self._broken)), dtype=np.int64).reshape(-1, 2)
        order = np.argsort(rows[:, 0], kind="stable")
        self._starts, self._tags = rows[order, 0], rows[order, 1]

    @staticmethod
    def of(store: Store, topic: str, queue_id: int) -> Extension:
        """The extension of a queue, empty where it has none."""
        return Extension(store.consume_queue(topic, queue_id, QueueKind.EXT))

    def _broken(self, file: MappedFile, at: int, _size: int) -> None:
        self.breaks.append((file, at))

    def holds(self, address: I64, tags: I64) -> Bool:
        """Whether each address is that of a unit with this tags code."""
        if not len(self._starts):
            return np.zeros(len(address), dtype=np.bool_)
        place = consumequeue.ext_offset(address.astype(np.int64))
        i = np.minimum(np.searchsorted(self._starts, place), len(self._starts) - 1)
        held: Bool = (self._starts[i] == place) & (self._tags[i] == tags)
        return held

    def strays(self, queue: ConsumeQueueFiles) -> int:
        """How many units of the queue have an address where the extension has no unit."""
        if not self.files.queue.files:
            return 0
        count = 0
        for chunk in unit_chunks(queue.queue, consumequeue.UNIT):
            tags: I64 = chunk.units["tags_code"].astype(np.int64)
            rows = consumequeue.is_ext_address(tags) & (chunk.units["size"] > 0)
            count += int((rows & ~np.isin(consumequeue.ext_offset(tags), self._starts)).sum()) if rows.any() else 0
        return count

    def plan(self, draft: PlanBuilder, queue: ConsumeQueueFiles) -> None:
        """Zero what follows the last sound unit of a file, and say what the queue loses by it."""
        for file, at in self.breaks:
            last = last_nonzero_in(file, 1)
            if last is not None and last >= at:
                draft.zero(file.path, at, last + 1 - at, "not a unit of the extension")
        strays = self.strays(queue)
        if strays:
            draft.notes.append(
                f"{queue.label}: {strays:,} units get their tags code in place of an address where the extension holds "
                "nothing; brokers filter those messages by their properties"
            )
        elif self.files.queue.files and not queue.queue.files:
            draft.notes.append(
                f"{queue.label}: its units get plain tags codes, since nothing tells which bitmap belongs "
                "to which message; brokers filter those messages by their properties"
            )
