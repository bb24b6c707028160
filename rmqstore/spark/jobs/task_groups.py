"""Distributes splits to executors: the same function on the same splits as with `--jobs`, joined by the same code.

A task gets adjacent splits; all tasks have about the same number of bytes. Tasks are submitted in waves: the driver
never holds the answers of more than two waves, so its memory does not grow with the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rmqstore.scan.workers import Mapper, Split
from rmqstore.views.stores import FILE_COST, spread

TASK_BYTES = 64 << 20
WAVE = 16  # tasks of a wave per core

Progress = Callable[[int, int], None]


def spark_mapper(spark: Any, progress: Progress | None = None, task_bytes: int = TASK_BYTES) -> Mapper:
    """Return a mapper that runs on executors instead of local processes; `progress` gets (bytes done, bytes in all)."""
    context = spark.sparkContext
    cores = max(1, int(context.defaultParallelism))

    def mapper(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
        costs = [max(0, min(s.stop, s.file.length) - s.start) + FILE_COST for s in splits]
        groups = _groups(costs, task_bytes)
        waves = [groups[i : i + WAVE * cores] for i in range(0, len(groups), WAVE * cores)]
        done, total = 0, sum(costs)
        with ThreadPoolExecutor(2, thread_name_prefix="rmqstore-wave") as pool:
            waiting: list[Future[list[list[Any]]]]
            waiting = [pool.submit(_run, context, function, splits, wave) for wave in waves[:2]]
            for k, wave in enumerate(waves):
                answers = waiting.pop(0).result()
                if k + 2 < len(waves):
                    waiting.append(pool.submit(_run, context, function, splits, waves[k + 2]))
                for (first, stop), parts in zip(wave, answers, strict=True):
                    yield from zip(splits[first:stop], parts, strict=True)
                    done += sum(costs[first:stop])
                    if progress is not None:
                        progress(done, total)

    return mapper


def _groups(costs: list[int], task_bytes: int) -> list[tuple[int, int]]:
    """Index ranges of adjacent splits, of about `task_bytes` each."""
    if not costs:
        return []
    return spread(costs, max(1, round(sum(costs) / (task_bytes + FILE_COST))))


def _run(
    context: Any, function: Callable[[Split], Any], splits: Sequence[Split], wave: list[tuple[int, int]]
) -> list[list[Any]]:
    work = [tuple(splits[first:stop]) for first, stop in wave]

    def task(group: tuple[Split, ...]) -> list[Any]:
        return [function(split) for split in group]

    answers: list[list[Any]] = context.parallelize(work, len(work)).map(task).collect()
    return answers


class Watch:
    """A context that reports the progress of the session's Spark jobs as (tasks done, tasks in all)."""

    def __init__(self, spark: Any, progress: Progress | None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._progress = progress
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        if self._progress is not None:
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(0.5):
            try:
                self._report()
            except Exception:  # noqa: BLE001  # the session has ended: the job itself reports why
                return

    def _report(self) -> None:
        done = total = 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        if total and self._progress is not None:
            self._progress(done, total)
