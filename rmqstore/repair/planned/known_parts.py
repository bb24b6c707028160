"""Keeps the sound parts of an examination, so that the examination after a plan reads only what the plan changes.

A part is used again under the same conditions as with `--since-last`, see `checks/since_last/last_run.py`, except that
the plan tells which bytes change. Parts are kept in a temporary file, because their size grows with the store.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rmqstore.checks.log.log_pass import LogPart, PassOptions, watched_reads
from rmqstore.checks.since_last.kept_part import Identity, KeptPart, kept_part, options_key
from rmqstore.files.mapped_file_queue import offset_to_file_name
from rmqstore.repair.journal.disk import Scratch
from rmqstore.repair.planned.overlay import Overlay
from rmqstore.scan.workers import Mapper, Split, map_ordered

_Place = tuple[Path, int, int, int, int]
_NO_IDENTITY = Identity(0, 0, 0, 0)


class FirstParts:
    """Keeps the sound parts of an examination while it reads the log."""

    reused = None

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._places: dict[_Place, tuple[int, int]] = {}

    def begin(self) -> None:
        """Start an examination."""
        self._places.clear()

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that keeps the sound parts."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            parts = map_ordered(function, splits, jobs) if inner is None else inner(function, splits)
            for split, part in parts:
                self._keep(split, part, options)
                yield split, part

        return mapped

    def _keep(self, split: Split, part: LogPart, options: PassOptions) -> None:
        kept = kept_part(part, _NO_IDENTITY, options, 0)
        if kept is not None:
            data = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
            self._places[_place(split)] = (self._scratch.append(data), len(data))

    def find(self, split: Split) -> KeptPart | None:
        """Return the part of a split; None if it was not sound, or not read."""
        place = self._places.get(_place(split))
        if place is None:
            return None
        found: KeptPart = pickle.loads(self._scratch.read(place[1], place[0]))
        return found


class PartsAfter:
    """Uses the parts of the first examination again where a plan changes nothing.

    What it changes is read in this process: contents of a plan cannot be sent to others.
    """

    reused = None

    def __init__(self, first: FirstParts, overlay: Overlay) -> None:
        self._first = first
        self._overlay = overlay

    def begin(self) -> None:
        """Start an examination."""

    def mapper(self, options: PassOptions, jobs: int, inner: Mapper | None) -> Mapper:
        """Return a mapper that reads only what is not known."""

        def mapped(function: Callable[[Split], Any], splits: Sequence[Split]) -> Iterator[tuple[Split, Any]]:
            for split in splits:
                known = self._first.find(split)
                same = known is not None and self._can_be_used(known, split, options)
                yield split, known.part() if known is not None and same else function(split)

        return mapped

    def _can_be_used(self, known: KeptPart, split: Split, options: PassOptions) -> bool:
        """Return whether the part is what reading the split now would give."""
        file = split.file
        if file.stop > options.stop_before or known.options != options_key(options):
            return False
        begin = options.index.start if options.index is not None else None
        if begin is not None and (known.index_begin is None or begin < known.index_begin):
            return False  # more messages should have index entries now
        stop = max(split.stop, (known.end or 0) - file.start)
        if not self._overlay.keeps(file.path, split.start, stop):
            return False
        following = file.path.with_name(offset_to_file_name(file.stop))  # a BLANK is judged by the next file
        if split.stop >= min(file.length, file.file_size) and self._overlay.changes(following):
            return False
        return watched_reads(split.body_offset, options).finds_the_same(known.beside)


def _place(split: Split) -> _Place:
    return split.file.path, split.file.start, split.start, split.stop, split.body_offset
