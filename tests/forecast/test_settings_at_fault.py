"""Which settings are named as the reason of a failed start or a loss, and the line that cures it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.simulate import as_configured
from rmqstore.checks.beside.settings import misfits
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.command import run, run_json
from tests.forecast.damages import body, checkpoint_has
from tests.stores import copy_store, write_broker_conf

LEVELS = BrokerConfig().text("messageDelayLevel")
_BOTH = {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}
_PEERS = {"dLegerSelfId": "n1", "dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2"}
_FIRST = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0", "dLegerPeers": "n0-127.0.0.1:1"}
AT_FAULT: dict[str, tuple[str, Mapping[str, str | None], list[str]]] = {
    "other node": ("5.4.0-dledger", _PEERS, ["dLegerSelfId=n0"]),
    "node that no peer names": ("5.4.0-dledger", {"dLegerSelfId": "n1"}, ["dLegerSelfId=n0"]),
    "peer without a host": ("5.4.0-dledger", {"dLegerPeers": "n0:40911"}, ["dLegerPeers=n0-HOST:40911"]),
    "peer without a port": ("4.9.7-dledger", {"dLegerPeers": "n0-10.0.0.1"}, ["dLegerPeers=n0-10.0.0.1:40911"]),
    "node without a number": ("5.4.0-dledger", {"dLegerSelfId": "nx"}, ["dLegerSelfId=n0"]),
    "no peers": ("5.1.4-dledger", {"dLegerPeers": None}, ["dLegerPeers=n0-HOST:40911"]),
    "no node": ("5.5.1-dledger", {"dLegerSelfId": None}, ["dLegerSelfId=n0"]),
    "one of two peers": (
        "5.5.1-dledger",
        {"dLegerPeers": "n0-10.0.0.1:40911;n1:40912"},
        ["dLegerPeers=n0-10.0.0.1:40911;n1-HOST:40912"],
    ),
    "no DLedger": ("5.4.0-dledger", {"enableDLegerCommitLog": "false"}, ["enableDLegerCommitLog=true"]),
    "CRC of properties": (
        "5.4.0-clean",
        {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"},
        ["forceVerifyPropCRC=false"],
    ),
    "duplication": ("5.4.0-killed", {"duplicationEnable": "true"}, ["duplicationEnable=false"]),
    "no kind of queue": (
        "5.5.1-rocksdb-double",
        {**_BOTH, "combineCQLoadingCQTypes": ";"},
        ["combineCQLoadingCQTypes=default;defaultRocksDB"],
    ),
    "other place of the rows": (
        "5.5.1-rocksdb-double",
        {**_BOTH, "useSeparateStorePathForRocksdbCQ": "true"},
        ["useSeparateStorePathForRocksdbCQ=false"],
    ),
    "delay levels": (
        "5.1.4-clean",
        {"messageDelayLevel": LEVELS.replace(" 1h", "  1h")},
        [f"messageDelayLevel={LEVELS}"],
    ),
    "DLedger without mapping": (
        "5.5.1-before-dledger",
        {**_FIRST, "writeWithoutMmap": "true"},
        ["writeWithoutMmap=false"],
    ),
    "duplication in DLedger mode": (
        "5.4.0-dledger3-n2",
        {"duplicationEnable": "true"},
        ["duplicationEnable=false"],
    ),
    "delay levels that cannot be parsed": (
        "5.4.0-clean",
        {"messageDelayLevel": "1s 5x"},
        [f"messageDelayLevel={LEVELS}"],
    ),
    "queues in RocksDB": ("5.4.0-clean", {"storeType": "defaultRocksDB"}, ["storeType=default"]),
    "no slots, after a crash": ("5.4.0-killed", {"maxHashSlotNum": "0"}, ["maxHashSlotNum=100"]),
    "no slots": ("5.4.0-clean", {"maxHashSlotNum": "0"}, ["maxHashSlotNum=100"]),
    "no entries, after a crash": ("5.1.4-killed", {"maxIndexNum": "1"}, ["maxIndexNum=400"]),
    "no entries": ("4.9.7-clean", {"maxIndexNum": "0"}, ["maxIndexNum=400"]),
    "too many entries": ("5.5.1-clean", {"maxIndexNum": "200000000"}, ["maxIndexNum=400"]),
    "a class that RocketMQ does not have": (
        "5.4.0-clean",
        {"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredStore"},
        ["messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore"],
    ),
    "sound": ("5.4.0-dledger", {}, []),
    "a list without a class": ("5.4.0-clean", {"messageStorePlugIn": ","}, []),
    "the tiered store": (
        "5.4.0-clean",
        {"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore"},
        [],
    ),
    "harmless": ("5.4.0-clean", {"checkCRCOnRecover": "false", "fileReservedTime": "48"}, []),
}


def broker_conf(name: str, store: Path, settings: Mapping[str, str | None]) -> Path:
    """Write the broker.conf of a fixture with changed lines; None for no line."""
    conf = write_broker_conf(name, store)
    lines = [line for line in conf.read_text().splitlines() if line.partition("=")[0] not in settings]
    lines += [f"{key}={value}" for key, value in settings.items() if value is not None]
    conf.write_text("\n".join(lines) + "\n")
    return conf


def verify(store: Path, name: str, settings: Mapping[str, str | None], *, exit_code: int) -> Any:
    conf = broker_conf(name, store, settings)
    return run_json("verify", str(store), "-c", str(conf), exit_code=exit_code)


@pytest.mark.parametrize("what", AT_FAULT)
def test_the_settings_at_fault_come_with_the_lines_to_write(what: str, tmp_path: Path) -> None:
    name, settings, lines = AT_FAULT[what]
    store = copy_store(name, tmp_path)
    report = verify(store, name, settings, exit_code=1 if lines else 0)
    assert report["counts"].get("CFG-SETTING", 0) == len(lines)
    assert [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"] == lines
    for line in lines:
        assert line.partition("=")[0] in report["verdict"]
    cured = dict(settings) | dict(line.split("=", 1) for line in lines)
    assert verify(store, name, cured, exit_code=0)["counts"].get("CFG-SETTING", 0) == 0


def test_accelerated_recovery_without_its_offset_is_the_setting_that_stops_the_start(tmp_path: Path) -> None:
    store = copy_store("5.5.1-flushed", tmp_path)
    (store / "abort").touch()
    checkpoint_has(logics_physical_offset=0)(store)
    report = verify(store, "5.5.1-flushed", {"enableAcceleratedRecovery": "true"}, exit_code=1)
    found = [one["facts"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert [facts["set"] for facts in found] == ["enableAcceleratedRecovery=false"]
    assert found[0]["reason"] == "enableAcceleratedRecovery needs the logicsPhysicalOffset that the checkpoint lacks"


def test_damage_of_a_part_is_no_fault_of_the_setting_that_names_it(tmp_path: Path) -> None:
    store = copy_store("5.4.0-trans-rocksdb", tmp_path)
    (store / "abort").touch()
    manifest = next((store / "rocksdbstore").glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:50] + b"\xff" * 20)
    report = verify(store, "5.4.0-trans-rocksdb", {"transRocksDBEnable": "true"}, exit_code=1)
    assert "CFG-SETTING" not in report["counts"]
    assert report["broker"]["starts"] is False
    assert report["broker"]["reason"].startswith("rocksdbstore/ cannot be opened")


_ID = {"enableControllerMode": "true"}
MISFITS: dict[str, tuple[str, Mapping[str, str | None], list[str], str]] = {
    "broker name": ("5.4.0-controller-master", {**_ID, "brokerName": "b"}, ["brokerName=broker-11"], "registers"),
    "cluster and broker name": (
        "5.4.0-controller-slave",
        {**_ID, "brokerClusterName": "c", "brokerName": "b"},
        ["brokerClusterName=DefaultCluster", "brokerName=broker-11"],
        "registers",
    ),
    "broker id": ("5.4.0-controller-master", {**_ID, "brokerId": "7"}, [], ""),
    "no controller": ("5.4.0-controller-master", {"enableControllerMode": "false", "brokerName": "b"}, [], ""),
    "version 2": ("5.5.1-config-v2", {"configManagerVersion": "v1"}, ["configManagerVersion=v2"], "config/rdb/"),
    "store type": (
        "5.4.0-rocksdb",
        {"storeType": "default"},
        ["storeType=defaultRocksDB"],
        "config/consumerOffsets/ (storeType=default)",
    ),
    "store type of 5.5.1": (
        "5.5.1-rocksdb",
        {"storeType": "default"},
        ["storeType=defaultRocksDB"],
        "config/consumerOffsets/ (storeType=default)",
    ),
    "no store type": (
        "5.4.0-rocksdb",
        {"storeType": None},
        ["storeType=defaultRocksDB"],
        "config/consumerOffsets/ (no storeType)",
    ),
    "another case": ("5.4.0-rocksdb", {"storeType": "DEFAULTROCKSDB"}, [], ""),
}


@pytest.mark.parametrize("what", MISFITS)
def test_settings_that_contradict_files_beside_the_log_come_with_the_line_to_write(what: str, tmp_path: Path) -> None:
    name, settings, lines, words = MISFITS[what]
    store = copy_store(name, tmp_path)
    report = verify(store, name, settings, exit_code=1 if lines else 0)
    assert sorted(one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING") == lines
    assert words in report["verdict"]


IDENTITIES: dict[str, tuple[dict[str, bytes], list[str]]] = {
    "another cluster": ({"brokerIdentity": b"c#broker-11#1"}, ["brokerClusterName=c"]),
    "another broker id": ({"brokerIdentity": b"DefaultCluster#broker-11#9"}, []),
    "temporary one beside": ({"brokerIdentity": b"DefaultCluster#broker-11#1", "brokerIdentity-temp": b"c#b#2#x"}, []),
    "only the temporary one": ({"brokerIdentity-temp": b"DefaultCluster#b#2#x"}, ["brokerName=b"]),
    "unreadable": ({"brokerIdentity": b"c#b#x", "brokerIdentity-temp": b"DefaultCluster#b#2#x"}, ["brokerName=b"]),
    "temporary one without a code": ({"brokerIdentity-temp": b"DefaultCluster#b#2"}, []),
}


@pytest.mark.parametrize("what", IDENTITIES)
def test_the_identity_that_a_broker_reads_is_compared(what: str, tmp_path: Path) -> None:
    files, lines = IDENTITIES[what]
    store = copy_store("5.4.0-controller-master", tmp_path)
    (store / "brokerIdentity").unlink()
    for name, raw in files.items():
        (store / name).write_bytes(raw)
    settings = {**_ID, "brokerClusterName": None}  # its default is DefaultCluster
    opened = open_store(store, BrokerConfig.read(broker_conf("5.4.0-controller-master", store, settings)))
    config = as_configured(opened.config, "5.4.0")
    assert [one.line for one in misfits(opened, config, rules_for("5.4.0"))] == lines


@pytest.mark.parametrize(("version", "delivers"), [("4.9.7", True), ("5.1.4", False), ("5.4.0", None), ("5.5.1", None)])
def test_a_blank_after_the_root_is_another_directory_for_brokers_that_do_not_trim(
    version: str, delivers: bool | None, tmp_path: Path
) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    conf = broker_conf("4.9.7-clean", store, {"storePathRootDir": f"{store} "})
    at_fault = delivers is not None
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=int(at_fault))
    elsewhere = (
        f"RocketMQ {version} would start with another directory than this store, because of "
        f'storePathRootDir="{store} ", and '
    )
    none = "deliver none of 571 messages of 21 queues"
    end = "know none of its topics, consumer groups and offsets" if delivers else none
    assert report["verdict"] == (elsewhere + end if at_fault else f"RocketMQ {version} would start and lose nothing")
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == ([f"storePathRootDir={store}"] if at_fault else [])


def _without_log(store: Path) -> dict[str, str | None]:
    return {"storePathRootDir": f"{store} ", "storePathCommitLog": None}


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4"])
@pytest.mark.parametrize("what", ["a wrong size", "a directory for a file", "no damage"])
def test_the_directory_beside_the_store_starts_whatever_the_store_and_its_sizes_are(
    version: str, what: str, tmp_path: Path
) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    size = {"mappedFileSizeConsumeQueue": "4000"} if what == "a wrong size" else {}
    if what == "a directory for a file":
        (store / "commitlog" / "notes").mkdir()
    conf = broker_conf("4.9.7-clean", store, _without_log(store) | size)
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=1)
    assert (report["broker"]["starts"], report["broker"]["max_offset"]) == (True, 0)
    assert "would start with another directory than this store" in report["verdict"]
    assert "deliver none of 571 messages of 21 queues" in report["verdict"]
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == [f"storePathRootDir={store}"]


def test_all_wrong_lines_are_named_at_once_if_one_of_them_is_a_size(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    settings = {"mappedFileSizeCommitLog": None, "mappedFileSizeConsumeQueue": "4000"}
    conf = broker_conf("5.4.0-clean", store, settings)
    text = " ".join(run("verify", str(store), "-c", str(conf)).stdout.split())
    lines = "mappedFileSizeConsumeQueue=2000, mappedFileSizeCommitLog=65536"
    assert f"broker.conf does not fit the files of this store: set {lines}." in text
    assert f"Next: set {lines} in {conf}." in text
    assert "CFG-SETTING a setting of the broker does not fit the store" in text


def test_a_line_that_is_not_read_as_it_looks_comes_with_the_line_to_write_as_the_next_step(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    conf = broker_conf("5.4.0-clean", store, {"fileReservedTime": "48 ", "flushInterval": "x", "deleteWhen ": "04"})
    result = run("verify", str(store), "-c", str(conf))
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert f"Next: write fileReservedTime=48 into {conf}. Then: rmqstore verify {store} -c {conf}" in text


@pytest.mark.parametrize(
    ("settings", "code", "line"),
    [
        ({"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}, "CFG-SETTING", "forceVerifyPropCRC=false"),
        ({"fileReservedTime": "48 "}, "CFG-LINE", "fileReservedTime=48"),
    ],
)
def test_recover_names_the_line_to_write(settings: dict[str, str], code: str, line: str, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    plan: Any = run_json("recover", str(store), "-c", str(broker_conf("5.4.0-clean", store, settings)), exit_code=1)
    assert plan["steps"] == []
    assert plan["facts"]["stays"][code]["do"] == f"write {line} into broker.conf, and verify again"


def test_a_blank_after_the_log_is_an_empty_log_for_brokers_that_do_not_trim(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    conf = broker_conf("4.9.7-clean", store, {"storePathCommitLog": f"{store}/commitlog "})
    for version, starts_without in (("4.9.7", True), ("5.4.0", False)):
        report: Any = run_json(
            "verify", str(store), "-c", str(conf), "--broker", version, exit_code=int(starts_without)
        )
        assert ("never deliver 571 messages of 21 queues" in report["verdict"]) is starts_without
        found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
        assert found == ([f"storePathCommitLog={store}/commitlog"] if starts_without else [])


@pytest.mark.parametrize(("version", "at_home"), [("4.9.3", True), ("4.9.4", False)])
def test_without_a_place_of_the_log_old_brokers_have_it_in_the_home_directory(
    version: str, at_home: bool, tmp_path: Path
) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    conf = broker_conf("4.9.7-clean", store, {"storePathCommitLog": None})
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=int(at_home))
    assert ("never deliver 571 messages of 21 queues" in report["verdict"]) is at_home
    assert ("because of no storePathCommitLog" in report["verdict"]) is at_home
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == ([f"storePathCommitLog={store}/commitlog"] if at_home else [])


@pytest.mark.parametrize(
    ("root", "log"),
    [
        ("/home/rocketmq/store", ""),  # the home directory of the broker's user
        ("/root/store", ""),
        ("/data/store", "{user.home}/store/commitlog"),
        ("/home/rocketmq/store-a", "{user.home}/store/commitlog"),
    ],
)
def test_the_log_of_the_home_directory_is_that_of_a_root_there(root: str, log: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathRootDir={root}\n")
    assert as_configured(BrokerConfig.read(path), "4.9.3").given.get("storePathCommitLog", "") == log


@pytest.mark.parametrize(("version", "starts"), [("4.9.7", False), ("5.0.0", False), ("5.1.0", True), ("5.5.1", True)])
def test_an_empty_name_server_address_ends_the_start_of_older_brokers(
    version: str, starts: bool, tmp_path: Path
) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    conf = broker_conf("4.9.7-clean", store, {"namesrvAddr": ""})
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=int(not starts))
    assert report["broker"]["starts"] is starts
    assert report["broker"]["exit_code"] == (None if starts else 253)


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
@pytest.mark.parametrize("value", [",", "", " , "])
def test_a_place_of_the_log_without_a_path_opens_nothing(value: str, version: str, tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    conf = broker_conf("4.9.7-clean", store, {"storePathCommitLog": value})
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=1)
    assert "never deliver 571 messages of 21 queues" in report["verdict"]
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == [f"storePathCommitLog={store}/commitlog"]


def test_a_comma_is_a_part_of_the_path_before_there_were_several(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathCommitLog=/a/commitlog,/b/commitlog\n")
    config = BrokerConfig.read(conf)
    assert as_configured(config, "4.9.1").paths("storePathCommitLog") == [Path("/a/commitlog,/b/commitlog")]
    assert as_configured(config, "4.9.2").paths("storePathCommitLog") == [Path("/a/commitlog"), Path("/b/commitlog")]


@pytest.mark.parametrize(
    "paths", ["{log},{log}/", "{log},{log}", ",{log}", "{log},,", "{root}/../{name}/commitlog,{log}"]
)
def test_a_directory_with_two_names_is_one(paths: str, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    named = paths.format(log=store / "commitlog", root=store, name=store.name)
    conf = broker_conf("5.4.0-clean", store, {"storePathCommitLog": named})
    report: Any = run_json("verify", str(store), "-c", str(conf), exit_code=0)
    assert report["verdict"] == "RocketMQ 5.4.0 would start and lose nothing"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mappedFileSizeCommitLog": "0"}, "has 65536 bytes instead of 0"),
        ({"mappedFileSizeCommitLog": "-7"}, "has 65536 bytes instead of -7"),
        ({"mappedFileSizeConsumeQueue": "-5"}, "has 2000 bytes instead of 0"),  # 0 units of 20 bytes
        ({"mappedFileSizeConsumeQueue": "-25"}, "has 2000 bytes instead of -20"),
    ],
)
def test_a_size_that_no_file_has_is_named_as_it_is(settings: dict[str, str], reason: str, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    report = verify(store, "5.4.0-clean", settings, exit_code=1)
    assert report["broker"]["reason"].endswith(reason)


def test_the_setting_is_named_even_if_the_right_one_loses_something(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    body(-2, 5)(store)
    (store / "abort").touch()
    report = verify(store, "5.4.0-killed", {"storePathCommitLog": ","}, exit_code=1)
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == [f"storePathCommitLog={store}/commitlog"]
    right = verify(store, "5.4.0-killed", {}, exit_code=1)
    assert right["broker"]["messages_lost"] > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"messageStorePlugIn": "com.example.Store"}, "the class com.example.Store, which is not RocketMQ's"),
        ({"storePathCommitLog": "commitlog"}, "the directory from which storePathCommitLog=commitlog leads to"),
    ],
)
def test_what_the_place_of_the_broker_decides_is_a_condition(
    settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    report = verify(store, "5.4.0-clean", settings, exit_code=0)
    assert "lose nothing (if the broker" in report["verdict"]
    assert words in report["verdict"]


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
@pytest.mark.parametrize("size", ["0", "-25"])
def test_queues_that_no_file_can_hold_end_the_dispatch(size: str, version: str, tmp_path: Path) -> None:
    """Observed with the real classes: `/ by zero`, or `Negative size`; 5.1.4 dispatches nothing after a clean exit."""
    store = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(store / "consumequeue")
    conf = broker_conf("5.4.0-clean", store, {"mappedFileSizeConsumeQueue": size})
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=1)
    assert report["broker"]["starts"] is (version == "5.1.4")
    assert report["broker"]["exit_code"] == (253 if version in ("5.4.0", "5.5.1") else None)


@pytest.mark.parametrize(("version", "code"), [("5.0.0", 255), ("5.1.0", None), ("5.2.0", None), ("5.5.1", None)])
def test_the_tiered_store_is_a_class_since_5_1(version: str, code: int | None, tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    settings = {"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore"}
    conf = broker_conf("4.9.7-clean", store, settings)
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=int(code is not None))
    assert report["broker"]["exit_code"] == code
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == (["messageStorePlugIn="] if code else [])
    every: Any = run_json("verify", str(store), "-c", str(conf), exit_code=0)  # one start stands for several versions
    assert {row["newest"]: row["exit_code"] for row in every["brokers"]}["5.0.0"] == 255
    assert all("because of" not in row["words"] for row in every["brokers"] if row["newest"] >= "4.5.1")


@pytest.mark.parametrize(
    ("version", "code"), [("4.9.7", 255), ("5.1.4", 255), ("5.3.1", 255), ("5.4.0", 253), ("5.5.1", 253)]
)
@pytest.mark.parametrize("name", ["x y", "org.apache.rocketmq.Store", ",com.example.Store", "com.example.Store, x"])
def test_a_class_that_cannot_be_found_ends_the_start(name: str, version: str, code: int, tmp_path: Path) -> None:
    """Observed with whole brokers of 4.9.7, 5.1.4, 5.4.0 and 5.5.1."""
    store = copy_store("4.9.7-clean", tmp_path)
    conf = broker_conf("4.9.7-clean", store, {"messageStorePlugIn": name})
    report: Any = run_json("verify", str(store), "-c", str(conf), "--broker", version, exit_code=1)
    assert report["broker"]["exit_code"] == code
    assert "messageStorePlugIn" in report["verdict"]


def test_sizes_of_index_files_that_a_broker_does_not_write_do_not_matter(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    report = verify(store, "5.4.0-killed", {"maxIndexNum": "1", "messageIndexEnable": "false"}, exit_code=1)
    assert report["verdict"] == "RocketMQ 5.4.0 would start and lose nothing"
    assert report["counts"].keys() == {"CQ-BEHIND", "IX-CONFIG-SIZE"}
    assert not any("maxIndexNum" in row["words"] for row in report["brokers"])


def test_an_empty_root_is_the_root_directory_of_the_machine(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    report = verify(store, "5.4.0-clean", {"storePathRootDir": "", "storePathCommitLog": None}, exit_code=1)
    assert "would start with another directory than this store" in report["verdict"]
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == [f"storePathRootDir={store}"]


@pytest.mark.parametrize("place", ["consumequeue", "checkpoint"])
def test_a_place_without_log_files_is_no_place_of_the_log(place: str, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    report = verify(store, "5.4.0-clean", {"storePathCommitLog": f"{store}/{place}"}, exit_code=1)
    found = [one["facts"]["set"] for one in report["findings"] if one["code"] == "CFG-SETTING"]
    assert found == [f"storePathCommitLog={store}/commitlog"]
