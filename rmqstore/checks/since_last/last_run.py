"""Reuse the results of the last run for unchanged log files, and write those of this run.

Only the results of sound parts are kept; every run reads damaged, unusual or incomplete parts again. A kept part is
used again if all of this is true:

* its file has the same path, inode, length, modification and change time as when it was read, and had been unchanged
  for `SETTLED` seconds then: writes to a mapped page change the times only when the system writes the page back;
* the version of rmqstore and the options that affect the checks are the same;
* the units of consume queues, the index entries and the units of the DLedger index that it was compared with have not
  changed; they are read again and compared by digest;
* it was read at most `OLDEST` seconds ago: bytes can also change on the disk itself.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from rmqstore.checks.log.log_pass import LogPart, PassOptions, watched_reads
from rmqstore.checks.problems.report import Findings, Reused
from rmqstore.checks.since_last.kept_part import Identity, kept_part, options_key
from rmqstore.checks.since_last.state_file import SCHEMA, OldState, packed, store_name, unpacked
from rmqstore.scan.workers import Mapper, Split, map_ordered

if TYPE_CHECKING:
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.log.commitlog import IndexCheck
    from rmqstore.files.store import Store

OLDEST = 30 * 86_400
"""Seconds after which a kept part is read again."""


class LastRun:
    """Reuses the kept parts of the last run, and passes the state file of this run to `write`, line by line.

    Call `begin` before each verification of the store, and `end` after the last one.
    """

    digests = True

    def __init__(self, store: Path, old: OldState, write: Callable[[bytes], object]) -> None:
        self._store, self._old, self._write = store, old, write
        self._digest = hashlib.blake2b(digest_size=32)
        self._written: set[bytes] = set()
        self._used: dict[Path, tuple[int, int]] = {}
        head = {"schema": SCHEMA, "rmqstore": old.version, "store": store_name(store)}
        self._line(orjson.dumps(head) + b"\n")

    def begin(self) -> None:
        """Start a verification."""
        self._used.clear()

    def index(self, store: Store, findings: Findings, check: IndexCheck) -> IndexCatalog:
        """Check the index files: they are read in every run."""
        return check(findings)

    def end(self) -> None:
        """Write the last line."""
        self._write(self._digest.hexdigest().encode() + b"\n")
        self._old.close()

    @property
    def reused(self) -> Reused | None:
        """The files that this verification has not read; None if it has read all."""
        if not self._used:
            return None
        sizes, times = zip(*self._used.values(), strict=True)
        return Reused(sorted(str(path) for path in self._used), sum(sizes), min(times))

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that reuses known parts, and reads the others with `inner` or `jobs` processes."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            # a known part is unpacked here and again in _recall: kept, the parts would grow with the store
            # known parts do not include units
            known = [not options.keep_units and self._is_known(split, options) for split in splits]
            fresh = [split for split, same in zip(splits, known, strict=True) if not same]
            started = time.time()
            before = {split.file.path: Identity.of(split.file) for split in fresh}
            parts = map_ordered(function, fresh, jobs) if inner is None else inner(function, fresh)
            for split, same in zip(splits, known, strict=True):
                if same:
                    yield split, self._recall(split)
                    continue
                _, part = next(parts)
                identity = before[split.file.path]
                if identity is not None and identity == Identity.of(split.file):
                    self._keep(split, part, identity, options, started)
                yield split, part

        return mapped

    def _place(self, split: Split) -> bytes:
        path = os.path.relpath(split.file.path, self._store)
        where = [
            os.fsencode(path).hex(),
            split.file.start,
            split.file.file_size,
            split.start,
            split.stop,
            split.body_offset,
        ]
        return orjson.dumps(where)

    def _is_known(self, split: Split, options: PassOptions) -> bool:
        """Return whether the last run's part of a split can be used again."""
        line = self._old.line(self._place(split))
        identity = Identity.of(split.file)
        if not line or identity is None or split.file.stop > options.stop_before:
            return False
        try:
            part = unpacked(line)
        except ValueError:
            return False
        age = time.time() - part.read_at / 1000
        if part.identity != identity or part.options != options_key(options) or not 0 <= age <= OLDEST:
            return False
        begin = options.index.start if options.index is not None else None
        if begin is not None and (part.index_begin is None or begin < part.index_begin):
            return False  # more messages should have index entries now
        beside = watched_reads(split.body_offset, options)
        return part.fits(split) and beside.digests(part.beside) == part.beside.digests

    def _recall(self, split: Split) -> LogPart:
        place = self._place(split)
        line = self._old.line(place)
        part = unpacked(line)
        known, oldest = self._used.get(split.file.path, (0, part.read_at))
        size = max(0, min(split.file.length, split.stop) - split.start)
        self._used[split.file.path] = (known + size, min(oldest, part.read_at))
        self._put(place, line)
        return part.part()

    def _keep(self, split: Split, part: LogPart, identity: Identity, options: PassOptions, started: float) -> None:
        place, line = self._place(split), b""
        if identity.is_settled(started) and split.file.stop <= options.stop_before:
            kept = kept_part(part, identity, options, int(started * 1000))
            try:
                line = packed(kept) if kept is not None else b""
            except TypeError:  # names that are not valid text
                line = b""
        if line or place in self._written:  # an empty line replaces the part of an earlier verification
            self._put(place, line)

    def _put(self, place: bytes, line: bytes) -> None:
        self._written.add(place)
        self._line(place + b"\t" + line + b"\n")

    def _line(self, line: bytes) -> None:
        self._digest.update(line)
        self._write(line)
