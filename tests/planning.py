"""Open, verify and plan to repair a store in the test process; `settings`: those of its broker.conf."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.checks.verified import Verified
from rmqstore.documents.plan import Loss, Plan
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import Store, open_store
from rmqstore.formats.consumequeue import QueueName
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.planned import measure
from rmqstore.repair.rebuild_parts import plan_rebuild
from rmqstore.repair.recover import plan_recovery

Settings = Mapping[str, str] | None


def opened(store: Path, settings: Settings = None) -> Store:
    """Open a store; without settings, as a command without -c does."""
    return open_store(store, BrokerConfig(settings))


def log_of(store: Path) -> MappedFileQueue:
    """Return the commitlog of a store that has one."""
    log = open_store(store).commitlog
    assert log is not None
    return log


def look(store: Path, settings: Settings = None) -> tuple[Store, Verified]:
    """Open and verify a store in one process."""
    one = opened(store, settings)
    return one, examine(one, VerifyOptions(jobs=1))


def report_of(store: Path, settings: Settings = None) -> Report:
    """Return what verify reports."""
    return look(store, settings)[1].report


def counts_of(store: Path, settings: Settings = None) -> dict[str, int]:
    """Return the number of findings by code, notes included."""
    return dict(report_of(store, settings).findings.counts)


def plan_of(store: Path, settings: Settings = None, options: RecoverOptions | None = None) -> Plan:
    """Return the plan of `recover`."""
    return plan_recovery(*look(store, settings), options)


def loss_of(store: Path, settings: Settings = None, options: RecoverOptions | None = None) -> Loss:
    """Return the loss of the plan of `recover`, which is measured."""
    one, verified = look(store, settings)
    return measure(one, plan_recovery(one, verified, options), verified, VerifyOptions(jobs=1))[0].loss


def rebuild_of(
    store: Path,
    part: str = "cq",
    settings: Settings = None,
    *,
    topics: frozenset[str] = frozenset(),
    queues: frozenset[QueueName] = frozenset(),
    queue_ids: frozenset[int] = frozenset(),
) -> Plan:
    """Return the plan of `rebuild PART`, limited to some topics, queues or queue IDs."""
    return plan_rebuild(*look(store, settings), part, topics=topics, queues=queues, queue_ids=queue_ids)
