"""Text made by several processes and written by one, without a copy on its way.

The workers are forked with a piece of memory that all share, cut into areas. A worker writes the text of a split into
an area and sends only what it is about; the parent writes the area out, in the order of the splits, and lends it again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from rmqstore.errors import CouldNotCheck
from rmqstore.scan.kernels import U8
from rmqstore.scan.workers import Part, Split, begin_worker, map_ordered

if TYPE_CHECKING:
    import mmap
    from concurrent.futures import Future

AREA = 16 << 20  # several times the text of a usual split; what does not go in is sent
_MOST = 512 << 20  # of all areas


class TextPart(Part, Protocol):
    """A part of which `used` bytes of text are in the area; `text` are its pieces."""

    used: int
    text: list[bytes | memoryview]


P = TypeVar("P", bound=TextPart)
_memory: mmap.mmap | None = None  # of a worker


def map_into_shared(function: Callable[..., P], splits: Sequence[Split], jobs: int) -> Iterator[tuple[Split, P]]:
    """`function(split, area)` for every split, in the order of the splits; parts are good until the next is asked for.

    Errors: CouldNotCheck when a worker is killed.
    """
    jobs = min(jobs, len(splits))
    if jobs <= 1:
        yield from map_ordered(function, splits)
        return
    import mmap
    import multiprocessing  # 15 ms that one process does not need
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    forks = hasattr(os, "fork") and threading.active_count() == 1
    waiting: list[tuple[Split, int, Future[P]]] = []
    areas = list(range(2 * jobs + 1))
    size = min(AREA, _MOST // len(areas))
    memory = mmap.mmap(-1, size * len(areas)) if forks else None
    context = multiprocessing.get_context("fork" if forks else "spawn")
    try:
        with ProcessPoolExecutor(jobs, context, _begin, (memory,)) as pool:
            try:
                for split in splits:
                    area = areas.pop()
                    waiting.append((split, area, pool.submit(_work, function, split, area * size, size)))
                    if not areas:
                        yield from _taken(waiting, areas, memory, size)
                while waiting:
                    yield from _taken(waiting, areas, memory, size)
            finally:
                for _, _, future in waiting:
                    future.cancel()
    except BrokenProcessPool as e:
        raise CouldNotCheck("a worker process was killed", "is there enough memory? try --jobs 1") from e


def _taken(
    waiting: list[tuple[Split, int, Future[P]]], areas: list[int], memory: mmap.mmap | None, size: int
) -> Iterator[tuple[Split, P]]:
    """The first of those that are waited for; afterwards its area is free."""
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
    part.text = [bytes(piece) for piece in part.text]  # to be sent
    return part
