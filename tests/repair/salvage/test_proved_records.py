"""No command changes a unit that proves its message to be damaged to match the damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.formats import properties
from tests import damage
from tests.command import run
from tests.repair.salvaging import Row, pick
from tests.stores import copy_store
from tests.untouched import content

WORDS = (
    ("rebuild", "cq"),
    ("rebuild", "index"),
    ("recover", "--only", "CQ-WRONG-TAG"),
    ("recover", "--role", "slave"),
    ("recover", "--strategy", "truncate"),
)
PARTS = ("commitlog", "consumequeue", "index", "dledger-n0")


def flip_tags(store: Path, number: int = 0) -> Row:
    """Flip one bit in the TAGS of the N-th message with TAGS that is in a queue of its own topic."""
    row = pick(store, _tagged, number)
    tags = row.message.properties.index(b"TAGS\x01") + 5
    damage.flip(row.path, row.stop - len(row.message.properties) + tags, 2)
    return row


def _tagged(row: Row) -> bool:
    text, topic = row.message.properties, row.message.topic_text
    plain = not properties.is_system_topic(topic) and not topic.startswith("%") and not row.message.carries_crc
    return plain and b"TAGS\x01" in text and not row.message.transaction_type


def parts(store: Path) -> dict[str, object]:
    files = content(store)
    return {name: entry for name, entry in files.items() if name.split("/")[0] in PARTS}


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger"])
def test_the_unit_stays_and_this_is_reported(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    row = flip_tags(store, 5)
    before = parts(store)
    command = (words[0], str(store), *words[1:])
    plan = json.loads(run(*command, "--json").stdout)
    assert plan["facts"]["proved_tags"] == [row.offset]
    assert "CQ-WRONG-TAG" not in plan["cures"]
    assert plan["facts"]["stays"]["CQ-WRONG-TAG"]["count"] == 1
    assert any(f"at {row.offset:,} have damaged TAGS" in note for note in plan["notes"])
    result = run(*command, "--apply", "--json")
    assert result.exit_code == 1, result.output
    assert parts(store) == before or words[1] == "index"
    assert run("recover", str(store), "--role", "single", "--apply").exit_code == 0
    data = row.path.read_bytes()[row.at : row.stop]
    assert row.message.properties in data, "recover mends the message"


def test_rebuild_makes_the_unit_of_such_a_message_from_its_original_tags(store: Path) -> None:
    row = flip_tags(store, 5)
    queue = store / "consumequeue" / row.message.topic_text / str(row.message.queue_id)
    file = next(queue.iterdir())
    was = file.read_bytes()
    other = (row.message.queue_offset + 3) * 20
    damage.flip(file, other + 5)  # another unit of the queue, so that the queue is rewritten
    assert run("rebuild", str(store), "cq", "--apply").exit_code == 1
    assert file.read_bytes() == was


def test_a_unit_with_one_wrong_bit_is_made_to_fit_its_message(store: Path) -> None:
    row = pick(store, _tagged, 5)
    file = next((store / "consumequeue" / row.message.topic_text / str(row.message.queue_id)).iterdir())
    was = file.read_bytes()
    damage.flip(file, row.message.queue_offset * 20 + 19, 3)
    assert run("rebuild", str(store), "cq", "--apply").exit_code == 0
    assert file.read_bytes() == was
