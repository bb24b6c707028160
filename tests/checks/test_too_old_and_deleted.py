"""Verdicts about versions that are too old for a store, and about topics that were deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import command
from tests.stores import unpack


def verified(store: Path, *options: str, exit_code: int) -> dict[str, Any]:
    return dict(command.run_json("verify", str(store), *options, exit_code=exit_code))


@pytest.mark.parametrize("name", ["5.4.0-formats", "5.1.4-formats"])
def test_a_version_that_is_too_old_is_told_why(name: str) -> None:
    report = verified(unpack(name), "--broker", "4.9.7", exit_code=1)
    (finding,) = report["findings"]
    assert finding["code"] == "BR-TOO-OLD" and finding["remedy"] is None
    assert finding["facts"]["readable_from"] == "5.1.0"
    assert finding["facts"]["cannot_read"].startswith("records of version 2")
    text = " ".join(command.run("verify", str(unpack(name)), "--broker", "4.9.7").stdout.split())
    assert "because it cannot read records of version 2" in text and "DLedger" not in text
    assert verified(unpack(name), exit_code=0)["clean"] is True


TIMED, HALF = "timed messages", "half messages in rocksdbstore/"
POPPED = "messages that POP consumers did not acknowledge"
V2 = "records of version 2 (topic names of more than 127 bytes)"
CONFIG = "topics, groups and consumer offsets in RocksDB"


@pytest.mark.parametrize(
    ("name", "version", "words", "since"),
    [
        ("5.4.0-pop", "4.9.7", f"29 {POPPED}", "5.0.0"),
        ("5.5.1-pop-kv", "4.9.7", f"29 {POPPED}", "5.3.2"),
        ("5.5.1-trans-rocksdb", "5.1.4", f"12 {HALF}", "5.4.0"),
        ("5.5.1-timer-rocksdb-pending", "4.9.7", f"14 {TIMED} in rocksdbstore/", "5.0.0"),
        ("5.5.1-lmq", "4.9.7", "light queues (%LMQ%) that are only in RocksDB", "5.5.0"),
        ("5.5.1-lite", "5.1.4", "light queues (%LMQ%) that are only in RocksDB", "5.5.0"),
        ("5.5.1-formats", "4.9.7", f"{V2}; queues of type BatchCQ; the attributes of 1 topic; 4 {TIMED}", "5.1.0"),
        ("5.5.1-config-v2", "4.9.7", f"{CONFIG} (config/rdb/)", "5.3.2"),
        ("5.5.1-rocksdb", "5.1.4", f"consume queues in RocksDB; {CONFIG} (config/consumerOffsets/)", "5.2.0"),
    ],
)
def test_an_older_version_is_told_what_it_lacks(name: str, version: str, words: str, since: str) -> None:
    report = verified(unpack(name), "--broker", version, exit_code=1)
    (facts,) = [finding["facts"] for finding in report["findings"] if finding["code"] == "BR-TOO-OLD"]
    assert (facts["cannot_read"], facts["readable_from"]) == (words, since)
    assert words.rpartition("; ")[2] in report["verdict"]
    assert "BR-TOO-OLD" not in verified_again(name)["counts"]


def verified_again(name: str) -> dict[str, Any]:
    """Verify a store for its own version, in which it may have other problems."""
    return dict(json.loads(command.run("verify", str(unpack(name)), "--json").stdout))


def test_an_unknown_format_is_not_called_the_cause_of_a_loss_if_nothing_is_lost() -> None:
    verdict = verified(unpack("5.5.1-rocksdb"), "--broker", "4.9.7", exit_code=1)["verdict"]
    assert verdict.startswith(
        "RocketMQ 4.9.7 would start and lose nothing, but it cannot read consume queues in RocksDB"
    )


def test_timed_messages_in_rocksdb_are_not_lost_where_the_timer_queue_is_read_again() -> None:
    """5.3 reads the timer queue from the position in timercheck, which the service with RocksDB leaves at 0."""
    report = verified_again("5.5.1-timer-rocksdb-pending")
    words = {row["newest"]: row["words"] for row in report["brokers"]}
    assert "timed" in words["4.9.8"] and "timed" not in words["5.3.4"]
    assert "14 timed messages" in words["5.5.1"]  # all are due by now


def test_messages_of_a_deleted_topic_have_one_statement(store: Path) -> None:
    topics = store / "config" / "topics.json"
    topics.write_bytes(topics.read_bytes().replace(b'"Order_11"', b'"Order_99"'))
    for folder in (store / "consumequeue" / "Order_11").iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    (store / "consumequeue" / "Order_11").rmdir()
    assert verified(store, exit_code=0)["counts"] == {"CQ-DELETED-TOPIC": 4}
    text = " ".join(command.run("verify", str(store)).stdout.split())
    assert "would start and lose nothing; 168 messages of the deleted topic Order_11 stay in the log" in text
    assert "never deliver" not in text
    topics.write_bytes(topics.read_bytes().replace(b'"Order_99"', b'"Order_11"'))  # the way out
    assert command.run("recover", str(store), "--apply").exit_code == 0
    assert verified(store, exit_code=0)["counts"] == {}
