"""Common functions of the tests of checks; a real store must have no finding above NOTE."""

from __future__ import annotations

from functools import partial

from rmqstore.checks.beside.config import ConfigFacts, check_config, check_delay_offsets, check_offsets
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.checks.problems.table import Severity
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.scan.units import recovery_end
from tests.stores import BROKER_STORES, meta, unpack


def opened(name: str, *, config: bool = False) -> Store:
    """Open a fixture store, optionally with the settings of its broker except paths."""
    return open_store(unpack(name), config_of(name) if config else None)


def config_of(name: str) -> BrokerConfig | None:
    """Return the settings of a fixture's broker, except paths."""
    if name not in BROKER_STORES:
        return None
    given = {k: v for k, v in meta(name).broker_conf.items() if "Path" not in k}
    return BrokerConfig(given)


def above_note(findings: Findings) -> list[Finding]:
    """Return the findings that make a verdict unclean."""
    return [f for f in findings.listed if f.severity > Severity.NOTE]


def located(findings: Findings) -> list[tuple[str, str, str, int]]:
    """Return code, queue, file and offset of every finding above NOTE."""
    return [(f.code, f.queue, f.file, f.offset) for f in above_note(findings)]


def check_configuration(store: Store, findings: Findings, *, live: bool = False) -> ConfigFacts:
    """Check the configuration of a store, and its offsets with the queues, as if the log had no message."""
    facts, ranges = check_config(store, findings, live=live), partial(queue_range, store)
    check_offsets(facts, ranges, findings)
    check_delay_offsets(store, facts, ranges, (), (0, 0), Logs([]), findings)
    return facts


def queue_range(store: Store, topic: str, queue_id: int) -> tuple[int, int] | None:
    """Return the minimum and maximum queue offset of a consume queue in files."""
    files = store.consume_queue(topic, queue_id, QueueKind.SIMPLE)
    if not files.queue.files:
        return None
    return files.queue.start // 20, recovery_end(files.queue).end // 20
