"""`info --settings`: every setting with its value and where it comes from, and what differs between versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.effective_settings import effective_settings
from tests.command import run, run_json
from tests.stores import unpack

STORE = "5.4.0-clean"


def conf(folder: Path, text: str) -> str:
    path = folder / "broker.conf"
    path.write_text(text)
    return str(path)


def value_of(answer: Any, owner: str, key: str) -> list[tuple[str, Any, str, int | None, str | None]]:
    (row,) = [row for row in answer["settings"] if (row["class"], row["key"]) == (owner, key)]
    return [(v["version"], v["value"], v["origin"], v["line"], v["why"]) for v in row["values"]]


def test_every_setting_has_a_value_and_its_origin(tmp_path: Path) -> None:
    given = conf(tmp_path, "listenPort=11911\n\nmaxMessageSize=1M\nstorePathRootDir=/data\n")
    answer = run_json("info", str(unpack(STORE)), "-c", given, "--settings", exit_code=0)
    assert answer["versions"] == ["5.4.0"]
    settings: Any = answer["settings"]
    assert len(settings) == 525
    assert value_of(answer, "NettyServerConfig", "listenPort") == [("5.4.0", "11911", "file", 1, None)]
    store = "MessageStoreConfig"
    assert value_of(answer, store, "maxMessageSize") == [("5.4.0", "4194304", "default", None, None)]
    assert value_of(answer, store, "haListenPort") == [("5.4.0", "11912", "derived", None, "listenPort + 1")]
    log = ("5.4.0", "/data/commitlog", "derived", None, "in storePathRootDir")
    assert value_of(answer, store, "storePathCommitLog") == [log]
    assert answer["ignored"] == [
        {
            "version": "5.4.0",
            "line": 3,
            "key": "maxMessageSize",
            "value": "1M",
            "reason": "refused",
            "effect": "maxMessageSize does not accept 1M: it stays 4194304",
            "set": None,
        }
    ]


def test_two_versions_show_what_differs(tmp_path: Path) -> None:
    given = conf(tmp_path, "storePathRootDir=/data \n")
    options = ("-c", given, "--settings", "--broker", "4.9.7", "--broker", "5.5.1")
    text = run("info", str(unpack(STORE)), *options).stdout
    assert (
        "Another value (5; 174 are the same)\n"
        "  autoDeleteUnusedStats\n"
        "    4.9.7    false  default\n"
        "    5.5.1    true  default\n"
        "  registerBrokerTimeoutMills\n"
        "    4.9.7    6000  default\n"
        "    5.5.1    24000  default\n"
        "  transactionCheckInterval\n"
        "    4.9.7    60000  default\n"
        "    5.5.1    30000  default\n"
        "  storePathCommitLog\n"
        "    4.9.7    /data /commitlog  in storePathRootDir\n"
        "    5.5.1    /data/commitlog  in storePathRootDir\n"
        "  storePathRootDir\n"
        '    4.9.7    "/data "  line 1\n'
        "    5.5.1    /data  line 1\n"
    ) in text
    said = 'line 1: storePathRootDir="/data " counts as "/data "; write\n  storePathRootDir=/data\n'
    assert said in text


def test_a_version_without_the_option_is_wrong_usage() -> None:
    result = run("info", str(unpack(STORE)), "--broker", "5.4.0")
    assert (result.exit_code, result.stderr) == (2, "error: --broker needs --settings — add --settings\n")


@pytest.mark.parametrize(
    ("version", "text", "key", "value"),
    [
        ("4.9.7", "haListenPort=7\nlistenPort=9\n", "haListenPort", "10"),
        ("5.1.0", "haListenPort=7\nlistenPort=9\n", "haListenPort", "10"),
        ("5.1.1", "haListenPort=7\nlistenPort=9\n", "haListenPort", "7"),
        ("5.4.0", "haListenPort=-7\nlistenPort=9\n", "haListenPort", "10"),
        ("4.9.7", "brokerRole=SLAVE\n", "accessMessageInMemoryMaxRatio", "40"),
        ("5.1.4", "brokerRole=SLAVE\n", "accessMessageInMemoryMaxRatio", "30"),
        ("5.4.0", "brokerRole=SLAVE\n", "accessMessageInMemoryMaxRatio", "40"),
        ("5.4.0", "brokerId=3\n", "brokerId", "0"),
        ("5.4.0", "brokerId=3\nbrokerRole=SLAVE\n", "brokerId", "3"),
        ("5.4.0", "brokerId=3\nenableControllerMode=true\n", "brokerId", "3"),
        ("4.9.7", "enableDLegerCommitLog=true\n", "brokerId", "-1"),
        ("5.4.0", "diskMaxUsedSpaceRatio=99\n", "diskMaxUsedSpaceRatio", "95"),
        ("5.4.0", "mappedFileSizeConsumeQueue=2001\n", "mappedFileSizeConsumeQueue", "2020"),
        ("4.9.2", "storePathRootDir=/data\n", "storePathCommitLog", "{user.home}/store/commitlog"),
        ("4.9.4", "storePathRootDir=/data\n", "storePathCommitLog", "/data/commitlog"),
    ],
)
def test_what_the_broker_computes(version: str, text: str, key: str, value: str, tmp_path: Path) -> None:
    config = BrokerConfig.read(Path(conf(tmp_path, text)), version)
    found = {one.setting.key: one.value for one in effective_settings(config)}
    assert found[key] == value
