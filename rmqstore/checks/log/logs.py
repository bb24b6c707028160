"""The logs of a store together, for the checks of queues: what is at an offset, and which topics exist."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from rmqstore.checks.log.commitlog import LogResult, Misfiled
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.unowned_units import Pointing
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.formats.message import MIN_SIZE, Message
from rmqstore.scan.tiling import Kind, Run

Name = tuple[str, int]


@dataclass(slots=True)
class Logs:
    """The logs of a store in address order (legacy, then DLedger).

    `topics`: the names in topics.json; None: unreadable, or only in a backup of it. `lag_is_normal`: the broker was
    killed or is running, so the last messages may not be dispatched yet. `committed`: entries from here on are
    dispatched only after a leader has committed them (DLedger). `grows`: the log may continue after the part that was
    read. `queues`: joined over all logs. `foreign_from`: start of the first file of another broker, from which on queue
    offsets are not checked.
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

    def at(self, offset: int) -> LogResult | None:
        """Return the log with a file that contains a global offset."""
        return next((result for result in self.results if result.queue.find(offset) is not None), None)

    def record(self, offset: int, size: int) -> Message | None:
        """Return the message of at most `size` bytes at a global offset; None unless its own position agrees."""
        log = self.at(offset)
        message = message_at(log.queue, offset, size) if log is not None else None
        return message if message is not None and message.physical_offset == offset else None

    def file_start(self, offset: int) -> int:
        """Return the start of the log file that holds a global offset; -1 without one."""
        found = (result.queue.find(offset) for result in self.results)
        return next((file.start for file in found if file is not None), -1)

    def result_at(self, offset: int) -> LogResult:
        """Return the log that holds a record at a global offset."""
        return next(r for r in reversed(self.results) if offset >= r.tiling.start)

    def bad_between(self, low: int, high: int) -> bool:
        """Return whether there is damage, zeros or a hole within [low, high), including a gap between two logs."""
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
        """Return whether the byte at an offset is in damage, zeros or a hole of a log, which have their own finding.

        A BLANK and the zeros after the end of the log do not count: no finding about them explains a lost message.
        """
        for i, result in enumerate(self.results):
            run = result.tiling.find(offset)
            if run is not None:
                followed = i + 1 < len(self.results)
                zeros = run.kind is Kind.ZERO and (run.start < result.wrote or followed)
                return zeros or run.kind in (Kind.DIRTY, Kind.HOLE)
        # missing files between a legacy log and the first DLedger file
        return any(a.tiling.stop <= offset < b.tiling.start for a, b in pairwise(self.results))

    def blank_at(self, offset: int) -> Run | None:
        """Return the BLANK that contains the byte at an offset; None if it is not in a BLANK."""
        runs = (result.tiling.find(offset) for result in self.results)
        return next((run for run in runs if run is not None and run.kind is Kind.BLANK), None)

    def hidden(self, offset: int, size: int) -> bool:
        """Return whether a unit, if no message contradicts it, points to a message that a BLANK has replaced.

        A broker writes a BLANK only after a file's last message. A BLANK at the end of the log does not count: the log
        may have been cut there.
        """
        run = self.blank_at(offset)
        if run is None or size < MIN_SIZE or offset + size > run.stop:
            return False
        return run.stop <= self.results[-1].wrote
