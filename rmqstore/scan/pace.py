"""The rate at which all processes of a command read, together."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


class Clock(Protocol):
    """The time (`time.monotonic`, the same in all processes) at which what was read so far is within the rate."""

    value: float

    def get_lock(self) -> AbstractContextManager[Any]: ...


class _OwnClock:
    """The clock of a process that is alone: multiprocessing takes 15 ms to import."""

    def __init__(self) -> None:
        self.value = 0.0
        self._lock = Lock()

    def get_lock(self) -> Lock:
        return self._lock


_clock: Clock = _OwnClock()


def shared_clock(context: BaseContext) -> Clock:
    """Return the clock of this command, for `follow` in its other processes."""
    global _clock
    if isinstance(_clock, _OwnClock):
        _clock = cast("Clock", context.Value("d", _clock.value))
    return _clock


def follow(clock: Clock) -> None:
    """Read at one rate with the process that made the clock."""
    global _clock
    _clock = clock


def wait(size: int, rate: int) -> None:
    """Wait until `size` bytes that were just read are within `rate` bytes per second, of all processes together."""
    with _clock.get_lock():
        now = time.monotonic()
        due = _clock.value = max((_clock.value or now) + size / rate, now)
    time.sleep(max(0.0, due - time.monotonic()))
