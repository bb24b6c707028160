"""Fillers in the broker's own topics: delays, transactions and consumers of a whole broker skip them."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats.configuration import build_config_json, parse_config_object
from rmqstore.formats.properties import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    UNIQ_KEY,
    parse_properties,
)
from rmqstore.formats.timer import parse_timercheck
from tests import damage
from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, meta

pytestmark = [pytest.mark.slow]

DEADLINE_SECONDS = 600
_STUCK = (
    *("Check error", "executeOnTimeUp exception", "executeOnTimeup exception", "Unknown exception in enqueuing"),
    *("revive error", "execute error, offset"),
)


def start_over(store: Path) -> None:
    """Reset the offsets, so that the broker reads its own topics from the first message again."""
    path = store / "config" / "delayOffset.json"
    path.write_bytes(build_config_json({"offsetTable": dict.fromkeys(range(1, 19), 0)}))
    path = store / "config" / "consumerOffset.json"
    table = parse_config_object(path.read_bytes())
    offsets = table["offsetTable"]
    assert isinstance(offsets, dict)
    for name in list(offsets):
        if name.endswith("@CID_RMQ_SYS_TRANS"):
            offsets[name] = {"0": 0}
    text = json.dumps(table)
    path.write_text(text)


def progress(store: Path) -> tuple[dict[int, int], dict[str, int]]:
    """Return the offsets by delay level, and those of the half and op topics, as the broker has written them."""
    delays = parse_config_object((store / "config" / "delayOffset.json").read_bytes())["offsetTable"]
    consumed = parse_config_object((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert isinstance(delays, dict)
    assert isinstance(consumed, dict)
    half: dict[str, int] = {}
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        queues = consumed[f"{topic}@CID_RMQ_SYS_TRANS"]
        assert isinstance(queues, dict)
        offset = queues["0"]
        assert isinstance(offset, int)
        half[topic] = offset
    return {int(level): int(str(offset)) for level, offset in delays.items()}, half


def gone_past(store: Path, found: list[Row], hit: list[Row]) -> bool:
    """Return whether the delay levels and the transactions have passed every filler."""
    delays, half = progress(store)
    ends = {row.message.queue_id + 1: row.message.queue_offset + 1 for row in of_topic(found, SCHEDULE_TOPIC)}
    last = of_topic(found, SCHEDULE_TOPIC)[-1]
    # a discarded filler at the very end does not count: the broker reads and discards it again
    delivered = all(delays[level] >= end - (last.message.queue_id + 1 == level) for level, end in ends.items())
    return delivered and all(
        half[topic] > max(row.message.queue_offset for row in hit if row.message.topic_text == topic)
        for topic in (HALF_TOPIC, OP_HALF_TOPIC)
    )


def wait_until(there: Callable[[], bool]) -> None:
    """Wait until a condition holds; a file that the broker is writing counts as not ready."""
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        with contextlib.suppress(OSError, ValueError, KeyError, AssertionError):
            if there():
                return
        assert time.monotonic() < end, f"the broker did not get there in {DEADLINE_SECONDS} s"
        time.sleep(0.5)


def delivered_since(store: Path, before: int) -> set[str | None]:
    """Return the UNIQ_KEYs of all messages that the broker has appended after the first `before` ones."""
    return {parse_properties(row.message.properties).get(UNIQ_KEY) for row in rows(store)[before:]}


def enqueued(store: Path) -> int:
    """Return the offset up to which the timer service has read its topic."""
    return int(parse_timercheck((store / "config" / "timercheck").read_bytes())["last_timer_queue_offset"])


def revived(store: Path, row: Row) -> bool:
    """Return whether the POP service has passed a record of its revive topic."""
    table: dict[str, dict[str, int]] = {}
    for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
        if (store / "config" / name).exists():
            offsets = parse_config_object((store / "config" / name).read_bytes())["offsetTable"]
            assert isinstance(offsets, dict)
            table |= offsets  # type: ignore[arg-type]
    (place,) = [queues for key, queues in table.items() if key.startswith(row.message.topic_text)]
    return int(place[str(row.message.queue_id)]) > row.message.queue_offset


def start_timers_and_pop_over(store: Path) -> None:
    """Reset the offsets, so that the timer service and the POP service read from the first message again."""
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    (store / "config" / "timercheck").unlink()
    path = store / "config" / "lmqConsumerOffset.json"
    table = parse_config_object(path.read_bytes())
    offsets = table["offsetTable"]
    assert isinstance(offsets, dict)
    for name in list(offsets):
        if name.startswith(REVIVE_TOPIC_PREFIX):
            offsets[name] = dict.fromkeys(map(str, range(8)), 0)
    path.write_text(json.dumps(table))
    for copy in (path.with_name(path.name + ".bak"),):
        copy.unlink(missing_ok=True)


def of_topic(found: list[Row], topic: str) -> list[Row]:
    return [row for row in found if row.message.topic_text == topic]


def damaged(found: list[Row]) -> list[Row]:
    """Destroy some records in each topic completely, and the body of one more; return them."""
    hit: list[Row] = []
    for topic, whole, body in ((SCHEDULE_TOPIC, (2, -1), 4), (HALF_TOPIC, (1, 6, -2), 4), (OP_HALF_TOPIC, (0,), 1)):
        some = of_topic(found, topic)
        for number in whole:
            damage.garble(some[number].path, some[number].at, some[number].size)
            hit.append(some[number])
        row = some[body]
        damage.garble(row.path, row.at + 88 + len(row.message.body) // 4, max(1, len(row.message.body) // 2))
        hit.append(row)
    order = of_topic(found, "Order_11")[30]
    damage.garble(order.path, order.at, order.size)
    return [*hit, order]


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
def test_broker_skips_every_filler(version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]) -> None:
    name = f"{version}-clean"
    made = meta(name)
    store = copy_store(name, tmp_path)
    start_over(store)
    found = rows(store)
    hit = damaged(found)
    answer = run_json("recover", str(store), "--apply", exit_code=0)
    loss = answer["loss"]
    assert isinstance(loss, dict)
    assert loss["visible_fillers"] == len(hit)
    delayed = {row.offset: parse_properties(row.message.properties) for row in of_topic(found, SCHEDULE_TOPIC)}
    alive = [p for offset, p in delayed.items() if offset not in {row.offset for row in hit}]
    with whole_broker(version, store, made.broker_conf) as broker:
        wait_until(lambda: gone_past(store, found, hit))
        wait_until(lambda: {p["UNIQ_KEY"] for p in alive} <= delivered_since(store, len(found)))
        sent = broker.produce("Order_11", 4)
        read = broker.read("Order_11")
    log = broker.log()
    assert [words for words in _STUCK if words in log] == []
    assert gone_past(store, found, hit)
    by_queue: dict[int, list[int]] = {}
    for message in read:
        by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    assert {m.queue_offset for m in sent} <= {m.queue_offset for m in read}
    assert {p["UNIQ_KEY"] for p in alive} <= delivered_since(store, len(found))


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
def test_delayed_message_without_its_queue_is_delivered_only_after_a_repair(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    name = f"{version}-clean"
    conf = meta(name).broker_conf
    store = copy_store(name, tmp_path)
    start_over(store)
    found = rows(store)
    row = next(row for row in of_topic(found, SCHEDULE_TOPIC) if row.message.queue_offset == 2)
    level, key = row.message.queue_id + 1, parse_properties(row.message.properties)[UNIQ_KEY]
    damage.overwrite(row.path, row.at + row.path.read_bytes()[row.at :].index(b"REAL_QID"), b"XXXX")
    damaged = tmp_path / "damaged"
    shutil.copytree(store, damaged)
    stops = version == "4.9.7"  # newer brokers skip the message
    with whole_broker(version, damaged, conf) as broker:
        wait_until(lambda: broker.log().count("execute error, offset") >= (3 if stops else 1))
    assert (progress(damaged)[0][level] == row.message.queue_offset) == stops
    assert key not in delivered_since(damaged, len(found))

    report = run_json("verify", str(store), exit_code=1)
    assert report["counts"] == {"CL-PROPERTIES": 1}
    run_json("recover", str(store), "--apply", exit_code=0)
    with whole_broker(version, store, conf) as broker:
        wait_until(lambda: key in delivered_since(store, len(found)))
    assert [words for words in _STUCK if words in broker.log()] == []


@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", "5.5.1"])
def test_timers_and_pop_skip_every_filler(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    name = f"{version}-formats"
    made = meta(name)
    store = copy_store(name, tmp_path)
    start_timers_and_pop_over(store)
    found = rows(store)
    timers = of_topic(found, TIMER_TOPIC)
    revive = [row for row in found if row.message.topic_text.startswith(REVIVE_TOPIC_PREFIX)]
    hit = [timers[3], timers[50], timers[-1], revive[5], revive[60]]
    for row in hit[:-1]:
        damage.garble(row.path, row.at, row.size)
    damage.garble(hit[-1].path, hit[-1].at + 90, 2)
    damage.garble(timers[20].path, timers[20].at + 88, 2)
    hit.append(timers[20])
    rest = {parse_properties(row.message.properties)[UNIQ_KEY] for row in timers if row not in hit}
    answer = run_json("recover", str(store), "--apply", exit_code=1)
    assert answer["remaining"] == {"counts": {"TM-MISSING": 1}}  # as meant: the broker is to deliver all of them
    loss = answer["loss"]
    assert isinstance(loss, dict)
    assert loss["visible_fillers"] == len(hit)
    with whole_broker(version, store, made.broker_conf) as broker:
        wait_until(lambda: enqueued(store) > timers[-1].message.queue_offset)
        wait_until(lambda: bool(rest & delivered_since(store, len(found))))
        wait_until(lambda: revived(store, revive[5]) and revived(store, revive[60]))
        broker.produce("Order_11", 4)
    log = broker.log()
    assert [words for words in _STUCK if words in log] == []
    assert enqueued(store) > timers[-1].message.queue_offset
    new = [row.message for row in rows(store)[len(found) :]]
    assert not [m for m in new if m.topic_text == "SELF_TEST_TOPIC"]
