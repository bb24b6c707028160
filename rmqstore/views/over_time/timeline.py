"""Steps of time that fit a number of columns, for charts of messages over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rmqstore.views.usage import TIMES

_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
_STEPS = (
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 7, 14, 28, 91, 365)),
)
_LONGEST = 366 * 10_000 * _D  # what is longer comes from damaged times


@dataclass(frozen=True, slots=True)
class Timeline:
    """`count` steps of `step` ms each, the first of which begins at `start` (ms, a multiple of `step` in UTC)."""

    start: int
    step: int
    count: int

    @classmethod
    def of(cls, first: int, last: int, most: int, *, least: int = _S) -> Timeline:
        """Return at most `most` steps of at least `least` ms that cover the times from `first` to `last` (ms)."""
        for step in _STEPS:
            if step >= least and last // step - first // step < most:
                return cls(first // step * step, step, last // step - first // step + 1)
        days = max(365, (last - first) // _D // most + 1)
        step = days * _D
        return cls(first // step * step, step, last // step - first // step + 1)

    @property
    def stop(self) -> int:
        """The end of the last step (ms)."""
        return self.start + self.count * self.step

    @property
    def unit(self) -> str:
        """The coarsest dimension of time that divides the steps."""
        return next(name for name, length in TIMES.items() if self.step % length == 0)

    def sums(self, rows: Iterable[tuple[int, int]]) -> list[int]:
        """Return the sum of the values in each step, from rows (time in ms, value)."""
        out = [0] * self.count
        for time, value in rows:
            out[(time - self.start) // self.step] += value
        return out


def unit_for(span: tuple[int, int] | None, most: int) -> str:
    """Return the dimension of time by which to count messages of a span (ms), to show them in `most` steps."""
    if span is None or not 0 <= span[1] - span[0] < _LONGEST:
        return "hour"
    return Timeline.of(*span, most).unit


def label_time(label: object) -> int:
    """Return the time (ms) of the label of a time in a table of usage; times out of range are labels in ms."""
    text = str(label)
    if text.lstrip("-").isdigit():
        return int(text)
    when = datetime.fromisoformat(text)
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def timed(rows: Iterable[Mapping[str, Any]], unit: str, value: str) -> list[tuple[int, int]]:
    """Return (time in ms, value) of rows of usage by a unit of time."""
    return [(label_time(row[unit]), int(row[value])) for row in rows]
