"""Tiered storage: what the store says about messages that it has there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import run
from tests.stores import copy_store

METADATA = (
    '{"topicSerialNumber":1,"queueMetadataTable":{"Order_11":{0:{"queue":{"brokerName":"b","queueId":0,"topic":'
    '"Order_11"},"minOffset":0,"maxOffset":30,"updateTimestamp":1}}},"commitLogFileSegmentTable":{}}'
)


@pytest.mark.parametrize(
    "words", [["verify"], ["find", "no-such-key"], ["lost"], ["expire"]], ids=lambda words: str(words[0])
)
def test_older_messages_may_be_in_the_tier(words: list[str], tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    (store / "config" / "tieredStoreMetadata.json").write_text(METADATA)
    result = run(words[0], str(store), *words[1:], *(["-v"] if words[0] == "verify" else []))
    text = " ".join((result.stdout + result.stderr).split())
    assert "tiered storage has messages of 1 queue" in text, result.output
