"""Rows of a RocksDB lost by a kill: the start dispatches again from one of the last files on, but not earlier ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.verify import VerifyOptions, examine
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.recover import plan_recovery
from tests.planning import plan_of, report_of
from tests.real_broker.oracle import Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.rocksdb_rows import NEWER, need_rocksdict
from tests.stores import clone, copy_store, meta

MESSAGES = {"5.4.0-rocksdb": 292, "5.5.1-rocksdb": 293, "5.5.1-rocksdb-separate": 293}
CAP = "commitLogRecoverMaxNum"


def database(name: str) -> str:
    return "consumequeue_rocksdb" if name.endswith("-separate") else "consumequeue"


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize(("rows", "files", "left"), [("none", "2", 192), ("none", "100", 0), ("no database", "2", 192)])
def test_what_no_start_dispatches_is_counted(
    name: str,
    rows: str,
    files: str,
    left: int,
    tmp_path: Path,
    oracle: Callable[[str], Oracle],
    oracle_servers: OracleServers,
) -> None:
    need_rocksdict()
    store = copy_store(name, tmp_path)
    settings = {**meta(name).oracle_args, CAP: files}
    shutil.rmtree(store / database(name))
    if rows == "none":  # they were only in memory
        other = tmp_path / "empty"
        other.mkdir()
        assert oracle(meta(name).version).load(other, settings).load
        (other / database(name)).rename(store / database(name))
    (store / "abort").touch()
    opened = open_store(store, BrokerConfig(settings))
    verified = examine(opened, VerifyOptions(jobs=1))
    report, plan = verified.report, plan_recovery(opened, verified)
    found = [f.facts["messages"] for f in report.findings.listed if f.code == "CQ-LEFT-BEHIND"]
    assert found == [left] * bool(left)
    assert plan.empty == (not left)
    cured = tmp_path / "cured"
    clone(store, cured)
    if left:
        apply(plan_of(cured, settings))
    answer = oracle_servers.load(meta(name).version, store, settings)
    assert (answer.load, answer.readable) == (True, MESSAGES[name] - left)
    assert oracle_servers.load(meta(name).version, cured, settings).readable == MESSAGES[name]
    assert (f"would start and never deliver {left} messages" in report.verdict) == bool(left)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", MESSAGES)
def test_after_a_clean_exit_the_message_at_the_rows_end_gets_no_row(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    need_rocksdict()
    store = copy_store(name, tmp_path)
    shutil.rmtree(store / database(name))  # the rows of a new database end at 0, where the log begins
    settings = {**meta(name).oracle_args, CAP: "100"}
    report = report_of(store, settings)
    assert "would start and never deliver 1 message" in report.verdict
    assert oracle_servers.load(meta(name).version, store, settings).readable == MESSAGES[name] - 1


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("newer", NEWER)
def test_a_broker_does_not_start_with_a_newer_format(
    name: str, newer: Callable[[Path], None], tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    need_rocksdict()
    store = copy_store(name, tmp_path)
    newer(store / database(name))
    report = report_of(store)
    assert report.verdict.startswith(f"RocketMQ {meta(name).version} would not start")
    assert not oracle(meta(name).version).load(store, meta(name).oracle_args, start=True).load
