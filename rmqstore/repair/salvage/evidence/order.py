"""Decides whether a queue's units or its records' headers are right if their queue offsets differ. Pure.

A broker assigns queue offsets in the order of the log, and writes the units in the same order. So the headers are
damaged in two cases: the units point to rising offsets while the queue offsets in the headers do not rise; or the units
on both sides agree with their messages, and there are exactly as many records between them as queue offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from rmqstore.checks.log.queue_parts import QueuePart, Shifted

UnitAt = Callable[[int], tuple[int, int] | None]
"""(commitlog offset, tags code) of the unit at a queue offset; None without a unit."""

_MOST = 10_000  # units of one group


def proved_by_units(part: QueuePart, unit_at: UnitAt) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of units that prove the queue offsets of the records to which they point."""
    for group in _adjoining(part.shifted):
        start, stop = group[0].start, group[-1].stop
        if stop - start > _MOST or start == 0 or not _agrees(part, start - 1):
            continue
        at_end = unit_at(stop) is None
        if not at_end and not _agrees(part, stop):
            continue
        if at_end and _rise(group, start - 1):
            continue  # the headers are as good as the units: the queue may lack units before them
        places = [unit_at(index) for index in range(start - 1, stop if at_end else stop + 1)]
        offsets = [place[0] for place in places if place is not None]
        if len(offsets) == len(places) and all(a < b for a, b in pairwise(offsets)):
            yield start, stop


def _adjoining(shifted: list[Shifted]) -> Iterator[list[Shifted]]:
    """Yield the shifted ranges of units, with adjacent ones as a group."""
    group: list[Shifted] = []
    for one in sorted(shifted, key=lambda s: s.start):
        if group and one.start != group[-1].stop:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _agrees(part: QueuePart, index: int) -> bool:
    """Return whether the unit at a queue offset points to a message with this queue offset."""
    return any(a <= index < b for a, b in part.accounted) and not any(s.start <= index < s.stop for s in part.shifted)


def _rise(group: list[Shifted], before: int) -> bool:
    """Return whether the queue offsets in the headers rise in the order of the units."""
    for one in group:
        if one.start - one.by <= before:
            return False
        before = one.stop - 1 - one.by
    return True
