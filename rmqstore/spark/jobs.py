"""The jobs verify, crosscheck and du of `rmqstore pipeline`, as functions for notebooks too; and what all jobs share.

A job takes a session (`open_session`) and paths of stores, and returns a `JobResult`. `verify` and `du` run the code of
the local commands, on the same splits, joined by the same code, so the answers are equal. A small store is read by a
single task. A task gets adjacent splits; all tasks have about the same number of bytes. Tasks are submitted in waves:
the driver never holds the answers of more than two waves, so its memory does not grow with the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rmqstore.checks.examine import examine_named
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.errors import NotReadable, RmqStoreError
from rmqstore.files.sources import FOR_VERIFY
from rmqstore.files.store import Store
from rmqstore.scan.split import Split
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import Mapper
from rmqstore.texts import Text, joined
from rmqstore.views.stores import FILE_COST, StoreRef, open_each, spread, store_refs, unreadable_files

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


Paths = Iterable[str | Path]
WHOLE_BELOW = 256 << 20


@dataclass(frozen=True, slots=True)
class Tasks:
    """How stores are divided into tasks of `task_bytes`; up to `whole_below` bytes of log, a store is one task."""

    whole_below: int = WHOLE_BELOW
    task_bytes: int = TASK_BYTES


@dataclass(slots=True)
class JobResult:
    """The result of a job: one JSON object per store, further fields in `more`, and the exit code of the command."""

    job: str
    stores: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    exit_code: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object of `pipeline --json`."""
        head = {"schema": f"rmqstore.pipeline.{self.job}/1", "stores": self.stores}
        return head | self.more | {"seconds": round(self.seconds, 3)}


def finish(result: JobResult, started: float, codes: Iterable[int]) -> JobResult:
    """Set exit code and duration: 1 takes precedence over 4; 4 also for a store that could not be opened, 3 for all."""
    found = set(codes)
    lost = [s for s in result.stores if "error" in s]
    if lost:
        found.add(4)
    result.exit_code = 1 if 1 in found else 4 if 4 in found else 0
    if result.stores and len(lost) == len(result.stores):
        result.exit_code = 3
    result.seconds = time.monotonic() - started
    return result


def lost_store(ref: StoreRef, error: RmqStoreError | OSError) -> dict[str, Any]:
    """Return the result entry of a store that could not be read."""
    message = error.message if isinstance(error, RmqStoreError) else str(error)
    return {"store": ref.label, "clean": False, "error": message}


def store_around(output: str | Path, refs: list[StoreRef]) -> StoreRef | None:
    """Return the store inside which an output would lie; None for a URL."""
    target = Path(output).absolute().resolve()
    for ref in refs if "://" not in str(output) else ():
        root = ref.path.absolute().resolve()
        if target == root or root in target.parents:
            return ref
    return None


Answer = tuple[dict[str, Any], int]
"""The result entry of a store, and an exit code."""


def _each(
    spark: Any, refs: list[StoreRef], function: Callable[..., Answer], progress: Progress | None, tasks: Tasks
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run a function on every store; return the entries of all stores in order, and the exit codes.

    `function(store)` runs on executors; for a store that is split, `function(store, mapper=…)` runs here.
    """
    small, big, lost = [], [], []
    for ref, found in open_each(refs):
        if not isinstance(found, Store):
            lost.append(lost_store(ref, found))
        elif found.log_bytes <= tasks.whole_below:
            small.append((ref, found.log_bytes))
        else:
            big.append(ref)
    answers = each_whole(spark, small, function, tasks.task_bytes)
    answers += [function(ref, mapper=spark_mapper(spark, progress, tasks.task_bytes)) for ref in big]
    order = {ref.label: i for i, ref in enumerate(refs)}
    stores = sorted([*(entry for entry, _ in answers), *lost], key=lambda store: order[store["store"]])
    return stores, [code for _, code in answers]


def each_whole(
    spark: Any,
    small: list[tuple[StoreRef, int]],
    function: Callable[[StoreRef], Answer],
    task_bytes: int = TASK_BYTES,
) -> list[Answer]:
    """Run a function on every small store, several stores per task; return (answer, exit code) of each."""
    if not small:
        return []
    costs = [size + FILE_COST for _, size in small]
    groups = [
        [ref for ref, _ in small[a:b]] for a, b in spread(costs, max(1, -(-sum(costs) // (task_bytes + FILE_COST))))
    ]
    context = spark.sparkContext
    answers: list[list[Answer]] = (
        context.parallelize(groups, len(groups)).map(lambda refs: [function(ref) for ref in refs]).collect()
    )
    return [one for group in answers for one in group]


# --- verify ----------------------------------------------------------------------------------------------------------


def _verified(ref: StoreRef, options: VerifyOptions, mapper: Mapper | None = None) -> Answer:
    try:
        report = examine_named(ref.open(FOR_VERIFY), options, mapper)[1].report
    except (RmqStoreError, OSError) as e:
        return lost_store(ref, e), 4
    answer = report.to_json()
    logs = (report.commitlog or {}).get("messages", 0), (report.dledger or {}).get("entries", 0)
    del answer["schema"], answer["seconds"]
    head = {"store": ref.label, "clean": report.clean, "messages": sum(logs)}
    return head | answer | {"store": ref.label}, report.exit_code


def verify(
    spark: Any,
    paths: Paths,
    *,
    config: Path | None = None,
    options: VerifyOptions | None = None,
    progress: Progress | None = None,
    tasks: Tasks | None = None,
) -> JobResult:
    """Verify all stores as `rmqstore verify` does; a store that cannot be opened becomes an entry with `error`.

    Errors: UsageError, NotReadable for the list of stores itself.
    """
    options = replace(options or VerifyOptions(), ranges=True)
    return _verify("verify", spark, store_refs(paths, config), options, progress, tasks or Tasks())


def _verify(
    job: str, spark: Any, refs: list[StoreRef], options: VerifyOptions, progress: Progress | None, tasks: Tasks
) -> JobResult:
    started = time.monotonic()
    options = replace(options, jobs=1, progress=None, sink=None)
    stores, codes = _each(spark, refs, partial(_verified, options=options), progress, tasks)
    return finish(JobResult(job, stores), started, codes)


def crosscheck(
    spark: Any,
    paths: Paths,
    *,
    config: Path | None = None,
    options: VerifyOptions | None = None,
    progress: Progress | None = None,
    tasks: Tasks | None = None,
) -> JobResult:
    """Compare commitlog and consume queues: the CQ- and BCQ- findings of `verify`.

    Units are looked up by the queue offsets of the messages: a merge join without a shuffle. `crosscheck_rows` returns
    the differences as rows.
    """
    refs = store_refs(paths, config)
    result = _verify("crosscheck", spark, refs, options or VerifyOptions(), progress, tasks or Tasks())
    codes = []
    for store in result.stores:
        if "error" in store:
            continue
        counts = {c: n for c, n in store["counts"].items() if PROBLEMS[c].of_queues}
        findings = [f for f in store["findings"] if PROBLEMS[f["code"]].of_queues]
        codes.append(1 if any(f["severity"] != "note" for f in findings) else 4 if store["unchecked"] else 0)
        keep = {k: store[k] for k in ("store", "messages", "unchecked")}
        store.clear()
        store |= keep | {"clean": codes[-1] == 0, "counts": counts, "findings": findings}
    return finish(result, time.monotonic() - result.seconds, codes)


def findings_frame(spark: Any, result: JobResult) -> Any:
    """Return the findings of `verify` or `crosscheck` as a DataFrame."""
    import orjson

    from rmqstore.spark.sources import spark_schema
    from rmqstore.views.tables import findings_schema

    schema = findings_schema()
    rows = [
        tuple(
            store["store"] if c == "store" else orjson.dumps(f[c]).decode() if c == "facts" else f[c]
            for c in schema.names
        )
        for store in result.stores
        for f in store.get("findings", ())
    ]
    return spark.createDataFrame(rows, spark_schema(schema))


# --- du --------------------------------------------------------------------------------------------------------------


def _used(ref: StoreRef, selection: Any, mapper: Mapper | None = None, split_size: int | None = None) -> Answer:
    from rmqstore.scan.workers import SPLIT_SIZE, Workers
    from rmqstore.views.dump.messages import Skipped
    from rmqstore.views.usage import usage

    try:
        store = ref.open()
        unread = unreadable_files(store)
        if unread:
            return lost_store(ref, NotReadable(Text("not readable: {unread}", unread=joined(unread, "; ")))), 4
        damage = Skipped(live=store.lock_state().held)
        used = usage(
            store,
            selection=selection,
            fillers=selection.fillers,
            workers=Workers(split_size=split_size or SPLIT_SIZE, mapper=mapper),
            options=ScanOptions(crc=False, drop_cache=damage.live),
            damage=damage,
        )
    except (RmqStoreError, OSError) as e:
        return lost_store(ref, e), 4
    answer = used.to_json(ref.label)
    del answer["schema"]
    found = {"clean": not damage, "damaged_spans": damage.count, "damaged_bytes": damage.bytes}
    return answer | found, 1 if damage else 0


def du(
    spark: Any,
    paths: Paths,
    *,
    config: Path | None = None,
    selection: Any = None,
    progress: Progress | None = None,
    tasks: Tasks | None = None,
    split_size: int | None = None,
) -> JobResult:
    """Count messages and bytes per topic, queue, tag, producer host and day, per store and in `total`.

    Only a `selection` with `fillers` counts the records that repairs put in the place of lost messages.
    """
    from rmqstore.views.dump.selection import Selection

    started = time.monotonic()
    refs = store_refs(paths, config)
    count = partial(_used, selection=selection or Selection(fillers=False), split_size=split_size)
    stores, codes = _each(spark, refs, count, progress, tasks or Tasks())
    return finish(JobResult("du", stores, more={"total": _total(stores)}), started, codes)


def _total(stores: list[dict[str, Any]]) -> dict[str, Any]:
    from rmqstore.views.usage import Usage

    total = Usage()
    for store in stores:
        if "error" in store:
            continue
        tables = {
            name: {row[name]: [row["messages"], row["bytes"]] for row in rows} for name, rows in store["by"].items()
        }
        total.add(Usage(store["messages"], store["bytes"], tables, store["fillers"]))
    out = total.to_json("")
    del out["schema"], out["store"]
    return out
