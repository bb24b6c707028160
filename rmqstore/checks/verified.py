"""What a verification is asked for, and what repairs and the forecast need of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqstore.checks.beside.config import ConfigFacts
from rmqstore.checks.log.commitlog import LogResult, UnitKeeper
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems.report import Finding, Report

if TYPE_CHECKING:
    from rmqstore.checks.beside.timer import TimerFacts
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.log.misplaced_files import Misplaced
    from rmqstore.checks.since_last.last_run import LastRun


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How to verify.

    `jobs` processes (None: all cores); `quick` leaves body CRCs out; `only` these codes; `broker` whose rules the
    forecast follows; `max_rate` bytes per second; `sink` gets every finding as it is made; `progress` gets bytes done.
    `topics`, `queues` keep findings about these; `since`, `until` (ms of store time) read only the files that can hold
    such messages; `max_duration` (s) ends the reading early, `start_at` (log name -> offset, as `Report.resume_at`
    says) goes on from there. `units` gets the units that the messages should have. `keep` findings are listed, all are
    counted; `split_size` bytes of the log are one process's share; `settings` override broker.conf's in the
    forecast. `last_run` knows files of the log that need not be read again.
    Whatever is left out is never taken for clean.
    """

    jobs: int | None = None
    quick: bool = False
    only: tuple[str, ...] = ()
    broker: str = ""
    max_rate: int = 0
    split_size: int | None = None
    keep: int = 10_000
    sink: Callable[[Finding], None] | None = None
    progress: Callable[[int], None] | None = None
    settings: tuple[tuple[str, str], ...] = ()
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # "ID" or "TOPIC/ID"
    since: int | None = None
    until: int | None = None
    max_duration: float | None = None
    start_at: Mapping[str, int] | None = None
    units: UnitKeeper | None = None
    last_run: LastRun | None = None


@dataclass(slots=True)
class Verified:
    """A report and what repairs and the forecast need beside it.

    Where log files have wrong names and can go back, all of it is said of `misplaced.store`.
    """

    report: Report
    logs: Logs
    legacy: LogResult | None = None
    dledger: LogResult | None = None

    config: ConfigFacts = field(default_factory=ConfigFacts)
    index: IndexCatalog | None = None
    timer: TimerFacts | None = None
    misplaced: Misplaced | None = None
    units: UnitKeeper | None = None
    unreadable_rows: Mapping[tuple[str, int], int] | None = None
    """Messages per queue whose rows in RocksDB cannot be read; None where no rows were looked at."""
    damaged_rows: bool = False
    """Whether the RocksDB of the consume queues cannot be opened, or not all of it can be read."""
    batch_topics: frozenset[str] = frozenset()
    """Topics whose messages belong in a BatchCQ."""
