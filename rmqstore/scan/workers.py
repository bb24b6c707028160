"""Files and splits over processes; the same split is Spark's partition.

A split is a byte range of one file. It owns the records that start in it: a split that begins in the middle finds its
first record by `resync`. Results are put together in address order, and where one does not begin exactly where the one
before ended (damage over the border), that split is scanned again from there, so the answer is the same for any number
of workers and any split size.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue

if TYPE_CHECKING:
    from concurrent.futures import Future

SPLIT_SIZE = 64 << 20
WORTH_PROCESSES = 64 << 20  # bytes of a log
_MOST_JOBS = 32


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes [start, stop) of a file (positions in the file); `exact` when a record is known to start at `start`."""

    file: MappedFile
    start: int
    stop: int
    lead: int = 0
    exact: bool = False


class Part(Protocol):
    """What a split gives: the global offsets where its first run begins and its last one ends; None for no run."""

    begin: int | None
    end: int | None


P = TypeVar("P", bound=Part)
# gives (split, function(split)) for every split, in the order of the splits
Mapper = Callable[[Callable[[Split], Any], Sequence[Split]], Iterator[tuple[Split, Any]]]


def plan_splits(queue: MappedFileQueue, *, lead: int = 0, size: int = SPLIT_SIZE) -> list[Split]:
    """All files of a queue in address order, cut into splits of about `size` bytes.

    Units: bytes. The last split of a file goes to the file's nominal end, so that a short file's hole is told.
    """
    out: list[Split] = []
    for file in queue.files:
        length = min(file.length, file.file_size)
        count = max(1, round(length / size))
        step = -(-length // count)
        for i in range(count):
            stop = file.file_size if i == count - 1 else (i + 1) * step
            out.append(Split(file, i * step, stop, lead, exact=i == 0))
    return out


def jobs_or_default(jobs: int | None, size: int | None = None) -> int:
    """`--jobs`, or the number of cores this process may use; more than some processes a core only use up memory.

    For little work (`size` bytes) the default is one: a process costs as much as reading some tens of MiB.
    """
    if not jobs and size is not None and size < WORTH_PROCESSES:
        return 1
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return max(1, min(jobs, max(_MOST_JOBS, 4 * cores))) if jobs else cores


def begin_worker() -> None:
    """Have this worker end silently on Ctrl-C, which reaches it as well, and as soon as its parent is gone.

    A parent that is killed closes nothing: each worker holds both ends of the pipe that it waits for work at.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def map_ordered(function: Callable[[Split], P], splits: Sequence[Split], jobs: int = 1) -> Iterator[tuple[Split, P]]:
    """Results in the order of the splits; at most a few splits are in flight, so memory does not grow with them."""
    jobs = min(jobs, len(splits))  # the pool begins with all its processes
    if jobs <= 1:
        for split in splits:
            yield split, function(split)
        return
    import multiprocessing  # 15 ms that one process does not need
    from concurrent.futures import ProcessPoolExecutor

    method = "fork" if hasattr(os, "fork") and threading.active_count() == 1 else "spawn"
    with ProcessPoolExecutor(jobs, multiprocessing.get_context(method), begin_worker) as pool:
        waiting: list[tuple[Split, Future[P]]] = []
        try:
            for split in splits:
                waiting.append((split, pool.submit(function, split)))
                if len(waiting) > 2 * jobs:
                    first, future = waiting.pop(0)
                    yield first, future.result()
            for first, future in waiting:
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def joined(
    function: Callable[[Split], P], splits: Sequence[Split], jobs: int = 1, mapper: Mapper | None = None
) -> Iterator[tuple[Split, P]]:
    """Results that follow each other without overlap: see the module's first words.

    `mapper` is what does the work in place of `jobs` processes: other machines.
    """
    reached = -1
    current: MappedFile | None = None
    parts = map_ordered(function, splits, jobs) if mapper is None else mapper(function, splits)
    for split, part in parts:
        if current is None or split.file.start != current.start:
            current = split.file
            reached = split.file.start + (split.start if split.exact else 0)
        stop = split.file.start + split.stop
        if part.begin is not None and part.begin == reached:
            result = part
        elif reached >= stop:
            continue  # the split before went over all of this one
        elif part.begin is None and reached >= split.file.start + min(split.file.length, split.stop):
            continue
        else:
            result = function(replace(split, start=reached - split.file.start, exact=True))
        if result.end is not None:
            reached = result.end
        yield split, result
