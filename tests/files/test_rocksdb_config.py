"""The configuration in RocksDB: version 2, the single database, and which of several a broker reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import GROUPS, METADATA, OFFSETS, TOPICS, V2, Committed, directory_of
from rmqstore.files.rocksdb.rows import stored_table
from rmqstore.files.store import open_store
from rmqstore.formats import configuration
from rmqstore.formats.configuration import JsonValue, parse_config_object
from rmqstore.repair.journal.journal import apply, undo
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from tests.planning import report_of
from tests.rocksdb_rows import need_rocksdict, opened_rows
from tests.stores import copy_store, unpack
from tests.untouched import content

NAME = "5.5.1-config-v2"
ROW = configuration.KEY_HEAD.build(table=configuration.CONSUMER_OFFSET) + configuration.OFFSET_KEY.build(
    group_length=2, group=b"CG", topic_length=8, topic=b"Order_11", queue_id=1
)


def in_v2(table: int, name: bytes) -> bytes:
    return configuration.KEY_HEAD.build(table=table) + configuration.NAME.build(name_length=len(name), name=name)


def single_database(store: Path) -> None:
    """Move consumerOffset.json, topics.json and subscriptionGroup.json to config/metadata, as a broker does."""
    config = store / "config"
    database = NewDatabase(config / METADATA, ("default", "topic", "subscriptionGroup", "consumerOffset"))
    for family, file, table in (
        ("topic", "topics.json", "topicConfigTable"),
        ("subscriptionGroup", "subscriptionGroup.json", "subscriptionGroupTable"),
        ("consumerOffset", "consumerOffset.json", "offsetTable"),
    ):
        rows = parse_config_object((config / file).read_bytes())[table]
        assert isinstance(rows, dict)
        values: dict[bytes, JsonValue] = {name.encode(): row for name, row in rows.items()}
        if family == "consumerOffset":
            values = {name: {"offsetTable": row} for name, row in values.items()}
        names = sorted(values)
        database.put(family, names, [json.dumps(values[name]).encode() for name in names])
    database.finish()
    for file in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        for path in config.glob(f"{file}*"):
            path.unlink()


def test_the_offsets_of_config_v2_are_read() -> None:
    need_rocksdict()
    store = open_store(unpack(NAME))
    assert directory_of(store, OFFSETS) == V2
    offsets = ConsumerOffsets.read(store)
    assert offsets.unreadable == ""
    assert Committed("Order_11", "CG_part_11", 3, 17) in set(offsets.rows())
    assert len(list(offsets.rows())) == 14


def test_a_sound_store_with_config_v2_is_clean() -> None:
    need_rocksdict()
    report = report_of(unpack(NAME))
    assert (dict(report.findings.counts), report.unchecked) == ({"CFG-UNSTORED-TOPICS": 1}, [])


def test_topics_and_groups_of_config_v2_are_read(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    with opened_rows(store / "config" / V2) as database:
        rows = database.get_column_family("default")
        rows[in_v2(configuration.TOPIC, b"Order_11")] = b'\x01{"topicName":"Order_11","perm":6}'
        rows[in_v2(configuration.TOPIC, b"other")] = b"\x02\x00"
        rows[in_v2(configuration.SUBSCRIPTION_GROUP, b"CG")] = b'\x01{"groupName":"CG"}'
    topics = stored_table(open_store(store), V2, TOPICS)
    assert (topics.rows, topics.broken) == ({"Order_11": {"topicName": "Order_11", "perm": 6}}, 1)
    assert stored_table(open_store(store), V2, GROUPS).rows == {"CG": {"groupName": "CG"}}
    report = report_of(store)
    assert report.unchecked == ["config/rdb/: 1 row of topics cannot be read"]


@pytest.mark.parametrize("form", [V2, METADATA])
def test_an_offset_beyond_its_queue_is_found_and_reduced_and_undone(form: str, tmp_path: Path) -> None:
    need_rocksdict()
    if form == V2:
        store = copy_store(NAME, tmp_path)
        with opened_rows(store / "config" / V2) as database:
            database.get_column_family("default")[ROW] = configuration.OFFSET_VALUE.build(offset=1000)
    else:
        store = copy_store("5.5.1-clean", tmp_path)
        single_database(store)
        with opened_rows(store / "config" / METADATA) as database:
            database.get_column_family("consumerOffset")[b"Order_11@CG"] = b'{"offsetTable":{"0":1,"1":1000}}'
    opened = open_store(store)
    end = examine(opened, VerifyOptions(jobs=1)).report.queues["Order_11/1"].max
    verified = examine(opened, VerifyOptions(jobs=1))
    [finding] = [f for f in verified.report.findings.listed if f.code != "CFG-UNSTORED-TOPICS"]
    assert (finding.code, finding.file, finding.facts["group"]) == ("CFG-OFFSET-BEYOND", form, "CG")
    before = content(store)
    others = set(ConsumerOffsets.read(opened).rows()) - {Committed("Order_11", "CG", 1, 1000)}
    journal = apply(plan_recovery(opened, verified, RecoverOptions(only=("CFG-OFFSET-BEYOND",)))).journal
    again = open_store(store)
    assert set(ConsumerOffsets.read(again).rows()) == others | {Committed("Order_11", "CG", 1, end)}
    assert set(examine(again, VerifyOptions(jobs=1)).report.findings.counts) <= {"CFG-UNSTORED-TOPICS"}
    assert journal is not None
    undo(journal)
    assert content(store) == before


def test_the_single_database_has_the_tables_of_the_json_files(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.5.1-clean", tmp_path)
    before = set(ConsumerOffsets.read(open_store(store)).rows())
    single_database(store)
    assert set(ConsumerOffsets.read(open_store(store)).rows()) == before
    assert "Order_11" in stored_table(open_store(store), METADATA, TOPICS).rows
    report = report_of(store)
    assert (report.exit_code, dict(report.findings.counts), report.unchecked) == (0, {}, [])


@pytest.mark.parametrize(
    ("settings", "directory"),
    [
        ({}, V2),
        ({"configManagerVersion": "v2"}, V2),
        ({"configManagerVersion": "v1"}, METADATA),
        ({"configManagerVersion": "v1", "useSingleRocksDBForAllConfigs": "false"}, OFFSETS),
        ({"configManagerVersion": "v1", "useSingleRocksDBForAllConfigs": "true"}, METADATA),
    ],
)
def test_broker_conf_decides_between_databases(settings: dict[str, str], directory: str, tmp_path: Path) -> None:
    for name in (OFFSETS, METADATA, V2):
        made = tmp_path / "config" / name
        made.mkdir(parents=True)
        (made / "MANIFEST-000001").touch()
    (tmp_path / "commitlog").mkdir()
    assert directory_of(open_store(tmp_path, BrokerConfig(settings)), OFFSETS) == directory


def test_databases_without_positions_do_not_make_a_store_partly_checked(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.5.1-clean", tmp_path)
    rows = {
        "users": (b"alice", b'{"username":"alice","password":"x","userType":1,"userStatus":1}'),
        "acls": (b"User:alice", b'{"subject":{"@type":"User","username":"alice"},"policies":[]}'),
    }
    for name, (key, value) in rows.items():
        database = NewDatabase(store / "config" / name, ("default",))
        database.put("default", [key], [value])
        database.finish()
    report = report_of(store)
    assert (report.exit_code, report.unchecked) == (0, [])
