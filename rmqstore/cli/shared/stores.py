"""Open what a user names as STORE: a directory, a file, or the log of a snapshot in a repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.backup import MARKER
from rmqstore.files.broker_config import BrokerConfig

if TYPE_CHECKING:
    from rmqstore.files.store import Store


def is_snapshot_address(path: Path) -> bool:
    """Return whether a path names a store in a repository (`REPO::NAME`, or the only one in REPO)."""
    text = str(path)
    if text.startswith("s3:/") or "::" in text:
        return not os.path.lexists(path)
    return os.path.lexists(path / MARKER)


def open_named(path: Path, config: BrokerConfig) -> Store:
    """Open a store, or the log of a snapshot: `REPO`, `REPO::NAME`, `REPO::NAME@SNAPSHOT`, `REPO::NAME@TIME`.

    A snapshot has no consume queues and no index, so only its log is opened, as a part of a store; of a mixed store,
    the part that DLedger wrote. Errors: as `open_store`, `folder_of` and `find_snapshot`.
    """
    if not is_snapshot_address(path):
        from rmqstore.files.store import open_store

        return open_store(path, config)
    return open_snapshot(path, config)[-1]


def open_snapshot(path: Path, config: BrokerConfig) -> list[Store]:
    """Open the logs of a snapshot, in address order. Errors: as `open_named`."""
    from rmqstore.backup.address import Address, find_snapshot, folder_of
    from rmqstore.backup.snapshot_files import open_logs
    from rmqstore.cli.printing.quantities import parse_time

    text = str(path)
    if text.startswith("s3:/") and not text.startswith("s3://"):  # a Path has lost the second slash
        text = f"s3://{text[4:]}"
    address = Address.parse(text)
    folder = folder_of(address)
    return open_logs(folder, find_snapshot(folder, address.snapshot, parse_time), config, path)
