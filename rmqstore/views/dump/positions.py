"""The tiling of a log as rows: what every span of its files is, with its real end and the broker's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rmqstore.files.store import Store
from rmqstore.formats.message import Fault
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE, Split, joined, plan_splits
from rmqstore.views.dump.messages import Log, logs_of


@dataclass(frozen=True, slots=True)
class Positions:
    """One log: its tiling and what is read off it. Units: bytes, global offsets."""

    log: Log
    tiling: Tiling

    def rows(self) -> Iterator[dict[str, Any]]:
        """{"queue", "file", "kind", "start", "stop", "bytes", "records", "cause"} for every run, file by file."""
        for run in self.tiling:
            file = self.log.queue.find(run.start)
            yield {
                "queue": self.log.name,
                "file": file.name if file is not None else None,
                "kind": run.kind.name,
                "start": run.start,
                "stop": run.stop,
                "bytes": run.stop - run.start,
                "records": run.count,
                "cause": None if run.cause is Fault.NONE else run.cause.name,
            }

    def summary(self) -> dict[str, Any]:
        """{"queue", "wrote", "next_append", "records", "dirty_bytes"}."""
        return {
            "queue": self.log.name,
            "wrote": self.tiling.wrote(),
            "next_append": self.tiling.next_append(),
            "records": self.tiling.records(),
            "dirty_bytes": sum(r.stop - r.start for r in self.tiling if r.kind is Kind.DIRTY),
        }


@dataclass(slots=True)
class _Runs:
    begin: int | None = None
    end: int | None = None
    runs: list[Run] = field(default_factory=list)


def _tile(options: ScanOptions, split: Split) -> _Runs:
    out = _Runs()
    tiling: Tiling | None = None
    try:
        for run in scan_file(
            split.file, start=split.start, stop=split.stop, lead=split.lead, exact=split.exact, options=options
        ):
            if tiling is None:
                tiling = Tiling(run.start)
                out.begin = run.start
            tiling.add(replace(run, columns=None))
    except FileNotFoundError:
        pass
    if tiling is not None:
        out.runs = list(tiling)
        out.end = tiling.stop
    return out


def positions(store: Store, what: str, *, jobs: int = 1, options: ScanOptions | None = None) -> Iterator[Positions]:
    """Tilings of the logs that `what` asks for."""
    for log in logs_of(store, what):
        queue = log.queue
        tiling = Tiling(queue.start)
        tiling.breaks = frozenset(f.start for f in queue.files)
        splits = plan_splits(queue, lead=log.lead, size=SPLIT_SIZE)
        for _, part in joined(partial(_tile, options or ScanOptions()), splits, jobs):
            if part.begin is not None and part.begin > tiling.stop:
                tiling.add(Run(Kind.HOLE, tiling.stop, part.begin))
            tiling.extend(part.runs)
        yield Positions(log, tiling)
