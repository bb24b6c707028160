"""The text of `rmqstore pipeline`, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore.cli.pipeline import _text
from rmqstore.spark.jobs.jobs import JobResult


@pytest.mark.parametrize(
    ("counts", "unchecked", "state"),
    [
        ({}, [], "clean"),
        ({"CK-MISSING": 1}, [], "clean"),
        ({}, ["consumequeue/"], "not completely checked"),
        ({"CL-BODY-CRC": 2}, ["consumequeue/"], "problems"),
    ],
)
def test_a_store_that_was_not_checked_completely_says_so(
    counts: dict[str, int], unchecked: list[str], state: str
) -> None:
    sound: dict[str, Any] = {"store": "a", "clean": True, "messages": 1, "counts": {}, "findings": [], "unchecked": []}
    clean = state == "clean"
    store = sound | {"store": "b", "clean": clean, "counts": counts, "unchecked": unchecked}
    lines = list(_text(JobResult("verify", [store, sound])))
    assert lines[0] == f"b: {state}, 1 message"
    assert [line for line in lines if "not checked" in line] == [f"  not checked: {text}" for text in unchecked]
