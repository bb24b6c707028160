"""A context without Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """Disable the garbage collector: while sources are parsed, it takes longer than the parser and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
