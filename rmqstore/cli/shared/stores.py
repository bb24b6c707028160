"""Open what a user names as STORE: a directory, a file, or a snapshot in a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.backup.snapshot_store import FOR_READING, FOR_VERIFY, LOG_ONLY, is_snapshot_address
from rmqstore.files.broker_config import BrokerConfig

if TYPE_CHECKING:
    from rmqstore.files.store import Store

__all__ = ["FOR_READING", "FOR_VERIFY", "LOG_ONLY", "is_snapshot_address", "open_named"]


def open_named(path: Path, config: BrokerConfig, parts: frozenset[str] = FOR_READING) -> Store:
    """Open a store or a snapshot, as `backup.snapshot_store.open_named`; a time may be in the zone of --utc."""
    from rmqstore.backup.snapshot_store import open_named as opened
    from rmqstore.cli.printing.quantities import parse_time

    return opened(path, config, parts, parse_time)
