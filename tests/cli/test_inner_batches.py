"""Messages inside batch records (queue.type=BatchCQ): found by key and id, and shown one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import run, run_json
from tests.stores import sent, unpack

STORES = ("5.1.4-formats", "5.4.0-formats", "5.5.1-formats")


@pytest.mark.parametrize("name", STORES)
def test_every_message_of_a_batch_is_shown(name: str) -> None:
    batches = [one for one in sent(name) if one.kind == "inner-batch"]
    assert len(batches) > 2
    for batch in batches:
        place = f"{batch.topic}/{batch.queue_id}/{batch.queue_offset}"
        message: Any = run_json("get", str(unpack(name)), place, exit_code=0)["message"]
        inner = message["inner"]
        assert len(inner) == int(message["properties"]["INNER_NUM"])
        assert [one["queue_offset"] for one in inner] == [batch.queue_offset + n for n in range(len(inner))]
        assert inner[0]["keys"] == batch.keys and inner[0]["tags"] == batch.tags
        assert inner[0]["body_length"] == batch.body_length
        hidden: Any = run_json("get", str(unpack(name)), place, "--body", "none", exit_code=0)["message"]
        assert not any(field.startswith("body_base") or field == "body" for one in hidden["inner"] for field in one)


@pytest.mark.parametrize("name", STORES)
def test_a_message_of_a_batch_is_found_by_its_key_and_id(name: str) -> None:
    store = str(unpack(name))
    batch = next(one for one in sent(name) if one.kind == "inner-batch" and one.queue_offset == 0)
    place = f"{batch.topic}/{batch.queue_id}/{batch.queue_offset}"
    message: Any = run_json("get", store, place, exit_code=0)["message"]
    last = message["inner"][-1]
    for text in (last["keys"], last["unique_key"]):
        found: Any = run_json("find", store, text, exit_code=0)["messages"]
        assert [row["offset"] for row in found] == [message["offset"]]
        dumped = run("dump", store, "--key" if text == last["keys"] else "--msg-id", text, "--format", "ndjson")
        assert dumped.exit_code == 0 and len(dumped.stdout.splitlines()) == 1
    text = run("get", store, place).stdout
    assert f"{len(message['inner'])} messages in this batch" in text and last["keys"] in text


def test_other_messages_have_no_inner_ones() -> None:
    assert "inner" not in str(run_json("get", str(unpack("5.4.0-clean")), "Order_11/0/3", exit_code=0)["message"])


@pytest.mark.parametrize("name", STORES)
def test_an_export_writes_the_messages_of_a_batch_one_by_one(name: str, tmp_path: Path) -> None:
    store = str(unpack(name))
    batches = [json.loads(line) for line in run("export", store, "--offsets").stdout.splitlines()]
    batches = [row for row in batches if "INNER_NUM" in row["properties"]]
    rows = [json.loads(line) for line in run("export", store, "--offsets", "--split-batches").stdout.splitlines()]
    for batch in batches:
        own = [row for row in rows if row["offset"] == batch["offset"]]
        place = f"{batch['topic']}/{batch['queue_id']}/{batch['queue_offset']}"
        shown: Any = run_json("get", store, place, "--body", "base64", exit_code=0)["message"]
        for row, inner in zip(own, shown["inner"], strict=True):
            fields = ("queue_offset", "tags", "keys", "unique_key", "body_base64")
            assert [row[name] for name in fields] == [inner[name] for name in fields]
            assert (row["msg_id"], row["size"]) == (batch["msg_id"], batch["size"])
            assert not row["sys_flag"] & 0x80
    assert len(rows) == run_json("du", store, exit_code=0)["messages"]
    key = rows[-1]["keys"] or next(row["keys"] for row in reversed(rows) if row["keys"])
    found = run("export", store, "--split-batches", "--key", key.split(" ")[0]).stdout.splitlines()
    assert found and all(key.split(" ")[0] in json.loads(line)["keys"].split(" ") for line in found)


def test_parquet_has_the_messages_of_a_batch(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    store = str(unpack("5.4.0-formats"))
    run("export", store, "--split-batches", "--format", "parquet", "-o", str(tmp_path / "all.parquet"))
    table = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    rows = [json.loads(line) for line in run("export", store, "--split-batches").stdout.splitlines()]
    assert [(r["topic"], r["queue_offset"], r["keys"]) for r in table] == [
        (r["topic"], r["queue_offset"], r["keys"]) for r in rows
    ]


@pytest.mark.parametrize("name", STORES)
def test_du_counts_the_messages_of_a_batch_one_by_one(name: str) -> None:
    store = str(unpack(name))
    used: Any = run_json("du", store, "--by", "queue", exit_code=0)
    counts = {row["queue"]: row["messages"] for row in used["by"]["queue"]}
    ends: Any = run_json("verify", store, exit_code=0)["queues"]
    topics = {one.topic for one in sent(name) if one.kind == "inner-batch"}
    queues = [queue for queue in ends if queue.rpartition("/")[0] in topics]
    assert queues
    assert {queue: counts[queue] for queue in queues} == {q: ends[q]["max"] - ends[q]["min"] for q in queues}
