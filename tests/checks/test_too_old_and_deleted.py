"""Verdicts about versions that are too old for a store, and about topics that were deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import command
from tests.stores import copy_store, unpack


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


def test_messages_of_a_deleted_topic_have_one_statement(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
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
