"""The logs of a store together, for the checks of queues: what is at an offset, and which topics exist.

A unit and its record may contradict each other. One such unit among many good ones proves that the header of its record
is damaged. Several units in a row that point to the same other queue, or a queue without good units, prove nothing
about records: the files of the queue belong to another queue, or to another broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rmqstore.checks.log.commitlog import LogResult, Misfiled
from rmqstore.checks.log.queue_parts import QueuePart
from rmqstore.checks.log.witnesses import Witnesses
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.formats import properties
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.message import MIN_SIZE, Message
from rmqstore.scan.tiling import Kind, Run
from rmqstore.texts import Text

_ROW = 3  # consecutive units that point to the same other queue: not caused by damaged records
_LEAST = 10  # units that fit nothing, before all queues count as foreign
NO_RECORD = Text("no record starts there")
IN_A_BLANK = Text("the file ends there with a BLANK")
ANOTHER_RECORD = Text("another record starts there")


class UnownedUnit(NamedTuple):
    """One unit. `reason` says why it points to no message; otherwise, the fields from `topic` on describe the message.

    `file`: start of the log file that the unit points into. `owned`: the message has its unit in its own queue.
    `sound`: the topic of the message is valid text.
    """

    number: int
    offset: int
    size: int
    tags: int
    file: int
    reason: str = ""
    topic: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    length: int = 0
    owned: bool = False
    sound: bool = True

    @property
    def kind(self) -> tuple[str, str, int, bool, int]:
        """Consecutive units of the same kind are reported together."""
        return self.reason, self.topic, self.queue_id, self.owned, self.file if self.reason else 0


class Held(NamedTuple):
    """A finding about units, held back until all queues were checked; `file` as in `UnownedUnit`, -1 if irrelevant."""

    finding: Finding
    file: int


@dataclass(slots=True)
class Pointing:
    """Where the units of a store point: `fit` to their message, `loose` not.

    `nowhere`: number of units that point to no message, by start of the log file; `lost`: units that point into damage,
    by start of the damage and by topic; `held`: findings that one finding about a file or all queues may replace;
    `moved`: queues whose directory has only units of one other queue, with that queue; None if that has its own units,
    or if most of them are of another log. `homes`: the same by that queue.
    """

    fit: int = 0
    loose: int = 0
    nowhere: Counter[int] = field(default_factory=Counter)
    lost: dict[int, Counter[str]] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    moved: dict[QueueName, QueueName | None] = field(default_factory=dict)
    homes: dict[QueueName, QueueName] = field(default_factory=dict)

    def move(self, directory: QueueName, owner: QueueName | None) -> None:
        """Note that a directory has the units of another queue; None if they prove nothing about it."""
        self.moved[directory] = owner
        if owner is not None:
            self.homes.setdefault(owner, directory)

    def queue_in(self, directory: QueueName) -> QueueName | None:
        """Return the queue whose units a directory, named by topic and queue id, has; None if they prove nothing."""
        if directory in self.moved:
            return self.moved[directory]
        return None if directory in self.homes else directory

    def directory_of(self, queue: QueueName) -> QueueName | None:
        """Return the directory, named by topic and queue id, with the units of a queue; None if there is none."""
        return self.homes.get(queue, None if queue in self.moved else queue)

    def damaged(self, start: int, topic: str, units: int = 1) -> None:
        """Count units of a topic that point into damage, except of light queues: they share messages of others."""
        lost = self.lost.setdefault(start, Counter())
        if not properties.is_lmq(topic):
            lost[topic] += units

    @property
    def foreign(self) -> bool:
        """Whether the queues and the log belong to different stores."""
        return self.loose >= _LEAST and self.loose > 9 * self.fit


def rows(loose: Iterable[UnownedUnit]) -> Iterator[list[UnownedUnit]]:
    """Group consecutive units of the same kind."""
    row: list[UnownedUnit] = []
    for one in loose:
        if row and (one.number != row[-1].number + 1 or one.kind != row[-1].kind):
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def are_of_another_queue(row: list[UnownedUnit], fit: int, known: bool) -> bool:
    """Whether consecutive units belong to another queue; otherwise, each of them may prove that its record is damaged.

    `fit`: number of good units of the queue. `known`: topics.json, or without it the log, has this topic, or does not
    have the other; and the directory is not a renamed one.
    """
    if row[0].reason:
        return False
    return len(row) >= _ROW or (not fit and (len(row) > 1 or not known))


def row_facts(row: list[UnownedUnit]) -> dict[str, Fact]:
    """Return the facts about consecutive units of the same kind."""
    one = row[0]
    facts: dict[str, Fact] = {"queue_offset": one.number}
    if len(row) > 1:
        return facts | {"units": len(row), "commitlog_offset": one.offset, "last_offset": row[-1].offset}
    return facts | {"commitlog_offset": one.offset, "size": one.size, "tags_code": one.tags}


@dataclass(slots=True)
class Logs:
    """The logs of a store in address order (legacy, then DLedger).

    `topics`: the names in topics.json; None: unreadable, or only in a backup of it. `lag_is_normal`: the broker was
    killed or is running, so the last messages may not be dispatched yet. `committed`: entries from here on are
    dispatched only after a leader has committed them (DLedger). `grows`: the log may continue after the part that was
    read. `queues`: joined over all logs. `foreign_from`: start of the first file of another broker, from which on queue
    offsets are not checked. `witnesses`: what lists messages that the log does not have.
    """

    results: list[LogResult]
    topics: frozenset[str] | None = None
    lag_is_normal: bool = False
    committed: int | None = None
    grows: bool = False
    queues: dict[QueueName, QueuePart] = field(default_factory=dict)
    misfiled: Misfiled = field(default_factory=Misfiled)
    pointing: Pointing = field(default_factory=Pointing)
    foreign_from: int | None = None
    witnesses: Witnesses = field(default_factory=Witnesses)

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
        log = self.at(offset)
        file = log.queue.find(offset) if log is not None else None
        return file.start if file is not None else -1

    def result_at(self, offset: int) -> LogResult:
        """Return the log that holds a record at a global offset."""
        return next(r for r in reversed(self.results) if offset >= r.tiling.start)

    def bad_between(self, low: int, high: int) -> bool:
        """Return whether there is damage, zeros or a hole within [low, high), including a gap between two logs."""
        return any(r.bad_between(low, high) for r in self.results) or self._lacks_between(low, high)

    def _lacks_between(self, low: int, high: int) -> bool:
        """Return whether files are missing between two logs within [low, high)."""
        between = ((a.tiling.stop, b.tiling.start) for a, b in pairwise(self.results))
        return any(stop < start and low < start and stop < high for stop, start in between)

    def loses_between(self, low: int, high: int) -> bool:
        """Return whether a message may be lost within [low, high): there is damage, or the filler of a repair."""
        return self.bad_between(low, high) or self._filled_between(low, high)

    def _filled_between(self, low: int, high: int) -> bool:
        """Return whether a filler of a repair is within [low, high)."""
        return any(low <= at < high for r in self.results for at in r.fillers)

    def hides_between(self, low: int, high: int) -> bool:
        """Return whether a message of any queue may be lost within [low, high): a damaged record names its own one."""
        bad = (run for r in self.results for run in r.tiling if run.kind in (Kind.DIRTY, Kind.HOLE, Kind.ZERO))
        unknown = any(not run.count and low < run.stop and run.start < high for run in bad)
        return unknown or self._lacks_between(low, high) or self._filled_between(low, high)

    @property
    def empties_queues(self) -> bool:
        """Whether messages of a queue without files may be lost: there is damage, or no message at all.

        A broker that cuts a queue at the end of the log leaves an empty directory, too.
        """
        return not self.queues or self.hides_between(self.witnesses.begin, self.wrote)

    def lose(self, offset: int, topic: str) -> None:
        """Note a unit of a topic that points into damage."""
        start = self.damage_at(offset)
        if start is not None:
            self.pointing.damaged(start, topic)

    def damage_at(self, offset: int) -> int | None:
        """Return the start of the damage that contains the byte at an offset, to which a unit points."""
        run = next(self._runs(offset), None)
        return None if run is None else run.start

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
        return next((run for run in self._runs(offset) if run.kind is Kind.BLANK), None)

    def _runs(self, offset: int) -> Iterator[Run]:
        return filter(None, (result.tiling.find(offset) for result in self.results))

    def hidden(self, offset: int, size: int) -> bool:
        """Return whether a unit, if no message contradicts it, points to a message that a BLANK has replaced.

        A broker writes a BLANK only after a file's last message. A BLANK at the end of the log does not count: the log
        may have been cut there.
        """
        run = self.blank_at(offset)
        if run is None or size < MIN_SIZE or offset + size > run.stop:
            return False
        return run.stop <= self.results[-1].wrote
