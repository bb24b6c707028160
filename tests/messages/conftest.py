"""Run every test of this package twice: see tests/loops.py."""

from tests.loops import loops

__all__ = ["loops"]
