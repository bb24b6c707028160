"""What a row of the table of problems is, and how bad one can be."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """NOTE: worth knowing, the store is sound. WARNING: may bite later. ERROR: data or a start is at stake."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


class Problem(NamedTuple):
    """One row: `remedy` is the command that cures it (None: nothing to do), `safe` whether it is applied by default."""

    code: str
    title: str
    severity: Severity
    remedy: str | None
    safe: bool
    about: str


Rows = tuple[Problem, ...]
