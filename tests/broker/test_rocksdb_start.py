"""Rows of a RocksDB that a kill took: the start dispatches from one of the last files on, and leaves the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.verify import VerifyOptions, examine
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.repair.recover import plan_recovery
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
    opened = open_store(store, BrokerConfig(settings))
    verified = examine(opened, VerifyOptions(jobs=1))
    report, stays = verified.report, plan_recovery(opened, verified).facts.get("stays", {})
    found = [f.facts["messages"] for f in report.findings.listed if f.code == "CQ-LEFT-BEHIND"]
    answer = oracle("5.4.0").load(store, settings, start=True)
    assert (answer.load, answer.readable) == (True, MESSAGES - left)
    assert found == [left] * bool(left)
    assert isinstance(stays, dict)
    advice = [str(row["do"]) for row in stays.values() if isinstance(row, dict)]
    assert [a.split(" ")[1] for a in advice] == [f"{CAP}={len(list((store / 'commitlog').iterdir()))}"] * bool(left)
    assert (f"would start and never deliver {left} messages" in report.verdict) == bool(left)
