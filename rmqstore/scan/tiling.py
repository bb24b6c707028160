"""The result of a scan: a tiling, in which every byte of a mapped file queue belongs to exactly one run.

The wrote position, a dirty tail and losses follow from the tiling, without any I/O.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rmqstore.formats.message import Fault, NewerRecords
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.scan.columns import Columns


class Kind(IntEnum):
    """The kind of a run of bytes."""

    RECORDS = 1  # consecutive good records
    BLANK = 2  # the end-of-file record and the undefined bytes after it
    ZERO = 3  # zero bytes where a record could start, or what the buffer of `writeWithoutMmap` left there
    DIRTY = 4  # anything else: damage, or a framed record that fails a check
    HOLE = 5  # bytes that no file contains: a missing file, or the missing end of a short file
    INTERNAL = 6  # a DLedger entry without a message: NOOP or CONFIG_CHANGE of DLedger 0.4


@dataclass(frozen=True, slots=True)
class Run:
    """The bytes [start, stop) of one kind, as global offsets.

    `count` is the number of records: in RECORDS, and in DIRTY runs of framed records. `cause` is why a run is DIRTY,
    `claimed` the size stored in a BLANK. `columns` exist only during a scan: for RECORDS, and for a DIRTY run that is
    one framed record.
    """

    kind: Kind
    start: int
    stop: int
    count: int = 0
    cause: Fault = Fault.NONE
    claimed: int = 0
    columns: Columns | None = None


BLOCK_BITS = 20  # blocks of 1 MiB


class Tiling:
    """The runs of one mapped file queue in compact form; adjacent RECORDS runs of a file are merged.

    Units:  bytes, global offsets.
    Errors: ValueError if a run does not start where the previous one stopped: a tiling has no gaps.
    """

    __slots__ = ("_causes", "_claims", "_counts", "_kinds", "_starts", "breaks", "newer", "parsed", "start", "stop")

    def __init__(self, start: int) -> None:
        self.start = start
        self.stop = start
        self.breaks: frozenset[int] = frozenset()  # file starts, across which runs are not merged
        self.parsed: set[int] | None = None
        """Blocks (offset >> BLOCK_BITS) where records with a property of PARSED_NAMES start; None: unknown."""
        self.newer: NewerRecords | None = None
        """Kinds of good records that old brokers do not read; None: unknown."""
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
        """Append the next runs."""
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
        """Return the run that contains an offset; None outside the tiling."""
        if not self.start <= offset < self.stop:
            return None
        from bisect import bisect_right

        return self[bisect_right(self._starts, offset) - 1]

    def mark_dirty(self, start: int, cause: Fault) -> None:
        """Turn the run that starts at `start` into a DIRTY one, because other evidence contradicts it.

        Errors: ValueError if no run starts there.
        """
        from bisect import bisect_left

        i = bisect_left(self._starts, start)
        if i == len(self._starts) or self._starts[i] != start:
            raise ValueError(Text("no run starts at {start}", start=start))
        self._kinds[i], self._counts[i], self._causes[i] = Kind.DIRTY, 0, cause

    def is_plain(self, start: int, stop: int) -> bool:
        """Whether certainly no record that starts in [start, stop) has a property of PARSED_NAMES."""
        if self.parsed is None or stop <= start:
            return False
        first, last = start >> BLOCK_BITS, (stop - 1) >> BLOCK_BITS
        if last - first < len(self.parsed):
            return self.parsed.isdisjoint(range(first, last + 1))
        return not any(first <= block <= last for block in self.parsed)

    def wrote(self) -> int:
        """Return the real wrote position: the global offset after the last good record or internal entry.

        Without any record this is the start of the tiling.
        Source: MappedFileQueue#getMaxWrotePosition, RocketMQ 5.4.0
        """
        for i in range(len(self._kinds) - 1, -1, -1):
            if self._kinds[i] in (Kind.RECORDS, Kind.INTERNAL):
                return self[i].stop
        return self.start

    def next_append(self) -> int:
        """Return the global offset where a broker would append next.

        This is the wrote position, or the start of the next file if a BLANK closes the current one. A broker overwrites
        a BLANK that closes the last file, because CommitLog#recoverNormally leaves processOffset at its start.
        """
        at = self.wrote()
        for run in self.tail():
            if run.kind is not Kind.BLANK or run.stop == self.stop:
                break
            at = run.stop
        return at

    def first_bad(self) -> Run | None:
        """Return the first run that is DIRTY, a HOLE, or ZERO before the last record; None without one."""
        wrote = self.wrote()
        for run in self:
            if run.kind in (Kind.DIRTY, Kind.HOLE) or (run.kind is Kind.ZERO and run.start < wrote):
                return run
        return None

    def tail(self) -> list[Run]:
        """Return the runs after the wrote position."""
        wrote = self.wrote()
        runs = []
        for i in range(len(self._kinds) - 1, -1, -1):
            run = self[i]
            if run.start < wrote:
                break
            runs.append(run)
        return runs[::-1]

    def has(self, kind: Kind) -> bool:
        return int(kind) in self._kinds

    def records(self) -> int:
        """Return the number of good records."""
        return sum(c for k, c in zip(self._kinds, self._counts, strict=True) if k == Kind.RECORDS)
