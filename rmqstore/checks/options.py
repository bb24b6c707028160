"""The options of a verification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore.checks.log.commitlog import KnownParts, UnitKeeper
    from rmqstore.checks.problems.report import Finding


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How to verify.

    `jobs`: number of processes (None: all cores). `quick`: do not check body CRCs. `only`: report only these codes.
    `broker`: version for the forecast; `settings`: override broker.conf in the forecast.
    `sink` gets every finding as soon as it is made, `progress` the number of bytes read. `keep`: number of findings to
    list; all are counted. `split_size`: bytes of the log for one task.
    `topics`, `queues`: report only findings about these. `since`, `until` (ms of store time): read only files that may
    have such messages. `max_duration` (s) ends the run early, and `start_at` (see `Report.resume_at`) resumes it.
    `units` collects the units that the messages should have. `trusts_units`: do not compare queues and DLedger index
    with the log, as they are derived from it afterwards. `last_run`: parts of the log that need not be read again.
    `ranges`: forecast the starts of all versions.
    A report that leaves something out is never clean.
    """

    jobs: int | None = None
    quick: bool = False
    only: tuple[str, ...] = ()
    broker: str = ""
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
    trusts_units: bool = False
    last_run: KnownParts | None = None
    ranges: bool = False

    @property
    def reads_whole_log(self) -> bool:
        """Whether neither a time range nor an earlier run leaves out a part of the log."""
        return self.since is None and self.until is None and not self.start_at
