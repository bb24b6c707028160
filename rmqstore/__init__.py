"""rmqstore: Apache RocketMQ broker stores, inspected, verified, repaired and converted without the broker.

Read:

    import rmqstore

    store = rmqstore.open("/data/rocketmq/store")
    for message in store.messages(topic="Order", since="-2h"):
        print(message.keys, message.body)
    store.message(180887)                      # by log offset, message id, unique id, key or "Order/2/17"
    store.queue("Order", 2)[5:10]              # by queue offset

Verify and repair:

    verified = rmqstore.examine(store)                       # its report: verified.report
    plan = rmqstore.plan_recovery(store, verified)           # writes nothing; read plan.decisions
    plan, after = rmqstore.measure(store, plan, verified)    # what it loses and cures, and what verify finds then
    applied = rmqstore.apply(plan)
    rmqstore.undo(applied.journal)

Write a new store:

    with rmqstore.open_writable("/data/new", create=True) as new:
        new.put(rmqstore.NewMessage("Order", b"body", tags="paid", keys=["42"]))

A store reads its directories once: open it again after a change. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "1.0.0rc1"

# public name -> (module, name in it)
_EXPORTS = {
    "PROBLEMS": ("rmqstore.checks.problems.table", "PROBLEMS"),
    "BrokerConfig": ("rmqstore.files.broker_config", "BrokerConfig"),
    "CommitLogChoice": ("rmqstore.repair.migrate_to_commitlog", "MigrationChoice"),
    "Comparison": ("rmqstore.views.compare", "Comparison"),
    "DLedgerCommitLog": ("rmqstore.views.dledger_store", "DLedgerCommitLog"),
    "DLedgerMmapFileStore": ("rmqstore.append.dledger", "DLedgerMmapFileStore"),
    "DLedgerReader": ("rmqstore.views.dledger_store", "DLedgerReader"),
    "DLedgerTarget": ("rmqstore.repair.migrate_to_dledger", "Target"),
    "ExpireOptions": ("rmqstore.repair.expire", "ExpireOptions"),
    "ExportOptions": ("rmqstore.views.export", "ExportOptions"),
    "Finding": ("rmqstore.checks.problems.report", "Finding"),
    "MessageStore": ("rmqstore.append.message_store", "MessageStore"),
    "NewMessage": ("rmqstore.append.encoder", "NewMessage"),
    "Outcome": ("rmqstore.documents.outcome", "Outcome"),
    "Plan": ("rmqstore.documents.plan", "Plan"),
    "Queue": ("rmqstore.views.store_view", "Queue"),
    "RecoverOptions": ("rmqstore.repair.plan.recover_options", "RecoverOptions"),
    "Report": ("rmqstore.checks.problems.report", "Report"),
    "RmqStoreError": ("rmqstore.errors", "RmqStoreError"),
    "Selection": ("rmqstore.views.dump.selection", "Selection"),
    "Store": ("rmqstore.files.store", "Store"),
    "StoreOptions": ("rmqstore.append.message_store", "StoreOptions"),
    "StoreView": ("rmqstore.views.store_view", "StoreView"),
    "StoredMessage": ("rmqstore.views.store_view", "StoredMessage"),
    "Verified": ("rmqstore.checks.verified", "Verified"),
    "VerifyOptions": ("rmqstore.checks.options", "VerifyOptions"),
    "apply": ("rmqstore.repair.journal.journal", "apply"),
    "compare": ("rmqstore.views.compare", "compare"),
    "dump_messages": ("rmqstore.views.dump.messages", "dump_messages"),
    "examine": ("rmqstore.checks.examine", "examine"),
    "export_messages": ("rmqstore.views.export", "export_messages"),
    "info": ("rmqstore.views.info", "info"),
    "measure": ("rmqstore.repair.planned", "measure"),
    "migrate_to_commitlog": ("rmqstore.repair.migrate_to_commitlog", "migrate_to_commitlog"),
    "open": ("rmqstore.views.store_view", "open"),
    "open_writable": ("rmqstore.append.message_store", "open_writable"),
    "parse_message": ("rmqstore.views.store_view", "parse_stored"),
    "plan_expire": ("rmqstore.repair.expire", "plan_expire"),
    "plan_migration_to_commitlog": ("rmqstore.repair.migrate_to_commitlog", "plan_migration_to_commitlog"),
    "plan_migration_to_dledger": ("rmqstore.repair.migrate_to_dledger", "plan_migration_to_dledger"),
    "plan_rebuild": ("rmqstore.repair.rebuild_parts", "plan_rebuild"),
    "plan_recovery": ("rmqstore.repair.replica.own_copies", "plan_with_copies"),
    "resume": ("rmqstore.repair.journal.journal", "resume"),
    "simulate_start": ("rmqstore.brokers.simulate", "simulate_start"),
    "undo": ("rmqstore.repair.journal.journal", "undo"),
    "usage": ("rmqstore.views.usage", "usage"),
    "verify": ("rmqstore.checks.examine", "verify"),
}

if TYPE_CHECKING:
    from rmqstore.append.dledger import DLedgerMmapFileStore
    from rmqstore.append.encoder import NewMessage
    from rmqstore.append.message_store import MessageStore, StoreOptions, open_writable
    from rmqstore.brokers.simulate import simulate_start
    from rmqstore.checks.examine import examine, verify
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.checks.problems.report import Finding, Report
    from rmqstore.checks.problems.table import PROBLEMS
    from rmqstore.checks.verified import Verified
    from rmqstore.documents.outcome import Outcome
    from rmqstore.documents.plan import Plan
    from rmqstore.errors import RmqStoreError
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.expire import ExpireOptions, plan_expire
    from rmqstore.repair.journal.journal import apply, resume, undo
    from rmqstore.repair.migrate_to_commitlog import MigrationChoice as CommitLogChoice
    from rmqstore.repair.migrate_to_commitlog import migrate_to_commitlog, plan_migration_to_commitlog
    from rmqstore.repair.migrate_to_dledger import Target as DLedgerTarget
    from rmqstore.repair.migrate_to_dledger import plan_migration_to_dledger
    from rmqstore.repair.plan.recover_options import RecoverOptions
    from rmqstore.repair.planned import measure
    from rmqstore.repair.rebuild_parts import plan_rebuild
    from rmqstore.repair.replica.own_copies import plan_with_copies as plan_recovery
    from rmqstore.views.compare import Comparison, compare
    from rmqstore.views.dledger_store import DLedgerCommitLog, DLedgerReader
    from rmqstore.views.dump.messages import dump_messages
    from rmqstore.views.dump.selection import Selection
    from rmqstore.views.export import ExportOptions, export_messages
    from rmqstore.views.info import info
    from rmqstore.views.store_view import Queue, StoredMessage, StoreView
    from rmqstore.views.store_view import open as open  # noqa: A004 - the word of the library, as gzip.open
    from rmqstore.views.store_view import parse_stored as parse_message
    from rmqstore.views.usage import usage

__all__ = [
    "PROBLEMS",
    "BrokerConfig",
    "CommitLogChoice",
    "Comparison",
    "DLedgerCommitLog",
    "DLedgerMmapFileStore",
    "DLedgerReader",
    "DLedgerTarget",
    "ExpireOptions",
    "ExportOptions",
    "Finding",
    "MessageStore",
    "NewMessage",
    "Outcome",
    "Plan",
    "Queue",
    "RecoverOptions",
    "Report",
    "RmqStoreError",
    "Selection",
    "Store",
    "StoreOptions",
    "StoreView",
    "StoredMessage",
    "Verified",
    "VerifyOptions",
    "apply",
    "compare",
    "dump_messages",
    "examine",
    "export_messages",
    "info",
    "measure",
    "migrate_to_commitlog",
    "open",
    "open_writable",
    "parse_message",
    "plan_expire",
    "plan_migration_to_commitlog",
    "plan_migration_to_dledger",
    "plan_rebuild",
    "plan_recovery",
    "resume",
    "simulate_start",
    "undo",
    "usage",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rmqstore' has no attribute {name!r}")
    import importlib

    module, attribute = _EXPORTS[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
