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
from tests.real_broker.oracle import Oracle
from tests.rocksdb_rows import need_rocksdict, opened_rows
from tests.stores import copy_store, meta

NAME = "5.4.0-rocksdb"
MESSAGES = 292
CAP = "commitLogRecoverMaxNum"


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(("rows", "files", "left"), [("none", "2", 192), ("none", "100", 0), ("no database", "2", 192)])
def test_what_no_start_dispatches_is_counted(
    rows: str, files: str, left: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    settings = {**meta(NAME).oracle_args, CAP: files}
    shutil.rmtree(store / "consumequeue")
    if rows == "none":  # all of them were in memory only
        other = tmp_path / "empty"
        other.mkdir()
        assert oracle("5.4.0").load(other, settings).load
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


def test_rows_that_are_missing_in_the_middle_come_back_as_advised(
    tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """Seen on a store whose queues were files first: its RocksDB lacked the rows of all that was older."""
    store = copy_store(NAME, tmp_path)
    settings = {**meta(NAME).oracle_args}
    with opened_rows(store / "consumequeue") as database:
        units = database.get_column_family("default")
        key = next(key for key, _ in units.items() if b"Order_11" in bytes(key))
        del units[key]
    opened = open_store(store, BrokerConfig(settings))
    verified = examine(opened, VerifyOptions(jobs=1))
    stays = plan_recovery(opened, verified).facts["stays"]
    assert isinstance(stays, dict)
    advice = stays["CQ-MISSING-UNIT"]
    assert isinstance(advice, dict)
    files = len(list((store / "commitlog").iterdir()))
    assert f"move all files (not the directories) of consumequeue/ out of the store, set {CAP}={files} in" in str(
        advice["do"]
    )
    assert "create an empty file named abort" in str(advice["do"])
    for path in (store / "consumequeue").iterdir():
        if path.is_file():
            path.unlink()
    (store / "abort").touch()
    answer = oracle("5.4.0").load(store, {**settings, CAP: str(files)}, start=True, shutdown=True)
    assert (answer.load, answer.readable, answer.offsets) == (True, MESSAGES, MESSAGES)
    assert examine(open_store(store, BrokerConfig(settings)), VerifyOptions(jobs=1)).report.exit_code == 0


def test_after_a_clean_exit_the_message_at_the_rows_end_gets_no_row(
    tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    shutil.rmtree(store / "consumequeue")  # rows of a new database end at 0, where the log begins
    settings = {**meta(NAME).oracle_args, CAP: "100"}
    report = examine(open_store(store, BrokerConfig(settings)), VerifyOptions(jobs=1)).report
    assert "would start and never deliver 1 message" in report.verdict
    assert oracle("5.4.0").load(store, settings, start=True).readable == MESSAGES - 1
