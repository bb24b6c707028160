"""Render text in several processes and pass it to the parent through shared memory, without copies.

The workers inherit one block of shared memory, cut into areas. A worker writes the text of a split into an area and
sends only the rest of its result. The parent uses the areas in the order of the splits, and then reuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from rmqstore.scan.kernels import U8
from rmqstore.scan.split import Split
from rmqstore.scan.workers import Part, begin_worker, can_fork, map_ordered, worker_pool

if TYPE_CHECKING:
    import mmap
    from concurrent.futures import Future

AREA = 16 << 20  # several times the text of a usual split; text that does not fit is sent
_MAX_MEMORY = 512 << 20  # for all areas


class TextPart(Part, Protocol):
    """A result whose first `used` bytes of text are in the area; `text` has the other pieces."""

    used: int
    text: list[bytes | memoryview]


P = TypeVar("P", bound=TextPart)
_memory: mmap.mmap | None = None  # of a worker


def map_into_shared(function: Callable[..., P], splits: Sequence[Split], jobs: int) -> Iterator[tuple[Split, P]]:
    """Yield `function(split, area)` for every split, in order; each result is valid until the next iteration.

    Errors: CouldNotCheck when a worker is killed.
    """
    jobs = min(jobs, len(splits))
    if jobs <= 1:
        yield from map_ordered(function, splits)
        return
    import mmap

    waiting: list[tuple[Split, int, Future[P]]] = []
    areas = list(range(2 * jobs + 1))
    size = min(AREA, _MAX_MEMORY // len(areas))
    memory = mmap.mmap(-1, size * len(areas)) if can_fork() else None
    with worker_pool(jobs, _begin, memory) as pool:
        for split in splits:
            area = areas.pop()
            waiting.append((split, area, pool.submit(_work, function, split, area * size, size)))
            if not areas:
                yield from _taken(waiting, areas, memory, size)
        while waiting:
            yield from _taken(waiting, areas, memory, size)


def _taken(
    waiting: list[tuple[Split, int, Future[P]]], areas: list[int], memory: mmap.mmap | None, size: int
) -> Iterator[tuple[Split, P]]:
    """Yield the first result when it is ready; afterwards free its area."""
    split, area, future = waiting.pop(0)
    part = future.result()
    if memory is not None:
        part.text.insert(0, memoryview(memory)[area * size : area * size + part.used])
    yield split, part
    areas.append(area)


def _begin(memory: mmap.mmap | None) -> None:
    global _memory
    begin_worker()
    _memory = memory


def _work(function: Callable[..., P], split: Split, start: int, size: int) -> P:
    area: U8 | None = None
    if _memory is not None:
        area = np.frombuffer(_memory, dtype=np.uint8, count=size, offset=start)
    part = function(split, area)
    part.text = [bytes(piece) for piece in part.text]  # memoryviews cannot be pickled
    return part
