"""A scan is a tiling: every byte of a queue of files belongs to exactly one run.

Wrote positions, dirty tails and losses are read off the tiling; nothing here touches a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rmqstore.formats.message import Fault

if TYPE_CHECKING:
    from rmqstore.scan.columns import Columns


class Kind(IntEnum):
    """What a run of bytes is."""

    RECORDS = 1  # good records, one behind the other
    BLANK = 2  # the end-of-file record and the undefined bytes behind it
    ZERO = 3  # zero bytes where a record could start
    DIRTY = 4  # anything else: damage, or a record that is not what it says
    HOLE = 5  # bytes that no file holds: a missing file, or the part that a short file lacks
    INTERNAL = 6  # a DLedger entry without a message: NOOP or CONFIG_CHANGE of DLedger 0.4


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes [start, stop) of one kind, global offsets of the queue.

    `count` records: of RECORDS, and of DIRTY runs that are whole records of the wrong place. `cause` says why a run
    is DIRTY. `claimed` is the size that a BLANK says. `columns` are there while streaming only: for RECORDS, and for
    a DIRTY run that is one framed record.
    """

    kind: Kind
    start: int
    stop: int
    count: int = 0
    cause: Fault = Fault.NONE
    claimed: int = 0
    columns: Columns | None = None


BLOCK_BITS = 20  # blocks of a MiB


class Tiling:
    """The runs of one queue of files, packed; neighbouring RECORDS runs of a file are one.

    Units:  bytes, global offsets.
    Errors: ValueError when a run does not start where the one before stopped: a tiling has no gaps.
    """

    __slots__ = ("_causes", "_claims", "_counts", "_kinds", "_starts", "breaks", "parsed", "start", "stop")

    def __init__(self, start: int) -> None:
        self.start = start
        self.stop = start
        self.breaks: frozenset[int] = frozenset()  # file starts: RECORDS are not merged over them
        self.parsed: set[int] | None = None
        """Blocks (offset >> BLOCK_BITS) where records with a property of PARSED_NAMES start; None: not known."""
        self._kinds = array("b")
        self._starts = array("q")
        self._counts = array("q")
        self._causes = array("b")
        self._claims = array("q")

    def add(self, run: Run) -> None:
        """Append the next run."""
        if run.start != self.stop or run.stop < run.start:
            raise ValueError(f"run {run.kind.name} [{run.start}, {run.stop}) does not follow {self.stop}")
        if run.stop == run.start:
            return
        mergeable = run.kind is Kind.RECORDS or (run.kind is Kind.DIRTY and run.cause is Fault.PHYSICAL_OFFSET)
        if (
            self._kinds
            and mergeable
            and self._kinds[-1] == run.kind
            and self._causes[-1] == run.cause
            and run.start not in self.breaks
        ):
            self._counts[-1] += run.count
        else:
            self._kinds.append(run.kind)
            self._starts.append(run.start)
            self._counts.append(run.count)
            self._causes.append(run.cause)
            self._claims.append(run.claimed)
        self.stop = run.stop

    def extend(self, runs: Iterable[Run]) -> None:
        """Append runs one after the other."""
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, i: int) -> Run:
        n = len(self._kinds)
        i = i + n if i < 0 else i
        stop = self._starts[i + 1] if i + 1 < n else self.stop
        return Run(
            Kind(self._kinds[i]),
            self._starts[i],
            stop,
            self._counts[i],
            Fault(self._causes[i]),
            self._claims[i],
        )

    def __iter__(self) -> Iterator[Run]:
        return (self[i] for i in range(len(self._kinds)))

    def find(self, offset: int) -> Run | None:
        """The run that holds a byte, or None outside of the tiling."""
        if not self.start <= offset < self.stop:
            return None
        from bisect import bisect_right

        return self[bisect_right(self._starts, offset) - 1]

    def disbelieve(self, start: int, cause: Fault) -> None:
        """Make the run that begins at `start` (global offset) a DIRTY one: something contradicts what it looked like.

        Errors: ValueError when no run begins there.
        """
        from bisect import bisect_left

        i = bisect_left(self._starts, start)
        if i == len(self._starts) or self._starts[i] != start:
            raise ValueError(f"no run begins at {start}")
        self._kinds[i], self._counts[i], self._causes[i] = Kind.DIRTY, 0, cause

    def is_plain(self, start: int, stop: int) -> bool:
        """Whether it is known that no record that starts in [start, stop) has properties to be parsed one by one."""
        if self.parsed is None or stop <= start:
            return False
        first, last = start >> BLOCK_BITS, (stop - 1) >> BLOCK_BITS
        if last - first < len(self.parsed):
            return self.parsed.isdisjoint(range(first, last + 1))
        return not any(first <= block <= last for block in self.parsed)

    def wrote(self) -> int:
        """Real wrote position: the offset just past the last good record, or entry without a message.

        Units:  bytes, global offset in the queue (not in the file).
        Errors: none; an empty tiling gives the queue's start.
        Source: MappedFileQueue#getMaxWrotePosition, RocketMQ 5.4.0
        """
        for i in range(len(self._kinds) - 1, -1, -1):
            if self._kinds[i] in (Kind.RECORDS, Kind.INTERNAL):
                return self[i].stop
        return self.start

    def next_append(self) -> int:
        """Where a broker would write next.

        The wrote position, unless a BLANK closes that file and another file follows: then the start of that file.
        A BLANK that closes the last file is written over: CommitLog#recoverNormally leaves processOffset at its start.
        Units: bytes, global offset.
        """
        at = self.wrote()
        for run in self.tail():
            if run.kind is not Kind.BLANK or run.stop == self.stop:
                break
            at = run.stop
        return at

    def first_bad(self) -> Run | None:
        """The first run that is neither records, BLANK nor the zero bytes behind the last record."""
        wrote = self.wrote()
        for run in self:
            if run.kind in (Kind.DIRTY, Kind.HOLE) or (run.kind is Kind.ZERO and run.start < wrote):
                return run
        return None

    def tail(self) -> list[Run]:
        """The runs behind the wrote position."""
        wrote = self.wrote()
        out = []
        for i in range(len(self._kinds) - 1, -1, -1):
            run = self[i]
            if run.start < wrote:
                break
            out.append(run)
        return out[::-1]

    def has(self, kind: Kind) -> bool:
        """Whether there is a run of a kind."""
        return int(kind) in self._kinds

    def records(self) -> int:
        """Number of good records."""
        return sum(c for k, c in zip(self._kinds, self._counts, strict=True) if k == Kind.RECORDS)
