"""Rows of a RocksDB that a kill took: the start dispatches from one of the last files on, and leaves the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.verify import VerifyOptions, verify
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.broker.oracle import Oracle
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

NAME = "5.4.0-rocksdb"
MESSAGES = 292
CAP = "commitLogRecoverMaxNum"


@pytest.mark.parametrize(("files", "left"), [("2", 192), ("100", 0)])
def test_what_no_start_dispatches_is_counted(
    files: str, left: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    settings = {**meta(NAME).oracle_args, CAP: files}
    other = tmp_path / "empty"
    other.mkdir()
    assert oracle("5.4.0").load(other, settings).load
    shutil.rmtree(store / "consumequeue")  # all rows were in memory only
    (other / "consumequeue").rename(store / "consumequeue")
    (store / "abort").touch()
    report = verify(open_store(store, BrokerConfig(settings)), VerifyOptions(jobs=1))
    found = [f.facts["messages"] for f in report.findings.listed if f.code == "CQ-LEFT-BEHIND"]
    answer = oracle("5.4.0").load(store, settings, start=True)
    assert (answer.load, answer.readable) == (True, MESSAGES - left)
    assert found == [left] * bool(left)
    assert (f"leave {left} messages" in report.verdict) == bool(left)
