"""Work without Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """For code that parses much source: the collector would take longer than the parser, and finds no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
