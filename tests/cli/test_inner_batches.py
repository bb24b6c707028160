"""Messages inside batch records (queue.type=BatchCQ): found by key and id, and shown one by one."""

from __future__ import annotations

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
