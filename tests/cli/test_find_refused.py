"""`rmqstore find`: a message that the configuration keeps from consumers did not arrive, and is not "not read yet"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import make, read_case
from tests.command import run, run_json

READ = "stored, read past by CG_part_11; no consumer gets it now: "
UNREAD = "stored, not read by CG_part_11; no consumer gets it now: "
GONE = "the broker does not know the topic Order_11, which was deleted or never configured"


def first_line(store: Path, text: str) -> str:
    told = run("find", str(store), text).stdout.splitlines()
    while len(told) > 1 and told[1].startswith("  ") and not told[1].startswith("  sent "):
        told[:2] = [f"{told[0]} {told[1].strip()}"]
    return told[0].removeprefix(f"{text}: ")


@pytest.mark.parametrize(
    ("case", "text", "state", "told"),
    [
        ("CFG-NO-READ", "Order_11/0/5", "topic-not-readable", f"{READ}the topic Order_11 has no read permission"),
        ("CFG-NO-READ", "Order_11/0/41", "topic-not-readable", f"{UNREAD}the topic Order_11 has no read permission"),
        ("CFG-NO-READ", "log-15445/0/5", "arrived", "arrived, read past by CG_dlq_11"),
        (
            "CFG-READ-QUEUES",
            "Order_11/3/40",
            "queue-not-readable",
            f"{UNREAD}queue 3 of Order_11 is not below its readQueueNums",
        ),
        ("CFG-READ-QUEUES", "Order_11/1/40", "arrived", "arrived, read past by CG_part_11"),
        (
            "CFG-GROUP-OFF",
            "Order_11/0/30",
            "arrived",
            "arrived, not read by CG_part_11, CG_part_11 may not consume (consumeEnable=false)",
        ),
        ("CFG-UNKNOWN-TOPICS", "Order_11/0/5", "topic-unknown", READ + GONE),
        ("CQ-DELETED-TOPIC", "Order_11/0/5", "topic-unknown", READ + GONE),
    ],
)
def test_what_no_consumer_gets_has_not_arrived(case: str, text: str, state: str, told: str, tmp_path: Path) -> None:
    store = make(read_case(case), tmp_path)
    assert first_line(store, text) == told
    answers: Any = run_json("find", str(store), text, exit_code=0)["answers"]
    assert [answer["state"] for answer in answers] == [state]
