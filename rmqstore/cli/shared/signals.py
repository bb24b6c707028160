"""Signals that end a command in an orderly way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def end_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end the block with KeyboardInterrupt, as Ctrl-C does, so that files are closed and named."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
