"""Parts that only some stores have, and what checks them: a module is imported for a store that has its part.

A checker has `check(store, report)`, which adds findings and what it cannot check. That of compaction/ also has
`kept(store)`: the messages that are there.
"""

from __future__ import annotations

import importlib
from typing import Any

from rmqstore.checks.problems.report import Report
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.ranges import Ranges

CHECKED_BY = {"compaction": "rmqstore.checks.beside.compaction"}
"""Entry at the top of a store -> module."""


def check_parts(store: Store, report: Report) -> None:
    """Check every such part of a store."""
    for name in CHECKED_BY if store.part is None else ():
        if (checker := _checker(store, name)) is not None:
            checker.check(store, report)


def kept_by_compaction(store: Store) -> dict[QueueName, Ranges]:
    """Return the queue offsets of the messages that compaction keeps, also when the log has deleted them."""
    checker = _checker(store, "compaction") if store.part is None else None
    found: dict[QueueName, Ranges] = {} if checker is None else checker.kept(store)
    return found


def _checker(store: Store, name: str) -> Any:
    return importlib.import_module(CHECKED_BY[name]) if name in store.top else None
