"""Parts that only some stores have, and what checks them: a module is imported for a store that has its part.

A checker has `check(store, report)`, which adds findings and what it cannot check. That of compaction/ also has
`kept(store)`: the messages that are there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rmqstore.checks.problems.report import Report
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.ranges import Ranges

if TYPE_CHECKING:
    from rmqstore.checks.log.logs import Logs

IN_ROCKSDB = {
    "queues": "rmqstore.checks.queues.rocksdb",
    "queues beside files": "rmqstore.checks.queues.double_write",
    "message rows": "rmqstore.checks.rows",
}
"""What checks the parts of a store that are in RocksDB."""
REACHED = "rmqstore.checks.reached"
"""What reads how far services know queues whose units are gone, see `reached_by_services`."""
COMPACTION = "rmqstore.checks.beside.compaction"
CHECKED_BY = {
    COMPACTION: ("compaction",),
    "rmqstore.checks.beside.access": ("config/users", "config/acls"),
    "rmqstore.checks.beside.static_topics": ("config/topicQueueMapping.json",),
}
"""Module -> the entries of a store any of which makes it necessary."""


def check_parts(store: Store, report: Report) -> None:
    """Check every such part of a store."""
    for module in CHECKED_BY:
        if (checker := _checker(store, module)) is not None:
            checker.check(store, report)


def in_rocksdb(part: str) -> Any:
    """Return the module that checks a part in RocksDB."""
    return importlib.import_module(IN_ROCKSDB[part])


def reached_by_services(store: Store, logs: Logs) -> dict[QueueName, int]:
    """Call the function of this name of `reached.py`."""
    found: dict[QueueName, int] = importlib.import_module(REACHED).reached_by_services(store, logs)
    return found


def kept_by_compaction(store: Store) -> dict[QueueName, Ranges]:
    """Return the queue offsets of the messages that compaction keeps, also when the log has deleted them."""
    checker = _checker(store, COMPACTION)
    found: dict[QueueName, Ranges] = {} if checker is None else checker.kept(store)
    return found


def _checker(store: Store, module: str) -> Any:
    """Return the module, if a whole store has one of its entries; otherwise None."""
    has_part = store.part is None and any(store.files.exists(store.root / name) for name in CHECKED_BY[module])
    return importlib.import_module(module) if has_part else None
