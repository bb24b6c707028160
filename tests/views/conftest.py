"""Run every test of this package twice, the second time as a slow test: see tests/loops.py."""

from tests.loops import mostly_c

__all__ = ["mostly_c"]
