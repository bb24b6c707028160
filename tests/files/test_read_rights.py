"""What a broker's configuration lets consumers read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqstore.checks.beside.read_rights import check_read_rights
from rmqstore.checks.problems.report import Findings, QueueState
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.read_rights import ReadRights, Refusal, TopicRights
from rmqstore.files.store import open_store
from tests.command import run
from tests.rocksdb_rows import need_rocksdict
from tests.stores import unpack


def write(root: Path, topics: object, groups: object = None, offsets: object = None) -> Path:
    config = root / "config"
    config.mkdir()
    (root / "commitlog").mkdir()
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups or {}}))
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets or {}}))
    return root


@pytest.mark.parametrize(
    ("topic", "queue_id", "refusal"),
    [
        ("Both", 3, None),
        ("Both", 4, Refusal.NO_QUEUE),
        ("Quoted", 1, None),
        ("Quoted", 2, Refusal.NO_QUEUE),
        ("WriteOnly", 0, Refusal.NO_PERMISSION),
        ("Defaults", 15, None),
        ("Defaults", 16, Refusal.NO_QUEUE),
        ("Gone", 0, Refusal.NO_TOPIC),
        ("%RETRY%Gone", 0, None),
        ("%RETRY%G", 0, Refusal.NO_PERMISSION),
        ("%DLQ%G", 0, None),
        ("%LMQ%light", 0, None),
        ("SCHEDULE_TOPIC_XXXX", 17, None),
    ],
)
def test_why_no_consumer_gets_a_queue(topic: str, queue_id: int, refusal: Refusal | None, tmp_path: Path) -> None:
    topics = {
        "Both": {"perm": 6, "readQueueNums": 4},
        "Quoted": {"perm": "4", "readQueueNums": 2.7},
        "WriteOnly": {"perm": 2, "readQueueNums": 4},
        "Defaults": {"perm": None},
        "%RETRY%G": {"perm": 0},
        "%DLQ%G": {"perm": 2},
    }
    assert ReadRights.read(open_store(write(tmp_path, topics))).refusal(topic, queue_id) == refusal


def test_a_slave_has_the_configuration_of_its_master(tmp_path: Path) -> None:
    write(tmp_path, {"A": {"perm": 2}}, {"G": {"consumeEnable": False}})
    slave = BrokerConfig({"brokerRole": "SLAVE"})
    assert ReadRights.read(open_store(tmp_path, slave)) == ReadRights(None, frozenset())
    master = ReadRights.read(open_store(tmp_path))
    assert master == ReadRights({"A": TopicRights(2, 16)}, frozenset({"G"}))


def test_rights_in_rocksdb() -> None:
    need_rocksdict()
    assert ReadRights.read(open_store(unpack("5.5.1-config-v2"))) == ReadRights({}, frozenset(), all_topics=False)
    rights = ReadRights.read(open_store(unpack("5.4.0-rocksdb")))
    assert rights.topics is not None and rights.topics["%DLQ%CG_dlq_11"] == TopicRights(6, 1)


def found(store: Path, states: dict[str, QueueState]) -> list[tuple[str, dict[str, object]]]:
    findings = Findings()
    check_read_rights(open_store(store), states, findings)
    return [(finding.code, dict(finding.facts)) for finding in findings.listed]


def test_only_messages_that_are_not_read_make_a_finding(tmp_path: Path) -> None:
    offsets = {"Closed@read": {"0": 30}, "Closed@unread": {"1": 25}, "Open@read": {"0": 30}}
    store = write(tmp_path, {"Closed": {"perm": 2}, "Open": {"perm": 6, "readQueueNums": 1}}, offsets=offsets)
    end = QueueState(20, 30, 30)
    assert found(store, {"Closed/0": end, "Open/0": end}) == []
    facts = {"topic": "Closed", "perm": 2, "messages": 5, "groups": "unread"}
    assert found(store, {"Closed/0": end, "Closed/1": end}) == [("CFG-NO-READ", facts)]
    nobody = {"topic": "Open", "read_queues": 1, "queues": "1", "messages": 10}  # no group has an offset
    assert found(store, {"Open/0": end, "Open/1": end}) == [("CFG-READ-QUEUES", nobody)]


def test_a_group_that_may_not_consume_counts_if_it_has_not_read_all(tmp_path: Path) -> None:
    offsets = {"A@off": {"0": 30, "1": 7}, "%RETRY%off@off": {"0": 1}, "A@on": {"0": 0, "1": 0}}
    store = write(tmp_path, {"A": {}, "%RETRY%off": {}}, {"off": {"consumeEnable": False}, "on": {}}, offsets)
    states = {"A/0": QueueState(0, 30, 30), "A/1": QueueState(10, 12, 14), "%RETRY%off/0": QueueState(0, 3, 3)}
    assert found(store, {"A/0": states["A/0"]}) == []
    assert found(store, states) == [("CFG-GROUP-OFF", {"group": "off", "messages": 6})]


def test_a_queue_directory_with_any_name_has_no_rights(tmp_path: Path) -> None:
    shutil.copytree(unpack("5.4.0-clean") / "consumequeue/Order_11/0", tmp_path / "b")
    assert run("verify", str(tmp_path / "b")).exit_code == 4
