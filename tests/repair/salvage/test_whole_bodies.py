"""Records whose body is whole, although zero bytes lie over their topic or their properties: they are kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import open_store
from rmqstore.formats.bodies import decompress
from rmqstore.formats.message import HEADS_BY_FLAG, UNKNOWN_KEY, Message
from rmqstore.formats.properties import TAGS, parse_properties
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, write_broker_conf

TOPIC = "Order_11"


def after_body(row: Row) -> int:
    """Return the position of the topic's length in its file."""
    return row.at + HEADS_BY_FLAG[row.message.sys_flag & 0x30].size + len(row.message.body)


def text_at(row: Row) -> int:
    return row.stop - len(row.message.properties)


def lose_properties(row: Row) -> None:
    damage.zero(row.path, text_at(row), row.stop - text_at(row))


def lose_length(row: Row) -> None:
    damage.zero(row.path, text_at(row) - 2, 2)


def lose_length_and_properties(row: Row) -> None:
    damage.zero(row.path, text_at(row) - 2, row.stop - text_at(row) + 2)


def lose_topic(row: Row) -> None:
    damage.zero(row.path, after_body(row) + 1, len(row.message.topic))


def lose_page(row: Row) -> None:
    damage.zero(row.path, after_body(row), row.stop - after_body(row))


KINDS = (lose_properties, lose_length, lose_length_and_properties, lose_topic, lose_page)
WITHOUT_LOSS = (lose_length, lose_topic)


def some(store: Path) -> list[Row]:
    found = [row for row in rows(store) if row.message.topic_text == TOPIC and row.message.is_dispatched]
    return found[3:-3:9]


def now(store: Path, row: Row) -> Message:
    log, _ = next((log, at) for log, at in open_store(store).logs if log.find(row.offset) is not None)
    message = message_at(log, row.offset)
    assert message is not None
    return message


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger"])
@pytest.mark.parametrize("lose", KINDS)
@pytest.mark.quick_rows(6)
def test_the_message_is_kept_at_its_size(name: str, lose: Callable[[Row], None], tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    hit = some(store)
    original = {row.path: row.path.read_bytes() for row in hit}
    for row in hit:
        lose(row)
    damaged = {path: path.read_bytes() for path in original}
    planned: Any = run_json("recover", str(store), "--apply", exit_code=0)
    assert planned["loss"]["messages"] == 0
    assert run_json("verify", str(store), exit_code=0)["clean"]
    for row in hit:
        after, was = now(store, row), row.message
        place = after.topic, after.queue_id, after.queue_offset, after.size, after.body
        assert place == (was.topic, was.queue_id, was.queue_offset, was.size, was.body)
        found, had = parse_properties(after.properties), parse_properties(was.properties)
        assert found.get(TAGS) == had.get(TAGS)
        if lose in WITHOUT_LOSS:
            assert found == had
        else:
            assert found[UNKNOWN_KEY].strip() == "properties"
    run_json("undo", str(next((store / ".rmqstore").iterdir())), exit_code=0)
    assert {path: path.read_bytes() for path in damaged} == damaged


def test_lost_and_get_have_the_body_before_the_repair(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = some(store)[1]
    lose_page(row)
    answer: Any = run_json("lost", str(store), exit_code=1)
    (one,) = answer["messages"]
    assert (one["offset"], one["body"], one["mended"], one["incomplete"]) == (row.offset, "intact", True, True)
    assert answer["account"]["lost_already"] == 1
    assert answer["unlisted"] == {}
    bodies = tmp_path / "bodies"
    run("lost", str(store), "--bodies", str(bodies))
    assert [file.read_bytes() for file in bodies.iterdir()] == [decompress(row.message.sys_flag, row.message.body)]
    got: Any = run_json("get", str(store), str(row.offset), exit_code=1)
    assert got["message"]["offset"] == row.offset


def test_a_kept_and_a_lost_message_side_by_side_are_saved_once(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = some(store)[1]
    following = next(other for other in rows(store) if other.offset == row.offset + row.size)
    lose_page(row)
    damage.zero(following.path, following.at, following.size)
    planned: Any = run_json("recover", str(store), "--apply", exit_code=0)
    assert planned["loss"]["messages"] == 1
    assert now(store, row).body == row.message.body
    (saved,) = (next((store / ".rmqstore").iterdir()) / "lost+found").iterdir()
    assert saved.stat().st_size == row.size + following.size


def test_tags_that_no_other_message_has_are_made(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    tagged = [row for row in rows(store) if row.message.topic_text == TOPIC and row.message.is_dispatched]
    tags = parse_properties(tagged[5].message.properties)[TAGS]
    hit = [row for row in tagged if parse_properties(row.message.properties).get(TAGS) == tags]
    for row in hit:
        lose_page(row)
    run_json("recover", str(store), "--apply", exit_code=0)
    assert run_json("verify", str(store), exit_code=0)["clean"]
    for row in hit:
        found = parse_properties(now(store, row).properties)
        assert found[UNKNOWN_KEY].strip() == "properties TAGS"
        assert found[TAGS] != tags


def test_without_queues_the_records_around_prove_the_place(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = some(store)[1]
    lose_length_and_properties(row)
    shutil.rmtree(store / "consumequeue")
    conf = write_broker_conf("5.4.0-clean", store)
    planned: Any = run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0)
    assert planned["loss"]["messages"] == 0
    assert now(store, row).body == row.message.body


def test_a_record_with_another_queue_offset_in_its_header_is_not_kept(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = some(store)[1]
    lose_page(row)
    damage.overwrite(row.path, row.at + 20, (row.message.queue_offset + 1).to_bytes(8, "big"))
    planned: Any = run_json("recover", str(store), exit_code=1)
    assert planned["loss"]["messages"] == 1


def test_a_message_of_a_delay_level_is_not_kept(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = next(row for row in rows(store) if row.message.topic_text == "SCHEDULE_TOPIC_XXXX")
    lose_page(row)
    planned: Any = run_json("recover", str(store), exit_code=1)
    assert planned["loss"]["messages"] == 1
