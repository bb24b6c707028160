"""Consumers with POP acknowledge, fail and die: what a restarted broker delivers again is what `find` said."""

from __future__ import annotations

import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.append.rocksdb import NewDatabase
from rmqstore.files.files import LOCAL
from rmqstore.files.rocksdb.database import open_database
from rmqstore.formats.pop import CHECK_POINT_TAG, KV_DIRECTORY, KV_FAMILY, parse_check_point
from tests.command import run_json
from tests.damage import overwrite
from tests.real_broker.pop_client import PopClient, PoppedMessage
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta
from tests.views.decoder import find_records

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


def place(message: PoppedMessage) -> tuple[str, int, int]:
    """Return the record of a message: kind of its topic, queue and offset.

    A broker delivers at least once. After a clean stop it delivers no record twice, but it may return a message twice,
    as two records of the retry topic: TimerMessageStore#shutdown saves its position before its threads end, so that the
    next start can put the last check points into the revive log again, and PopReviveService#consumeReviveMessage joins
    copies only if it reads them together (5.5.1).
    """
    return message.handle.split(" ")[4], message.queue_id, message.queue_offset


def acknowledge(broker: WholeBroker, messages: list[PoppedMessage]) -> None:
    with PopClient(broker.address, GROUP, TOPIC) as client:
        for one in messages:
            client.acknowledge(one)


def will_be_delivered(store: Path, keys: str) -> bool | None:
    """Return what `find` says of a message and its copies in the retry topic; None if the store does not tell."""
    said: set[bool | str] = set()
    answer: Any = run_json("find", str(store), keys, exit_code=0)
    for message in answer["messages"]:
        if message["consumers"] is None:  # a kill while consumerOffset.json was written
            said.add("unknown")
            continue
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
def test_messages_not_acknowledged_are_delivered_again_after_a_restart(
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
    offsets, end = store / "config" / "consumerOffset.json", time.monotonic() + 30
    while not offsets.exists() and time.monotonic() < end:  # saved first 10 s after the start
        time.sleep(0.5)
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
    again_received = {one.keys for one in received}
    known = {keys for keys, answer in said.items() if answer is not None}
    assert {keys for keys in known if said[keys]} == again_received & known
    if conf is LOG and not killed:  # otherwise a start has both the check points and an older offset
        assert [found for found, count in Counter(map(place, received)).items() if count > 1] == []
    if conf is LOG:
        assert known == set(sent)
    else:  # the KV service deletes the row of an acknowledged message, and nothing else tells
        assert not again_received - known


def move_check_points(store: Path, by: dict[int, int], *, since: int) -> dict[int, set[int]]:
    """Change the check points of some queues to name messages `by[queue]` later; return all open offsets by queue.

    `since`: the earliest pop time, ms. No record changes its size: a field that has its default is left out for room.
    """
    named: dict[int, set[int]] = {}
    for record in list(find_records(store)):
        point = parse_check_point(record.body) if record.properties.get("TAGS") == CHECK_POINT_TAG else None
        if point is None or point.key.pop_time < since:
            continue
        queue, start = point.key.queue_id, point.key.start_offset
        more = by.get(queue, 0)
        body = record.body.replace(f'"so":{start}'.encode(), f'"so":{start + more}'.encode())
        body = body.replace(b'"bm":0,', b"").ljust(len(record.body))
        assert len(body) == len(record.body)
        path = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= record.position)
        at = record.position - int(path.name)
        if more:
            overwrite(path, at + 8, (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big"))
            overwrite(path, at + path.read_bytes()[at : at + record.size].index(record.body), body)
        named.setdefault(queue, set()).update(offset + more for offset in point.offsets)
    return named


@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_check_points_after_the_end_of_their_queue(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    """A broker skips those that name nothing when they are due; what others name by then, it delivers again."""
    store = tmp_path / "store"
    with whole_broker(version, store, LOG) as first:
        first.produce(TOPIC, 120)  # 30 per queue
        acknowledge(first, consume(first, 80, invisible=60_000))
        since = int(time.time() * 1000)
        assert len(consume(first, 40, invisible=60_000)) == 40
        due = time.monotonic() + 60
    reached, not_reached, *_ = sorted(move_check_points(store, {}, since=since))
    named = move_check_points(store, {reached: 30, not_reached: 70}, since=since)
    report: Any = run_json("verify", str(store), exit_code=1)
    assert {one["queue"] for one in report["findings"] if one["code"] == "POP-BEYOND"} == {
        f"{TOPIC}/{reached}",
        f"{TOPIC}/{not_reached}",
    }
    with whole_broker(version, store, LOG) as again:
        again.produce(TOPIC, 160)  # 70 per queue
        assert time.monotonic() < due
        time.sleep(due + 15 - time.monotonic())
    records = list(find_records(store))
    sent = {r.properties["UNIQ_KEY"]: (r.queue_id, r.queue_offset) for r in records if r.topic == TOPIC}
    returned = Counter(sent[r.properties["UNIQ_KEY"]] for r in records if r.topic.startswith(f"%RETRY%{GROUP}"))
    assert min(named[not_reached]) >= 70 > max(named[reached])
    assert returned == {
        (queue, offset): 1 for queue, offsets in named.items() if queue != not_reached for offset in offsets
    }
    run_json("verify", str(store), exit_code=0)  # the check points are processed


def add_row(store: Path, key: bytes, value: bytes, folder: Path) -> None:
    """Write kvStore/ again with one more row: no broker opens a database to which rocksdict has written."""
    old = open_database(LOCAL, store / KV_DIRECTORY)
    new = NewDatabase(folder, old.families)
    for family in old.families:
        rows = [pair for keys, values in old.chunks(family) for pair in zip(keys, values, strict=True)]
        rows = sorted([*rows, (key, value)]) if family == KV_FAMILY else rows
        new.put(family, [key for key, _ in rows], [value for _, value in rows])
    new.finish()
    shutil.rmtree(store / KV_DIRECTORY)
    shutil.copytree(folder, store / KV_DIRECTORY)


@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_a_row_that_no_broker_can_parse_stops_all_returns(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    """Until `recover` removes it, no message is returned; then all 29 are that were not acknowledged."""
    need_rocksdict()
    store = copy_store(f"{version}-pop-kv", tmp_path)
    conf = meta(f"{version}-pop-kv").broker_conf
    add_row(store, bytes(40), b"no object", tmp_path / "rows")

    def returned() -> int:
        with whole_broker(version, store, conf):
            time.sleep(20)
        return sum(record.topic.startswith("%RETRY%") for record in find_records(store))

    before = sum(record.topic.startswith("%RETRY%") for record in find_records(store))
    assert returned() == before
    assert run_json("verify", str(store), exit_code=1)["counts"] == {"RDB-POP-ROW": 1}
    run_json("recover", str(store), "--only", "RDB-POP-ROW", "--apply", exit_code=0)
    assert returned() == before + 29
