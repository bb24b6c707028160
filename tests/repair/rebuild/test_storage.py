"""`rebuild cq --storage`: consume queues and configuration change between files and RocksDB, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import TABLES
from rmqstore.files.rocksdb.rows import data_version, stored_table
from rmqstore.files.store import open_store
from rmqstore.formats.configuration import parse_config_object
from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, write_broker_conf
from tests.untouched import content, snapshot

need_rocksdict()
IN_FILES = ("5.4.0-clean", "5.5.1-clean")
IN_ROCKSDB = ("5.4.0-rocksdb", "5.5.1-rocksdb", "5.5.1-rocksdb-separate")
JSON_FILES = {"topics": "topics.json", "subscriptionGroups": "subscriptionGroup.json"}


def convert(store: Path, storage: str, conf: Path, *more: str) -> dict[str, Any]:
    return dict(run_json("rebuild", str(store), "cq", "--storage", storage, "-c", str(conf), *more, exit_code=0))


def changed(conf: Path, settings: dict[str, str]) -> Path:
    """Do in broker.conf what the plan says."""
    given = BrokerConfig.read(conf).given | settings
    conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()), "utf-8")
    return conf


def queues(store: Path, *conf: str) -> Any:
    found: Any = run_json("verify", str(store), *conf, exit_code=0)
    return {label: (one["min"], one["max"]) for label, one in found["queues"].items() if one["max"]}


def progress(store: Path) -> list[tuple[object, ...]]:
    found: Any = run_json("offsets", str(store), exit_code=0)["offsets"]
    return sorted((row["group"], row["topic"], row["queue_id"], row["offset"]) for row in found)


def remove_oldest(store: Path, left: int) -> None:
    for file in sorted((store / "commitlog").iterdir())[:-left]:
        file.unlink()


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [*IN_FILES, *IN_ROCKSDB])
def test_queues_offsets_and_topics_are_the_same_in_both_forms(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    before, was_queues, was_progress = content(store), queues(store), progress(store)
    there, back = ("rocksdb", "files") if name in IN_FILES else ("files", "rocksdb")
    first = convert(store, there, conf, "--apply")
    assert first["remaining"]["counts"] == {}
    changed(conf, first["settings"])
    for given in ((), ("-c", str(conf))):
        assert queues(store, *given) == was_queues
    assert progress(store) == was_progress
    middle = content(store)
    second = convert(store, back, conf, "--apply")
    changed(conf, second["settings"])
    assert queues(store, "-c", str(conf)) == was_queues
    assert progress(store) == was_progress
    assert run("undo", second["journal"]).exit_code == 0
    assert content(store) == middle
    assert run("undo", first["journal"]).exit_code == 0
    assert content(store) == before


@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_the_json_files_have_what_the_databases_had_and_a_newer_version(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    had = {table: stored_table(open_store(store), table, table).rows for table in TABLES}
    versions = {table: data_version(open_store(store), table, table) for table in TABLES}
    convert(store, "files", write_broker_conf(name, store), "--apply")
    for table, file in {**JSON_FILES, "consumerOffsets": "consumerOffset.json"}.items():
        made: Any = parse_config_object((store / "config" / file).read_bytes())
        assert made[TABLES[table]] == had[table]
        # a broker that still has storeType=defaultRocksDB imports the file
        assert made["dataVersion"]["counter"] > int(str(versions[table].get("counter", 0)))
        assert not (store / "config" / table).exists()
    assert not (store / "consumequeue_rocksdb").exists()
    assert not (store / "consumequeue" / "CURRENT").exists()


@pytest.mark.parametrize("name", IN_FILES)
def test_the_databases_have_what_the_json_files_have_and_their_version(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    convert(store, "rocksdb", write_broker_conf(name, store), "--apply")
    for table, file in {**JSON_FILES, "consumerOffsets": "consumerOffset.json"}.items():
        had: Any = parse_config_object((store / "config" / file).read_bytes())
        assert stored_table(open_store(store), table, table).rows == had[TABLES[table]]
        assert data_version(open_store(store), table, table) == had["dataVersion"]


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("given", "kept"), [({}, True), ({"enableLmq": "true"}, True), ({"enableLmq": "false"}, False)]
)
def test_offsets_of_light_queues_are_beside_the_others_unless_they_are_switched_off(
    given: dict[str, str], kept: bool, tmp_path: Path
) -> None:
    store = copy_store("5.5.1-clean", tmp_path)
    (store / "config" / "lmqConsumerOffset.json").write_text('{"lmqOffsetTable": {"%LMQ%a@group": 7}}')
    convert(store, "rocksdb", write_broker_conf("5.5.1-clean", store, **given), "--apply")
    rows = stored_table(open_store(store), "consumerOffsets", "consumerOffsets").rows
    assert rows.get("%LMQ%a@group") == ({"0": 7} if kept else None)


def test_one_database_for_all_tables(tmp_path: Path) -> None:
    store = copy_store("5.5.1-clean", tmp_path)
    conf = write_broker_conf("5.5.1-clean", store, useSingleRocksDBForAllConfigs="true")
    had = progress(store)
    convert(store, "rocksdb", conf, "--apply")
    assert not (store / "config" / "topics").exists()
    for table in TABLES:
        assert stored_table(open_store(store), "metadata", table).rows
    assert progress(store) == had


def test_the_separate_directory_is_used_if_broker_conf_names_it(tmp_path: Path) -> None:
    store = copy_store("5.5.1-clean", tmp_path)
    conf = write_broker_conf("5.5.1-clean", store, useSeparateStorePathForRocksdbCQ="true")
    done = convert(store, "rocksdb", conf, "--apply")
    assert done["settings"] == {"storeType": "defaultRocksDB", "useSeparateStorePathForRocksdbCQ": "true"}
    assert (store / "consumequeue_rocksdb" / "CURRENT").is_file()
    assert not (store / "consumequeue" / "CURRENT").exists()


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [*IN_FILES, *IN_ROCKSDB])
def test_a_queue_without_a_message_in_the_log_keeps_its_end(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    remove_oldest(store, 1)
    was = queues(store)
    empty = {label for label, (low, high) in was.items() if low == high > 0}
    assert empty
    done = convert(store, "rocksdb" if name in IN_FILES else "files", conf, "--apply")
    changed(conf, done["settings"])
    now = queues(store, "-c", str(conf))
    assert {label: high for label, (_, high) in now.items()} == {label: high for label, (_, high) in was.items()}
    assert {label: now[label] for label in was.keys() - empty} == {label: was[label] for label in was.keys() - empty}


def test_broker_conf_is_named_and_nothing_is_written_without_apply(store: Path) -> None:
    before = snapshot(store)
    result = run("rebuild", str(store), "cq", "--storage", "rocksdb")
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert "broker.conf needs storeType=defaultRocksDB, useSeparateStorePathForRocksdbCQ=false" in text
    assert snapshot(store) == before


def test_the_size_of_the_new_files_is_a_setting_unless_broker_conf_has_it(tmp_path: Path) -> None:
    store = copy_store("5.4.0-rocksdb", tmp_path)
    found: Any = run_json("rebuild", str(store), "cq", "--storage", "files", exit_code=1)
    assert found["settings"] == {"storeType": "default", "mappedFileSizeConsumeQueue": "6000000"}
    assert found["brakes"] == []
    done = convert(store, "files", write_broker_conf("5.4.0-rocksdb", store), "--apply")
    assert done["settings"] == {"storeType": "default"}


def test_saved_plan(tmp_path: Path) -> None:
    store, plan = copy_store("5.4.0-clean", tmp_path), str(tmp_path / "plan.json")
    words = ("rebuild", str(store), "cq")
    assert run(*words, "--storage", "rocksdb", "--plan-out", plan).exit_code == 1
    assert run(*words, "--plan", plan).exit_code == 2
    assert run(*words, "--storage", "files", "--plan", plan).exit_code == 2
    assert run(*words, "--storage", "rocksdb", "--plan", plan, "--apply").exit_code == 0


def refused(store: Path, storage: str, *more: str, code: int = 5) -> str:
    found: Any = run_json("rebuild", str(store), "cq", "--storage", storage, *more, exit_code=code)
    return str(found["error"]["message"])


@pytest.mark.parametrize(
    ("name", "storage", "words"),
    [
        ("5.4.0-clean", "files", "in files already"),
        ("5.4.0-rocksdb", "rocksdb", "in RocksDB already"),
        ("5.4.0-rocksdb-double", "files", "to files and to RocksDB"),
        ("5.4.0-dledger", "rocksdb", "DLedger"),
        ("5.1.4-formats", "rocksdb", "batch queue"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_reason(
    name: str, storage: str, words: str, tmp_path: Path
) -> None:
    store = copy_store(name, tmp_path)
    before = snapshot(store)
    assert words in refused(store, storage)
    assert snapshot(store) == before


def test_a_store_with_problems_is_repaired_first(store: Path) -> None:
    (store / "consumequeue" / "Order_11" / "1" / f"{0:020d}").unlink()
    assert "without problems" in refused(store, "rocksdb")


def test_only_all_queues_are_converted(store: Path) -> None:
    refused(store, "rocksdb", "--topic", "Order_11", code=2)
    assert run("rebuild", str(store), "index", "--storage", "rocksdb").exit_code == 2


def blocked_groups(store: Path) -> Iterable[Any]:
    path = store / "config" / "subscriptionGroup.json"
    table: Any = parse_config_object(path.read_bytes())
    table["forbiddenTable"] = {"CG_part_11": {"Order_11": 1}}
    path.write_text(json.dumps(table), "utf-8")
    return table["forbiddenTable"]


def test_what_groups_may_not_read_goes_there_and_back(store: Path) -> None:
    conf = write_broker_conf("5.4.0-clean", store)
    wanted = blocked_groups(store)
    changed(conf, convert(store, "rocksdb", conf, "--apply")["settings"])
    (store / "config" / "subscriptionGroup.json").unlink()
    (store / "config" / "subscriptionGroup.json.bak").unlink()
    convert(store, "files", conf, "--apply")
    table: Any = parse_config_object((store / "config" / "subscriptionGroup.json").read_bytes())
    assert table["forbiddenTable"] == wanted
