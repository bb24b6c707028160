"""The rate at which all processes of a command read, together: logs, queues, index, everything.

The rate belongs to the process, as a limit of the operating system does. What reads the bytes of a store or of a
repository reports them here (`took`), below everything else, so that no reader can forget the rate. Files of RocksDB
are read by its library; the rows that it returns count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


class Pace(NamedTuple):
    """A rate, bytes per second, and the clock of the processes that share it.

    The clock shows (`value`) the time at which what was read so far is within the rate: `time.monotonic`, the same in
    all processes.
    """

    rate: int
    clock: Any


def _own_clock() -> Any:
    """Return the clock of a process that is alone: multiprocessing takes 15 ms to import."""
    lock = Lock()
    return SimpleNamespace(value=0.0, get_lock=lambda: lock)


_MOST_UNCOUNTED = 1 << 16  # bytes of short reads after which the clock is asked: it costs more than such a read
_pace: Pace | None = None
_uncounted = 0


@contextmanager
def at_most(rate: int) -> Iterator[None]:
    """Read at most `rate` bytes per second in the block, all processes together; 0: no limit."""
    before = _pace
    follow(Pace(rate, _own_clock()) if rate else None)
    try:
        yield
    finally:
        follow(before)


def is_limited() -> bool:
    """Return whether there is a rate."""
    return _pace is not None


def shared(context: BaseContext) -> Pace | None:
    """Return the pace of this command, for `follow` in its other processes; None without a rate."""
    if _pace is not None and isinstance(_pace.clock, SimpleNamespace):
        follow(_pace._replace(clock=context.Value("d", _pace.clock.value)))
    return _pace


def follow(pace: Pace | None) -> None:
    """Read at one rate with the process that this pace comes from; None: without a limit."""
    global _pace, _uncounted
    _pace, _uncounted = pace, 0


def took(size: int) -> int:
    """Wait until `size` bytes that were just read are within the rate, if there is one; return `size`."""
    global _uncounted
    if _pace is not None:
        _uncounted += size
        if _uncounted >= min(_MOST_UNCOUNTED, _pace.rate >> 4):
            counted, _uncounted = _uncounted, 0
            _wait(counted, _pace)
    return size


def _wait(size: int, pace: Pace) -> None:
    with pace.clock.get_lock():
        now = time.monotonic()
        due = pace.clock.value = max((pace.clock.value or now) + size / pace.rate, now)
    time.sleep(max(0.0, due - time.monotonic()))
