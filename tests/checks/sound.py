"""What the tests of checks ask of every real store: nothing above NOTE."""

from __future__ import annotations

from pathlib import Path

from rmqstore.checks.problems.report import Finding, Findings
from rmqstore.checks.problems.table import Severity
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import QueueKind, Store, open_store
from rmqstore.scan.units import recovery_end
from tests.stores import BROKER_STORES, meta, unpack


def opened(name: str, *, config: bool = False) -> Store:
    """A fixture store, read-only, with or without its broker.conf (paths left out: the store has moved)."""
    return open_store(unpack(name), config_of(name) if config else None)


def config_of(name: str) -> BrokerConfig | None:
    """The settings that a fixture was made with, without its paths."""
    if name not in BROKER_STORES:
        return None
    given = {k: v for k, v in meta(name).broker_conf.items() if "Path" not in k}
    return BrokerConfig(given)


def above_note(findings: Findings) -> list[Finding]:
    """Findings that would make a store unclean."""
    return [f for f in findings.listed if f.severity > Severity.NOTE]


def said(findings: Findings) -> list[tuple[str, str, str, int]]:
    """Code, queue, file and offset of every finding above NOTE."""
    return [(f.code, f.queue, f.file, f.offset) for f in above_note(findings)]


def queue_range(store: Store, topic: str, queue_id: int) -> tuple[int, int] | None:
    """Min and max of a file consume queue."""
    files = store.consume_queue(topic, queue_id, QueueKind.SIMPLE)
    if not files.queue.files:
        return None
    return files.queue.start // 20, recovery_end(files.queue).end // 20


def only_file(directory: Path) -> Path:
    """The last file of a directory."""
    return max(p for p in directory.iterdir() if p.is_file())
