"""Group message rows by queue, and build the consume queue units that they should have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rmqstore.formats import consumequeue
from rmqstore.scan import native
from rmqstore.scan.kernels import I64

Units = np.ndarray[tuple[int], np.dtype[np.void]]
Q = TypeVar("Q")
Rows = tuple[tuple[str, int], int, int, int]
"""(queue, first queue offset, start row, stop row) of rows with consecutive queue offsets."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows grouped by queue, in their original order within each queue; queue q has rows [starts[q], starts[q + 1]).

    `index` are queue offsets, `offset` physical offsets, `units` the consume queue units (None if not requested).
    """

    starts: list[int]
    index: I64
    offset: I64
    units: Units | None

    def stretches(self, queues: Sequence[Q]) -> list[tuple[Q, int, int, int]]:
        """Return all rows as stretches of consecutive queue offsets: (queues[q], first queue offset, start, stop)."""
        is_first = np.ones(len(self.index), dtype=np.bool_)
        np.not_equal(np.diff(self.index), 1, out=is_first[1:])
        is_first[[start for start in self.starts[:-1] if start < len(self.index)]] = True
        first_rows = np.flatnonzero(is_first)
        numbers = np.searchsorted(self.starts, first_rows, side="right") - 1
        first_offsets, starts = self.index[first_rows].tolist(), first_rows.tolist()
        stops = [*starts[1:], len(self.index)]
        return [
            (queues[number], first_offset, start, stop)
            for number, first_offset, start, stop in zip(numbers.tolist(), first_offsets, starts, stops, strict=True)
        ]


def lay_out(
    number: I64, queues: int, index: I64, offset: I64, size: I64 | None = None, tags: I64 | None = None
) -> Laid:
    """Group rows by queue number (below `queues`), and build their units if `size` and `tags` are given.

    Shapes: (n,) each.
    """
    units = None if size is None else np.empty(len(number), dtype=consumequeue.UNIT.dtype)
    loops = native.load()
    if loops is not None:
        found = loops.lay_out(number, queues, index, offset, size, tags, units)
        if found is not None:
            return Laid(found[0].tolist(), found[1], found[2], units)
    # NumPy uses a radix sort, which is faster, for 16-bit numbers
    order = np.argsort(number.astype(np.uint16) if queues < 1 << 16 else number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(queues + 1)).tolist()
    offset = offset[order]
    if units is not None and size is not None and tags is not None:
        units["commitlog_offset"] = offset
        units["size"] = size[order]
        units["tags_code"] = tags[order]
    return Laid(starts, index[order], offset, units)
