"""Tiered storage: what the store says about messages that it has there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command import run, run_json

METADATA = (
    '{"topicSerialNumber":1,"queueMetadataTable":{"Order_11":{0:{"queue":{"brokerName":"b","queueId":0,"topic":'
    '"Order_11"},"minOffset":0,"maxOffset":30,"updateTimestamp":1}}},"commitLogFileSegmentTable":{}}'
)


@pytest.mark.parametrize(
    "words", [["verify"], ["find", "no-such-key"], ["lost"], ["expire"]], ids=lambda words: str(words[0])
)
def test_older_messages_may_be_in_the_tier(words: list[str], store: Path) -> None:
    (store / "config" / "tieredStoreMetadata.json").write_text(METADATA)
    result = run(words[0], str(store), *words[1:], *(["-v"] if words[0] == "verify" else []))
    text = " ".join((result.stdout + result.stderr).split())
    assert "tiered storage has messages of 1 queue" in text, result.output


@pytest.mark.parametrize("queues", ["files", "none"])
def test_a_plan_that_leaves_a_gap_after_the_tier_names_it(queues: str, store: Path) -> None:
    """The log begins after the tier's end; without its consume queue, the queue begins there after the repair."""
    (store / "config" / "tieredStoreMetadata.json").write_text(METADATA.replace('"maxOffset":30', '"maxOffset":3'))
    for path in sorted((store / "commitlog").iterdir())[:3]:
        path.unlink()
    if queues == "none":
        shutil.rmtree(store / "consumequeue" / "Order_11")
    plan = run_json("recover", str(store), exit_code=1)
    assert plan["facts"]["stays"]["CFG-TIER-ENDS"]["count"] == 1  # type: ignore[index]
    assert "CFG-TIER-ENDS" in run("recover", str(store)).output


@pytest.mark.parametrize(("end", "named"), [(3, True), (42, False)])
def test_expire_names_the_queues_that_the_tier_loses(end: int, named: bool, store: Path) -> None:
    metadata = METADATA.replace('"maxOffset":30', f'"maxOffset":{end}')
    (store / "config" / "tieredStoreMetadata.json").write_text(metadata)
    result = run("expire", str(store), "--reserved", "0", "--any-hour")
    text = " ".join(result.output.split())
    assert "into quarantine" in text, text
    assert ("begin after its end: Order_11/0 (tier up to 3, queue from 42)" in text) is named, text
