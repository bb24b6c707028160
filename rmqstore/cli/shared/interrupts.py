"""What Ctrl-C, SIGTERM and SIGHUP do: they end a command as an exception does, so that nothing unfinished is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from rmqstore.texts import Text

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal has ended the command. `exit_code` is that of a shell for it: 130, 143 or 129."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.exit_code = 128 + number

    @property
    def message(self) -> Text:
        """What happened, for the user."""
        if self.number == signal.SIGINT:
            return Text("interrupted")
        return Text("ended by {signal}", signal=signal.Signals(self.number).name)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    raise Ended(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals that end a process raise `Ended` in the block; one that the caller ignores stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        for number, handler in before.items():
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _raise)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
