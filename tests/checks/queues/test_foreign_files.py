"""Queue or log files of another store or queue are reported as such, and no record is changed because of them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import rmqstore
from rmqstore.checks.verified import Verified
from rmqstore.documents.plan import Plan
from tests.checks.looks import look, records
from tests.stores import copy_store


def planned(store: Path) -> tuple[Verified, Plan]:
    opened = rmqstore.open(store)
    verified = rmqstore.examine(opened)
    return verified, rmqstore.plan_recovery(opened, verified)


def of_the_log(plan: Plan) -> list[str]:
    return [step.path for step in plan.steps if step.path.startswith("commitlog")]


@pytest.mark.parametrize("name", ["Order_10", "Order_11.bak"])
def test_a_renamed_topic_directory_proves_no_record_wrong(store: Path, name: str) -> None:
    """`Order_10` differs in one bit from the topic of all the messages."""
    queues = store / "consumequeue"
    (queues / "Order_11").rename(queues / name)
    verified, plan = planned(store)
    assert verified.report.findings.counts == {"CQ-OTHER-QUEUE": 4, "CQ-MISSING-QUEUE": 4}
    found = [f for f in verified.report.findings.listed if f.code == "CQ-OTHER-QUEUE"]
    assert [(f.queue, f.facts["right_queue"], f.facts["has_its_own"]) for f in found] == [
        (f"{name}/{n}", f"Order_11/{n}", False) for n in range(4)
    ]
    assert of_the_log(plan) == []
    assert not plan.decisions


def test_a_log_of_another_broker_with_records_of_the_same_sizes_is_not_mended(tmp_path: Path) -> None:
    """Every unit points to a record of its size, and most records differ in one bit from the queue of the unit."""
    store = copy_store("498_many", tmp_path)
    for number, record in enumerate(records(store)):
        with record.file.open("r+b") as file:
            file.seek(record.at + 12)
            file.write(struct.pack(">i", (1, 2, 4, 8)[number % 4]))
            file.seek(record.at + 20)
            file.write(struct.pack(">q", number // 4))
    report = look(store)
    assert report.findings.counts == {"CQ-FOREIGN": 1, "CQ-MISSING-QUEUE": 4}
    _, plan = planned(store)
    assert of_the_log(plan) == []
    assert len(plan.decisions) == 1


def test_a_file_of_another_log_stops_every_repair(store: Path, tmp_path: Path) -> None:
    name = "00000000000000262144"
    shutil.copyfile(copy_store("5.1.4-clean", tmp_path / "other") / "commitlog" / name, store / "commitlog" / name)
    verified, plan = planned(store)
    (found,) = [f for f in verified.report.findings.listed if f.code == "CL-FOREIGN-FILE"]
    assert (found.file, found.facts["messages_with_units"]) == (name, 0)
    assert found.facts["store_host"] != found.facts["store_host_of_other_files"]
    assert ", but 1 file belongs to another log, and the log lacks at least 71 messages" in verified.report.verdict
    assert plan.steps == ()
    assert len(plan.decisions) == 1
    (store / "commitlog" / name).unlink()  # the alternative for the operator: a missing file
    verified, _ = planned(store)
    (gone,) = [f for f in verified.report.findings.listed if f.code == "CL-MISSING-FILE"]
    assert gone.facts["messages"] == 71
    assert verified.report.verdict.endswith(", but the log lacks 71 messages of 12 queues")


@pytest.mark.parametrize("queues", [True, False])
def test_the_own_last_file_after_one_of_another_log_is_not_a_stale_tail(
    store: Path, tmp_path: Path, queues: bool
) -> None:
    """It is older and repeats queue offsets, but a truncation leaves no whole file after the end of the log."""
    name = "00000000000000393216"
    shutil.copyfile(copy_store("5.4.0-killed", tmp_path / "other") / "commitlog" / name, store / "commitlog" / name)
    if not queues:
        shutil.rmtree(store / "consumequeue")
    verified, plan = planned(store)
    assert verified.legacy is not None
    assert verified.legacy.wrote == 479958
    assert verified.report.findings.counts["CL-STALE-TAIL"] == 0
    assert verified.report.findings.counts["CL-FOREIGN-FILE"] == queues
    assert of_the_log(plan) == []


def test_a_file_of_another_group_in_a_dledger_log_stops_every_repair(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    name = "dledger-n0/data/00000000000000589824"
    shutil.copyfile(copy_store("5.1.4-dledger-mixed", tmp_path / "other") / name, store / name)
    verified, plan = planned(store)
    (found,) = [f for f in verified.report.findings.listed if f.code == "CL-FOREIGN-FILE"]
    assert (found.queue, found.file, found.offset) == ("dledger", "00000000000000589824", 589824)
    assert verified.report.findings.counts["DL-STALE-TAIL"] == 0
    assert plan.steps == ()
