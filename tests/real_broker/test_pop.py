"""Consumers with POP acknowledge, fail and die: what a restarted broker delivers again is what `find` said."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import run_json
from tests.real_broker.pop_client import PopClient, PoppedMessage
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict

pytestmark = [pytest.mark.slow, pytest.mark.other_processes]

TOPIC, GROUP = "PopOrders", "PopGroup"
LOG = {"reviveQueueNum": "2", "reviveInterval": "500", "reviveMaxSlow": "3", "mappedFileSizeCommitLog": "1048576"}
KV = {**LOG, "popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
NONE_FOR, DIED = 8, 30_000
"""Seconds without a message after which all are delivered; invisible time of messages whose consumer died, ms."""


def consume(broker: WholeBroker, count: int, *, invisible: int) -> list[PoppedMessage]:
    """Receive `count` messages, or fewer if the broker gives none for some seconds."""
    received: list[PoppedMessage] = []
    end = time.monotonic() + NONE_FOR
    with PopClient(broker.address, GROUP, TOPIC) as client:
        while len(received) < count and time.monotonic() < end:
            found = client.pop(min(8, count - len(received)), invisible=invisible)
            received += found
            if found:
                end = time.monotonic() + NONE_FOR
    return received


def acknowledge(broker: WholeBroker, messages: list[PoppedMessage]) -> None:
    with PopClient(broker.address, GROUP, TOPIC) as client:
        for one in messages:
            client.acknowledge(one)


def will_be_delivered(store: Path, keys: str) -> bool | None:
    """Return what `find` says of a message and its copies in the retry topic; None if the store does not tell."""
    said = set()
    answer: Any = run_json("find", str(store), keys, exit_code=0)
    for message in answer["messages"]:
        mine = [one for one in message["consumers"] if one["group"] == GROUP]
        state = mine[0]["pop"]["state"] if mine and mine[0].get("pop") else None
        if state != "returned":  # its copy tells
            said.add("unknown" if state == "unknown" else not mine or not mine[0]["consumed"])
    return None if "unknown" in said else True in said


@pytest.mark.parametrize(
    ("version", "conf", "killed"),
    [("5.4.0", LOG, True), ("5.5.1", LOG, False), ("5.4.0", KV, False), ("5.5.1", KV, True)],
    ids=["5.4.0-log-killed", "5.5.1-log-stopped", "5.4.0-kv-stopped", "5.5.1-kv-killed"],
)
def test_what_is_delivered_again_after_a_restart(
    version: str, conf: dict[str, str], killed: bool, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    need_rocksdict()
    store = tmp_path / "store"
    first = whole_broker(version, store, conf)
    first.start()
    sent = [f"after{number}" for number in range(60)]
    assert len(first.produce(TOPIC, len(sent))) == len(sent)
    acknowledged = consume(first, 15, invisible=60_000)
    acknowledge(first, acknowledged)
    failed = consume(first, 12, invisible=1_000)
    time.sleep(6)  # the broker returns them to the retry topic
    half = consume(first, 14, invisible=60_000)
    acknowledge(first, half[::2])
    died = consume(first, 8, invisible=DIED)
    assert len(acknowledged) == 15
    assert len(failed) == 12
    assert len(half) == 14
    assert len(died) == 8
    if killed:
        first.kill()
    else:
        first.stop()
    due = time.monotonic() + 60
    said = {keys: will_be_delivered(store, keys) for keys in sent}
    with whole_broker(version, store, conf) as again:
        received: list[PoppedMessage] = []
        while (found := consume(again, len(sent), invisible=120_000)) or time.monotonic() < due:
            acknowledge(again, found)
            received += found
    times = Counter(one.keys for one in received)
    known = {keys for keys, answer in said.items() if answer is not None}
    assert {keys for keys in known if said[keys]} == times.keys() & known
    if conf is LOG and not killed:  # otherwise a start has both the check points and an older offset
        assert max(times.values()) == 1
    if conf is LOG:
        assert known == set(sent)
    else:  # the KV service deletes the row of an acknowledged message, and nothing else tells
        assert not times.keys() - known
