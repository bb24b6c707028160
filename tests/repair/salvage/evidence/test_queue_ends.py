"""The last messages of a queue and its consume queue are lost: what is still known, and "at least" in the loss."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from rmqstore.formats.configuration import build_config_json, parse_config_object
from tests import damage
from tests.command import run_json
from tests.repair.salvaging import Row, log_faults, rows, salvage
from tests.stores import copy_store


def last_of(store: Path, topic: str) -> Row:
    """Return the last message of a queue that has messages of other queues after it."""
    found = rows(store)
    last = {row.slot[:2]: row for row in found}
    return next(row for name, row in last.items() if name[0] == topic and row.offset < found[-10].offset)


def lose(store: Path, row: Row, *, known: bool = False, index: bool = True) -> None:
    """Destroy a record and its topic's consume queues, and unless `known`, the progress of consumers."""
    damage.garble(row.path, row.at - row.body_offset, row.size + row.body_offset)
    shutil.rmtree(store / "consumequeue" / row.slot[0])
    if not known:
        for path in (store / "config").glob("consumerOffset.json*"):
            path.unlink()
    if not index:
        shutil.rmtree(store / "index")


def progress(store: Path, row: Row, offset: int) -> None:
    table = {"offsetTable": {f"{row.slot[0]}@ahead": {row.slot[1]: offset}}}
    (store / "config" / "consumerOffset.json").write_bytes(build_config_json(table))


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-clean", "5.1.4-dledger"])
def test_progress_of_a_consumer_shows_where_the_queue_ended(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    row = last_of(store, "Order_11")
    lose(store, row)
    progress(store, row, row.slot[2] + 1)
    result = salvage(store)
    (filler,) = result.fillers
    assert (filler.topic, filler.queue_id, filler.queue_offset) == row.slot
    assert (result.loss.messages, dict(result.loss.more)) == (1, {})
    assert any("lost 1 message at its end" in note for note in result.notes)
    run_json("recover", str(store), "--apply", exit_code=0)
    assert log_faults(store) == {}
    assert {r.slot: r.offset for r in rows(store)}[row.slot] == row.offset


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger", "5.5.1-clean"])
def test_a_record_without_any_evidence_is_never_nothing(name: str, tmp_path: Path) -> None:
    """Its queue had no other message, and consume queues, index and progress are gone."""
    store = copy_store(name, tmp_path)
    queues: dict[tuple[str, int], list[Row]] = {}
    for row in rows(store):
        queues.setdefault(row.slot[:2], []).append(row)
    for row in min(queues.values(), key=len):
        damage.garble(row.path, row.at - row.body_offset, row.size + row.body_offset)
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(store / name)
    loss = salvage(store).loss
    assert (loss.messages, dict(loss.more)) == (len(min(queues.values(), key=len)), {"at_least": True})


def test_zeros_that_become_a_blank_may_have_been_a_message(store: Path) -> None:
    row = next(row for row, after in pairwise(rows(store)) if after.path != row.path)
    damage.zero(row.path, row.at, row.path.stat().st_size - row.at)
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(store / name)
    assert salvage(store).loss.more == {"at_least": True}


def test_a_consumer_further_than_an_intact_queue_changes_nothing(store: Path) -> None:
    row = last_of(store, "Order_11")
    damage.garble(row.path, row.at, row.size)
    progress(store, row, row.slot[2] + 3)
    result = salvage(store)
    assert [(f.topic, f.queue_id, f.queue_offset) for f in result.fillers] == [row.slot]
    assert (result.loss.messages, dict(result.loss.more)) == (1, {})


@pytest.mark.parametrize("gone", [False, True])
def test_truncation_counts_what_the_damage_held(gone: bool, store: Path) -> None:
    found = rows(store)
    path = sorted({row.path for row in found})[3]
    hit = [row for row in found if row.path == path][10:20]
    damage.zero(path, hit[0].at, hit[-1].stop - hit[0].at)
    behind = [row for row in found if row.offset >= hit[0].offset]
    if gone:
        shutil.rmtree(store / "consumequeue")
    loss = run_json("recover", str(store), "--strategy", "truncate", exit_code=1)["loss"]
    assert isinstance(loss, dict)
    assert loss["messages"] == len(behind)
    assert loss.get("at_least", False) is False or gone


def test_offsets_after_a_damaged_last_record_are_cut_with_it(store: Path) -> None:
    last = rows(store)[-1]
    progress(store, last, last.slot[2] + 1)
    damage.garble(last.path, last.at + 88, 4)  # its body: its frame is intact, and nothing follows
    done = run_json("recover", str(store), "--apply", exit_code=0)
    assert done["remaining"] == {"counts": {}}
    loss = done["loss"]
    assert isinstance(loss, dict)
    assert loss["messages"] == 1
    table = parse_config_object((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert table == {f"{last.slot[0]}@ahead": {str(last.slot[1]): last.slot[2]}}
