"""Where the log is sound: the runs of its tiling, and the real wrote position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rmqstore.files.store import Store
from rmqstore.formats.message import Fault
from rmqstore.scan.records import scan_split
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.workers import SPLIT_SIZE, SplitPart, joined, plan_splits
from rmqstore.views.dump.messages import Log, logs_of


@dataclass(frozen=True, slots=True)
class Positions:
    """One log and its tiling. Units: bytes, global offsets."""

    log: Log
    tiling: Tiling

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield {"queue", "file", "kind", "start", "stop", "bytes", "records", "cause"} for every run."""
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
        """Return {"queue", "wrote", "next_append", "records", "dirty_bytes"}."""
        return {
            "queue": self.log.name,
            "wrote": self.tiling.wrote(),
            "next_append": self.tiling.next_append(),
            "records": self.tiling.records(),
            "dirty_bytes": sum(r.stop - r.start for r in self.tiling if r.kind is Kind.DIRTY),
        }


@dataclass(slots=True)
class _PositionPart(SplitPart):
    runs: tuple[Run, ...] = ()


def _tile(split: Split) -> _PositionPart:
    out = _PositionPart()
    tiling: Tiling | None = None
    for run in scan_split(split):
        tiling = tiling or Tiling(run.start)
        tiling.add(run)
        out.extend(run.start, run.stop)
    out.runs = tuple(tiling or ())
    return out


def positions(store: Store, what: str, *, jobs: int) -> Iterator[Positions]:
    """Yield the tilings of the logs that `logs_of` returns for `what`."""
    for log in logs_of(store, what):
        queue = log.queue
        tiling = Tiling(queue.start)
        tiling.breaks = frozenset(f.start for f in queue.files)
        splits = plan_splits(queue, body_offset=log.body_offset, size=SPLIT_SIZE)
        for _, part in joined(_tile, splits, jobs):
            if part.begin is not None and part.begin > tiling.stop:
                tiling.add(Run(Kind.HOLE, tiling.stop, part.begin))
            tiling.extend(part.runs)
        yield Positions(log, tiling)
