"""Reading consume queues in RocksDB while a broker writes, flushes and compacts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.files.store import open_store
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

NAMES = ("5.4.0-rocksdb", "5.5.1-rocksdb-separate")


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("name", NAMES)
def test_verify_beside_a_broker_finds_nothing_and_afterwards_everything(
    name: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    need_rocksdict()
    made = meta(name)
    store = copy_store(name, tmp_path)
    with whole_broker(made.version, store, made.broker_conf) as broker:
        sent = 0
        for _ in range(4):
            sent += len(broker.produce("Order_11", 200))
            report = verify(open_store(store), VerifyOptions(jobs=1))
            assert report.live
            bad = [f for f in report.findings.listed if PROBLEMS[f.code].severity > Severity.NOTE]
            assert bad == []
            assert report.unchecked == []
    report = verify(open_store(store), VerifyOptions(jobs=1))
    assert (report.unchecked, [f.code for f in report.findings.listed]) == ([], [])
    assert report.exit_code == 0
    states = [q for name, q in report.queues.items() if name.startswith("Order_11/")]
    assert sum(q.max for q in states) >= 61 + sent  # the client repeats a send that timed out
    assert all(q.max == q.expected_max for q in states)


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("name", NAMES)
def test_after_a_kill_rows_may_lag_but_nothing_is_wrong(
    name: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    need_rocksdict()
    made = meta(name)
    store = copy_store(name, tmp_path)
    broker = whole_broker(made.version, store, made.broker_conf)
    with broker:
        broker.produce("Order_11", 200)
        broker.kill()
    report = verify(open_store(store), VerifyOptions(jobs=1))
    assert report.unchecked == []
    assert [f for f in report.findings.listed if PROBLEMS[f.code].severity > Severity.NOTE] == []
