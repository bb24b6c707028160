"""Distribute a scan over processes; Spark uses the same splits as partitions.

A split is a byte range of one file and owns the records that start in it; a split that begins inside a file finds its
first record by `resync`. Results are joined in address order. If one does not begin exactly where the previous one
ended, because of damage across the border, its split is scanned again from there. So the result does not depend on the
number of workers or the split size.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqstore.errors import CouldNotCheck
from rmqstore.files import pace
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.scan.kernels import keep_freed_memory
from rmqstore.scan.split import Split
from rmqstore.texts import Text

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

SPLIT_SIZE = 128 << 20
WORTH_PROCESSES = 64 << 20  # size in bytes from which several processes are faster than one
WORTH_NEW_PROCESSES = 2 << 30  # the same if they cannot be forks, and have to load Python and all modules
_MAX_JOBS = 32


class Part(Protocol):
    """The result of a split: the global offsets where its first run begins and its last run ends; None without runs."""

    begin: int | None
    end: int | None


@dataclass(slots=True)
class SplitPart:
    """A `Part` that the runs of a split extend."""

    begin: int | None = None
    end: int | None = None

    def extend(self, start: int, stop: int) -> None:
        """Add the bounds of the next run."""
        self.begin = start if self.begin is None else self.begin
        self.end = stop


P = TypeVar("P", bound=Part)
T = TypeVar("T")
# yields (split, function(split)) for every split, in the order of the splits
Mapper = Callable[[Callable[[Split], Any], Sequence[Split]], Iterator[tuple[Split, Any]]]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Workers:
    """How a log is read: number of processes, and size of splits (bytes).

    `progress` is called with the bytes of every finished split. `mapper` replaces the processes, for example by other
    machines.
    """

    jobs: int = 1
    split_size: int = SPLIT_SIZE
    progress: Progress | None = None
    mapper: Mapper | None = None


def plan_splits(queue: MappedFileQueue, *, body_offset: int = 0, size: int = SPLIT_SIZE) -> list[Split]:
    """Cut all files of a queue, in address order, into splits of about `size` bytes.

    The last split of a file extends to `file_size`, so that it reports the hole at the end of a short file.
    """
    splits: list[Split] = []
    for file in queue.files:
        length = min(file.length, file.file_size)
        count = max(1, round(length / size))
        step = -(-length // count)
        for i in range(count):
            stop = file.file_size if i == count - 1 else (i + 1) * step
            splits.append(Split(file, i * step, stop, body_offset, exact=i == 0))
    return splits


def jobs_or_default(jobs: int | None, size: int | None = None) -> int:
    """Return the number of processes: `jobs` up to a limit, else the number of cores that this process may use.

    The default is one if there are only few bytes (`size`) to read: starting a process takes as long as reading some
    tens of MiB. The limit exists because more processes would only use up memory.
    """
    if not jobs and size is not None and size < (WORTH_PROCESSES if can_fork() else WORTH_NEW_PROCESSES):
        return 1
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return max(1, min(jobs, max(_MAX_JOBS, 4 * cores))) if jobs else cores


_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def begin_worker() -> None:
    """Make this worker end silently on Ctrl-C, which it receives too, on SIGTERM, and as soon as its parent ends.

    Workers do not notice by themselves that the parent was killed: each has both ends of the pipe that it reads from.
    """
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def can_fork() -> bool:
    """Return whether workers can be forks of this process, which share its memory and start at once.

    The threads of an S3 client, which Python does not count, do not survive a fork.
    """
    return hasattr(os, "fork") and threading.active_count() == 1 and "pyarrow._s3fs" not in sys.modules


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM meanwhile: in a fork that is not a worker yet, Python would print the exception."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(shared: pace.Pace | None, begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    pace.follow(shared)
    begin(*given)


@contextmanager
def worker_pool(jobs: int, begin: Callable[..., None] = begin_worker, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of `jobs` processes, each of which calls `begin(*given)` first; then cancel calls that wait.

    Errors: CouldNotCheck when a worker is killed.
    """
    import multiprocessing  # takes 15 ms, which a single process does not need
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    keep_freed_memory()  # for the forks, and for the checks that follow in this process
    context = multiprocessing.get_context("fork" if can_fork() else "spawn")
    pool = ProcessPoolExecutor(jobs, context, _begin, (pace.shared(context), begin, given))
    try:
        with _interrupts_held():
            pool.submit(int)  # the first call forks all workers
        yield pool
    except KeyboardInterrupt:
        for worker in multiprocessing.active_children():  # SIGTERM came to this process alone
            worker.terminate()
        raise
    except BrokenProcessPool as error:
        raise CouldNotCheck(
            Text("a worker process was killed"), Text("is there enough memory? try --jobs 1")
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def map_ordered(function: Callable[[Split], P], splits: Sequence[Split], jobs: int = 1) -> Iterator[tuple[Split, P]]:
    """Yield results in the order of the splits; only a few splits are in flight, so that memory use is bounded.

    Errors: CouldNotCheck when a worker is killed.
    """
    jobs = min(jobs, len(splits))  # the pool starts all of its processes at once
    if jobs <= 1:
        for split in splits:
            yield split, function(split)
        return
    with worker_pool(jobs) as pool:
        waiting: list[tuple[Split, Future[P]]] = []
        for split in splits:
            waiting.append((split, pool.submit(function, split)))
            if len(waiting) > 2 * jobs:
                first, future = waiting.pop(0)
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def joined(
    function: Callable[[Split], P], splits: Sequence[Split], jobs: int = 1, mapper: Mapper | None = None
) -> Iterator[tuple[Split, P]]:
    """Yield results that adjoin without overlap, by scanning splits again where necessary (see the module's docstring).

    `mapper` replaces the `jobs` processes, for example by other machines.
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
            continue  # the previous result covers this whole split
        elif part.begin is None and reached >= split.file.start + min(split.file.length, split.stop):
            continue
        else:
            result = function(replace(split, start=reached - split.file.start, exact=True))
        if result.end is not None:
            reached = result.end
        yield split, result


def one_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items of an iterator that a thread advances, so that the next item is read while the caller uses one.

    The caller may use an item for as long as it likes, so the iterator must not reuse its memory. `items` has no None.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
