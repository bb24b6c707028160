"""BatchCQ: fields that a unit proves are restored in the record as the broker wrote them; else the unit is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.consumequeue import BATCH_UNIT
from rmqstore.formats.message import HEAD, HEADS_BY_FLAG
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store

NAMES = ["5.1.4-formats", "5.4.0-formats"]
TOPIC = "BatchCq_11"
PARTS = ("commitlog", "batchconsumequeue")


def batches(store: Path, queue_id: int = 0) -> list[Row]:
    """Return the inner batches of one queue."""
    return [row for row in rows(store) if row.slot[:2] == (TOPIC, queue_id)]


def in_header(name: str, byte: int = 0) -> Callable[[Row], int]:
    return lambda row: row.at + HEAD.at(name) + byte


def in_store_time(row: Row) -> int:
    """Return the position of the store time's byte that counts units of about 49 days."""
    return row.at + HEADS_BY_FLAG[row.message.sys_flag & 0x30].at("store_timestamp") + 3


def in_property(name: bytes) -> Callable[[Row], int]:
    text = name + b"\x01"
    return lambda row: row.stop - len(row.message.properties) + row.message.properties.index(text) + len(text)


def in_topic(row: Row) -> int:
    return row.at + row.path.read_bytes()[row.at : row.stop].rindex(TOPIC.encode())


DAMAGED_BITS = {
    "QUEUEOFFSET": (in_header("queue_offset", 7), 4),
    "queue id": (in_header("queue_id", 3), 1),
    "topic": (in_topic, 0),
    "store time": (in_store_time, 0),
    "INNER_BASE": (in_property(b"INNER_BASE"), 1),
    "INNER_NUM": (in_property(b"INNER_NUM"), 2),
}


def content(store: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for part in PARTS for path in (store / part).rglob("0*") if path.is_file()}


def middle(store: Path) -> Row:
    found = batches(store)
    assert len(found) > 2
    return found[len(found) // 2]


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("field", DAMAGED_BITS)
@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_what_it_was(name: str, field: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    row, (place, bit) = middle(store), DAMAGED_BITS[field]
    before = content(store)
    damage.flip(row.path, place(row), bit)
    done = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["loss"]["messages"] == done["loss"]["visible_fillers"] == 0  # type: ignore[index]
    assert content(store) == before


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("field", ["queue id", "INNER_NUM"])
@pytest.mark.parametrize("words", [("recover", "--role", "slave"), ("rebuild", "cq")], ids=" ".join)
def test_where_the_log_is_not_changed_the_unit_stays(words: tuple[str, ...], field: str, tmp_path: Path) -> None:
    store = copy_store("5.1.4-formats", tmp_path)  # 5.4.0-formats has record CRCs, which find such damage
    row, (place, bit) = middle(store), DAMAGED_BITS[field]
    damage.flip(row.path, place(row), bit)
    before = content(store)
    plan: dict[str, Any] = dict(run_json(words[0], str(store), *words[1:], exit_code=1))
    assert plan["facts"]["proved_batches"] == [row.offset]
    assert any("(proved by the unit of the batch)" in note for note in plan["notes"])
    assert set(plan["facts"]["stays"]) & {"BCQ-WRONG-UNIT", "BCQ-DANGLING-UNIT"}
    assert run(words[0], str(store), *words[1:], "--apply").exit_code == 1
    assert content(store) == before


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("field", ["size", "tags_code", "store_timestamp", "base_offset", "batch_size"])
def test_a_damaged_unit_is_made_to_fit_its_record(field: str, tmp_path: Path) -> None:
    store = copy_store(NAMES[-1], tmp_path)
    before = content(store)
    queue = store / "batchconsumequeue" / TOPIC / "0" / f"{0:020d}"
    at = BATCH_UNIT.size * (len(batches(store)) // 2) + BATCH_UNIT.at(field)
    damage.flip(queue, at + (1 if field in ("size", "batch_size") else 3), 1)
    assert content(store) != before
    run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert content(store) == before
