"""Rows of messages brought together by queue, with the units that consume queues should have of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqstore.formats import consumequeue
from rmqstore.scan import native
from rmqstore.scan.kernels import I64

Units = np.ndarray[tuple[int], np.dtype[np.void]]
Rows = tuple[tuple[str, int], int, int, int]
"""(queue, first queue offset, rows [start, stop)) with queue offsets one behind the other."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows queue by queue, each queue's in the order they had: those of queue q are [starts[q], starts[q + 1]).

    `index` queue offsets, `offset` global offsets in the log, `units` see `consumequeue.UNIT`, None if not asked for.
    """

    starts: list[int]
    index: I64
    offset: I64
    units: Units | None

    def stretches(self, names: list[tuple[str, int]]) -> list[Rows]:
        """All rows; the numbers of queues index `names`."""
        is_first = np.ones(len(self.index), dtype=np.bool_)
        np.not_equal(np.diff(self.index), 1, out=is_first[1:])
        is_first[[start for start in self.starts[:-1] if start < len(self.index)]] = True
        begin = np.flatnonzero(is_first)
        queues = np.searchsorted(self.starts, begin, side="right") - 1
        first, begins = self.index[begin].tolist(), begin.tolist()
        return [
            (names[q], i, a, b)
            for q, i, a, b in zip(queues.tolist(), first, begins, [*begins[1:], len(self.index)], strict=True)
        ]


def lay_out(
    number: I64, queues: int, index: I64, offset: I64, size: I64 | None = None, tags: I64 | None = None
) -> Laid:
    """Rows of queues [0, `queues`), brought together; with their units where `size` and `tags` are given.

    Shapes: (n,) each.
    """
    units = None if size is None else np.empty(len(number), dtype=consumequeue.UNIT.dtype)
    loops = native.load()
    if loops is not None:
        found = loops.lay_out(number, queues, index, offset, size, tags, units)
        if found is not None:
            return Laid(found[0].tolist(), found[1], found[2], units)
    # 16 bits: radix sort
    order = np.argsort(number.astype(np.uint16) if queues < 1 << 16 else number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(queues + 1)).tolist()
    offset = offset[order]
    if units is not None and size is not None and tags is not None:
        units["commitlog_offset"] = offset
        units["size"] = size[order]
        units["tags_code"] = tags[order]
    return Laid(starts, index[order], offset, units)
