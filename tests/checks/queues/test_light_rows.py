"""Queues in consumequeue_rocksdb/, and light queues that are only in a RocksDB beside queue files (5.5.1)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.rocksdb_rows import changing, need_rocksdict
from tests.stores import copy_store, unpack, write_broker_conf

need_rocksdict()
SEPARATE, LITE, LMQ = "5.5.1-rocksdb-separate", "5.5.1-lite", "5.5.1-lmq"
PLACE = "consumequeue_rocksdb"
USER0, ALL = "%LMQ%$Lite_11$user0", "%LMQ%all_11"


def recover(store: Path, *words: str) -> None:
    """Repair a store, and check that verify is then clean."""
    result = run("recover", str(store), *words, "--apply", "--broker-is-stopped")
    assert result.exit_code == 0, result.output
    assert "Verified again: no problems" in result.output


def found_codes(store: Path, *words: str) -> set[str]:
    answer = json.loads(run("verify", str(store), *words, "--json").stdout)
    return {finding["code"] for finding in answer["findings"]}


def light_files(store: Path) -> list[str]:
    return [path.name for path in (store / "consumequeue").iterdir() if path.name.startswith("%LMQ%")]


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", [SEPARATE, LITE, LMQ, "5.5.1-rocksdb-double-separate"])
@pytest.mark.parametrize("with_conf", [False, True])
def test_a_sound_store_has_no_problem_and_nothing_is_planned(name: str, with_conf: bool, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = ("-c", str(write_broker_conf(name, store))) if with_conf else ()
    assert found_codes(store, *conf) == set()
    for command in (("recover",), ("rebuild", "cq")):
        words = [command[0], str(store), *command[1:], *conf]
        assert "Nothing to do" in run(*words).output or "Nothing is planned" in run(*words).output


def test_every_command_reads_the_separate_directory() -> None:
    store = str(unpack(SEPARATE))
    assert run("find", store, "Order_11/0/3").output.count("present") >= 1
    queues = run_json("info", store, exit_code=0)["queues"]
    assert isinstance(queues, dict)
    assert queues["Order_11/0"]["max"] == 15
    rows = [json.loads(line) for line in run("dump", store, "--what", "consumequeue").stdout.splitlines()]
    assert sum(row["topic"] == "Order_11" and row["queue_id"] == 0 for row in rows) == 15
    assert run("get", store, "Order_11/0/3").exit_code == 0
    answer = run(
        "sql",
        store,
        "SELECT count(*) n FROM consumequeue WHERE topic = 'Order_11' AND queue_id = 0",
        "--format",
        "ndjson",
    )
    assert json.loads(answer.stdout) == {"n": 15}


@pytest.mark.parametrize(("name", "queue", "count"), [(LMQ, ALL, 10), (LITE, USER0, 8)])
def test_light_queues_are_read_from_the_rocksdb(name: str, queue: str, count: int) -> None:
    store = str(unpack(name))
    assert "queue entry  present" in run("find", store, f"{queue}/0/3").output
    queues = run_json("info", store, exit_code=0)["queues"]
    assert isinstance(queues, dict)
    assert (queues[f"{queue}/0"]["kind"], queues[f"{queue}/0"]["max"]) == ("rocksdb", count)
    rows = [json.loads(line) for line in run("dump", store, "--what", "consumequeue").stdout.splitlines()]
    assert sum(row["topic"] == queue for row in rows) == count
    answer = run("sql", store, f"SELECT count(*) n FROM consumequeue WHERE topic = '{queue}'", "--format", "ndjson")
    assert json.loads(answer.stdout) == {"n": count}


@pytest.mark.parametrize("lost", ["rows", "files"])
def test_a_lost_rocksdb_is_rebuilt_where_the_broker_looks_for_it(lost: str, tmp_path: Path) -> None:
    store = copy_store(SEPARATE, tmp_path)
    conf = write_broker_conf(SEPARATE, store)
    if lost == "files":
        shutil.rmtree(store / PLACE)
    else:
        for path in (store / PLACE).iterdir():
            path.unlink()
    assert found_codes(store) == {"CQ-MISSING-QUEUE"}
    if lost == "files":
        refused = run("recover", str(store), "--apply", "--broker-is-stopped")
        assert (refused.exit_code, "give its broker.conf with -c" in refused.output) == (5, True)
    recover(store, "-c", str(conf))
    assert (store / PLACE / "CURRENT").is_file()
    assert not (store / "consumequeue" / "CURRENT").exists()
    assert found_codes(store) == set()


def test_two_databases_without_broker_conf_are_refused(tmp_path: Path) -> None:
    store = copy_store(SEPARATE, tmp_path)
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(store / PLACE, store / "consumequeue")
    assert found_codes(store) == {"CQ-TWO-ROCKSDB"}
    refused = run("recover", str(store), "--apply", "--broker-is-stopped")
    assert refused.exit_code == 5
    assert "both have a RocksDB of consume queues" in refused.output


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", [LITE, LMQ])
@pytest.mark.parametrize("damage", ["rows", "table", "all"])
def test_light_queues_are_rebuilt_in_the_rocksdb_and_never_as_files(name: str, damage: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    queue = USER0 if name == LITE else ALL
    if damage == "rows":
        with changing(store, PLACE) as rows:
            rows.drop(queue, 0, 2)
            rows.drop(queue, 0, 3)
    else:
        for path in (store / PLACE).glob("*.sst" if damage == "table" else "*"):
            path.unlink()
    expected = {"rows": {"CQ-MISSING-UNIT"}, "table": {"CQ-ROCKSDB"}, "all": {"CQ-MISSING-QUEUE"}}[damage]
    assert found_codes(store) == expected
    recover(store)
    assert light_files(store) == []
    assert "queue entry  present" in run("find", str(store), f"{queue}/0/3").output


@pytest.mark.parametrize("damaged", [False, True])
def test_a_lite_queue_that_a_broker_deleted_is_no_damage(damaged: bool, tmp_path: Path) -> None:
    store = copy_store(LITE, tmp_path)
    with changing(store, PLACE) as rows:
        rows.delete(USER0, 0, 8)
        if damaged:
            rows.drop("%LMQ%$Lite_11$user1", 0, 2)
    result = run("verify", str(store))
    assert found_codes(store) == ({"CQ-MISSING-UNIT"} if damaged else set())
    assert "1 lite queue of the log" in " ".join(result.output.split())
    if damaged:  # the repair does not bring it back
        recover(store)
    assert "the log was not searched" in run("find", str(store), f"{USER0}/0/3").output


def test_another_light_queue_must_be_there(tmp_path: Path) -> None:
    store = copy_store(LMQ, tmp_path)
    with changing(store, PLACE) as rows:
        rows.delete(ALL, 0, 10)
    assert found_codes(store) == {"CQ-MISSING-QUEUE"}
    recover(store)
    assert "queue entry  present" in run("find", str(store), f"{ALL}/0/3").output


def test_only_lite_topics_are_compared_with_selective_double_write(tmp_path: Path) -> None:
    store = copy_store(LITE, tmp_path)
    assert "queues end at other offsets" not in " ".join(run("verify", str(store)).output.split())
    (store / PLACE / "CURRENT").unlink()
    recover(store, "-c", str(write_broker_conf(LITE, store)))
    rows = [json.loads(line) for line in run("dump", str(store), "--what", "consumequeue").stdout.splitlines()]
    assert {row["topic"] for row in rows if "store_timestamp" in row} == {f"%LMQ%$Lite_11$user{n}" for n in range(3)}


def test_an_older_broker_does_not_see_the_separate_directory() -> None:
    """5.4.0 makes an empty RocksDB in consumequeue/ and never dispatches the message at offset 0: 292 of 293 (real)."""
    report = run("verify", str(unpack(SEPARATE)), "--broker", "5.4.0").output
    assert "never deliver 1 message of 1 queue" in " ".join(report.split())
