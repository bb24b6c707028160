"""`pending`: what waits in stores of real brokers, compared with what `find` says about each message."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqstore.files.store import open_store
from rmqstore.files.topics import queue_names
from rmqstore.formats.properties import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore.views.lookup import QueueUnits
from rmqstore.views.stories import Stories
from tests.command import run, run_json
from tests.stores import copy_store, unpack

ENDINGS = {
    "delayed": (SCHEDULE_TOPIC, {"waiting", "overdue"}),
    "timed": (TIMER_TOPIC, {"waiting", "overdue"}),
    "half": (HALF_TOPIC, {"undecided"}),
}


def by_story(path: Path, kind: str) -> int:
    """Return how many messages of a service topic `find` says wait; several records of one message count once."""
    store = open_store(path)
    topic, endings = ENDINGS[kind]
    found = []
    for name, queue_id in sorted(queue_names(store)):
        if name == topic:
            units = QueueUnits(store, name, queue_id)
            first, stop = units.bounds() or (0, 0)
            found += [one for number in range(first, stop) if (one := units.message(number)) is not None]
    return Counter(story.ending in endings for story in Stories(store).of(found))[True]


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize(
    "name", ["4.9.7-clean", "4.9.7-ipv6", "5.1.4-formats", "5.4.0-clean", "5.4.0-killed", "5.5.1-formats"]
)
def test_what_waits_is_what_find_says_about_each_message(name: str, kind: str) -> None:
    path = unpack(name)
    answer = run_json("pending", str(path), exit_code=run("pending", str(path)).exit_code)
    totals = answer["totals"]
    assert isinstance(totals, dict)
    found, expected = totals[kind]["messages"], by_story(path, kind)
    if (name, kind) == ("5.4.0-killed", "delayed"):  # its start delivers again what its last delayOffset.json lacks
        assert found > expected
    else:
        assert found == expected


@pytest.mark.parametrize(("name", "messages"), [("5.4.0-timer-rocksdb-pending", 14), ("5.5.1-trans-rocksdb", 12)])
def test_rows_in_a_rocksdb_wait_as_those_in_files(name: str, messages: int) -> None:
    pytest.importorskip("rocksdict")
    answer = run_json("pending", str(unpack(name)), exit_code=0)
    rows = answer["waiting"]
    assert isinstance(rows, list)
    assert sum(row["messages"] for row in rows if row["kind"] in ("timed", "half")) == messages
    assert all(row["topic"] and row["oldest"] for row in rows)


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.5.1-pop", "5.5.1-pop-kv"])
def test_the_numbers_of_groups_are_those_of_offsets(name: str) -> None:
    pytest.importorskip("rocksdict")
    path = str(unpack(name))
    offsets = run_json("offsets", path, exit_code=0)["offsets"]
    answer = run_json("pending", path, exit_code=0)["totals"]
    assert isinstance(offsets, list) and isinstance(answer, dict)
    lag = sum(row["lag"] or 0 for row in offsets if not row["topic"].startswith(("rmq_sys_", "RMQ_SYS_")))
    assert answer["unread"]["messages"] + answer["retry"]["messages"] == lag
    received = sum((row["pop"] or {}).get("invisible", 0) for row in offsets)
    assert answer["pop"]["messages"] <= received
    assert lag + answer["pop"]["messages"] >= received


def test_groups_and_topics_select_rows() -> None:
    path = str(unpack("5.4.0-clean"))
    rows = run_json("pending", path, "--group", "CG_tag_11", exit_code=0)["waiting"]
    assert isinstance(rows, list)
    assert {row["group"] for row in rows} == {"CG_tag_11"}
    rows = run_json("pending", path, "--topic", "Order_11", exit_code=0)["waiting"]
    assert isinstance(rows, list)
    assert {(row["kind"], row["topic"], row["messages"]) for row in rows} == {("delayed", "Order_11", 2)}
    assert "Nothing waits." in run("pending", path, "--group", "CG_none").stdout


def test_without_delay_offsets_it_says_what_it_does_not_know(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    before = run_json("pending", str(store), exit_code=0)["totals"]
    for path in (store / "config").glob("delayOffset.json*"):
        path.unlink()
    after = run_json("pending", str(store), exit_code=4)
    assert isinstance(before, dict) and isinstance(after["totals"], dict) and isinstance(after["unread"], list)
    assert after["totals"]["delayed"]["messages"] > before["delayed"]["messages"]
    assert "delivered messages may be among" in after["unread"][0]


def test_metrics_have_the_same_numbers(tmp_path: Path) -> None:
    file = tmp_path / "pending.prom"
    assert run("pending", str(unpack("5.4.0-clean")), "--metrics", str(file)).exit_code == 0
    text = file.read_text("utf-8")
    assert 'kind="unread",topic="Pay_11_Topic",group="CG_tag_11"} 4' in text
    assert 'command="pending",kind="delayed"} 4' in text


def test_a_part_of_a_store_is_refused() -> None:
    assert run("pending", str(unpack("5.4.0-clean") / "commitlog")).exit_code == 3
