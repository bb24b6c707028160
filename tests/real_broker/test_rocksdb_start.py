"""Rows of a RocksDB lost by a kill: the start dispatches again from one of the last files on, but not earlier ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import examine, verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.properties import INNER_MULTI_DISPATCH
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.recover import plan_recovery
from tests.checks.test_true_verdicts import move_to_another_queue
from tests.damage import overwrite
from tests.planning import plan_of, report_of
from tests.real_broker.oracle import Oracle
from tests.real_broker.oracle_server import OracleServers
from tests.repair.salvaging import rows
from tests.rocksdb_rows import NEWER, need_rocksdict
from tests.stores import clone, copy_store, meta

MESSAGES = {"5.4.0-rocksdb": 292, "5.5.1-rocksdb": 293, "5.5.1-rocksdb-separate": 293}
CAP = "commitLogRecoverMaxNum"
BOTH_FROM_ROCKSDB = {"combineCQPreferCQType": "defaultRocksDB", "combineAssignOffsetCQType": "defaultRocksDB"}


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


@pytest.mark.quick_rows(1)
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


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("5.4.0-dledger", {"storeType": "defaultRocksDB"}),
        ("5.4.0-rocksdb-double", BOTH_FROM_ROCKSDB),
        ("5.5.1-dledger", {"storeType": "defaultRocksDB"}),
        ("5.5.1-lmq", {}),
    ],
)
def test_no_consumer_gets_past_a_queue_offset_without_a_row(
    name: str, more: Mapping[str, str], tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """Queues in RocksDB of DLedger, of double write and of light queues: the verdict is what a consumer misses."""
    need_rocksdict()
    store, version = copy_store(name, tmp_path), meta(name).version
    settings = {**meta(name).oracle_args, **more}
    queue = "Pay_11_Topic/0"
    if name.endswith("lmq"):
        queue = leave_light_queue(store)
    else:
        move_to_another_queue(store)
    for directory in ("consumequeue", "consumequeue_rocksdb"):
        shutil.rmtree(store / directory, ignore_errors=True)
    (store / "abort").touch()
    verdict = verify(open_store(store, BrokerConfig(settings)), VerifyOptions(broker=version)).verdict
    told = re.search(r"never deliver up to (\d+) messages of 1 queue, because a queue offset has no row", verdict)
    assert told is not None, verdict
    real = oracle(version).load(store, settings, start=True, pull=32)
    if version == "5.4.0":  # the consumer gets the messages before it
        read = real.queues[queue]
        assert (read.bad, len(read.pulled)) == (1, read.max - read.min - 1 - int(told[1]))
    else:  # each pull that meets it fails
        assert "NullPointerException" in (real.crash or "") and "DefaultMessageStore.getMessage" in (real.crash or "")


def leave_light_queue(store: Path) -> str:
    """Move a message from one light queue to another one, and return the light queue that then lacks it."""
    name = INNER_MULTI_DISPATCH.encode() + b"\1"
    found = [row for row in rows(store) if name in row.message.properties]
    row = found[len(found) // 2]
    content = row.path.read_bytes()
    stop = content.index(b"\2", content.index(name, row.at))
    overwrite(row.path, stop - 1, b"7")
    return f"{content[content.rindex(b'%LMQ%', row.at, stop) : stop].decode()}/0"


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["5.4.0-rocksdb-double", "5.5.1-rocksdb-double"])
def test_a_broker_whose_files_and_rows_differ_does_not_start(
    name: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """A start writes both kinds again: no message has a queue offset, which shifts only the units in files."""
    store, version = copy_store(name, tmp_path), meta(name).version
    settings = {**meta(name).oracle_args, "combineCQPreferCQType": "defaultRocksDB"}
    move_to_another_queue(store)
    shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    forecast = simulate_start(open_store(store, BrokerConfig(settings)), version=version)
    real = oracle(version).load(store, settings, start=True)
    line = "currentReadStore not satisfied readable conditions"
    assert (forecast.starts, line in (forecast.log_line or ""), line in (real.crash or "")) == (False, True, True)
