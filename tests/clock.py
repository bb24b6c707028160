"""A clock for one module: other threads of the process, such as those of Spark, keep the real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def replace_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **functions: Callable[..., Any]) -> None:
    """Replace functions of `time` (sleep, monotonic, …) for a module that uses them as `time.sleep`."""
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))
