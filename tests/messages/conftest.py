"""Every test of this room runs twice: see tests/loops.py."""

from tests.loops import loops

__all__ = ["loops"]
