"""rmqstore: Apache RocketMQ broker stores, inspected, verified, repaired and converted without the broker.

The front door for Python. Names are loaded when they are used, so that importing the package costs nothing:

    import rmqstore

    store = rmqstore.open_store("/data/rocketmq/store")
    print(rmqstore.info(store).to_json())
    report = rmqstore.verify(store)
    for row in rmqstore.dump_messages(store, rmqstore.Selection(topics=frozenset({"Order"}))):
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name -> (module, name in it)
_DOOR = {
    "BrokerConfig": ("rmqstore.files.broker_config", "BrokerConfig"),
    "Finding": ("rmqstore.checks.report", "Finding"),
    "PROBLEMS": ("rmqstore.checks.problems", "PROBLEMS"),
    "Report": ("rmqstore.checks.report", "Report"),
    "RmqStoreError": ("rmqstore.errors", "RmqStoreError"),
    "Selection": ("rmqstore.views.selection", "Selection"),
    "Store": ("rmqstore.files.store", "Store"),
    "VerifyOptions": ("rmqstore.checks.verify", "VerifyOptions"),
    "apply": ("rmqstore.repair.journal", "apply"),
    "dump_messages": ("rmqstore.views.messages", "dump_messages"),
    "examine": ("rmqstore.checks.verify", "examine"),
    "info": ("rmqstore.views.info", "info"),
    "open_store": ("rmqstore.files.store", "open_store"),
    "plan_recovery": ("rmqstore.repair.recover", "plan_recovery"),
    "resume": ("rmqstore.repair.journal", "resume"),
    "simulate_start": ("rmqstore.brokers.simulate", "simulate_start"),
    "undo": ("rmqstore.repair.journal", "undo"),
    "usage": ("rmqstore.views.usage", "usage"),
    "verify": ("rmqstore.checks.verify", "verify"),
}

if TYPE_CHECKING:
    from rmqstore.brokers.simulate import simulate_start
    from rmqstore.checks.problems import PROBLEMS
    from rmqstore.checks.report import Finding, Report
    from rmqstore.checks.verify import VerifyOptions, examine, verify
    from rmqstore.errors import RmqStoreError
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store, open_store
    from rmqstore.repair.journal import apply, resume, undo
    from rmqstore.repair.recover import plan_recovery
    from rmqstore.views.info import info
    from rmqstore.views.messages import dump_messages
    from rmqstore.views.selection import Selection
    from rmqstore.views.usage import usage

__all__ = [
    "PROBLEMS",
    "BrokerConfig",
    "Finding",
    "Report",
    "RmqStoreError",
    "Selection",
    "Store",
    "VerifyOptions",
    "apply",
    "dump_messages",
    "examine",
    "info",
    "open_store",
    "plan_recovery",
    "resume",
    "simulate_start",
    "undo",
    "usage",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module 'rmqstore' has no attribute {name!r}")
    import importlib

    module, attribute = _DOOR[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_DOOR])
