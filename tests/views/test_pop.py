"""What POP groups have received and acknowledged, in stores of brokers whose consumers did exactly this."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.checks.beside.config import ConsumerOffsets, QueueProgress
from rmqstore.files.store import open_store
from rmqstore.formats.configuration import parse_config_object
from rmqstore.views.progress import PopProgress, PopState
from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, unpack
from tests.views.decoder import find_records

TOPIC, GROUP = "PopRaw_11", "PopRawGroup_11"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
LOG, KV = ("5.4.0-pop", "5.5.1-pop"), ("5.4.0-pop-kv", "5.5.1-pop-kv")


def states(store: Path) -> Counter[tuple[str, str]]:
    progress = PopProgress.read(open_store(store))
    assert (progress.unreadable, progress.is_complete) == ("", True)
    return Counter((p.topic, p.state.value) for p in progress.received.values())


@pytest.mark.parametrize("name", LOG)
def test_the_revive_log_tells_what_was_acknowledged(name: str) -> None:
    """20 messages acknowledged, 20 not within 2 s, 20 not within 10 min; 9 of those returned received again."""
    assert states(unpack(name)) == {
        (TOPIC, "acknowledged"): 20,
        (TOPIC, "returned"): 20,
        (TOPIC, "invisible"): 20,
        (RETRY, "invisible"): 9,
    }


@pytest.mark.parametrize("name", KV)
def test_a_row_of_the_kv_service_is_a_message_without_acknowledgement(name: str) -> None:
    need_rocksdict()
    assert states(unpack(name)) == {(TOPIC, "invisible"): 20, (RETRY, "invisible"): 9}


@pytest.mark.parametrize("name", KV)
def test_without_a_row_the_kv_service_does_not_tell(name: str) -> None:
    need_rocksdict()
    progress = PopProgress.read(open_store(unpack(name)))
    known = [progress.of(QueueProgress(GROUP, 30), TOPIC, queue_id, n) for queue_id in (0, 1) for n in range(30)]
    assert Counter(p.state for p in known if p is not None) == {PopState.INVISIBLE: 20, PopState.UNKNOWN: 40}


@pytest.mark.parametrize("name", [*LOG, *KV])
def test_a_group_that_pulls_is_not_a_pop_group(name: str) -> None:
    progress = PopProgress.read(open_store(unpack(name)))
    assert progress.groups <= {(GROUP, TOPIC), (GROUP, RETRY)}
    assert progress.of(QueueProgress("CG", 1), "Order_11", 0, 0) is None


@pytest.mark.parametrize("name", LOG)
def test_only_the_newest_check_points_may_be_read(name: str) -> None:
    progress = PopProgress.read(open_store(unpack(name)), newest=5)
    assert not progress.is_complete
    assert 0 < len(progress.received) < 69


def test_a_processed_check_point_depends_on_the_offset_of_the_revive_group(tmp_path: Path) -> None:
    """Without the group's offset, the broker reads all check points again, and returns their messages again."""
    store = copy_store("5.5.1-pop", tmp_path)
    path = store / "config" / "consumerOffset.json"
    offsets = [one for one in ConsumerOffsets.read(open_store(store)).rows() if one.group == "CID_RMQ_SYS_REVIVE_GROUP"]
    path.write_text(path.read_text().replace("CID_RMQ_SYS_REVIVE_GROUP", "OTHER"))
    assert offsets
    assert states(store)[TOPIC, "returned"] == 0
    assert states(store)[TOPIC, "invisible"] == 40


def test_an_acknowledged_message_after_the_stored_offset_is_delivered_again(tmp_path: Path) -> None:
    """A broker stores offsets every 5 seconds; after a kill, groups start at the last stored ones."""
    store = copy_store("5.5.1-pop", tmp_path)
    acknowledged = [
        p for p in PopProgress.read(open_store(store)).received.values() if p.state is PopState.ACKNOWLEDGED
    ]
    first = min(acknowledged, key=lambda p: (p.queue_id, p.queue_offset))
    place = f"{first.topic}/{first.queue_id}/{first.queue_offset}"
    path = store / "config" / "consumerOffset.json"
    table: Any = parse_config_object(path.read_bytes())
    for offset, again in ((first.queue_offset + 1, False), (first.queue_offset, True)):
        table["offsetTable"][f"{first.topic}@{GROUP}"][str(first.queue_id)] = offset
        path.write_text(json.dumps(table))
        answer: Any = run_json("find", str(store), place, exit_code=0)
        (group,) = answer["messages"][0]["consumers"]
        assert (group["consumed"], group["pop"]["state"], group["pop"]["again"]) == (not again, "acknowledged", again)
        assert ("a broker that starts delivers it again" in run("find", str(store), place).output) is again


def test_an_unreadable_database_is_named(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.5.1-pop-kv", tmp_path)
    for path in (store / "kvStore").glob("MANIFEST-*"):
        path.write_bytes(b"garbage")
    assert PopProgress.read(open_store(store)).unreadable


@pytest.mark.parametrize(
    ("name", "key", "state", "consumed", "said"),
    [
        ("5.5.1-pop", "pr0", "returned", False, "received by PopRawGroup_11 and not acknowledged (1 retry)"),
        ("5.5.1-pop", "pr16", "returned", False, "back in the retry topic (1 retry)"),
        ("5.5.1-pop", "pr1", "acknowledged", True, "acknowledged by PopRawGroup_11"),
        ("5.5.1-pop", "pr45", "invisible", False, "received by PopRawGroup_11 and not acknowledged"),
        ("5.4.0-pop", "pr45", "invisible", False, "received by PopRawGroup_11 and not acknowledged"),
        ("5.5.1-pop-kv", "pr0", "returned", False, "received by PopRawGroup_11 and not acknowledged (1 retry)"),
        ("5.5.1-pop-kv", "pr21", "acknowledged", True, "acknowledged by PopRawGroup_11"),
        ("5.4.0-pop-kv", "pr45", "invisible", False, "received by PopRawGroup_11 and not acknowledged"),
    ],
)
def test_find_says_what_a_pop_group_did(name: str, key: str, state: str, consumed: bool, said: str) -> None:
    if name in KV:
        need_rocksdict()
    answer: Any = run_json("find", str(unpack(name)), key, exit_code=0)
    first = min(answer["messages"], key=lambda message: int(message["offset"]))
    [consumer] = first["consumers"]
    assert (consumer["group"], consumer["consumed"], consumer["pop"]["state"]) == (GROUP, consumed, state)
    assert said in " ".join(run("find", str(unpack(name)), key).stdout.split())
    [answered] = answer["answers"]
    [last] = max(answer["messages"], key=lambda message: int(message["offset"]))["consumers"]
    returned = len(answer["messages"]) > 1 and "pop" not in last
    assert answered["popped_by"] == {GROUP: "returned" if returned else last["pop"]["state"]}


def test_without_an_index_the_kv_service_does_not_tell_find(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store("5.5.1-pop-kv", tmp_path)
    for path in (store / "index").iterdir():
        path.unlink()
    done = run("find", str(store), f"{TOPIC}/0/10")
    assert "the store does not tell whether it was acknowledged" in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", LOG)
def test_an_acknowledgement_after_the_return_does_not_count(name: str, tmp_path: Path) -> None:
    """The broker has a copy in the retry topic by then, and delivers it."""
    store = copy_store(name, tmp_path)
    before = states(store)
    returned = next(p for p in PopProgress.read(open_store(store)).received.values() if p.state is PopState.RETURNED)
    log = next(
        r for r in find_records(store) if r.topic.startswith("rmq_sys_REVIVE_LOG") and r.properties["TAGS"] == "ck"
    )
    points = [json.loads(r.body) for r in find_records(store) if r.properties.get("TAGS") == "ck"]
    point = next(
        p
        for p in points
        if (p["t"], p["q"], p["pt"]) == (returned.topic, returned.queue_id, returned.pop_time)
        and returned.queue_offset - p["so"] in p["d"]
    )
    body = {name: point[name] for name in ("c", "t", "q", "so", "pt", "bn")} | {"ao": returned.queue_offset}
    with rmqstore.open_writable(store) as writer:
        writer.put(rmqstore.NewMessage(log.topic, json.dumps(body).encode(), tags="ack", queue_id=log.queue_id))
    after = PopProgress.read(open_store(store)).received[
        returned.group, returned.topic, returned.queue_id, returned.queue_offset
    ]
    assert after.state is PopState.RETURNED
    assert states(store) == before
    sums: Any = run_json("offsets", str(store), "--group", GROUP, "--topic", TOPIC, exit_code=0)
    assert sum(row["pop"].get("acknowledged", 0) for row in sums["offsets"]) == before[TOPIC, "acknowledged"]
