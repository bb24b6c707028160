"""A file in place of index/: what the real classes did, and the forecast."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.stores import copy_store, meta

NOTE = "index is not a directory: dispatch ends at the next message with a key"


@pytest.mark.parametrize(
    ("name", "version", "abort", "starts"),
    [
        ("5.4.0-killed", "4.9.7", True, False),  # recovery dispatches
        ("5.4.0-killed", "4.9.7", False, False),  # the start waits for the dispatch of the last messages
        ("5.4.0-killed", "5.4.0", False, False),  # recovery dispatches what the queues do not have
        ("4.9.7-ipv6", "5.4.0", True, False),  # all units exist, but messages are indexed again
        ("5.4.0-clean", "4.9.7", False, True),
        ("5.1.4-killed", "4.9.7", False, True),
    ],
)
def test_a_start_fails_if_it_dispatches_a_message(
    name: str, version: str, abort: bool, starts: bool, tmp_path: Path
) -> None:
    """Observed with the real classes, which then throw IllegalMonitorStateException in IndexService."""
    store = copy_store(name, tmp_path)
    shutil.rmtree(store / "index")
    (store / "index").write_bytes(b"x")
    (store / "abort").unlink(missing_ok=True)
    if abort:
        (store / "abort").touch()
    opened = open_store(store, BrokerConfig(dict(meta(name).oracle_args)))
    found = simulate_start(opened, version=version, options=StartOptions())
    assert found.starts == starts
    if starts:
        assert NOTE in found.notes
