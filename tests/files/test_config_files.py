"""Which file of config/ a broker loads, and the offsets of consumers in it.

The expected values are those of ConsumerOffsetManager#load in RocketMQ 5.1.4 and 5.4.0 with the same two files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.files import config
from rmqstore.files.config import (
    Committed,
    committed_offsets,
    config_bytes,
    delay_offsets,
    loaded_config,
    null_table,
    wrong_type,
)
from rmqstore.files.files import LOCAL
from rmqstore.formats.configuration import parse_config_object

BACKUP = '{"offsetTable":{"T@G":{0:9}}}'


def loaded(root: Path, text: str, backup: str | None = BACKUP) -> list[Committed] | None:
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(text)
    if backup is not None:
        (root / "config" / "consumerOffset.json.bak").write_text(backup)
    return loaded_config(LOCAL, root, "consumerOffset.json", committed_offsets)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", []),
        ('{"offsetTable":null}', []),
        ('{"offsetTable":{"T@G":{-1:5}}}', [Committed("T", "G", -1, 5)]),
        ('{"offsetTable":{"T@G":{0:"5"}}}', [Committed("T", "G", 0, 5)]),
        ('{"offsetTable":{"T@G":{0:true}}}', [Committed("T", "G", 0, 1)]),
        ('{"offsetTable":{"T@G":{0:5.7}}}', [Committed("T", "G", 0, 5)]),
        ('{"offsetTable":{"T":{0:5}}}', [Committed("T", "", 0, 5)]),
        ('{"lmqOffsetTable":{"%LMQ%a@G":7}}', [Committed("%LMQ%a", "G", 0, 7)]),
    ],
)
def test_a_file_that_a_broker_loads_counts(text: str, expected: list[Committed], tmp_path: Path) -> None:
    assert loaded(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "\0\0\0",
        '{"offsetTable":{"T@G":{0:',
        '{"offsetTable":[]}',
        '{"offsetTable":7}',
        '{"offsetTable":{"T@G":5}}',
        '{"offsetTable":{"T@G":{0:null}}}',
        '{"offsetTable":{"T@G":{"x":5}}}',
        '{"offsetTable":{"T@G":{99999999999:5}}}',
        '{"lmqOffsetTable":{"%LMQ%a@G":{0:7}}}',
    ],
)
def test_the_backup_replaces_a_file_that_a_broker_rejects(text: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, text) == [Committed("T", "G", 0, 9)]


def test_without_a_readable_file_nothing_is_loaded(tmp_path: Path) -> None:
    assert loaded(tmp_path, "{", None) is None


def test_a_file_above_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"{}   ")
    monkeypatch.setattr(config, "LARGEST", 5)
    assert config_bytes(LOCAL, path) == b"{}   "
    monkeypatch.setattr(config, "LARGEST", 4)
    assert config_bytes(LOCAL, path) == b""


def test_delay_levels_are_queues_from_zero() -> None:
    assert delay_offsets(parse_config_object(b'{"offsetTable":{1:7,18:2}}')) == {0: 7, 17: 2}
    assert delay_offsets(parse_config_object(b'{"offsetTable":{1:[]}}')) is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("consumerOffset.json", '{"offsetTable":[]}', "offsetTable is not an object"),
        ("consumerOffset.json.bak", '{"offsetTable":{"T@G":{0:"x"}}}', "offset of T@G is not a number"),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{0:" 7"}}}', "offset of T@G is not a number"),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{x:7}}}', "queue id of T@G is not a number"),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{4294967296:7}}}', "queue id of T@G does not fit into 32 bits"),
        ("lmqConsumerOffset.json", '{"lmqOffsetTable":{"%LMQ%a@G":[]}}', "offset of %LMQ%a@G is not a number"),
        ("delayOffset.json", '{"offsetTable":{"3":""}}', "offset of 3 is not a number"),
        ("topics.json", '{"topicConfigTable":null}', "topicConfigTable is null"),
        ("topics.json", '{"topicConfigTable":{"T":[]}}', "T is not an object"),
        ("topics.json", '{"topicConfigTable":{"T":{"perm":"x"}}}', "perm of T is not a number"),
        ("topics.json", '{"topicConfigTable":{"T":{"order":"x"}}}', "order of T is not a boolean"),
        ("topics.json", '{"topicConfigTable":{"T":{"attributes":[]}}}', "attributes of T is not an object"),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":"x"}', "subscriptionGroupTable is not an object"),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"G":null}}', "G is not an object"),
        ("delayOffset.json", '{"offsetTable":null}', "offsetTable is null"),
        ("topics.json", '{"dataVersion":null,"topicConfigTable":{}}', "dataVersion is null"),
        ("topicQueueMapping.json", "{}", "topicQueueMappingInfoMap is missing"),
        ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":null}', "topicQueueMappingInfoMap is null"),
        ("messageRequestMode.json", '{"messageRequestModeMap":{"T":null}}', "T is not an object"),
        (
            "consumerFilter.json",
            '{"filterDataByTopic":{"T":{"groupFilterData":null}}}',
            "groupFilterData of T is not an object",
        ),
    ],
)
def test_values_of_wrong_types_are_named(name: str, text: str, said: str) -> None:
    """With each of these, #decode of the manager throws in 5.1.4 and 5.4.0."""
    assert wrong_type(name, parse_config_object(text.encode())) == said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumerOffset.json", '{"offsetTable":{"T@G":{0:"7"}},"pullOffsetTable":7}'),
        ("consumerFilter.json", '{"filterDataByTopic":null}'),
        ("messageRequestMode.json", '{"messageRequestModeMap":{"T":{"G":{}}}}'),
        ("topics.json", '{"topicConfigTable":{"T":{"perm":"6","readQueueNums":null,"attributes":null,"other":[1]}}}'),
        ("topics.json", '{"dataVersion":{"counter":5}}'),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"G":{"consumeEnable":true,"groupName":7}}}'),
        ("brokerIdentity", '{"offsetTable":[]}'),
    ],
)
def test_values_that_a_broker_converts_or_ignores_are_no_fault(name: str, text: str) -> None:
    assert wrong_type(name, parse_config_object(text.encode())) == ""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("consumerOffset.json", '{"offsetTable":null}', "offsetTable is null"),
        ("lmqConsumerOffset.json.bak", '{"offsetTable":{},"lmqOffsetTable":null}', "lmqOffsetTable is null"),
        ("consumerOrderInfo.json", '{"table":null}', "table is null"),
        ("messageRequestMode.json", '{"messageRequestModeMap":null}', "messageRequestModeMap is null"),
        ("consumerOffset.json", "{}", ""),
    ],
)
def test_a_null_that_a_broker_takes_as_its_table_is_named(name: str, text: str, said: str) -> None:
    """#decode of 4.9.7, 5.1.4 and 5.4.0 does not throw, but sets the manager's table to null."""
    table = parse_config_object(text.encode())
    assert (wrong_type(name, table), null_table(name, table)) == ("", said)
