"""The logs of a store side by side, as the checks of queues ask them: what is at an offset, what is known of topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from rmqstore.checks.log.commitlog import LogResult, Misfiled
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.unowned_units import Pointing
from rmqstore.files.records import message_at
from rmqstore.formats.message import MIN_SIZE, Message
from rmqstore.scan.tiling import Kind, Run

Name = tuple[str, int]


@dataclass(slots=True)
class Logs:
    """The logs of a store in address order (legacy, then DLedger), and what is known of its topics.

    `topics` are the names in topics.json (None: it could not be read); `lag_is_normal`: the broker was killed, or is
    running, so that the last messages may not have been dispatched yet. `committed`: data at or behind it is not
    dispatched before a leader has committed it (DLedger). `queues` joins the logs' queues. `foreign_from`: start of the
    first file that is another broker's, from which on queue offsets say nothing.
    """

    results: list[LogResult]
    topics: frozenset[str] | None = None
    lag_is_normal: bool = False
    committed: int | None = None
    grows: bool = False
    queues: dict[Name, QueuePart] = field(default_factory=dict)
    misfiled: Misfiled = field(default_factory=Misfiled)
    pointing: Pointing = field(default_factory=Pointing)
    foreign_from: int | None = None

    @property
    def min_offset(self) -> int:
        return min((r.min_offset for r in self.results if r.queue.files), default=0)

    @property
    def wrote(self) -> int:
        return max((r.reaches for r in self.results), default=0)

    def record(self, offset: int, size: int) -> Message | None:
        """The message of at most `size` bytes that starts at a global offset and says so itself."""
        log = next((result.queue for result in self.results if result.queue.find(offset) is not None), None)
        message = message_at(log, offset, size) if log is not None else None
        return message if message is not None and message.physical_offset == offset else None

    def file_start(self, offset: int) -> int:
        """Start of the log file that holds a global offset; -1 without one."""
        found = (result.queue.find(offset) for result in self.results)
        return next((file.start for file in found if file is not None), -1)

    def result_at(self, offset: int) -> LogResult:
        """The log that holds a record at a global offset."""
        return next(r for r in reversed(self.results) if offset >= r.tiling.start)

    def bad_between(self, low: int, high: int) -> bool:
        """Whether damage, zeros or a hole lie within [low, high), also where no file is between two logs."""
        if any(r.bad_between(low, high) for r in self.results):
            return True
        between = ((a.tiling.stop, b.tiling.start) for a, b in pairwise(self.results))
        return any(stop < start and low < start and stop < high for stop, start in between)

    def lose(self, offset: int, topic: str) -> None:
        """Note a unit of a topic that points into damage."""
        runs = (result.tiling.find(offset) for result in self.results)
        start = next((run.start for run in runs if run is not None), None)
        if start is not None:
            self.pointing.damaged(start, topic)

    def damaged(self, offset: int) -> bool:
        """Whether the byte at an offset lies in damage, zeros or a hole of a log, which has its own finding.

        Neither a BLANK nor the zeros behind the end of the log are damage: nothing else says what a unit there lost.
        """
        for i, result in enumerate(self.results):
            run = result.tiling.find(offset)
            if run is not None:
                followed = i + 1 < len(self.results)
                zeros = run.kind is Kind.ZERO and (run.start < result.wrote or followed)
                return zeros or run.kind in (Kind.DIRTY, Kind.HOLE)
        # files between a legacy log and DLedger's first one
        return any(a.tiling.stop <= offset < b.tiling.start for a, b in pairwise(self.results))

    def blank_at(self, offset: int) -> Run | None:
        """The BLANK that holds the byte at an offset; None without one."""
        runs = (result.tiling.find(offset) for result in self.results)
        return next((run for run in runs if run is not None and run.kind is Kind.BLANK), None)

    def hidden(self, offset: int, size: int) -> bool:
        """Whether a unit that no message contradicts names a message where a BLANK is now.

        A broker puts a BLANK only behind a file's last message. At the end of the log nothing follows it: there it may
        be the end of a log that was cut.
        """
        run = self.blank_at(offset)
        if run is None or size < MIN_SIZE or offset + size > run.stop:
            return False
        return run.stop <= self.results[-1].wrote
