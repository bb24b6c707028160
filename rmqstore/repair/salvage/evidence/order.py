"""Whether a queue's units or its records' headers are right, where they say different queue offsets. Pure.

A broker gives out queue offsets in the order of the log, and writes the units in the same order. Where units point
ever further while the headers of their records do not rise, or where the units in front and behind are borne out by
their messages and leave just as many places as there are records between them, the headers are damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from rmqstore.checks.log.queue_parts import QueuePart, Shifted

UnitAt = Callable[[int], tuple[int, int] | None]
"""(commitlog offset, tags code) of the unit at a queue offset; None where none is."""

_MOST = 10_000  # units of one stretch


def proved_by_units(part: QueuePart, unit_at: UnitAt) -> Iterator[tuple[int, int]]:
    """Stretches of units, half-open, that prove the queue offsets of the records that they point to."""
    for group in _adjoining(part.shifted):
        start, stop = group[0].start, group[-1].stop
        if stop - start > _MOST or start == 0 or not _borne_out(part, start - 1):
            continue
        at_end = unit_at(stop) is None
        if not at_end and not _borne_out(part, stop):
            continue
        if at_end and _rise(group, start - 1):
            continue  # the headers are as good as the units: the queue may lack units before them
        places = [unit_at(index) for index in range(start - 1, stop if at_end else stop + 1)]
        offsets = [place[0] for place in places if place is not None]
        if len(offsets) == len(places) and all(a < b for a, b in pairwise(offsets)):
            yield start, stop


def _adjoining(shifted: list[Shifted]) -> Iterator[list[Shifted]]:
    """Stretches of units at the wrong place, those together that touch."""
    group: list[Shifted] = []
    for one in sorted(shifted, key=lambda s: s.start):
        if group and one.start != group[-1].stop:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _borne_out(part: QueuePart, index: int) -> bool:
    """Whether the unit at a queue offset points to the message that says it."""
    return any(a <= index < b for a, b in part.accounted) and not any(s.start <= index < s.stop for s in part.shifted)


def _rise(group: list[Shifted], before: int) -> bool:
    """Whether the queue offsets that the headers say rise, in the order of the units."""
    for one in group:
        if one.start - one.by <= before:
            return False
        before = one.stop - 1 - one.by
    return True
