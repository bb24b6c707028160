"""Without a broker.conf, `verify` names the settings that it assumes, if another value would give another answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import run, run_json
from tests.forecast.damages import body
from tests.stores import copy_store, unpack, write_broker_conf

Assumed = tuple[str, str, str, str, str]
SIZES: list[Assumed] = [
    ("mappedFileSizeCommitLog", "65536", "files", "1073741824", "would not start"),
    ("mappedFileSizeConsumeQueue", "2000", "files", "6000000", "would not start"),
]
SEPARATE: Assumed = ("useSeparateStorePathForRocksdbCQ", "true", "files", "false", "would not start")
DLEDGER: Assumed = ("enableDLegerCommitLog", "true", "files", "false", "would lose 553 messages")
UNREAD = "would start, but it does not read the topics, groups and consumer offsets in config/{}/ (storeType=default)"
TYPE = ("storeType", "defaultRocksDB", "files", "default", UNREAD.format("consumerOffsets"))
SOUND: dict[str, list[Assumed]] = {
    "4.9.7-clean": SIZES,
    "5.4.0-dledger": [DLEDGER, *SIZES],
    "5.4.0-rocksdb": [TYPE, SIZES[0]],
    "5.5.1-rocksdb-separate": [TYPE, SEPARATE, SIZES[0]],
    "5.5.1-lite": [SEPARATE, *SIZES],
}


def assumed(report: Any) -> list[Assumed]:
    return [(row["setting"], row["value"], row["from"], row["other"], row["outcome"]) for row in report["assumed"]]


@pytest.mark.parametrize("name", SOUND)
def test_what_files_show_is_assumed_where_the_default_would_end_otherwise(name: str) -> None:
    report: Any = run_json("verify", str(unpack(name)), exit_code=0)
    assert [row for row in assumed(report) if row[0] != "--broker"] == SOUND[name]
    (note,) = (note for note in report["notes"] if "the forecast assumes" in note)
    for key, value, *_ in SOUND[name]:
        assert f"{key}={value}" in note
    assert "as the files show (with the default it would not start)" in note


def test_a_broker_conf_leaves_nothing_to_assume(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    report: Any = run_json("verify", str(store), "-c", str(write_broker_conf("5.4.0-clean", store)), exit_code=0)
    assert report["assumed"] == []
    assert "assumes" not in run("verify", str(store), "-c", str(write_broker_conf("5.4.0-clean", store))).stdout


def damaged_rows(store: Path) -> None:
    manifest = next((store / "rocksdbstore").glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:50] + b"\xff" * 20)


def damaged_wheel(store: Path) -> None:
    (store / "timerwheel").write_bytes(bytes(1000))


NOT_SHOWN: dict[str, tuple[str, Callable[[Path], None], str, bool]] = {
    "a body": ("5.4.0-killed", body(-2, 5), "checkCRCOnRecover", True),
    "message rows": ("5.4.0-trans-rocksdb", damaged_rows, "transRocksDBEnable", True),
    "the wheel": ("5.4.0-clean", damaged_wheel, "timerWheelEnable", False),
}


@pytest.mark.parametrize("what", NOT_SHOWN)
def test_what_no_file_shows_is_assumed_where_the_other_value_would_end_otherwise(what: str, tmp_path: Path) -> None:
    name, damage, key, killed = NOT_SHOWN[what]
    store = copy_store(name, tmp_path)
    damage(store)
    if killed:
        (store / "abort").touch()
    report: Any = run_json("verify", str(store), "--broker", "5.4.0", exit_code=1)
    (found,) = (row for row in report["assumed"] if row["setting"] == key)
    assert found["from"] == "default"
    conf = write_broker_conf(name, store, **{key: found["other"]})
    other: Any = run_json("verify", str(store), "-c", str(conf), "--broker", "5.4.0", exit_code=1)
    starts = found["outcome"] != "would not start"
    assert other["broker"]["starts"] is starts
    conf = write_broker_conf(name, store, **{key: found["value"]})
    same: Any = run_json("verify", str(store), "-c", str(conf), "--broker", "5.4.0", exit_code=1)
    assert (same["broker"]["starts"], same["broker"]["messages_lost"]) == (
        report["broker"]["starts"],
        report["broker"]["messages_lost"],
    )
    assert (other["broker"]["starts"], other["broker"]["messages_lost"]) != (
        same["broker"]["starts"],
        same["broker"]["messages_lost"],
    )


def test_the_version_is_assumed_where_another_one_would_end_otherwise() -> None:
    store = unpack("5.4.0-dledger3-n2")
    report: Any = run_json("verify", str(store), exit_code=0)
    assert assumed(report)[0] == ("--broker", "5.4.0", "files", "5.2.0", "would never deliver 70 messages")
    named: Any = run_json("verify", str(store), "--broker", "5.4.0", exit_code=0)
    assert "--broker" not in {row["setting"] for row in named["assumed"]}
