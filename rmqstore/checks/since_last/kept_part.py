"""The result of the last run for a part of the log that is sound."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import NamedTuple

from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.log.beside_split import BesideSplit
from rmqstore.checks.log.log_contents import LogContents
from rmqstore.checks.log.log_pass import LogPart, PassOptions
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.scan.tiling import Kind, Run
from rmqstore.scan.workers import Split

SETTLED = 120
"""Seconds for which a file must have been unchanged when it was read."""
_WHOLE = (Kind.RECORDS, Kind.BLANK)


class Identity(NamedTuple):
    """Properties of a file that change with its content. Times in ns."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(file: MappedFile) -> Identity | None:
        """Return the present identity of a file; None if it is unknown, or without the file."""
        found = file.files.identity(file.path)
        return None if found is None else Identity(found.inode, found.length, found.mtime_ns, found.ctime_ns)

    def is_settled(self, now: float) -> bool:
        """Return whether the file had been unchanged for `SETTLED` at a time (s since the epoch)."""
        return now - max(self.mtime_ns, self.ctime_ns) / 1e9 >= SETTLED


@dataclass(slots=True)
class KeptPart(LogContents):
    """The fields of a sound `LogPart`, under the same names, and what they depend on.

    `read_at`: epoch ms. `runs`: (kind, start, stop, count, claimed).
    """

    identity: tuple[int, int, int, int]
    options: str
    read_at: int
    index_begin: int | None
    beside: BesideSplit
    begin: int | None
    end: int | None
    runs: list[tuple[int, int, int, int, int]]
    parsed: set[int]
    newer: int
    units_complete: bool

    def part(self) -> LogPart:
        """Return the original part."""
        values = {name: getattr(self, name) for name in _SAME_IN_BOTH}
        runs = [Run(Kind(kind), start, stop, count, claimed=claimed) for kind, start, stop, count, claimed in self.runs]
        return LogPart(**values, runs=runs, beside=self.beside)

    def fits(self, split: Split) -> bool:
        """Return whether the runs are a tiling of the split; the state file is not trusted."""
        at = self.begin
        for kind, start, stop, count, _ in self.runs:
            if kind not in _WHOLE or start != at or stop <= start or count < 0:
                return False
            at = stop
        low, high = split.file.start + split.start, split.file.start + split.file.file_size
        return at == self.end and (self.begin is None or low <= self.begin <= high) and (at is None or at <= high)


_SAME_IN_BOTH = [f.name for f in fields(KeptPart) if f.name in {g.name for g in fields(LogPart)} - {"runs", "beside"}]


def kept_part(part: LogPart, identity: Identity, options: PassOptions, read_at: int) -> KeptPart | None:
    """Return what to keep of a part; None if anything in it is damaged, unusual or incomplete."""
    catalog = options.index
    odd = (
        part.vanished or part.beside is None or part.inner or part.batches or part.findings.counts,
        any(run.kind not in _WHOLE for run in part.runs),
        part.index != IndexTally(),
        part.entries.wrong or part.entries.gaps or part.entries.internal,
        any(queue.shifted for queue in part.queues.values()),
        catalog is not None and part.end is not None and catalog.horizon < part.end,
    )
    if any(odd) or part.beside is None:
        return None
    runs = [(int(r.kind), r.start, r.stop, r.count, r.claimed) for r in part.runs]
    begin = catalog.start if catalog is not None else None
    values = {name: getattr(part, name) for name in _SAME_IN_BOTH}
    return KeptPart((*identity,), options_key(options), read_at, begin, part.beside, runs=runs, **values)


def options_key(options: PassOptions) -> str:
    """Return a digest of all options that affect the result of a file."""
    known = None if options.known_topics is None else sorted(options.known_topics)
    relevant = (
        options.given,
        (options.scan.crc, options.scan.check_offset),
        (options.crosscheck, options.forecast, options.index is not None),
        (sorted(options.batch_topics), known),
        None if options.levels is None else (options.levels.delays, options.levels.earlier),
    )
    return hashlib.blake2b(repr(relevant).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
