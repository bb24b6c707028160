"""The loss of a plan counts every message that a part of the store shows; it is a lower bound if more may be gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.index import index_sizes
from rmqstore.files.store import open_store
from rmqstore.formats import index
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import rows
from tests.stores import copy_store, unpack


def _plan(store: Path, *words: str) -> dict[str, Any]:
    return dict(run_json("recover", str(store), *words, exit_code=1))


def _listed(store: Path) -> tuple[int, bool]:
    answer: dict[str, Any] = dict(run_json("lost", str(store), exit_code=1))
    lost = [row for row in answer["messages"] if row["cause"] in ("damage", "cut")]
    return len(lost) + sum(answer["unlisted"].values()), answer["at_least"]


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("name", "number"), [("5.4.0-slave", 3), ("5.4.0-clean", 6), ("5.4.0-slave", 1), ("5.4.0-killed", 3)]
)
def test_messages_of_a_missing_file_are_counted_without_queues(name: str, number: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    path = sorted((store / "commitlog").iterdir())[number]
    gone = sum(row.path.name == path.name for row in rows(store))
    path.unlink()
    shutil.rmtree(store / "consumequeue")
    for words in (("--accept-fillers",), ("--accept-shift",), ()):
        loss = _plan(store, *words)["loss"]
        assert (loss["messages"], loss.get("at_least")) == (gone, True), words
    assert _listed(store) == (gone, True)


def test_the_list_of_lost_messages_is_complete_if_only_a_log_file_is_missing(store: Path) -> None:
    path = sorted((store / "commitlog").iterdir())[3]
    gone = sum(row.path == path for row in rows(store))
    path.unlink()
    assert _listed(store) == (gone, False)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["5.4.0-slave", "4.9.7-killed", "5.4.0-clean"])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_indexed_messages_after_the_end_are_counted_without_queues(name: str, checkpoint: bool, tmp_path: Path) -> None:
    """A killed broker may not have written its last units; but the index has no messages that the log lacks."""
    store = copy_store(name, tmp_path)
    first = rows(store)[-14]
    damage.zero(first.path, first.at, first.path.stat().st_size - first.at)
    for path in (store / "commitlog").iterdir():
        if path.name > first.path.name:
            path.unlink()
    shutil.rmtree(store / "consumequeue")
    if not checkpoint:
        (store / "checkpoint").unlink()
    loss = _plan(store)["loss"]
    assert (loss["messages"], loss["at_least"]) == (14, True)
    assert _listed(store) == (14, True)


def test_files_between_an_empty_file_and_the_log_are_lost(tmp_path: Path) -> None:
    store = copy_store("5.4.0-slave", tmp_path)
    first, second, third, *_ = sorted((store / "commitlog").iterdir())
    gone = sum(row.path.name < third.name for row in rows(unpack("5.4.0-slave")))
    first.write_bytes(b"")
    second.unlink()
    loss = _plan(store)["loss"]
    assert (loss["messages"], loss["at_least"]) == (gone, True)
    assert _listed(store) == (gone, True)


@pytest.mark.parametrize("name", ["5.4.0-dledger", "5.4.0-clean"])
def test_garbage_in_the_index_shows_no_lost_message(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    path = max((store / "index").iterdir())
    sizes = index_sizes(open_store(store))
    assert sizes is not None
    damage.flip(path, index.HEADER.at("end_phy_offset") + 3, 0)  # the header's end is far after the log
    for unit in (50, 60, 70, 80):
        at = index.unit_at(unit, sizes[0]) + index.UNIT.at("phy_offset")
        damage.flip(path, at + 5, 4)
    shutil.rmtree(store / "consumequeue")
    loss = _plan(store)["loss"]
    assert (loss["messages"], loss.get("at_least")) == (0, None)


def test_indexed_messages_are_counted_after_the_last_unit_of_a_queue(store: Path) -> None:
    """One unit points into the damage; only the index shows that its queue went on."""
    queue = store / "consumequeue" / "Order_11" / "0"
    own = [row for row in rows(store) if row.slot[:2] == ("Order_11", 0)]
    for row in own[-3:]:
        damage.garble(row.path, row.at, row.size)
    at = own[-2].slot[2] * 20
    damage.zero(max(queue.iterdir()), at - int(max(queue.iterdir()).name), 40)
    loss = _plan(store)["loss"]
    assert (loss["messages"], loss["at_least"], loss["queues"]) == (3, True, {"Order_11/0": 1})


def test_a_flipped_bit_in_a_topic_makes_no_lost_messages(store: Path) -> None:
    """Its message fills the gap of its real queue; the queue of the wrong name had no messages before it."""
    found = rows(store)
    files = sorted((store / "commitlog").iterdir())
    gone = sum(row.path == files[1] for row in found)
    row = next(r for r in found if r.path == files[4] and r.message.topic_text == "Order_11")
    topic = row.path.read_bytes().index(b"Order_11", row.at)
    files[1].unlink()
    shutil.rmtree(store / "consumequeue")
    before = _plan(store, "--accept-fillers")["loss"]
    assert before["messages"] == gone
    damage.flip(row.path, topic, 0)
    loss = _plan(store, "--accept-fillers")["loss"]
    assert "Nrder_11" not in str(loss["queues"])
    assert gone <= loss["messages"] <= gone + 1


@pytest.mark.parametrize("flushed", [True, False])
def test_a_log_whose_only_record_is_destroyed(flushed: bool, store: Path) -> None:
    """The time in the checkpoint proves that the bytes were a message, and not a write that a crash interrupted."""
    first = rows(store)[0]
    for path in (store / "commitlog").iterdir():
        if path != first.path:
            path.unlink()
    damage.zero(first.path, first.stop, first.path.stat().st_size - first.stop)
    damage.garble(first.path, first.at, first.size)
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(store / name)
    if not flushed:
        (store / "checkpoint").unlink()
    loss = _plan(store)["loss"]
    assert (loss["messages"], loss.get("at_least", False)) == (0, flushed)
    assert ("Lost: at least 0 messages" if flushed else "No data will be lost") in run("recover", str(store)).output
